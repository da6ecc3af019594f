"""Parquet footers as writers leave them: what is taken from each, and what is left out because it cannot be trusted.

Where no writer at hand makes a footer of some kind any more, the Thrift footer of a real file is written anew.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.awsrequest import AWSResponse
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from airflow_hive_to_delta.core.storage import aws
from tests.support.aws import REGION
from tests.support.footer_patches import (
    BINARY,
    CONVERTED,
    LOGICAL,
    MAX,
    MIN,
    NAME,
    NULL_COUNT,
    REPETITION,
    SCHEMA,
    STATISTICS,
    Fields,
    chunks_of,
    only_deprecated,
    rewrite_footer,
    statistics_of,
    with_schema,
    without,
)
from tests.support.footers import described, read, statistics
from tests.support.oracle import assert_same, delta_at
from tests.support.s3_servers import answer_with, sent_requests
from tests.support.tables import convert_folder, write_parquet


@pytest.fixture(scope="module")
def plain() -> pa.Table:
    return pa.table({"n": [-3, 5, None], "s": ["a", None, "b"], "d": pa.array([Decimal("-1.5"), None, Decimal(2)])})


def test_bounds_and_null_counts_of_a_file(tmp_path, plain):
    assert statistics(write_parquet(tmp_path / "f", plain)) == [["-3", "5", 1], ['"a"', '"b"', 1], ["-1.5", "2.0", 1]]


def test_rule_36_deprecated_bounds_are_left_out_and_null_counts_kept(tmp_path, plain):
    path = rewrite_footer(write_parquet(tmp_path / "f", plain), only_deprecated)
    assert pq.read_metadata(path).row_group(0).column(0).statistics.has_min_max, "pyarrow does not tell"
    assert statistics(path) == [[None, None, 1]] * 3


@pytest.mark.parametrize("missing", [MAX, MIN])
def test_rule_36_one_bound_without_the_other_is_none(tmp_path, plain, missing):
    path = rewrite_footer(write_parquet(tmp_path / "f", plain), without(missing))
    assert statistics(path) == [[None, None, 1]] * 3


def test_rule_37_an_absent_null_count_is_not_zero(tmp_path, plain):
    path = rewrite_footer(write_parquet(tmp_path / "f", plain), without(NULL_COUNT))
    assert statistics(path) == [["-3", "5", None], ['"a"', '"b"', None], ["-1.5", "2.0", None]]


@pytest.mark.parametrize("leaves", [1, 14, 15, 127, 128, 300])
def test_bounds_are_found_in_files_of_any_number_of_columns(tmp_path, leaves):
    path = write_parquet(tmp_path / "f", {f"c{i}": [i] for i in range(leaves)})
    assert statistics(path) == [[str(i), str(i), 0] for i in range(leaves)]
    rewrite_footer(path, only_deprecated)
    assert statistics(path) == [[None, None, 0]] * leaves


def test_rule_36_a_row_group_without_statistics_takes_the_bounds_of_the_file(tmp_path):
    table = pa.table({"n": pa.array([None, None, 1, 2, 3], pa.int64()), "m": [1, 2, 3, 4, 5]})
    path = write_parquet(tmp_path / "f", table, row_group_size=2)
    assert statistics(path) == [["1", "3", 2], ["1", "5", 0]], "a row group of nulls has no bounds to give"
    last: Callable[[Fields], Any] = lambda footer: list(chunks_of(footer))[-1].pop(STATISTICS)  # noqa: E731
    assert statistics(rewrite_footer(path, last)) == [["1", "3", 2], [None, None, None]]
    first: Callable[[Fields], Any] = lambda footer: next(statistics_of(footer)).pop(NULL_COUNT)  # noqa: E731
    assert statistics(rewrite_footer(path, first))[0] == [None, None, None], "who knows that they are all null"


@pytest.mark.parametrize(
    ("written", "expected"), [(False, [[None, None, None]] * 2), (["a"], [["1", "2", 0], [None, None, None]])]
)
def test_a_writer_may_leave_statistics_out(tmp_path, written, expected):
    path = write_parquet(tmp_path / "f", {"a": [1, 2], "b": [3, None]}, write_statistics=written)
    assert statistics(path) == expected


def test_rule_31_files_without_rows(tmp_path):
    empty = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.string())]))])
    (none, group) = read(
        write_parquet(tmp_path / "none", empty.empty_table()),
        write_empty_row_group(tmp_path / "group", empty),
    )
    assert (none["rows"], group["rows"]) == (0, 0)
    assert none["leaf_statistics"] == group["leaf_statistics"] == [[None, None, 0]] * 2


def write_empty_row_group(path: Path, schema: pa.Schema) -> Path:
    with pq.ParquetWriter(path, schema) as writer:
        writer.write_table(schema.empty_table())
    return path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"tags": [["x"]]}, {"labels": [["x"]]}),
        ({"a": [{"x": 1}]}, {"b": [{"x": 1}]}),
        ({"a.b": [{"c": {"x": 1}}]}, {"a": [{"b.c": {"x": 1}}]}),
        ({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))},
         {"m": pa.array([[{"key": "k", "value": 1}]],
                        pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.int64())])))}),
    ],
    ids=["lists", "structs", "dots", "a map and a list"],
)  # fmt: skip
def test_files_whose_leaves_are_alike_keep_their_own_columns(tmp_path, one, other):
    paths = write_parquet(tmp_path / "a", one), write_parquet(tmp_path / "b", other)
    together = [row["file_schema"] for row in read(*paths)]
    assert together == [read(path)[0]["file_schema"] for path in paths]
    assert together[0] != together[1]


def test_a_name_that_is_not_utf_8_is_an_error_of_its_file(tmp_path):
    def spoil(footer: Fields) -> None:
        footer[SCHEMA][1][1][1][NAME] = (BINARY, b"\xff")

    path = rewrite_footer(write_parquet(tmp_path / "f", {"a": [1]}), spoil)
    (row,) = described((str(path), path.stat().st_size), root=str(tmp_path))
    assert "not UTF-8" in row["error"]
    assert str(path) in row["error"]
    assert row["retryable"] is False


# --- Footers on S3 ----------------------------------------------------------------------------------------------


@pytest.fixture
def on_s3(s3, bucket, tmp_path):
    def put(name: str, data: dict[str, Any]) -> tuple[str, int]:
        body = write_parquet(tmp_path / name, data).read_bytes()
        s3.put_object(Bucket=bucket, Key=f"t/{name}", Body=body)
        return f"s3://{bucket}/t/{name}", len(body)

    return put


def test_one_get_per_file_on_s3_and_one_question_per_bucket(on_s3, bucket):
    files = [on_s3(f"f{i} é+%41", {"n": [i]}) for i in range(5)]
    with sent_requests() as sent:
        rows = described(*files, root=f"s3://{bucket}/t", region=REGION, expected_bucket_owner="123456789012")
    assert [(row["error"], json.loads(row["leaf_statistics"])) for row in rows] == [
        (None, [[str(i), str(i), 0]]) for i in range(5)
    ]
    assert all(row["modification_time"] > 0 for row in rows), "which the listing did not know"
    assert sorted(method for method, _, _ in sent) == ["GET"] * 5 + ["HEAD"]
    assert [path.strip("/") for method, path, _ in sent if method == "HEAD"] == [bucket], "of the bucket, not a file"
    assert {headers["x-amz-expected-bucket-owner"] for _, _, headers in sent} == {"123456789012"}


def test_a_footer_longer_than_the_tail_costs_a_second_get(on_s3, bucket):
    path, size = on_s3("wide", {f"column_{i}": [i] for i in range(50)})
    aws.bucket_region(bucket, REGION)
    for tail, gets in ((200, 2), (size, 1), (10 * size, 1)):
        with sent_requests() as sent:
            (row,) = described((path, size), root=f"s3://{bucket}/t", region=REGION, footer_tail_bytes=tail)
        assert row["error"] is None
        assert len(json.loads(row["leaf_statistics"])) == 50
        assert [method for method, _, _ in sent] == ["GET"] * gets


def test_an_object_that_became_empty_is_not_what_was_listed(on_s3, bucket):
    """S3 refuses to give the last bytes of an empty object; moto's server gives none."""
    path, size = on_s3("f", {"n": [1]})

    def refuse(request: Any, **_: Any) -> AWSResponse:
        body = b"<Error><Code>InvalidRange</Code><Message>not satisfiable</Message></Error>"
        return answer_with(request, 416, body)

    events: Any = aws.s3_client(bucket, REGION).meta.events
    events.register("before-send.s3.GetObject", refuse)
    try:
        (row,) = described((path, size), root=f"s3://{bucket}/t", region=REGION)
    finally:
        events.unregister("before-send.s3.GetObject", refuse)
    assert f"{path} has 0 bytes, but {size} were listed" in row["error"]


