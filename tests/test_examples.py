"""The example DAGs, as a user copies them: parsed at no cost, and run in a real Airflow on an embedded Spark.

They migrate the databases of the demo, and what Delta reads afterwards is compared with what Hive reads. Starting Spark
is what costs time here, so most of them run their jobs on the session of the tests.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import airflow_hive_to_delta
from airflow_hive_to_delta import GlueDiscovery, S3Listing, convert
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.engines import JobRequest
from scripts.demo_lake import BUCKETS, DATABASES, NEW_DAY, NEW_PLACE, NEW_ROWS, fill, hive_tables, hive_writes
from tests.support.airflow_runs import Run, SharedSession
from tests.support.aws import REGION
from tests.support.campaigns import answering
from tests.support.imports import imported_by
from tests.support.lake import Lake
from tests.support.oracle import assert_same, delta_at
from tests.support.project import PROJECT

EXAMPLES = sorted((PROJECT / "dags_examples").glob("*.py"))
SYNC_REPORT = "hive_to_delta_sync.report"
HEAVY = {"pyspark", "pyarrow", "boto3", "botocore", "pandas", "numpy", "delta"}


def test_every_example_has_a_test_here() -> None:
    names = {path.stem for path in EXAMPLES}
    before = {"plan_migration", "one_database", "several_databases", "hand_wired", "s3_inventory", "unity_catalog"}
    after = {"sync_until_cut_over", "verify_fully", "cut_over", "roll_back", "vacuum_external_files"}
    campaigns = {"campaign", "campaign_sync", "campaign_cut_over"}
    assert names == before | after | campaigns | {"stream_into_table", "time_travel"}


@pytest.mark.slow
def test_parsing_the_examples_loads_no_heavy_library() -> None:
    code = "import runpy\n" + "\n".join(f"runpy.run_path({str(path)!r})" for path in EXAMPLES)
    imported = imported_by(code)
    assert "airflow_hive_to_delta" in imported
    assert not imported & HEAVY


@pytest.mark.slow
@pytest.mark.usefixtures("on_the_session_of_the_tests")
def test_one_database(run_dag, demo_lake: Lake) -> None:
    run = run_dag(example("one_database"))
    assert run.states == {
        "discover": "success",
        "tables.list_files[sales.items]": "success",
        "tables.list_files[sales.orders]": "success",
        "tables.convert[sales.items]": "success",
        "tables.convert[sales.orders]": "success",
        "tables.verify[sales.items]": "success",
        "tables.verify[sales.orders]": "success",
        "report": "success",
    }
    assert statuses(run) == {"sales.items": "converted", "sales.notes": "refused", "sales.orders": "converted"}
    assert_reads_as_hive(demo_lake, {"sales.items": "sales_delta.items", "sales.orders": "sales_delta.orders"})


@pytest.mark.slow
@pytest.mark.usefixtures("on_the_session_of_the_tests")
def test_several_databases(run_dag, demo_lake: Lake) -> None:
    run = run_dag(example("several_databases"))
    batch = "sales.items and 3 more"
    assert run.states == {
        "discover": "success",
        f"tables.list_files[{batch}]": "success",
        f"tables.convert[{batch}]": "success",
        f"tables.verify[{batch}]": "success",
        "report": "success",
    }
    assert statuses(run) == {
        "sales.items": "converted",
        "sales.notes": "refused",
        "sales.orders": "converted",
        "web.clicks_parquet": "converted",
        "web.counters": "converted",
        "web.tmp_counters": "skipped",
    }
    targets = {
        "sales.items": "sales_delta.items",
        "sales.orders": "sales_delta.orders",
        "web.clicks_parquet": "web_delta.clicks",
        "web.counters": "web_delta.counters",
    }
    for source, target in targets.items():
        assert_same(demo_lake.spark, demo_lake.spark.table(source), registered(demo_lake, target))


@pytest.mark.slow
@pytest.mark.usefixtures("on_the_session_of_the_tests")
def test_hand_wired(run_dag, demo_lake: Lake) -> None:
    run = run_dag(example("hand_wired"))
    assert run.states == {
        "discover": "success",
        "list_files[sales.items]": "success",
        "list_files[sales.orders]": "success",
        "convert[sales.items]": "success",
        "convert[sales.orders]": "success",
        "report": "success",
    }
    assert statuses(run) == {"sales.items": "converted", "sales.notes": "refused", "sales.orders": "converted"}
    assert_reads_as_hive(demo_lake, {"sales.items": "sales_delta.items", "sales.orders": "sales_delta.orders"})


@pytest.mark.slow
@pytest.mark.usefixtures("on_the_session_of_the_tests")
def test_s3_inventory(run_dag, demo_lake: Lake) -> None:
    run = run_dag(example("s3_inventory"))
    assert set(run.states.values()) == {"success"}
    assert statuses(run) == {"sales.items": "converted", "sales.notes": "refused", "sales.orders": "converted"}
    assert_reads_as_hive(demo_lake, {"sales.items": "sales_delta.items", "sales.orders": "sales_delta.orders"})


@pytest.mark.slow
@pytest.mark.usefixtures("on_the_session_of_the_tests")
def test_unity_catalog(run_dag, demo_lake: Lake) -> None:
    run = run_dag(example("unity_catalog"))
    assert set(run.states.values()) == {"success"}
    assert statuses(run) == {
        "spark_catalog.sales.items": "converted",
        "spark_catalog.sales.notes": "refused",
        "spark_catalog.sales.orders": "converted",
    }
    for name in ("items", "orders"):
        delta = demo_lake.spark.table(f"spark_catalog.sales_delta.{name}")
        assert_same(demo_lake.spark, demo_lake.spark.table(f"sales.{name}"), delta)


@pytest.mark.slow
@pytest.mark.usefixtures("on_the_session_of_the_tests")
def test_plan_migration(run_dag, demo_lake: Lake) -> None:
    run = run_dag(example("plan_migration"))
    assert set(run.states.values()) == {"success"}
    found = {table["table"]: table["status"] for table in run.xcom("plan", "report")["tables"]}
    parquet = ("sales.items", "sales.orders", "web.clicks_parquet", "web.counters", "web.tmp_counters")
    assert found == {**dict.fromkeys(parquet, "convertible"), "sales.notes": "refused"}
    keys = [found["Key"] for found in demo_lake.s3.list_objects_v2(Bucket="lake")["Contents"]]
    assert not [key for key in keys if "_delta_log" in key]
    assert len([key for key in keys if key.endswith(("plan.json", "plan.html"))]) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("on_the_session_of_the_tests")
def test_sync_until_cut_over_and_back(run_dag, demo_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The life of a migration: converted, synced, verified, cut over, and rolled back."""
    targets = {"sales.items": "sales_delta.items", "sales.orders": "sales_delta.orders"}
    first = run_dag(example("sync_until_cut_over"))
    assert set(first.states.values()) == {"success"}
    assert statuses(first, SYNC_REPORT) == {
        "sales.items": "converted",
        "sales.notes": "refused",
        "sales.orders": "converted",
    }
    assert_reads_as_hive(demo_lake, targets)

    hive_writes(demo_lake.s3, demo_lake.glue)
    demo_lake.spark.sql(f"ALTER TABLE sales.orders ADD PARTITION (day='{NEW_DAY}') LOCATION '{NEW_PLACE}'")
    second = run_dag(example("sync_until_cut_over"), conf={"quiet_minutes": 0})
    assert statuses(second, SYNC_REPORT) == {
        "sales.items": "unchanged",
        "sales.notes": "refused",
        "sales.orders": "synced",
    }
    assert_reads_as_hive(demo_lake, targets)

    verified = run_dag(example("verify_fully"))
    assert set(verified.states.values()) == {"success"}
    assert statuses(verified) == {"sales.items": "verified", "sales.notes": "refused", "sales.orders": "verified"}

    with monkeypatch.context() as patched:
        patched.setattr("airflow_hive_to_delta.operators.spark_job.LocalSpark", Forgetful)
        run = run_dag(example("cut_over"))
    assert run.states["tables.verify[sales.orders]"] == "failed"
    assert "upstream_failed" in run.states.values(), "what differs is not cut over"
    in_glue = demo_lake.glue.get_table(DatabaseName="sales", Name="orders")["Table"]
    assert in_glue["StorageDescriptor"]["InputFormat"].endswith("MapredParquetInputFormat")

    run = run_dag(example("cut_over"))
    assert set(run.states.values()) == {"success"}
    assert run.xcom("tables.verify", label="sales.orders")["success"]
    assert run.xcom("tables.cut_over", label="sales.orders")["status"] == "cut_over"
    assert_same(demo_lake.spark, demo_lake.spark.table("sales.orders"), registered(demo_lake, "sales.orders"))
    third = run_dag(example("sync_until_cut_over"))
    assert statuses(third, SYNC_REPORT)["sales.orders"] == "skipped"

    run = run_dag(example("cut_over"))
    assert run.states["discover"] == "failed", "it is cut over, and no other has the name"
    assert "sales.orders is skipped: It is a Delta table in its catalog" in run.log

    run = run_dag(example("roll_back"))
    assert set(run.states.values()) == {"success"}
    assert run.xcom("roll_back", label="sales.orders")["restored"] == ["sales.orders"]
    in_glue = demo_lake.glue.get_table(DatabaseName="sales", Name="orders")["Table"]
    assert in_glue["StorageDescriptor"]["InputFormat"].endswith("MapredParquetInputFormat")
    assert demo_lake.spark.table("sales.orders").count() == 9 + NEW_ROWS


