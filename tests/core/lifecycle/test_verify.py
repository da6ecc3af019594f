"""A Delta table against its original: equal tables pass, and every kind of difference is found."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_hive_to_delta import (
    ConversionOptions,
    DatabricksListing,
    GlueDiscovery,
    ParquetFileInfo,
    PermanentError,
    S3Listing,
    TableInfo,
    convert,
)
from airflow_hive_to_delta.core.errors import MissingError, UnsupportedTableError
from airflow_hive_to_delta.core.lifecycle import comparison
from airflow_hive_to_delta.core.lifecycle.checksums import compute_checksums
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.lifecycle.verify import verify_table
from airflow_hive_to_delta.core.results import VerificationError, VerifyResult
from airflow_hive_to_delta.core.storage.local import LocalStorage
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.discoveries import KnownTables, discover_tables
from tests.support.lake import Lake, Partition
from tests.support.small_tables import count_jobs
from tests.support.tables import write_parquet

pytestmark = pytest.mark.slow

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def converted(spark: SparkSession, table: TableInfo, **options: Any) -> None:
    (result,) = convert(
        spark, KnownTables(table), DatabricksListing(), None, None, options=ConversionOptions(**options), progress=False
    )
    assert result.success, result.error


def verified(spark: SparkSession, table: TableInfo, level: str = "full", **arguments: Any) -> VerifyResult:
    return verify_table(spark, table, DatabricksListing(), level=level, **arguments)  # type: ignore[arg-type]


def caught(spark: SparkSession, table: TableInfo, level: str = "counts", **arguments: Any) -> VerifyResult:
    with pytest.raises(VerificationError) as error:
        verified(spark, table, level, **arguments)
    result = error.value.result
    assert (result.success, result.error, result.retryable) == (False, str(error.value), False)
    assert result.mismatch_count >= len(result.mismatches) > 0
    assert table.name in str(error.value)
    assert f"version {result.version}" in str(error.value)
    return result


def mismatches_of(result: VerifyResult) -> list[tuple[Any, ...]]:
    return [tuple(found.values()) for found in result.mismatches]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "t"
    write_parquet(root / "p=1" / "a", {"id": [1, 2], "s": ["x", None]})
    write_parquet(root / "p=1" / "b", {"id": [3], "s": ["y"]})
    write_parquet(root / "p=02" / "a", {"id": [4], "s": ["x"]})
    write_parquet(root / f"p={NULL_FOLDER}" / "a", {"id": [5, 6], "s": ["z", "z"]})
    converted(spark, folder_table(root, {"p": "int"}))
    return root


@pytest.fixture
def table(made: Path, tmp_path: Path) -> TableInfo:
    """A converted table of two partitions and a null one, for the test alone."""
    shutil.copytree(made, tmp_path / "t")
    return folder_table(tmp_path / "t", {"p": "int"})


def folder_table(root: Path, keys: dict[str, str] | None = None, **more: Any) -> TableInfo:
    return TableInfo(root.name, str(root), partition_keys=list(keys or {}), partition_types=keys or {}, **more)


def rewrite_log(
    table: TableInfo, change: Callable[[dict[str, Any]], dict[str, Any] | list[dict[str, Any]] | None]
) -> None:
    """Change the adds of the first entry: to another one, to several, or to none."""
    entry = Path(table.location) / "_delta_log" / f"{0:020d}.json"
    lines = []
    for line in entry.read_text().splitlines():
        action = json.loads(line)
        if "add" in action:
            changed = change(action["add"])
            adds = changed if isinstance(changed, list) else [changed]
            lines += [json.dumps({"add": add}) for add in adds if add is not None]
        else:
            lines.append(line)
    entry.write_text("\n".join(lines) + "\n")


# --- equal tables ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stats", ["footer", "scan", "none"])
def test_an_equal_table_passes_and_is_counted(spark: SparkSession, tmp_path: Path, stats: str) -> None:
    """Files that are hidden or empty, and files without rows, are no part of either side."""
    root = tmp_path / "t"
    table = folder_table(root, {"p": "string", "n": "int"})
    odd = "p=a%2Fb c%25d%3De/n=-7"
    paths = [
        write_parquet(root / odd / "f %20é+x", {"id": [1, None]}),
        write_parquet(root / f"p={NULL_FOLDER}" / f"n={NULL_FOLDER}" / "f", {"id": [1]}),
    ]
    write_parquet(root / odd / "no rows", {"id": pa.array([], pa.int64())})
    (root / odd / "_SUCCESS").write_bytes(b"x")
    (root / odd / "empty").write_bytes(b"")
    converted(spark, table, stats=stats)
    result = verified(spark, table, options=ConversionOptions(stats=stats))
    assert (result.file_count, result.row_count, result.partition_count) == (2, 3, 2)
    assert result.byte_count == sum(path.stat().st_size for path in paths)
    assert (result.success, result.version, result.mismatch_count, result.level) == (True, 0, 0, "full")
    write_parquet(root / odd / "no rows either", {"id": pa.array([], pa.int64())})
    assert verified(spark, table).file_count == 2


def test_the_driver_counts_a_small_table_as_spark_does(
    spark: SparkSession, table: TableInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    with count_jobs(spark) as jobs:
        by_driver = verify_table(spark, table, DatabricksListing())
    assert jobs() == 0
    monkeypatch.setattr(comparison, "prove_counts", lambda *_: False)
    with count_jobs(spark) as jobs:
        by_spark = verify_table(spark, table, DatabricksListing())
    assert jobs() > 0
    first, second = (dataclasses.replace(each, duration_seconds=0) for each in (by_driver, by_spark))
    assert first == second
    assert by_driver.partition_count > 1


def test_an_empty_table_passes_and_says_that_there_was_nothing_to_compare(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    table = folder_table(tmp_path / "t", {"p": "int"}, columns=[{"Name": "id", "Type": "int"}])
    converted(spark, table)
    result = verified(spark, table)
    assert (result.file_count, result.byte_count, result.row_count, result.partition_count) == (0, 0, 0, 0)
    assert result.is_empty
    assert result.notes[0].startswith("There was nothing to compare")
    assert "nothing to compare" in str(result)


def test_types_that_are_hard_to_compare_pass(spark: SparkSession, tmp_path: Path) -> None:
    """Without partitions, in files of different widths, after a checkpoint, with names that need column mapping."""
    root = tmp_path / "t"
    rows = spark.sql("""
        SELECT 1 AS `a b`, NAMED_STRUCT('A x', 1.25BD, 'B', MAP(1, MAP('k', 'v'), 2, NULL)) s, ARRAY(1, NULL) l,
               MAP(NAMED_STRUCT('k', 1), ARRAY(MAP('x', 1, 'y', 2))) m, X'00FF' b, CAST('NaN' AS DOUBLE) d,
               TIMESTAMP'1500-01-01 00:00:00.123456' t, TIMESTAMP_NTZ'2024-01-01 00:00:00' n, DATE'1400-02-28' e,
               CAST(-0.0D AS FLOAT) f, CAST(12345678901234567890.12BD AS DECIMAL(38, 2)) big, true o
        UNION ALL SELECT 2, NULL, NULL, NULL, NULL, -0.0D, NULL, NULL, NULL, CAST('NaN' AS FLOAT), NULL, NULL
        UNION ALL SELECT NULL, NAMED_STRUCT('A x', NULL, 'B', MAP()), ARRAY(), MAP(), X'', 0.0D, NULL, NULL, NULL,
               0.0, NULL, false
    """).coalesce(1)
    rows.write.parquet(str(root))
    rows.withColumn("a b", F.col("a b").cast("bigint")).write.mode("append").parquet(str(root))
    table = folder_table(root)
    converted(spark, table, checkpoint_over_files=1)
    assert (root / "_delta_log" / "_last_checkpoint").exists()
    result = verified(spark, table)
    assert (result.row_count, result.partition_count) == (6, 0)


def test_char_and_varchar_are_compared_as_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    columns = [{"Name": "c", "Type": "char(5)"}, {"Name": "v", "Type": "varchar(5)"}]
    table = folder_table(tmp_path / "t", columns=columns)
    write_parquet(tmp_path / "t" / "f", {"c": ["ab", None, "abcde"], "v": ["ab", None, "abcde"]})
    converted(spark, table)
    assert verified(spark, table).row_count == 3


@pytest.mark.parametrize("level", ["counts", "full"])
def test_a_table_of_glue_with_partitions_in_another_bucket_passes(lake: Lake, level: str) -> None:
    other = lake.add_bucket()
    lake.put("t/p=1/f", {"Id": [1, 2], "p": ["in", "the file"]})
    lake.put("x y%20/f+é", {"Id": [3]}, other)
    lake.put("null/f", {"Id": [4]}, other)
    locations: list[Partition]
    locations = [(["01"], f"{lake.location()}/p=1"), (["2"], f"s3a://{other}/x y%20"), ([None], f"s3://{other}/null")]
    lake.glue_table({"id": "bigint"}, {"p": "int"}, locations)
    assert lake.convert().success
    (table,) = GlueDiscovery(lake.database).discover(lake.spark)
    result = verify_table(lake.spark, table, S3Listing(), level=level)  # type: ignore[arg-type]
    assert (result.file_count, result.row_count, result.partition_count) == (3, 4, 3)
    lake.put("x y%20/f+é", {"Id": [3, 4]}, other)
    with pytest.raises(VerificationError, match="p=2: rows: original 2, delta 1"):
        verify_table(lake.spark, table, S3Listing())


def test_a_table_of_the_sessions_catalog_is_read_through_it(spark: SparkSession, database: str, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE {database}.t (Id int, c char(3)) PARTITIONED BY (P date) STORED AS PARQUET "
              f"LOCATION '{tmp_path}/t'")  # fmt: skip
    spark.sql(f"INSERT INTO {database}.t PARTITION (P = '2024-02-29') VALUES (1, 'x')")
    elsewhere = tmp_path / "elsewhere"
    write_parquet(elsewhere / "f", {"Id": pa.array([2, None], pa.int32()), "c": ["abc", None]})
    spark.sql(f"ALTER TABLE {database}.t ADD PARTITION (P = '2024-03-01') LOCATION '{elsewhere}'")
    (table,) = discover_tables(spark, database)
    assert table.source == "spark"
    converted(spark, table)
    spark.table(f"{database}.t").collect()  # so that the session remembers these files
    assert verified(spark, table).row_count == 3
    write_parquet(elsewhere / "g", {"Id": pa.array([7], pa.int32()), "c": ["abc"]})
    assert ("P=2024-03-01", "rows read", 3, 2) in mismatches_of(caught(spark, table, "full"))


# --- lies --------------------------------------------------------------------------------------------------------


def test_a_file_that_the_log_does_not_have_is_named_with_its_partition(spark: SparkSession, table: TableInfo) -> None:
    rewrite_log(table, lambda add: None if add["path"] == "p=1/b" else add)
    os.utime(Path(table.location) / "p=1" / "b", (1_700_000_000, 1_700_000_000))
    result = caught(spark, table)
    assert result.written_since is None, "it was there when the table was converted"
    size = (Path(table.location) / "p=1" / "b").stat().st_size
    file = f"file://{table.location}/p=1/b ({size} bytes, 1 rows)"
    assert mismatches_of(result)[0] == ("p=1", "files", 2, 1)
    assert mismatches_of(result)[2:] == [("p=1", "rows", 3, 2), ("p=1", "file", file, None)]
    assert "p=1: files: original 2, delta 1" in str(result.error)
    assert "sync_table" in str(result.error)
    assert (result.file_count, result.row_count, result.partition_count) == (4, 6, 3)


def test_a_file_that_hive_no_longer_has_is_caught(spark: SparkSession, table: TableInfo) -> None:
    shutil.rmtree(Path(table.location) / f"p={NULL_FOLDER}")
    result = caught(spark, table)
    assert (f"p={NULL_FOLDER}", "rows", 0, 2) in mismatches_of(result)
    assert str(result.written_since).endswith("/a, which is gone")


def test_a_whole_new_partition_is_caught(spark: SparkSession, table: TableInfo) -> None:
    write_parquet(Path(table.location) / "p=9" / "a", {"id": [9], "s": ["x"]})
    result = caught(spark, table)
    assert ("p=9", "rows", 1, 0) in mismatches_of(result)
    assert result.written_since == f"the new file file://{table.location}/p=9/a"
    assert ("p=9", "rows read", 1, 0) in mismatches_of(caught(spark, table, "full"))


def test_a_wrong_partition_value_is_caught(spark: SparkSession, table: TableInfo) -> None:
    rewrite_log(
        table,
        lambda add: {**add, "partitionValues": {"p": "7" if "p=02" in add["path"] else add["partitionValues"]["p"]}},
    )
    assert {found[:2] for found in mismatches_of(caught(spark, table))} == {
        (partition, what) for partition in ("p=2", "p=7") for what in ("files", "bytes", "rows", "file")
    }


def test_a_null_partition_that_became_a_word_is_caught(spark: SparkSession, table: TableInfo, tmp_path: Path) -> None:
    named = folder_table(tmp_path / "named", {"p": "string"})
    write_parquet(tmp_path / "named" / f"p={NULL_FOLDER}" / "a", {"id": [1]})
    converted(spark, named)
    rewrite_log(named, lambda add: {**add, "partitionValues": {"p": "null"}})
    assert {found[0] for found in mismatches_of(caught(spark, named))} == {"p=null", f"p={NULL_FOLDER}"}


def test_wrong_numbers_of_rows_that_add_up_are_caught(spark: SparkSession, table: TableInfo) -> None:
    """The log has the row counts of two files of one partition swapped."""

    def swapped(add: dict[str, Any]) -> dict[str, Any]:
        rows = {"p=1/a": 1, "p=1/b": 2}.get(add["path"])
        return {**add, "stats": json.dumps({"numRecords": rows})} if rows else add

    rewrite_log(table, swapped)
    ((partition, what, original, delta),) = mismatches_of(caught(spark, table))
    assert (partition, what) == ("p=1", "file")
    assert original.endswith("2 rows)")
    assert delta.endswith("1 rows)")


def test_a_number_of_rows_that_the_log_does_not_have_is_counted(spark: SparkSession, table: TableInfo) -> None:
    rewrite_log(table, lambda add: {k: v for k, v in add.items() if k != "stats"} if "p=1/" in add["path"] else add)
    assert verified(spark, table).row_count == 6
    rewrite_log(table, lambda add: {**add, "stats": json.dumps({"numRecords": 9})} if "02" in add["path"] else add)
    assert mismatches_of(caught(spark, table))[0] == ("p=2", "rows", 1, 9)


def test_a_file_that_is_there_twice_in_two_spellings_is_caught(spark: SparkSession, table: TableInfo) -> None:
    def twice(add: dict[str, Any]) -> Any:
        return [add, {**add, "path": f"file://{table.location}/p=1/b"}] if add["path"] == "p=1/b" else add

    rewrite_log(table, twice)
    assert spark.read.format("delta").load(table.location).count() == 7
    assert ("p=1", "rows", 3, 4) in mismatches_of(caught(spark, table))


def test_a_file_rewritten_with_other_rows_is_caught(spark: SparkSession, table: TableInfo) -> None:
    path = Path(table.location) / "p=1" / "b"
    size = path.stat().st_size
    write_parquet(path, {"id": [3], "s": ["a longer text"]})
    assert [found[:2] for found in mismatches_of(caught(spark, table))] == [("p=1", "bytes"), ("p=1", "file")]
    write_parquet(path, {"id": [4], "s": ["y"]})
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert path.stat().st_size == size
    (note,) = verified(spark, table, "counts").notes
    assert "1 files were written again" in note
    assert "2023-11-14" in note
    ((partition, what, original, delta),) = mismatches_of(caught(spark, table, "full"))
    assert (partition, what) == ("p=1", "file written")
    assert original == f"file://{path} at 2023-11-14 22:13:20"
    assert delta != original


class Files:
    """A listing that knows nothing of catalogs: all that is under the table's location."""

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
        found = [path for path in Path(table.location).rglob("*") if path.is_file() and "_delta_log" not in path.parts]
        return [ParquetFileInfo(str(path), path.stat().st_size) for path in found]


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ({"id": [1, 2], "s": ["x", "x"]}, {"the column s", "whole rows"}),
        ({"id": [2, 1], "s": ["x", None]}, {"whole rows"}),
        ({"id": [4, 2], "s": ["x", None]}, {"the column id", "whole rows"}),
        ({"id": [1, 1], "s": ["x", "x"]}, {"the column id", "the column s", "whole rows"}),
    ],
    ids=["a null became a value", "values of two rows swapped", "a value of another partition", "a row twice"],
)
def test_other_rows_behind_the_same_numbers_are_caught(
    spark: SparkSession, table: TableInfo, database: str, tmp_path: Path, rows: dict[str, Any], wrong: set[str]
) -> None:
    """The catalog reads a copy of the files in which something else is."""
    shutil.copytree(table.location, tmp_path / "copy", ignore=shutil.ignore_patterns("_delta_log"))
    write_parquet(tmp_path / "copy" / "p=1" / "a", rows)
    spark.sql(
        f"CREATE TABLE {database}.t (id bigint, s string) PARTITIONED BY (p int) STORED AS PARQUET "
        f"LOCATION '{tmp_path}/copy'"
    )
    spark.sql(f"MSCK REPAIR TABLE {database}.t")
    read_there = dataclasses.replace(table, database=database, source="spark")
    with pytest.raises(VerificationError) as error:
        verify_table(spark, read_there, Files(), level="full")
    assert {found[:2] for found in mismatches_of(error.value.result)} == {("p=1", f"checksum of {of}") for of in wrong}


