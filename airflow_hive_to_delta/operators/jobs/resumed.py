"""Jobs that a task finds again: those of an earlier try, and those of this one from before its deferral."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.engines import JobRequest


@dataclass(frozen=True)
class ResumedJob:
    """A job of an earlier try that this try has found again, and has seen the end of."""

    request: JobRequest
    #: The try that submitted it.
    try_number: int
    #: None: it ended without one.
    result: dict[str, Any] | None

    def answers(self, request: JobRequest) -> bool:
        """Whether the job has a result for what is asked now."""
        return self.result is not None and is_for_same_tables(self.request, request)


@dataclass(frozen=True)
class Deferral:
    """How the deferral of a task ended."""

    #: Where the log of the job goes on.
    cursor: str | None = None
    #: It timed out, or its trigger failed.
    error: Exception | None = None


def is_for_same_tables(begun: JobRequest, request: JobRequest) -> bool:
    """Whether two jobs do the same for the same tables; where they have none, with the same arguments."""
    return begun.action == request.action and _subject(begun) == _subject(request)


def _subject(request: JobRequest) -> Any:
    """The names of a job's tables; where it has none, all of its arguments."""
    tables = request.arguments.get("tables")
    return request.arguments if tables is None else [TableInfo.from_dict(table).qualified_name for table in tables]
