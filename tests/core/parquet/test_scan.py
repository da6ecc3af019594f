"""Statistics by a scan of Spark's own: to the same rules as those from footers, and without Python near the storage."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from moto.moto_api import recorder
from pyspark.sql import SparkSession

from airflow_hive_to_delta import ConversionOptions, DatabricksListing, TableInfo, UCDiscovery, convert, convert_table
from airflow_hive_to_delta.core.errors import (
    HiveToDeltaError,
    PartitionError,
    PermanentError,
    SchemaError,
)
from airflow_hive_to_delta.core.lifecycle.verify import verify_table
from tests.support.oracle import assert_same, delta_at
from tests.support.session_settings import session_conf
from tests.support.small_tables import described_on_executors
from tests.support.tables import convert_folder, files_of, snapshot, write_parquet

pytestmark = pytest.mark.slow

SCAN = ConversionOptions(stats="scan")
NAN, INFINITY = float("nan"), float("inf")


def stats(root: Path) -> dict[str, Any]:
    """The statistics of every file, by its path in the log, decoded."""
    lines = (root / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    adds = [action["add"] for action in map(json.loads, lines) if "add" in action]
    return {unquote(add["path"]): json.loads(add["stats"]) if "stats" in add else None for add in adds}


def footer_stats(spark: SparkSession, root: Path, **arguments: object) -> dict[str, Any]:
    """What the statistics of the same files are by their footers. Taken from a copy: ``root`` stays as it is."""
    copy = root.with_name(f"{root.name}_by_footers")
    shutil.copytree(root, copy)
    convert_folder(spark, copy, **arguments)
    return stats(copy)


@pytest.mark.slow
def test_every_type_has_the_statistics_that_its_footer_gives(spark, tmp_path):
    root = tmp_path / "t"
    spark.sql("""
            SELECT CAST(x AS TINYINT) b, CAST(x AS SMALLINT) s, x i, x * 10000000000 l, x / 3 d, x = 0 bool,
                   CAST(CAST(x AS STRING) AS BINARY) bin,
                   NAMED_STRUCT('day', DATE'2024-02-29', 'in', NAMED_STRUCT('y', CONCAT('ÿ', x), 'a', ARRAY(x))) st,
                   ARRAY(x) a, MAP('k', x) m
            FROM VALUES (-7), (NULL) AS t(x)
        """).coalesce(1).write.parquet(str(root))
    original = spark.read.parquet(str(root))
    by_footers = footer_stats(spark, root)
    result = convert_folder(spark, root, options=SCAN)
    assert result.row_count == 2
    assert stats(root) == by_footers
    (found,) = stats(root).values()
    assert found["minValues"].keys() == set(original.columns) - {"bool", "bin", "a", "m"}
    assert found["nullCount"]["st"] == {"day": 0, "in": {"y": 1}}
    assert_same(spark, original, delta_at(spark, root))


def test_rules_35_and_36_a_scan_sees_nan_so_files_without_it_have_bounds_for_floats(spark, tmp_path):
    root = tmp_path / "t"
    files: dict[str, list[float | None]] = {
        "nan": [1.5, NAN],
        "only_nan": [NAN, None],
        "infinite": [1.5, INFINITY],
        "negative_infinite": [-INFINITY, 1.5],
        "zeros": [-0.0, None],
        "finite": [-2.5, 1e300],
    }
    for name, values in files.items():
        write_parquet(root / name, {"d": values, "f": pa.array([v and min(v, 1e30) for v in values], pa.float32())})
    original = spark.read.parquet(str(root))
    convert_folder(spark, root, options=SCAN)
    found = stats(root)
    bounds = {name: (found[name]["minValues"].get("d"), found[name]["maxValues"].get("d")) for name in files}
    assert repr(bounds.pop("zeros")) == "(-0.0, 0.0)"
    assert bounds.pop("finite") == (-2.5, 1e300)
    assert set(bounds.values()) == {(None, None)}
    assert_same(spark, original, delta_at(spark, root))


def test_rule_34_the_sessions_zone_does_not_shift_bounds(spark, tmp_path):
    """Neither by its offset nor where its clocks leave an hour out, as New York's do at 02:30 on 2024-03-10."""
    root = tmp_path / "t"
    moments = [dt.datetime(2024, 3, 10, 2, 30, 0, 999), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)]
    for number, moment in enumerate(moments):
        columns = {
            "ntz": pa.array([moment], pa.timestamp("us")),
            "ts": pa.array([moment], pa.timestamp("us", tz="UTC")),
            "day": pa.array([moment.date()]),
        }
        write_parquet(root / f"{number}", columns)
    original = spark.read.parquet(str(root))
    by_footers = footer_stats(spark, root)
    with session_conf(spark, spark__sql__session__timeZone="America/New_York"):
        convert_folder(spark, root, options=SCAN)
    assert stats(root) == by_footers
    assert stats(root)["0"]["minValues"]["ntz"] == "2024-03-10T02:30:00.000"
    assert stats(root)["1"]["minValues"]["ts"] == "1969-12-31T23:59:59.999Z"
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.parametrize("mode", ["footer", "scan"])
def test_rule_36_dates_before_1582_and_timestamps_before_1900_have_no_bounds(spark, tmp_path, mode):
    """A writer of the old calendar, in a zone that had local mean time: readers move what it wrote."""
    root = tmp_path / "t"
    legacy = {
        "spark__sql__parquet__outputTimestampType": "TIMESTAMP_MICROS",
        "spark__sql__parquet__datetimeRebaseModeInWrite": "LEGACY",
        "spark__sql__session__timeZone": "America/Los_Angeles",
    }
    with session_conf(spark, **legacy):
        for number, day in enumerate(["1400-01-01", "1850-01-01", "1900-01-02"]):
            spark.sql(f"SELECT DATE'{day}' day, TIMESTAMP'{day} 00:00:00' ts").write.parquet(str(root / f"n{number}"))
    original = spark.read.option("recursiveFileLookup", "true").parquet(str(root))
    convert_folder(spark, root, options=ConversionOptions(stats=mode))
    bounds = {name[:2]: found["minValues"] for name, found in stats(root).items() if name.endswith("parquet")}
    assert bounds == {"n0": {}, "n1": {"day": "1850-01-01"}, "n2": {"day": "1900-01-02", "ts": bounds["n2"]["ts"]}}
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_rules_33_and_35_long_decimals_and_long_strings(spark, tmp_path):
    root = tmp_path / "t"
    whole, scaled = Decimal("9" * 38), Decimal(f"{'8' * 20}.{'9' * 18}")
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "scaled": (pa.decimal128(38, 18), [Decimal("0E-18"), scaled, scaled.copy_negate()]),
        "tiny": (pa.decimal128(38, 37), [Decimal("1E-37"), Decimal("0E-37"), None]),
        "whole": (pa.decimal128(38, 0), [whole, whole.copy_negate(), Decimal(0)]),
        "text": (pa.string(), ["x" * 31 + "😀", "x" * 32 + "ÿ", "x" * 40]),
        "astral": (pa.string(), ["\U0010ffff" * 20, "", None]),
    }
    for number in range(3):
        write_parquet(root / f"{number}", {name: pa.array([v[number]], t) for name, (t, v) in columns.items()})
    original = spark.read.parquet(str(root))
    by_footers = footer_stats(spark, root)
    convert_folder(spark, root, options=SCAN)
    assert stats(root) == by_footers
    assert stats(root)["1"]["maxValues"]["text"] == "x" * 32 + "\U0010ffff"
    assert "astral" not in stats(root)["0"]["maxValues"]
    log = (root / "_delta_log" / f"{0:020d}.json").read_text()
    assert "0.000000000000000000" in log
    # Of more digits than a double holds, rounded outwards; where that no longer fits the type, none.
    assert f"-{'8' * 14}900000.{'0' * 18}" in log
    assert "whole" not in stats(root)["1"]["minValues"]
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_names_with_odd_characters_and_names_that_the_scan_itself_uses(spark, tmp_path):
    root = tmp_path / "t"
    names = ["a.b", "back`tick", "sp ace", "_metadata", "key", "path", "rows", "file_path"]
    write_parquet(root / "a", {name: [1] for name in names} | {"s": [{"x.y": 1}]})
    original = spark.read.parquet(str(root))
    assert convert_folder(spark, root, options=SCAN).features == ["columnMapping"]
    assert stats(root)["a"]["minValues"] == dict.fromkeys(names, 1) | {"s": {"x.y": 1}}
    assert_same(spark, original, delta_at(spark, root))


