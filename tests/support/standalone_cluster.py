"""A real standalone cluster of the installed Spark: a master and its workers, on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from airflow_hive_to_delta.job.processes import kill_session
from tests.support.jvm_options import FAST_START


@dataclass
class Daemon:
    """A process of the cluster, which began a process session: what it starts belongs to it."""

    process: subprocess.Popen[str]
    log: Path
    #: Where its driver and executors keep what they write; None of the master.
    work: Path | None = None

    def kill(self) -> None:
        """Kill it and all that it has started, as when a machine goes down."""
        # Executors and drivers are in its session.
        kill_session(self.process.pid)
        self.process.wait()


@dataclass
class StandaloneCluster:
    """The addresses of a cluster that runs, and its processes."""

    #: ``spark://host:port``
    master: str
    rest_port: int
    ui_port: int
    #: The folder of ``spark-defaults.conf``, for the drivers too.
    conf: Path
    daemon: Daemon
    workers: list[Daemon] = field(default_factory=list)

    def connection(self, **extra: str) -> dict[str, object]:
        """An Airflow connection to it, as JSON has one."""
        parts = urlsplit(self.master)
        ports = {"rest-port": str(self.rest_port), "ui-port": str(self.ui_port)}
        return {
            "conn_type": "spark",
            "host": f"spark://{parts.hostname}",
            "port": parts.port,
            "extra": {**ports, **extra},
        }

    def drivers(self) -> list[Path]:
        """The folders of the drivers that were started on the workers, the oldest first."""
        found = [folder for worker in self.workers if worker.work for folder in worker.work.glob("driver-*")]
        return sorted(found, key=lambda folder: folder.name)


@contextmanager
def standalone_cluster(
    folder: Path,
    *,
    environment: Mapping[str, str],
    settings: Mapping[str, str],
    workers: int = 2,
    cores: int = 2,
    memory: str = "2g",
) -> Iterator[StandaloneCluster]:
    """A cluster that runs until the end of the block, and all drivers and executors end with it.

    :param folder: of the cluster alone.
    :param environment: of the workers, and of all that they start.
    :param settings: of ``spark-defaults.conf``.
    """
    conf = folder / "conf"
    conf.mkdir(parents=True)
    own = {"spark.master.rest.enabled": "true", "spark.master.rest.host": "127.0.0.1", "spark.master.rest.port": "0"}
    lines = {**own, **settings}
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    of_daemons = {
        **os.environ,
        **environment,
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_PUBLIC_DNS": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": FAST_START,
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        # The Python that has what jobs need.
        "PYSPARK_PYTHON": sys.executable,
    }
    of_daemons.pop("PYSPARK_SUBMIT_ARGS", None)
    started: list[Daemon] = []
    try:
        daemon, found = _start(
            ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"],
            folder / "master.log",
            of_daemons,
            started,
            (r"Starting Spark master at (spark://\S+)", r"MasterUI' on port (\d+)", r"REST server .* port (\d+)"),
        )
        master, ui_port, rest_port = found
        cluster = StandaloneCluster(master, int(rest_port), int(ui_port), conf, daemon)
        for number in range(workers):
            work = folder / f"worker-{number}"
            arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", str(cores)]
            worker, _ = _start(
                [
                    "org.apache.spark.deploy.worker.Worker",
                    *arguments,
                    *("--memory", memory, "--work-dir", str(work), master),
                ],
                folder / f"worker-{number}.log",
                of_daemons,
                started,
                (r"(Successfully registered with master)",),
            )
            worker.work = work
            cluster.workers.append(worker)
        yield cluster
    finally:
        for each in reversed(started):
            each.kill()


def spark_home() -> Path:
    """Where the installed Spark is."""
    found = find_spec("pyspark")
    assert found is not None, "pyspark is installed"
    assert found.origin is not None, "pyspark is a package"
    return Path(found.origin).parent


def _start(
    arguments: list[str], log: Path, environment: Mapping[str, str], started: list[Daemon], expected: tuple[str, ...]
) -> tuple[Daemon, list[str]]:
    """Start a daemon, and wait until its log has a line for each of the expected patterns."""
    process = subprocess.Popen(
        [str(spark_home() / "bin" / "spark-class"), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        start_new_session=True,
        text=True,
    )
    daemon = Daemon(process, log)
    started.append(daemon)
    assert process.stdout is not None, "asked for"
    found: dict[str, str] = {}
    written = log.open("w")
    for line in process.stdout:
        written.write(line)
        found |= {pattern: match[1] for pattern in expected if (match := re.search(pattern, line))}
        if len(found) == len(expected):
            threading.Thread(target=_drain, args=(process.stdout, written), name=log.name, daemon=True).start()
            return daemon, [found[pattern] for pattern in expected]
    written.close()
    raise AssertionError(f"{arguments[0]} ended, with {process.wait()}:\n{log.read_text()[-2000:]}")


def _drain(output: IO[str], written: IO[str]) -> None:
    with output, written, suppress(ValueError):
        for line in output:
            written.write(line)
            written.flush()
