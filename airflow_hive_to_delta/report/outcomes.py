"""The migration report: what became of every table of a run, as a JSON document.

A run converts, or does one of the other actions of the job; each has results of its own (:data:`RESULTS`).

It is free of credentials: texts and places that came from outside are redacted when an outcome is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args

from airflow_hive_to_delta.core.models import Document
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.core.results import (
    ConversionResult,
    CutOverResult,
    CutOverStatus,
    RollbackResult,
    RollbackStatus,
    Status,
    SyncResult,
    SyncStatus,
    TablePlan,
    TableResult,
    VacuumResult,
    VerifyResult,
)
from airflow_hive_to_delta.job.actions import ACTIONS, STATUSES, ReportedAction

#: The results of each action.
RESULTS: dict[ReportedAction, type[TableResult]] = {
    name: result_type for name in get_args(ReportedAction) if (result_type := ACTIONS[name].result_type)
}

#: The names in :data:`~airflow_hive_to_delta.job.actions.STATUSES`.
OutcomeStatus = Literal[
    Status,
    "skipped",
    "not_run",
    "convertible",
    "converted_earlier",
    SyncStatus,
    "verified",
    "vacuumed",
    CutOverStatus,
    RollbackStatus,
]
#: A refused table is no failure: it was found, cannot be converted in place, and is as it was.
FAILURES = frozenset({"failed", "not_run"})
#: The statuses that an action is run for.
GOALS: dict[ReportedAction, frozenset[str]] = {name: ACTIONS[name].goals for name in RESULTS}


@dataclass
class TableOutcome(Document):
    """What became of one table in a run."""

    #: Qualified name of the Hive table.
    table: str
    status: OutcomeStatus
    #: Fully qualified name it is registered under, empty when it is not registered.
    target_table: str = ""
    file_count: int = 0
    byte_count: int = 0
    #: None when it is not known.
    row_count: int | None = None
    duration_seconds: float = 0.0
    location: str = ""
    version: int | None = None
    features: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    #: Whether trying again may help; None when that is not known or there was no error.
    retryable: bool | None = None
    #: What to do about it. Filled in when it is empty and there is something to do.
    advice: str = ""
    #: The version by which this run, in whichever try, has brought it to what its listed files are.
    written_version: int | None = None
    #: Whether no data file was found: the table is empty, or its location is wrong.
    is_empty: bool = False
    #: Whether this package has converted it, in whichever run.
    ours: bool = False
    #: The latest version that was verified, by level.
    verified: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status of {self.table} is {self.status!r}, expected one of {', '.join(STATUSES)}")
        self.location = redact_credentials(self.location)
        self.error = None if self.error is None else redact_credentials(self.error)
        self.notes = [redact_credentials(note) for note in self.notes]
        self.advice = redact_credentials(self.advice) or advice_for(self.status, self.retryable, self.error)

    @classmethod
    def of_result(cls, document: dict[str, Any], action: ReportedAction = "convert") -> Self:
        """The outcome that the result of an action, as a dict, tells of."""
        if action not in RESULTS:
            raise ValueError(f"action is {action!r}, expected one of {', '.join(RESULTS)}")
        result = RESULTS[action].from_dict(document)
        shared = {f.name for f in fields(cls)} & document.keys()
        return cls(**{**{name: document[name] for name in shared}, **_told(result)})

    @classmethod
    def of_plan(cls, document: dict[str, Any]) -> Self:
        """The outcome that a :class:`TablePlan`, as a dict, tells of."""
        return cls.of_result(document, "plan")

    @classmethod
    def of_error(cls, table: str, error: str, retryable: bool | None = None) -> Self:
        """The outcome of a table whose task failed without a result."""
        return cls(table=table, status="failed", error=error, retryable=retryable)


def _told(result: TableResult) -> dict[str, Any]:
    """What an outcome says in other words than the result, or has no place for but in its notes."""
    match result:
        case ConversionResult():
            return {
                "table": result.source_table,
                "notes": [*result.notes, *([result.message] if result.message else [])],
            }
        case TablePlan():
            return {
                "table": result.source_table,
                "status": "converted_earlier" if result.status == "converted" else result.status,
                "notes": [*_of_plan(result), *result.notes],
            }
        case VerifyResult():
            return {
                "table": result.source_table,
                "status": "verified" if result.success else "failed",
                "verified": {result.level: result.version} if result.success and result.version is not None else {},
                "notes": [*_of_mismatches(result), *result.notes],
                "error": result.error or (None if result.success else "The Delta table differs from its original"),
            }
        case SyncResult():
            moved = f"{counted(result.num_added_files, 'file')} added, {result.num_removed_files:,} removed"
            return {
                "table": result.source_table,
                "file_count": result.num_added_files,
                "byte_count": result.added_bytes,
                "notes": [*([moved] if result.status == "synced" else []), *result.notes],
            }
        case VacuumResult():
            return {
                "table": result.table_name,
                "status": "vacuumed" if result.success else "failed",
                "file_count": len(result.orphaned_files),
                "byte_count": result.orphaned_bytes,
                "notes": [*_of_vacuum(result), *result.notes],
            }
        case RollbackResult():
            return {"table": result.source_table, "notes": [*_of_rollback(result), *result.notes]}
        case CutOverResult():
            kept = f"The old definition is kept at {result.kept_definition}"
            return {"table": result.source_table, "notes": [*([kept] if result.kept_definition else []), *result.notes]}


def _of_plan(plan: TablePlan) -> Iterator[str]:
    if plan.partition_count:
        outside = f", {plan.external_partition_count:,} with files outside the table's location"
        yield f"Partitions: {plan.partition_count:,}{outside if plan.external_partition_count else ''}"
    for conflict in plan.schema_conflicts:
        if conflict != plan.error:
            yield f"Schema conflict: {conflict}"
    for reader in plan.unreadable_by:
        yield f"Not readable by {reader}"


def _of_mismatches(result: VerifyResult) -> Iterator[str]:
    for found in result.mismatches:
        where = f"{found['partition']}: " if found["partition"] else ""
        yield f"{where}{found['what']}: original {found['original']}, Delta {found['delta']}"
    if (more := result.mismatch_count - len(result.mismatches)) > 0:
        yield counted(more, "more difference")


def _of_vacuum(result: VacuumResult) -> Iterator[str]:
    if result.dry_run:
        found = counted(len(result.orphaned_files), "file")
        yield f"A dry run: {found} of {result.orphaned_bytes:,} bytes would be deleted"
    else:
        verb = "was" if len(result.deleted_files) == 1 else "were"
        yield f"{counted(len(result.deleted_files), 'file')} of {result.deleted_bytes:,} bytes {verb} deleted"


def _of_rollback(result: RollbackResult) -> Iterator[str]:
    if result.log_moved_to:
        yield f"The log lies at {result.log_moved_to} now"
    if result.dropped:
        yield f"Dropped from the catalog: {', '.join(result.dropped)}"
    if result.restored:
        yield f"As it was in the catalog again: {', '.join(result.restored)}"
    if result.lost_versions:
        yield f"Versions of other writers that are lost: {', '.join(map(str, result.lost_versions))}"
    if result.files_moved_aside:
        verb = "was" if result.files_moved_aside == 1 else "were"
        yield f"{counted(result.files_moved_aside, 'file')} that Delta wrote {verb} moved aside"


#: What to do when the list of a table's files is wrong or missing.
LIST_AGAIN = "Clear the task that lists this table's files, with all that comes after it: running it again is safe."


def advice_for(status: OutcomeStatus, retryable: bool | None, error: str | None) -> str:
    """What to do about a table that ended like this; empty when there is nothing to do."""
    if status == "not_run":
        return (
            f"C{_CLEAR[1:]}: running it again is safe. If none of its tasks is red, fix and clear the step before them "
            "that is: this table then runs too."
        )
    if status == "refused":
        return (
            "The table is as it was. Change what the reason names, then clear the task that discovers tables with what "
            "comes after it, or start a new run; or exclude the table."
        )
    if status != "failed":
        return ""
    if error and "List the files again" in error:
        return LIST_AGAIN
    if not error:
        return f"Read the log of this table's task, then {_CLEAR}: running it again is safe."
    if retryable:
        return f"C{_CLEAR[1:]}: trying again may help, and is safe."
    return f"Fix what the error names, then {_CLEAR}."


_CLEAR = "clear this table's red task with what comes after it"


def build_report(
    outcomes: Iterable[TableOutcome],
    *,
    title: str,
    run: Mapping[str, str],
    action: ReportedAction = "convert",
    elapsed_seconds: float | None = None,
) -> dict[str, Any]:
    """The report of a run, ready for JSON: failures first, then by name.

    Of several outcomes of one table the last one counts. ``run`` is shown as it is, such as its ``dag_id``,
    ``run_id``, ``started`` and ``ended``. Files, bytes and rows are those of the tables that are what the action is run
    for: Delta tables now, or convertible. ``elapsed_seconds`` is the time since the run started; ``seconds`` in the
    totals is the work of all tables, which ran side by side.
    """
    by_table = {outcome.table: outcome for outcome in outcomes}
    tables = sorted(by_table.values(), key=lambda outcome: (outcome.status not in FAILURES, outcome.table))
    counts: Counter[str] = Counter(outcome.status for outcome in tables)
    done = [outcome for outcome in tables if outcome.status in GOALS[action]]
    return {
        "title": title,
        "action": action,
        "run": {name: redact_credentials(value) for name, value in run.items()},
        "totals": {
            "tables": len(tables),
            "by_status": {status: counts[status] for status in STATUSES},
            "empty": sum(outcome.is_empty for outcome in tables),
            "files": sum(outcome.file_count for outcome in done),
            "bytes": sum(outcome.byte_count for outcome in done),
            "rows": sum(outcome.row_count or 0 for outcome in done),
            "seconds": round(sum(outcome.duration_seconds for outcome in tables), 3),
            "elapsed_seconds": None if elapsed_seconds is None else round(elapsed_seconds, 3),
        },
        "tables": [outcome.to_dict() for outcome in tables],
    }


def counted(number: int, noun: str) -> str:
    """A number of things: ``1 file``, ``2,000 files``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def failed_tables(report: Mapping[str, Any]) -> list[str]:
    """The tables that fail the run."""
    return [table["table"] for table in report["tables"] if table["status"] in FAILURES]
