"""The embedded engine: Spark in a process of its own on this machine. No cluster, nothing to configure."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from airflow_hive_to_delta.core.storage.uri import KNOWN_SCHEMES
from airflow_hive_to_delta.engines.engine import Engine, JobRef, JobSpec, JobStatus
from airflow_hive_to_delta.engines.spark_settings import check_settings, describe_settings
from airflow_hive_to_delta.job.processes import kill_session

#: How long to wait for killed processes to be gone. Airflow kills a task 5 s after it has asked it to end.
_GRACE_SECONDS = 2.0
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


@dataclass
class LocalSpark(Engine):
    """Runs each job in a subprocess with a Spark session of its own. The job ends with the process that started it.

    The task's log has the lines of the job's own log, and of Spark's log the warnings. Spark's jars come from Maven
    Central; or from the folder that the environment variable ``HIVE_TO_DELTA_JARS`` names, which
    ``airflow-hive-to-delta fetch-jars`` fills.

    :param memory: of the Spark driver, which does all the work.
    :param cores: how many cores Spark takes; all of them when not given.
    :param conf: more settings of the session, such as ``{"spark.sql.shuffle.partitions": "8"}``. Their values are shown
        neither in a serialized DAG nor in the list of processes; but options of the JVM itself, such as
        ``spark.driver.extraJavaOptions``, are on its command line.
    """

    #: Jobs can reach the loopback address of the process that submits them.
    runs_on_this_machine = True
    survives_worker = False
    schemes = KNOWN_SCHEMES
    #: Nothing lies between this process and the job.
    poll_errors = 0

    memory: str = "2g"
    cores: int | None = None
    conf: dict[str, str] = field(default_factory=dict, repr=False)
    poll_seconds: float = 0.5
    _jobs: dict[str, _Running] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.memory, str) or not re.fullmatch(r"[1-9][0-9]*[kmgt]", self.memory, re.IGNORECASE):
            raise ValueError(f"memory is {self.memory!r}, expected a size with its unit, such as '4g'")
        if self.cores is not None and (type(self.cores) is not int or self.cores < 1):
            raise ValueError(f"cores is {self.cores!r}, expected a whole number, at least 1")
        self.conf = check_settings(self.conf)

    def __repr__(self) -> str:
        """Without the values of the settings, which may be secret. Airflow writes this into a serialized DAG."""
        settings = f", conf={describe_settings(self.conf)}" if self.conf else ""
        return f"{type(self).__name__}(memory={self.memory!r}, cores={self.cores!r}{settings})"

    def submit(self, spec: JobSpec, environment: Mapping[str, str]) -> JobRef:
        folder = Path(tempfile.mkdtemp(prefix="hive-to-delta-"))
        # Spark's scratch goes with the folder, even when Spark was killed and could not remove it.
        conf = {"spark.local.dir": str(folder), **self.conf}
        session = {"master": f"local[{self.cores or '*'}]", "memory": self.memory, "conf": conf}
        # Apart from the request, which others can read: settings may be secret, and the folder is of this user alone.
        (folder / "session.json").write_text(json.dumps(session))
        command = [sys.executable, "-m", "airflow_hive_to_delta.job", *spec.arguments]
        command += ["--session", str(folder / "session.json"), "--ends-with-input"]
        spark_output, for_spark = os.pipe()
        try:
            process = subprocess.Popen(  # noqa: S603
                [*command, "--spark-output", str(for_spark)],
                # Nobody writes to it: it closes when this process ends, however it ends, and the job ends with it.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=_merged(environment),
                pass_fds=[for_spark],
                start_new_session=True,
                cwd=folder,
            )
        finally:
            os.close(for_spark)
        job = str(process.pid)
        self._jobs[job] = _Running(process, folder, os.fdopen(spark_output, "rb"))
        return JobRef(job, spec.results_uri)

    def find(self, token: str) -> JobRef | None:  # noqa: ARG002
        return None  # a job ends with the process that would have got the answer

    def status(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        running = self._jobs.get(ref.id)
        if running is None:
            return JobStatus("not_found", "The job ended with the process that started it")
        seen = int(cursor or 0)
        code = running.poll()
        if code is None:
            lines = running.lines[seen:]
            return JobStatus("running", log=lines, cursor=str(seen + len(lines)), whole_log=running.log)
        running.wait_for_output()  # so that its last lines are among the new ones
        lines = [*running.lines]
        if code != 0 and not running.cancelled:
            lines += ["The last lines of Spark's own log:", *running.last_of_spark]
        log, cursor = lines[seen:], str(len(lines))
        if code == 0:
            return JobStatus("succeeded", log=log, cursor=cursor, whole_log=running.log)
        why = self._why_no_result(running, code)
        return JobStatus(
            "cancelled" if running.cancelled else "failed", why, log=log, cursor=cursor, whole_log=running.log
        )

    def cancel(self, ref: JobRef, within: float = _GRACE_SECONDS) -> None:
        running = self._jobs.get(ref.id)
        if running is None:
            return
        if running.poll() is None:
            running.cancelled = True
            # Nothing of a job cleans up after itself when it is asked to end, so it is not asked: the log is written
            # with one put, and the folder of the job is removed here.
            kill_session(running.process.pid)
            with suppress(subprocess.TimeoutExpired):
                running.process.wait(min(within, _GRACE_SECONDS))
        running.close()
        self._jobs.pop(ref.id, None)

    def _why_no_result(self, running: _Running, code: int) -> str:
        if running.cancelled:
            return "The job was killed on request, before it had a result"
        if code == -9:
            return (
                "The job's process was killed from outside (signal 9) without a result, by the kernel or the container "
                "when memory runs out, or by a person. Give the machine more memory, or let fewer or smaller jobs run "
                f"at a time: this one's Spark may take memory={self.memory!r} beside what Python takes"
            )
        how = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
        return f"The job's process {how} without a result: see its last lines in the log"


class _Running:
    """A job's process, with threads that keep its output flowing into one file."""

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
            reader.join(_GRACE_SECONDS)
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
        if _WARNING.search(line[:80]) and not any(words in line for words in _HARMLESS):
            self.lines.append(line)


def _merged(environment: Mapping[str, str]) -> dict[str, str]:
    """What a job inherits, with what is given in place of it. An empty value takes a variable out."""
    taken_out = {name for name, value in environment.items() if not value}
    return {name: value for name, value in {**os.environ, **environment}.items() if name not in taken_out}
