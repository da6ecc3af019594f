"""Listing the files of tables with Spark, on any file system that the session knows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.listing.base import DataFrameListing
from airflow_hive_to_delta.core.listing.inventory import check_files_df as check_files_df
from airflow_hive_to_delta.core.listing.locations import (
    Place,
    check_missing,
    data_files,
    places_of,
    with_places,
)
from airflow_hive_to_delta.core.models import FILES_SCHEMA, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.sql import error_condition
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOCATIONS_PER_READ = 5_000
#: Spark makes a task of each 128 MB of listed files, though none is read; more tasks than this only cost time.
_MOST_TASKS = 200
_PATTERN = re.compile(r"[{}\[\]*?\\]")


class DatabricksListing(DataFrameListing):
    """Lists with Spark alone, by the session's own credentials. Works in any Spark, on any file system it knows.

    Partitions of a table that came from Glue are asked of Glue, as its discovery was; all else is Spark.
    """

    def __init__(self, max_workers: int = 8) -> None:
        self.max_workers = max_workers

    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame:
        places = places_of(spark, table, options, None, None, self.max_workers)
        frames = []
        for start in range(0, len(places), _LOCATIONS_PER_READ):
            frames.extend(self._read(spark, table, places[start : start + _LOCATIONS_PER_READ], options))
        if not frames:
            return spark.createDataFrame([], FILES_SCHEMA)
        return data_files(with_places(reduce(lambda a, b: a.union(b), frames).coalesce(_MOST_TASKS), places))

    def _read(
        self, spark: SparkSession, table: TableInfo, places: Sequence[Place], options: ConversionOptions
    ) -> list[DataFrame]:
        """The files at these places, in one DataFrame; none when no place is there."""
        # Of a name that looks like a pattern Spark does not say that it is missing.
        odd = [place for place in places if _PATTERN.search(place.location.path)]
        places = self._those_there(spark, table, odd, options) + [place for place in places if place not in odd]
        if not places:
            return []
        try:
            with spark_call(f"Listing the files of {table.qualified_name}"):
                return [_spark_listing(spark, [place.location for place in places])]
        except HiveToDeltaError as error:
            failure = error
        # Spark names one place that it cannot list, or none: ask for each.
        left = self._those_there(spark, table, places, options)
        if len(left) == len(places):
            raise failure
        return [_spark_listing(spark, [place.location for place in left])] if left else []

    def _those_there(
        self, spark: SparkSession, table: TableInfo, places: Sequence[Place], options: ConversionOptions
    ) -> list[Place]:
        with ThreadPoolExecutor(self.max_workers) as pool:
            there = list(pool.map(lambda place: _is_there(spark, place), places))
        check_missing(table, [place for place, found in zip(places, there, strict=True) if not found], options)
        return [place for place, found in zip(places, there, strict=True) if found]


def _spark_listing(spark: SparkSession, locations: Sequence[Location]) -> DataFrame:
    """What Spark finds at these places, in FILES_SCHEMA. Contents are not read."""
    from pyspark.sql import functions as F  # noqa: N812

    found = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        # Names are names: `{`, `[`, `*` and `?` in them are no patterns.
        .option("__globPaths__", "false")
        # Twice, for a folder that a stream wrote: of a single path Spark would read what its `_spark_metadata` lists.
        .load([str(location) for location in [*locations, locations[0]]])
    )
    return check_files_df(
        found.select(
            F.col("path").alias("file_path"),
            F.col("length").alias("size"),
            F.col("modificationTime").alias("last_modified"),
        )
    )


def _is_there(spark: SparkSession, place: Place) -> bool:
    from pyspark.errors import AnalysisException

    # As a pattern that only its own name fits, a missing name is an error of Spark's; as a name it may not be.
    pattern = _PATTERN.sub(r"\\\g<0>", str(place.location))
    with spark_call(f"Listing {place.what} at {place.location}"):
        try:
            spark.read.format("binaryFile").option("recursiveFileLookup", "true").load([pattern, pattern]).isLocal()
        except AnalysisException as error:
            if error_condition(error) == "PATH_NOT_FOUND":
                return False
            raise
    return True
