"""The interface between orchestration and the engines on which Spark jobs run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from airflow_hive_to_delta.job.request import JobRequest


@dataclass(frozen=True)
class JobStatus:
    """Whether a job has ended, and the lines that its driver has logged since the status was last asked for."""

    state: Literal["running", "ended"]
    #: Lines that are worth reading in the task's log.
    log: list[str] = field(default_factory=list)
    #: A file on this machine with the whole log of the job so far; None: there is nothing more than ``log``.
    whole_log: Path | None = None


class JobError(Exception):
    """A job that ended without a result."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


@runtime_checkable
class Engine(Protocol):
    """Runs Spark jobs, wherever that is. Jobs are named by a string, so that another process can ask for them too.

    Its ``repr`` is written into serialized DAGs: it must be the same at every parse and hold no secret. An engine whose
    jobs run on the machine of the task says so by ``runs_on_this_machine = True``: they then get the identity of the
    connection, renewed while they run if it is a role. Jobs that run elsewhere use the identity that they have there.
    """

    #: How often :meth:`status` is worth asking.
    poll_seconds: float

    def submit(self, request: JobRequest, environment: Mapping[str, str]) -> str:
        """Start a job and return its id.

        ``environment`` may hold credentials: it is for the job's process alone. A variable with an empty value is to be
        taken out of what the job inherits.
        """

    def status(self, job: str) -> JobStatus:
        """Whether a job has ended, and the new lines of its log."""

    def result(self, job: str) -> dict[str, Any]:
        """The result of a job that has ended. ``JobError``: it has none."""

    def cancel(self, job: str) -> None:
        """End a job and all that it started. A job that has ended is left alone."""

    def page(self, job: str) -> str | None:
        """The address of a page about the job, if there is one."""
