"""File lists on their way: what is read, held and written when there are many files."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_hive_to_delta.core.files import FILES_ARROW_SCHEMA
from airflow_hive_to_delta.core.listing.s3 import S3Listing
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.job.manifests import FileList, first_of, list_error, read_list, write_manifest


def batches(count: int, rows: int, taken: list[int] | None = None) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        if taken is not None:
            taken.append(number)
        files = [
            {"path": f"s3://b/{number}/{row}", "size": 1, "modification_time": None, "partition_values": None}
            for row in range(rows)
        ]
        yield pa.RecordBatch.from_pylist(files, schema=FILES_ARROW_SCHEMA)


def test_a_manifest_is_written_as_its_files_are_found() -> None:
    """While the last row groups are made, the first are in the file already."""
    destination = io.BytesIO()
    written: list[int] = []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in batches(120, 1_000):
            written.append(destination.tell())
            yield batch

    write_manifest(watched(), destination)

    assert pq.read_table(destination).num_rows == 120_000
    assert pq.ParquetFile(destination).num_row_groups == 3
    assert written[49] < written[51] < written[101], "row groups of 50,000 files leave the memory one by one"


def test_only_as_many_files_are_held_as_decide_whether_a_list_is_short() -> None:
    taken: list[int] = []
    first, all_of_them = first_of(batches(100, 10, taken), limit=25)
    assert (len(first), len(taken)) == (30, 3)
    assert sum(batch.num_rows for batch in all_of_them) == 1_000
    first, all_of_them = first_of(batches(2, 10), limit=25)
    assert len(first) == 20
    assert sum(batch.num_rows for batch in all_of_them) == 20


def test_pages_are_listed_as_fast_as_they_are_taken(s3, bucket, monkeypatch) -> None:
    monkeypatch.setattr("airflow_hive_to_delta.core.listing.s3._MAX_KEYS", 5)
    for number in range(100):
        s3.put_object(Bucket=bucket, Key=f"t/{number:03}", Body=b"x")
    table = TableInfo("t", f"s3://{bucket}/t")
    listing = S3Listing(max_workers=2)
    asked = []
    send = listing._send

    def record(*arguments: Any) -> Any:
        asked.append(arguments)
        return send(*arguments)

    monkeypatch.setattr(listing, "_send", record)

    found = listing.list_batches(table, ConversionOptions())
    assert next(found).num_rows == 5
    assert len(asked) <= 4, "one taken, two waiting, one on its way"
    assert sum(batch.num_rows for batch in found) == 95
    assert len(asked) == 20


def test_a_listing_that_nobody_wants_any_more_ends(s3, bucket, monkeypatch) -> None:
    monkeypatch.setattr("airflow_hive_to_delta.core.listing.s3._MAX_KEYS", 5)
    for number in range(100):
        s3.put_object(Bucket=bucket, Key=f"t/p={number % 10}/{number:03}", Body=b"x")
    before = threading.enumerate()
    found: Any = S3Listing(max_workers=2).list_batches(
        TableInfo("t", f"s3://{bucket}/t", partition_keys=["p"]), ConversionOptions()
    )
    next(found)
    found.close()
    assert [
        thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("ThreadPool")
    ] == []


@pytest.mark.parametrize("values", [None, {"p": "a/b", "q": None}])
def test_an_inline_list_is_the_same_files(spark, values) -> None:
    file = {"path": "s3://b/t/1", "size": 7, "modification_time": 5, "partition_values": values}
    (row,) = read_list(spark, FileList("t", 1, 7, files=[file])).frame.collect()
    assert row.asDict() == file


def test_an_empty_list_is_an_empty_table(spark) -> None:
    assert read_list(spark, FileList("t", 0, 0, files=[])).frame.collect() == []


def test_the_error_of_a_listing_travels_without_credentials() -> None:
    outcome = list_error("d.t", OSError("Failed to connect to http://ann:CanarySecret@proxy:3128"))
    assert (outcome["error"], outcome["retryable"]) == ("Failed to connect to http://***@proxy:3128", True)
