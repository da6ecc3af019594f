"""GlueDiscovery against moto's server."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_hive_to_delta.core.catalogs.discovery import GlueDiscovery
from airflow_hive_to_delta.core.errors import MissingError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.schema.translation import (
    build_delta_schema_from_glue,
    parse_hive_type,
)
from airflow_hive_to_delta.core.storage.aws import glue_client
from tests.support.aws import REGION

HIVE = "org.apache.hadoop.hive"
PARQUET: dict[str, Any] = {
    "InputFormat": f"{HIVE}.ql.io.parquet.MapredParquetInputFormat",
    "OutputFormat": f"{HIVE}.ql.io.parquet.MapredParquetOutputFormat",
    "SerdeInfo": {"SerializationLibrary": f"{HIVE}.ql.io.parquet.serde.ParquetHiveSerDe"},
}
TEXT_INPUT = "org.apache.hadoop.mapred.TextInputFormat"
CONVERT_REFUSES = "CONVERT TO DELTA only supports parquet tables, but you are trying to convert a {} source: {}"


def test_every_page_of_tables_is_read_in_the_order_of_their_names(glue, database: str) -> None:
    names = [f"t{i:02}" for i in range(25)]
    for name in reversed(names):
        create(glue, database, name)
    client, asked = glue_client(REGION), []

    # moto answers in one page; cut what it answers into pages of ten.
    def remember(params: dict[str, Any], **_: Any) -> None:
        asked.append(int(params.pop("NextToken", 0)))

    def cut(parsed: dict[str, Any], **_: Any) -> None:
        start, tables = asked[-1], parsed["TableList"]
        parsed["TableList"] = tables[start : start + 10]
        if start + 10 < len(tables):
            parsed["NextToken"] = str(start + 10)

    client.meta.events.register("provide-client-params.glue.GetTables", remember)
    client.meta.events.register("after-call.glue.GetTables", cut)
    try:
        found = GlueDiscovery(database, region=REGION).discover()
    finally:
        client.meta.events.unregister("provide-client-params.glue.GetTables", remember)
        client.meta.events.unregister("after-call.glue.GetTables", cut)
    assert asked == [0, 10, 20]
    assert [table.name for table in found] == names


def test_pattern_is_a_glob_on_the_name_in_any_case(glue, database: str) -> None:
    for name in ("dim_date", "dim_user", "fact_sales", "xdim_a"):
        create(glue, database, name)
    found = GlueDiscovery(database, "DIM_*", REGION).discover()
    assert [table.name for table in found] == ["dim_date", "dim_user"]
    assert GlueDiscovery(database, "nothing*", REGION).discover() == []


def test_missing_database_is_named_with_its_region(aws_endpoint: str) -> None:
    with pytest.raises(MissingError, match=rf"database no_such_db in {REGION}.*EntityNotFoundException.*Correct"):
        GlueDiscovery("no_such_db", region=REGION).discover()


def test_columns_partition_types_comments_and_properties_are_kept(glue, database: str) -> None:
    table = discovered(
        glue,
        database,
        Description="all sales",
        TableType="EXTERNAL_TABLE",
        PartitionKeys=[{"Name": "day", "Type": "date", "Comment": "of the sale"}, {"Name": "shop", "Type": "int"}],
        Parameters={"classification": "parquet", "team": "sales"},
        StorageDescriptor={
            **PARQUET,
            "Location": "s3://lake/sales",
            "Columns": [
                {"Name": "id", "Type": "bigint", "Comment": "the key"},
                {"Name": "price", "Type": "struct<A:decimal(10,2),B:int>"},
            ],
        },
    )
    assert table == TableInfo(
        name="t",
        location="s3://lake/sales",
        columns=[
            {"Name": "id", "Type": "bigint", "Comment": "the key"},
            {"Name": "price", "Type": "struct<A:decimal(10,2),B:int>"},
        ],
        partition_keys=["day", "shop"],
        partition_types={"day": "date", "shop": "int"},
        partition_comments={"day": "of the sale"},
        database=database,
        source="glue",
        region="us-east-1",
        account_id="123456789012",
        format="parquet",
        table_type="EXTERNAL_TABLE",
        comment="all sales",
        properties={"classification": "parquet", "team": "sales"},
    )
    assert table.qualified_name == f"{database}.t"
    assert TableInfo.from_dict(table.to_dict()) == table


def test_comment_may_be_a_property(glue, database: str) -> None:
    assert discovered(glue, database, Parameters={"comment": "from Hive"}).comment == "from Hive"


def test_catalog_of_another_account_is_the_tables_catalog(glue, database: str) -> None:
    create(glue, database, "t")
    (table,) = GlueDiscovery(database, region=REGION, catalog_id="123456789012").discover()
    assert table.catalog == "123456789012"


@pytest.mark.parametrize(
    ("kind", "serde", "input_format", "parameters"),
    [
        ("orc", f"{HIVE}.ql.io.orc.OrcSerde", f"{HIVE}.ql.io.orc.OrcInputFormat", {}),
        ("avro", f"{HIVE}.serde2.avro.AvroSerDe", f"{HIVE}.ql.io.avro.AvroContainerInputFormat", {}),
        ("csv", f"{HIVE}.serde2.OpenCSVSerde", TEXT_INPUT, {"classification": "parquet"}),
        ("json", "org.openx.data.jsonserde.JsonSerDe", TEXT_INPUT, {}),
        ("text", f"{HIVE}.serde2.lazy.LazySimpleSerDe", TEXT_INPUT, {}),
        ("regex", f"{HIVE}.serde2.RegexSerDe", TEXT_INPUT, {}),
        ("sequencefile", f"{HIVE}.serde2.lazy.LazySimpleSerDe", "org.apache.hadoop.mapred.SequenceFileInputFormat", {}),
        ("rcfile", f"{HIVE}.serde2.columnar.LazyBinaryColumnarSerDe", f"{HIVE}.ql.io.RCFileInputFormat", {}),
        ("text", f"{HIVE}.ql.io.parquet.serde.ParquetHiveSerDe", TEXT_INPUT, {}),
        ("ownparquet", f"{HIVE}.ql.io.parquet.serde.ParquetHiveSerDe", "com.example.OwnParquetInputFormat", {}),
        ("json", "", "", {"classification": "json"}),
        ("unknown", "", "", {}),
        ("csv", "", "", {"spark.sql.sources.provider": "com.databricks.spark.csv"}),
        ("orc", "", "", {"spark.sql.sources.provider": "ORC", "classification": "parquet"}),
        ("hbasestoragehandler", "", "", {"storage_handler": f"{HIVE}.hbase.HBaseStorageHandler"}),
    ],
)
def test_rule_45_other_file_formats_are_refused_in_the_words_of_convert(
    glue, database: str, kind: str, serde: str, input_format: str, parameters: dict[str, str]
) -> None:
    classes = {"SerdeInfo": {"SerializationLibrary": serde}, "InputFormat": input_format} if serde else {}
    storage = {"Location": "s3://lake/t", **classes}
    table = discovered(glue, database, Parameters=parameters, StorageDescriptor=storage)
    assert table.format == kind
    assert table.refusal == CONVERT_REFUSES.format(kind, f"{database}.t")


@pytest.mark.parametrize(
    ("storage", "parameters"),
    [
        (PARQUET, {}),
        ({"SerdeInfo": {"SerializationLibrary": "parquet.hive.serde.ParquetHiveSerDe"}}, {}),
        ({}, {"classification": "Parquet"}),
        ({}, {"spark.sql.sources.provider": "PARQUET"}),
        ({"InputFormat": TEXT_INPUT}, {"spark.sql.sources.provider": "org.apache.spark.sql.parquet"}),
        (PARQUET, {"transactional": "false", "projection.enabled": "false", "EXTERNAL": "TRUE"}),
    ],
)
def test_parquet_tables_are_not_refused(glue, database: str, storage: dict, parameters: dict[str, str]) -> None:
    table = discovered(glue, database, Parameters=parameters, StorageDescriptor={**storage, "Location": "s3://lake/t"})
    assert (table.format, table.refusal) == ("parquet", None)


@pytest.mark.parametrize(
    ("kind", "input_format", "parameters"),
    [
        ("iceberg", None, {"table_type": "ICEBERG"}),
        ("iceberg", None, {"metadata_location": "s3://lake/t/metadata/1.json"}),
        ("iceberg", None, {"storage_handler": "org.apache.iceberg.mr.hive.HiveIcebergStorageHandler"}),
        ("hudi", "org.apache.hudi.hadoop.HoodieParquetInputFormat", {"classification": "parquet"}),
        ("hudi", "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat", {}),
        ("hudi", None, {"spark.sql.sources.provider": "hudi"}),
        ("symlink", f"{HIVE}.ql.io.SymlinkTextInputFormat", {"classification": "parquet"}),
    ],
)
def test_rule_45_formats_that_look_like_parquet_are_not_taken_for_it(
    glue, database: str, kind: str, input_format: str | None, parameters: dict[str, str]
) -> None:
    storage = {**PARQUET, "Location": "s3://lake/t", **({"InputFormat": input_format} if input_format else {})}
    table = discovered(glue, database, Parameters=parameters, StorageDescriptor=storage)
    assert table.format == kind
    assert table.refusal
    assert f"{database}.t" in table.refusal
    assert kind in table.refusal.lower()


@pytest.mark.parametrize(
    ("reason", "parameters"),
    [
        ("ACID", {"transactional": "true"}),
        ("ACID", {"transactional": "TRUE", "transactional_properties": "insert_only"}),
        ("partition projection.*set projection.enabled to false", {"projection.enabled": "true"}),
        ("by position", {"parquet.column.index.access": "true"}),
    ],
)
def test_rule_45_properties_that_forbid_a_conversion(
    glue, database: str, reason: str, parameters: dict[str, str]
) -> None:
    refused(discovered(glue, database, Parameters=parameters), reason)


def test_rule_45_access_by_position_may_be_said_by_the_serde(glue, database: str) -> None:
    serde = {**PARQUET["SerdeInfo"], "Parameters": {"parquet.column.index.access": "true"}}
    storage = {**PARQUET, "SerdeInfo": serde, "Location": "s3://lake/t"}
    refused(discovered(glue, database, StorageDescriptor=storage), "by position")


def test_rule_45_views_links_and_tables_without_location(glue, database: str) -> None:
    create(glue, database, "a_view", TableType="VIRTUAL_VIEW", ViewOriginalText="select 1", StorageDescriptor={})
    target = {"CatalogId": "123456789012", "DatabaseName": "theirs", "Name": "sales"}
    create(glue, database, "b_link", TargetTable=target, StorageDescriptor={})
    create(glue, database, "c_nowhere", StorageDescriptor=PARQUET)
    create(glue, database, "d_nothing", StorageDescriptor={})
    create(glue, database, "e_fine")
    found = GlueDiscovery(database, region=REGION).discover()
    assert [table.format for table in found] == ["view", "link", "parquet", "unknown", "parquet"]
    refused(found[0], "is a view.*Convert the tables it reads")
    refused(found[1], r"resource link to 123456789012\.theirs\.sales")
    refused(found[2], "has no location")
    refused(found[3], "has no location")
    assert found[4].refusal is None


@pytest.mark.parametrize("hive_type", ["array<int>", "map<string,int>", "Struct<a:int>"])
def test_rule_45_partition_columns_are_primitive(glue, database: str, hive_type: str) -> None:
    table = discovered(glue, database, PartitionKeys=[{"Name": "p", "Type": hive_type}])
    refused(table, r"partitioned by p of the type")


@pytest.mark.parametrize("location", ["s3://lake/../other", "ftp://lake/t", "lake/t", "s3:///t"])
def test_rule_52_locations_are_not_trusted(glue, database: str, location: str) -> None:
    table = discovered(glue, database, StorageDescriptor={**PARQUET, "Location": location})
    refused(table, rf"The location of {database}\.t")


def test_rule_45_bucketed_tables_are_refused_unless_allowed(glue, database: str) -> None:
    storage = {**PARQUET, "Location": "s3://lake/t", "BucketColumns": ["id"], "NumberOfBuckets": 4}
    table = discovered(glue, database, StorageDescriptor=storage)
    assert table.bucket_columns == ["id"]
    assert "bucketed by id" in (table.why_refused(ConversionOptions()) or "")
    assert table.why_refused(ConversionOptions(allow_bucketed=True)) is None


@pytest.mark.parametrize(
    "parameters",
    [
        {"table_type": "DELTA", "classification": "delta"},
        {"spark.sql.sources.provider": "delta", "spark.sql.sources.schema": "broken"},
        {"spark.sql.sources.provider": "DELTA", "table_type": "ICEBERG", "metadata_location": "s3://lake/t/m.json"},
    ],
)
def test_delta_tables_are_left_to_the_converter(glue, database: str, parameters: dict[str, str]) -> None:
    table = discovered(glue, database, Parameters=parameters)
    assert (table.format, table.refusal) == ("delta", None)


def spark_field(name: str, spark_type: Any, **metadata: str) -> dict[str, Any]:
    return {"name": name, "type": spark_type, "nullable": True, "metadata": metadata}


SPARK_FIELDS = [
    spark_field("Id", "long", comment="the key"),
    spark_field("Code", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(10)"),
    spark_field(
        "Nested",
        {
            "type": "struct",
            "fields": [
                spark_field("a b`c", "short"),
                spark_field("M", {"type": "map", "keyType": "string", "valueType": "byte", "valueContainsNull": True}),
                spark_field("x:y", {"type": "array", "elementType": "decimal(10,2)", "containsNull": True}),
            ],
        },
    ),
    spark_field("Region", "string"),
    spark_field("Day", "date", comment="of the sale"),
]


def spark_parameters(fields: list[dict[str, Any]], keys: list[str], parts: int = 1) -> dict[str, str]:
    """The properties that Spark keeps the schema of a table in."""
    text = json.dumps({"type": "struct", "fields": fields})
    parameters = {"spark.sql.sources.schema.numPartCols": str(len(keys))} if keys else {}
    parameters |= {f"spark.sql.sources.schema.partCol.{i}": key for i, key in enumerate(keys)}
    if parts == 1:
        return {**parameters, "spark.sql.sources.schema": text}
    size = -(-len(text) // parts)
    pieces = {f"spark.sql.sources.schema.part.{i}": text[i * size : (i + 1) * size] for i in range(parts)}
    return {**parameters, **pieces, "spark.sql.sources.schema.numParts": str(parts)}


@pytest.mark.parametrize("parts", [1, 3, 12])
def test_spark_tables_have_the_columns_of_their_properties(glue, database: str, parts: int) -> None:
    table = discovered(
        glue,
        database,
        PartitionKeys=[{"Name": "day", "Type": "date"}, {"Name": "region", "Type": "string"}],
        Parameters={
            **spark_parameters(SPARK_FIELDS, ["Day", "Region"], parts),
            "spark.sql.sources.provider": "parquet",
            "spark.sql.partitionProvider": "catalog",
            "spark.sql.sources.schema.numBuckets": "4",
            "spark.sql.sources.schema.numBucketCols": "1",
            "spark.sql.sources.schema.bucketCol.0": "Id",
        },
        StorageDescriptor={
            "Location": "s3://warehouse/t-__PLACEHOLDER__",
            "Columns": [{"Name": "col", "Type": "array<string>"}],
            "InputFormat": "org.apache.hadoop.mapred.SequenceFileInputFormat",
            "SerdeInfo": {
                "SerializationLibrary": f"{HIVE}.serde2.lazy.LazySimpleSerDe",
                "Parameters": {"path": "s3://lake/t", "serialization.format": "1"},
            },
        },
    )
    assert table.refusal is None
    assert table.format == "parquet"
    assert table.location == "s3://lake/t"
    assert table.columns == [
        {"Name": "Id", "Type": "bigint", "Comment": "the key"},
        {"Name": "Code", "Type": "varchar(10)"},
        {"Name": "Nested", "Type": "struct<`a b``c`:smallint,M:map<string,tinyint>,`x:y`:array<decimal(10,2)>>"},
    ]
    assert table.partition_keys == ["Day", "Region"]
    assert table.partition_types == {"Day": "date", "Region": "string"}
    assert table.partition_comments == {"Day": "of the sale"}
    assert table.bucket_columns == ["Id"]
    assert table.properties == {"spark.sql.sources.provider": "parquet", "spark.sql.partitionProvider": "catalog"}
    nested = build_delta_schema_from_glue(table.columns)["fields"][2]["type"]
    assert [f["name"] for f in nested["fields"]] == ["a b`c", "M", "x:y"]
    assert nested == parse_hive_type(table.columns[2]["Type"])


def test_spark_copy_of_a_hive_tables_columns_gives_their_case(glue, database: str) -> None:
    table = hive_table_with_spark_copy(glue, database, [{"Name": "id", "Type": "bigint"}])
    assert table.columns == [{"Name": "Id", "Type": "bigint", "Comment": "the key"}]
    assert table.partition_types == {"Day": "date"}


def test_spark_copy_of_a_hive_tables_columns_is_passed_over_when_out_of_date(glue, database: str) -> None:
    columns = [{"Name": "id", "Type": "bigint"}, {"Name": "added_by_athena", "Type": "string"}]
    table = hive_table_with_spark_copy(glue, database, columns)
    assert table.columns == columns
    assert table.partition_types == {"day": "date"}
    assert table.refusal is None


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"spark.sql.sources.schema": "{not json"}, "cannot be used"),
        ({"spark.sql.sources.schema": '{"type":"struct"}'}, "fields"),
        ({"spark.sql.sources.schema.numParts": "2", "spark.sql.sources.schema.part.0": "{}"}, r"part\.1"),
        ({"spark.sql.sources.schema.numParts": "many"}, "many"),
        (spark_parameters(SPARK_FIELDS, ["Elsewhere"]), "elsewhere"),
        (spark_parameters([spark_field("u", {"type": "udt", "pyClass": "antigravity.X"})], []), "udt"),
        (
            spark_parameters([spark_field("d", "long", EXISTS_DEFAULT="7")], []),
            "The column d reads as 7",
        ),
    ],
)
def test_unusable_spark_schema_is_a_refusal(glue, database: str, parameters: dict[str, str], reason: str) -> None:
    table = discovered(glue, database, Parameters={**parameters, "spark.sql.sources.provider": "parquet"})
    refused(table, rf"spark\.sql\.sources\.schema.*{reason}")


def hive_table_with_spark_copy(glue, database: str, columns: list[dict[str, str]]) -> TableInfo:
    return discovered(
        glue,
        database,
        PartitionKeys=[{"Name": "day", "Type": "date"}],
        Parameters=spark_parameters([SPARK_FIELDS[0], SPARK_FIELDS[4]], ["Day"]),
        StorageDescriptor={**PARQUET, "Location": "s3://lake/t", "Columns": columns},
    )


def create(glue, database: str, name: str, **table: Any) -> None:
    storage = {**PARQUET, "Location": f"s3://lake/{name}", "Columns": [{"Name": "id", "Type": "bigint"}]}
    glue.create_table(DatabaseName=database, TableInput={"Name": name, "StorageDescriptor": storage, **table})


def discovered(glue, database: str, **table: Any) -> TableInfo:
    create(glue, database, "t", **table)
    (found,) = GlueDiscovery(database, region=REGION).discover()
    return found


def refused(table: TableInfo, reason: str) -> None:
    assert table.refusal is not None
    assert table.qualified_name in table.refusal
    assert re.search(reason, table.refusal), table.refusal


@pytest.fixture
def database(glue) -> Iterator[str]:
    name = f"db_{uuid.uuid4().hex[:12]}"
    glue.create_database(DatabaseInput={"Name": name})
    yield name
    glue.delete_database(Name=name)