@pytest.mark.parametrize("tail", [1, 7, 8, 11, 12, 100])
def test_a_tail_of_any_length_finds_the_footer(tmp_path, plain, tail):
    path = write_parquet(tmp_path / "f", plain)
    assert read(path, footer_tail_bytes=tail) == read(path)


# --- What Spark makes of the same files -------------------------------------------------------------------------


def test_types_are_those_that_spark_reads_whatever_arrow_left_in_the_file(spark, tmp_path):
    moment = dt.datetime(2024, 7, 1, 12, 0, 0, 123_456)
    columns = {
        "bool": pa.array([True, None]),
        **{f"i{bits}": pa.array([-1, None], pa.from_numpy_dtype(f"int{bits}")) for bits in (8, 16, 32, 64)},
        **{f"u{bits}": pa.array([1, None], pa.from_numpy_dtype(f"uint{bits}")) for bits in (8, 16, 32, 64)},
        "f32": pa.array([1.5, None], pa.float32()),
        "f64": pa.array([1.5, None]),
        "string": pa.array(["x", None]),
        "large_string": pa.array(["x", None], pa.large_string()),
        "string_view": pa.array(["x", None], pa.string_view()),
        "dictionary": pa.array(["x", None]).dictionary_encode(),
        "binary": pa.array([b"x", None]),
        "fixed": pa.array([b"xy", None], pa.binary(2)),
        "date": pa.array([moment.date(), None]),
        "date64": pa.array([moment.date(), None], pa.date64()),
        "duration": pa.array([dt.timedelta(1), None]),
        "ms": pa.array([moment, None], pa.timestamp("ms", tz="UTC")),
        "us": pa.array([moment, None], pa.timestamp("us", tz="Europe/Berlin")),
        "ntz": pa.array([moment, None], pa.timestamp("us")),
        "dec9": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
        "dec38": pa.array([Decimal("1.25"), None], pa.decimal128(38, 10)),
        "dec256": pa.array([Decimal("1.25"), None], pa.decimal256(30, 2)),
        "list": pa.array([[1], None], pa.list_(pa.int8())),
        "large_list": pa.array([["x"], None], pa.large_list(pa.large_string())),
        "fixed_list": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
        "map": pa.array([[("k", moment)], None], pa.map_(pa.string(), pa.timestamp("us", tz="UTC"))),
        "struct": pa.array([{"a": 1, "b.c": [{"d": "x"}]}, None]),
    }
    path = write_parquet(tmp_path / "t" / "f", columns)
    (row,) = read(path)
    assert row["file_schema"] == spark.read.parquet(str(path)).schema.jsonValue()
    columns = {name: columns[name] for name in ("dictionary", "duration", "us")}
    write_parquet(path, columns)
    original = spark.read.parquet(str(path))
    convert_folder(spark, path.parent)
    assert_same(spark, original, delta_at(spark, path.parent))


