"""The migration report: the outcome of every table of a run, as a JSON document.

A run converts, or does one of the other actions of the job; each has results of its own (:data:`RESULTS`).

The report holds no credentials: locations, errors and notes are redacted when an outcome is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args

from airflow_hive_to_delta.core.errors import StaleFileListError
from airflow_hive_to_delta.core.models import Document
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.core.results import CutOverStatus, RollbackStatus, Status, SyncStatus, TableResult
from airflow_hive_to_delta.job.actions import ACTIONS, STATUSES, ReportedAction
from airflow_hive_to_delta.report.result_fields import outcome_fields

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
#: What to do when the list of a table's files is wrong or missing.
LIST_AGAIN = "Clear the task that lists this table's files, with all that comes after it: running it again is safe."
_CLEAR = "clear this table's red task with what comes after it"


@dataclass
class TableOutcome(Document):
    """The outcome of one table in a run.

    :raises ValueError: the status is not one of :data:`STATUSES`.
    """

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
    #: What a person should do about the outcome; where it is empty, that of :func:`advice_for`.
    advice: str = ""
    #: The version by which this run, in whichever try, has brought it to what its listed files are.
    written_version: int | None = None
    #: Whether no data file was found: the table is empty, or its location is wrong.
    is_empty: bool = False
    #: Whether this package has converted it, in whichever run.
    ours: bool = False
    #: The latest version that was verified, by level.
    verified: dict[str, int] = field(default_factory=dict)
    #: Whether a step that verifies has passed it over, for the reason that a note names.
    verification_skipped: bool = False
    #: Name of the error's class, such as ``StaleFileListError``; None when that is not known or there was no error.
    error_kind: str | None = None

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status of {self.table} is {self.status!r}, expected one of {', '.join(STATUSES)}")
        self.location = redact_credentials(self.location)
        self.error = None if self.error is None else redact_credentials(self.error)
        self.notes = [redact_credentials(note) for note in self.notes]
        self.advice = redact_credentials(self.advice) or advice_for(self)

    @classmethod
    def of_result(cls, document: dict[str, Any], action: ReportedAction = "convert") -> Self:
        """Return the outcome of a table from the result of an action, as a dict.

        :raises ValueError: the action is not one of :data:`RESULTS`, or the dict is not a result of it.
        """
        if action not in RESULTS:
            raise ValueError(f"action is {action!r}, expected one of {', '.join(RESULTS)}")
        result = RESULTS[action].from_dict(document)
        shared = {f.name for f in fields(cls)} & document.keys()
        return cls(**{**{name: document[name] for name in shared}, **outcome_fields(result)})

    @classmethod
    def of_plan(cls, document: dict[str, Any]) -> Self:
        """Return the outcome of a table from a :class:`TablePlan`, as a dict."""
        return cls.of_result(document, "plan")

    @classmethod
    def of_error(cls, table: str, error: str, retryable: bool | None = None, error_kind: str | None = None) -> Self:
        """Return the outcome of a table whose task failed without a result."""
        return cls(table=table, status="failed", error=error, retryable=retryable, error_kind=error_kind)


def advice_for(outcome: TableOutcome) -> str:
    """Return what a person should do about an outcome; empty when there is nothing to do."""
    if outcome.status == "not_run":
        return (
            f"C{_CLEAR[1:]}: running it again is safe. If none of its tasks is red, fix and clear the step before them "
            "that is: this table then runs too."
        )
    if outcome.status == "refused":
        return (
            "The table is as it was. Change what the reason names, then clear the task that discovers tables with what "
            "comes after it, or start a new run; or exclude the table."
        )
    if outcome.status != "failed":
        return ""
    if outcome.error_kind == StaleFileListError.__name__:
        return LIST_AGAIN
    if not outcome.error:
        return f"Read the log of this table's task, then {_CLEAR}: running it again is safe."
    if outcome.retryable:
        return f"C{_CLEAR[1:]}: trying again may help, and is safe."
    return f"Fix what the error names, then {_CLEAR}."


def build_report(
    outcomes: Iterable[TableOutcome],
    *,
    title: str,
    run: Mapping[str, str],
    action: ReportedAction = "convert",
    elapsed_seconds: float | None = None,
) -> dict[str, Any]:
    """Return the report of a run, ready for JSON: failures first, then by name.

    Files, bytes and rows in the totals are those of the tables whose status is one that the action is run for
    (:data:`GOALS`). ``seconds`` there is the work of all tables, which ran side by side.

    :param outcomes: of several outcomes of one table the last one counts.
    :param run: what identifies the run, such as its ``dag_id``, ``run_id``, ``started`` and ``ended``; shown as it is.
    :param elapsed_seconds: the time since the run started.
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


def failed_tables(report: Mapping[str, Any]) -> list[str]:
    """Return the names of the tables that fail the run."""
    return [table["table"] for table in report["tables"] if table["status"] in FAILURES]
