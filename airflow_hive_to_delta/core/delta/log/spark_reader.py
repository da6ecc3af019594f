"""Reading the files of a log with Spark: entries, and checkpoints of all kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.delta.action_schemas import READ_ACTIONS_SCHEMA
from airflow_hive_to_delta.core.delta.log.files import log_folder
from airflow_hive_to_delta.core.delta.log.segment import LogSegment
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.uri import Location, parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


def log_reader(spark: SparkSession) -> DataFrameReader:
    """Spark's reader for files of a log. A missing or malformed file is an error, and names are not patterns."""
    return spark.read.options(
        mode="FAILFAST", __globPaths__="false", ignoreCorruptFiles="false", ignoreMissingFiles="false"
    )


def read_checkpoint(spark: SparkSession, segment: LogSegment) -> DataFrame:
    """The actions of the checkpoint of a segment in READ_ACTIONS_SCHEMA, without ``commitInfo``, with its ``version``.

    :raises HiveToDeltaError: it cannot be read.
    """
    folder = log_folder(segment.root)
    names = segment.checkpoint
    with spark_call(f"Reading the checkpoint {segment.checkpoint_version} of {segment.root}"):
        if names[0].endswith(".json"):
            manifest = log_reader(spark).schema(READ_ACTIONS_SCHEMA).json(str(folder.child(names[0])))
        else:
            manifest = _read_parquet(spark, [str(folder.child(name)) for name in names])
        found = manifest.where("sidecar IS NOT NULL").select("sidecar.path").collect()
        sidecars = [_sidecar(folder, row.path) for row in found]
        rows = manifest.unionByName(_read_parquet(spark, sidecars)) if sidecars else manifest
    version = f"cast({segment.checkpoint_version} as bigint) AS version"
    return rows.drop("commitInfo").selectExpr("*", version)


def _read_parquet(spark: SparkSession, paths: list[str]) -> DataFrame:
    """Files of a checkpoint in READ_ACTIONS_SCHEMA. Statistics that are kept as columns become JSON text again."""
    from pyspark.sql.types import StructType

    own = {column.name: column.dataType for column in log_reader(spark).parquet(*paths[:1]).schema}
    add = own.get("add")
    parsed = [column for column in add if column.name == "stats_parsed"] if isinstance(add, StructType) else []
    schema = spark.createDataFrame([], READ_ACTIONS_SCHEMA).schema
    if not parsed:
        return log_reader(spark).schema(schema).parquet(*paths)
    known = next(column.dataType for column in schema if column.name == "add")
    assert isinstance(known, StructType)
    # With the names and the order of the other checkpoints and entries, so that they can be united.
    text = {"stats": "coalesce(add.stats, to_json(add.stats_parsed))"}
    whole = ", ".join(f"'{name}', {text.get(name, f'add.{name}')}" for name in known.fieldNames())
    known.add(parsed[0])
    rows = log_reader(spark).schema(schema).parquet(*paths)
    return rows.selectExpr(
        *(name for name in rows.columns if name != "add"),
        f"CASE WHEN add IS NOT NULL THEN named_struct({whole}) END AS add",
    )


def _sidecar(folder: Location, path: str) -> str:
    return str(parse_location(path, "sidecar")) if "/" in path else str(folder.child("_sidecars").child(path))
