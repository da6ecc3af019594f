"""A table that was discovered is read again when it is worked on; one that was made or changed by hand is not."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_hive_to_delta import ConversionOptions, DatabricksListing, GlueDiscovery, TableInfo, UCDiscovery, convert
from airflow_hive_to_delta.core.catalogs.definitions import current_definition, location_digest, mark_discovered
from airflow_hive_to_delta.core.errors import MissingError
from airflow_hive_to_delta.engines import JobRequest
from airflow_hive_to_delta.job.run import run
from airflow_hive_to_delta.job.table_results import earlier_tries
from tests.support.lake import PARQUET

pytestmark = pytest.mark.slow


@pytest.fixture
def define(glue: Any) -> Callable[..., TableInfo]:
    """Puts a table into Glue, or changes it there, and discovers it."""
    database = f"db_{uuid.uuid4().hex[:12]}"
    glue.create_database(DatabaseInput={"Name": database})

    def put(kind: str, location: str = "s3://b/t") -> TableInfo:
        columns = [{"Name": "n", "Type": kind}]
        table = {"Name": "t", "StorageDescriptor": {**PARQUET, "Location": location, "Columns": columns}}
        known = glue.get_tables(DatabaseName=database)["TableList"]
        (glue.update_table if known else glue.create_table)(DatabaseName=database, TableInput=table)
        (found,) = GlueDiscovery(database).discover()
        return found

    return put


def travelled(table: TableInfo) -> TableInfo:
    return TableInfo.from_dict(json.loads(json.dumps(table.to_dict())))


def test_what_was_mended_counts_and_what_was_chosen_stays(define, glue) -> None:
    found = define("string")
    plain = travelled(replace(mark_discovered(found), target_table_name="renamed"))
    chosen = travelled(mark_discovered(replace(found, location="s3://b/chosen"), found))
    by_hand = replace(plain, columns=[{"Name": "n", "Type": "int"}])

    define("bigint", "s3://b/mended")

    again = current_definition(plain)
    assert (again.columns, again.location) == ([{"Name": "n", "Type": "bigint"}], "s3://b/mended")
    assert again.target_table_name == "renamed"
    assert location_digest(again) != location_digest(plain)
    kept = current_definition(chosen)
    assert (kept.columns, kept.location) == ([{"Name": "n", "Type": "bigint"}], "s3://b/chosen")
    define("double")
    assert current_definition(travelled(kept)).columns == [{"Name": "n", "Type": "double"}], "as often as it is asked"
    assert current_definition(by_hand) is by_hand
    assert current_definition(found) is found, "discovered by the caller itself"
    glue.delete_table(DatabaseName=found.database, Name="t")
    with pytest.raises(MissingError, match=f"Reading the table {found.database}.t from Glue"):
        current_definition(plain)


def test_a_table_that_lay_inside_another_one_may_be_gone_from_there(define, glue) -> None:
    outer = define("string")

    def inner(name: str, location: str) -> dict[str, Any]:
        table = {"Name": name, "StorageDescriptor": {**PARQUET, "Location": location, "Columns": []}}
        return {"DatabaseName": outer.database, "TableInput": table}

    for name in ("moved", "dropped", "stays"):
        glue.create_table(**inner(name, f"s3://b/t/{name}"))
    found = next(table for table in GlueDiscovery(outer.database or "").discover() if table.name == "t")
    assert {name.rpartition(".")[2] for name in found.nested_tables} == {"moved", "dropped", "stays"}
    found.nested_tables["a.name.with.dots"] = "s3://b/t/dots"
    known = travelled(mark_discovered(found))

    glue.update_table(**inner("moved", "s3://b/elsewhere"))
    glue.delete_table(DatabaseName=outer.database, Name="dropped")

    assert current_definition(known).nested_tables == {
        f"{outer.database}.stays": "s3://b/t/stays",
        "a.name.with.dots": "s3://b/t/dots",  # which cannot be asked for
    }


def test_what_its_catalog_has_no_more_is_rolled_back_where_it_was(spark, database, tmp_path) -> None:
    spark.sql(f"CREATE EXTERNAL TABLE {database}.t (n INT) STORED AS PARQUET LOCATION '{tmp_path}/t'")
    spark.sql(f"INSERT INTO {database}.t VALUES (1)")
    discovery = UCDiscovery([f"spark_catalog.{database}.t"])
    known = [mark_discovered(table).to_dict() for table in discovery.discover(spark)]
    (converted,) = convert(spark, discovery, DatabricksListing(), None, None, progress=False)
    assert converted.status == "converted", converted.error
    spark.sql(f"DROP TABLE {database}.t")

    arguments = {"tables": known, "lose_versions": [], "options": ConversionOptions().to_dict()}
    (result,) = run(JobRequest("rollback", arguments), spark)["results"]

    assert (result["status"], result["error"]) == ("rolled_back", None)
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_the_latest_work_on_a_table_says_whether_it_is_done() -> None:
    files = {"0001-01-x/_begun.a.json": "", "0001-01-x/a.json": '{"result": 1}', "0001-01-x/_begun.b.json": ""}
    files |= {"0001-01-x/b.json": "", "0001-02-y/_begun.b.json": "", "0003-01-z/c.json": '{"result": 3}', "other": ""}
    found = earlier_tries("abcd", files, files.__getitem__)
    assert found.ended == {"a": (1, {"result": 1}), "c": (3, {"result": 3})}
    assert found.suspects == ["b"]
