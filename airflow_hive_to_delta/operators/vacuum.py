"""Deleting what Delta removed outside of a table's root, as a Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.job.manifests import INLINE_LIMIT
from airflow_hive_to_delta.operators.arguments import Reader, read_flag, read_hours, read_names
from airflow_hive_to_delta.operators.table_operator import TableOperator
from airflow_hive_to_delta.operators.tables.result_store import Result

if TYPE_CHECKING:
    from airflow.sdk import Context


class VacuumExternalFilesOperator(TableOperator):
    """Deletes files outside of a table's root that Delta removed long ago, which Delta's own VACUUM never does.

    Returns the :class:`VacuumResult` of each table as a dict: what would go, or went. Anything in doubt is kept, and a
    dry run, which deletes nothing, is the default. Of many files only the first travel; all are with the run's results
    under the staging root.

    :param table: a table as discovery returned it, or just its ``name`` and ``location``, or a batch of them. Its text
        is never taken for a template.
    :param retention_hours: files that were removed less long ago than this are kept. (templated)
    :param dry_run: False deletes. (templated)
    :param allow_short_retention: accept a retention shorter than the table's own, with which readers of old versions,
        and queries that are running, can lose files. (templated)
    :param dropped: full names of Hive tables or schemas that are known to be dropped, where their catalog cannot tell a
        dropped table from one that it hides, as Unity Catalog. (templated)
    """

    action: ClassVar[ReportedAction] = "vacuum"
    verb = "Vacuum"
    readers: ClassVar[Mapping[str, Reader]] = {
        "retention_hours": read_hours,
        "is_dry_run": lambda _, given: read_flag("dry_run", given),
        "allow_short_retention": read_flag,
        "dropped": read_names,
    }
    template_fields: Sequence[str] = (*readers, *TableOperator.template_fields)
    ui_color = "#fce8e6"

    def __init__(
        self,
        *,
        retention_hours: float | str = 168,
        dry_run: bool | str = True,
        allow_short_retention: bool | str = False,
        dropped: Sequence[str] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.retention_hours = retention_hours
        # Not by its own name, which is that of a method of every operator.
        self.is_dry_run = dry_run
        self.allow_short_retention = allow_short_retention
        self.dropped = dropped
        self.check_arguments()

    def execute_for(self, context: Context, tables: Sequence[TableInfo]) -> list[Result]:
        return [self.shorten(result) for result in super().execute_for(context, tables)]

    def job_arguments(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Any]:
        arguments = super().job_arguments(context, tables)
        arguments["dry_run"] = arguments.pop("is_dry_run")
        return arguments

    def shorten(self, result: Result) -> Result:
        """The result with as many files as may travel through XCom, and a note of how many there are."""
        most = max(len(result["orphaned_files"]), len(result["deleted_files"]))
        if most <= INLINE_LIMIT:
            return result
        where = "with the results under the staging root" if self.staging else "not kept: pass staging"
        return {
            **result,
            "orphaned_files": result["orphaned_files"][:INLINE_LIMIT],
            "deleted_files": result["deleted_files"][:INLINE_LIMIT],
            "notes": [*result["notes"], f"The first {INLINE_LIMIT} of {most} files; the others are {where}"],
        }