def test_columns_that_lead_to_each_others_data_are_caught(spark: SparkSession, tmp_path: Path) -> None:
    table = folder_table(tmp_path / "t")
    write_parquet(tmp_path / "t" / "f", {"a b": [1], "c": [2]})
    converted(spark, table)
    entry = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    physical = r"\"delta.columnMapping.physicalName\":\"%s\""
    text = entry.read_text()
    one, other = physical % "a b", physical % "c"
    assert one in text
    entry.write_text(text.replace(one, "?").replace(other, one).replace("?", other))
    assert verified(spark, table, "counts").success
    assert {found[1] for found in mismatches_of(caught(spark, table, "full"))} == {
        "checksum of the column a b",
        "checksum of the column c",
        "checksum of whole rows",
    }


def test_columns_of_one_side_and_other_types_are_caught(spark: SparkSession, table: TableInfo) -> None:
    columns = [{"Name": "ID", "Type": "bigint"}, {"Name": "new", "Type": "array<int>"}]
    result = caught(spark, dataclasses.replace(table, columns=columns), "full")
    assert mismatches_of(result) == [
        (None, "type of the column new", "array<int>", None),
        (None, "type of the column s", None, "string"),
    ]
    spark.sql(f"ALTER TABLE delta.`{table.location}` ADD COLUMN more int")
    assert (None, "type of the column more", None, "int") in mismatches_of(caught(spark, table))


