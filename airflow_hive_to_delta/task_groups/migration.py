"""A whole migration in one call: discover, then list, convert and verify for each table, then report."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator, TaskGroup

from airflow_hive_to_delta.core.results import VerifyLevel
from airflow_hive_to_delta.engines import Engine
from airflow_hive_to_delta.operators.arguments import Options
from airflow_hive_to_delta.operators.tables.selection import Choose
from airflow_hive_to_delta.task_groups.config import (
    CatalogSource,
    FileListing,
    GlueSource,
    PerTable,
    Staging,
    Target,
)
from airflow_hive_to_delta.task_groups.steps import GroupSteps


def hive_to_delta_task_group(
    group_id: str = "hive_to_delta",
    *,
    source: GlueSource | CatalogSource,
    staging: Staging | str,
    target: Target | None = None,
    listing: FileListing | None = None,
    engine: Engine | None = None,
    options: Options = None,
    per_table: PerTable | None = None,
    choose: Choose | None = None,
    at_least_one: bool = True,
    verify: VerifyLevel | None = "counts",
    aws_conn_id: str | None = "aws_default",
    region_name: str | None = None,
    asset_alias: str | None = "hive_to_delta",
) -> TaskGroup:
    """Tasks that migrate every table of a source: discover, a mapped group of list, convert and verify, and the report.

    Each table has its own retries, and a table that fails touches no other; the report then fails the run and names it.
    Clearing a failed table runs that table and the report again, and nothing else.

    :param source: which tables: :class:`GlueSource` or :class:`CatalogSource`.
    :param staging: where manifests, results and the report are kept: :class:`Staging`, or just its root.
    :param target: where the Delta tables are registered: :class:`GlueTarget` or :class:`CatalogTarget`; not at all when
        not given. It sets ``register_in`` of the options.
    :param listing: how files are found; by default on S3 for tables of Glue, by Spark for those of a catalog.
    :param engine: where Spark jobs run; an embedded Spark by default.
    :param options: :class:`ConversionOptions`.
    :param per_table: retries, concurrency, batches, and whether the job that converts a table verifies it, too:
        :class:`PerTable`.
    :param choose: a function that takes a discovered table as a dict and returns it, with another
        ``target_table_name`` for example, or None to leave it out.
    :param at_least_one: fail when the source has no table at all, which is a mistyped name more often than not.
    :param verify: compare every table that the run converted with the files that it was made from, by ``counts`` or in
        ``full``; None does not. So is one that an earlier run has converted and nobody has verified since. One that was
        verified before, or that others made a Delta table, is not compared: its task is skipped.
    :param aws_conn_id: the AWS connection of every task; None: the environment's identity.
    :param asset_alias: the alias that the converted tables, as assets, belong to.
    """
    tasks = GroupSteps(
        source=source,
        staging=staging,
        target=target,
        listing=listing,
        engine=engine,
        options=options,
        per_table=per_table,
        choose=choose,
        at_least_one=at_least_one,
        verify=verify,
        aws_conn_id=aws_conn_id,
        region_name=region_name,
        asset_alias=asset_alias,
    )

    def steps(table: Any) -> list[BaseOperator]:
        files = tasks.list_files(table)
        convert = tasks.convert(table, files)
        return [files, convert, *tasks.verify_after(convert, table, files)]

    return tasks.group(group_id, "convert", steps)
