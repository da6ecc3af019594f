"""UCDiscovery in real Spark catalogs: the session's, on a Hive metastore, and one of JDBC tables."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta.core.catalogs.discovery import UCDiscovery
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.schema.translation import (
    build_delta_schema_from_glue,
    build_delta_schema_from_spark,
)
from tests.support.databases import new_database
from tests.support.discoveries import discover_tables
from tests.support.spark_versions import IS_SPARK_4

PARQUET_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"


@pytest.fixture
def other_database(spark: SparkSession) -> Iterator[str]:
    with new_database(spark, "other") as name:
        yield name


class Listener:
    """A session that remembers the statements it was given."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.statements: list[str] = []

    def sql(self, statement: str) -> Any:
        self.statements.append(statement)
        return self.spark.sql(statement)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spark, name)


def test_hive_table_with_its_partitions_types_and_comments(spark, database: str, tmp_path: Path) -> None:
    root = tmp_path / "a b%20c"
    spark.sql(
        f"""CREATE TABLE {database}.sales (id BIGINT COMMENT 'it\\'s the key', code VARCHAR(10), flag CHAR(1))
        COMMENT 'all sales' PARTITIONED BY (day DATE COMMENT 'of the sale', shop INT)
        STORED AS PARQUET LOCATION '{root}' TBLPROPERTIES ('team' = 'sales')"""
    )
    spark.sql(f"ALTER TABLE {database}.sales ADD PARTITION (day='2024-01-01', shop=1) LOCATION '{tmp_path}/elsewhere'")
    (table,) = discover_tables(spark, database)
    assert table.properties.pop("transient_lastDdlTime")
    assert table == TableInfo(
        name="sales",
        location=f"file:{root}",
        columns=[
            {"Name": "id", "Type": "bigint", "Comment": "it's the key"},
            {"Name": "code", "Type": "varchar(10)"},
            {"Name": "flag", "Type": "char(1)"},
        ],
        partition_keys=["day", "shop"],
        partition_types={"day": "date", "shop": "int"},
        partition_comments={"day": "of the sale"},
        catalog="spark_catalog",
        database=database,
        source="spark",
        format="parquet",
        table_type="EXTERNAL",
        comment="all sales",
        properties={"team": "sales"},
    )
    assert table.qualified_name == f"spark_catalog.{database}.sales"


def test_spark_table_keeps_case_and_odd_names(spark, database: str) -> None:
    odd = "`e:f`" if IS_SPARK_4 else "`e.f`"  # with Spark 3.5 no colon goes into a Hive metastore
    spark.sql(
        f"""CREATE TABLE {database}.t (OrderId INT, `a b` STRING, `c``d` STRING,
        Nested STRUCT<A: DECIMAL(10,2), `b c``d`: ARRAY<INT>, c: STRUCT<{odd}: MAP<STRING, TIMESTAMP_NTZ>>>,
        Texts STRUCT<x: VARCHAR(3), Y: ARRAY<CHAR(2)>>, Region STRING)
        USING parquet PARTITIONED BY (Region)"""
    )
    (table,) = discover_tables(spark, database)
    assert table.refusal is None
    assert [column["Name"] for column in table.columns or []] == ["OrderId", "a b", "c`d", "Nested", "Texts"]
    assert [column["Type"] for column in table.columns or []][3:] == [
        f"struct<A:decimal(10,2),`b c``d`:array<int>,c:struct<{odd}:map<string,timestamp_ntz>>>",
        "struct<x:varchar(3),Y:array<char(2)>>",
    ]
    assert table.partition_types == {"Region": "string"}
    from_spark = build_delta_schema_from_spark(spark.table(f"{database}.t").schema)
    assert build_delta_schema_from_glue(table.columns or [], table.partition_types) == from_spark


def test_details_are_not_spoofed_by_columns_of_their_names(spark, database: str) -> None:
    spark.sql(
        f"""CREATE TABLE {database}.t (`# Detailed Table Information` STRING, `Location` STRING, `Provider` STRING,
        `Type` STRING) USING parquet"""
    )
    (table,) = discover_tables(spark, database)
    assert (table.format, table.table_type, table.refusal) == ("parquet", "MANAGED", None)
    assert table.location.endswith(f"{database}.db/t")