@pytest.mark.slow
@pytest.mark.usefixtures("on_the_session_of_the_tests")
def test_a_campaign_its_syncs_its_cut_over_and_the_way_back(run_dag, demo_lake: Lake) -> None:
    def states() -> dict[str, str]:
        found = CampaignStore.open("s3://lake/staging", "lake").states()
        return {table: state.state for table, state in found.items()}

    targets = {"sales.items": "sales_delta.items", "sales.orders": "sales_delta.orders"}
    with answering("Approve"):
        first = run_dag(example("campaign"))
    assert first.state == "success"
    web = {"web.clicks_parquet": "verified", "web.counters": "verified"}
    assert states() == {"sales.items": "verified", "sales.notes": "refused", "sales.orders": "verified", **web}
    assert_reads_as_hive(demo_lake, targets)

    hive_writes(demo_lake.s3, demo_lake.glue)
    demo_lake.spark.sql(f"ALTER TABLE sales.orders ADD PARTITION (day='{NEW_DAY}') LOCATION '{NEW_PLACE}'")
    assert run_dag(example("campaign_sync"), conf={"quiet_minutes": 0}).state == "success"
    assert set(states().values()) == {"synced", "refused"}
    assert_reads_as_hive(demo_lake, targets)

    with answering("Approve"):
        assert run_dag(example("campaign_cut_over"), conf={"tables": "sales.orders"}).state == "success"
    assert (states()["sales.orders"], states()["sales.items"]) == ("cut_over", "synced")
    assert_same(demo_lake.spark, demo_lake.spark.table("sales.orders"), registered(demo_lake, "sales.orders"))
    with answering("Approve"):
        run = run_dag(example("campaign_cut_over"), conf={"tables": "sales.*", "phase": "roll_back"})
    assert run.state == "success"
    assert (states()["sales.orders"], states()["sales.items"]) == ("rolled_back", "synced")


