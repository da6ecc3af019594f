"""Statistics: rules 31 to 38. An omitted one is safe, a wrong one loses rows."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_to_delta.core.parquet.statistics import (
    StatisticsWriter,
    TableLeaf,
    date_bound,
    decimal_bound,
    float_bound,
    indexed_leaves,
    loosened_decimal,
    string_bound,
    timestamp_bound,
)


def column(name, kind="long", **metadata):
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


def names(leaves):
    return [".".join(leaf.path) for leaf in leaves]


def test_rule_32_the_first_32_leaves_without_partition_columns():
    schema = struct(column("p"), *[column(f"c{i}") for i in range(40)])
    assert names(indexed_leaves(schema, ["P"], {})) == [f"c{i}" for i in range(32)]


def test_rule_32_an_array_counts_and_a_structs_leaves_count_one_each():
    nested = column("s", struct(column("x"), column("y", struct(column("z")))))
    array = column("a", {"type": "array", "elementType": "long", "containsNull": True})
    found = indexed_leaves(struct(array, nested, column("c")), [], {"delta.dataSkippingNumIndexedCols": "3"})
    assert names(found) == ["s.x", "s.y.z"]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"delta.dataSkippingNumIndexedCols": "0"}, []),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, ["a", "s.x", "s.y", "b.c, d`"]),
        ({"delta.dataSkippingStatsColumns": "A, s.y"}, ["a", "s.y"]),
        ({"delta.dataSkippingStatsColumns": "s"}, ["s.x", "s.y"]),
        ({"delta.dataSkippingStatsColumns": "`b.c, d```"}, ["b.c, d`"]),
    ],
)
def test_rule_32_the_tables_properties_decide(properties, expected):
    schema = struct(column("a"), column("s", struct(column("x"), column("y"))), column("b.c, d`"))
    assert names(indexed_leaves(schema, [], properties)) == expected


def test_char_columns_have_no_bounds_because_readers_pad_them():
    schema = struct(
        column("c", "string", __CHAR_VARCHAR_TYPE_STRING="char(5)"),
        column("v", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(5)"),
    )
    assert [leaf.bounds for leaf in indexed_leaves(schema, [], {})] == [False, True]


def some_bound(value: bytes | str, *, upper: bool) -> str:
    """The bound of a string that has one."""
    found = string_bound(value, upper=upper)
    assert found is not None
    return found


def test_rule_33_a_short_string_is_whole():
    assert json.loads(some_bound("x" * 32, upper=True)) == "x" * 32
    assert json.loads(some_bound("", upper=False)) == ""


def test_rule_33_a_cut_never_halves_a_surrogate_pair():
    assert json.loads(some_bound("x" * 31 + "\U0001f600y", upper=False)) == "x" * 31


@pytest.mark.parametrize(("hidden", "tie"), [("a", "\x7f"), ("\x7f", "\U0010ffff"), ("é", "\U0010ffff")])
def test_rule_33_a_cut_maximum_gets_a_tie_breaker(hidden, tie):
    assert json.loads(some_bound("x" * 32 + hidden, upper=True)) == "x" * 32 + tie


def test_rule_33_a_maximum_that_nothing_sorts_after_is_left_out():
    assert string_bound("x" * 32 + "\U0010ffff", upper=True) is None


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=50), min_size=1))
def test_rule_33_bounds_hold_every_string_in_utf_8_order(values):
    ordered = sorted(values, key=str.encode)
    low, high = some_bound(ordered[0].encode(), upper=False), string_bound(ordered[-1].encode(), upper=True)
    assert json.loads(low).encode() <= ordered[0].encode()
    if high is not None:
        assert json.loads(high).encode() >= ordered[-1].encode()


def test_bytes_that_are_not_utf_8_have_no_bounds():
    assert string_bound(b"\xff", upper=False) is None


def test_rule_34_timestamps_are_cut_down_before_1970_too():
    assert timestamp_bound(-1, utc=True) == '"1969-12-31T23:59:59.999Z"'
    assert timestamp_bound(-1_500_001 // 1000, utc=False) == '"1969-12-31T23:59:58.499"'


def test_rule_35_decimals_are_exact():
    assert decimal_bound(-5, 2) == "-0.05"
    assert decimal_bound(10**37 + 1, 18) == "10000000000000000000.000000000000000001"
    assert decimal_bound(7, 0) == "7"


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_rule_35_every_decimal_round_trips(unscaled, scale):
    assert Decimal(decimal_bound(unscaled, scale)) == Context(prec=80).scaleb(Decimal(unscaled), -scale)


@given(st.integers(-(10**20), 10**20), st.integers(0, 12), st.integers(0, 12))
def test_rule_35_bounds_that_do_not_fit_into_the_columns_type_are_left_out(unscaled, scale, whole_digits):
    bound = decimal_bound(unscaled, scale)
    # As they are written: rounded outwards.
    written_bounds = [Decimal(loosened_decimal(bound, upper=upper)) for upper in (False, True)]
    fits = all(abs(each) < 10**whole_digits for each in written_bounds)
    writer = StatisticsWriter([TableLeaf(("d",), f"decimal({whole_digits + scale},{scale})", bounds=True)])
    schema = json.dumps({"type": "struct", "fields": [{"name": "d", "type": f"decimal(38,{scale})"}]})
    written = json.loads(writer.write(schema, [(bound, bound, 0)], 1), parse_float=Decimal, parse_int=Decimal)
    assert ("d" in written["minValues"], "d" in written["maxValues"]) == (fits, fits)


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_rule_35_what_a_reader_takes_for_doubles_still_bounds_every_decimal(unscaled, scale):
    exact = decimal_bound(unscaled, scale)
    low, high = loosened_decimal(exact, upper=False), loosened_decimal(exact, upper=True)
    assert Decimal(low) <= Decimal(exact) <= Decimal(high)
    assert Decimal(repr(float(low))) == Decimal(low)
    assert Decimal(repr(float(high))) == Decimal(high)


def test_rule_35_decimals_of_15_digits_stay_as_they_are():
    assert loosened_decimal("-1234567890123.45", upper=True) == "-1234567890123.45"
    assert loosened_decimal("-12345678901234.56", upper=True) == "-12345678901234.50"
    assert loosened_decimal("99999999999999999", upper=True) == "100000000000000000"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_rule_35_nan_and_infinities_are_not_json(value):
    assert float_bound(value, upper=True) is None


def test_both_zeros_are_one_value():
    assert (float_bound(0.0, upper=False), float_bound(-0.0, upper=True)) == ("-0.0", "0.0")


def test_rule_36_no_bounds_before_the_gregorian_calendar():
    days = dt.date(1582, 10, 15).toordinal() - dt.date(1970, 1, 1).toordinal()
    assert date_bound(days) == '"1582-10-15"'
    assert date_bound(days - 1) is None
    assert timestamp_bound(days * 86_400_000 - 1, utc=True) is None
    assert date_bound(10**9) is None


def test_rule_37_an_absent_null_count_is_not_zero_and_an_all_null_column_has_no_bounds():
    leaves = [TableLeaf(("a",), "long", bounds=True), TableLeaf(("b",), "long", bounds=True)]
    schema = json.dumps(struct(column("a"), column("b")))
    stats = json.loads(StatisticsWriter(leaves).write(schema, [("1", "2", None), (None, None, 3)], 3))
    assert stats == {"numRecords": 3, "minValues": {"a": 1}, "maxValues": {"a": 2}, "nullCount": {"b": 3}}


def test_rule_38_leaves_are_matched_by_position_because_a_name_can_hold_a_dot():
    leaves = indexed_leaves(struct(column("a.b"), column("a", struct(column("b")))), [], {})
    schema = json.dumps(
        struct(
            column("a", struct(column("b"))),
            column("m", {"type": "map", "keyType": "long", "valueType": struct(column("x"), column("y"))}),
            column("a.b"),
        )
    )
    statistics = [("1", "1", 0), None, None, None, ("9", "9", 0)]
    stats = json.loads(StatisticsWriter(leaves).write(schema, statistics, 1))
    assert stats["minValues"] == {"a.b": 9, "a": {"b": 1}}


def test_rule_30_a_column_that_the_file_lacks_is_null_in_every_row():
    writer = StatisticsWriter([TableLeaf(("new",), "long", bounds=True)])
    assert json.loads(writer.write(json.dumps(struct(column("old"))), [("1", "1", 0)], 7))["nullCount"] == {"new": 7}


@pytest.mark.parametrize(
    ("file_type", "table_type", "kept"), [("integer", "long", True), ("timestamp_ntz", "timestamp", False)]
)
def test_bounds_of_a_type_that_is_written_otherwise_are_left_out(file_type, table_type, kept):
    writer = StatisticsWriter([TableLeaf(("a",), table_type, bounds=True)])
    stats = json.loads(writer.write(json.dumps(struct(column("a", file_type))), [("1", "2", 0)], 2))
    assert (stats["minValues"] == {"a": 1}) is kept
    assert stats["nullCount"] == {"a": 0}