def test_rule_45_what_is_not_convertible_comes_back_with_its_reason(spark, database: str) -> None:
    stored = f"ROW FORMAT SERDE '{PARQUET_SERDE}'"
    for statement in (
        "TABLE a_parquet (i INT) STORED AS PARQUET",
        "TABLE b_parquet (i INT) USING `org.apache.spark.sql.parquet`",
        "TABLE c_orc (i INT) STORED AS ORC",
        "TABLE d_avro (i INT) STORED AS AVRO",
        "TABLE e_csv (i INT) ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.OpenCSVSerde' STORED AS TEXTFILE",
        "TABLE f_json (i INT) USING json",
        "TABLE g_text (i INT) STORED AS TEXTFILE",
        "TABLE h_sequencefile (i INT) STORED AS SEQUENCEFILE",
        "VIEW i_view AS SELECT 1 AS i",
        f"TABLE j_symlink (i INT) {stored} STORED AS"
        " INPUTFORMAT 'org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat'"
        " OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat'",
        "TABLE k_delta (i INT) USING delta",
        "TABLE l_parquet (i INT) STORED AS PARQUET TBLPROPERTIES ('projection.enabled' = 'true')",
        f"TABLE m_parquet (i INT) {stored} WITH SERDEPROPERTIES ('parquet.column.index.access' = 'true')"
        " STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat'"
        " OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat'",
    ):
        kind, definition = statement.split(" ", 1)
        spark.sql(f"CREATE {kind} {database}.{definition}")
    found = discover_tables(spark, database)
    assert [table.format for table in found] == [table.name[2:] for table in found]
    reasons = {table.name[0]: table.refusal for table in found}
    assert [name for name, reason in reasons.items() if reason is None] == ["a", "b", "k"]
    for name, kind in zip("cdefgh", ("orc", "avro", "csv", "json", "text", "sequencefile"), strict=True):
        assert reasons[name] == (
            "CONVERT TO DELTA only supports parquet tables, but you are trying to convert "
            f"a {kind} source: spark_catalog.{database}.{name}_{kind}"
        )
    assert "is a view" in (reasons["i"] or "")
    assert "symlink" in (reasons["j"] or "")
    assert "projection" in (reasons["l"] or "")
    assert "by position" in (reasons["m"] or "")


def test_rule_45_iceberg_tables_of_another_engine_are_refused(spark, database: str) -> None:
    iceberg = "TBLPROPERTIES ('metadata_location' = 's3://lake/t/metadata/1.json')"
    spark.sql(f"CREATE TABLE {database}.t (i INT) STORED AS PARQUET {iceberg}")
    (table,) = discover_tables(spark, database)
    assert table.format == "iceberg"
    assert "is an Iceberg table" in (table.refusal or "")


@pytest.mark.parametrize("stored", ["STORED AS PARQUET", "USING parquet"])
def test_rule_45_bucketed_tables_are_refused_unless_allowed(spark, database: str, stored: str) -> None:
    columns, buckets = "(Id INT, day STRING)", "CLUSTERED BY (Id) INTO 4 BUCKETS"
    parts = [stored, buckets] if stored.startswith("USING") else [buckets, stored]
    spark.sql(f"CREATE TABLE {database}.t {columns} {' '.join(parts)}")
    (table,) = discover_tables(spark, database)
    assert [name.lower() for name in table.bucket_columns] == ["id"]
    assert "bucketed" in (table.why_refused(ConversionOptions()) or "")
    assert table.why_refused(ConversionOptions(allow_bucketed=True)) is None


def test_broken_tables_come_back_with_the_reason_and_stop_nobody(spark, database: str) -> None:
    for name in ("a", "b"):
        spark.sql(f"CREATE TABLE {database}.{name} (i INT) USING delta")
    spark.sql(f"CREATE TABLE {database}.c (i INT) STORED AS PARQUET")
    # Spark itself cannot read this one: it forgets to quote the name when it keeps the length.
    spark.sql(f"CREATE TABLE {database}.d (s STRUCT<`a b`: VARCHAR(3)>) USING parquet")
    spark.sql(f"CREATE TABLE {database}.e (i INT) USING parquet")
    spark.sql(f"INSERT INTO {database}.e VALUES (1)")
    spark.sql(f"ALTER TABLE {database}.e ADD COLUMN j INT DEFAULT 7")
    location = next(table.location for table in discover_tables(spark, database) if table.name == "a")
    shutil.rmtree(Path(location.removeprefix("file:")) / "_delta_log")
    a, b, c, d, e = discover_tables(spark, database)
    assert re.match(rf"spark_catalog\.{database}\.a cannot be described: .*not a Delta table", a.refusal or "")
    assert (b.refusal, c.refusal) == (None, None)
    assert re.match(rf"spark_catalog\.{database}\.d cannot be described: ", d.refusal or "")
    assert "\n" not in (d.refusal or "")
    assert "The column j reads as 7" in (e.refusal or "")


