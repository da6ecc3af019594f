"""Listing the files of tables with Spark, on any file system of the session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.files import ListedFiles, SeenFolders
from airflow_hive_to_delta.core.listing.base import DataFrameListing
from airflow_hive_to_delta.core.listing.inventory import check_files_df
from airflow_hive_to_delta.core.listing.local import list_local_files
from airflow_hive_to_delta.core.listing.locations import (
    TableLocation,
    assign_locations,
    check_missing,
    data_files,
    table_locations,
)
from airflow_hive_to_delta.core.models import FILES_SCHEMA, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.session import has_driver
from airflow_hive_to_delta.core.spark.sql import error_condition
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOCATIONS_PER_READ = 5_000
#: Spark makes a task for every 128 MB of listed files, though it does not read them. More tasks than this cost time.
_MOST_TASKS = 200
_PATTERN = re.compile(r"[{}\[\]*?\\]")


class DatabricksListing(DataFrameListing):
    """Lists files with Spark and the credentials of its session. It works on any Spark, not only on Databricks.

    The partitions of a table that was discovered in Glue are read from Glue with boto3.

    :param max_workers: how many partitions are looked up in parallel.
    """

    def __init__(self, max_workers: int = 8) -> None:
        self.max_workers = max_workers

    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame:
        return self.list_table(spark, table, options).frame

    def list_table(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> ListedFiles:
        locations = table_locations(spark, table, options, None, None, self.max_workers)
        if has_driver(spark) and all(location.location.scheme == "file" for location in locations):
            # Spark would list them on the driver, too: slower, and again for every job.
            seen = SeenFolders()
            batches = list_local_files(table, locations, options, self.max_workers, seen)
            return ListedFiles.from_batches(spark, batches, seen)
        return ListedFiles(spark, self._list_by_spark(spark, table, locations, options))

    def _list_by_spark(
        self, spark: SparkSession, table: TableInfo, locations: Sequence[TableLocation], options: ConversionOptions
    ) -> DataFrame:
        frames = []
        for start in range(0, len(locations), _LOCATIONS_PER_READ):
            frames.extend(self._list(spark, table, locations[start : start + _LOCATIONS_PER_READ], options))
        if not frames:
            return spark.createDataFrame([], FILES_SCHEMA)
        listed = reduce(lambda a, b: a.union(b), frames).coalesce(_MOST_TASKS)
        return data_files(assign_locations(listed, locations))

    def _list(
        self, spark: SparkSession, table: TableInfo, locations: Sequence[TableLocation], options: ConversionOptions
    ) -> list[DataFrame]:
        """The files at these locations in one DataFrame, or none at all when no location exists."""
        # Spark does not report a missing location whose name looks like a pattern, so each of those is looked up first.
        odd = [location for location in locations if _PATTERN.search(location.location.path)]
        plain = [location for location in locations if location not in odd]
        locations = self._existing(spark, table, odd, options) + plain
        if not locations:
            return []
        try:
            with spark_call(f"Listing the files of {table.qualified_name}"):
                return [_spark_listing(spark, [location.location for location in locations])]
        except HiveToDeltaError as error:
            failure = error
        # The error names one location that Spark cannot list, or none, so each location is looked up.
        existing = self._existing(spark, table, locations, options)
        if len(existing) == len(locations):
            raise failure
        return [_spark_listing(spark, [location.location for location in existing])] if existing else []

    def _existing(
        self, spark: SparkSession, table: TableInfo, locations: Sequence[TableLocation], options: ConversionOptions
    ) -> list[TableLocation]:
        with ThreadPoolExecutor(self.max_workers) as pool:
            exists = list(pool.map(lambda location: _exists(spark, location), locations))
        by_existence = list(zip(locations, exists, strict=True))
        check_missing(table, [location for location, found in by_existence if not found], options)
        return [location for location, found in by_existence if found]


def _spark_listing(spark: SparkSession, locations: Sequence[Location]) -> DataFrame:
    """The files that Spark lists at these locations, in FILES_SCHEMA. Their contents are not read."""
    from pyspark.sql import functions as F  # noqa: N812

    found = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        # Locations are names: `{`, `[`, `*` and `?` in them are not patterns.
        .option("__globPaths__", "false")
        # With one location twice: given a single path that a stream wrote to, Spark would list only what the stream's
        # `_spark_metadata` names.
        .load([str(location) for location in [*locations, locations[0]]])
    )
    return check_files_df(
        found.select(
            F.col("path").alias("file_path"),
            F.col("length").alias("size"),
            F.col("modificationTime").alias("last_modified"),
        )
    )


def _exists(spark: SparkSession, location: TableLocation) -> bool:
    from pyspark.errors import AnalysisException

    # Spark raises an error for a pattern that fits nothing, and not always for a name that does not exist. So the name
    # is given as a pattern that fits only itself.
    pattern = _PATTERN.sub(r"\\\g<0>", str(location.location))
    with spark_call(f"Listing {location.description} at {location.location}"):
        try:
            spark.read.format("binaryFile").option("recursiveFileLookup", "true").load([pattern, pattern]).isLocal()
        except AnalysisException as error:
            if error_condition(error) == "PATH_NOT_FOUND":
                return False
            raise
    return True
