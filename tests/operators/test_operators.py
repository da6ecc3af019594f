"""Each operator by itself: what it takes, what it leaves, and what it says when it cannot."""

from __future__ import annotations

import json
import time

import pytest

from airflow_hive_to_delta import (
    ConvertTableOperator,
)
from airflow_hive_to_delta.job.file_lists import ListMaker
from tests.support.airflow_runs import Run, dag_source
from tests.support.crashes import Killed
from tests.support.migrations import group, orders_and_people
from tests.support.oracle import assert_same, delta_at

TABLE = {"name": "t", "location": "s3://b/t"}
FILES = {"table": "t", "file_count": 0, "byte_count": 0, "files": []}


def test_a_staging_root_that_a_template_names_is_checked_when_the_task_runs(run_dag, tmp_path) -> None:
    body = """
class Elsewhere(SharedSession):
    schemes = {"s3"}

RollbackTableOperator(
    task_id="roll_back", table=dict(name="t", location="s3://b/t"), aws_conn_id=None, retries=3, engine=Elsewhere(),
    staging="{{ 'ROOT' }}",
)
"""
    run = run_dag(dag_source(body.replace("ROOT", f"file://{tmp_path}")))
    assert run.tries == {"roll_back": 1}
    (outcome,) = run.xcom("roll_back", "outcomes")
    assert "jobs of Elsewhere cannot read their request from file://" in outcome["error"]


def test_only_properties_that_a_later_step_needs_travel(lake, run_dag) -> None:
    lake.glue_table({"n": "bigint"}, name="t")
    table = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"]
    given = {"connector.password": "CanaryPassword", "projection.enabled": "false", "EXTERNAL": "TRUE"}
    definition = {name: table[name] for name in ("Name", "TableType", "PartitionKeys", "StorageDescriptor")}
    lake.glue.update_table(DatabaseName=lake.database, TableInput={**definition, "Parameters": given})
    # A person's function sees them all.
    choose = "choose=lambda table: table if table['properties']['connector.password'] else None"
    body = f"GlueDiscoverOperator(task_id='discover', databases={lake.database!r}, aws_conn_id=None, {choose})"
    run = run_dag(dag_source(body))
    (found,) = run.xcom("discover")
    assert found["properties"] == {"projection.enabled": "false"}
    assert "CanaryPassword" not in run.all_xcoms() + run.log


def test_a_bucket_that_was_deleted_is_named(lake, run_dag) -> None:
    body = """
ListFilesOperator(
    task_id="list", table=dict(name="t", location="s3://deleted-since/t", columns=[]), aws_conn_id=None, retries=3
)
"""
    run = run_dag(dag_source(body))
    assert run.tries == {"list": 1}
    (outcome,) = run.xcom("list", "outcomes")
    assert "There is no bucket deleted-since: it was deleted, or its name is wrong. Restore it, or" in outcome["error"]


def test_a_template_reaches_every_step(lake, run_dag) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    run = run_dag(
        group(
            lake,
            "options={'properties': {'made.by': '{{ run_id }}'}, 'stats': '{{ \"no\" + \"ne\" }}',"
            " 'allow_bucketed': '{{ 1 == 2 }}', 'footer_threads': '{{ 2 * 2 }}'}",
            databases="{{ 'x' and '" + lake.database + "' }}",
        )
    )
    assert run.state == "success"
    log = lake.s3.get_object(Bucket=lake.bucket, Key=f"t/_delta_log/{0:020}.json")["Body"].read().decode()
    assert run.run_id in log
    assert "numRecords" not in log, "stats is none"


