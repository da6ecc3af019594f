"""A whole migration in a real Airflow: discover, list, convert, report, whatever happens to the tables."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.airflow_runs import dag_source
from tests.support.aws import REGION
from tests.support.lake import TEXT
from tests.support.migrations import group, orders_and_people, read_text
from tests.support.oracle import assert_same, delta_at


@pytest.mark.quick
def test_every_table_of_a_database_becomes_a_delta_table(lake, run_dag, spark) -> None:
    originals = orders_and_people(lake)
    lake.glue.create_table(
        DatabaseName=lake.database,
        TableInput={"Name": "notes", "StorageDescriptor": {**TEXT, "Location": lake.location("notes"), "Columns": []}},
    )

    run = run_dag(group(lake))

    assert run.state == "success"
    names = [f"{lake.database}.{table}" for table in ("orders", "people")]
    assert run.states == {
        "discover": "success",
        **{f"tables.{task}[{name}]": "success" for task in ("list_files", "convert", "verify") for name in names},
        "report": "success",
    }
    for name, original in originals.items():
        assert_same(spark, original, delta_at(spark, lake.location(name)))
    report = run.xcom("report", "report")
    assert {table["table"]: table["status"] for table in report["tables"]} == {
        names[0]: "converted",
        names[1]: "converted",
        f"{lake.database}.notes": "refused",
    }
    assert report["totals"]["rows"] == 6
    notes = {table["table"]: table["notes"] for table in report["tables"]}
    assert "Verified by counts at version 0: 2 files and 4 rows" in notes[names[0]]
    assert json.loads(read_text(lake, report["json"]))["totals"] == report["totals"]
    page = read_text(lake, report["html"])
    assert all(name in page for name in names)
    assert "only supports parquet tables" in page
    # A file list travels as it is while it is short, and the tasks show what they are doing.
    listed = run.xcom("tables.list_files", label=names[0])
    assert (listed["file_count"], listed["manifest"]) == (2, None)
    assert len(listed["files"]) == 2
    assert f"{names[0]}: converted" in run.log.replace(f" -> {lake.location('orders')}", "")


def test_several_databases_go_into_a_schema_each(lake, run_dag, spark, glue) -> None:
    other = f"{lake.database}_web"
    glue.create_database(DatabaseInput={"Name": other})
    for database in (lake.database, other):
        lake.put(f"{database}/t/000000_0", {"n": [1]})
        lake.database, mine = database, lake.database
        lake.glue_table({"n": "bigint"}, name="t", location=lake.location(f"{database}/t"))
        lake.database = mine
    schemas = {lake.database: "one", other: "two"}
    for schema in schemas.values():
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {schema}")
    try:
        run = run_dag(
            group(lake, f"target=CatalogTarget('spark_catalog', {schemas!r})", databases=[lake.database, other])
        )
        assert run.state == "success"
        report = run.xcom("report", "report")
        assert {t["table"]: t["target_table"] for t in report["tables"]} == {
            f"{lake.database}.t": "spark_catalog.one.t",
            f"{other}.t": "spark_catalog.two.t",
        }
        assert spark.table("one.t").collect() == spark.table("two.t").collect() == [(1,)]
    finally:
        for schema in schemas.values():
            spark.sql(f"DROP DATABASE {schema} CASCADE")


def test_choose_renames_and_leaves_out(lake, run_dag) -> None:
    for name in ("keep", "drop"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    chosen = "choose=lambda table: None if table['name'] == 'drop' else {**table, 'target_table_name': 'kept'}"

    run = run_dag(group(lake, chosen))

    assert [table["target_table_name"] for table in run.xcom("discover")] == ["kept"]
    assert {t["table"].rpartition(".")[2]: t["status"] for t in run.xcom("report", "report")["tables"]} == {
        "keep": "converted",
        "drop": "skipped",
    }


def test_staging_that_is_not_on_s3_is_not_opened_with_the_aws_connection(
    lake, run_dag, tmp_path, aws_endpoint, monkeypatch
) -> None:
    extra = {"endpoint_url": aws_endpoint, "region_name": REGION}
    connection = {"conn_type": "aws", "login": "testing", "password": "testing", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    dag = group(lake, "at_least_one=False", conn="lake").replace(f"s3://{lake.bucket}/staging", f"file://{tmp_path}")
    run = run_dag(dag)
    assert run.state == "success"
    assert run.xcom("report", "report")["json"].startswith(f"file://{tmp_path}/")


def test_a_pattern_that_matches_no_table_is_blamed_and_not_the_database(lake, run_dag) -> None:
    lake.glue_table({"n": "bigint"}, name="orders")
    run = run_dag(group(lake).replace(f"GlueSource({lake.database!r})", f"GlueSource({lake.database!r}, ['ordres'])"))
    assert run.state == "failed"
    assert f"the database {lake.database} (include and exclude leave none of its 1 table(s)), nothing by inc" in run.log


def test_nothing_found_is_a_failure_unless_it_is_expected(lake, run_dag) -> None:
    mistyped = group(lake).replace(f"GlueSource({lake.database!r})", f"GlueSource({lake.database!r}, ['ordres'])")
    nothing = run_dag(mistyped)
    assert nothing.state == "failed"
    assert f"nothing by the database {lake.database}, nothing by include='ordres'. Check the names" in nothing.log
    run = run_dag(group(lake, "at_least_one=False"))
    assert run.state == "success"
    report = run.xcom("report", "report")
    assert report["totals"]["tables"] == 0
    assert report["run"]["nothing_found_by"] == f"the database {lake.database}, include='*'"


def test_what_cannot_be_written_to_is_found_out_before_the_first_commit(lake, run_dag) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    before = lake.objects()
    target = f"target=GlueTarget('{lake.database}_delat')"

    gone = run_dag(group(lake).replace(f"{lake.bucket}/staging", f"{lake.bucket}-gone/staging"))
    mistyped = run_dag(group(lake, target))

    assert (gone.state, mistyped.state) == ("failed", "failed")
    assert f"The staging root s3://{lake.bucket}-gone/staging cannot be written to: " in gone.log
    assert f"Glue in us-east-1 has no database {lake.database}_delat to register tables in" in mistyped.log
    assert gone.states["discover"] == mistyped.states["discover"] == "failed"
    assert lake.objects() == before


def test_a_table_is_converted_before_the_next_is_listed_and_every_task_has_retries(airflow_home) -> None:
    from airflow.sdk import DAG
    from airflow.serialization.serialized_objects import DagSerialization

    from airflow_hive_to_delta import GlueSource, PerTable, hive_to_delta_task_group

    with DAG("weights", schedule=None) as dag:
        hive_to_delta_task_group(source=GlueSource("d"), staging="s3://b", per_table=PerTable(retries=4))
    tasks = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag)).task_dict
    assert {task.retries for task in tasks.values()} == {4}
    steps = ["list_files", "convert", "verify"]
    weights = [
        task.weight_rule.get_weight(cast("Any", SimpleNamespace(task=task)))
        for task in (tasks[f"hive_to_delta.tables.{step}"] for step in steps)
    ]
    assert weights == sorted(set(weights)), "the later step of one table goes before the first of another"


@pytest.mark.parametrize("per_table", ["", "batch_size=2"])
def test_when_discovery_fails_the_report_says_so(lake, run_dag, per_table) -> None:
    run = run_dag(group(lake, databases="not_there", per_table=per_table))
    assert run.state == "failed"
    assert run.states == {"discover": "failed", "report": "failed"} | {
        task: state for task, state in run.states.items() if task.startswith("tables.")
    }
    assert "No table is known: hive_to_delta.discover failed" in run.log
    assert "EntityNotFoundException" in run.log


def test_more_tables_than_airflow_maps_go_in_batches(lake, run_dag, monkeypatch) -> None:
    """With 1,500 tables and Airflow's own limit in `make soak`; with a lower limit the same is asked of fewer."""
    count = int(os.environ.get("MANY_TABLES", "150"))
    batch, limit = count // 10, min(count - 1, 1024)
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", str(limit))
    for number in range(count):
        lake.glue_table({"n": "bigint"}, name=f"t{number:04}")
    discover = f"GlueDiscoverOperator(task_id='discover', databases={lake.database!r}, aws_conn_id=None"

    refused = run_dag(dag_source(f"{discover})"))

    assert refused.state == "failed"
    mapped = f"{count} tables make {count} mapped tasks, but Airflow maps at most {limit} (core.max_map_length)"
    assert mapped in refused.log
    assert "batch_size=2 or more" in refused.log

    body = (
        f"discover = {discover}, batch_size={batch})\n"
        "ListFilesOperator.partial(task_id='list_files', aws_conn_id=None,"
        " map_index_template='{{ task.table_label }}').expand(table=discover.output)"
    )
    run = run_dag(dag_source(body))

    assert run.state == "success"
    labels = [task for task in run.states if task.startswith("list_files")]
    assert len(labels) == 10
    label = f"{lake.database}.t{batch:04} and {batch - 1} more"
    assert f"list_files[{label}]" in labels
    assert [files["file_count"] for files in run.xcom("list_files", label=label)] == [0] * batch
