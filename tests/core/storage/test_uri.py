"""Paths: rules 14 to 16, 40 and 52."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Column, SparkSession

from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.storage.uri import (
    LocationIndex,
    add_path,
    canonical_log_uri,
    canonical_log_uri_column,
    canonical_uri,
    canonical_uri_column,
    check_allowed,
    is_hidden,
    is_hidden_outside,
    loose_uri,
    loose_uri_column,
    parse_location,
)

ROOT = parse_location("s3://bucket/warehouse/orders")


def written(path: str, root: str = "s3://bucket/warehouse/orders") -> str:
    return add_path(parse_location(path), parse_location(root))


def test_rule_14_a_path_is_a_uri_that_is_decoded_once():
    assert written("s3://bucket/warehouse/orders/dt=2024-01-01 00%3A00/f") == "dt=2024-01-01%2000%253A00/f"


def test_rule_15_a_colon_in_the_first_segment_is_escaped():
    assert written("s3://bucket/warehouse/orders/a:b/f") == "a%3Ab/f"


segments = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name not in {".", ".."}
)


@given(st.lists(segments, min_size=1, max_size=4))
def test_rule_15_every_path_round_trips(names):
    relative = "/".join(names)
    assert unquote(written(f"s3://bucket/warehouse/orders/{relative}")) == relative
    outside = urlsplit(written(f"s3://other/{relative}"))
    assert (outside.scheme, outside.netloc, unquote(outside.path)) == ("s3", "other", f"/{relative}")


def test_rule_16_relative_only_under_the_root():
    assert written("s3://bucket/warehouse/orders/p=1/f") == "p=1/f"
    assert written("s3://bucket/warehouse/orders_v2/f") == "s3://bucket/warehouse/orders_v2/f"
    assert written("s3://other/warehouse/orders/f") == "s3://other/warehouse/orders/f"


def test_rule_16_s3_s3a_and_s3n_are_one_location_spelt_as_the_table_is():
    assert written("s3a://bucket/warehouse/orders/f") == "f"
    assert written("s3n://other/f", "s3a://bucket/t") == "s3a://other/f"
    assert parse_location("s3a://b/t/").canonical == parse_location("s3://b/t").canonical


#: Each line has one file, in the spellings of it that are equal. The first is the canonical one.
SPELLINGS = [
    ["s3://b/x/y", "s3a://b/x/y", "s3n://b/x/y"],
    ["s3://b/x", "s3n://b/x"],
    ["s3://B/X", "s3a://B/X"],
    ["file:///x/y", "/x/y", "file:/x/y", "file://localhost/x/y"],
    ["file:///a b/%20+%2B", "/a b/%20+%2B", "file:/a b/%20+%2B"],
    ["s3://b/x y/100%/%zz+%s3a", "s3a://b/x y/100%/%zz+%s3a"],
    ["s3://b/t=10:30:00/a:b", "s3n://b/t=10:30:00/a:b"],
    ["s3://b/é/\N{GRINNING FACE}/\N{LINE SEPARATOR}x\n", "s3a://b/é/\N{GRINNING FACE}/\N{LINE SEPARATOR}x\n"],
    ["hdfs://nn:8020/x"],
    ["hdfs:///x", "hdfs:/x"],
    ["abfss://container@account/x"],
    ["abfs://container@account/x"],
    ["dbfs:///x", "dbfs:/x"],
    ["gs://b/$1/x"],
]


def on_spark(spark: SparkSession, uris: list[str], column: Callable[[str], Column]) -> list[str]:
    """The result of a function of columns for each text."""
    return [
        row[0] for row in spark.createDataFrame([(uri,) for uri in uris], "uri string").select(column("uri")).collect()
    ]


def test_rule_16_python_and_spark_agree_on_the_canonical_uri(spark: SparkSession) -> None:
    uris = [uri for line in SPELLINGS for uri in line]
    expected = [line[0] for line in SPELLINGS for _ in line]
    assert [canonical_uri(parse_location(uri)) for uri in uris] == expected
    assert on_spark(spark, uris, canonical_uri_column) == expected


@given(st.lists(segments, min_size=1, max_size=4))
def test_rule_16_a_canonical_uri_leads_to_the_same_location(names):
    location = parse_location(f"s3a://b/{'/'.join(names)}")
    assert parse_location(canonical_uri(location)) == location.canonical


def test_rule_16_a_path_of_the_log_has_the_canonical_uri_of_its_file(spark: SparkSession) -> None:
    files = [line[0] for line in SPELLINGS]
    for root in ("s3a://b/t", "/x", "hdfs://nn:8020/t"):
        written_paths = [add_path(parse_location(file), parse_location(root)) for file in files]
        column = on_spark(spark, written_paths, lambda path: canonical_log_uri_column(path, parse_location(root)))  # noqa: B023
        assert column == files
        assert [canonical_log_uri(path, parse_location(root)) for path in written_paths] == files


@pytest.mark.parametrize("path", ["a%", "a%2", "%zz/a", "a%FFb"])
def test_a_path_of_the_log_that_is_not_url_encoded_has_no_canonical_uri(path: str) -> None:
    with pytest.raises(ValueError, match=r"per cent sign|utf-8"):
        canonical_log_uri(path, parse_location("/x"))


def test_folders_end_without_slashes_but_names_of_files_are_not_changed(spark: SparkSession) -> None:
    assert canonical_uri(parse_location("s3a://b/x//")) == "s3://b/x"
    assert canonical_uri(parse_location("s3a://b/")) == "s3://b"
    # On S3 x/ is another object than x. What is spelt like this is not equal to its location, so it is never deleted.
    odd = ["s3://b/x/", "S3://b/x", "s3://b//x"]
    assert on_spark(spark, odd, canonical_uri_column) == odd


@pytest.mark.parametrize(
    "spellings",
    [
        *SPELLINGS,
        ["s3://b/x/y", "S3a://b/x/y", "s3n://b//x///y"],
        ["hdfs://nn:8020/x", "hdfs:///x", "hdfs:/x", "ViewFS://c/x"],
        ["/x/y", "file:/x/y", "file:///x/y", "FILE:////x//y"],
        ["abfss://c@a/x", "abfs://c@a/x"],
        ["wasbs://c@a/x", "wasb://c@a/x"],
        ["dbfs:/x", "DBFS:///x"],
    ],
    ids=lambda spellings: ascii(spellings[0]),
)
def test_a_loose_uri_is_the_same_in_python_and_on_spark(spark: SparkSession, spellings: list[str]):
    found = {*map(loose_uri, spellings), *on_spark(spark, spellings, loose_uri_column)}
    assert len(found) == 1


def test_a_loose_uri_is_equal_wherever_the_canonical_one_is():
    for line in SPELLINGS:
        assert {loose_uri(canonical_uri(parse_location(uri))) for uri in line} == {loose_uri(line[0])}


def test_the_innermost_location_holds_a_file():
    locations = ["s3a://b/t", "s3://b/t/p=1", "hdfs:///t", "file:///t"]
    index = LocationIndex([parse_location(location) for location in locations])
    assert index.find("s3n://b/t/p=1/x/f") == (1, "x/f")
    assert index.find("s3://b/t/p=2/f") == (0, "p=2/f")
    assert index.find("s3://b/t/a//../f") == (0, "a//../f")
    assert index.find("s3://b/t2/f") is None
    assert index.find("s3://c/t/f") is None
    assert index.find("hdfs://nn:8020/t/f") == (2, "f")
    assert index.find("file:///t/f") == (3, "f")


def test_local_paths_have_three_spellings():
    assert {parse_location(text) for text in ("/a/b", "file:/a/b", "file:///a/b/")} == {parse_location("/a/b")}
    assert written("file:/x/a b", "/t") == "file:///x/a%20b"


@pytest.mark.parametrize(
    "location",
    [
        "s3://bucket/a/../b",
        "s3://bucket/a/./b",
        "s3://bucket/a//b",
        "s3://user:secret@bucket/a",
        "s3n://user:sec/secret@bucket/a",
        "https://user:secret@host/a",
        "s3://user:secret/a",
        "s3:///a",
        "http://host/a",
        "jdbc:derby:x",
        "relative/path",
        "",
        "file://host/a",
        "s3://bucket/a\0b",
    ],
)
def test_rule_52_a_location_is_not_trusted(location):
    with pytest.raises(PermanentError) as caught:
        parse_location(location)
    assert "secret" not in str(caught.value)


def test_rule_52_roots_can_be_allow_listed():
    check_allowed(ROOT, ["s3a://bucket/warehouse"])
    check_allowed(ROOT, ["s3://bucket/warehouse/orders/"])
    check_allowed(ROOT, [])
    with pytest.raises(PermanentError, match="outside the allowed roots s3://bucket/ware"):
        check_allowed(ROOT, ["s3://bucket/ware"])


@pytest.mark.parametrize("path", ["f.parquet", "000000_0", "p=1/000000_0", "_col=1/f", "a/b/HIVE_UNION_SUBDIR_1/f"])
def test_rule_40_a_data_file_has_any_name_that_is_not_hidden(path):
    assert not is_hidden(path)


@pytest.mark.parametrize(
    "path",
    [
        "_SUCCESS",
        "_temporary/0/f.parquet",
        "p=1/.hive-staging_hive_2024/f",
        "_spark_metadata/0",
        "p=1_$folder$",
        ".f.parquet.crc",
        "_delta_log/0.json",
        "f._COPYING_",
        ".p=1/f",
    ],
)
def test_rule_40_hidden_names(path):
    assert is_hidden(path)


def test_rule_40_outside_the_root_only_the_partition_and_the_file_are_judged():
    assert not is_hidden_outside(parse_location("s3://b/_archive/p=1/f"))
    assert is_hidden_outside(parse_location("s3://b/archive/p=1/_x"))
    assert is_hidden_outside(parse_location("s3://b/archive/p=1/.tmp/f"))
    assert is_hidden_outside(parse_location("s3://b/archive/_temporary/0/p=1/f"))


def test_an_at_sign_in_a_path_is_only_a_name():
    for text in ("s3://bucket/a@b:c", "hdfs://nn:8020/a@b", "abfss://container@account.example/a"):
        assert str(parse_location(text)) == text
