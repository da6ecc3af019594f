"""A client of a Spark Connect server, in a process of its own: what the core does there.

python -m tests.support.connect_client sc://127.0.0.1:15002 /tmp/tables
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import pyarrow as pa
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
from tests.support.oracle import delta_at
from tests.support.tables import convert_folder, files_of, snapshot, write_parquet


def client(address: str, folder: str) -> None:
    """Run all checks of the client; an assertion that fails ends the process."""
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


if __name__ == "__main__":
    client(sys.argv[1], sys.argv[2])
