"""A stand-in for what engines start on the Airflow worker: a small program in place of Spark's.

The engine starts it as it starts a job. It asks the test how the job ends, and ends so.
"""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from airflow_hive_to_delta.engines import local, spark_connect
from tests.support.platforms import State
from tests.support.spark_platforms import HttpPlatform

_PROGRAM = """#!{python} -SE
import json, os, signal, sys, urllib.request
document = json.dumps({{"arguments": sys.argv[1:], "process": os.getpid()}}).encode()
with urllib.request.urlopen(urllib.request.Request("{url}/run", document)) as answer:
    state, error = json.load(answer)
if error:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(state != "succeeded")
"""
#: The longest that a test waits for the end of a process that is to be killed.
_PATIENCE = 60.0


class ProcessPlatform(HttpPlatform):
    """The processes that an engine starts on this machine, which end with the worker."""

    lost_driver = "was killed from outside (signal 9)"
    has_pages = False

    def __init__(self, folder: Path, staging: str) -> None:
        super().__init__(folder, staging)
        (programs := folder / "bin").mkdir()
        self.program = programs / "spark-submit"
        self.program.write_text(_PROGRAM.format(python=sys.executable, url=self.url))
        self.program.chmod(0o755)

    def respond(self, method: str, path: str, query: dict[str, list[str]], document: Any) -> tuple[int | None, Any]:
        assert path == "/run", path
        given = document["arguments"]
        results = given.index("--results")
        job = self.start(given[results + 1].rpartition("/")[2], given[results - 1 : results + 2])
        process = os.pidfd_open(document["process"])
        while self.ask(job) == "running":
            if select.select([process], [], [], 0.01)[0]:
                self.end(job, "cancelled")
        os.close(process)
        return 200, [job.state, job.error]

    def end_states(self) -> list[State]:
        # It is taken while a process runs.
        assert self.lock.acquire(timeout=_PATIENCE), "a process of a job still runs"
        self.lock.release()
        return super().end_states()


class SparkSubmitClientPlatform(ProcessPlatform):
    """A ``spark-submit`` on the path of the Airflow worker."""

    engine = 'SparkSubmit("client_test", poll_seconds=0.01)'

    def __init__(self, folder: Path, staging: str) -> None:
        super().__init__(folder, staging)
        self.set_variable("PATH", f"{self.program.parent}{os.pathsep}{os.environ['PATH']}")
        connection = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": 7077}
        self.set_variable("AIRFLOW_CONN_CLIENT_TEST", json.dumps(connection))


class PythonPlatform(ProcessPlatform):
    """In place of the Python that an engine starts."""

    #: Of the engine.
    module: ClassVar[Any]

    def __init__(self, folder: Path, staging: str) -> None:
        super().__init__(folder, staging)
        self.module.sys = SimpleNamespace(executable=str(self.program))

    def stop_server(self) -> None:
        self.module.sys = sys
        super().stop_server()


class LocalSparkPlatform(PythonPlatform):
    engine = "LocalSpark(poll_seconds=0.01)"
    module: ClassVar[Any] = local


class SparkConnectPlatform(PythonPlatform):
    module: ClassVar[Any] = spark_connect

    def __init__(self, folder: Path, staging: str) -> None:
        super().__init__(folder, staging)
        self.engine = f"SparkConnect('sc://127.0.0.1:{self.port}', poll_seconds=0.01)"