REPEATED, MAP_KEY_VALUE = 2, 2
NO_LOGICAL = {LOGICAL: None}
INTS = pa.list_(pa.field("element", pa.int64(), nullable=False))
STRUCTS = pa.list_(pa.field("element", pa.struct([pa.field("a", pa.int64(), nullable=False)]), nullable=False))
MAPS = pa.map_(pa.string(), pa.int64())

#: Lists and maps as older writers laid them out: type, values, and the elements of the schema.
OLDER: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    # Hive: optional group (LIST) { repeated group bag { optional int64 array_element } }
    "hive": (pa.list_(pa.int64()), [[1, None], [], None],
             [("hive", NO_LOGICAL), ("bag", {}), ("array_element", {})]),
    # Avro: optional group (LIST) { repeated int64 array }
    "avro": (INTS, [[1, 2], [], None],
             [("avro", NO_LOGICAL), None, ("array", {REPETITION: REPEATED})]),
    # Avro: optional group (LIST) { repeated group array { required int64 a } }
    "avros": (STRUCTS, [[{"a": 1}, {"a": 2}], [], None],
              [("avros", NO_LOGICAL), None, ("array", {REPETITION: REPEATED}), ("a", {})]),
    # Thrift: optional group (LIST) { repeated group thrift_tuple { required int64 a } }
    "thrift": (STRUCTS, [[{"a": 1}, {"a": 2}], [], None],
               [("thrift", NO_LOGICAL), None, ("thrift_tuple", {REPETITION: REPEATED}), ("a", {})]),
    # Three levels, though it looks like two: optional group (LIST) { repeated group bag { required int64 a } }
    "plain": (STRUCTS, [[{"a": 1}, {"a": 2}], [], None],
              [("plain", NO_LOGICAL), None, ("bag", {REPETITION: REPEATED}), ("a", {})]),
    # optional group (MAP) { repeated group map (MAP_KEY_VALUE) { required binary key; optional int64 value } }
    "map": (MAPS, [[("k", 1), ("m", None)], [], None],
            [("map", NO_LOGICAL), ("map", {CONVERTED: MAP_KEY_VALUE}), ("key", {}), ("value", {})]),
    # optional group (MAP_KEY_VALUE) { repeated group map { required binary key; optional int64 value } }
    "old_map": (MAPS, [[("k", 1), ("m", None)], [], None],
                [("old_map", {**NO_LOGICAL, CONVERTED: MAP_KEY_VALUE}), ("map", {}), ("key", {}), ("value", {})]),
}  # fmt: skip


