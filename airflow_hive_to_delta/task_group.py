"""A whole migration in one call: discover, then list and convert each table, then report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow.sdk import TaskGroup, task_group

from airflow_hive_to_delta.engines import Engine
from airflow_hive_to_delta.manifests import INLINE_LIMIT
from airflow_hive_to_delta.operators.convert import ConvertTableOperator
from airflow_hive_to_delta.operators.discover import CatalogDiscoverOperator, Choose, GlueDiscoverOperator
from airflow_hive_to_delta.operators.list_files import ListFilesOperator, Strategy
from airflow_hive_to_delta.operators.report import MigrationReportOperator
from airflow_hive_to_delta.operators.tables import Options, check_count


@dataclass(frozen=True)
class GlueSource:
    """Tables of AWS Glue: see :class:`GlueDiscoverOperator`."""

    databases: str | Sequence[str]
    include: str | Sequence[str] = "*"
    exclude: str | Sequence[str] = ()
    catalog_id: str | None = None


@dataclass(frozen=True)
class CatalogSource:
    """Tables of Unity Catalog, ``hive_metastore`` or another catalog of Spark: see :class:`CatalogDiscoverOperator`."""

    allow: str | Sequence[str]
    deny: str | Sequence[str] = ("*.information_schema.*",)


@dataclass(frozen=True)
class FileListing:
    """How files are found: see :class:`ListFilesOperator`."""

    strategy: Strategy = "s3"
    inventory_manifests: str | Sequence[str] | None = None
    glue_database: str | None = None
    inline_limit: int = INLINE_LIMIT


@dataclass(frozen=True)
class Target:
    """Where Delta tables are registered: a schema for all of them, or one for each database. Nowhere by default."""

    catalog: str | None = None
    schema: str | Mapping[str, str] | None = None


@dataclass(frozen=True)
class Staging:
    """Where manifests, results and reports are kept, such as ``s3://bucket/staging``."""

    root: str
    #: The Airflow connection of the storage; the AWS connection of the group for one on S3.
    conn_id: str | None = None


@dataclass(frozen=True)
class PerTable:
    """How the tasks of each table, or of each batch of tables, run."""

    retries: int = 2
    retry_delay: timedelta = timedelta(minutes=1)
    #: Tables (or batches) at a time in one DAG run, in each of the two steps; as many as Airflow has room for when not
    #: given. A pool limits both steps together.
    max_active: int | None = None
    pool: str | None = None
    execution_timeout: timedelta | None = None
    #: Tables that one task takes. Needed for more tables than Airflow maps (``core.max_map_length``), and worth it for
    #: many small ones: they share one Spark session.
    batch_size: int | None = None
    #: Tables of a batch that are converted side by side.
    max_workers: int = 4

    def __post_init__(self) -> None:
        check_count("retries", self.retries, least=0)
        for name in ("max_active", "batch_size"):
            check_count(name, getattr(self, name), least=1, optional=True)


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
    aws_conn_id: str | None = "aws_default",
    region_name: str | None = None,
    asset_alias: str | None = "hive_to_delta",
) -> TaskGroup:
    """Tasks that migrate every table of a source: discover, a mapped group of list and convert, and the report.

    Each table has its own retries, and a table that fails touches no other; the report then fails the run and names it.
    Clearing a failed table runs that table and the report again, and nothing else.

    :param source: which tables: :class:`GlueSource` or :class:`CatalogSource`.
    :param staging: where manifests, results and the report are kept: :class:`Staging`, or just its root.
    :param target: where the Delta tables are registered; not at all when not given.
    :param listing: how files are found; by default on S3 for tables of Glue, by Spark for those of a catalog.
    :param engine: where Spark jobs run; an embedded Spark by default.
    :param options: :class:`ConversionOptions`.
    :param per_table: retries, concurrency and batches.
    :param choose: a function that takes a discovered table as a dict and returns it, with another
        ``target_table_name`` for example, or None to leave it out.
    :param aws_conn_id: the AWS connection of every task; None: the environment's identity.
    :param asset_alias: the alias that the converted tables, as assets, belong to.
    """
    target = target or Target()
    staging = Staging(staging) if isinstance(staging, str) else staging
    per_table = per_table or PerTable()
    _check("source", source, GlueSource, CatalogSource)
    _check("staging", staging, Staging)
    _check("target", target, Target)
    _check("per_table", per_table, PerTable)
    listing = listing or FileListing("s3" if isinstance(source, GlueSource) else "spark")
    _check("listing", listing, FileListing)
    identity: dict[str, Any] = {"aws_conn_id": aws_conn_id, "region_name": region_name}
    job: dict[str, Any] = {**identity, "engine": engine, "staging": staging.root, "staging_conn_id": staging.conn_id}
    each: dict[str, Any] = {
        "retries": per_table.retries,
        "retry_delay": per_table.retry_delay,
        "max_active_tis_per_dagrun": per_table.max_active,
        "execution_timeout": per_table.execution_timeout,
        **({"pool": per_table.pool} if per_table.pool else {}),
    }
    choice: dict[str, Any] = {
        "target_schema": target.schema,
        "choose": choose,
        "batch_size": per_table.batch_size,
        "options": options,
    }
    with TaskGroup(group_id) as group:
        discover: GlueDiscoverOperator | CatalogDiscoverOperator
        if isinstance(source, GlueSource):
            discover = GlueDiscoverOperator(
                task_id="discover",
                databases=source.databases,
                include=source.include,
                exclude=source.exclude,
                catalog_id=source.catalog_id,
                **identity,
                **choice,
            )
        else:
            discover = CatalogDiscoverOperator(
                task_id="discover", allow=source.allow, deny=source.deny, **job, **choice
            )

        @task_group(group_id="tables")
        def tables(table: Any) -> None:
            list_files = ListFilesOperator(
                task_id="list_files",
                table=table,
                listing=listing.strategy,
                inventory_manifests=listing.inventory_manifests,
                glue_database=listing.glue_database,
                inline_limit=listing.inline_limit,
                options=options,
                **job,
                **each,
            )
            ConvertTableOperator(
                task_id="convert",
                table=table,
                files=list_files.output,
                target_catalog=target.catalog,
                target_schema=target.schema,
                options=options,
                max_workers=per_table.max_workers,
                asset_alias=asset_alias,
                **job,
                **each,
            )

        mapped = tables.expand(table=discover.output)
        report = MigrationReportOperator(
            task_id="report",
            discover_task_id=discover.task_id,
            table_task_ids=[f"{group.group_id}.tables.list_files", f"{group.group_id}.tables.convert"],
            staging=staging.root,
            staging_conn_id=staging.conn_id or aws_conn_id,
        )
        mapped >> report
    return group


def _check(argument: str, given: Any, *expected: type) -> None:
    if not isinstance(given, expected):
        names = " or ".join(kind.__name__ for kind in expected)
        raise TypeError(f"{argument} is {given!r}, expected {names}")
