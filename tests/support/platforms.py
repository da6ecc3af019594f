"""Stand-ins for the platforms that run Spark jobs, as the tests of every engine use them.

A stand-in speaks the API of its platform on loopback. What was submitted it runs by ``spark-submit`` on this machine
(``runs_jobs = True``), or it plays a job that ends when it is asked for and leaves what the test says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from airflow_hive_to_delta.core.storage.uri import parse_location
from airflow_hive_to_delta.job.documents import DONE, put_document
from tests.support.crashes import Killed

State = Literal["running", "succeeded", "failed", "cancelled"]


@dataclass
class PlatformJob:
    """A job that was submitted to a platform."""

    id: str
    token: str
    #: Of the job's program: the address of the request, ``--results``, and the address of the results.
    arguments: list[str]
    #: In seconds, as the platform was told.
    timeout: float | None = None
    state: State = "running"
    #: What the platform says of a job that failed without a result.
    error: str | None = None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def results_uri(self) -> str:
        return self.arguments[self.arguments.index("--results") + 1]


class Platform(ABC):
    """A platform, and what a test wants to happen there.

    :param folder: a folder of its own.
    """

    #: The source of an engine for the platform, as a DAG has it, and of the imports that it needs.
    engine: str
    imports: str = ""
    #: A staging root that jobs of the engine can read.
    staging: str
    #: How many calls of ``status`` may fail in a row, as the engine says.
    poll_errors: int = 5
    #: What the platform says of a job whose driver is gone.
    lost_driver: str = "The driver was lost"
    #: The platform of the test, for the source of its DAG.
    current: ClassVar[Platform]
    #: Whether the platform can be asked which job has a token.
    finds_jobs: bool = True
    #: Whether there is a page about each job.
    has_pages: bool = True

    def __init__(self, folder: Path) -> None:
        Platform.current = self
        self.folder = folder
        self.jobs: list[PlatformJob] = []
        #: Whether jobs are run by ``spark-submit``.
        self.runs_jobs = False
        #: How many more times a job is found running before it ends; None: it does not end.
        self.held: int | None = 0
        #: How the next requests fail that ask for a status: with an HTTP status, or None: the connection is closed.
        self.failures: list[int | None] = []
        #: Whether the identity that asks has expired: it is told so, whatever it asks.
        self.expired = False
        #: How the next submissions fail. None: they are carried out, but their answer is lost.
        self.submit_failures: list[int | None] = []
        #: Does the work of jobs, in place of leaving an answer. ``Killed``: the job dies in the middle.
        self.play: Callable[[PlatformJob], None] | None = None
        self._answers: dict[int | None, dict[str, Any] | None] = {None: {"tables": []}}

    def answer(self, result: dict[str, Any] | None, job: int | None = None) -> None:
        """Say what jobs leave as their result; None: they leave none, and succeed.

        :param job: the number of the job, from 0; all others when not given.
        """
        self._answers[job] = result

    def cancel_from_outside(self, job: int) -> None:
        """Cancel a job as a person on the platform does."""
        self.end(self.jobs[job], "cancelled")

    def end_states(self) -> list[State]:
        """The states of all jobs, when those that the engine has ended are gone."""
        return [job.state for job in self.jobs]

    def start(self, token: str, arguments: Sequence[str], timeout: float | None = None) -> PlatformJob:
        """Begin a job. A platform that starts nothing twice for one token looks for it itself."""
        job = PlatformJob(self.new_id(), token, list(arguments), timeout)
        self.jobs.append(job)
        return job

    def new_id(self) -> str:
        """The id of a new job, in the form that the platform has."""
        return uuid.uuid4().hex

    def run(self, job: PlatformJob, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run what was submitted, in a process session of its own, with its log in the stand-in's folder."""
        with (self.folder / f"{job.id}.log").open("wb") as log:
            job.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def log_of(self, job: PlatformJob) -> str:
        path = self.folder / f"{job.id}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def ask(self, job: PlatformJob) -> State:
        """How far a job is. One that is played ends here, unless it is held."""
        if job.state != "running":
            return job.state
        if job.process is not None:
            code = job.process.poll()
            if code is not None:
                job.state = "succeeded" if code == 0 else "failed"
        elif self.held is None:
            pass
        elif self.held > 0:
            self.held -= 1
        elif self.play is not None:
            try:
                self.play(job)
            except Killed:
                job.error = self.lost_driver
                job.state = "failed"
            else:
                job.state = "succeeded"
        else:
            number = self.jobs.index(job)
            result = self._answers.get(number, self._answers[None])
            if result is not None:
                put_document(parse_location(job.results_uri).child(DONE), result, None)
            job.state = "failed" if result is not None and "error" in result else "succeeded"
        return job.state

    def end(self, job: PlatformJob, state: State) -> None:
        """End a job, and all processes that it has."""
        if job.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait()
        if job.state == "running":
            job.state = state

    def close(self) -> None:
        """End what is left. Returns when no process of the platform runs any more."""
        for job in self.jobs:
            self.end(job, "cancelled")
        self.stop_server()

    @abstractmethod
    def stop_server(self) -> None:
        """Stop the server that speaks the platform's API."""
