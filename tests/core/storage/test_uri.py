"""Paths: rules 14 to 16, 40 and 52."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.storage.uri import (
    add_path,
    check_allowed,
    is_hidden,
    is_hidden_outside,
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


def test_rule_16_s3_s3a_and_s3n_are_one_place_spelt_as_the_table_is():
    assert written("s3a://bucket/warehouse/orders/f") == "f"
    assert written("s3n://other/f", "s3a://bucket/t") == "s3a://other/f"
    assert parse_location("s3a://b/t/").place == parse_location("s3://b/t").place


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
