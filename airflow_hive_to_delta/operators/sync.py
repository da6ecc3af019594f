"""Bringing what Hive has written since into a Delta table, as a Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import OutputMode, SyncOptions
from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.operators.arguments import (
    Reader,
    read_flag,
    read_minutes,
    read_one_of,
    read_optional,
    read_whole_number,
)
from airflow_hive_to_delta.operators.table_operator import ActionRun, TableOperator
from airflow_hive_to_delta.operators.tables.assets import DEFAULT_ALIAS, emit_asset, with_alias_outlet
from airflow_hive_to_delta.operators.tables.files import FileLists, StepResults
from airflow_hive_to_delta.operators.tables.result_store import Result
from airflow_hive_to_delta.report.outcomes import TableOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg


class SyncTableOperator(TableOperator):
    """Brings new, replaced and dropped files of one Hive table, or of each of a batch, into its Delta table.

    Returns the :class:`SyncResult` of each table as a dict. What a sync changes is one commit, which carries the
    version of the run: by default the milliseconds of the DAG run's ``run_after``. The same run twice, by a retry or by
    clearing it, therefore changes nothing, and neither does an older run after a newer one: what only its list had
    waits for the next run. A table that changed is an asset event, as it is for :class:`ConvertTableOperator`. If an
    earlier try has changed it, the event is emitted again, for that try may have ended before it could emit one.

    :param table: a table as discovery returned it, or a batch of them. Its text is never taken for a template.
    :param files: what :class:`ListFilesOperator` returned for it; neither is its text.
    :param results: what a :class:`ConvertTableOperator` before it left as ``outcomes``: tables that failed there are
        passed over.
    :param output_mode: ``append`` brings what is new and refuses what Hive has replaced; ``complete`` mirrors what Hive
        has replaced and dropped, too. (templated)
    :param merge_schema: take over new columns and wider types. (templated)
    :param overwrite_schema: take over Hive's columns as they are; with ``complete`` only. (templated)
    :param run_version: a number that grows from run to run, instead of the DAG run's. (templated)
    :param accept_conflicts: add files that Hive has written anew after Delta had changed rows of them. (templated)
    :param allow_forgotten_entries: go on though entries of the log are gone that no sync has seen. (templated)
    :param quiet_period: leave partitions with files younger than this, a timedelta or a number of minutes, for the next
        sync: see :func:`sync_table`. None: none waits. (templated)
    :param options: :class:`ConversionOptions`, or a dict of them. (templated)
    :param max_workers: tables of a batch that are synced side by side.
    :param asset_alias: the alias that the assets belong to; None: there are no assets.
    """

    action: ClassVar[ReportedAction] = "sync"
    verb = "Sync"
    readers: ClassVar[Mapping[str, Reader]] = {
        "output_mode": read_one_of(*get_args(OutputMode)),
        "merge_schema": read_flag,
        "overwrite_schema": read_flag,
        "run_version": read_optional(read_whole_number),
        "accept_conflicts": read_flag,
        "allow_forgotten_entries": read_flag,
        "quiet_period": read_optional(read_minutes),
    }
    template_fields: Sequence[str] = (*readers, "files", "results", *TableOperator.template_fields)
    untrusted_fields: Sequence[str] = ("table", "files", "results")
    ui_color = "#fff3e0"

    def __init__(
        self,
        *,
        files: FileLists | XComArg,
        results: StepResults | XComArg | None = None,
        output_mode: OutputMode | str = "append",
        merge_schema: bool | str = False,
        overwrite_schema: bool | str = False,
        run_version: int | str | None = None,
        accept_conflicts: bool | str = False,
        allow_forgotten_entries: bool | str = False,
        quiet_period: timedelta | float | str | None = None,
        max_workers: int = 4,
        asset_alias: str | None = DEFAULT_ALIAS,
        **kwargs: Any,
    ) -> None:
        super().__init__(**with_alias_outlet(kwargs, asset_alias))
        self.take_files(files, results, max_workers)
        if overwrite_schema is True and output_mode == "append":
            raise ValueError("overwrite_schema is True with output_mode='append', expected output_mode='complete'")
        self.output_mode = output_mode
        self.merge_schema = merge_schema
        self.overwrite_schema = overwrite_schema
        self.run_version = run_version
        self.accept_conflicts = accept_conflicts
        self.allow_forgotten_entries = allow_forgotten_entries
        self.quiet_period = quiet_period
        self.asset_alias = asset_alias
        self.check_arguments()

    def run_action(self, context: Context, tables: Sequence[TableInfo]) -> ActionRun:
        run = super().run_action(context, tables)
        for result in (kept.result for kept in run.results):
            # One that a later run has synced has its event from that run.
            if result["status"] == "synced" or (result["status"] == "already_synced" and _is_of_this_run(result)):
                emit_asset(context, self.asset_alias, result)
        return run

    def job_arguments(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Any]:
        arguments = super().job_arguments(context, tables)
        flags = {option.name: arguments.pop(option.name) for option in fields(SyncOptions)}
        arguments["sync_options"] = SyncOptions.from_dict(flags).to_dict()
        if arguments["run_version"] is None:
            run: Any = context["dag_run"]
            arguments["run_version"] = int(run.run_after.timestamp() * 1_000)
        return arguments

    def outcome(self, result: Result, *, from_other_files: bool = False) -> TableOutcome:
        outcome = super().outcome(result, from_other_files=from_other_files)
        done_before = result["status"] == "already_synced" and _is_of_this_run(result) and not from_other_files
        # With partitions that wait, the Delta table is not what the files are.
        if (result["status"] in ("synced", "unchanged") or done_before) and not result["waiting_partition_count"]:
            outcome.written_version = result["version"]
        return outcome


def _is_of_this_run(result: Result) -> bool:
    """Whether the latest sync of the table is that of this run, in whichever try."""
    return bool(result["run_version"] == result["committed_run_version"])
