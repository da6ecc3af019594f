"""The core over Spark Connect, where a session has no JVM: a real server, and a client in a process of its own."""

from __future__ import annotations

import datetime as dt
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from airflow_hive_to_delta import (
    ConversionOptions,
    DatabricksListing,
    PermanentError,
    TableInfo,
    UCDiscovery,
    convert,
    convert_table,
)
from airflow_hive_to_delta.core.delta.sink import DeltaSink
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
from airflow_hive_to_delta.core.lifecycle.verify import verify_table
from airflow_hive_to_delta.core.spark.session import local_session_conf
from tests.support.oracle import delta_at
from tests.support.project import PROJECT
from tests.support.tables import convert_folder, files_of, snapshot, write_parquet

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

pytestmark = pytest.mark.slow


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
    program = "import sys; from tests.core.lifecycle.test_connect import client; client(sys.argv[1], sys.argv[2])"
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, connect_server, str(tmp_path / "tables")],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    server_log = (tmp_path / "server.log").read_text()[-3000:]
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}\n{server_log}"
    assert run.stdout.splitlines()[-1] == "all is well"


def client(address: str, folder: str) -> None:
    """What runs in the client's process."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(address).getOrCreate()
    assert not hasattr(spark, "sparkContext"), "a session without a JVM"
    for stats in ("footer", "scan"):
        root = Path(folder) / stats
        write_parquet(root / "p=1" / "000000_0", {"Id": [1, None], "at": [dt.date(2024, 2, 29)] * 2})
        write_parquet(root / "p=a%2Fb" / "f", {"Id": [2], "at": pa.array([None], pa.date32())})
        original = spark.read.schema("Id long, at date, p string").parquet(str(root))
        result = convert_folder(spark, root, partition_columns=["p"], options=ConversionOptions(stats=stats))
        assert (result.status, result.file_count, result.row_count) == ("converted", 2, 3)
        found = delta_at(spark, root)
        assert found.columns == original.columns
        assert sorted(map(repr, found.collect())) == sorted(map(repr, original.collect()))
        assert found.where("Id = 2").count() == 1
        _verify(spark, root, ConversionOptions(stats=stats))
    _refuse(spark, Path(folder) / "refused")
    _convert_catalog(spark)
    _stream(spark, Path(folder))
    spark.stop()
    print("all is well")


def _verify(spark, root: Path, options: ConversionOptions) -> None:
    view = DeltaTableView.for_path(spark, f"{root}@v0")
    assert sorted(file.rows for file in view.files.collect()) == [1, 2]
    assert [commit.operation for commit in view.history] == ["CONVERT"]
    table = TableInfo(root.name, str(root), partition_keys=["p"])
    result = verify_table(spark, table, DatabricksListing(), level="full", options=options)
    assert (result.file_count, result.row_count, result.partition_count) == (2, 3, 2)


def _refuse(spark, root: Path) -> None:
    write_parquet(root / "f", {"id": [1]})
    (root / "g").write_bytes(b"not Parquet")
    before = snapshot(root)
    with pytest.raises(PermanentError, match="g is not a Parquet file"):
        convert_table(spark, files_of(spark, root), str(root), None, None, None)
    assert snapshot(root) == before


def _stream(spark, folder: Path) -> None:
    """A sink goes to the server with its query. There no query tells its id."""
    write_parquet(folder / "t" / "f", {"id": [1]})
    convert_folder(spark, folder / "t")
    path = str(folder / "t")
    with pytest.raises(PermanentError, match=r"over Spark Connect, which does not tell the id\. Pass .*txnAppId"):
        DeltaSink(path).add_batch(0, spark.range(1))
    write_parquet(folder / "source" / "f", {"id": [2, 3]})
    for checkpoint in ("one", "two"):
        query = (
            spark.readStream.schema("id long").parquet(str(folder / "source")).writeStream.trigger(availableNow=True)
        )
        query = query.foreachBatch(DeltaSink(path, options={"txnAppId": "orders"}))
        query.option("checkpointLocation", str(folder / checkpoint)).start().awaitTermination()
        assert sorted(row.id for row in delta_at(spark, path).collect()) == [1, 2, 3]


def _convert_catalog(spark) -> None:
    spark.sql("CREATE SCHEMA old")
    spark.sql("CREATE TABLE old.t USING parquet PARTITIONED BY (P) AS SELECT 1 AS Id, 'x' AS P")
    spark.sql("CREATE VIEW old.v AS SELECT 1 AS Id")
    converted, refused = convert(
        spark, UCDiscovery(["spark_catalog.old.*"]), DatabricksListing(), "spark_catalog", "new", progress=False
    )
    assert (converted.error, converted.target_table) == (None, "spark_catalog.new.t")
    assert refused.status == "refused"
    assert [tuple(row) for row in spark.table("new.t").collect()] == [(1, "x")]
