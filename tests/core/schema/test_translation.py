"""Hive's and Spark's types and schemas in Delta's words: rules 12 and 26 to 28."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from airflow_hive_to_delta.core.errors import SchemaError
from airflow_hive_to_delta.core.schema.translation import (
    build_delta_schema_from_glue,
    build_delta_schema_from_spark,
    hive_type_of,
    parse_hive_type,
    spark_type_of,
)
from airflow_hive_to_delta.core.schema.types import (
    CHAR_VARCHAR,
    GLUE_TO_DELTA_TYPE_MAP,
    MAX_DEPTH,
    field_of,
    struct_of,
    walk_fields,
)
from tests.support.schemas import array, mapping, metadata_of, struct, structs_of
from tests.support.spark_versions import IS_SPARK_4

# Hive's words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *GLUE_TO_DELTA_TYPE_MAP.items(),
        ("  BigInt ", "long"),
        ("Double\t Precision", "double"),
        ("timestamp  with local time zone", "timestamp"),
        ("decimal", "decimal(10,0)"),
        ("dec(5)", "decimal(5,0)"),
        ("NUMERIC( 38 , 38 )", "decimal(38,38)"),
        ("char(5)", "string"),
        ("varchar( 20 )", "string"),
        ("array<map<string,array<int>>>", array(mapping("string", array("integer")))),
        ("Struct< a : int , B:string >", struct(a="integer", B="string")),
        ("struct<`a:b`:int,`c``d` : int,e f:int>", struct(**{"a:b": "integer", "c`d": "integer", "e f": "integer"})),
        ("struct<date:date,int:int,comment:string>", struct(date="date", int="integer", comment="string")),
    ],
)
def test_hive_types_are_read_ignoring_case_and_spaces(text, expected):
    assert parse_hive_type(text) == expected


def test_rule_28_a_struct_with_a_decimal_has_two_fields_and_keeps_the_decimal():
    assert parse_hive_type("struct<A:decimal(10,2),B:int>") == struct(A="decimal(10,2)", B="integer")


def test_rule_27_comments_inside_a_struct_are_kept():
    parsed: Any = parse_hive_type(r"""struct<a:int comment 'it\'s, <b:x>',b:array<int> COMMENT "y">""")
    assert metadata_of(parsed) == {"a": {"comment": "it's, <b:x>"}, "b": {"comment": "y"}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("uniontype<int,string>", "uniontype"),
        ("void", "void"),
        ("interval_day_time", "interval_day_time"),
        ("interval day to second", "interval"),
        ("int8", "int8"),
        ("ſmallint", "ſmallint"),
        ("array<struct<a:uniontype<int>>>", "uniontype"),
        ("decimal(39,0)", "1 to 38"),
        ("decimal(0,0)", "1 to 38"),
        ("decimal(5,6)", "1 to 38"),
        ("decimal(" + "9" * 5000 + ")", "'\\('"),
        ("char", "length"),
        ("varchar", "length"),
        ("char(0)", "no room"),
        ("array", "array"),
        ("array<int", "expected"),
        ("array<>", "'>' is not a type"),
        ("map<int>", "','"),
        ("struct<>", "name"),
        ("struct<a int>", "name"),
        ("struct< :int>", "name"),
        ("int, string", "','"),
        ("", "too early"),
    ],
)
def test_rule_28_a_type_nobody_knows_is_an_error_that_names_column_and_type(text, problem):
    with pytest.raises(SchemaError, match=problem) as raised:
        build_delta_schema_from_glue([{"Name": "odd one", "Type": text or " "}])
    assert "odd one" in str(raised.value)
    assert text[:100] in str(raised.value)


def test_nesting_has_a_limit_with_a_clear_error():
    assert parse_hive_type("array<" * (MAX_DEPTH - 1) + "int" + ">" * (MAX_DEPTH - 1))
    with pytest.raises(SchemaError, match="more than 64"):
        parse_hive_type("array<" * 100_000 + "int" + ">" * 100_000, "deep")


PRIMITIVES = st.sampled_from(sorted(set(GLUE_TO_DELTA_TYPE_MAP.values()) | {"decimal(10,2)", "decimal(38,0)"}))


TYPES = st.recursive(
    PRIMITIVES,
    lambda inner: st.one_of(inner.map(array), st.builds(mapping, inner, inner), structs_of(inner)),
    max_leaves=8,
)


@given(TYPES)
def test_a_type_in_words_is_read_back_as_it_was(delta_type):
    assert parse_hive_type(spark_type_of(delta_type)) == delta_type


@given(st.text(st.sampled_from("<>(),:` '\\acinrstuy0159"), max_size=40))
def test_any_text_is_a_type_or_a_schema_error(text):
    with contextlib.suppress(SchemaError):
        assert parse_hive_type(text)


def test_types_go_back_to_the_words_that_glue_knows():
    delta_type = struct(a="integer", B=array("long"), m=mapping("short", "byte"), t="timestamp_ntz", d="decimal(4,2)")
    expected = "struct<a:int,B:array<bigint>,m:map<smallint,tinyint>,t:timestamp,d:decimal(4,2)>"
    assert hive_type_of(delta_type) == expected


# Schemas of catalogs


def test_rule_27_glue_columns_keep_comments_and_are_nullable_and_partition_columns_come_last():
    schema = build_delta_schema_from_glue(
        [{"Name": "id", "Type": "bigint", "Comment": "the key"}, {"name": "v", "type": "array<int>", "comment": ""}],
        {"day": "date", "zone": "char(2)"},
    )
    assert schema == struct_of(
        [
            field_of("id", "long", {"comment": "the key"}),
            field_of("v", array("integer")),
            field_of("day", "date"),
            field_of("zone", "string", {CHAR_VARCHAR: "char(2)"}),
        ]
    )
    assert all(column["nullable"] for _, column in walk_fields(schema))


def test_a_glue_column_without_a_type_is_an_error():
    with pytest.raises(SchemaError, match="expected a Name and a Type"):
        build_delta_schema_from_glue([{"Name": "a"}])


@pytest.mark.parametrize("text", ["struct<a:int,A:int>", "array<map<struct<x:int,X:int>,int>>"])
def test_rule_12_names_that_differ_by_case_only_are_refused_at_every_level(text):
    with pytest.raises(SchemaError, match="same name but for its case"):
        build_delta_schema_from_glue([{"Name": "s", "Type": text}])
    with pytest.raises(SchemaError, match="The columns a and A"):
        build_delta_schema_from_glue([{"Name": "a", "Type": "int"}], {"A": "int"})


def test_one_name_in_two_structs_is_no_conflict():
    build_delta_schema_from_glue([{"Name": "a", "Type": "map<struct<a:int>,struct<a:struct<A:int>>>"}])


def test_a_spark_schema_becomes_nullable_at_every_level_and_keeps_comments():
    inner = T.StructType([T.StructField("x", T.IntegerType(), False, {"comment": "inner", "other": 1})])
    schema = T.StructType(
        [
            T.StructField("a", T.ArrayType(inner, False), False, {"comment": "outer"}),
            T.StructField("m", T.MapType(T.StringType(), T.TimestampNTZType(), False), False),
            T.StructField("c", T.StructType([T.StructField("v", T.VarcharType(3))])),
        ]
    )
    assert build_delta_schema_from_spark(schema) == struct_of(
        [
            field_of("a", array(struct_of([field_of("x", "integer", {"comment": "inner"})])), {"comment": "outer"}),
            field_of("m", mapping("string", "timestamp_ntz")),
            field_of("c", struct(v="string"), {CHAR_VARCHAR: "struct<v:varchar(3)>"}),
        ]
    )


@pytest.mark.parametrize(
    "spark_type",
    [
        T.NullType(),
        T.DayTimeIntervalType(),
        T.StructType([]),
        *([T.CalendarIntervalType(), T.VariantType(), T.TimeType(), T.StringType("UNICODE")] if IS_SPARK_4 else []),
    ],
)
def test_rule_28_types_of_spark_that_delta_does_not_have_are_refused(spark_type):
    schema = T.StructType([T.StructField("odd", T.ArrayType(spark_type))])
    with pytest.raises(SchemaError, match="column odd"):
        build_delta_schema_from_spark(schema)


def test_rule_30_a_default_for_files_without_the_column_is_refused_because_delta_would_read_null():
    with pytest.raises(SchemaError, match="reads as 5"):
        build_delta_schema_from_spark(T.StructType([T.StructField("a", T.LongType(), True, {"EXISTS_DEFAULT": "5"})]))


def test_a_declared_length_that_is_another_type_is_refused():
    field = T.StructField("a", T.StringType(), True, {CHAR_VARCHAR: "array<char(3)>"})
    with pytest.raises(SchemaError, match="another type"):
        build_delta_schema_from_spark(T.StructType([field]))