def test_a_long_list_is_a_manifest_on_object_storage(lake, run_dag, spark) -> None:
    originals = orders_and_people(lake)
    before = time.time_ns() // 1_000_000
    run = run_dag(group(lake, "listing=FileListing(inline_limit=1)"))

    assert run.state == "success"
    for name, original in originals.items():
        assert_same(spark, original, delta_at(spark, lake.location(name)))
    label = f"{lake.database}.orders"
    listed = run.xcom("tables.list_files", label=label)
    assert (listed["files"], listed["file_count"], listed["log_version"]) == (None, 2, -1)
    assert before <= listed["listed_at"] <= time.time_ns() // 1_000_000
    assert listed["manifest"].startswith(f"s3://{lake.bucket}/staging/")
    assert listed["byte_count"] == sum(row.size for row in spark.read.parquet(listed["manifest"]).collect())


def test_100_000_files_travel_as_less_than_a_kilobyte(lake, run_dag, spark) -> None:
    """The files are listed from an S3 Inventory report, by a job on the engine."""
    keys = "\n".join(f'"{lake.bucket}","t/part-{number:06}.parquet","100"' for number in range(100_000))
    lake.put("inventory/data.csv", keys.encode())
    manifest = {
        "sourceBucket": lake.bucket,
        "destinationBucket": f"arn:aws:s3:::{lake.bucket}",
        "creationTimestamp": "1714979289000",
        "fileFormat": "CSV",
        "fileSchema": "Bucket, Key, Size",
        "files": [{"key": "inventory/data.csv"}],
    }
    lake.put("inventory/manifest.json", json.dumps(manifest).encode())
    lake.glue_table({"n": "bigint"}, name="t")
    body = f"""
discover = GlueDiscoverOperator(task_id="discover", databases={lake.database!r}, aws_conn_id=None)
ListFilesOperator.partial(
    task_id="list", listing="inventory", inventory_manifests="s3://{lake.bucket}/inventory/manifest.json",
    staging="s3://{lake.bucket}/staging", engine=SharedSession(), aws_conn_id=None,
).expand(table=discover.output)
"""
    run = run_dag(dag_source(body))

    assert run.state == "success"
    listed = run.xcom("list", label="0")
    assert (listed["file_count"], listed["byte_count"]) == (100_000, 10_000_000)
    assert (listed["listed_at"], listed["log_version"]) == (1714979289000, None), "of the report, not of the task"
    assert len(json.dumps(listed)) < 1_000
    assert spark.read.parquet(listed["manifest"]).count() == 100_000


def test_a_long_list_without_a_staging_root_says_what_to_do(lake, run_dag) -> None:
    orders_and_people(lake)
    body = f"""
discover = GlueDiscoverOperator(task_id="discover", databases={lake.database!r}, include="orders", aws_conn_id=None)
ListFilesOperator.partial(task_id="list", inline_limit=1, aws_conn_id=None).expand(table=discover.output)
"""
    run = run_dag(dag_source(body))
    assert run.state == "failed"
    assert f"{lake.database}.orders has more than 1 files" in run.log
    assert "Pass staging=" in run.log


@pytest.mark.parametrize("hand_wired", [False, True])
def test_what_a_metastore_says_is_never_taken_for_a_template(lake, run_dag, spark, hand_wired) -> None:
    comment = "{{ 6 * 7 }} {% raise %}"
    lake.put("t #1/p={{ 1 }}/000000_0", {"n": [1]})
    lake.glue_table(
        {"n": "bigint"},
        {"p": "string"},
        [(["{{ 1 }}"], lake.location("t #1/p={{ 1 }}"))],
        name="t",
        location=lake.location("t #1"),
        comment=comment,
    )
    body = f"""
discover = GlueDiscoverOperator(task_id="discover", databases={lake.database!r}, aws_conn_id=None)
files = ListFilesOperator.partial(task_id="list", aws_conn_id=None).expand(table=discover.output)
ConvertTableOperator.partial(task_id="convert", engine=SharedSession(), aws_conn_id=None).expand_kwargs(
    discover.output.zip(files.output).map(lambda pair: dict(table=pair[0], files=pair[1]))
)
"""
    run = run_dag(dag_source(body) if hand_wired else group(lake))

    assert run.state == "success"
    assert spark.sql(f"DESCRIBE DETAIL delta.`{lake.location('t #1')}`").first().description == comment
    assert delta_at(spark, lake.location("t #1")).collect() == [(1, "{{ 1 }}")]

    from airflow.models.asset import AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        assert session.query(AssetModel).filter_by(uri=f"s3://{lake.bucket}/t%20%231").one()