def test_other_partition_columns_are_caught(spark: SparkSession, table: TableInfo) -> None:
    as_data = dataclasses.replace(table, partition_keys=[], partition_types={})
    result = caught(spark, as_data, options=ConversionOptions(allow_undeclared_partitions=True))
    assert mismatches_of(result) == [(None, "partition columns", "", "p")]


def test_after_a_delete_it_says_who_wrote_and_an_earlier_version_passes(spark: SparkSession, table: TableInfo) -> None:
    spark.sql(f"DELETE FROM delta.`{table.location}` WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{table.location}` WHERE id = 5")
    result = caught(spark, table)
    assert ("p=1", "rows", 3, 2) in mismatches_of(result)
    assert "1 (DELETE), 2 (DELETE)" in str(result.error)
    assert "version=0" in str(result.error)
    assert "sync_table" not in str(result.error)
    records = Records(LocalStorage(), parse_location(table.location))
    assert records.verified() == {}
    assert verified(spark, table, version="ours").version == 0
    assert verified(spark, table, version=0).version == 0
    assert records.verified() == {"full": 0}


def test_rows_that_a_deletion_vector_hides_are_missed(spark: SparkSession, table: TableInfo) -> None:
    spark.sql(f"ALTER TABLE delta.`{table.location}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    assert verified(spark, table).version == 1
    spark.sql(f"DELETE FROM delta.`{table.location}` WHERE id = 1")
    result = caught(spark, table, "full")
    assert mismatches_of(result)[0] == ("p=1", "rows", 3, 2)
    assert ("p=1", "rows read", 3, 2) in mismatches_of(result)


def test_differences_without_end_are_counted_and_the_first_are_named(
    spark: SparkSession, table: TableInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "MOST_MISMATCHES", 2)
    rewrite_log(table, lambda add: None)
    result = caught(spark, table)
    assert (len(result.mismatches), result.mismatch_count) == (2, 12)
    assert "and 10 more" in str(result.error)


# --- what cannot be compared -------------------------------------------------------------------------------------


def test_a_table_without_a_log_is_missing(spark: SparkSession, tmp_path: Path, table: TableInfo) -> None:
    with pytest.raises(MissingError, match="holds no Delta log"):
        verified(spark, folder_table(tmp_path / "nothing"))
    with pytest.raises(MissingError, match="t@v0 holds no Delta log"):
        verified(spark, dataclasses.replace(table, location=f"{table.location}@v0"))
    with pytest.raises(MissingError, match="no version 1"):
        verified(spark, table, version=1)


def test_a_table_that_is_delta_in_its_catalog_has_no_original(spark: SparkSession, table: TableInfo) -> None:
    with pytest.raises(UnsupportedTableError, match="no original"):
        verified(spark, dataclasses.replace(table, format="delta"))


def test_a_level_that_nobody_knows_is_refused(spark: SparkSession, table: TableInfo) -> None:
    with pytest.raises(PermanentError, match="'fast', expected counts or full"):
        verified(spark, table, "fast")


# --- checksums ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("struct<a:int,b:int>", "named_struct('a', 1, 'b', null)", "named_struct('a', null, 'b', 1)"),
        ("struct<a:int,b:int>", "null", "named_struct('a', null, 'b', null)"),
        ("array<int>", "null", "array()"),
        ("array<int>", "array(null)", "array()"),
        ("array<int>", "array(1, 2)", "array(2, 1)"),
        ("array<array<int>>", "array(array(1), array(2))", "array(array(1, 2), array())"),
        ("map<int,int>", "map(1, 2)", "map(2, 1)"),
        ("map<int,map<int,int>>", "map(1, map(1, null))", "map(1, map())"),
        ("map<int,int>", "null", "map()"),
        ("string", "null", "''"),
        ("binary", "X'00'", "X'0000'"),
        ("decimal(38,2)", "1.10", "1.1 + 0.01"),
        ("timestamp", "'2024-01-01 00:00:00.000001'", "'2024-01-01 00:00:00'"),
        ("double", "'NaN'", "null"),
    ],
)
def test_a_checksum_tells_values_apart_that_are_alike(spark: SparkSession, kind: str, one: str, other: str) -> None:
    assert checksum(spark, kind, one) != checksum(spark, kind, other)
    assert checksum(spark, kind, one, other) == checksum(spark, kind, other, one), "the order of rows is nothing"
    assert checksum(spark, kind, one, one) != checksum(spark, kind, other, other)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("map<int,map<string,int>>", "map(1, map('x', 1, 'y', 2), 2, null)", "map(2, null, 1, map('y', 2, 'x', 1))"),
        ("double", "-0.0D", "0.0D"),
        ("float", "'NaN'", "-cast('NaN' AS float)"),
    ],
)
def test_a_checksum_is_the_same_for_values_that_are_equal(spark: SparkSession, kind: str, one: str, other: str) -> None:
    assert checksum(spark, kind, one) == checksum(spark, kind, other)


