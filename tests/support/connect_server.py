"""A real Spark Connect server on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from airflow_hive_to_delta.core.spark.session import local_session_conf
from tests.support.jvm_options import FAST_START

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass
class ConnectServer:
    url: str
    log: Path
    process: subprocess.Popen[bytes]


@contextmanager
def serve_connect(folder: Path) -> Iterator[ConnectServer]:
    """A server that accepts connections."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = {
        **local_session_conf(memory="1g"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": f"{FAST_START} -XX:ReservedCodeCacheSize=256m",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    command: list[str | Path]
    command = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local[2]", "--class", _SERVER]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, *settings, "spark-internal"],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            cwd=folder,
        )
    try:
        while not _accepts(port):  # it says so in its log at a level that says everything else, too
            assert server.poll() is None, (folder / "server.log").read_text()[-3000:]
            time.sleep(0.05)
        yield ConnectServer(f"sc://127.0.0.1:{port}", folder / "server.log", server)
    finally:
        server.kill()
        server.wait()


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory, aws_endpoint: str) -> Iterator[ConnectServer]:
    """The server of all tests that can share one. It reads S3 at moto's server."""
    with serve_connect(tmp_path_factory.mktemp("connect")) as server:
        yield server