def test_a_struct_called_metadata_does_not_hide_sparks_own(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"_metadata": [{"file_path": "elsewhere", "file_size": 1}]})
    original = spark.read.parquet(str(root))
    convert_folder(spark, root, options=SCAN)
    assert stats(root)["a"]["numRecords"] == 1
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_every_path_finds_its_statistics_whatever_is_in_it(spark, tmp_path):
    """Partition values and file names with odd characters, in and outside the root, two files at a time."""
    root, elsewhere = tmp_path / "t {[*?]} %41 é", tmp_path / "t {[*?]} %41 é_2"
    values = ["{[*?]}", "a/b c%d=e", "ü€😀", "x:y#z?q", "'\"\\+&;,~^|<>`", " space ", "%2F", "nb\u00a0sp\ttab"]
    data = spark.createDataFrame([(i, v) for i, v in enumerate(values)], "id int, p string")
    data.write.partitionBy("p").parquet(str(root))
    narrow = pa.schema([("id", pa.int32())])
    write_parquet(root / "p=%7B[*?]%7D" / "sub {a,b}" / "f %20é+x [1].parquet", pa.table({"id": [98]}, narrow))
    write_parquet(elsewhere / "p=x%3Ay#z" / "000000_0", pa.table({"id": [99]}, narrow))
    write_parquet(elsewhere / "p=none" / "no_rows", pa.table({"id": []}, narrow))
    reader = spark.read.option("__globPaths__", "false").schema("id int, p string")
    original = reader.parquet(str(root)).unionAll(reader.parquet(str(elsewhere)))
    options = ConversionOptions(stats="scan", stats_batch_size=2, schema_batch_size=2)
    result = convert_folder(spark, root, elsewhere, partition_columns=["p"], options=options)
    assert result.file_count == len(values) + 3
    found = stats(root)
    assert [path for path, stat in found.items() if stat is None] == [f"file://{elsewhere}/p=none/no_rows"]
    assert sum(stat["numRecords"] for stat in found.values() if stat) == len(values) + 2
    assert_same(spark, original, delta_at(spark, root))