@pytest.mark.slow
@pytest.mark.usefixtures("on_the_session_of_the_tests")
def test_a_stream_time_travel_and_vacuum(run_dag, demo_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = demo_lake.spark
    monkeypatch.setattr(airflow_hive_to_delta, "local_session", lambda *_, **__: spark, raising=False)
    for name in ("items", "orders"):
        (done,) = convert(spark, GlueDiscovery("sales", name), S3Listing(), None, None, progress=False)
        assert done.status == "converted"
    items = spark.table("sales.items")
    items.write.parquet("s3://lake/landing/items")

    for _ in range(2):  # the second finds nothing new
        run = run_dag(example("stream_into_table"))
        assert run.xcom("stream")["version"] == 1
    assert_same(spark, items.unionAll(items), delta_at(spark, "s3://lake/sales/items"))

    compared = run_dag(example("time_travel")).xcom("compare")
    assert compared == {
        "then": {"version": 0, "rows": 2},
        "now": {"version": 1, "rows": 4},
        "operations": ["WRITE", "CONVERT"],
    }

    spark.sql("DELETE FROM delta.`s3://lake/sales/orders` WHERE day = '2019-01-01'")
    vacuum = run_dag(example("vacuum_external_files"))
    assert vacuum.state == "success"
    result = vacuum.xcom("vacuum", label="sales.orders")
    assert (result["dry_run"], result["orphaned_files"]) == (True, []), "removed today, and Hive still has it"
    assert demo_lake.s3.get_object(Bucket="archive", Key="orders/2019/000000_0")["ContentLength"]


class Forgetful(SharedSession):
    """An engine that loses a file of the original on the way to the verification."""

    def prepare(self, request: JobRequest) -> None:
        if request.action == "verify":
            for files in request.arguments["lists"]:
                files["files"].pop()
                files["file_count"] -= 1


def example(name: str) -> Path:
    return PROJECT / "dags_examples" / f"{name}.py"


def statuses(run: Run, report: str = "report") -> dict[str, str]:
    return {table["table"]: table["status"] for table in run.xcom(report, "report")["tables"]}


def assert_reads_as_hive(lake: Lake, targets: dict[str, str]) -> None:
    """Delta, where Glue says that the target is, reads what Hive does."""
    for source, target in targets.items():
        expected, found = lake.spark.table(source).collect(), registered(lake, target).collect()
        assert sorted(found, key=str) == sorted(expected, key=str), target


def registered(lake: Lake, target: str) -> DataFrame:
    schema, name = target.split(".")
    table = lake.glue.get_table(DatabaseName=schema, Name=name)["Table"]
    assert table["Parameters"]["table_type"] == "DELTA"
    return delta_at(lake.spark, table["StorageDescriptor"]["Location"])


@pytest.fixture
def demo_lake(spark: SparkSession, s3: Any, glue: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """The databases of the demo, in Glue and in the Hive metastore of the tests' session, which nobody converts."""
    connection = {
        "conn_type": "aws",
        "login": "testing",
        "password": "testing",
        "extra": {"endpoint_url": os.environ["AWS_ENDPOINT_URL"], "region_name": REGION},
    }
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
    fill(s3, glue)
    create_in_hive(spark)
    yield Lake(spark, s3, glue, "lake", "sales")
    for database in DATABASES:
        spark.sql(f"DROP DATABASE {database} CASCADE")
        spark.sql(f"DROP DATABASE IF EXISTS {database}_delta CASCADE")
    for database in glue.get_databases()["DatabaseList"]:
        if database["Name"].removesuffix("_delta") in DATABASES:
            glue.delete_database(Name=database["Name"])
    for bucket in BUCKETS:
        for found in s3.list_objects_v2(Bucket=bucket)["Contents"]:
            s3.delete_object(Bucket=bucket, Key=found["Key"])
        s3.delete_bucket(Bucket=bucket)


@pytest.fixture
def on_the_session_of_the_tests(demo_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of the default engine run there, where its catalog is a Hive metastore."""
    monkeypatch.setattr("airflow_hive_to_delta.operators.spark_job.LocalSpark", SharedSession)


def create_in_hive(spark: SparkSession) -> None:
    for database in DATABASES:
        spark.sql(f"CREATE DATABASE {database}")
        lake = Lake(spark, None, None, "lake", database)
        for table in hive_tables():
            if table.database == database and table.files:
                lake.hive_table(table.columns, table.keys, table.partitions, name=table.name, location=table.location)
    spark.sql("CREATE TABLE sales.notes (line string) STORED AS TEXTFILE LOCATION 's3://lake/sales/notes'")
