"""DeltaSink: real Structured Streaming into converted tables; every batch once, whatever happens in between."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from airflow_hive_to_delta import PermanentError
from airflow_hive_to_delta.core.delta.sink import DeltaSink
from airflow_hive_to_delta.core.errors import SchemaError, TransientError
from tests.support.lake import Lake
from tests.support.oracle import assert_same, delta_at
from tests.support.tables import convert_folder, snapshot, write_parquet

NOTHING = {"numAddedFiles": 0, "numRemovedFiles": 0}


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Path:
    """A converted table: two partitions, rows (1, x) and (2, y)."""
    root = tmp_path / "table"
    write_parquet(root / "p=x" / "f", {"id": [1]})
    write_parquet(root / "p=y" / "f", {"id": [2]})
    assert convert_folder(spark, root, partition_columns=["p"]).status == "converted"
    return root


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What streams read: two files, the older one first."""
    first = write_parquet(tmp_path / "source" / "1", {"id": [3, 4], "p": ["x", "z"]})
    write_parquet(tmp_path / "source" / "2", {"id": [5], "p": pa.array([None], pa.string())})
    os.utime(first, (0, 0))
    return tmp_path / "source"


def stream(
    spark: SparkSession,
    source: Path,
    checkpoint: Path,
    write: Callable[[DataFrame, int], Any],
    *,
    of: Callable[[DataFrame], DataFrame] = lambda data: data,
    mode: str = "append",
) -> None:
    """A stream of all files that are there, each as a batch of its own."""
    data = spark.readStream.schema("id long, p string").option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = of(data).writeStream.outputMode(mode).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).foreachBatch(write).start().awaitTermination()