def test_lists_and_maps_of_older_writers(spark, tmp_path):
    columns = {name: pa.array(values, kind) for name, (kind, values, _) in OLDER.items()}
    path = write_parquet(tmp_path / "t" / "f", {**columns, "n": [1, 2, None]})
    rewrite_footer(path, with_schema(*[element for *_, elements in OLDER.values() for element in elements], ("n", {})))
    original = spark.read.parquet(str(path))
    (row,) = read(path)
    assert row["file_schema"] == original.schema.jsonValue()
    assert row["leaf_statistics"] == [None] * 9 + [["1", "2", 1]], "no bounds inside lists and maps (rule 36)"
    convert_folder(spark, path.parent)
    assert_same(spark, original, delta_at(spark, path.parent))


def test_rule_30_lists_of_the_same_kind_under_different_names(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"tags": [["x"]], "s": [{"n": 1}]})
    write_parquet(root / "b", {"labels": [["y"]], "z": [{"n": 2}]})
    original = spark.read.option("mergeSchema", "true").parquet(str(root))
    convert_folder(spark, root)
    assert_same(spark, original, delta_at(spark, root).select(original.columns))


SLICE = pa.schema(
    [
        ("a.b", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("ratio", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("s", pa.struct([("x", pa.int32())])),
    ]
)
#: Three files' worth of what has gone wrong in statistics before: each must be found in the files of every writer.
SLICES: list[list[tuple[Any, ...]]] = [
    [
        (-5, "a", Decimal("-1.25"), 1.5, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.date(1200, 1, 1), {"x": 1}),
        (None, None, None, None, None, None, None),
    ],
    [
        (7, "é" * 40, Decimal("0.01"), float("nan"), dt.datetime(2024, 2, 29, 0, 0, 0, 1), None, {"x": None}),
        (7, "é" * 40, Decimal("0.01"), 2.5, dt.datetime(2024, 2, 29, 0, 0, 0, 1), dt.date(1582, 10, 15), None),
    ],
    [
        (2**40, "é" * 40 + "\U0001f600", Decimal("99999.99"), -0.0, dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
         dt.date(9999, 12, 31), {"x": -1}),
        (2**40, "a" * 31 + "\U0001f600", Decimal("-99999.99"), float("inf"), None, dt.date(9999, 12, 31), {"x": -1}),
    ],
]  # fmt: skip


@pytest.mark.slow
def test_rules_31_to_38_the_same_rows_from_every_writer(spark, tmp_path):
    root = tmp_path / "t"
    for number, rows in enumerate(SLICES):
        table = pa.Table.from_pylist([dict(zip(SLICE.names, row, strict=True)) for row in rows], SLICE)
        with settings(spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
            frame = spark.createDataFrame(table.to_pylist(), from_arrow_schema(table.schema))
            frame.coalesce(1).write.mode("append").parquet(str(root / "spark"))
        # Files of the writer in Rust, without the table they are in.
        deltalake.write_deltalake(str(tmp_path / "rust"), table, mode="append")
        write_parquet(root / f"pyarrow{number}", table)
        write_parquet(root / f"integers{number}", table, store_decimal_as_integer=True, row_group_size=1)
        write_parquet(root / f"some{number}", table, write_statistics=["name", "s.x"], row_group_size=1)
        rewrite_footer(write_parquet(root / f"deprecated{number}", table), only_deprecated)
        rewrite_footer(write_parquet(root / f"counts{number}", table), without(NULL_COUNT))
    for number, path in enumerate((tmp_path / "rust").glob("*.parquet")):
        path.rename(root / f"rust{number}")
    write_parquet(root / "empty", SLICE.empty_table())
    original = spark.read.schema(spark.read.parquet(str(root / "pyarrow0")).schema).parquet(
        *[str(path) for path in sorted(root.iterdir())]
    )
    result = convert_folder(spark, root)
    assert (result.file_count, result.row_count) == (22, 42)
    assert_same(spark, original, delta_at(spark, root))


def test_rule_36_moments_of_writers_with_the_old_calendar(spark, tmp_path):
    root = tmp_path / "t"
    old = {
        "spark.sql.session.timeZone": "America/Los_Angeles",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    }
    with settings(spark, old):
        for year in (1000, 1880, 2024):
            spark.sql(f"SELECT DATE'{year}-03-01' AS day, TIMESTAMP'{year}-03-01 12:00:00' AS at").coalesce(
                1
            ).write.mode("append").parquet(str(root))
    original = spark.read.parquet(str(root))
    convert_folder(spark, root)
    assert_same(spark, original, delta_at(spark, root))


@contextmanager
def settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
