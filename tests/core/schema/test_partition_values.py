"""Partition values: rules 19 to 24."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_to_delta.core.errors import PartitionError
from airflow_hive_to_delta.core.schema.partition_values import HIVE_NULL, normalise, unescape, values_from_path
from tests.support.tables import hive_escape


def stored(raw: str | None, delta_type: str, zone: str = "UTC") -> str | None:
    return normalise({"p": raw}, {"p": delta_type}, zone, "s3://b/t/p=x/f")["p"]


@pytest.mark.parametrize("delta_type", ["string", "integer", "date", "timestamp", "boolean", "decimal(10,2)"])
def test_rule_19_the_hive_null_and_the_empty_string_are_null(delta_type):
    assert stored(HIVE_NULL, delta_type) is None
    assert stored("", delta_type) is None
    assert stored(None, delta_type) is None


def test_rule_19_the_word_null_is_a_word():
    assert stored("null", "string") == "null"
    assert stored("NULL", "string") == "NULL"


def test_rule_19_every_partition_column_has_a_value():
    with pytest.raises(PartitionError, match=r"Expecting 2 partition column\(s\): \[a, b\], but found 1"):
        normalise({"a": "1"}, {"a": "string", "b": "string"}, "UTC", "f")


@pytest.mark.parametrize("value", ["01", "-0", " x ", "1.0", "true", "a/b c%d=e", "é", "2024-1-1"])
def test_rule_20_strings_stay_as_they_are(value):
    assert stored(value, "string") == value


@pytest.mark.parametrize(
    ("value", "delta_type"),
    [
        ("abc", "integer"),
        ("1.5", "integer"),
        ("128", "byte"),
        ("2147483648", "integer"),
        ("2024-13-01", "date"),
        ("yesterday", "timestamp"),
        ("2024-01-01 00:00:00Z", "timestamp_ntz"),
        ("1.234", "decimal(10,2)"),
        ("123456789.00", "decimal(10,2)"),
        ("NaN", "decimal(10,2)"),
        ("maybe", "boolean"),
        ("one", "double"),
    ],
)
def test_rule_20_a_value_that_does_not_cast_names_file_column_and_value(value, delta_type):
    with pytest.raises(PartitionError) as caught:
        stored(value, delta_type)
    for part in (repr(value), " p ", delta_type, "s3://b/t/p=x/f"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("value", "delta_type", "expected"),
    [
        ("007", "integer", "7"),
        ("-0", "integer", "0"),
        ("+5", "long", "5"),
        ("-128", "byte", "-128"),
        ("TRUE", "boolean", "true"),
        ("f", "boolean", "false"),
        ("2024-1-5", "date", "2024-01-05"),
        ("1.5", "decimal(10,2)", "1.50"),
        ("-0.001", "decimal(38,18)", "-0.001000000000000000"),
        ("1E2", "decimal(10,0)", "100"),
        ("12345678901234567890123456789012345678", "decimal(38,0)", "12345678901234567890123456789012345678"),
        ("2024-01-01 02:03:04.5", "timestamp", "2024-01-01T02:03:04.500000Z"),
        ("2024-01-01", "timestamp", "2024-01-01T00:00:00.000000Z"),
        ("2024-01-01T02:03:04+02:00", "timestamp", "2024-01-01T00:03:04.000000Z"),
        ("2024-01-01 02:03:04.123456789", "timestamp_ntz", "2024-01-01 02:03:04.123456"),
        ("1e3", "double", "1000.0"),
        ("nan", "double", "NaN"),
        ("-Infinity", "float", "-Infinity"),
    ],
)
def test_rule_21_the_written_form(value, delta_type, expected):
    assert stored(value, delta_type) == expected


def test_rule_21_a_timestamp_is_read_in_the_zone_that_was_given_and_never_in_the_hosts(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert stored("2024-07-01 12:00:00", "timestamp", "Europe/Berlin") == "2024-07-01T10:00:00.000000Z"
    assert stored("2024-07-01 12:00:00", "timestamp") == "2024-07-01T12:00:00.000000Z"


def test_rule_22_binary_that_was_not_utf_8_is_refused():
    assert stored("héllo", "binary") == "héllo"
    with pytest.raises(PartitionError, match="binary"):
        stored("a\N{REPLACEMENT CHARACTER}", "binary")


def test_rule_24_slash_equals_and_percent_survive():
    relative = "k=a%2Fb c%25d%3De/n=1/f.parquet"
    assert values_from_path(f"s3://b/t/{relative}", relative, ["k", "n"]) == {"k": "a/b c%d=e", "n": "1"}


def test_rule_24_a_value_is_unescaped_once_and_split_once():
    assert values_from_path("f", "k=a=b=c/f", ["k"]) == {"k": "a=b=c"}
    assert values_from_path("f", "k=%252F/f", ["k"]) == {"k": "%2F"}
    assert values_from_path("f", "k=%zz%/f", ["k"]) == {"k": "%zz%"}


def test_hive_escapes_characters_and_not_bytes():
    assert unescape("%C3%A9") == "Ã©"


def test_partition_keys_ignore_case_and_keep_the_tables_spelling():
    assert values_from_path("f", "YEAR=2024/f", ["Year"]) == {"Year": "2024"}


@pytest.mark.parametrize(
    ("relative", "columns", "found"),
    [
        ("y=1/f", ["y", "m"], r"but found 1 partition column\(s\): \[y\]"),
        ("y=1/m=2/f", ["y"], r"but found 2 partition column\(s\): \[y, m\]"),
        ("y=1/y=2/f", ["y"], r"but found 2 partition column\(s\): \[y, y\]"),
        ("f", ["y"], r"but found 0 partition column\(s\): \[\]"),
    ],
)
def test_folders_that_do_not_match_are_refused_in_converts_words(relative, columns, found):
    expected = rf"^Expecting {len(columns)} partition column\(s\): \[{', '.join(columns)}\], {found} "
    with pytest.raises(PartitionError, match=f"{expected}from parsing the file name: s3://b/t/{relative}$"):
        values_from_path(f"s3://b/t/{relative}", relative, columns)


@given(st.text(min_size=1).filter(lambda t: t != HIVE_NULL and "\ud800" not in t))
def test_every_text_comes_back_from_hives_folder_name(value):
    relative = f"k={hive_escape(value)}/f"
    assert normalise(values_from_path("f", relative, ["k"]), {"k": "string"}, "UTC", "f") == {"k": value}


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_integer_is_canonical(value):
    assert stored(f"{value:+d}", "long") == str(value)
