"""Jobs that are processes on this machine: their output, their end, and what the task's log shows of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from airflow_hive_to_delta.engines.engine import Engine, JobRef, JobStatus
from airflow_hive_to_delta.job.processes import kill_session

#: How long to wait for killed processes to be gone. Airflow kills a task 5 s after it has asked it to end.
GRACE_SECONDS = 2.0
#: Of Spark's own log, how many of the last lines are shown when a job fails.
_LAST_LINES = 40
_WARNING = re.compile(r"\b(WARN|ERROR|FATAL)\b")
#: Warnings that every session on one machine gives.
_HARMLESS = (
    "WARN NativeCodeLoader: Unable to load native-hadoop library",
    "WARN SparkConf: Note that spark.local.dir will be overridden",
    "WARN Utils: Set SPARK_LOCAL_IP",
    "WARN Utils: Your hostname",
    'Setting default log level to "WARN"',
)


class JobProcess:
    """A job's process, with threads that keep its output flowing into one file.

    :param process: which began a process session, so that all that it starts can be ended with it. Its standard output
        has the job's own log.
    :param folder: of the process alone. It is removed with it.
    :param spark_output: the log of Spark, of which the task's log shows the warnings.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, spark_output: IO[bytes]) -> None:
        self.process = process
        self.folder = folder
        self.log = folder / "job.log"
        self.cancelled = False
        self.last_of_spark: deque[str] = deque(maxlen=_LAST_LINES)
        #: What is worth reading in the task's log, so far.
        self.lines: list[str] = []
        self._file = self.log.open("wb")
        # A signal's handler may end the job while this thread is asking for its status.
        self._lock = threading.RLock()
        assert process.stdout is not None, "asked for"
        self._streams = (process.stdout, spark_output)
        self._readers = [
            threading.Thread(target=self._read, args=(stream, shown), name=f"job-{process.pid}", daemon=True)
            for stream, shown in zip(self._streams, (self._show, self._show_warning), strict=True)
        ]
        for reader in self._readers:
            reader.start()

    def status(self, cursor: str | None, describe_failure: Callable[[int], str]) -> JobStatus:
        """How far the job is, as :meth:`Engine.status` returns it.

        :param describe_failure: says why there is no result, from the exit code.
        """
        seen = int(cursor or 0)
        code = self.poll()
        if code is None:
            lines = self.lines[seen:]
            return JobStatus("running", log=lines, cursor=str(seen + len(lines)), whole_log=self.log)
        self.wait_for_output()  # so that its last lines are among the new ones
        lines = [*self.lines]
        if code != 0 and not self.cancelled:
            lines += ["The last lines of Spark's own log:", *self.last_of_spark]
        log, cursor = lines[seen:], str(len(lines))
        if code == 0:
            return JobStatus("succeeded", log=log, cursor=cursor, whole_log=self.log)
        if self.cancelled:
            why = "The job was killed on request, before it had a result"
            return JobStatus("cancelled", why, log=log, cursor=cursor, whole_log=self.log)
        return JobStatus("failed", describe_failure(code), log=log, cursor=cursor, whole_log=self.log)

    def cancel(self, within: float) -> None:
        """End the process and all that it has started, and remove its folder."""
        if self.poll() is None:
            self.cancelled = True
            # A job has nothing to clean up, so it is killed at once: the log is written with one put, and the folder of
            # the job is removed here.
            kill_session(self.process.pid)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(min(within, GRACE_SECONDS))
        self.close()

    def poll(self) -> int | None:
        """The exit code of the job's process; None while it runs. When it has ended, what it has left is killed."""
        if self.process.returncode is None and hasattr(os, "waitid"):
            with suppress(ChildProcessError):  # a signal's handler has been here in between
                if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    return None
                # Such as a worker whose JVM died. Not later: once Python has its exit code, the id may be another's.
                kill_session(self.process.pid)
        return self.process.poll()

    def wait_for_output(self) -> None:
        for reader in self._readers:
            reader.join(GRACE_SECONDS)
        with self._lock:
            if not self._file.closed:
                self._file.flush()

    def close(self) -> None:
        self.wait_for_output()
        for stream in (self.process.stdin, *self._streams, self._file):
            if stream is not None:
                stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, stream: IO[bytes], show: Callable[[str], None]) -> None:
        for line in stream:
            with self._lock:
                if not self._file.closed:
                    self._file.write(line)
            show(line.decode(errors="replace").rstrip())

    def _show(self, line: str) -> None:
        self.lines.append(line)

    def _show_warning(self, line: str) -> None:
        self.last_of_spark.append(line)
        if _WARNING.search(line[:80]) and not any(text in line for text in _HARMLESS):
            self.lines.append(line)


@dataclass
class ProcessEngine(Engine):
    """The base of engines whose jobs are processes on this machine. They end with the process that started them."""

    survives_worker = False
    #: The status is that of a local process: asking for it cannot fail.
    poll_errors = 0

    _jobs: dict[str, JobProcess] = field(default_factory=dict, init=False, repr=False, compare=False)

    def find(self, token: str) -> JobRef | None:  # noqa: ARG002
        return None  # a job ends with the process that would have got the answer

    def status(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        running = self._jobs.get(ref.id)
        if running is None:
            return JobStatus("not_found", "The job ended with the process that started it")
        return running.status(cursor, lambda code: describe_end(code, "job's process", self.advise_on_memory()))

    def cancel(self, ref: JobRef, within: float = GRACE_SECONDS) -> None:
        running = self._jobs.pop(ref.id, None)
        if running is not None:
            running.cancel(within)

    def advise_on_memory(self) -> str:
        """What to do when a job was killed because memory ran out, as the end of a message."""
        return "Give the Airflow worker more memory, or let fewer jobs run at a time"


def describe_end(code: int, what: str, advice: str) -> str:
    """Why a process has left no result.

    :param code: its exit code, or the negative number of the signal that ended it.
    :param what: the process, as the message names it.
    :param advice: what to do if memory ran out.
    """
    if code == -9:
        return (
            f"The {what} was killed from outside (signal 9) without a result, by the kernel or the container when "
            f"memory runs out, or by a person. {advice}"
        )
    how = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
    return f"The {what} {how} without a result: see its last lines in the log"


def merge_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process with the given variables in it. A variable with an empty value is left out."""
    taken_out = {name for name, value in environment.items() if not value}
    return {name: value for name, value in {**os.environ, **environment}.items() if name not in taken_out}