def test_rule_30_columns_that_only_some_files_have(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"id": [1], "s": [{"x": 1}]})
    write_parquet(root / "b", {"id": [2], "new": ["n"], "s": [{"x": 2, "y": "deep"}]})
    original = spark.read.option("mergeSchema", "true").parquet(str(root))
    by_footers = footer_stats(spark, root)
    convert_folder(spark, root, options=ConversionOptions(stats="scan", stats_batch_size=1, schema_batch_size=1))
    assert stats(root) == by_footers
    assert stats(root)["a"]["nullCount"] == {"id": 0, "s": {"x": 0, "y": 1}, "new": 1}
    assert_same(spark, original, delta_at(spark, root).select(original.columns))


def test_rule_12_names_that_differ_in_case_are_one_column_as_spark_takes_them(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"Id": [1]})
    write_parquet(root / "b", {"ID": [2]})
    original = spark.read.schema("Id long").parquet(str(root))
    convert_folder(spark, root, options=SCAN)
    assert {name: found["minValues"].popitem()[1] for name, found in stats(root).items()} == {"a": 1, "b": 2}
    assert_same(spark, original, delta_at(spark, root))


def test_rule_32_a_table_without_an_indexed_column_still_counts_its_rows(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"list": [[1], None], "s": [{"inner": [1]}, None]})
    original = spark.read.parquet(str(root))
    assert convert_folder(spark, root, options=SCAN).row_count == 2
    assert stats(root) == {"a": {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {}}}
    assert_same(spark, original, delta_at(spark, root))


def test_files_without_rows_only(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"id": pa.array([], pa.int64())})
    original = spark.read.parquet(str(root))
    convert_folder(spark, root, options=SCAN)
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_rule_26_char_columns_of_a_hive_table_with_a_partition_elsewhere(spark, tmp_path, database):
    root, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    spark.sql(
        f"CREATE TABLE {database}.t (c CHAR(4), v VARCHAR(4)) PARTITIONED BY (p DATE) STORED AS PARQUET "
        f"LOCATION '{root}'"
    )
    for number, location in enumerate([root / "p=2024-01-01", elsewhere]):
        write_parquet(location / "000000_0", {"c": [f"x{number}", None], "v": [f"y{number}", "z"]})
        spark.sql(f"ALTER TABLE {database}.t ADD PARTITION (p = '2024-01-0{number + 1}') LOCATION '{location}'")
    discovery = UCDiscovery([f"spark_catalog.{database}.*"])
    (result,) = convert(spark, discovery, DatabricksListing(), None, None, options=SCAN, progress=False)
    assert result.success, result.error
    found = stats(root)["p=2024-01-01/000000_0"]
    assert (found["minValues"], found["nullCount"]) == ({"v": "y0"}, {"c": 1, "v": 0})
    assert_same(spark, spark.table(f"{database}.t"), delta_at(spark, root))