def forget_the_last_commit(checkpoint: Path) -> None:
    """Undo what the query wrote down of its last batch, as if the process had died just before."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()


def rows(spark: SparkSession, root: object) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, delta_at(spark, root).collect()), key=repr)


def frame(spark: SparkSession, values: Iterable[tuple[Any, ...]], schema: str = "id long, p string") -> DataFrame:
    return spark.createDataFrame(list(values), schema).coalesce(1)


def entries(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_delta_log").glob("*.json"))


# --- exactly once ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stream_into_partitions_in_two_buckets_and_a_crash_before_its_commit(
    lake: Lake, source: Path, tmp_path: Path
) -> None:
    other = lake.add_bucket()
    lake.put("t/p=x/f", {"id": [1]})
    lake.put("elsewhere/f", {"id": [2]}, other)
    partitions = [(["x"], f"{lake.location()}/p=x"), (["y"], f"s3://{other}/elsewhere")]
    lake.table({"id": "bigint"}, {"p": "string"}, partitions)
    assert lake.convert().status == "converted"
    sink = DeltaSink(lake.location(), ["p"])
    stream(lake.spark, source, tmp_path / "checkpoint", sink)
    expected = frame(lake.spark, [(1, "x"), (2, "y"), (3, "x"), (4, "z"), (5, None)])
    assert_same(lake.spark, expected, delta_at(lake.spark, lake.location()))
    assert sink.metrics == {"numAddedFiles": 1, "numRemovedFiles": 0}

    forget_the_last_commit(tmp_path / "checkpoint")
    before = lake.objects()
    again = DeltaSink(lake.location(), ["p"])
    stream(lake.spark, source, tmp_path / "checkpoint", again)
    assert (again.metrics, lake.objects()) == (NOTHING, before)

    write_parquet(source / "3", {"id": [6], "p": ["y"]})
    stream(lake.spark, source, tmp_path / "checkpoint", again)
    assert rows(lake.spark, lake.location()) == sorted([*map(tuple, expected.collect()), (6, "y")], key=repr)


@pytest.mark.slow
def test_two_queries_with_the_same_batch_both_land(spark: SparkSession, table: Path, source: Path, tmp_path: Path):
    seen = []
    sink = DeltaSink(str(table))

    def write(data: DataFrame, batch_id: int) -> None:
        sink.add_batch(batch_id, data)
        seen.append((batch_id, sink.metrics["numAddedFiles"]))

    stream(spark, source, tmp_path / "one", write)
    stream(spark, source, tmp_path / "two", write)
    assert seen == [(0, 2), (1, 1)] * 2
    new = [(3, "x"), (4, "z"), (5, None)]
    assert rows(spark, table) == sorted([(1, "x"), (2, "y"), *new, *new], key=repr)


def test_a_query_goes_on_with_a_sink_where_deltas_own_stopped(
    spark: SparkSession, table: Path, source: Path, tmp_path: Path
) -> None:
    data = spark.readStream.schema("id long, p string").parquet(str(source))
    writer = data.writeStream.format("delta").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(table)).awaitTermination()
    forget_the_last_commit(tmp_path / "checkpoint")
    before, written = rows(spark, table), entries(table)
    stream(spark, source, tmp_path / "checkpoint", DeltaSink(str(table)))
    assert len(before) == 5
    assert (rows(spark, table), entries(table)) == (before, written)


@pytest.mark.slow
def test_the_same_batch_again_changes_nothing(spark: SparkSession, table: Path) -> None:
    sink = DeltaSink(str(table), options={"TXNAPPID": "orders"})
    for batch_id in (0, 1):
        sink.add_batch(batch_id, frame(spark, [(3, "x")]))
        assert sink.metrics == {"numAddedFiles": 1, "numRemovedFiles": 0}
    before = snapshot(table)
    for batch_id in (1, 0):
        sink.add_batch(batch_id, frame(spark, [(4, "x")]))
        assert sink.metrics == NOTHING
    assert snapshot(table) == before
    sink.add_batch(2, frame(spark, []))
    assert sink.metrics == NOTHING
    assert len(entries(table)) == 4, "a batch without rows is done too"
    assert rows(spark, table) == [(1, "x"), (2, "y"), (3, "x"), (3, "x")]


@pytest.mark.slow
def test_metrics_are_of_the_own_commit_when_others_follow_it(
    spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = DeltaSink._write

    def write_and_be_followed(sink: DeltaSink, *arguments: Any) -> None:
        write(sink, *arguments)
        other = frame(spark, [(8, "v"), (9, "w")]).write.format("delta").mode("append")
        other.option("txnAppId", "other").option("txnVersion", 7).save(str(table))

    monkeypatch.setattr(DeltaSink, "_write", write_and_be_followed)
    sink = DeltaSink(str(table), options={"txnAppId": "orders"})
    sink.add_batch(7, frame(spark, [(3, "x")]))
    assert sink.metrics == {"numAddedFiles": 1, "numRemovedFiles": 0}
    assert len(rows(spark, table)) == 5


def test_a_batch_whose_answer_was_lost_is_passed_over(
    spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = DeltaSink._write

    def write_and_lose_the_answer(sink: DeltaSink, *arguments: Any) -> None:
        write(sink, *arguments)
        raise TransientError("lost")

    sink = DeltaSink(str(table), options={"txnAppId": "orders"})
    sink.add_batch(0, frame(spark, [(3, "x")]))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaSink, "_write", write_and_lose_the_answer)
        with pytest.raises(TransientError, match="lost"):
            sink.add_batch(1, frame(spark, [(4, "x")]))
    sink.add_batch(1, frame(spark, [(4, "x")]))
    assert sink.metrics == NOTHING
    assert rows(spark, table) == [(1, "x"), (2, "y"), (3, "x"), (4, "x")]


# --- complete ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_complete_replaces_all_rows(spark: SparkSession, table: Path, source: Path, tmp_path: Path) -> None:
    """It replaces the rows of other partitions, too, whatever the session's setting is."""
    sink = DeltaSink(str(table), ["P"], "Complete")

    def counted() -> None:
        def of(data: DataFrame) -> DataFrame:
            return data.groupBy("p").count().selectExpr("count AS id", "p")

        stream(spark, source, tmp_path / "checkpoint", sink, of=of, mode="complete")

    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        counted()
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert rows(spark, table) == [(1, "x"), (1, "z"), (1, None)]
    assert sink.metrics == {"numAddedFiles": 3, "numRemovedFiles": 2}
    forget_the_last_commit(tmp_path / "checkpoint")
    written = entries(table)
    counted()  # a query with state: Spark fails it when a batch is not computed
    assert (sink.metrics, entries(table)) == (NOTHING, written)
    write_parquet(source / "3", {"id": [7], "p": ["z"]})
    counted()
    assert rows(spark, table) == [(1, "x"), (1, None), (2, "z")]
    original = spark.read.format("delta").option("versionAsOf", 0).load(str(table))
    assert sorted(map(tuple, original.collect())) == [(1, "x"), (2, "y")]


