"""Schemas as Spark and Delta write them themselves: rules 11, 26 and 29."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_hive_to_delta.core.schema.merge import build_table_schema
from airflow_hive_to_delta.core.schema.translation import (
    build_delta_schema_from_glue,
    build_delta_schema_from_spark,
)
from airflow_hive_to_delta.core.schema.types import (
    field_of,
    struct_of,
)
from tests.support.schemas import array, files, mapping, metadata_of, struct
from tests.support.spark_versions import needs_spark_4


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


@needs_spark_4("Delta 3.3 widens no columns from INT to BIGINT in a struct")
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


@needs_spark_4("Delta 3.3 reads fewer type changes")
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
    inner: dict[str, Any] = {
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