def test_undeclared_partition_folders_are_refused_unless_the_files_have_the_column_or_the_option_allows(
    spark, tmp_path
):
    root = tmp_path / "t"
    write_parquet(root / "p=1" / "a", {"id": [1]})
    before = snapshot(root)
    with pytest.raises(PartitionError, match="'p': 'string'"):
        convert_folder(spark, root, options=SCAN)
    assert snapshot(root) == before
    convert_folder(spark, root, options=ConversionOptions(stats="scan", allow_undeclared_partitions=True))
    assert delta_at(spark, root).columns == ["id"]
    inside = tmp_path / "inside"
    write_parquet(inside / "p=1" / "a", {"id": [1], "P": ["of the file"]})
    convert_folder(spark, inside, options=SCAN)
    assert [tuple(row) for row in delta_at(spark, inside).collect()] == [(1, "of the file")]


def test_what_cannot_be_scanned_is_refused_and_leaves_the_folder_as_it_was(spark, tmp_path):
    def refused(kind: type[HiveToDeltaError], match: str, files=None, options: ConversionOptions = SCAN) -> None:
        before = snapshot(root)
        with pytest.raises(kind, match=match):
            convert_table(spark, files or files_of(spark, root), str(root), None, None, None, options=options)
        assert snapshot(root) == before

    root = tmp_path / "types"
    write_parquet(root / "a", {"n": pa.array([1], pa.int32())})
    write_parquet(root / "b", {"n": pa.array([2**40], pa.int64())})
    refused(SchemaError, r'(?s)types/[ab] on: .*CANNOT_MERGE_SCHEMAS.*stats="footer"')

    root = tmp_path / "corrupt"
    write_parquet(root / "a", {"n": [1]})
    (root / "b").write_bytes(b"not Parquet")
    with session_conf(spark, spark__sql__files__ignoreCorruptFiles="true"):
        refused(HiveToDeltaError, "corrupt/b")

    root = tmp_path / "rewritten"
    write_parquet(root / "a", {"n": [1]})
    listed = files_of(spark, root)
    write_parquet(root / "a", {"n": list(range(5000))})
    refused(PermanentError, r"rewritten/a has \d+ bytes, but \d+ were listed", listed)

    root = tmp_path / "twice"
    write_parquet(root / "a", {"n": [1]})
    twice = files_of(spark, root, root)
    one_by_one = ConversionOptions(stats="scan", stats_batch_size=1)
    refused(PermanentError, "the same file more than once: a", twice, one_by_one)

    root = tmp_path / "gone"
    write_parquet(root / "a", {"n": [1]})
    listed = files_of(spark, root)
    (root / "a").unlink()
    with session_conf(spark, spark__sql__files__ignoreMissingFiles="true"):
        refused(PermanentError, "gone/a", listed)


@pytest.mark.slow
def test_on_s3_only_spark_reads_the_files(spark, s3, bucket, tmp_path, monkeypatch):
    keys = ["t/p=1/a b%20c é😀 {[1]}+&=.parquet", "t/p=1/000000_0", "t_2/p=x%3Ay #z?/f"]
    files = []
    for number, key in enumerate(keys):
        path = write_parquet(tmp_path / f"{number}", {"id": [number], "d": [number / 4]})
        s3.upload_file(str(path), bucket, key)
        files.append((f"{('s3', 's3a', 's3')[number]}://{bucket}/{key}", path.stat().st_size))
    listed = spark.createDataFrame(files, "file_path string, size long")
    recording = tmp_path / "requests"
    monkeypatch.setattr(recorder, "_location", str(recording))
    recorder.start_recording()
    try:
        root = f"s3://{bucket}/t"
        result = convert_table(spark, listed, root, None, None, None, ["p"], options=SCAN)
    finally:
        recorder.stop_recording()
    assert result.row_count == len(keys)
    asked = [json.loads(line) for line in recording.read_text().splitlines()]
    # Whether a folder holds the log of another table is asked by the driver, as for the table's own log.
    urls = [(unquote(request["url"]), request) for request in asked]
    data = [request for url, request in urls if "/p=" in url and "_delta_log" not in url]
    assert {request["method"] for request in data} == {"HEAD", "GET"}
    assert all("hadoop" in request["headers"]["User-Agent"].lower() for request in data)
    entry = s3.get_object(Bucket=bucket, Key=f"t/_delta_log/{0:020d}.json")["Body"].read().decode()
    found = [json.loads(json.loads(line)["add"]["stats"]) for line in entry.splitlines() if '"add"' in line]
    assert sorted(stat["minValues"]["d"] for stat in found) == [0.0, 0.25, 0.5]
    schema = "id long, d double"
    original = spark.createDataFrame([(0, 0.0, "1"), (1, 0.25, "1"), (2, 0.5, "x:y #z?")], schema=f"{schema}, p string")
    assert_same(spark, original, delta_at(spark, root))


