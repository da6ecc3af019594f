"""A whole migration in a real Airflow: discover, list, convert, report, whatever happens to the tables."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import boto3
import pytest

from airflow_hive_to_delta import GlueDiscovery, S3Listing, rollback_table, sync_table
from airflow_hive_to_delta.core.catalogs import registration
from airflow_hive_to_delta.core.errors import TransientError
from airflow_hive_to_delta.core.lifecycle import convert
from tests.support.airflow_runs import asset_events, dag_source
from tests.support.aws import REGION, checked_identities
from tests.support.crashes import Killed
from tests.support.lake import TEXT, hand_converted
from tests.support.migrations import LOSES, group, orders_and_people, read_text
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


def test_a_batch_converts_its_good_tables_and_fails_for_the_bad_ones(lake, run_dag, spark, clear_and_run) -> None:
    for name in ("a", "b", "c"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    lake.put("b/000001_0", b"not parquet")
    gone = f"{lake.bucket}-gone"
    lake.glue_table({"n": "bigint"}, name="d", location=f"s3://{gone}/d")

    run = run_dag(group(lake, per_table="batch_size=4"))

    assert run.state == "failed"
    statuses = {t["table"].rpartition(".")[2]: t["status"] for t in run.xcom("report", "report")["tables"]}
    assert statuses == {"a": "converted", "b": "failed", "c": "converted", "d": "failed"}
    assert run.states[f"tables.list_files[{lake.database}.a and 3 more]"] == "success", "three can go on"
    assert run.tries[f"tables.convert[{lake.database}.a and 3 more]"] == 1, "a permanent error is not tried again"
    assert "is not a Parquet file" in run.log
    assert f"bucket {gone}" in run.log

    lake.s3.delete_object(Bucket=lake.bucket, Key="b/000001_0")
    lake.s3.create_bucket(Bucket=gone)
    lake.put("d/000000_0", {"n": [1]}, bucket=gone)
    again = clear_and_run(run, task_ids=run.red)
    assert again.state == "success", again.states
    report = again.xcom("report", "report")
    found = {t["table"].rpartition(".")[2]: (t["status"], t["row_count"]) for t in report["tables"]}
    assert found == dict.fromkeys("abcd", ("converted", 1)), "with the results that the first try had"
    assert delta_at(spark, lake.location("b")).count() == 1


@pytest.mark.parametrize("batch_size", [None, 6])
def test_what_is_mended_and_cleared_gets_well(lake, run_dag, clear_and_run, spark, batch_size) -> None:
    """The advice of the report, followed to the letter, for each kind of failure."""
    gone, delta = f"{lake.bucket}-gone", f"{lake.database}_delta"
    lake.glue.create_database(DatabaseInput={"Name": delta})
    for name in ("good", "junk", "kind", "moved", "part", "taken"):
        lake.put(f"{name}/p=1/000000_0", {"n": [1]})
        partitions = [(["1"], lake.location(f"{name}/p=1"))]
        partitions += [(["2"], f"s3://{gone}/p=2")] if name == "part" else []
        lake.glue_table({"n": "string" if name == "kind" else "bigint"}, {"p": "int"}, partitions, name=name)
    lake.put("junk/p=1/000001_0", b"not parquet")
    mended = lake.glue.get_table(DatabaseName=lake.database, Name="moved")["Table"]
    mended = {"Name": "moved", **{key: mended[key] for key in ("TableType", "PartitionKeys", "StorageDescriptor")}}
    elsewhere = {**mended, "StorageDescriptor": {**mended["StorageDescriptor"], "Location": f"s3://{gone}/moved"}}
    lake.glue.update_table(DatabaseName=lake.database, TableInput=elsewhere)
    lake.glue.delete_partition(DatabaseName=lake.database, TableName="moved", PartitionValues=["1"])
    lake.glue.create_table(
        DatabaseName=delta,
        TableInput={"Name": "taken", "StorageDescriptor": {"Location": f"s3://{lake.bucket}/other", "Columns": []}},
    )
    target = f"target=GlueTarget({delta!r})"

    run = run_dag(group(lake, target, per_table=f"batch_size={batch_size}"))

    assert run.state == "failed"
    outcomes = {t["table"].rpartition(".")[2]: t for t in run.xcom("report", "report")["tables"]}
    bad = {"junk", "kind", "moved", "part", "taken"}
    assert {name for name, table in outcomes.items() if table["status"] == "failed"} == bad
    for name in bad:
        assert outcomes[name]["advice"].startswith(
            "Fix what the error names, then clear this table's red task with what comes"
        )

    lake.s3.delete_object(Bucket=lake.bucket, Key="junk/p=1/000001_0")
    kind = lake.glue.get_table(DatabaseName=lake.database, Name="kind")["Table"]
    kind["StorageDescriptor"]["Columns"] = [{"Name": "n", "Type": "bigint"}]
    lake.glue.update_table(
        DatabaseName=lake.database,
        TableInput={"Name": "kind", **{key: kind[key] for key in ("TableType", "PartitionKeys", "StorageDescriptor")}},
    )
    lake.glue.update_table(DatabaseName=lake.database, TableInput=mended)
    lake.glue.create_partition(
        DatabaseName=lake.database,
        TableName="moved",
        PartitionInput={"Values": ["1"], "StorageDescriptor": {"Location": lake.location("moved/p=1")}},
    )
    lake.glue.delete_partition(DatabaseName=lake.database, TableName="part", PartitionValues=["2"])
    lake.glue.delete_table(DatabaseName=delta, Name="taken")
    again = clear_and_run(run, task_ids=run.red)

    assert again.state == "success", again.states
    outcomes = {t["table"].rpartition(".")[2]: t for t in again.xcom("report", "report")["tables"]}
    for name in bad | {"good"}:
        assert (outcomes[name]["status"], outcomes[name]["verified"]) == ("converted", {"counts": 0}), name
        assert outcomes[name]["target_table"] == f"{delta}.{name}"
        assert delta_at(spark, lake.location(name)).collect() == [(1, 1)]


def test_a_wrong_location_that_was_converted_is_mended_as_the_docs_say(lake, run_dag, clear_and_run, spark) -> None:
    delta = f"{lake.database}_delta"
    lake.glue.create_database(DatabaseInput={"Name": delta})
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t", location=lake.location("mistyped"))
    run = run_dag(group(lake, f"target=GlueTarget({delta!r})"))
    assert (run.state, run.xcom("report", "report")["totals"]["empty"]) == ("success", 1)

    (table,) = GlueDiscovery(lake.database).discover()
    assert rollback_table(spark, table).dropped == [f"{delta}.t"]
    lake.glue.delete_table(DatabaseName=lake.database, Name="t")
    lake.glue_table({"n": "bigint"}, name="t")
    steps = [(f"hive_to_delta.tables.{step}", 0) for step in ("list_files", "convert", "verify")]
    again = clear_and_run(run, task_ids=[*steps, "hive_to_delta.report"])

    assert again.state == "success", again.states
    (outcome,) = again.xcom("report", "report")["tables"]
    assert (outcome["status"], outcome["file_count"], outcome["verified"]) == ("converted", 1, {"counts": 0})
    assert outcome["location"] == lake.location()


def test_one_table_that_kills_its_job_takes_no_other_with_it(lake, run_dag, spark, monkeypatch) -> None:
    for name in ("a", "poison", "z"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    convert_files, converted = convert._convert_files, []

    def kills(context, *arguments):
        converted.append(context.table.name)
        if context.table.name == "poison":
            raise Killed
        return convert_files(context, *arguments)

    monkeypatch.setattr(convert, "_convert_files", kills)

    run = run_dag(group(lake, per_table="batch_size=3, max_workers=1"))

    assert run.state == "failed"
    assert converted == ["a", "poison", "z", "poison"], "what is done is not run again, the suspect last"
    outcomes = {t["table"].rpartition(".")[2]: t for t in run.xcom("report", "report")["tables"]}
    assert {name: t["status"] for name, t in outcomes.items()} == {
        "a": "converted",
        "poison": "failed",
        "z": "converted",
    }
    assert outcomes["a"]["row_count"] == 1, "from the result that the first try left"
    assert [outcomes[name]["verified"] for name in ("a", "z")] == [{"counts": 0}] * 2
    assert outcomes["poison"]["error"] == "The job was killed"
    assert outcomes["poison"]["retryable"]


def test_a_table_that_fails_when_it_is_run_again_is_not_called_converted(lake, run_dag, clear_and_run) -> None:
    """The task that converts does not run then, and still has the result of the first time."""
    other = lake.add_bucket()
    lake.put("t/000000_0", {"n": [1]}, bucket=other)
    lake.glue_table({"n": "bigint"}, name="t", location=f"s3://{other}/t")
    run = run_dag(group(lake))
    assert run.state == "success"
    for found in lake.s3.list_objects_v2(Bucket=other)["Contents"]:
        lake.s3.delete_object(Bucket=other, Key=found["Key"])
    lake.s3.delete_bucket(Bucket=other)

    again = clear_and_run(run)

    assert again.state == "failed"
    (outcome,) = again.xcom("report", "report")["tables"]
    assert outcome["status"] == "failed"
    assert other in outcome["error"]


def test_what_a_task_said_that_a_cleared_run_has_no_more_is_not_heard(lake, run_dag, clear_and_run) -> None:
    for name in ("a", "b"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    lake.put("b/000001_0", b"not parquet")
    run = run_dag(group(lake))
    assert run.state == "failed"

    lake.glue.delete_table(DatabaseName=lake.database, Name="a")
    lake.s3.delete_object(Bucket=lake.bucket, Key="b/000001_0")
    again = clear_and_run(run)  # b is the first of the mapped tasks now, and was the second

    assert again.state == "success"
    (outcome,) = again.xcom("report", "report")["tables"]
    assert (outcome["table"], outcome["status"]) == (f"{lake.database}.b", "converted")


def test_a_table_whose_registration_failed_once_is_verified(lake, run_dag, spark, monkeypatch) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    (size,) = (found["Size"] for found in lake.s3.list_objects_v2(Bucket=lake.bucket)["Contents"])
    register, calls = registration.register, []

    def fails_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise TransientError("The catalog did not answer")
        return register(*arguments)

    monkeypatch.setattr(registration, "register", fails_once)
    target = f"target=GlueTarget('{lake.database}_delta', create_schema=True)"

    run = run_dag(group(lake, target))

    assert run.state == "success"
    (outcome,) = run.xcom("report", "report")["tables"]
    assert (outcome["status"], outcome["byte_count"]) == ("converted", size), "by this run, in whichever try"
    assert "Verified by counts at version 0: 1 file and 1 row" in outcome["notes"]
    assert f"The schema {lake.database}_delta was missing, and was created" in outcome["notes"]
    (commit,) = spark.sql(f"DESCRIBE HISTORY delta.`{lake.location('t')}`").collect()
    assert commit.userMetadata == f"{run.dag.dag_id}/{run.run_id}"


@pytest.mark.parametrize("options", ["", "options=ConversionOptions(user_metadata='ours')"])
def test_a_table_whose_result_was_lost_is_verified(lake, run_dag, options) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    (size,) = (found["Size"] for found in lake.s3.list_objects_v2(Bucket=lake.bucket)["Contents"])

    run = run_dag(group(lake, options, engine="Loses()", imports=LOSES.format(action="convert")))

    assert run.state == "success"
    assert run.tries[f"tables.convert[{lake.database}.t]"] == 1, "the job has left the result of the table itself"
    (outcome,) = run.xcom("report", "report")["tables"]
    assert (outcome["status"], outcome["file_count"], outcome["byte_count"]) == ("converted", 1, size)
    assert "Verified by counts at version 0: 1 file and 1 row" in outcome["notes"]


def test_a_table_that_a_try_was_done_with_before_it_died_is_this_runs(lake, run_dag) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    lost = 'return JobStatus("failed", "The connection was lost")'
    assert lost in LOSES
    dies = LOSES.format(action="convert").replace(lost, "raise OSError")

    run = run_dag(group(lake, engine="Loses()", imports=dies))

    assert run.state == "success"
    assert run.tries[f"tables.convert[{lake.database}.t]"] == 2
    (outcome,) = run.xcom("tables.convert", "outcomes", label=f"{lake.database}.t")
    assert (outcome["status"], outcome["written_version"]) == ("converted", 0), (
        "so that it is compared as what the run made"
    )


def test_what_was_converted_and_never_verified_is_verified_by_the_next_run(lake, run_dag, spark) -> None:
    """A run can end between the conversion and the verification, or be one that does not verify."""
    for name in ("fresh", "grown", "written"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    hand_converted(lake, "fresh", "grown", "written")
    lake.put("grown/000001_0", {"n": [2]})
    spark.sql(f"INSERT INTO delta.`{lake.location('written')}` VALUES (3)")
    spark.sql(f"CREATE TABLE delta.`{lake.location('foreign')}` (n BIGINT) USING DELTA")
    lake.glue_table({"n": "bigint"}, name="foreign")

    def notes() -> dict[str, list[str]]:
        run = run_dag(group(lake, per_table="batch_size=4"))
        assert run.state == "success"
        report = run.xcom("report", "report")
        assert {table["status"] for table in report["tables"]} == {"already_delta"}
        return {t["table"].rpartition(".")[2]: [n for n in t["notes"] if "erified" in n] for t in report["tables"]}

    first = notes()
    equal = ["Verified by counts at version 0: 1 file and 1 row"]
    assert (first["fresh"], first["written"]) == (equal, equal)
    (too_late,) = first["grown"]
    assert too_late.startswith("Not verified: an earlier run has converted it, and the new file ")
    assert first["foreign"] == [
        "Not verified: this run did not write it, or not all of it, and Hive or others may have written since"
    ]
    before = ["Verified before, by counts at version 0"]
    assert notes() == {**first, "fresh": before, "written": before}
    assert not asset_events(lake.location("fresh")), "nobody touched it"


FORGETFUL = """
class Forgetful(SharedSession):
    '''An engine that loses a file of the original on the way to the verification.'''

    def prepare(self, request):
        if request.action == "verify":
            for files in request.arguments["lists"]:
                files["files"] = [file for file in files["files"] if "day=2" not in file["path"]]
                files["file_count"] -= 1
