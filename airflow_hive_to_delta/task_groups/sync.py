"""Syncs of converted tables on a schedule: discover, then list and sync for each table, then report."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, TaskGroup

from airflow_hive_to_delta.core.results import OutputMode, VerifyLevel
from airflow_hive_to_delta.engines import Engine
from airflow_hive_to_delta.operators.arguments import Options
from airflow_hive_to_delta.operators.table_selection import Choose
from airflow_hive_to_delta.task_groups.config import CatalogSource, FileListing, GlueSource, PerTable, Staging, Target
from airflow_hive_to_delta.task_groups.steps import GroupSteps


def hive_to_delta_sync_task_group(
    group_id: str = "hive_to_delta_sync",
    *,
    source: GlueSource | CatalogSource,
    staging: Staging | str,
    convert_new: bool = False,
    target: Target | None = None,
    listing: FileListing | None = None,
    engine: Engine | None = None,
    options: Options = None,
    per_table: PerTable | None = None,
    choose: Choose | None = None,
    at_least_one: bool = True,
    output_mode: OutputMode = "append",
    merge_schema: bool = False,
    overwrite_schema: bool = False,
    accept_conflicts: bool = False,
    allow_forgotten_entries: bool = False,
    quiet_period: timedelta | float | str | None = timedelta(minutes=10),
    verify: VerifyLevel | None = None,
    aws_conn_id: str | None = "aws_default",
    region_name: str | None = None,
    asset_alias: str | None = "hive_to_delta",
) -> TaskGroup:
    """Tasks that bring what Hive has written since into the Delta tables: on a schedule, until these are cut over.

    Discover, a mapped group of list and sync for each table, and the report, as in :func:`hive_to_delta_task_group`. A
    table that was cut over, or is a Delta table in its catalog anyway, is left out and reported as skipped. One that
    was never converted fails, unless ``convert_new`` is set.

    The version of a sync is the DAG run's ``run_after``: the same run again changes nothing (see
    :class:`SyncTableOperator`). The other parameters are those of :func:`hive_to_delta_task_group`.

    :param convert_new: convert tables that are no Delta tables yet, with a step before the sync: the first run then
        converts all, later ones what is new in Hive.
    :param target: where tables that ``convert_new`` converts are registered.
    :param output_mode: ``append`` brings new files; ``complete`` mirrors what Hive has replaced and dropped, too.
    :param merge_schema: take over new columns and wider types.
    :param overwrite_schema: take over Hive's columns as they are; with ``complete`` only.
    :param accept_conflicts: add files that Hive has written anew after Delta had changed rows of them.
    :param allow_forgotten_entries: go on though entries of the log are gone that no sync has seen.
    :param quiet_period: partitions with a file younger than this, a timedelta or a number of minutes, wait for the next
        run, for a Hive job may be writing them: see :func:`sync_table`. None for tables that are written to all the
        time, whose partitions would always wait: then half of what a job writes may be taken over, until the next run.
    :param verify: compare every table after its sync with the files of Hive. Only for tables that nobody else writes
        to; and with ``append`` what Hive has dropped is a difference. One of which partitions wait is not compared.
    """
    if target is not None and not convert_new:
        raise ValueError("target is given without convert_new=True, and only tables that are converted are registered")
    parts = GroupSteps(
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
    mode = {
        "output_mode": output_mode,
        "merge_schema": merge_schema,
        "overwrite_schema": overwrite_schema,
        "accept_conflicts": accept_conflicts,
        "allow_forgotten_entries": allow_forgotten_entries,
        "quiet_period": quiet_period,
    }

    def steps(table: Any) -> list[BaseOperator]:
        files = parts.list_files(table)
        converted = [parts.convert(table, files)] if convert_new else []
        sync = parts.sync(table, files, mode, *converted)
        return [files, *converted, sync, *parts.verify_after(sync, table, files)]

    return parts.group(group_id, "sync", steps, leave_out_delta=True)
