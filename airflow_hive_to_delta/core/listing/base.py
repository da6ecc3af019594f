"""Which files a table has: listed on S3, listed by Spark, or taken from an inventory (rules 40 to 44).

What holds for every strategy:

- A catalog that knows the partitions says where they lie and what their values are; folders it does not know are not
  part of the table. Where no catalog does, the files under the root are listed and their paths say the values later.
- Hidden and empty files are left out, files in subfolders are included.
- A partition without anything at its location is refused, unless ``ConversionOptions.allow_missing_partitions`` says
  otherwise. An object store cannot tell an empty folder from one that is not there, and a mistyped location looks the
  same. A folder marker, or a hidden or empty file, is enough to be there.
- A table's own root without anything in it is an empty table. Not so in an inventory, which may just not cover it.
- What cannot be listed, for want of a bucket or of permission, fails the table (rule 54).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from airflow_hive_to_delta.core.delta.log import latest_version
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.listing.locations import (
    FILES_ARROW_SCHEMA,
    map_pairs,
)
from airflow_hive_to_delta.core.models import FILES_SCHEMA, ParquetFileInfo, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Listing(Protocol):
    """How the files of a table are found. Write your own by having this one method."""

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]: ...


class DataFrameListing(ABC):
    """A listing whose files are a DataFrame (FILES_SCHEMA) from the start, so that the driver need not hold them."""

    @abstractmethod
    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame: ...

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
        files = self.list_files_df(spark, table, ConversionOptions())
        with spark_call(f"Listing the files of {table.qualified_name}"):
            return [ParquetFileInfo(**row.asDict()) for row in files.collect()]


class DatedListing(DataFrameListing):
    """A listing of files as they were at some time before it is asked."""

    @abstractmethod
    def listed_at_time(self, table: TableInfo) -> int | None:
        """When, in milliseconds since the epoch: that moment or one before it; None: not known."""


class MadeListing(DatedListing):
    """A listing of files that were listed before, by a task of their own."""

    @abstractmethod
    def listed_at_version(self, table: TableInfo) -> int | None:
        """The version that the table's Delta log had before its files were listed, -1 for none; None: not known."""


def log_version(table: TableInfo, options: ConversionOptions, spark: SparkSession | None = None) -> int | None:
    """The latest version of the Delta log at a table's location, -1 without a log; None when that cannot be told."""
    try:
        root = parse_location(table.location)
        return latest_version(storage_for(root, spark, options), root)
    except HiveToDeltaError:
        return None


def files_as_df(spark: SparkSession, listing: Listing, table: TableInfo, options: ConversionOptions) -> DataFrame:
    """The files of a table as a DataFrame in FILES_SCHEMA, from any listing."""
    if isinstance(listing, DataFrameListing):
        return listing.list_files_df(spark, table, options)
    columns: dict[str, list[Any]] = {name: [] for name in FILES_ARROW_SCHEMA.names}
    for file in listing.list_files(spark, table):
        columns["path"].append(file.path)
        columns["size"].append(file.size)
        columns["modification_time"].append(file.modification_time)
        columns["partition_values"].append(map_pairs(file.partition_values))
    return files_from_arrow(spark, pa.table(columns, schema=FILES_ARROW_SCHEMA))


def files_from_arrow(spark: SparkSession, files: pa.Table) -> DataFrame:
    """A list of files in Arrow's form as a DataFrame in FILES_SCHEMA."""
    # PySpark takes no Arrow table without a chunk, and is slow with one of very many.
    return spark.createDataFrame(files.combine_chunks() if files.num_rows else [], FILES_SCHEMA)
