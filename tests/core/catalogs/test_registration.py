"""Registration: names and locations with every character, nothing of anybody else's touched, safe to call again."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Lock
from typing import Any

import pytest
from moto.glue.models import GlueBackend
from pyspark.sql import SparkSession

from airflow_hive_to_delta.core.catalogs.registration import (
    Target,
    check_target,
    register,
    target_of,
)
from airflow_hive_to_delta.core.delta.log.commits import generate_delta_log, write_delta_log
from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.sql import sql_identifier, sql_literal
from airflow_hive_to_delta.core.storage.uri import Location, parse_location

OPTIONS = ConversionOptions()
GLUE = ConversionOptions(register_in="glue", create_schema=True)
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": "long", "nullable": True, "metadata": {"comment": "the\nfirst" + "é" * 300}},
        {
            "name": "s",
            "type": {
                "type": "struct",
                "fields": [{"name": "d", "type": "decimal(10,2)", "nullable": True, "metadata": {}}],
            },
            "nullable": True,
            "metadata": {},
        },
        {"name": "p", "type": "date", "nullable": True, "metadata": {}},
    ],
}  # fmt: skip


def make_table(location: str) -> Location:
    write_delta_log(generate_delta_log([], SCHEMA, ["p"], location, description='it\'s "d"'), location)
    return parse_location(location)


def registered(spark: SparkSession, target: Target, root: Location, options: ConversionOptions = OPTIONS) -> bool:
    return register(spark, target, root, SCHEMA, ["p"], 'it\'s "d"', options).made


# --- names -------------------------------------------------------------------------------------------------------


def test_rule_51_names_are_quoted_whatever_they_hold() -> None:
    target = Target("c", "s.t", "a`; DROP TABLE x")
    assert target.quoted == "`c`.`s.t`.`a``; DROP TABLE x`"
    assert target.name == "c.s.t.a`; DROP TABLE x"
    assert Target(None, "s", "t").quoted == "`s`.`t`"


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "it's",
        '"',
        "a\\b\\",
        "\\'",
        "%20",
        "a\nb\tc",
        "é\u2028😀",
        "${spark.app.name}",
        "\\${env:HOME}",
        "$ {",
        "",
    ],
)
def test_rule_51_a_literal_reads_as_its_text(spark: SparkSession, text: str) -> None:
    row = spark.sql(f"SELECT {sql_literal(text)} AS x").first()
    assert row is not None
    assert row.x == text


@pytest.mark.parametrize("name", ["plain", "a`b", "a b", "`", "x'y\"z", "a.b", "é"])
def test_rule_51_an_identifier_reads_as_its_name(spark: SparkSession, name: str) -> None:
    assert spark.sql(f"SELECT 1 AS {sql_identifier(name)}").columns == [name]


def test_rule_51_a_name_that_spark_would_replace_is_refused() -> None:
    with pytest.raises(PermanentError, match="variable"):
        sql_identifier("s", "${env:HOME}")


def test_a_target_is_all_or_nothing() -> None:
    assert target_of(None, None, None, OPTIONS) is None
    assert target_of(None, "S", "T", OPTIONS) == Target(None, "S", "T", "sql")
    assert target_of("c", "S", "T", GLUE) == Target("c", "s", "t", "glue"), "as Glue keeps them"
    refused: list[tuple[str | None, str | None, str | None]]
    refused = [(None, None, "t"), (None, "s", None), ("c", None, None), ("c", "", "t"), ("", "s", "t")]
    for names in refused:
        with pytest.raises(PermanentError, match="expected a schema and a table"):
            target_of(*names, OPTIONS)


# --- SQL ---------------------------------------------------------------------------------------------------------


def test_a_table_is_registered_once(spark: SparkSession, tmp_path: Path) -> None:
    root = make_table(str(tmp_path / "t"))
    target = Target("spark_catalog", f"db_{uuid.uuid4().hex}", "t")
    assert not check_target(spark, target, root, OPTIONS)
    try:
        assert registered(spark, target, root)
        assert check_target(spark, target, root, OPTIONS)
        assert not registered(spark, target, root)
        table = spark.table(target.quoted)
        assert table.columns == ["a", "s", "p"]
        described = {row[0]: row[1] for row in spark.sql(f"DESCRIBE EXTENDED {target.quoted}").collect()}
        assert described["Comment"] == 'it\'s "d"', "the catalog takes the comment from the log"
    finally:
        spark.sql(f"DROP SCHEMA {sql_identifier(target.schema)} CASCADE")


def test_rule_51_a_location_with_every_character_is_registered_and_found_again(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    root = make_table(f"{tmp_path}/a b%20c'd\"e\\f+${{spark.app.name}}é=1")
    target = Target(None, database, "odd")
    assert registered(spark, target, root)
    assert check_target(spark, target, root, OPTIONS)
    assert spark.table(target.quoted).columns == ["a", "s", "p"]
    decoded = parse_location(str(root).replace("%20", " "))
    with pytest.raises(PermanentError, match="exists"):
        check_target(spark, target, decoded, OPTIONS)


def test_a_location_on_s3_is_the_same_in_every_spelling(spark: SparkSession, database: str, bucket: str) -> None:
    root = make_table(f"s3://{bucket}/t")
    target = Target(None, database, "t")
    assert registered(spark, target, root)
    assert check_target(spark, target, parse_location(f"s3a://{bucket}/t"), OPTIONS)


def test_a_name_that_points_elsewhere_is_left_alone(spark: SparkSession, database: str, tmp_path: Path) -> None:
    root, other = make_table(str(tmp_path / "t")), make_table(str(tmp_path / "t2"))
    target = Target(None, database, "t")
    assert registered(spark, target, other)
    for ask in (check_target, lambda *arguments: registered(*arguments[:3])):
        with pytest.raises(PermanentError, match="t2; expected a Delta table at") as raised:
            ask(spark, target, root, OPTIONS)
        assert str(root) in str(raised.value)
    assert check_target(spark, target, other, OPTIONS)


def test_a_name_of_something_that_is_no_delta_table_is_left_alone(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    root = make_table(str(tmp_path / "t"))
    spark.sql(f"CREATE TABLE {database}.parquet (a BIGINT) USING PARQUET LOCATION '{tmp_path}/t'")
    spark.sql(f"CREATE TABLE {database}.hive (a BIGINT) STORED AS PARQUET LOCATION '{tmp_path}/t'")
    spark.sql(f"CREATE VIEW {database}.view AS SELECT 1 AS Location, 'delta' AS Provider")
    for name, found in (
        ("parquet", "parquet at file:"),
        ("hive", "hive at file:"),
        ("view", "no table at no location"),
    ):
        with pytest.raises(PermanentError, match=found):
            check_target(spark, Target(None, database, name), root, OPTIONS)


def test_columns_called_like_details_do_not_mislead(spark: SparkSession, database: str, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE {database}.t (`# Detailed Table Information` STRING, Location STRING, Provider STRING) "
        f"USING DELTA LOCATION '{tmp_path}/t' TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    assert check_target(spark, Target(None, database, "t"), parse_location(str(tmp_path / "t")), OPTIONS)


def test_a_registration_whose_log_is_gone_is_refused(spark: SparkSession, database: str, tmp_path: Path) -> None:
    target, root = Target(None, database, "t"), make_table(str(tmp_path / "t"))
    assert registered(spark, target, root)
    (tmp_path / "t" / "_delta_log").rename(tmp_path / "moved")
    with pytest.raises(PermanentError, match="log is gone"):
        check_target(spark, target, root, OPTIONS)
    (tmp_path / "moved").rename(tmp_path / "t" / "_delta_log")


def test_rule_51_a_hostile_name_does_no_harm(spark: SparkSession, database: str, tmp_path: Path) -> None:
    """The Hive metastore takes no such name; what counts is that it is a name and not a statement."""
    spark.sql(f"CREATE TABLE {database}.x (a INT) USING PARQUET")
    root = make_table(str(tmp_path / "t"))
    with pytest.raises(PermanentError):
        registered(spark, Target(None, database, f"a`; DROP TABLE {database}.x"), root)
    assert spark.catalog.tableExists(f"{database}.x")
    assert [row.tableName for row in spark.sql(f"SHOW TABLES IN {database}").collect()] == ["x"]


def test_of_many_runs_one_registers_and_none_fails(spark: SparkSession, database: str, tmp_path: Path) -> None:
    root = make_table(str(tmp_path / "t"))
    barrier = Barrier(4)

    def run(_: int) -> bool:
        barrier.wait()
        return registered(spark, Target(None, database, "t"), root)

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(run, range(4)))
    assert made.count(True) == 1


# --- Glue --------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_s3(bucket: str) -> Location:
    return make_table(f"s3a://{bucket}/a b/t'1%20")


def glue_target(table: str = "t") -> Target:
    return Target(None, f"db_{uuid.uuid4().hex}", table, "glue")


def test_a_glue_table_is_what_athena_and_spark_expect(spark: SparkSession, glue: Any, on_s3: Location) -> None:
    target = glue_target()
    assert not check_target(spark, target, on_s3, GLUE)
    assert registered(spark, target, on_s3, GLUE)
    assert not registered(spark, target, on_s3, GLUE)
    table = glue.get_table(DatabaseName=target.schema, Name="t")["Table"]
    location = str(on_s3).replace("s3a://", "s3://")
    storage = table["StorageDescriptor"]
    assert (table["TableType"], table["Description"], storage["Location"]) == ("EXTERNAL_TABLE", 'it\'s "d"', location)
    assert table["Parameters"] == {
        "EXTERNAL": "TRUE",
        "classification": "delta",
        "spark.sql.sources.provider": "delta",
        "table_type": "DELTA",
    }
    assert storage["SerdeInfo"]["Parameters"] == {"path": location, "serialization.format": "1"}
    assert [(c["Name"], c["Type"]) for c in storage["Columns"]] == [("a", "bigint"), ("s", "struct<d:decimal(10,2)>")]
    assert [(c["Name"], c["Type"]) for c in table["PartitionKeys"]] == [("p", "date")]
    comment = storage["Columns"][0]["Comment"]
    assert comment.startswith("the firsté")
    assert len(comment.encode()) <= 255


def test_a_glue_table_is_found_in_every_spelling(spark: SparkSession, glue: Any, on_s3: Location) -> None:
    target = glue_target()
    glue.create_database(DatabaseInput={"Name": target.schema})
    by_spark = {
        "Name": "t",
        "Parameters": {"spark.sql.sources.provider": "DELTA"},
        "StorageDescriptor": {
            "Location": f"s3://{on_s3.authority}/t-__PLACEHOLDER__",
            "SerdeInfo": {"Parameters": {"path": str(on_s3).replace("s3a", "s3n")}},
        },
    }
    glue.create_table(DatabaseName=target.schema, TableInput=by_spark)
    assert check_target(spark, target, on_s3, GLUE)


def test_a_glue_name_that_points_elsewhere_is_left_alone(spark: SparkSession, glue: Any, on_s3: Location) -> None:
    target = glue_target()
    glue.create_database(DatabaseInput={"Name": target.schema})
    hive = {"Name": "t", "TableType": "EXTERNAL_TABLE", "StorageDescriptor": {"Location": str(on_s3)}}
    glue.create_table(DatabaseName=target.schema, TableInput=hive)
    before = json.dumps(glue.get_table(DatabaseName=target.schema, Name="t")["Table"], default=str)
    with pytest.raises(PermanentError, match="external_table at s3a://"):
        registered(spark, target, on_s3, GLUE)
    assert json.dumps(glue.get_table(DatabaseName=target.schema, Name="t")["Table"], default=str) == before
    delta = {"Name": "d", "Parameters": {"table_type": "DELTA"}, "StorageDescriptor": {"Location": "s3://other/t"}}
    glue.create_table(DatabaseName=target.schema, TableInput=delta)
    with pytest.raises(PermanentError, match="delta at s3://other/t"):
        check_target(spark, Target(None, target.schema, "d", "glue"), on_s3, GLUE)


def test_rule_51_a_hostile_name_is_only_a_name_in_glue(spark: SparkSession, glue: Any, on_s3: Location) -> None:
    target = target_of(None, f"db_{uuid.uuid4().hex}", "a`; DROP TABLE x", GLUE)
    assert target is not None
    assert registered(spark, target, on_s3, GLUE)
    assert [t["Name"] for t in glue.get_tables(DatabaseName=target.schema)["TableList"]] == ["a`; drop table x"]


def test_a_table_that_is_not_on_s3_is_not_for_glue(spark: SparkSession, aws_endpoint: str, tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="expected a location on S3"):
        check_target(spark, glue_target(), parse_location(str(tmp_path)), GLUE)


def test_of_many_runs_one_registers_in_glue(
    spark: SparkSession, on_s3: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, one_at_a_time = GlueBackend.create_table, Lock()

    def create_in_one_step(*arguments: Any, **named: Any) -> Any:
        with one_at_a_time:  # Glue decides in one step; moto looks first and stores afterwards
            return create(*arguments, **named)

    monkeypatch.setattr(GlueBackend, "create_table", create_in_one_step)
    target = glue_target()
    barrier = Barrier(4)

    def run(_: int) -> bool:
        barrier.wait()
        return registered(spark, target, on_s3, GLUE)

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(run, range(4)))
    assert made.count(True) == 1
