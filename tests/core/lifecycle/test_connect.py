"""The core over Spark Connect, where a session has no JVM: a real server, and a client in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from airflow_hive_to_delta.core.spark.session import local_session_conf
from tests.support.project import PROJECT
from tests.support.spark_versions import needs_spark_4

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

pytestmark = [pytest.mark.slow, needs_spark_4("the Connect server in its own package")]


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    """The address of a Spark Connect server; it may still be starting, and a client waits for it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = {
        **local_session_conf(memory="1g"),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    command: list[str | Path]
    command = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local[2]", "--class", SERVER]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, *settings, "spark-internal"],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            cwd=tmp_path,
        )
        try:
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.kill()
            server.wait()


def test_conversion_over_spark_connect(connect_server: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.support.connect_client",
            connect_server,
            str(tmp_path / "tables"),
        ],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    server_log = (tmp_path / "server.log").read_text()[-3000:]
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}\n{server_log}"
    assert run.stdout.splitlines()[-1] == "all is well"