@pytest.mark.slow
def test_a_batch_may_read_the_table_that_it_replaces(spark: SparkSession, table: Path) -> None:
    sink = DeltaSink(str(table), output_mode="COMPLETE", options={"txnAppId": "orders"})
    for batch_id in (0, 1):
        sink.add_batch(batch_id, delta_at(spark, table).selectExpr("id * 10 AS id", "p"))
        assert sink.metrics == {"numAddedFiles": 2, "numRemovedFiles": 2}
    assert rows(spark, table) == [(100, "x"), (200, "y")]


# --- schema ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_merge_schema_adds_columns(spark: SparkSession, table: Path) -> None:
    batch = frame(spark, [(3, "x", 0.5)], "id long, p string, price double")
    before = snapshot(table)
    for options in ({}, {"mergeSchema": "false"}):
        sink = DeltaSink(str(table), options={"txnAppId": "orders", **options})
        with pytest.raises(SchemaError, match=r"batch 0 to DeltaSink\[.*has not .*: price double\. Pass .*mergeSchema"):
            sink.add_batch(0, batch)
    assert snapshot(table) == before
    DeltaSink(str(table), options={"txnAppId": "orders", "mergeschema": "TRUE"}).add_batch(0, batch)
    assert rows(spark, table) == [(1, "x", None), (2, "y", None), (3, "x", 0.5)]


@pytest.mark.slow
def test_overwrite_schema_replaces_columns_and_keeps_the_partitions(spark: SparkSession, table: Path) -> None:
    batch = frame(spark, [("new", "x")], "name string, p string")
    sink = DeltaSink(str(table), output_mode="complete", options={"txnAppId": "orders", "overwriteSchema": True})
    sink.add_batch(0, batch)
    assert delta_at(spark, table).columns == ["name", "p"]
    assert rows(spark, table) == [("new", "x")]
    assert partition_columns(spark, table) == ["p"]
    options = {"txnAppId": "orders", "overwriteSchema": "True"}
    sink = DeltaSink(str(table), ["name"], output_mode="complete", options=options)
    sink.add_batch(1, batch)
    assert partition_columns(spark, table) == ["name"]
    assert rows(spark, table) == [("new", "x")]


def test_a_type_that_does_not_fit_is_refused(spark: SparkSession, table: Path) -> None:
    sink = DeltaSink(str(table), options={"txnAppId": "orders", "mergeSchema": True})
    message = r"Writing batch 4 to DeltaSink\[.*: id is boolean, expected bigint\. Cast them in the batch"
    with pytest.raises(SchemaError, match=message):
        sink.add_batch(4, frame(spark, [(True, "x")], "id boolean, p string"))
    assert entries(table) == [f"{0:020d}.json"]


def partition_columns(spark: SparkSession, root: Path) -> list[str]:
    return list(spark.sql(f"DESCRIBE DETAIL delta.`{root}`").collect()[0].partitionColumns)


# --- the table ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_new_table_is_made_with_its_partition_columns(spark: SparkSession, tmp_path: Path) -> None:
    """A first batch has failed and has left files behind."""
    root = tmp_path / "a b%20c" / "new"
    sink = DeltaSink(f"file://{root}", ["p"], options={"txnAppId": "orders"})
    half = frame(spark, [(1, "x")]).union(spark.range(1).selectExpr("raise_error('lost') AS id", "'y' AS p"))
    with pytest.raises((PermanentError, TransientError), match="lost"):
        sink.add_batch(0, half)
    again = DeltaSink(str(root), ["p"], options={"txnAppId": "orders"})
    again.add_batch(0, frame(spark, [(1, "x"), (2, None)]))
    assert again.metrics == {"numAddedFiles": 2, "numRemovedFiles": 0}
    assert rows(spark, root) == [(1, "x"), (2, None)]
    assert partition_columns(spark, root) == ["p"]


