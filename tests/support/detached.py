"""An engine whose jobs are processes that go on without the one that submitted them, as on a platform."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from airflow_hive_to_delta.engines import Engine, JobRef, JobSpec, JobStatus

#: A job without Spark: when the test lets it, it leaves what the file ``answer`` has as its result, or one that has the
#: job's name after it. An empty file: it leaves none.
WAITING_JOB = """
import json, sys
from pathlib import Path
platform, results, job = map(Path, sys.argv[1:])
with open(platform / "go") as go:  # blocks until somebody opens it to write
    go.read()
own = platform / f"answer-{job}"
answer = (own if own.exists() else platform / "answer").read_text()
if answer:
    (results / "_done.json").write_text(answer)
"""


@dataclass
class Detached(Engine):
    """What it knows of its jobs is in a folder, and none of it in memory.

    A file ``fail`` there with a number makes so many of the next calls of ``status`` fail, a file ``lose_answer`` the
    answer to ``submit`` get lost, and a file ``lose_find`` the next answer to ``find``.

    :param platform: the folder.
    """

    survives_worker = True
    schemes = frozenset({"file"})
    poll_errors = 2

    platform: str
    poll_seconds: float = 0.01

    def submit(self, spec: JobSpec, environment: Mapping[str, str]) -> JobRef:
        results = Path(spec.results_uri.removeprefix("file://"))
        job = self._path / f"job-{len(self.jobs())}"
        command = [sys.executable, "-c", WAITING_JOB, self.platform, str(results), job.name]
        process = os.posix_spawn(sys.executable, command, os.environ, setsid=True)
        known = {"pid": process, "token": spec.token, "timeout": spec.timeout, "results": spec.results_uri}
        job.write_text(json.dumps(known))
        if self._takes("lose_answer"):
            raise ConnectionError("The answer was lost")
        return self._ref(job)

    def find(self, token: str) -> JobRef | None:
        if self._takes("lose_find"):
            raise ConnectionError("The platform does not answer")
        return next((self._ref(job) for job in self.jobs() if json.loads(job.read_text())["token"] == token), None)

    def status(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        if self._takes("fail"):
            raise ConnectionError("The platform does not answer")
        if Path(f"{ref.id}.cancelled").exists():
            return JobStatus("cancelled")
        self.when_asked()
        pid = json.loads(Path(ref.id).read_text())["pid"]
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                return JobStatus("running")
        return JobStatus("succeeded")

    def when_asked(self) -> None:
        """Lets the job end. For engines that do something else when a task asks for the status."""
        with suppress(OSError):  # nobody waits for it yet, or any more
            os.close(os.open(self._path / "go", os.O_WRONLY | os.O_NONBLOCK))

    def cancel(self, ref: JobRef, within: float) -> None:
        assert within < 5
        Path(f"{ref.id}.cancelled").touch()
        pid = json.loads(Path(ref.id).read_text())["pid"]
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def jobs(self) -> list[Path]:
        """A file for each job that was ever submitted."""
        return sorted(path for path in self._path.glob("job-*") if not path.suffix)

    @property
    def _path(self) -> Path:
        return Path(self.platform)

    def _takes(self, name: str) -> bool:
        """Whether there is such a file. One with a number counts down."""
        path = self._path / name
        if not path.exists():
            return False
        left = int(path.read_text() or 1) - 1
        path.write_text(str(left)) if left else path.unlink()
        return True

    def _ref(self, job: Path) -> JobRef:
        return JobRef(str(job), json.loads(job.read_text())["results"], f"http://127.0.0.1/{job.name}")


@dataclass
class EndsForTriggers(Detached):
    """Its jobs end when a trigger asks for their status, and never for a task that waits for them.

    A file ``hold`` with a number makes them go on for so many times that a trigger asks.
    """

    def when_asked(self) -> None:
        pass

    async def astatus(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        if not self._takes("hold"):
            super().when_asked()
        return await super().astatus(ref, cursor)


@dataclass
class NoAnswerForTriggers(Detached):
    """An engine whose jobs never end, and which gives triggers no answer about them."""

    def when_asked(self) -> None:
        pass

    async def astatus(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        raise ConnectionError("The platform does not answer")


def make_platform(folder: Path, answer: dict[str, object]) -> Path:
    """A folder for :class:`Detached`, whose jobs give this answer."""
    folder.mkdir()
    os.mkfifo(folder / "go")
    (folder / "answer").write_text(json.dumps(answer))
    return folder
