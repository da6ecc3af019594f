"""The footers of a few files are read by the driver, those of many by the executors: with one outcome."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta import ConversionOptions, PermanentError
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.files import FILES_ARROW_SCHEMA, ListedFiles
from airflow_hive_to_delta.core.parquet import describe
from airflow_hive_to_delta.core.parquet.describe import describe_files
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.small_tables import count_jobs, described_on_executors
from tests.support.tables import write_parquet


def rows_of(path: Path, size: int | None = None, values: list[tuple[str, str | None]] | None = None) -> dict[str, Any]:
    size = path.stat().st_size if size is None else size
    return {"path": str(path), "size": size, "modification_time": 1_700_000_000_000, "partition_values": values}


@pytest.fixture
def files(tmp_path: Path) -> list[dict[str, Any]]:
    """Files of several layouts, in a null partition, outside the root, hidden and without rows."""
    root, outside = tmp_path / "t", tmp_path / "elsewhere"
    return [
        rows_of(write_parquet(root / "p=1" / "f", {"id": [1, None]})),
        rows_of(write_parquet(root / "p=1" / "g", {"id": pa.array([1], pa.int32()), "More": ["x"]})),
        rows_of(write_parquet(root / "p=__HIVE_DEFAULT_PARTITION__" / "f", {"id": [3]})),
        rows_of(write_parquet(root / "p=2" / "empty", {"id": pa.array([], pa.int64())})),
        rows_of(write_parquet(root / "p=2" / "_hidden", {"id": [4]})),
        rows_of(write_parquet(outside / "f", {"id": [5]}), values=[("p", "a%/b")]),
    ]


def describe_with(
    spark: SparkSession, root: Path, files: list[dict[str, Any]], *, by_executors: bool, **options: Any
) -> dict[str, Any]:
    listed = ListedFiles(spark, pa.Table.from_pylist(files, schema=FILES_ARROW_SCHEMA))
    arguments: Any = (spark, listed, parse_location(str(root)), {"p": "string"}, ConversionOptions(**options))
    with described_on_executors() if by_executors else nullcontext(), describe_files(*arguments) as found:
        assert (found.rows is None) == by_executors
        rows = [row.asDict() for row in found.frame.collect()]
        if found.rows is not None:
            assert sorted(found.rows, key=lambda row: row["path"]) == sorted(rows, key=lambda row: row["path"])
        for row in rows:
            row.pop("file_schema")  # which one file of each layout has
        return {
            "rows": sorted(rows, key=lambda row: row["path"]),
            "totals": (found.file_count, found.byte_count, found.absolute_count, found.scanned),
            "evidence": found.evidence and found.evidence.to_json(),
            "layouts": found.layouts,
        }


@pytest.mark.parametrize("stats", ["footer", "none"])
def test_driver_and_executors_describe_alike(spark, tmp_path, files, stats) -> None:
    by_driver, by_executors = (
        describe_with(spark, tmp_path / "t", files, by_executors=each, stats=stats) for each in (False, True)
    )
    assert by_driver == by_executors
    assert by_driver["totals"][0] == 5
    assert by_driver["totals"][2] == 1


def test_no_file_at_all(spark, tmp_path) -> None:
    (tmp_path / "t").mkdir()
    found = [describe_with(spark, tmp_path / "t", [], by_executors=each) for each in (False, True)]
    assert found[0] == found[1]
    assert found[0]["totals"] == (0, 0, 0, False)


@pytest.mark.parametrize("bad", ["one", "two", "type"])
def test_driver_and_executors_raise_alike(spark, tmp_path, files, bad) -> None:
    (tmp_path / "t" / "p=1" / "h").write_bytes(b"not Parquet")
    (tmp_path / "t" / "p=1" / "gone").write_bytes(b"not Parquet either")
    added = [rows_of(tmp_path / "t" / "p=1" / "h")]
    if bad == "two":
        added.append(rows_of(tmp_path / "t" / "p=1" / "gone"))
    if bad == "type":
        times = pa.array([1], pa.time64("us"))
        added = [rows_of(write_parquet(tmp_path / "t" / "p=1" / "time", {"id": times}))]
    errors: list[HiveToDeltaError] = []
    for by_executors in (False, True):
        with pytest.raises(PermanentError) as raised:
            describe_with(spark, tmp_path / "t", files + added, by_executors=by_executors)
        errors.append(raised.value)
    assert str(errors[0]) == str(errors[1])
    assert type(errors[0]) is type(errors[1])


def test_the_driver_starts_no_job_for_a_few_files_and_reads_no_more_than_those(spark, tmp_path, files, monkeypatch):
    listed = ListedFiles(spark, pa.Table.from_pylist(files, schema=FILES_ARROW_SCHEMA))
    arguments: Any = (spark, listed, parse_location(str(tmp_path / "t")), {"p": "string"}, ConversionOptions())
    with count_jobs(spark) as jobs, describe_files(*arguments) as found:
        assert found.file_count == 5
    assert jobs() == 0
    monkeypatch.setattr(describe, "FEW_FILES", len(files) - 1)
    with describe_files(*arguments) as found:
        assert (found.file_count, found.rows) == (5, None)
