"""Comparing a Delta table with its original, as a Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from airflow_hive_to_delta.core.models import TableInfo, VerifyLevel
from airflow_hive_to_delta.operators.arguments import Reader, check, one_of, optional, whole_number
from airflow_hive_to_delta.operators.results import FilesOperator, Result
from airflow_hive_to_delta.report import ReportedAction, TableOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context

#: What a result says of a table whose Delta table is now what the listed files are.
_JUST_WRITTEN = ("converted", "synced", "unchanged")
_PASSED_OVER = "Not verified: this run did not write it, or not all of it, and Hive or others may have written since"
#: Of a table that differs; a batch of them has to travel.
_MOST_NOTES = 10
_VERSION = optional(whole_number)


class VerifyTableOperator(FilesOperator):
    """Compares one Delta table, or each of a batch, with the Hive table that it was made from. Writes nothing.

    Returns the :class:`VerifyResult` of each table as a dict. A table that differs fails the task, without retries, and
    the error names the partitions and the numbers.

    :param table: a table as discovery returned it, or a batch of them. Its text is never taken for a template.
    :param files: what :class:`ListFilesOperator` returned for it; neither is its text.
    :param level: ``counts`` compares files, bytes and rows of each partition, the null partition included, from footers
        and log; ``full`` compares a checksum of every column too, and reads all data on both sides. (templated)
    :param version: the version of the Delta table to compare; the latest when not given. (templated)
    :param results: what :class:`ConvertTableOperator` or :class:`SyncTableOperator` left of the same tables as
        ``outcomes``, or returned: then each table is compared at the version that this run, in whichever try, brought
        it to. One that this run did not bring to what the files are, because it was a Delta table before or a later run
        has synced it, is passed over: Hive or others may have written since, and a difference would say nothing. So is
        one that failed. Of a task without any other table the state is then ``skipped``. Its text is never taken for a
        template.
    """

    action: ClassVar[ReportedAction] = "verify"
    verb = "Verify"
    readers: ClassVar[Mapping[str, Reader]] = {"level": one_of(*get_args(VerifyLevel))}
    template_fields: Sequence[str] = ("level", "version", *FilesOperator.template_fields)
    ui_color = "#e0f7fa"

    def __init__(
        self,
        *,
        level: VerifyLevel | str = "counts",
        version: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if version is not None and self._has_step_before:
            raise ValueError(f"version is {version!r} beside results, which say the version of each table; give one")
        self.level = level
        self.version = version
        self.check_arguments()
        check({"version": _VERSION}, {"version": version})

    def ready(self, tables: Sequence[TableInfo]) -> tuple[list[TableInfo], list[TableOutcome]]:
        listed, others = super().ready(tables)
        if not self._has_step_before:
            return listed, others
        written = self._versions()
        passed_over = [table.qualified_name for table in listed if table.qualified_name not in written]
        others += [TableOutcome(name, "skipped", notes=[_PASSED_OVER]) for name in passed_over]
        return [table for table in listed if table.qualified_name in written], others

    def arguments(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Any]:
        version = _VERSION("version", self.version)
        versions = self._versions()
        return {
            **super().arguments(context, tables),
            "versions": [versions.get(table.qualified_name, version) for table in tables],
        }

    def outcome(self, result: Result) -> TableOutcome:
        outcome = super().outcome(result)
        if outcome.status == "verified":
            rows = "" if result["row_count"] is None else f" and {result['row_count']:,} rows"
            told = f"Verified by {result['level']} at version {result['version']}: {result['file_count']:,} files{rows}"
            outcome.notes = [told, *outcome.notes]
        elif len(outcome.notes) > _MOST_NOTES:
            where = "with the results under the staging root" if self.staging else "not kept: pass staging"
            more = f"{len(outcome.notes) - _MOST_NOTES} more of what differs: {where}"
            outcome.notes = [*outcome.notes[:_MOST_NOTES], more]
        return outcome

    def _versions(self) -> dict[str, int]:
        """The version that this run has brought each table to."""
        versions = {name: _written_version(told) for name, told in self.told_before().items()}
        return {name: version for name, version in versions.items() if version is not None}


def _written_version(told: Mapping[str, Any]) -> int | None:
    """Of an outcome, or of a result, which knows nothing of other tries."""
    if "written_version" in told:
        version = told["written_version"]
    else:
        whole = told["status"] in _JUST_WRITTEN and not told.get("waiting_partition_count")
        version = told["version"] if whole else None
    return None if version is None else int(version)