def test_a_table_that_kills_the_job_which_lists_takes_no_other_with_it(lake, run_dag, monkeypatch, tmp_path) -> None:
    for name in ("a", "poison", "z"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    make = ListMaker.make

    def kills(self, table, *arguments):
        if table.name == "poison":
            raise Killed
        return make(self, table, *arguments)

    monkeypatch.setattr(ListMaker, "make", kills)
    (log := tmp_path / "log").write_text("all that Spark says")
    body = f"""
class Logged(SharedSession):
    def status(self, ref, cursor=None):
        return replace(super().status(ref, cursor), whole_log=Path({str(log)!r}))

discover = GlueDiscoverOperator(task_id="discover", databases={lake.database!r}, aws_conn_id=None, batch_size=3)
ListFilesOperator.partial(
    task_id="list", listing="spark", engine=Logged(), aws_conn_id=None, staging="s3://{lake.bucket}/staging"
).expand(table=discover.output)
"""
    run = run_dag(dag_source(body, imports="from dataclasses import replace\nfrom pathlib import Path"))
    assert run.state == "success", "the two others go on"
    logs = sorted(name.rpartition("/")[2] for name in lake.objects() if "/logs/" in name)
    assert logs == ["list.0.1.2.log", "list.0.1.3.log", "list.0.1.4.log", "list.0.1.log"], "of every job"
    listed = run.xcom("list", label="0")
    assert [files["table"].rpartition(".")[2] for files in listed if "error" not in files] == ["a", "z"]
    assert [files["error"] for files in listed if "error" in files] == ["The job was killed"]


def test_a_list_of_another_table_is_refused(lake, run_dag) -> None:
    body = f"""
ConvertTableOperator(
    task_id="convert", table={TABLE!r}, files={{**{FILES!r}, "table": "other"}}, aws_conn_id=None
)
"""
    run = run_dag(dag_source(body))
    assert run.state == "failed"
    assert "files has no list for t, only for other" in run.log


def test_include_and_exclude_are_globs(lake, run_dag) -> None:
    for name in ("dim_a", "dim_b", "fact_a", "Tmp"):
        lake.glue_table({"n": "bigint"}, name=name)
    body = f"""
GlueDiscoverOperator(
    task_id="discover", databases={lake.database!r}, aws_conn_id=None,
    include=["DIM_*", "{lake.database}.fact*"], exclude=["*_b", "other.dim_a"],
)
"""
    run = run_dag(dag_source(body))
    assert [table["name"] for table in run.xcom("discover")] == ["dim_a", "fact_a"]


def test_tables_of_two_databases_with_one_name_get_names_of_their_own(lake, run_dag, glue) -> None:
    other = f"{lake.database}_web"
    glue.create_database(DatabaseInput={"Name": other})
    mine = lake.database
    for database in (mine, other):
        lake.database = database
        lake.glue_table({"n": "bigint"}, name="t")
    body = f"GlueDiscoverOperator(task_id='discover', databases={[mine, other]!r}, aws_conn_id=None)"
    run = run_dag(dag_source(body))
    assert [table["target_table_name"] for table in run.xcom("discover")] == [f"{mine}_t", f"{other}_t"]


def test_a_catalog_of_spark_is_discovered_and_converted_on_the_engine(run_dag, spark, database, tmp_path) -> None:
    spark.sql(f"CREATE TABLE {database}.t (n INT) PARTITIONED BY (p STRING) STORED AS PARQUET LOCATION '{tmp_path}/t'")
    spark.sql(f"INSERT INTO {database}.t PARTITION (p='a/b') VALUES (1), (2)")
    spark.sql(f"ALTER TABLE {database}.t ADD PARTITION (p='far') LOCATION '{tmp_path}/far'")
    spark.sql(f"INSERT INTO {database}.t PARTITION (p='far') VALUES (3)")
    spark.sql(f"CREATE VIEW {database}.v AS SELECT 1 AS n")
    body = f"""
hive_to_delta_task_group(
    source=CatalogSource(allow=["spark_catalog.{database}.*"]), staging="file://{tmp_path}/staging",
    engine=SharedSession(), aws_conn_id=None, options=ConversionOptions(stats="scan"),
)
"""
    run = run_dag(dag_source(body))

    assert run.state == "success"
    assert {t["table"].rpartition(".")[2]: t["status"] for t in run.xcom("report", "report")["tables"]} == {
        "t": "converted",
        "v": "refused",
    }
    assert_same(spark, spark.table(f"{database}.t"), delta_at(spark, tmp_path / "t"))
    (page,) = (tmp_path / "staging").rglob("report.html")
    assert f"{database}.t" in page.read_text()


def test_a_converted_table_is_an_asset_and_its_job_has_a_link(lake, run_dag) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    run = run_dag(group(lake, f"asset_alias='alias_{lake.database}'"))

    from airflow.models.asset import AssetAliasModel, AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        asset = session.query(AssetModel).filter_by(uri=lake.location("t")).one()
        (event,) = session.query(AssetEvent).filter_by(asset_id=asset.id).all()
        assert event.extra["source_table"] == f"{lake.database}.t"
        alias = session.query(AssetAliasModel).filter_by(name=f"alias_{lake.database}").one()
        assert [found.uri for found in alias.assets] == [lake.location("t")]
    link = run.xcom("tables.convert", "_link_SparkJobLink", label=f"{lake.database}.t")
    assert link.startswith("http://127.0.0.1/jobs/")


def test_openlineage_gets_what_was_read_and_made(lake, run_dag) -> None:
    from airflow_hive_to_delta.core.models import TableInfo
    from airflow_hive_to_delta.core.results import ConversionResult
    from airflow_hive_to_delta.operators.tables.lineage import lineage_of

    lake.put("t/day=1/000000_0", {"n": [1, 2]})
    lake.glue_table({"n": "bigint"}, {"day": "int"}, [(["1"], lake.location("t/day=1"))], name="t")
    run = run_dag(group(lake))
    (table,) = run.xcom("discover")
    result = run.xcom("tables.convert", label=f"{lake.database}.t")

    lineage = lineage_of([(TableInfo.from_dict(table), ConversionResult.from_dict(result))])

    (read,), (made,) = lineage.inputs, lineage.outputs
    assert (read.namespace, read.name) == ("arn:aws:glue:us-east-1:123456789012", f"table/{lake.database}/t")
    assert (made.namespace, made.name) == (f"s3://{lake.bucket}", "t")
    assert [(f.name, f.type) for f in made.facets["schema"].fields] == [("n", "bigint"), ("day", "int")]
    statistics = made.outputFacets["outputStatistics"]
    assert (statistics.rowCount, statistics.fileCount) == (2, 1)
    # And this is what Airflow's OpenLineage asks an operator for.
    from airflow.sdk import DAG

    with DAG("lineage", schedule=None):
        task = ConvertTableOperator(task_id="convert", table=table, files=FILES)
    task._converted = [(TableInfo.from_dict(table), ConversionResult.from_dict(result))]
    assert task.get_openlineage_facets_on_complete(None) == lineage


def test_no_secret_reaches_a_log_an_xcom_a_manifest_or_a_report(lake, run_dag, monkeypatch, aws_endpoint) -> None:
    canary = "CanarySecret0123456789abcdefghijklmnopqr"
    connection = {
        "conn_type": "aws",
        "login": "AKIACANARYCANARY0000",
        "password": canary,
        "extra": {"region_name": "us-east-1", "endpoint_url": aws_endpoint, "aws_session_token": f"{canary}token"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    orders_and_people(lake)
    # Refused for its location, which carries a secret that the reason must not repeat.
    lake.glue_table({"n": "bigint"}, name="leaky", location=f"s3://AKIACANARYCANARY0000:{canary}@{lake.bucket}/leaky")

    run = run_dag(group(lake, "listing=FileListing(inline_limit=0)", conn="lake"))

    statuses = {t["table"].rpartition(".")[2]: t["status"] for t in run.xcom("report", "report")["tables"]}
    assert statuses == {"orders": "converted", "people": "converted", "leaky": "refused"}
    kept = lake.s3.list_objects_v2(Bucket=lake.bucket, Prefix="staging/")["Contents"]
    assert {found["Key"].rpartition(".")[2] for found in kept} == {"parquet", "json", "html"}
    for found in kept:
        assert canary.encode() not in lake.s3.get_object(Bucket=lake.bucket, Key=found["Key"])["Body"].read()
    assert canary not in run.log
    assert canary not in run.all_xcoms()


def test_whatever_ends_a_task_its_error_is_in_the_report(lake, run_dag) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    broken = """
class Broken(SharedSession):
    def submit(self, spec, environment):
        raise RuntimeError("The engine broke")
"""
    run = run_dag(group(lake, engine="Broken()", per_table="", imports=broken))
    (outcome,) = run.xcom("report", "report")["tables"]
    assert (outcome["status"], outcome["error"], outcome["retryable"]) == ("failed", "The engine broke", True)


def test_a_mistyped_staging_root_makes_no_bucket(lake, run_dag, s3) -> None:
    orders_and_people(lake)
    mistyped = f"{lake.bucket}-mistyped"
    body = f"""
discover = GlueDiscoverOperator(task_id="discover", databases={lake.database!r}, aws_conn_id=None)
ListFilesOperator.partial(
    task_id="list", inline_limit=0, aws_conn_id=None, staging="s3://{mistyped}/staging"
).expand(table=discover.output)
"""
    run = run_dag(dag_source(body))
    assert run.state == "failed"
    (outcome,) = run.xcom("list", "outcomes", label="0")
    assert outcome["status"] == "failed"
    assert mistyped not in {found["Name"] for found in s3.list_buckets()["Buckets"]}


def test_two_groups_of_one_dag_keep_apart(lake, run_dag) -> None:
    for name in ("a", "b"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    body = "\n".join(
        f"hive_to_delta_task_group({name!r}, source=GlueSource({lake.database!r}, include={name!r}),"
        f" staging='s3://{lake.bucket}/staging', engine=SharedSession(), aws_conn_id=None)"
        for name in ("a", "b")
    )
    run = run_dag(dag_source(body))
    reports = {name: run.xcom(f"{name}.report", "report") for name in ("a", "b")}
    assert reports["a"]["json"] != reports["b"]["json"]
    for name, report in reports.items():
        assert [table["table"] for table in report["tables"]] == [f"{lake.database}.{name}"]


def test_a_discovery_that_has_to_find_something_names_what_it_looked_for(lake, run_dag) -> None:
    def found(include: str) -> Run:
        arguments = f"databases={lake.database!r}, include={include!r}, aws_conn_id=None, leave_out_delta=True"
        return run_dag(dag_source(f"GlueDiscoverOperator(task_id='discover', {arguments}, at_least_one=True)"))

    lake.glue_table({"n": "bigint"}, name="orders")
    assert found("orders").state == "success"
    mistyped = found("ordres")
    assert mistyped.state == "failed"
    assert (
        f"No table was found by include='ordres' and exclude=() in the Glue database(s) {lake.database}" in mistyped.log
    )
    lake.glue.update_table(
        DatabaseName=lake.database, TableInput={"Name": "orders", "Parameters": {"table_type": "DELTA"}}
    )
    cut_over = found("orders")
    assert cut_over.state == "failed"
    assert f"{lake.database}.orders is skipped: It is a Delta table in its catalog" in cut_over.log
