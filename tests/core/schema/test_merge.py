"""The schema of a table from its catalog and its files: rules 10 to 12, 23 and 25 to 30."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from airflow_hive_to_delta.core.errors import SchemaError
from airflow_hive_to_delta.core.readers import failing
from airflow_hive_to_delta.core.schema.evidence import Evidence
from airflow_hive_to_delta.core.schema.merge import build_table_schema
from airflow_hive_to_delta.core.schema.translation import (
    build_delta_schema_from_glue,
    hive_type_of,
)
from airflow_hive_to_delta.core.schema.types import (
    CHAR_VARCHAR,
    field_of,
    struct_of,
    walk_fields,
)
from tests.support.schemas import array, files, mapping, metadata_of, struct, types_of

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
