"""Types and schemas: rules 10 to 12, 23 and 25 to 30."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from airflow_hive_to_delta.core.errors import SchemaError
from airflow_hive_to_delta.core.readers import failing
from airflow_hive_to_delta.core.schema.evidence import Evidence
from airflow_hive_to_delta.core.schema.merge import build_table_schema
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
    nested_of,
    struct_of,
    walk_fields,
)
from tests.support.spark_versions import IS_SPARK_4


def array(element):
    return nested_of("array", {"element": element})


def mapping(key, value):
    return nested_of("map", {"key": key, "value": value})


def struct(**fields):
    return struct_of([field_of(name, delta_type) for name, delta_type in fields.items()])


def files(*schemas) -> Evidence:
    """The evidence of files a.parquet, b.parquet, … with these schemas."""
    evidence = Evidence()
    for letter, schema in zip("abcdefgh", schemas, strict=False):
        evidence = evidence.merge(Evidence.of_file(schema, f"{letter}.parquet"))
    return evidence


def types_of(schema) -> dict:
    return {column["name"]: column["type"] for column in schema["fields"]}


def metadata_of(schema) -> dict:
    return {".".join(path): column["metadata"] for path, column in walk_fields(schema)}


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
    parsed = parse_hive_type(r"""struct<a:int comment 'it\'s, <b:x>',b:array<int> COMMENT "y">""")
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


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
PRIMITIVES = st.sampled_from(sorted(set(GLUE_TO_DELTA_TYPE_MAP.values()) | {"decimal(10,2)", "decimal(38,0)"}))


def structs_of(inner, names=NAMES):
    fields = st.lists(st.tuples(names, inner), min_size=1, max_size=4, unique_by=lambda pair: pair[0].lower())
    return fields.map(lambda pairs: struct_of([field_of(*pair) for pair in pairs]))


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


# Evidence

FILE_TYPES = st.recursive(
    st.sampled_from(["integer", "long", "decimal(5,2)", "decimal(4,3)", "string"]),
    lambda inner: st.one_of(
        inner.map(array), st.builds(mapping, inner, inner), structs_of(inner, st.sampled_from("abAB"))
    ),
    max_leaves=5,
)
FILES = st.builds(
    Evidence.of_file,
    structs_of(FILE_TYPES, st.sampled_from(["a", "A", "b", "c", "C", "d e"])),
    st.sampled_from(["p1", "p2", "p3", "p4"]),
)


@given(FILES, FILES, FILES)
def test_evidence_merges_in_any_order_any_grouping_and_any_number_of_times(one, two, three):
    assert one.merge(two) == two.merge(one)
    assert one.merge(two).merge(three) == one.merge(two.merge(three))
    assert one.merge(one) == one
    assert one.merge(two).merge(two) == one.merge(two)
    assert Evidence().merge(one) == one == one.merge(Evidence())


@given(FILES, FILES)
def test_evidence_travels_as_json(one, two):
    merged = one.merge(two)
    assert Evidence.from_json(merged.to_json()) == merged
    assert Evidence.from_json(Evidence().to_json()) == Evidence()


@settings(max_examples=200)
@given(st.lists(FILES, min_size=1, max_size=4), st.randoms())
def test_the_schema_does_not_depend_on_the_order_of_merging(evidence, random):
    def outcome(order):
        merged = Evidence()
        for one in order:
            merged = merged.merge(one)
        try:
            return build_table_schema(merged, None, {"d E": "integer"}, allow_name_case_conflict=True)
        except SchemaError as error:
            return str(error)

    shuffled = random.sample(evidence, len(evidence))
    assert outcome(evidence) == outcome(shuffled)


def test_evidence_does_not_grow_with_the_number_of_files():
    evidence = Evidence()
    for number in range(1000):
        evidence = evidence.merge(Evidence.of_file(struct(a="integer", b=struct(c="string")), f"{number:04}.parquet"))
    assert evidence == Evidence.of_file(struct(a="integer", b=struct(c="string")), "0000.parquet")


@pytest.mark.parametrize("schema", [struct(A="integer", a="long"), struct(s=array(struct(A="integer", a="integer")))])
def test_rule_12_two_spellings_in_one_file_are_refused(schema):
    with pytest.raises(SchemaError, match=r"twice\.parquet.*A and .*a,"):
        Evidence.of_file(schema, "twice.parquet")


def test_the_order_of_columns_is_that_of_the_smallest_path_and_later_columns_follow():
    evidence = files(struct(x="string", y="string"), struct(z="string", x="string", y="string"))
    assert list(types_of(build_table_schema(evidence, None, {}).schema)) == ["x", "y", "z"]


# Resolution: columns and names


def test_rule_12_names_are_spelt_as_in_the_files_at_every_level():
    catalog = build_delta_schema_from_glue(
        [
            {"Name": "userid", "Type": "bigint", "Comment": "who"},
            {"Name": "tags", "Type": "array<struct<keyname:char(3),val:int>>"},
            {"Name": "infoless", "Type": "string"},
        ]
    )
    evidence = files(struct(tags=array(struct(Val="integer", keyName="string")), userId="long"))
    assert build_table_schema(evidence, catalog, {}).schema == struct_of(
        [
            field_of("userId", "long", {"comment": "who"}),
            field_of(
                "tags",
                array(struct(keyName="string", Val="integer")),
                {CHAR_VARCHAR: "array<struct<keyName:char(3),Val:int>>"},
            ),
            field_of("infoless", "string"),
        ]
    )


def test_rule_12_files_that_spell_a_name_differently_are_refused_or_accepted_knowingly():
    evidence = files(struct(s=struct(B="string")), struct(s=struct(b="string")))
    with pytest.raises(SchemaError, match=r"s\.B in a\.parquet, s\.b in b\.parquet.*allow_name_case_conflict=True"):
        build_table_schema(evidence, None, {})
    table = build_table_schema(evidence, None, {}, allow_name_case_conflict=True)
    assert types_of(table.schema) == {"s": struct(B="string")}
    assert "a.parquet" in table.notes[0]


def test_columns_that_only_files_have_are_left_out_with_a_note_and_do_no_harm():
    evidence = files(
        struct(a="integer", s=struct(x="integer", y="integer"), Extra="string"),
        struct(a="integer", s=struct(x="integer", Y="string"), extra=array("integer")),
    )
    table = build_table_schema(evidence, struct(a="integer", s=struct(x="integer")), {})
    assert table.schema == struct(a="integer", s=struct(x="integer"))
    (note,) = table.notes
    assert "Extra (a.parquet), s.y (a.parquet)" in note


def test_rule_30_columns_that_only_the_catalog_has_stay():
    assert build_table_schema(
        files(struct(a="integer")), struct(a="integer", New=struct(Z="date")), {}
    ).schema == struct(a="integer", New=struct(Z="date"))


def test_rule_44_a_table_without_files_has_the_columns_of_the_catalog():
    catalog = struct(a="integer", p="date")
    table = build_table_schema(None, catalog, {"p": "date"})
    assert table.schema == catalog
    assert (table.features, table.configuration, table.notes) == ([], {}, [])


def test_rule_23_a_partition_column_in_the_files_takes_type_and_spelling_from_the_catalog():
    evidence = files(struct(Day="string", v="integer"), struct(DAY="long", v="integer"))
    for catalog in (None, struct(v="integer")):
        table = build_table_schema(evidence, catalog, {"day": "date", "hour": "integer"})
        assert table.schema == struct(v="integer", day="date", hour="integer")
        assert table.notes == []


def test_rule_27_the_comment_of_a_partition_column_is_kept():
    catalog = struct_of([field_of("day", "date", {"comment": "UTC"}), field_of("v", "integer")])
    table = build_table_schema(None, catalog, {"day": "date"})
    assert table.schema == struct_of([field_of("v", "integer"), field_of("day", "date", {"comment": "UTC"})])


def test_what_was_passed_in_is_not_changed():
    catalog = struct_of([field_of("a b", struct_of([field_of("c", "long", {"comment": "x"})]), {"comment": "y"})])
    before = json.dumps(catalog)
    build_table_schema(None, catalog, {"p": "date"})
    build_table_schema(files(struct(**{"a b": struct(c="integer")})), catalog, {"p": "date"})
    assert json.dumps(catalog) == before


@pytest.mark.parametrize("evidence", [None, Evidence(), files(struct(p="string"))])
@pytest.mark.parametrize("partitions", [{}, {"p": "string"}])
def test_a_table_without_columns_is_refused(evidence, partitions):
    if evidence is not None and "p" in evidence.fields and not partitions:
        partitions = {"P": "string"}
    with pytest.raises(SchemaError, match=r"no columns beside its partition columns.*Declare"):
        build_table_schema(evidence, None, partitions)


def test_an_empty_name_is_refused():
    with pytest.raises(SchemaError, match="inside s has an empty name"):
        build_table_schema(files(struct(s=struct_of([field_of("", "string")]))), None, {})


def test_rule_12_partition_columns_that_differ_by_case_only_are_refused():
    with pytest.raises(SchemaError, match="The columns P and p"):
        build_table_schema(None, struct(a="string"), {"P": "string", "p": "string"})


def test_a_partition_column_of_a_nested_type_is_refused():
    with pytest.raises(SchemaError, match="partition column p"):
        build_table_schema(None, struct(a="string"), {"p": "array<int>"})


# Resolution: types


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        *itertools.combinations(["byte", "short", "integer", "long"], 2),
        ("float", "double"),
        ("decimal(5,2)", "decimal(7,2)"),
        ("decimal(5,2)", "decimal(7,4)"),
    ],
)
def test_rule_29_a_narrower_file_is_allowed_and_recorded(narrow, wide):
    for evidence, catalog in [
        (files(struct(c=narrow), struct(c=wide)), None),
        (files(struct(c=wide), struct(c=narrow)), None),
        (files(struct(c=narrow)), struct(c=wide)),
    ]:
        table = build_table_schema(evidence, catalog, {})
        assert table.schema == struct_of(
            [field_of("c", wide, {"delta.typeChanges": [{"fromType": narrow, "toType": wide}]})]
        )
        assert table.features == ["typeWidening"]
        assert table.configuration == {"delta.enableTypeWidening": "true"}
        assert f"{failing('typeWidening')} do not" in table.notes[0]


def test_rule_29_without_the_option_the_wider_type_stays_and_a_note_warns_of_spark_3():
    table = build_table_schema(files(struct(c="integer"), struct(c="long")), None, {}, type_widening=False)
    assert (table.schema, table.features, table.configuration) == (struct(c="long"), [], {})
    assert "c (bigint; int in a.parquet)" in table.notes[0]
    assert "typeWidening is off" in table.notes[0]
    assert f"{failing('narrower files')} do not" in table.notes[0]


def test_rule_29_files_that_equal_the_table_need_no_feature():
    assert build_table_schema(files(struct(c="long"), struct(c="long")), struct(c="long"), {}).features == []


def test_rule_29_decimals_widen_to_the_least_type_that_keeps_all_digits():
    evidence = files(struct(d="decimal(10,2)"), struct(d="decimal(8,4)"), struct(d="decimal(7,1)"))
    (column,) = build_table_schema(evidence, None, {}).schema["fields"]
    assert column["type"] == "decimal(12,4)"
    assert column["metadata"]["delta.typeChanges"] == [
        {"fromType": "decimal(7,1)", "toType": "decimal(10,2)"},
        {"fromType": "decimal(8,4)", "toType": "decimal(12,4)"},
        {"fromType": "decimal(10,2)", "toType": "decimal(12,4)"},
    ]


def test_rule_29_changes_are_on_the_nearest_field_with_the_path_from_it():
    narrow = struct(m=mapping("integer", array("float")), s=struct(l=array(array("short")), t=array(struct(x="byte"))))
    middle = struct(m=mapping("integer", array("float")), s=struct(l=array(array("integer"))))
    wide = struct(m=mapping("long", array("double")), s=struct(l=array(array("long")), t=array(struct(x="short"))))
    table = build_table_schema(files(narrow, middle), wide, {})
    assert {name: value.get("delta.typeChanges") for name, value in metadata_of(table.schema).items()} == {
        "m": [
            {"fromType": "integer", "toType": "long", "fieldPath": "key"},
            {"fromType": "float", "toType": "double", "fieldPath": "value.element"},
        ],
        "s": None,
        "s.l": [
            {"fromType": "short", "toType": "integer", "fieldPath": "element.element"},
            {"fromType": "integer", "toType": "long", "fieldPath": "element.element"},
        ],
        "s.t": None,
        "s.t.element.x": [{"fromType": "byte", "toType": "short"}],
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("integer", "string"),
        ("integer", "double"),
        ("long", "decimal(20,0)"),
        ("date", "timestamp"),
        ("timestamp", "timestamp_ntz"),
        ("binary", "string"),
        ("decimal(38,0)", "decimal(38,10)"),
        ("string", array("string")),
        (struct(a="string"), array("string")),
        (mapping("string", "string"), struct(key="string")),
    ],
)
def test_rule_29_other_differences_are_refused_naming_column_types_and_files(one, other):
    evidence = files(struct(s=struct(c=one)), struct(s=struct(c=other)))
    with pytest.raises(SchemaError, match=r"s\.c is .* in the file a\.parquet and .* in the file b\.parquet"):
        build_table_schema(evidence, None, {})
    for declared, file_type in ((one, other), (other, one)):
        with pytest.raises(SchemaError, match=r"s\.c is .* in the catalog and .* in the file a\.parquet"):
            build_table_schema(files(struct(s=struct(c=file_type))), struct(s=struct(c=declared)), {})


@pytest.mark.parametrize(
    ("declared", "found"), [("integer", "long"), ("decimal(5,2)", "decimal(6,2)"), ("float", "double")]
)
def test_rule_29_a_file_that_is_wider_than_the_catalog_is_refused(declared, found):
    with pytest.raises(SchemaError, match=re.escape(f"Give the column the type {hive_type_of(found)} in")):
        build_table_schema(files(struct(c=found)), struct(c=declared), {})


def test_the_pair_that_is_named_is_one_that_does_not_fit():
    evidence = files(struct(c="integer"), struct(c="long"), struct(c="string"))
    with pytest.raises(SchemaError, match=r"is int in the file a\.parquet and string in the file c\.parquet"):
        build_table_schema(evidence, None, {})


def test_bytes_are_text_only_when_asked_for():
    evidence, catalog = files(struct(c="binary")), struct(c="string")
    with pytest.raises(SchemaError, match="binary_as_string=True"):
        build_table_schema(evidence, catalog, {})
    table = build_table_schema(evidence, catalog, {}, binary_as_string=True)
    assert table.schema == catalog
    assert "c" in table.notes[0]
    assert build_table_schema(evidence, None, {}, binary_as_string=True).schema == struct(c="binary")


def test_rule_26_char_and_varchar_fit_string_files():
    catalog = build_delta_schema_from_glue([{"Name": "c", "Type": "char(3)"}])
    assert build_table_schema(files(struct(c="string")), catalog, {}).schema == catalog


def test_rule_28_a_file_type_that_delta_does_not_have_is_refused_where_the_column_is_wanted():
    evidence = files(struct(a="integer", t="time"))
    with pytest.raises(SchemaError, match=r"column t is of the type 'time' in the file a\.parquet"):
        build_table_schema(evidence, None, {})
    assert build_table_schema(evidence, struct(a="integer"), {}).schema == struct(a="integer")


# Resolution: features


@pytest.mark.parametrize(
    ("schema", "partitions"),
    [
        (struct(t="timestamp_ntz"), {}),
        (struct(t=array(mapping("string", struct(x="timestamp_ntz")))), {}),
        (struct(a="string"), {"p": "timestamp_ntz"}),
    ],
)
def test_rule_10_timestamp_ntz_needs_its_feature(schema, partitions):
    assert build_table_schema(None, schema, partitions).features == ["timestampNtz"]
    assert build_table_schema(None, struct(a="timestamp"), {}).features == []


@pytest.mark.parametrize("character", " ,;{}()\n\t=")
def test_rule_11_special_names_at_any_level_need_column_mapping(character):
    name = f"x{character}y"
    schemas = [struct(**{name: "string"}), struct(a=array(struct(**{name: "string"})))]
    for evidence, partitions in [
        (files(schemas[0]), {}),
        (files(schemas[1]), {}),
        (files(struct(a="date")), {name: "date"}),
    ]:
        table = build_table_schema(evidence, None, partitions)
        fields = [column for _, column in walk_fields(table.schema)]
        assert table.features == ["columnMapping"]
        assert table.configuration == {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": str(len(fields)),
        }
        assert [column["metadata"]["delta.columnMapping.id"] for column in fields] == list(range(1, len(fields) + 1))
        assert all(column["metadata"]["delta.columnMapping.physicalName"] == column["name"] for column in fields)
        assert name in table.notes[0]


def test_rule_11_other_characters_need_none():
    assert build_table_schema(files(struct(**{"a.b-c/d:é%`": "string"})), None, {}).features == []


# Against Spark and Delta Lake


def last_metadata(location: str) -> dict:
    entries = sorted(Path(location, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for entry in entries for line in entry.read_text().splitlines()]
    return [action["metaData"] for action in actions if "metaData" in action][-1]


def write_delta_table(location: Path, table, names: list[str], partitions=()) -> None:
    features = table.features
    protocol = (
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
        if features
        else {"minReaderVersion": 1, "minWriterVersion": 2}
    )
    metadata = {
        "id": location.name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(table.schema),
        "partitionColumns": list(partitions),
        "configuration": table.configuration,
    }
    adds = [
        {
            "path": name,
            "partitionValues": dict.fromkeys(partitions, "7"),
            "size": (location / name).stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
        }
        for name in names
    ]
    actions = [{"protocol": protocol}, {"metaData": metadata}, *({"add": add} for add in adds)]
    (location / "_delta_log").mkdir()
    (location / "_delta_log" / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def test_rule_26_types_are_written_as_spark_and_delta_write_them(spark, tmp_path):
    columns = {
        "c": "char(5)",
        "v": "varchar(7)",
        "s": "struct<a:char(5),B:array<varchar(3)>,n:int>",
        "m": "map<char(2),bigint>",
        "d": "struct<A:decimal(10,2),B:int>",
        "t": "array<map<string,timestamp_ntz>>",
        "x": "struct<a:tinyint,b:smallint,c:float,d:double,e:binary,f:date,g:timestamp,h:boolean>",
    }
    ddl = ", ".join(f"{name} {text} COMMENT 'of {name}'" for name, text in columns.items())
    spark.sql(f"CREATE TABLE delta.`{tmp_path}` ({ddl}) USING delta")
    ours = build_delta_schema_from_glue(
        [{"Name": name, "Type": text, "Comment": f"of {name}"} for name, text in columns.items()]
    )
    assert ours == json.loads(last_metadata(tmp_path)["schemaString"])
    assert build_delta_schema_from_spark(spark.read.format("delta").load(str(tmp_path)).schema) == ours


def test_rule_11_columns_are_numbered_as_delta_numbers_them(spark, tmp_path):
    text = "struct<a:int,b:array<struct<c:int,d:map<struct<k:int>,struct<e:int>>>>>"
    properties = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}` (`x y` int, s {text}, z int, p int) "
        f"USING delta PARTITIONED BY (p) {properties}"
    )
    theirs = last_metadata(tmp_path)
    catalog = build_delta_schema_from_glue(
        [{"Name": n, "Type": t} for n, t in (("x y", "int"), ("s", text), ("z", "int"))]
    )
    ours = build_table_schema(None, catalog, {"p": "integer"})
    identity = "delta.columnMapping.id"
    expected = {name: value[identity] for name, value in metadata_of(json.loads(theirs["schemaString"])).items()}
    assert {name: value[identity] for name, value in metadata_of(ours.schema).items()} == expected
    assert ours.configuration == theirs["configuration"]
    # Delta gives new tables random physical names; beside that the keys are the same.
    assert metadata_of(ours.schema)["s.a"].keys() == metadata_of(json.loads(theirs["schemaString"]))["s.a"].keys()


def test_rule_29_type_changes_are_written_as_delta_writes_them(spark, tmp_path):
    properties = "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}` (b byte, s struct<j:int>, m map<int, array<float>>, d decimal(8,2)) "
        f"USING delta {properties}"
    )
    for change in ["b TYPE short", "b TYPE int", "s.j TYPE bigint", "m.key TYPE bigint", "m.value.element TYPE double",
                   "d TYPE decimal(12,4)"]:  # fmt: skip
        spark.sql(f"ALTER TABLE delta.`{tmp_path}` ALTER COLUMN {change}")
    first = struct(b="byte", s=struct(j="integer"), m=mapping("integer", array("float")), d="decimal(8,2)")
    second = struct(b="short", s=struct(j="integer"), m=mapping("integer", array("float")), d="decimal(8,2)")
    third = struct(b="integer", s=struct(j="long"), m=mapping("long", array("double")), d="decimal(12,4)")
    ours, theirs = build_table_schema(files(first, second, third), None, {}), last_metadata(tmp_path)
    assert ours.schema == json.loads(theirs["schemaString"])
    assert ours.configuration == theirs["configuration"]


def test_a_resolved_table_reads_right_through_delta(spark, tmp_path):
    """Rules 11, 26 and 29 at once, nested too, over files that no Delta writer made."""
    narrow = pa.schema(
        [
            ("my id", pa.int32()),
            ("s", pa.struct([("x y", pa.string()), ("n", pa.int16())])),
            ("l", pa.list_(pa.float32())),
            ("d", pa.decimal128(5, 2)),
            ("t", pa.timestamp("us")),
        ]
    )
    wide = narrow.set(0, pa.field("my id", pa.int64())).set(2, pa.field("l", pa.list_(pa.float64())))
    for name, schema, number in (("a.parquet", narrow, 1), ("b.parquet", wide, 2**40)):
        row = {"my id": number, "s": {"x y": "ab", "n": 3}, "l": [0.5], "d": None, "t": None}
        pq.write_table(pa.Table.from_pylist([row], schema), tmp_path / name)
    inner = {
        "s": struct_of([field_of("x y", "string"), field_of("n", "short")]),
        "d": "decimal(5,2)",
        "t": "timestamp_ntz",
    }
    evidence = files(
        struct(**{"my id": "integer", **inner, "l": array("float")}),
        struct(**{"my id": "long", **inner, "l": array("double")}),
    )
    catalog = build_delta_schema_from_glue(
        [
            {"Name": "my id", "Type": "bigint"},
            {"Name": "s", "Type": "struct<x y:char(4),N:bigint>"},
            {"Name": "l", "Type": "array<double>"},
            {"Name": "d", "Type": "decimal(9,4)"},
            {"Name": "t", "Type": "timestamp_ntz"},
        ]
    )
    table = build_table_schema(evidence, catalog, {"p=q": "integer"})
    assert table.features == ["columnMapping", "timestampNtz", "typeWidening"]
    write_delta_table(tmp_path, table, ["a.parquet", "b.parquet"], ["p=q"])
    read = spark.read.format("delta").load(str(tmp_path))
    expected = [
        {"my id": n, "s": {"x y": "ab  ", "n": 3}, "l": [0.5], "d": None, "t": None, "p=q": 7} for n in (1, 2**40)
    ]
    assert [row.asDict(recursive=True) for row in read.orderBy("`my id`").collect()] == expected
    assert read.where("`my id` = 1 AND s.n = 3 AND `p=q` = 7").count() == 1
    spark.sql(f"INSERT INTO delta.`{tmp_path}` SELECT * FROM delta.`{tmp_path}`")
    assert read.count() == 4
