"""Jobs as clients of a real Spark Connect server."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from airflow_hive_to_delta import SparkConnect
from airflow_hive_to_delta.core.models import ParquetFileInfo, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.engines import JobError, JobRequest
from tests.support.connect_server import serve_connect
from tests.support.jobs import result_in, submit, wait
from tests.support.migrations import orders_and_people
from tests.support.oracle import assert_same, delta_at
from tests.support.project import PROJECT
from tests.support.tables import write_parquet


def test_what_cannot_be_the_address_of_a_server_is_refused_when_a_dag_is_parsed() -> None:
    with pytest.raises(ValueError, match="expected one of them"):
        SparkConnect()
    with pytest.raises(ValueError, match="expected one of them"):
        SparkConnect("sc://host", conn_id="connect")
    with pytest.raises(ValueError, match=r"url is 'http://host:1', expected sc://HOST:PORT"):
        SparkConnect("http://host:1")


@pytest.mark.parametrize("secret", ["sc://host:15002/;use_ssl=true;token=hunter2", "sc://host/;x-key=hunter2"])
def test_a_token_has_no_place_in_a_dag(secret) -> None:
    with pytest.raises(ValueError, match="pass its id as conn_id") as raised:
        SparkConnect(secret)
    assert "hunter2" not in str(raised.value)


def test_a_disk_is_for_jobs_only_when_it_is_shared_and_tasks_cannot_be_deferred(airflow_home) -> None:
    from airflow_hive_to_delta import CatalogDiscoverOperator

    arguments: dict[str, Any] = {"task_id": "discover", "allow": "a.*", "staging": "file:///staging"}
    with pytest.raises(ValueError, match=r"jobs of SparkConnect cannot read their request from file://"):
        CatalogDiscoverOperator(engine=SparkConnect("sc://host"), **arguments)
    shared = SparkConnect("sc://host", shared_disk=True)
    CatalogDiscoverOperator(engine=shared, **arguments)
    with pytest.raises(ValueError, match="jobs of SparkConnect end with the worker"):
        CatalogDiscoverOperator(engine=shared, deferrable=True, **arguments)


def test_a_server_that_is_not_there_is_named_and_tried_again() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = SparkConnect(f"sc://127.0.0.1:{port}")
    with pytest.raises(JobError, match=rf"No Spark Connect server answers at 127.0.0.1:{port}") as raised:
        submit(engine, JobRequest("discover", {}, "Discover"), Path("/nowhere"))
    assert raised.value.retryable


def test_the_address_and_the_token_of_a_connection(airflow_home, monkeypatch) -> None:
    from airflow_hive_to_delta.engines.spark_connect import _read_url

    engine = SparkConnect(conn_id="our_connect")
    assert repr(engine) == "SparkConnect(url=None, conn_id='our_connect', shared_disk=False, poll_seconds=0.5)"
    with pytest.raises(JobError, match="The Spark Connect connection 'our_connect' cannot be used") as raised:
        submit(engine, JobRequest("discover", {}, "Discover"), Path("/nowhere"))
    assert not raised.value.retryable
    monkeypatch.setenv("AIRFLOW_CONN_OUR_CONNECT", "spark-connect://:hunter2@127.0.0.1:15002")
    assert _read_url("our_connect").startswith("sc://127.0.0.1:15002/;")
    assert "token=hunter2" in _read_url("our_connect")


@pytest.fixture
def refusing_server() -> Iterator[Callable[[grpc.StatusCode], str]]:
    """Starts a server that refuses every request with a status. Returns its address."""
    server = grpc.server(ThreadPoolExecutor(2))

    def start(status: grpc.StatusCode) -> str:
        def refuse(_: Any, context: grpc.ServicerContext) -> None:
            context.abort(status, "by the test")

        handler = grpc.unary_unary_rpc_method_handler(refuse)
        generic = type("Refuses", (grpc.GenericRpcHandler,), {"service": lambda *_: handler})
        server.add_generic_rpc_handlers((generic(),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        return f"sc://127.0.0.1:{port}"

    yield start
    server.stop(0).wait()


def test_a_token_that_the_server_refuses_is_named(refusing_server, airflow_home, tmp_path) -> None:
    engine = SparkConnect(refusing_server(grpc.StatusCode.UNAUTHENTICATED), shared_disk=True)
    job = submit(engine, JobRequest("discover", {"allow": ["a.b.*"]}, "Discover"), tmp_path / "job")
    wait(engine, job)
    engine.cancel(job, 1)
    result = result_in(tmp_path / "job")
    assert result["error"].startswith("The Spark Connect server does not let this client in: the token is missing, ")
    assert "UNAUTHENTICATED" in result["error"]
    assert (result["error_kind"], result["retryable"]) == ("TransientError", True)


@pytest.mark.slow
@pytest.mark.skipif("SOAK" not in os.environ, reason="a client waits for a server that is gone; make soak runs it")
def test_a_server_that_speaks_another_protocol_is_not_waited_for_long(refusing_server, airflow_home, tmp_path) -> None:
    """As one without TLS for a client with it."""
    engine = SparkConnect(refusing_server(grpc.StatusCode.UNAVAILABLE), shared_disk=True)
    job = submit(engine, JobRequest("discover", {"allow": ["a.b.*"]}, "Discover"), tmp_path / "job")
    began = time.monotonic()
    wait(engine, job)
    engine.cancel(job, 1)
    assert "UNAVAILABLE" in result_in(tmp_path / "job")["error"]
    assert time.monotonic() - began < 90


def conversion(tables: dict[str, list[Path]]) -> JobRequest:
    """The request to convert tables of some files."""
    lists = [
        {
            "table": name,
            "file_count": len(files),
            "byte_count": 0,
            "files": [ParquetFileInfo(str(file), file.stat().st_size).to_dict() for file in files],
        }
        for name, files in tables.items()
    ]
    arguments = {
        "tables": [TableInfo(name, str(files[0].parent)).to_dict() for name, files in tables.items()],
        "lists": lists,
        "target_catalog": None,
        "target_schemas": [None] * len(tables),
        "options": ConversionOptions().to_dict(),
    }
    return JobRequest("convert", arguments, "Convert tables")


@pytest.mark.slow
def test_a_batch_with_a_poison_table_converts_the_others(connect_server, airflow_home, spark, tmp_path) -> None:
    """The workers of the server import the package from what the client sends: it is not installed for them."""
    good = [write_parquet(tmp_path / "good" / f"f{number}", {"n": [number, None]}) for number in range(3)]
    (bad := tmp_path / "bad" / "f").parent.mkdir()
    bad.write_bytes(b"not Parquet")
    engine = SparkConnect(connect_server.url, shared_disk=True)
    job = submit(engine, conversion({"good": good, "bad": [bad]}), tmp_path / "job")
    status, log = wait(engine, job)
    engine.cancel(job, 1)
    assert status.state == "succeeded", log
    converted, failed = result_in(tmp_path / "job")["results"]
    assert (converted["status"], converted["row_count"]) == ("converted", 6)
    assert "is not a Parquet file" in failed["error"]
    assert not (bad.parent / "_delta_log").exists()
    assert_same(spark, spark.read.parquet(*map(str, good)), delta_at(spark, tmp_path / "good"))


@pytest.mark.slow
@pytest.mark.skipif("SOAK" not in os.environ, reason="a client waits for a server that is gone; make soak runs it")
def test_a_server_that_ends_in_the_middle_is_tried_again(connect_server, airflow_home, spark, tmp_path) -> None:
    files = [write_parquet(tmp_path / "t" / "f", {"n": [1, None]})]
    request = conversion({"t": files})
    (folder := tmp_path / "server").mkdir()
    with serve_connect(folder) as server:
        engine = SparkConnect(server.url, shared_disk=True)
        job = submit(engine, request, tmp_path / "first")
        while not (status := engine.status(job)).log:
            assert not status.has_ended
        server.process.kill()
        server.process.wait()
        status, log = wait(engine, job)
        engine.cancel(job, 1)
    result = result_in(tmp_path / "first")
    (failed,) = result.get("results", [result])
    assert failed["retryable"], failed
    assert not (tmp_path / "t" / "_delta_log").exists()
    engine = SparkConnect(connect_server.url, shared_disk=True)
    job = submit(engine, request, tmp_path / "second")
    status, log = wait(engine, job)
    engine.cancel(job, 1)
    assert status.state == "succeeded", log
    assert_same(spark, spark.read.parquet(str(files[0])), delta_at(spark, tmp_path / "t"))


@pytest.mark.slow
def test_the_dag_of_the_page(connect_server, lake, run_dag) -> None:
    originals = orders_and_people(lake)
    page = (PROJECT / "docs" / "engines" / "spark-connect.md").read_text()
    (source,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    source = source.replace("s3://lake/", f"s3://{lake.bucket}/").replace('"sales', f'"{lake.database}')
    source = source.replace("import Glue", "import PerTable, Glue")
    source = source.replace("staging=", "per_table=PerTable(retries=0, batch_size=5), staging=")
    run = run_dag(source.replace("sc://spark.example.com:15002", connect_server.url))
    assert run.state == "success", run.log
    outcomes = {table["table"].rpartition(".")[2]: table for table in run.xcom("report", "report")["tables"]}
    for name, original in originals.items():
        assert (outcomes[name]["status"], outcomes[name]["verified"]) == ("converted", {"counts": 0})
        assert_same(lake.spark, original, delta_at(lake.spark, lake.location(name)))
