"""One row for each table of a campaign, from its plan, its decisions and the states of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from airflow_hive_to_delta.campaigns.states import STATES
from airflow_hive_to_delta.core.redaction import redact_credentials

Document = dict[str, Any]

#: Characters of an error in a list of tables. The page of one table has all of it.
_ERROR_LIMIT = 160


@dataclass(slots=True)
class TableRow:
    """What a list of tables shows of one of them, and what it is sorted and filtered by."""

    table: str
    state: str = "planned"
    owner: str = ""
    files: int = 0
    bytes: int = 0
    priority: int = 0
    attempts: int = 0
    updated: str = ""
    next_attempt: str = ""
    error: str = ""
    #: The run of the DAG that has changed it last.
    run: str = ""
    #: A person's decision that no wave has acted upon yet: ``retry``, ``exclude`` or ``include``.
    pending: str = ""

    def to_dict(self) -> Document:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class StateSummary:
    """What is kept in memory of the state document of one table."""

    table: str
    state: str
    owner: str
    files: int
    bytes: int
    attempts: int
    updated: str
    next_attempt: str
    error: str
    run: str
    #: The name of the last decision of a person that is part of the state.
    decided: str
    #: When it came to its present state, in seconds since the epoch; None when its history does not say.
    since: float | None

    @classmethod
    def of_fields(cls, found: Mapping[str, Any]) -> StateSummary:
        """What is kept of a state, by its fields. What is of another type than a field has is left out."""
        state = _text(found.get("state"))
        return cls(
            table=_text(found.get("table")),
            state=state if state in STATES else "planned",
            owner=_text(found.get("owner")),
            files=_number(found.get("files")),
            bytes=_number(found.get("bytes")),
            attempts=_number(found.get("attempts")),
            updated=_text(found.get("updated")),
            next_attempt=_text(found.get("next_attempt")),
            error=redact_credentials(_text(found.get("error")))[:_ERROR_LIMIT],
            run=_text(found.get("run")),
            decided=_text(found.get("decided")),
            since=since if isinstance(since := found.get("since"), int | float) and isfinite(since) else None,
        )


def summarize_state(document: Document) -> StateSummary | None:
    """What is kept of a state document; None when it names no table."""
    table = _text(document.get("table"))
    if not table:
        return None
    state = _text(document.get("state"))
    history = [entry for entry in document.get("history") or () if isinstance(entry, dict)]
    since = None
    for entry in reversed(history):
        if entry.get("state") != state:
            break
        since = epoch(entry.get("at"))
    since = since if since is not None else epoch(document.get("updated"))
    run = history[-1].get("run") if history else ""
    return StateSummary.of_fields({**document, "run": run, "since": since})


def build_rows(
    plan: Iterable[Document], states: Iterable[StateSummary], decisions: Mapping[str, Document]
) -> dict[str, TableRow]:
    """The row of each table, by its name: what is planned, what has become of it, and what people decided since.

    :param decisions: by their names, which sort by the time at which they were made. A later one overrides an earlier
        one of the same table.
    """
    rows: dict[str, TableRow] = {}
    decided: dict[str, str] = {}
    for planned in plan:
        if not (table := _text(planned.get("table"))):
            continue
        rows[table] = TableRow(
            table=table,
            state={"exclude": "excluded", "refused": "refused"}.get(_text(planned.get("decision")), "planned"),
            owner=_text(planned.get("owner")),
            files=_number(planned.get("files")),
            bytes=_number(planned.get("bytes")),
            priority=_number(planned.get("priority")),
            error=redact_credentials(_text(planned.get("reason")))[:_ERROR_LIMIT],
        )
    for state in states:
        row = rows.setdefault(state.table, TableRow(state.table))
        row.state, row.attempts, row.error, row.run = state.state, state.attempts, state.error, state.run
        row.updated, row.next_attempt = state.updated, state.next_attempt
        row.owner = state.owner or row.owner
        row.files, row.bytes = state.files or row.files, state.bytes or row.bytes
        decided[state.table] = state.decided
    for name, decision in sorted(decisions.items()):
        table = _text(decision.get("table"))
        if table in rows:
            _apply(decision, rows[table], is_new=name > decided.get(table, ""))
    return rows


def epoch(time: Any) -> float | None:
    """A time in ISO 8601 in seconds since the epoch; None for anything else."""
    try:
        found = datetime.fromisoformat(time)
    except (TypeError, ValueError):
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _apply(decision: Document, row: TableRow, *, is_new: bool) -> None:
    if (priority := decision.get("priority")) is not None:
        row.priority = _number(priority)
    if owner := _text(decision.get("owner")):
        row.owner = owner
    if is_new and (chosen := _text(decision.get("decision"))):
        row.pending = chosen


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value == value and abs(value) < 1e30 else 0
