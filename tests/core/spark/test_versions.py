"""What differs between the versions of Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta.core.files import FILES_ARROW_SCHEMA, ListedFiles
from airflow_hive_to_delta.core.models import FILES_SCHEMA
from airflow_hive_to_delta.core.spark.session import local_session_conf
from airflow_hive_to_delta.core.spark.versions import SPARK_4_JARS, SPARK_35_JARS, local_jars


@pytest.mark.parametrize("count", [0, 1, 25_000])
def test_an_arrow_table_becomes_a_dataframe(spark: SparkSession, count: int) -> None:
    rows: list[dict[str, Any]] = [
        {
            "path": f"s3://b/ü {number}",
            "size": number,
            "modification_time": None if number % 2 else number,
            "partition_values": None if number % 3 else [("p", None), ("q", str(number))],
        }
        for number in range(count)
    ]
    halves = [pa.Table.from_pylist(half, FILES_ARROW_SCHEMA) for half in (rows[: count // 2], rows[count // 2 :])]
    files = ListedFiles(spark, pa.concat_tables(halves)).frame
    assert files.schema == spark.createDataFrame([], FILES_SCHEMA).schema
    expected = [{**row, "partition_values": row["partition_values"] and dict(row["partition_values"])} for row in rows]
    assert sorted((row.asDict() for row in files.collect()), key=lambda row: row["size"]) == expected


@pytest.mark.parametrize(
    ("version", "jars", "scala"), [("3.5.8", SPARK_35_JARS, "_2.12:3.3."), ("4.2.0", SPARK_4_JARS, "_2.13:4.4.")]
)
def test_the_jars_are_those_for_the_installed_pyspark(
    version: str, jars: object, scala: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HIVE_TO_DELTA_JARS")
    monkeypatch.setattr(pyspark, "__version__", version)
    assert local_jars() == jars
    assert scala in local_session_conf()["spark.jars.packages"]
