"""The migration report: what became of every table of a run, as a JSON document.

It is free of credentials: texts and places that came from outside are redacted when an outcome is made.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from airflow_hive_to_delta.core.models import ConversionResult, Status, _Document

#: ``skipped``: left out by choice. ``not_run``: an earlier step of the run kept the table from starting.
OutcomeStatus = Literal[Status, "skipped", "not_run"]
STATUSES: tuple[str, ...] = get_args(OutcomeStatus)
#: A refused table is no failure: it was found, cannot be converted in place, and is as it was.
FAILURES = frozenset({"failed", "not_run"})
#: The table is a Delta table now.
DONE = frozenset({"converted", "already_delta", "registered"})


@dataclass
class TableOutcome(_Document):
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

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status of {self.table} is {self.status!r}, expected one of {', '.join(STATUSES)}")
        self.location = redacted_text(self.location)
        self.error = None if self.error is None else redacted_text(self.error)
        self.notes = [redacted_text(note) for note in self.notes]
        self.advice = redacted_text(self.advice) or advice_for(self.status, self.retryable, self.error)

    @classmethod
    def of_result(cls, document: dict[str, Any]) -> Self:
        """The outcome that a :class:`ConversionResult`, as a dict, tells of."""
        result = ConversionResult.from_dict(document)
        return cls(
            table=result.source_table,
            status=result.status,
            target_table=result.target_table,
            file_count=result.file_count,
            byte_count=result.byte_count,
            row_count=result.row_count,
            duration_seconds=result.duration_seconds,
            location=result.location,
            version=result.version,
            features=list(result.features),
            notes=[*result.notes, *([result.message] if result.message else [])],
            error=result.error,
            retryable=result.retryable,
        )

    @classmethod
    def of_error(cls, table: str, error: str, retryable: bool | None = None) -> Self:
        """The outcome of a table whose task failed without a result."""
        return cls(table=table, status="failed", error=error, retryable=retryable)


#: What to do when the list of a table's files is wrong or missing.
LIST_AGAIN = "Clear the task that lists this table's files, with all that comes after it: running it again is safe."


def advice_for(status: OutcomeStatus, retryable: bool | None, error: str | None) -> str:
    """What to do about a table that ended like this; empty when there is nothing to do."""
    if status == "not_run":
        return "Fix the step that failed before it and clear that step: this table then runs too."
    if status == "refused":
        return "The table is as it was. Change what the reason names, or exclude the table from the run."
    if status != "failed":
        return ""
    if error and "List the files again" in error:
        return LIST_AGAIN
    if not error:
        return "Read the log of this table's task, then clear the task: running it again is safe."
    if retryable is None:
        return "Fix what the error names, then clear this table's task: running it again is safe."
    if retryable:
        return "Clear this table's task: trying again may help, and is safe."
    return "Fix what the error names, then clear this table's task. Trying again alone does not help."


def build_report(outcomes: Iterable[TableOutcome], *, title: str, run: Mapping[str, str]) -> dict[str, Any]:
    """The report of a run, ready for JSON: failures first, then by name.

    Of several outcomes of one table the last one counts. ``run`` is shown as it is, such as its ``dag_id``,
    ``run_id``, ``started`` and ``ended``. Files, bytes and rows are those of the tables that are Delta tables now.
    """
    by_table = {outcome.table: outcome for outcome in outcomes}
    tables = sorted(by_table.values(), key=lambda outcome: (outcome.status not in FAILURES, outcome.table))
    counts: Counter[str] = Counter(outcome.status for outcome in tables)
    done = [outcome for outcome in tables if outcome.status in DONE]
    return {
        "title": title,
        "run": {name: redacted_text(value) for name, value in run.items()},
        "totals": {
            "tables": len(tables),
            "by_status": {status: counts[status] for status in STATUSES},
            "files": sum(outcome.file_count for outcome in done),
            "bytes": sum(outcome.byte_count for outcome in done),
            "rows": sum(outcome.row_count or 0 for outcome in done),
            "seconds": round(sum(outcome.duration_seconds for outcome in tables), 3),
        },
        "tables": [outcome.to_dict() for outcome in tables],
    }


def failed_tables(report: Mapping[str, Any]) -> list[str]:
    """The tables that fail the run."""
    return [table["table"] for table in report["tables"] if table["status"] in FAILURES]


def redacted_text(text: str) -> str:
    """A text from outside without the credentials that it may carry."""
    for pattern, replacement in _CREDENTIALS:
        text = pattern.sub(replacement, text)
    return text


# Every repetition that may be tried in vain is bounded: a long text costs no more than its length.
_CREDENTIALS = [
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        # User and password in a URI. An S3 secret key may hold a slash.
        (r"\b(s3[an]?)://[^/\s@]{0,200}:[^\s@]{0,200}@", r"\1://***@"),
        (r"://[^/\s@]{0,200}:[^/\s@]{0,2000}@", "://***@"),
        # Signed URIs of S3, Azure and Google.
        (r"([?&](?:sig|signature|[\w-]{0,40}(?:-signature|-credential|-token|accesskeyid))=)[^&\s\"'<>]+", r"\1***"),
        # Settings. After a colon only quoted, as in JSON: "ExpiredToken: The token …" is a message.
        (
            r"((?:password|passwd|secret|token|access[._-]?key|account[._-]?key|api[._-]?key)[\w.-]{0,80}"
            r"(?:[\"']?\s*=\s*[\"']?|[\"']\s*:\s*[\"']))[^\s\"',;&}]+",
            r"\1***",
        ),
        (r"((?:password|passwd):\s*)[^\s\"',;&}]+", r"\1***"),
        (r"\b(bearer|basic)\s+[\w.~+/=-]{12,}", r"\1 ***"),
        (r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}|dapi[0-9a-f]{32}(?:-\d)?)\b", "***"),
    )
]
