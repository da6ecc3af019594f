"""The embedded engine: Spark in a process of its own on this machine. No cluster, nothing to configure."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_hive_to_delta.engines.engine import JobError, JobRequest, JobStatus

_GRACE_SECONDS = 10.0


@dataclass
class LocalSpark:
    """Runs each job in a subprocess with a Spark session of its own. The job ends with the process that started it.

    :param memory: of the Spark driver, which does all the work.
    :param cores: how many cores Spark takes; all of them when not given.
    :param conf: more settings of the session, such as ``{"spark.jars.ivy": "/opt/ivy"}``.
    """

    memory: str = "2g"
    cores: int | None = None
    conf: dict[str, str] = field(default_factory=dict)
    poll_seconds: float = 0.5
    _jobs: dict[str, _Running] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[1-9][0-9]*[kmgt]", self.memory, re.IGNORECASE):
            raise ValueError(f"memory is {self.memory!r}, expected a size such as '4g'")
        if self.cores is not None and (type(self.cores) is not int or self.cores < 1):
            raise ValueError(f"cores is {self.cores}, expected at least 1")

    def submit(self, request: JobRequest, environment: Mapping[str, str]) -> str:
        folder = Path(tempfile.mkdtemp(prefix="hive-to-delta-"))
        # Spark's scratch goes with the folder, even when Spark was killed and could not remove it.
        conf = {"spark.local.dir": str(folder), **self.conf}
        session = {"master": f"local[{self.cores or '*'}]", "memory": self.memory, "conf": conf}
        document = JobRequest(request.action, request.arguments, request.name, session).to_dict()
        (folder / "request.json").write_text(json.dumps(document))
        command = [sys.executable, "-m", "airflow_hive_to_delta.job", str(folder / "request.json")]
        command += ["--result", str(folder / "result.json"), "--ends-with-input"]
        process = subprocess.Popen(  # noqa: S603
            command,
            # Nobody writes to it: it closes when this process ends, however it ends, and the job ends with it.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
            cwd=folder,
        )
        job = str(process.pid)
        self._jobs[job] = _Running(process, folder)
        return job

    def status(self, job: str) -> JobStatus:
        running = self._jobs[job]
        ended = running.process.poll() is not None
        if ended:
            running.reader.join(_GRACE_SECONDS)  # so that its last lines are among the new ones
        return JobStatus("ended" if ended else "running", running.new_lines())

    def result(self, job: str) -> dict[str, Any]:
        running = self._jobs.pop(job)
        code = running.process.wait()
        try:
            result: dict[str, Any] = json.loads((running.folder / "result.json").read_text())
        except FileNotFoundError:
            how = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
            raise JobError(
                f"The Spark process {how} without a result: see its last lines above. Out of memory is the usual "
                f"cause of signal 9; give LocalSpark more than memory={self.memory!r}, or the machine more",
                retryable=True,
            ) from None
        finally:
            running.close()
        return result

    def cancel(self, job: str) -> None:
        running = self._jobs.get(job)
        if running is None or running.process.poll() is not None:
            return
        # The second for what is left of the group: the JVM may outlive the process that started it.
        for how in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(running.process.pid, how)
                running.process.wait(_GRACE_SECONDS)
        running.close()

    def page(self, job: str) -> str | None:  # noqa: ARG002
        return None


class _Running:
    """A job's process, with a thread that keeps its output flowing."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._read, name=f"job-{process.pid}", daemon=True)
        self.reader.start()

    def new_lines(self) -> list[str]:
        lines = []
        while not self._lines.empty():
            lines.append(self._lines.get())
        return lines

    def close(self) -> None:
        self.reader.join(_GRACE_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self) -> None:
        assert self.process.stdout is not None, "asked for"
        for line in self.process.stdout:
            self._lines.put(line.decode(errors="replace").rstrip())