def checksum(spark: SparkSession, kind: str, *values: str) -> list[Any]:
    rows = " UNION ALL ".join(f"SELECT CAST({value} AS {kind}) AS `a.b`" for value in values)
    (row,) = compute_checksums(spark.sql(rows), F.lit("all"), ["a.b"]).collect()
    return list(row)


class Losing:
    """A listing that finds all files of a table for its conversion, and one less for whatever comes after."""

    def __init__(self) -> None:
        self.calls = 0

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
        self.calls += 1
        found: list[ParquetFileInfo] = DatabricksListing().list_files(spark, table)
        return found if self.calls == 1 else found[1:]


@pytest.fixture
def hive_table(table: TableInfo) -> TableInfo:
    """The table before its conversion."""
    shutil.rmtree(Path(table.location) / "_delta_log")
    return table


def test_a_table_is_verified_with_its_conversion(spark: SparkSession, hive_table: TableInfo) -> None:
    table = hive_table
    (result,) = convert(spark, KnownTables(table), DatabricksListing(), None, None, verify="full", progress=False)
    assert result.verification is not None
    assert (result.success, result.verified, result.verification.level) == (True, {"full": 0}, "full")
    assert str(result).endswith(", verified by full")
    assert type(result).from_dict(json.loads(json.dumps(result.to_dict()))) == result
    (again,) = convert(spark, KnownTables(table), DatabricksListing(), None, None, verify="full", progress=False)
    assert (again.status, again.verification) == ("already_delta", None), "another run has converted it"
    with pytest.raises(PermanentError, match="verify is 'all', expected counts, full or None"):
        convert(spark, KnownTables(table), DatabricksListing(), None, None, verify="all")


def test_a_conversion_whose_verification_fails_is_kept_and_no_success(
    spark: SparkSession, hive_table: TableInfo
) -> None:
    discovery = KnownTables(hive_table)
    options = ConversionOptions(run_id="run")
    (result,) = convert(spark, discovery, Losing(), None, None, verify="counts", options=options, progress=False)
    assert (result.success, result.status, result.error_kind) == (False, "converted", "VerificationError")
    assert (result.version, result.verified, result.retryable) == (0, {}, False)
    assert result.verification is not None
    assert result.verification.mismatch_count
    assert ": converted, but its verification failed: " in str(result)
    (again,) = convert(
        spark, discovery, DatabricksListing(), None, None, verify="counts", options=options, progress=False
    )
    assert (again.success, again.status, again.verified) == (True, "converted", {"counts": 0})
    assert again.message == "An earlier try of this run has converted it"
    losing = Losing()
    losing.calls = 1
    (later,) = convert(spark, discovery, losing, None, None, verify="counts", options=options, progress=False)
    assert (later.success, later.verification) == (True, None), "it was verified before, and Hive may have written"