@pytest.fixture
def only_jvm(spark, tmp_path) -> str:
    """The address of a table of one file on a file system that only the JVM knows; its files are in ``t``."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    name = f"only-jvm-{uuid.uuid4().hex[:8]}"  # the JVM keeps a file system of each name
    hadoop.set(f"fs.viewfs.mounttable.{name}.link./data", tmp_path.as_uri())
    write_parquet(tmp_path / "t" / "a b.parquet", {"id": [1, 2, None], "name": ["x", "y", "z"]})
    return f"viewfs://{name}/data/t"


@pytest.mark.parametrize("mode", ["footer", "none"])
def test_a_file_system_that_only_the_jvm_knows_is_read_by_spark_and_the_result_says_so(spark, tmp_path, only_jvm, mode):
    """What footers would have given is there all the same: the rows, and the statistics that were asked for."""
    original = spark.read.parquet(str(tmp_path / "t"))
    size = (tmp_path / "t" / "a b.parquet").stat().st_size
    listed = spark.createDataFrame([(f"{only_jvm}/a b.parquet", size)], "file_path string, size long")
    options = ConversionOptions(stats=mode)
    result = convert_table(spark, listed, only_jvm, None, None, None, options=options)
    assert (result.row_count, result.file_count) == (3, 1)
    (note,) = result.notes
    what = "the schemas and rows" if mode == "none" else "all data, for schemas and statistics"
    assert note.startswith(
        f"Spark itself has read {what} of the files, because Python workers cannot reach viewfs://only-jvm-"
    )
    found = stats(tmp_path / "t")["a b.parquet"]
    assert found is None if mode == "none" else found["maxValues"] == {"id": 2, "name": "z"}
    assert_same(spark, original, delta_at(spark, tmp_path / "t"))
    table = TableInfo("t", only_jvm)
    verified = verify_table(spark, table, DatabricksListing(), level="full", options=options)
    assert (verified.row_count, len(verified.notes)) == (3, 1)
    assert "Spark itself has read the schemas and rows of the files" in verified.notes[0]


def test_a_damaged_file_is_refused_where_spark_reads_too(spark, tmp_path, only_jvm):
    (tmp_path / "t" / "a b.parquet").write_bytes(b"not Parquet")
    listed = spark.createDataFrame([(f"{only_jvm}/a b.parquet", 11)], "file_path string, size long")
    with pytest.raises(HiveToDeltaError, match=r"a b\.parquet|a%20b\.parquet"):
        convert_table(spark, listed, only_jvm, None, None, None)
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_workers_without_any_credentials_leave_s3_to_spark(spark, s3, bucket, tmp_path):
    body = write_parquet(tmp_path / "f", {"id": [1, 2]}).read_bytes()
    s3.put_object(Bucket=bucket, Key="t/f", Body=body)
    root = f"s3://{bucket}/t"
    listed = spark.createDataFrame([(f"{root}/f", len(body))], "file_path string, size long")
    of_workers = spark.sparkContext.environment
    before = dict(of_workers)
    of_workers.update(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    try:
        with described_on_executors():
            result = convert_table(spark, listed, root, None, None, None)
    finally:
        of_workers.clear()
        of_workers.update(before)
    assert result.row_count == 2
    assert f"Python workers cannot reach s3://{bucket}: " in result.notes[0]
    assert_same(spark, spark.createDataFrame([(1,), (2,)], "id long"), delta_at(spark, root))
