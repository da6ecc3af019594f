"""Statistics that some writers get wrong: each file below has what its writer would have left in it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

from airflow_hive_to_delta.core.parquet.writers import Statistic, trusted_statistics
from tests.support.footer_patches import (
    GROUP_ROWS,
    NUM_ROWS,
    ROW_GROUPS,
    Fields,
    created_by,
    in_statistics,
    rewrite_footer,
)
from tests.support.footers import described, statistics
from tests.support.oracle import assert_same, delta_at
from tests.support.tables import convert_folder, write_parquet

pytestmark = pytest.mark.slow

ARROW_3 = "parquet-cpp version 1.5.1-SNAPSHOT"


def no_rows_in_the_file(footer: Fields) -> None:
    """Set the number of rows of the file to 0, which parquet-rs 0.3.0 did (ARROW-6901)."""
    footer[NUM_ROWS] = (6, 0)


def big_endian(number: int, width: int = 4) -> bytes:
    return number.to_bytes(width, "big", signed=True)


def test_no_row_is_lost_by_wrong_statistics(spark, tmp_path):
    root = tmp_path / "t"
    price = pa.decimal128(9, 2)
    table = pa.table(
        {
            "price": pa.array([Decimal("1.00"), Decimal("1.50"), Decimal("3.06"), None], price),
            "name": ["a", "b", "z", None],
            "n": [1, 2, None, None],
        }
    )
    two = pa.table({"price": pa.array([Decimal("1.00"), Decimal("1.50")], price), "name": ["x", "y"], "n": [5, 6]})
    # Signed bytes: 0x96 is below 0x64. Of two values the bounds are turned round, of three one lies outside.
    turned = in_statistics(0, MIN=big_endian(150), MAX=big_endian(100))
    outside = in_statistics(0, MIN=big_endian(150), MAX=big_endian(306))
    files: dict[str, tuple[pa.Table, list[Callable[[Fields], None]]]] = {
        "turned": (two, [created_by(ARROW_3), turned]),
        "turned-by-anyone": (two, [created_by("parquet-mr version 1.13.1 (build x)"), turned]),
        "outside": (table, [created_by(ARROW_3), outside]),
        "outside-prefix": (table, [created_by("parquet-mr compatible Photon version 0.2 (build 14.3)"), outside]),
        "outside-nobody": (table, [created_by(""), outside]),
        "unsigned": (table, [created_by("ClickHouse v25.3.1.1"), outside]),
        "no-nulls": (table, [created_by("parquet-cpp-arrow version 5.0.0"), in_statistics(1, NULL_COUNT=0)]),
        "first-chunk": (table, [created_by("parquet-cpp-arrow version 10.0.1"), in_statistics(1, MAX=b"b")]),
        "polars": (table, [created_by("Polars"), in_statistics(2, NULL_COUNT=0, MAX=(1).to_bytes(8, "little"))]),
        "too-many-nulls": (table, [in_statistics(2, NULL_COUNT=4_293_972_296)]),
        "only-nulls": (table, [in_statistics(2, NULL_COUNT=4)]),
        "turned-integers": (
            table,
            [in_statistics(2, MIN=(2).to_bytes(8, "little"), MAX=(1).to_bytes(8, "little"))],
        ),
        "no-rows": (table, [no_rows_in_the_file]),
    }
    for name, (data, changes) in files.items():
        rewrite_footer(write_parquet(root / name, data), *changes)
    write_parquet(root / "right", table)
    original = spark.read.parquet(str(root))
    result = convert_folder(spark, root)
    assert result.row_count == sum(data.num_rows for data, _ in files.values()) + table.num_rows
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.parametrize(
    ("writer", "trusted"),
    [
        ("parquet-mr version 1.12.3 (build f8dced182c4c1fbdec6ccb3185537b5a01e6ed6b)", True),
        ("parquet-mr version 1.10.1-amzn-0 (build x)", True),
        ("parquet-cpp-arrow version 4.0.0", True),
        ("parquet-cpp-arrow version 26.0.1", True),
        ("parquet-rs version 56.0.0", True),
        ("parquet-rs version 13.0.0", False),
        ("DuckDB version v1.5.2 (build 0123456789)", True),
        ("DuckDB", False),
        ("parquet-cpp-arrow version 4.0.0-SNAPSHOT", False),
        ("parquet-cpp version 1.5.1-SNAPSHOT", False),
        ("parquet-mr", False),
        ("parquet-mr version", False),
        ("parquet-mr (build x)", False),
        ("parquet-mr-trino version 4 (build x)", False),
        ("parquet-mr compatible Photon version 0.2 (build 14.3)", False),
        ("my parquet-mr version 1.12.3", False),
        ("Trino version 440 (build x)", False),
        ("impala version 4.1.0-RELEASE (build x)", False),
        ("", False),
    ],
)
def test_rule_36_decimals_in_byte_arrays_by_writers_that_are_known_to_be_right(tmp_path, writer, trusted):
    table = pa.table({"d": pa.array([Decimal("-1.5"), None, Decimal(2)])})
    path = rewrite_footer(write_parquet(tmp_path / "f", table), created_by(writer))
    assert statistics(path) == ([["-1.5", "2.0", 1]] if trusted else [[None, None, 1]])
    integers = write_parquet(tmp_path / "i", table, store_decimal_as_integer=True)
    assert statistics(rewrite_footer(integers, created_by(writer))) == [["-1.5", "2.0", 1]]


@pytest.mark.parametrize(
    ("writer", "trusted"),
    [
        ("parquet-mr version 1.12.3 (build x)", True),
        ("parquet-mr compatible Photon version 0.2 (build 14.3)", False),
        ("parquet-mr-trino version 4", False),
        ("parquet-cpp-arrow version 26.0.1", False),
    ],
)
def test_rule_36_floats_by_writers_that_keep_nan_in_the_bounds(tmp_path, writer, trusted):
    path = rewrite_footer(write_parquet(tmp_path / "f", {"x": [1.5, None, 2.5]}), created_by(writer))
    assert statistics(path) == ([["1.5", "2.5", 1]] if trusted else [[None, None, 1]])
    assert statistics(rewrite_footer(path, in_statistics(0, NAN_COUNT=1))) == [[None, None, 1]]


@pytest.mark.parametrize(
    ("writer", "untrusted"),
    [
        ("parquet-mr version 1.6.0 (build x)", {Statistic.STRING_BOUNDS, Statistic.BYTE_ARRAY_NULLS}),
        ("parquet-cpp-arrow version 10.0.1", {Statistic.STRING_BOUNDS, Statistic.BYTE_ARRAY_NULLS}),
        ("parquet-cpp-arrow version 11.0.0", set()),
        ("parquet-rs version 4.0.0", {Statistic.STRING_BOUNDS, Statistic.BYTE_ARRAY_NULLS, Statistic.OTHER_NULLS}),
        ("parquet-rs version 53.0.0", set()),
        ("parquet-go version latest", {Statistic.BYTE_ARRAY_NULLS, Statistic.OTHER_NULLS}),
        ("hyparquet", {Statistic.INTEGER_DECIMAL_BOUNDS}),
        ("Polars", set(Statistic)),
        ("Polars (python) version 2.1.0 (build 7f902bd3)", set(Statistic)),
        ("", set()),
    ],
)
def test_what_is_not_believed_of_whom(writer, untrusted):
    needs_proof = {Statistic.FLOAT_BOUNDS, Statistic.FIXED_DECIMAL_BOUNDS, Statistic.VARIABLE_DECIMAL_BOUNDS}
    assert set(Statistic) - trusted_statistics(writer) - needs_proof == untrusted - needs_proof


def with_rows(count: int) -> Callable[[Fields], None]:
    """Write another number of rows into a footer."""

    def change(footer: Fields) -> None:
        footer[NUM_ROWS] = (6, count)

    return change


def test_rows_are_those_of_the_row_groups(tmp_path):
    path = write_parquet(tmp_path / "f", {"n": [1, 2, 3]}, row_group_size=2)
    for in_file in (0, 3, 7, -1):
        rewrite_footer(path, with_rows(in_file))
        (row,) = described((str(path), path.stat().st_size), root=str(tmp_path))
        assert (row["error"], row["rows"]) == (None, 3)


@pytest.mark.parametrize("rows", [-1, -(2**63)])
def test_a_row_group_with_less_than_no_rows_is_refused(tmp_path, rows):
    def change(footer: Fields) -> None:
        footer[ROW_GROUPS][1][1][0][GROUP_ROWS] = (6, rows)

    path = rewrite_footer(write_parquet(tmp_path / "f", {"n": [1]}), change)
    (row,) = described((str(path), path.stat().st_size), root=str(tmp_path))
    assert f"{path} cannot be read: a row group has {rows} rows" in row["error"]
    assert row["retryable"] is False


def test_row_groups_whose_rows_no_number_holds_are_refused(tmp_path):
    def change(footer: Fields) -> None:
        for group in footer[ROW_GROUPS][1][1]:
            group[GROUP_ROWS] = (6, 2**62)

    path = rewrite_footer(write_parquet(tmp_path / "f", {"n": [1, 2]}, row_group_size=1), change)
    (row,) = described((str(path), path.stat().st_size), root=str(tmp_path))
    assert str(path) in row["error"]
