"""Syncs of converted tables on a schedule: discover, then list and sync for each table, then report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from airflow.sdk import BaseOperator, TaskGroup

from airflow_hive_to_delta.core.results import VerifyLevel
from airflow_hive_to_delta.task_groups.config import PerTable, SyncSettings, Target, sync_arguments
from airflow_hive_to_delta.task_groups.steps import GroupArguments, GroupSteps


def hive_to_delta_sync_task_group(
    group_id: str = "hive_to_delta_sync",
    *,
    sync: SyncSettings | Mapping[str, Any] | None = None,
    convert_new: bool = False,
    target: Target | None = None,
    verify: VerifyLevel | None = None,
    **arguments: Unpack[GroupArguments],
) -> TaskGroup:
    """Tasks that bring what Hive has written since into the Delta tables: on a schedule, until these are cut over.

    Discover, a mapped group of list and sync for each table, and the report, as in :func:`hive_to_delta_task_group`. A
    table that was cut over, or is a Delta table in its catalog anyway, is left out and reported as skipped. One that
    was never converted fails, unless ``convert_new`` is set.

    The version of a sync is the DAG run's ``run_after``: the same run again changes nothing (see
    :class:`SyncTableOperator`).

    :param sync: what is taken over from Hive, and when: :class:`SyncSettings`, or a dict of them with templates, in
        which ``quiet_period`` may be a number of minutes. By default new files are appended, of partitions in which no
        file is younger than ten minutes.
    :param convert_new: convert tables that are no Delta tables yet, with a step before the sync: the first run then
        converts all, later ones what is new in Hive.
    :param target: where tables that ``convert_new`` converts are registered.
    :param verify: compare every table after its sync with the files of Hive. Only for tables that nobody else writes
        to; and with ``append`` what Hive has dropped is a difference. One of which partitions wait is not compared.
    :param arguments: the other arguments of :func:`hive_to_delta_task_group`: ``source`` and ``staging``, which are
        required, ``listing``, ``engine``, ``options``, ``per_table``, ``choose``, ``at_least_one``, ``aws_conn_id``,
        ``region_name`` and ``asset_alias``.
    """
    if target is not None and not convert_new:
        raise ValueError("target is given without convert_new=True, and only tables that are converted are registered")
    settings = sync_arguments(sync)
    per_table = arguments.get("per_table")
    if isinstance(per_table, PerTable) and per_table.verify_in_convert:
        raise ValueError(
            "per_table has verify_in_convert=True, but a sync comes between the conversion and the verification here. "
            "Leave it out"
        )
    tasks = GroupSteps(target=target, verify=verify, **arguments)

    def steps(table: Any) -> list[BaseOperator]:
        files = tasks.list_files(table)
        converted = [tasks.convert(table, files)] if convert_new else []
        synced = tasks.sync(table, files, settings, *converted)
        return [files, *converted, synced, *tasks.verify_after(synced, table, files)]

    return tasks.group(group_id, "sync", steps, leave_out_delta=True)