def test_patterns_ignore_case_and_deny_wins(spark, database: str, other_database: str) -> None:
    for name in (database, other_database):
        for table in ("orders", "orders_old", "users"):
            spark.sql(f"CREATE TABLE {name}.{table} (i INT) STORED AS PARQUET")
    allow = [f"SPARK_CATALOG.{database.upper()}.ORD*", f"spark_catalog.{other_database}.users"]
    found = UCDiscovery(allow, deny=["*_OLD"]).discover(spark)
    assert [table.qualified_name for table in found] == [
        f"spark_catalog.{database}.orders",
        f"spark_catalog.{other_database}.users",
    ]


def test_tables_of_one_name_in_two_schemas_do_not_collide(spark, database: str, other_database: str) -> None:
    for name in (other_database, database):
        spark.sql(f"CREATE TABLE {name}.t (i INT) STORED AS PARQUET")
    found = UCDiscovery([f"*.{database}.t", f"*.{other_database}.t"]).discover(spark)
    assert [table.qualified_name for table in found] == [
        f"spark_catalog.{database}.t",
        f"spark_catalog.{other_database}.t",
    ]
    assert found[0].location != found[1].location


def test_temporary_views_are_passed_over(spark, database: str) -> None:
    spark.sql(f"CREATE TABLE {database}.t (i INT) STORED AS PARQUET")
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW passing AS SELECT 1")
    try:
        assert [table.name for table in discover_tables(spark, database)] == ["t"]
    finally:
        spark.catalog.dropTempView("passing")


def test_what_no_pattern_can_match_is_not_touched(spark, database: str, other_database: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.broken", "no.such.Catalog")
    with pytest.raises(HiveToDeltaError, match="Listing the schemas of broken"):
        UCDiscovery(["broken.*"]).discover(session)

    spark.sql(f"CREATE TABLE {database}.t (i INT) STORED AS PARQUET")
    listener: Any = Listener(session)
    found = UCDiscovery([f"spark_catalog.{database}.*"]).discover(listener)
    assert [table.name for table in found] == ["t"]
    assert listener.statements == [
        "SHOW SCHEMAS IN `spark_catalog`",
        f"SHOW TABLES IN `spark_catalog`.`{database}`",
        f"DESCRIBE TABLE EXTENDED `spark_catalog`.`{database}`.`t`",
        f"SHOW TBLPROPERTIES `spark_catalog`.`{database}`.`t`",
    ]


def test_denied_schemas_are_not_walked(spark, database: str, other_database: str) -> None:
    listener: Any = Listener(spark)
    allow = [f"spark_catalog.{database}.*", f"spark_catalog.{other_database}.*"]
    assert UCDiscovery(allow, deny=[f"*.{database.upper()}.*"]).discover(listener) == []
    assert listener.statements == [
        "SHOW SCHEMAS IN `spark_catalog`",
        f"SHOW TABLES IN `spark_catalog`.`{other_database}`",
    ]


def test_catalogs_are_listed_only_for_a_wildcard_in_their_place(spark, database: str) -> None:
    spark.sql(f"CREATE TABLE {database}.t (i INT) STORED AS PARQUET")
    session: Any = Listener(spark.newSession())
    found = UCDiscovery([f"spark_c*.{database}.*"]).discover(session)
    assert [table.qualified_name for table in found] == [f"spark_catalog.{database}.t"]
    assert session.statements[0] == "SHOW CATALOGS"


def test_rule_51_names_with_dots_spaces_and_backticks(spark, database: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.odd", "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog")
    session.conf.set("spark.sql.catalog.odd.url", f"jdbc:derby:memory:{uuid.uuid4().hex};create=true")
    session.conf.set("spark.sql.catalog.odd.driver", "org.apache.derby.jdbc.EmbeddedDriver")
    session.sql("CREATE TABLE odd.`x.y``z`.`t.1``; DROP TABLE u` (i INT)")
    session.sql("CREATE TABLE odd.`x.y``z`.`a b` (i INT)")
    session.sql("CREATE TABLE odd.plain.t (i INT)")
    found = UCDiscovery(["odd.x.y`z.*"]).discover(session)
    assert [(table.database, table.name) for table in found] == [
        ("x.y`z", "a b"),
        ("x.y`z", "t.1`; DROP TABLE u"),
    ]
    assert all("has no location" in (table.refusal or "") for table in found)


@pytest.mark.parametrize("pattern", ["no_such_catalog.*", "spark_catalog.no_such_schema.*", "*.*.no_such_table", "x"])
def test_patterns_that_match_nothing_find_nothing(spark, pattern: str) -> None:
    assert UCDiscovery([pattern]).discover(spark) == []


@pytest.mark.parametrize("allow", [[], (), "spark_catalog.sales.*"])
def test_allow_must_be_a_list_of_patterns(allow: Any) -> None:
    with pytest.raises(ValueError, match="expected a list of patterns"):
        UCDiscovery(allow)