"""


def test_a_table_that_is_not_what_it_was_made_from_fails(lake, run_dag) -> None:
    for day in (1, 2):
        lake.put(f"t/day={day}/000000_0", {"n": [day, None]})
    lake.glue_table({"n": "bigint"}, {"day": "int"}, [([day], lake.location(f"t/day={day}")) for day in "12"])

    run = run_dag(group(lake, engine="Forgetful()", imports=FORGETFUL))

    assert run.state == "failed"
    assert run.states[f"tables.convert[{lake.database}.t]"] == "success"
    assert run.tries[f"tables.verify[{lake.database}.t]"] == 1, "no retry can help"
    (outcome,) = run.xcom("report", "report")["tables"]
    assert outcome["status"] == "failed"
    assert "day=2" in outcome["error"]


REWRITTEN = """
import boto3

class Rewritten(SharedSession):
    # Hive writes a file anew before the first verification.
    def prepare(self, request):
        if request.action == "verify" and not DONE:
            DONE.append(boto3.client("s3").copy_object(Bucket={bucket!r}, Key="t/000000_0", CopySource={source!r}))

DONE = []
"""


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("mend", ["sync", "roll back"])
def test_a_difference_is_mended_by_the_advice(lake, run_dag, clear_and_run, spark, mend, batch_size) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.put("anew", {"n": [2, 3, 4]})
    lake.glue_table({"n": "bigint"}, name="t")
    imports = REWRITTEN.format(bucket=lake.bucket, source=f"{lake.bucket}/anew")
    run = run_dag(group(lake, engine="Rewritten()", imports=imports, per_table=f"batch_size={batch_size}"))
    assert run.state == "failed"
    (outcome,) = run.xcom("report", "report")["tables"]
    assert outcome["status"] == "failed"
    assert outcome["advice"].startswith("If Hive has written since, sync the table by a new run, then clear this task.")

    (table,) = GlueDiscovery(lake.database).discover()
    red = run.red
    if mend == "sync":
        assert sync_table(spark, table, S3Listing(), output_mode="complete").status == "synced"
    else:
        assert rollback_table(spark, table).status == "rolled_back"
        red += [("hive_to_delta.tables.convert", 0)]
    again = clear_and_run(run, task_ids=red)

    assert again.state == "success", again.states
    (outcome,) = again.xcom("report", "report")["tables"]
    assert (outcome["status"], list(outcome["verified"])) == ("converted", ["counts"])
    assert sorted(delta_at(spark, lake.location()).collect()) == [(2,), (3,), (4,)]


def test_another_list_does_not_make_a_difference_green(lake, run_dag, clear_and_run) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.put("anew", {"n": [2, 3, 4]})
    lake.glue_table({"n": "bigint"}, name="t")
    imports = REWRITTEN.format(bucket=lake.bucket, source=f"{lake.bucket}/anew")
    run = run_dag(group(lake, engine="Rewritten()", imports=imports))
    assert run.state == "failed"

    steps = [(f"hive_to_delta.tables.{step}", 0) for step in ("list_files", "convert", "verify")]
    again = clear_and_run(run, task_ids=[*steps, "hive_to_delta.report"])

    assert again.state == "failed", "this run has converted it, and it was never verified"
    (outcome,) = again.xcom("report", "report")["tables"]
    assert (outcome["status"], outcome["verified"]) == ("failed", {})
    assert outcome["advice"].startswith("If Hive has written since, sync the table by a new run, then clear this task.")


def test_what_was_verified_before_is_not_compared_with_a_later_list(lake, run_dag, clear_and_run) -> None:
    """Hive, or others, may have written since: a difference would say nothing."""
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    first = run_dag(group(lake))
    assert clear_and_run(first).states[f"tables.verify[{lake.database}.t]"] == "success", "this run has converted it"
    lake.put("t/000001_0", {"n": [2]})

    for run, status in ((clear_and_run(first), "converted"), (run_dag(group(lake)), "already_delta")):
        assert run.state == "success"
        assert run.states[f"tables.verify[{lake.database}.t]"] == "skipped"
        (outcome,) = run.xcom("report", "report")["tables"]
        assert outcome["status"] == status
        assert "Verified before, by counts at version 0" in outcome["notes"]


def test_a_last_step_without_a_word_is_a_failure(lake, run_dag) -> None:
    """A killed task records nothing, and the outcome of an earlier step is not that of the whole run."""
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    body = f"""
discover = GlueDiscoverOperator(task_id="discover", databases={lake.database!r}, aws_conn_id=None)
files = ListFilesOperator.partial(task_id="list", aws_conn_id=None).expand(table=discover.output)
convert = ConvertTableOperator.partial(task_id="convert", engine=SharedSession(), aws_conn_id=None).expand_kwargs(
    discover.output.zip(files.output).map(lambda pair: dict(table=pair[0], files=pair[1]))
)
silent = EmptyOperator(task_id="sync")
report = MigrationReportOperator(
    task_id="report", discover_task_id="discover", table_task_ids=["list", "convert", "sync"],
    staging="s3://{lake.bucket}/staging", action="sync", aws_conn_id=None,
)
convert >> silent >> report
"""
    run = run_dag(dag_source(body, imports="from airflow.providers.standard.operators.empty import EmptyOperator"))
    assert run.state == "failed"
    (outcome,) = run.xcom("report", "report")["tables"]
    assert outcome["status"] == "not_run"
    assert "ended without a word" in outcome["error"]


FLAKY = """
import dataclasses
from airflow_hive_to_delta.engines import JobError

