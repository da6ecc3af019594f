"""The data files of a table, and what else their listing has seen."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta.core.files import (
    FILES_ARROW_SCHEMA,
    LAST_CHARACTER,
    ListedFiles,
    SeenFolders,
    files_batch,
    partitioned_files_batch,
)
from airflow_hive_to_delta.core.models import FILES_SCHEMA
from airflow_hive_to_delta.core.progress import read_counts
from airflow_hive_to_delta.core.storage.uri import parse_location

ROWS: list[dict[str, Any]] = [
    {"path": "s3://b/t/p=1/a", "size": 3, "modification_time": 5, "partition_values": {"p": "1"}},
    {"path": "s3://b/t/p=2/b", "size": 4, "modification_time": 6, "partition_values": {"p": None}},
    {"path": "s3://b/t/c", "size": 5, "modification_time": 7, "partition_values": None},
]


def batch() -> pa.RecordBatch:
    return partitioned_files_batch([tuple(row.values()) for row in ROWS])


@pytest.mark.parametrize(
    ("folder", "may_have_one"),
    [
        ("s3://b/t", True),
        ("s3a://b/t/", True),
        ("s3://b/t/day=1", False),
        ("s3://b/t/day=2/deep", True),
        ("s3://b/t/day=2", False),
        ("s3://b/other", True),
        ("s3://b", True),
        ("s3://c/t/day=1", True),
        ("s3://b/t2", True),
    ],
)
def test_folders_with_delta_logs_among_those_that_were_listed_whole(folder: str, may_have_one: bool) -> None:
    seen = SeenFolders()
    root = parse_location("s3a://b/t")
    seen.whole.add(root.canonical)
    seen.add_all(root, ["a", "_delta_log/0.json", "day=2/deep/_delta_log/x/_delta_log/0.json", "day=1/_delta_logs/x"])
    assert seen.may_have_delta_log(parse_location(folder)) is may_have_one


@pytest.mark.parametrize(
    ("folder", "may_have_one"),
    [
        ("s3://b/t/day=1", False),
        ("s3a://b/t/day=2", False),
        ("s3://b/t/day=3", True),
        ("s3://b/t", True),
        ("s3://b/t/day=2/_delta_log/x", True),
        ("s3://b/z", False),
        ("s3://b", True),
        ("s3://c/t/day=1", True),
    ],
)
def test_folders_with_delta_logs_among_ranges_of_keys(folder: str, may_have_one: bool) -> None:
    """A folder cannot have a Delta log where one range has every key that the log could have."""
    seen = SeenFolders()
    bucket = parse_location("s3a://b")
    seen.add_range(bucket, "y", LAST_CHARACTER)
    seen.add_range(bucket, "t/day=1/", "t/day=3/")
    assert seen.may_have_delta_log(parse_location(folder)) is may_have_one


def test_the_range_of_a_bucket_from_its_first_key() -> None:
    seen = SeenFolders()
    bucket = parse_location("s3://b")
    seen.add_range(bucket, "", LAST_CHARACTER)
    assert not seen.may_have_delta_log(bucket)
    assert not seen.may_have_delta_log(bucket.child("t"))


def test_files_in_this_process_are_counted_and_collected(spark: SparkSession) -> None:
    before = read_counts().get("files_listed", 0)
    files = ListedFiles.from_batches(spark, [batch()])
    assert read_counts()["files_listed"] == before + 3
    assert files.collect() == files.collect_few(3) == ROWS
    assert files.collect_few(2) is None
    assert files.count() == (3, 12)
    with files.kept() as kept:
        assert kept is files
    chosen = files.select(spark.createDataFrame([("s3://b/t/c",), ("s3://b/t/d",)], "path string"))
    assert chosen.collect() == ROWS[2:]
    assert chosen.table is not None
    assert ListedFiles(spark, FILES_ARROW_SCHEMA.empty_table()).count() == (0, 0)


def test_files_of_spark_are_counted_and_collected(spark: SparkSession) -> None:
    files = ListedFiles(spark, spark.createDataFrame([tuple(row.values()) for row in ROWS], FILES_SCHEMA))
    assert files.table is None
    assert files.collect() == files.collect_few(3) == ROWS
    assert files.collect_few(2) is None
    assert files.count() == (3, 12)
    assert files.select(spark.createDataFrame([("s3://b/t/c",)], "path string")).collect() == ROWS[2:]
    assert ListedFiles(spark, files.frame.limit(0)).count() == (0, 0)


def test_files_of_one_partition_have_its_values() -> None:
    rows = files_batch([("s3://b/t/p=1/a", 3, 5)], {"p": "1"}).to_pylist(maps_as_pydicts="strict")
    assert rows == ROWS[:1]
    assert files_batch([("s3://b/t/c", 5, 7)], None).to_pylist() == ROWS[2:]
