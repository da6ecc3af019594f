"""Comparing a Delta table with its original, as a Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.results import VerifyLevel, VerifyResult, levels_that_prove
from airflow_hive_to_delta.engines.watch import describe_failure
from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.operators.arguments import (
    Reader,
    check_readable,
    read_one_of,
    read_optional,
    read_whole_number,
)
from airflow_hive_to_delta.operators.table_operator import TableOperator
from airflow_hive_to_delta.operators.tables.files import FileLists, StepResults, TableFiles, outcomes_by_table
from airflow_hive_to_delta.operators.tables.outcomes import VERIFICATION
from airflow_hive_to_delta.operators.tables.result_store import Result
from airflow_hive_to_delta.operators.tables.verification import (
    explain_failed_verification,
    is_still_current,
    run_name,
)
from airflow_hive_to_delta.report.outcomes import TableOutcome
from airflow_hive_to_delta.report.result_fields import describe_verified

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

#: What a result says of a table whose Delta table is now what the listed files are.
_JUST_WRITTEN = ("converted", "synced", "unchanged")
_PASSED_OVER = "Not verified: this run did not write it, or not all of it, and Hive or others may have written since"
#: What a request says for the latest version before anybody else wrote to the table.
_OURS = "ours"
_VERSION = read_optional(read_whole_number)
_ADVICE = (
    "If Hive has written since, sync the table by a new run, then clear this task. If not, roll the table back, then "
    "clear the task that converts it, with all that comes after it."
)
#: Each proves what those before it prove.
_LEVELS = get_args(VerifyLevel)


class VerifyTableOperator(TableOperator):
    """Compares one Delta table, or each of a batch, with the Hive table that it was made from.

    That a table was verified, at which version and level, is kept beside its log; nothing else is written. Returns the
    :class:`VerifyResult` of each table as a dict. A table that differs fails the task, without retries, and the error
    names the partitions and the numbers.

    :param table: a table as discovery returned it, or a batch of them. Its text is never taken for a template.
    :param files: what :class:`ListFilesOperator` returned for it; neither is its text.
    :param level: ``counts`` compares files, bytes and rows of each partition, the null partition included, from footers
        and log; ``full`` compares a checksum of every column too, and reads all data on both sides. (templated)
    :param version: the version of the Delta table to compare; the latest when not given. (templated)
    :param results: what :class:`ConvertTableOperator` or :class:`SyncTableOperator` left of the same tables as
        ``outcomes``, or returned: then each table is compared at the version that this run, in whichever try, brought
        it to. A table that an earlier run has converted and that was never verified is compared too, at the latest
        version before others wrote to it; where Hive has written since, so that the two cannot be compared any more,
        its outcome says so. Passed over are tables that were verified before, that this package did not convert, that a
        later run has synced, or that failed. Of a task without any other table the state is then ``skipped``. Its text
        is never taken for a template.

    A table that the converting job itself has verified (``ConvertTableOperator(verify=…)``), at that version and by
    this level or a stronger one, has that result, and no job is run for it. The first try takes such a result while the
    table's log is still at that version, as far as this task can read it: where it cannot, in a later try, and in a
    task that was cleared, a job compares the table.
    """

    action: ClassVar[ReportedAction] = "verify"
    verb = "Verify"
    readers: ClassVar[Mapping[str, Reader]] = {"level": read_one_of(*get_args(VerifyLevel))}
    template_fields: Sequence[str] = ("level", "version", "files", "results", *TableOperator.template_fields)
    untrusted_fields: Sequence[str] = ("table", "files", "results")
    ui_color = "#e0f7fa"

    def __init__(
        self,
        *,
        files: FileLists | XComArg,
        results: StepResults | XComArg | None = None,
        max_workers: int = 4,
        level: VerifyLevel | str = "counts",
        version: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.take_files(files, results, max_workers)
        if version is not None and results is not None:
            raise ValueError(f"version is {version!r} beside results, which say the version of each table; give one")
        self.level = level
        self.version = version
        #: The tables whose results the converting job has left.
        self._known: frozenset[str] = frozenset()
        self.check_arguments()
        check_readable({"version": _VERSION}, {"version": version})

    def select_tables(
        self, tables: Sequence[TableInfo], files: TableFiles | None
    ) -> tuple[list[TableInfo], list[TableOutcome]]:
        listed, others = super().select_tables(tables, files)
        if not self._follows_step:
            return listed, others
        previous_outcomes = self._previous_outcomes()
        versions = self._versions()
        for name in (table.qualified_name for table in listed if table.qualified_name not in versions):
            verified = self._verified_before(previous_outcomes[name])
            others.append(
                TableOutcome(name, "skipped", notes=[verified or _PASSED_OVER], verification_skipped=verified is None)
            )
        return [table for table in listed if table.qualified_name in versions], others

    def find_known_results(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Result]:
        """The results that the converting job has left, of tables that nobody has written to since."""
        instance: Any = context["ti"]
        if not self._follows_step or instance.try_number > 1:  # who clears this task wants the table compared
            return {}
        previous_outcomes = self._previous_outcomes()
        versions = self._versions()
        known = {}
        for table in tables:
            name = table.qualified_name
            found: Result = previous_outcomes[name].get(VERIFICATION) or {}
            proves = found.get("success") and found["level"] in levels_that_prove(self.level)
            if proves and found["version"] == versions[name] and self._is_current(context, table, found):
                self.log.info("%s: verified by the job that converted it", name)
                known[name] = found
        self._known = frozenset(known)
        return known

    def _is_current(self, context: Context, table: TableInfo, found: Result) -> bool:
        connection = {"aws_conn_id": self.aws_conn_id, "region_name": self.region_name}
        try:
            current = is_still_current(found, table, run_name(context), self.options, **connection)
        except Exception as error:
            self.log.info(
                "%s: its log cannot be read from here, so a job compares it: %s",
                table.qualified_name,
                describe_failure(error),
            )
            return False
        if not current:
            self.log.info("%s: written to since the job that converted it has verified it", table.qualified_name)
        return current

    def job_arguments(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Any]:
        version = _VERSION("version", self.version)
        versions = self._versions()
        return {
            **super().job_arguments(context, tables),
            "versions": [versions.get(table.qualified_name, version) for table in tables],
        }

    def outcome(self, result: Result, *, from_other_files: bool = False) -> TableOutcome:
        outcome = super().outcome(result, from_other_files=from_other_files)
        name = result["source_table"]
        # What this run itself has converted is never green without a proof.
        by_this_run = self._previous_outcomes().get(name, {}).get("status") == "converted"
        if result["written_since"] and self._versions().get(name) == _OURS and not by_this_run:
            return replace(
                outcome, status="skipped", error=None, notes=[_too_late(result)], advice="", verification_skipped=True
            )
        if outcome.status != "verified":
            return explain_failed_verification(outcome, result, _ADVICE, kept=bool(self.staging))
        # The time of a verification by the converting job is a part of that job's.
        seconds = 0.0 if name in self._known else outcome.duration_seconds
        notes = [describe_verified(VerifyResult.from_dict(result)), *outcome.notes]
        return replace(outcome, notes=notes, duration_seconds=seconds)

    def _versions(self) -> dict[str, int | str]:
        """The version to compare of each table that the step before has left, if it is to be compared."""
        versions: dict[str, int | str] = {}
        for name, outcome in self._previous_outcomes().items():
            version = _written_version(outcome)
            if version is not None:
                versions[name] = version
            elif outcome.get("ours") and not self._verified_before(outcome):
                versions[name] = _OURS
        return versions

    def _previous_outcomes(self) -> dict[str, dict[str, Any]]:
        results: Any = self.results
        return outcomes_by_table(results)

    def _verified_before(self, outcome: Mapping[str, Any]) -> str | None:
        """The note on a table that was verified by this level, or by a stronger one, before; None if it was not."""
        enough = levels_that_prove(self.level)
        found = {level: version for level, version in (outcome.get("verified") or {}).items() if level in enough}
        return next((f"Verified before, by {level} at version {version}" for level, version in found.items()), None)


def _too_late(result: Result) -> str:
    return (
        f"Not verified: an earlier run has converted it, and {result['written_since']} came since: the two cannot be "
        "compared any more. Sync the table and verify it then, by hive_to_delta_sync_task_group(verify='counts')"
    )


def _written_version(outcome: Mapping[str, Any]) -> int | None:
    """The version that the run has written, by an outcome, or by a result, which knows nothing of other tries."""
    if "written_version" in outcome:
        version = outcome["written_version"]
    else:
        whole = outcome["status"] in _JUST_WRITTEN and not outcome.get("waiting_partition_count")
        version = outcome["version"] if whole else None
    return None if version is None else int(version)
