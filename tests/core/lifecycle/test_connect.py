"""The core over Spark Connect, where a session has no JVM: a real server, and a client in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.connect_server import ConnectServer
from tests.support.project import PROJECT
from tests.support.spark_versions import needs_spark_4

pytestmark = [pytest.mark.slow, needs_spark_4("the Connect server in its own package")]


def test_conversion_over_spark_connect(connect_server: ConnectServer, tmp_path: Path) -> None:
    run = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.support.connect_client",
            connect_server.url,
            str(tmp_path / "tables"),
        ],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    server_log = connect_server.log.read_text()[-3000:]
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}\n{server_log}"
    assert run.stdout.splitlines()[-1] == "all is well"
