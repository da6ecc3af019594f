"""The example DAGs, as a user copies them: parsed at no cost, and run in a real Airflow on an embedded Spark.

They migrate the databases of the demo, and what Delta reads afterwards is compared with what Hive reads. Starting Spark
is what costs time here, so two of them run their jobs on the session of the tests.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from scripts.demo_lake import BUCKETS, DATABASES, fill, hive_tables
from tests.airflow_runs import Run, SharedSession
from tests.conftest import PROJECT, REGION
from tests.lake import Lake
from tests.oracle import assert_same, delta_at
from tests.test_layers import imported_by

EXAMPLES = sorted((PROJECT / "dags_examples").glob("*.py"))
HEAVY = {"pyspark", "pyarrow", "boto3", "botocore", "pandas", "numpy", "delta"}


def test_every_example_has_a_test_here() -> None:
    names = {path.stem for path in EXAMPLES}
    assert names == {"one_database", "several_databases", "hand_wired", "s3_inventory", "unity_catalog"}


def test_parsing_the_examples_loads_no_heavy_library() -> None:
    code = "import runpy\n" + "\n".join(f"runpy.run_path({str(path)!r})" for path in EXAMPLES)
    imported = imported_by(code)
    assert "airflow_hive_to_delta" in imported
    assert not imported & HEAVY


@pytest.mark.slow
def test_one_database(run_dag, demo_lake: Lake) -> None:
    run = run_dag(example("one_database"))
    assert run.states == {
        "discover": "success",
        "tables.list_files[sales.items]": "success",
        "tables.list_files[sales.orders]": "success",
        "tables.convert[sales.items]": "success",
        "tables.convert[sales.orders]": "success",
        "report": "success",
    }
    assert statuses(run) == {"sales.items": "converted", "sales.notes": "refused", "sales.orders": "converted"}
    assert_reads_as_hive(demo_lake, {"sales.items": "sales_delta.items", "sales.orders": "sales_delta.orders"})


@pytest.mark.slow
def test_several_databases(run_dag, demo_lake: Lake) -> None:
    run = run_dag(example("several_databases"))
    batch = "sales.items and 3 more"
    assert run.states == {
        "discover": "success",
        f"tables.list_files[{batch}]": "success",
        f"tables.convert[{batch}]": "success",
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


def example(name: str) -> Path:
    return PROJECT / "dags_examples" / f"{name}.py"


def statuses(run: Run) -> dict[str, str]:
    return {table["table"]: table["status"] for table in run.xcom("report", "report")["tables"]}


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
