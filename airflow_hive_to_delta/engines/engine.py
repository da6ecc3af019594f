"""The interface between orchestration and the engines on which Spark jobs run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from airflow_hive_to_delta.core.models import Document

JobState = Literal["pending", "running", "succeeded", "failed", "cancelled", "not_found"]
#: States that a job does not leave again. ``not_found``: the engine knows nothing of it, any more or yet.
ENDED_STATES: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled", "not_found"})

#: The schemes of addresses that Airflow's object storage and Hadoop spell alike. Those of Azure are not among them:
#: what stands before the ``@`` is a connection for Airflow, and a container for Hadoop.
STAGING_SCHEMES = frozenset({"file", "s3", "s3a", "gs", "hdfs"})

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class JobSpec:
    """What an engine is to run: ``python -m airflow_hive_to_delta.job REQUEST --results RESULTS``.

    It holds no credential: all of it may be shown where jobs are listed.
    """

    #: For people: what the job is called where it runs.
    name: str
    #: The address of the :class:`JobRequest`, a JSON document.
    request_uri: str
    #: The address of the folder where the job leaves its results.
    results_uri: str
    #: Names this very job, for an engine that starts nothing twice for one token, and for :meth:`Engine.find`. At most
    #: 64 letters, digits, hyphens and underscores.
    token: str
    #: The address of a zip of this package, for Python to import it from; None: the engine ships none.
    package_uri: str | None = None
    #: The address of a Python script that runs the job from that zip, with the arguments above, for platforms that are
    #: given a file to run; None with ``package_uri``.
    main_uri: str | None = None
    #: After so many seconds the job is to be ended, even if its status is no longer asked for; None: never.
    timeout: float | None = None

    @property
    def arguments(self) -> list[str]:
        """The arguments of the job's program."""
        return [self.request_uri, "--results", self.results_uri]

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.token):
            raise ValueError(
                f"token is {self.token!r}, expected at most 64 letters, digits, hyphens and underscores: more is "
                "refused by some platforms"
            )


@dataclass(frozen=True)
class JobRef(Document):
    """A job that was submitted, as plain JSON: another process finds the job again by it. It holds no credential."""

    #: What the engine calls the job.
    id: str
    #: The address of the folder where the job leaves its results.
    results_uri: str
    #: The address of a page about the job, if there is one.
    page: str | None = None


@dataclass(frozen=True)
class JobStatus:
    """How far a job is, as its engine knows it. What the job did is in its results, which no engine reads."""

    state: JobState
    #: Why the job failed, as the engine reports it. It counts only where the job has left no result.
    error: str | None = None
    #: Whether trying again may help a job that has failed without a result.
    retryable: bool = True
    #: Lines of the driver's log after the cursor, that are worth reading in the task's log.
    log: list[str] = field(default_factory=list)
    #: Where the log goes on, for the next call.
    cursor: str | None = None
    #: A file on this machine with the whole log of the job so far; None: there is nothing more than ``log``.
    whole_log: Path | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES


class JobError(Exception):
    """A job that was not started, or that ended without a result; or a platform that cannot be asked about jobs.

    :param retryable: whether trying again may help.
    """

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


@runtime_checkable
class Engine(Protocol):
    """Runs Spark jobs, wherever that is. Derive from it, and override what differs.

    Its ``repr`` is written into serialized DAGs: it must be the same at every parse and hold no secret.
    """

    #: How often :meth:`status` is worth asking.
    poll_seconds: float = 10.0
    #: How many calls of :meth:`status` may fail in a row before the task does.
    poll_errors: int = 5
    #: Whether jobs run on the machine of the task: they then get the identity of the connection, renewed while they run
    #: if it is a role. Jobs that run elsewhere use the identity that they have there.
    runs_on_this_machine: bool = False
    #: Whether a job goes on when the process that submitted it ends: a later try of the task then finds it again.
    survives_worker: bool = False
    #: Whether jobs import this package from a zip, which is uploaded to the staging root for them, with a script that
    #: runs it: the package is not installed where they run.
    ships_package: bool = False
    #: The file name, in ``engines/scripts``, of the script that is uploaded with the zip.
    main_script: str = "run_job.py"
    #: The schemes of addresses at which jobs can read their request and write their results.
    schemes: Collection[str] = frozenset({"s3", "s3a"})

    def submit(self, spec: JobSpec, environment: Mapping[str, str]) -> JobRef:
        """Start a job.

        :param environment: variables of the job's process. They may hold credentials and are for that process alone. A
            variable with an empty value is to be taken out of what the job inherits.
        :raises JobError: the job was not started, and it is known why.
        :raises MissingDependencyError: the engine needs an extra of this package, and nothing was started. After any
            other exception it is not known whether the job was started, and :meth:`find` is asked.
        """

    def find(self, token: str) -> JobRef | None:
        """The job that was submitted with this token, if the engine knows one: the answer to submit was lost.

        It raises what :meth:`status` raises.
        """

    def status(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        """How far a job is, and the lines of its log after the cursor.

        An exception says nothing about the job: it is asked for again, up to ``poll_errors`` times in a row.

        :raises JobError: the platform does not answer this identity, and the message says what to do: its token has
            expired, or it lacks a right. When it goes on, the task fails by it, and unless it is ``retryable`` the job
            is ended. Any other exception fails the task too, which is then tried again.
        """

    async def astatus(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        """What :meth:`status` returns, for callers on an event loop. Override it where the platform can be awaited."""
        return await asyncio.to_thread(self.status, ref, cursor)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The path of the engine's class, and the arguments that make an equal engine: for the triggerer, as JSON.

        An engine that is a dataclass need not override it. No secret may be among them: Airflow keeps them in its
        database.
        """
        own: Any = self
        if not is_dataclass(own):
            raise TypeError(f"{type(own).__name__} is no dataclass: give it a method serialize")
        arguments = {each.name: getattr(own, each.name) for each in fields(own) if each.init}
        return f"{type(own).__module__}.{type(own).__qualname__}", arguments

    def cancel(self, ref: JobRef, within: float) -> None:
        """End a job and all that it started, and drop what the engine keeps of it. A job that has ended is left alone.

        :param within: return after so many seconds: a task that a user kills has few.
        """
