"""The interface of a listing of a table's files, by S3, by Spark, or from an inventory (rules 40 to 44).

Every listing of this package follows these rules:

- Where a catalog tracks the partitions of a table, it gives their locations and values, and folders that it does not
  know are not part of the table. Otherwise the files under the table's root are listed, and the partition values are
  parsed from their paths later.
- Hidden and empty files are left out, files in subfolders are included.
- A partition without anything at its location is refused, unless ``ConversionOptions.allow_missing_partitions`` is
  set: on an object store an empty folder cannot be distinguished from a missing one, or from a mistyped location. A
  folder marker, or a hidden or empty file, is enough for a location to exist.
- A table without anything at its root is an empty table, except in an inventory, which may not cover the root.
- A location that cannot be listed, because its bucket does not exist or access is denied, fails the table (rule 54).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from airflow_hive_to_delta.core.delta.log.commits import latest_version
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.files import FILES_ARROW_SCHEMA, ListedFiles, map_pairs
from airflow_hive_to_delta.core.models import ParquetFileInfo, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Listing(Protocol):
    """Lists the files of a table. Users can write their own: any class with this method is a listing."""

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
        """The data files of a table."""
        ...


class DataFrameListing(ABC):
    """A listing that gives the files of a table as a DataFrame.

    Where Spark lists the files, or reads them from an inventory, the driver does not hold them. A listing that the
    driver makes itself, on S3 or on the local disk, overrides :meth:`list_table` and holds them as one Arrow table:
    some 150 bytes a file, about 150 MB for a million files.
    """

    @abstractmethod
    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame:
        """The data files of a table, in FILES_SCHEMA."""

    def list_table(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> ListedFiles:
        """The data files of a table: a DataFrame, or an Arrow table where this process has listed them itself."""
        return ListedFiles(spark, self.list_files_df(spark, table, options))

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
        files = self.list_table(spark, table, ConversionOptions())
        with spark_call(f"Listing the files of {table.qualified_name}"):
            return [ParquetFileInfo(**row) for row in files.collect()]


class DatedListing(DataFrameListing):
    """A listing whose files were listed at some earlier time."""

    @abstractmethod
    def listed_at_time(self, table: TableInfo) -> int | None:
        """The time at which the files of a table were listed, or one before it, in milliseconds since the epoch.

        None when the time is not known.
        """


class MadeListing(DatedListing):
    """A listing whose files an earlier task has listed."""

    @abstractmethod
    def listed_at_version(self, table: TableInfo) -> int | None:
        """The version of the table's Delta log before its files were listed: -1 without a log, None if not known."""


def log_version(table: TableInfo, options: ConversionOptions, spark: SparkSession | None = None) -> int | None:
    """The latest version of the Delta log at a table's location: -1 without a log, None if it cannot be read."""
    try:
        root = parse_location(table.location)
        return latest_version(storage_for(root, spark, options), root)
    except HiveToDeltaError:
        return None


def list_table(spark: SparkSession, listing: Listing, table: TableInfo, options: ConversionOptions) -> ListedFiles:
    """The files that a listing finds of a table."""
    if isinstance(listing, DataFrameListing):
        return listing.list_table(spark, table, options)
    columns: dict[str, list[Any]] = {name: [] for name in FILES_ARROW_SCHEMA.names}
    for file in listing.list_files(spark, table):
        columns["path"].append(file.path)
        columns["size"].append(file.size)
        columns["modification_time"].append(file.modification_time)
        columns["partition_values"].append(map_pairs(file.partition_values))
    return ListedFiles(spark, pa.table(columns, schema=FILES_ARROW_SCHEMA))