@dataclasses.dataclass
class Flaky(SharedSession):
    '''An engine that loses its connection when it is first asked for one of the tables.'''

    def submit(self, spec, environment):
        if "flaky" in spec.name and spec.name.startswith("Convert") and not FAILED:
            FAILED.append(1)
            raise JobError("The connection was lost", retryable=True)
        return super().submit(spec, environment)

FAILED = []
"""


@pytest.mark.slow
def test_one_denied_one_unsupported_one_flaky(lake, run_dag, clear_and_run, aws_endpoint, monkeypatch, spark) -> None:
    """The others are done, the run is failed, the report names each; cleared and re-run, only those run again."""
    for name in ("good", "flaky"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    secret = lake.add_bucket()
    lake.put("denied/000000_0", {"n": [1]}, bucket=secret)
    lake.glue_table({"n": "bigint"}, name="denied", location=f"s3://{secret}/denied")
    lake.glue.create_table(
        DatabaseName=lake.database,
        TableInput={"Name": "text", "StorageDescriptor": {**TEXT, "Location": lake.location("text"), "Columns": []}},
    )

    with identity_denied(secret, aws_endpoint) as user:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(user.connection))
        run = run_dag(group(lake, engine="Flaky()", conn="lake", imports=FLAKY))

        assert run.state == "failed"
        assert {task: state for task, state in run.states.items() if "convert" in task} == {
            "tables.convert[0]": "upstream_failed",  # the denied one: Airflow labels a task when it runs
            f"tables.convert[{lake.database}.flaky]": "success",
            f"tables.convert[{lake.database}.good]": "success",
        }
        assert run.tries[f"tables.convert[{lake.database}.flaky]"] == 2
        assert run.tries[f"tables.list_files[{lake.database}.denied]"] == 1, "no retry can help a denied identity"
        report = run.xcom("report", "report")
        outcomes = {t["table"].rpartition(".")[2]: t for t in report["tables"]}
        assert {name: t["status"] for name, t in outcomes.items()} == {
            "good": "converted", "flaky": "converted", "denied": "failed", "text": "refused",
        }  # fmt: skip
        assert "AccessDenied" in outcomes["denied"]["error"]
        assert "Fix what the error names" in outcomes["denied"]["advice"]
        assert "only supports parquet tables" in outcomes["text"]["error"]
        assert f"1 of 4 tables failed: {lake.database}.denied" in run.log
        before = run.tries
        assert before["tables.convert[0]"] == 0

        user.allow()
        again = clear_and_run(run, only_failed=True)

    assert again.state == "success"
    assert {task for task, tries in again.tries.items() if tries > before.get(task, 0)} == {
        f"tables.list_files[{lake.database}.denied]",
        f"tables.convert[{lake.database}.denied]",
        f"tables.verify[{lake.database}.denied]",
        "report",
    }
    assert delta_at(spark, f"s3://{secret}/denied").collect() == [(1,)]
    for secret_word in (user.secret, user.connection["password"]):
        assert secret_word not in run.log + again.log + again.all_xcoms()


class _User:
    def __init__(self, name: str, endpoint: str) -> None:
        self._iam = boto3.client("iam", region_name=REGION)
        self.name = name
        self._iam.create_user(UserName=name)
        key = self._iam.create_access_key(UserName=name)["AccessKey"]
        self.secret = key["SecretAccessKey"]
        self.connection = {
            "conn_type": "aws",
            "login": key["AccessKeyId"],
            "password": self.secret,
            "extra": {"region_name": REGION, "endpoint_url": endpoint},
        }
        self._put([{"Effect": "Deny", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{name}"}])

    def allow(self) -> None:
        self._put([])

    def _put(self, denied: list[dict[str, str]]) -> None:
        statements = [{"Effect": "Allow", "Action": "*", "Resource": "*"}, *denied]
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        # From inside: the server may be checking identities already.
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.iam.models import iam_backends

        iam_backends[DEFAULT_ACCOUNT_ID]["aws"].put_user_policy(self.name, "p", policy)


@contextmanager
def _allowed_session() -> Iterator[None]:
    """Let the keys of the tests' own session be those of a user who may do everything, while the block runs."""
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.iam.models import iam_backends

    backend = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    name = f"session-{uuid.uuid4().hex[:8]}"
    backend.create_user(REGION, name)
    key = backend.create_access_key(name)
    made = key.access_key_id
    key.access_key_id, key.secret_access_key = "testing", "testing"
    allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    backend.put_user_policy(name, "p", json.dumps(allowed))
    try:
        yield
    finally:
        key.access_key_id = made
        backend.delete_access_key(made, name)
        backend.delete_user_policy(name, "p")
        backend.delete_user(name)


@contextmanager
def identity_denied(bucket: str, endpoint: str) -> Iterator[_User]:
    """A user of AWS who may do everything but list one bucket, while moto checks who asks."""

    user = _User(bucket, endpoint)
    with _allowed_session(), checked_identities(endpoint):
        yield user
