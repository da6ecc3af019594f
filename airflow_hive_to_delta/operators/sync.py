"""Bringing what Hive has written since into a Delta table, as a Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.operators.arguments import (
    Reader,
    SyncFlags,
    read_optional,
    read_sync_options,
    read_whole_number,
    sync_options_dict,
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
    :param sync_options: what is taken over from Hive, and when: :class:`SyncOptions`, or a dict of them, in which the
        quiet period may be a number of minutes. (templated)
    :param run_version: a number that grows from run to run, instead of the DAG run's. (templated)
    :param options: :class:`ConversionOptions`, or a dict of them. (templated)
    :param max_workers: tables of a batch that are synced side by side.
    :param asset_alias: the alias that the assets belong to; None: there are no assets.
    """

    action: ClassVar[ReportedAction] = "sync"
    verb = "Sync"
    readers: ClassVar[Mapping[str, Reader]] = {"run_version": read_optional(read_whole_number)}
    template_fields: Sequence[str] = (
        *("sync_options", "run_version", "files", "results"),
        *TableOperator.template_fields,
    )
    untrusted_fields: Sequence[str] = ("table", "files", "results")
    ui_color = "#fff3e0"

    def __init__(
        self,
        *,
        files: FileLists | XComArg,
        results: StepResults | XComArg | None = None,
        sync_options: SyncFlags = None,
        run_version: int | str | None = None,
        max_workers: int = 4,
        asset_alias: str | None = DEFAULT_ALIAS,
        **kwargs: Any,
    ) -> None:
        super().__init__(**with_alias_outlet(kwargs, asset_alias))
        self.take_files(files, results, max_workers)
        self.sync_options = sync_options_dict(sync_options)
        self.run_version = run_version
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
        arguments["sync_options"] = read_sync_options(self.sync_options).to_dict()
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