def test_a_folder_that_was_not_converted_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "hive" / "p=1" / "000000_0", {"id": [1]})
    before = snapshot(tmp_path)
    with pytest.raises(PermanentError, match=r"no Delta table, but is not empty: it holds p=1/\. Convert"):
        DeltaSink(str(tmp_path / "hive"), options={"txnAppId": "orders"}).add_batch(0, frame(spark, [(1, "x")]))
    assert snapshot(tmp_path) == before


def test_a_table_that_went_back_to_hive_under_the_sink_is_left_alone(spark: SparkSession, table: Path) -> None:
    sink = DeltaSink(str(table), options={"txnAppId": "orders"})
    sink.add_batch(0, frame(spark, [(3, "x")]))
    shutil.move(table / "_delta_log", table.parent / "log")
    before = snapshot(table)
    with pytest.raises(PermanentError, match="no Delta table, but is not empty"):
        sink.add_batch(1, frame(spark, [(4, "x")]))
    assert snapshot(table) == before


@pytest.mark.parametrize("columns", [["id"], ["p", "id"]])
def test_partition_columns_that_are_not_the_tables(spark: SparkSession, table: Path, columns: list[str]) -> None:
    before = snapshot(table)
    message = f"has the partition columns {', '.join(columns)}, and the table has p\\."
    with pytest.raises(PermanentError, match=message):
        DeltaSink(str(table), columns, options={"txnAppId": "orders"}).add_batch(0, frame(spark, [(3, "x")]))
    assert snapshot(table) == before


# --- what it is given --------------------------------------------------------------------------------------------


def test_a_batch_of_no_query_needs_an_application_id(spark: SparkSession, table: Path) -> None:
    before = snapshot(table)
    with pytest.raises(PermanentError, match=r"Batch 0 for DeltaSink\[.*outside of foreachBatch.*txnAppId"):
        DeltaSink(str(table))(frame(spark, [(3, "x")]), 0)
    assert snapshot(table) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output_mode": "update"}, "output mode is 'update', expected 'append' or 'complete'"),
        ({"options": {"overwriteSchema": "true"}}, "overwriteSchema needs the output mode complete, found append"),
        ({"options": {"mergeSchema": "yes"}}, "mergeSchema is 'yes', expected true or false"),
        ({"options": {"txnAppId": ""}}, "txnAppId is '', expected a name"),
        ({"options": {"mergeSchema": True, "MERGESCHEMA": False}}, "mergeSchema, MERGESCHEMA have one of them twice"),
        ({"options": {"txnVersion": "3", "mergeSchema": True}}, "Unknown options of a DeltaSink: txnVersion; expected"),
        ({"partition_columns": "p"}, "partition_columns is 'p', expected a list"),
        ({"path": "relative/t"}, "path of a DeltaSink is 'relative/t', expected an absolute path"),
    ],
)
def test_arguments_that_make_no_sink(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PermanentError, match=message):
        DeltaSink(**{"path": "s3://bucket/t", **arguments})


def test_the_text_form_and_messages_have_no_secrets() -> None:
    sink = DeltaSink("s3://bucket/t", ["p"], options={"txnAppId": "hunter2"})
    assert str(sink) == repr(sink) == f"{sink}" == "DeltaSink[s3://bucket/t]"
    secret: list[dict[str, Any]]
    secret = [{"options": {"fs.s3a.secret.key": "hunter2"}}, {"path": "s3://key:hunter2@bucket/t"}]
    for arguments in secret:
        with pytest.raises(PermanentError) as raised:
            DeltaSink(**{"path": "s3://bucket/t", **arguments})
        assert "hunter2" not in str(raised.value)


def test_what_fails_in_a_batch_fails_its_query(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    write_parquet(tmp_path / "hive" / "f", {"id": [1]})
    with pytest.raises(StreamingQueryException, match=r"PermanentError.*not empty"):
        stream(spark, source, tmp_path / "checkpoint", DeltaSink(str(tmp_path / "hive")))
