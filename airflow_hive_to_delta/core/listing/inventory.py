"""Lists of files that were made elsewhere: DataFrames of users, and reports of S3 Inventory.

A report consists of a ``manifest.json`` and of lists of objects in CSV, Parquet or ORC. Spark reads them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from airflow_hive_to_delta.core.errors import PartitionError, PermanentError
from airflow_hive_to_delta.core.listing.base import DatedListing
from airflow_hive_to_delta.core.listing.inventory_reports import (
    InventoryManifest,
    check_manifest_uri,
    manifest_uris,
    needed_columns,
    parse_manifest,
)
from airflow_hive_to_delta.core.listing.locations import (
    assign_locations,
    check_missing,
    data_files,
    has_common_prefix,
    table_locations,
)
from airflow_hive_to_delta.core.models import FILES_SCHEMA, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.uri import absolute_uri_column, parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


class InventoryListing(DatedListing):
    """Takes the files of each table from one DataFrame with the files of many, such as an S3 Inventory report.

    The DataFrame is read once or twice for each table. Cache it when there are many tables.

    :param files_df: a DataFrame that :func:`check_files_df` accepts.
    :param glue_database: the Glue database that has the tables' partitions, when the tables do not say so themselves.
    :param region: the region of that database.
    :param listed_at: a time with a time zone, not later than the moment at which the listing of the files began. A
        sync with ``output_mode="complete"`` needs it, to refuse a list that is older than what the Delta table has.
    """

    def __init__(
        self,
        files_df: DataFrame,
        glue_database: str | None = None,
        region: str | None = None,
        listed_at: dt.datetime | None = None,
    ) -> None:
        if listed_at is not None and listed_at.tzinfo is None:
            raise PermanentError(f"listed_at is {listed_at.isoformat()}, expected a time with a time zone")
        self.files = check_files_df(files_df)
        self.glue_database = glue_database
        self.region = region
        self._listed_at = None if listed_at is None else int(listed_at.timestamp() * 1000)

    @classmethod
    def from_manifest(
        cls,
        spark: SparkSession,
        manifest_uri: str | Sequence[str],
        glue_database: str | None = None,
        region: str | None = None,
    ) -> InventoryListing:
        """A listing from reports of S3 Inventory. Only the current versions of objects are taken.

        The list is as old as the oldest report, by its ``creationTimestamp``.

        :param manifest_uri: the URI of the report's ``manifest.json``, or one for each source bucket.
        :raises PermanentError: a manifest or report is not as S3 Inventory writes it, or lacks a needed field.
        """
        reports = [read_inventory(spark, uri) for uri in manifest_uris(manifest_uri)]
        listing = cls(
            reduce(lambda a, b: a.unionByName(b), [report.files for report in reports]), glue_database, region
        )
        created = [report.created for report in reports if report.created is not None]
        listing._listed_at = min(created) if len(created) == len(reports) else None
        return listing

    def listed_at_time(self, table: TableInfo) -> int | None:  # noqa: ARG002
        return self._listed_at

    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame:
        locations = table_locations(spark, table, options, self.glue_database, self.region)
        if not locations:
            return spark.createDataFrame([], FILES_SCHEMA)
        assigned = assign_locations(self.files.where(has_common_prefix(locations)), locations)
        if not options.allow_missing_partitions:
            with spark_call(f"Looking for the files of {table.qualified_name} in the inventory"):
                present = {row[0] for row in assigned.select("location_index").distinct().collect()}
            missing = [location for index, location in enumerate(locations) if index not in present]
            if missing and missing[0].values is None:
                raise PartitionError(
                    f"The inventory has no file under {missing[0].location}, the root of {table.qualified_name}. Take "
                    "one that covers it, or pass ConversionOptions(allow_missing_partitions=True) if the table is empty"
                )
            check_missing(table, missing, options)
        return data_files(assigned)


def check_files_df(files_df: DataFrame) -> DataFrame:
    """A user's list of files, checked and brought into FILES_SCHEMA.

    :param files_df: a DataFrame with the columns ``file_path``, a URI or an absolute local path that is not
        URL-encoded, ``size`` in bytes, and optionally ``last_modified``, a timestamp or milliseconds since the epoch.
    :raises PermanentError: a column is missing or has the wrong type. Paths and sizes are checked when Spark reads
        them.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if not hasattr(files_df, "schema"):
        raise PermanentError(f"The file list is a {type(files_df).__name__}, expected a Spark DataFrame")
    types = {field.name: field.dataType.simpleString() for field in files_df.schema.fields}
    integers = {"tinyint", "smallint", "int", "bigint"}
    timestamps = {"timestamp", "timestamp_ntz"}
    expected = {"file_path": {"string"}, "size": integers, "last_modified": timestamps | integers}
    wrong = [f"{name} is missing" for name in ("file_path", "size") if name not in types]
    wrong += [
        f"{name} is of the type {types[name]}"
        for name, good in expected.items()
        if name in types and types[name] not in good
    ]
    if wrong:
        raise PermanentError(
            f"{' and '.join(wrong)} in the file list, which has {', '.join(types) or 'no columns'}. Expected "
            "file_path (string), size (an integer type) and optionally last_modified (timestamp, or bigint in ms)"
        )
    path, size = F.col("file_path"), F.col("size").cast("bigint")
    uri = absolute_uri_column(path)
    bad_path = F.format_string("file_path is %s, expected an absolute path or a URI such as s3://bucket/file", path)
    bad_size = F.format_string("The size of %s is null, expected its bytes", path)
    if "last_modified" not in types:
        modified = F.lit(None)
    elif types["last_modified"] == "timestamp":
        modified = F.unix_millis("last_modified")
    elif types["last_modified"] == "timestamp_ntz":
        modified = F.expr("timestampdiff(MILLISECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', last_modified)")
    else:
        modified = F.col("last_modified")
    return files_df.select(
        F.when(uri.rlike(r"^[a-z][a-z0-9+.-]*://"), uri).otherwise(F.raise_error(bad_path)).alias("path"),
        F.coalesce(size, F.raise_error(bad_size).cast("bigint")).alias("size"),
        modified.cast("bigint").alias("modification_time"),
        F.lit(None).cast("map<string,string>").alias("partition_values"),
    )


class Inventory(NamedTuple):
    """The objects of one bucket in a report of S3 Inventory."""

    #: A DataFrame that :func:`check_files_df` accepts.
    files: DataFrame
    #: When S3 began to scan the bucket, in milliseconds since the epoch; None if the manifest does not say.
    created: int | None


def read_inventory(spark: SparkSession, manifest_uri: str) -> Inventory:
    """Read a report of S3 Inventory. Older versions and delete markers are left out.

    :param manifest_uri: the URI of the report's ``manifest.json``. The paths get its scheme.
    :raises PermanentError: the manifest or the report is not as S3 Inventory writes it, or lacks a needed field.
    """
    from pyspark.sql import functions as F  # noqa: N812

    check_manifest_uri(manifest_uri)
    manifest = _read_manifest(spark, manifest_uri)
    source = f"{parse_location(manifest_uri).scheme}://{manifest.source_bucket}/"
    if not manifest.files:
        none = spark.createDataFrame([], "file_path string, size bigint, last_modified timestamp")
        return Inventory(none, manifest.created)
    reader = _reader(spark).format(manifest.format)
    if manifest.format == "csv":
        # The files have no header; the manifest names the columns.
        names = [name.replace("`", "``") for name in manifest.csv_columns]
        reader = reader.schema(", ".join(f"`{name}` string" for name in names)).option("escape", '"')
    with spark_call(f"Reading the inventory report of {manifest_uri}"):
        objects = reader.load(list(manifest.files))
        found = objects.columns
    columns = {
        name: F.col(f"`{column.replace('`', '``')}`") for name, column in needed_columns(manifest, found).items()
    }
    if "islatest" in columns:
        objects = objects.where(columns["islatest"].cast("boolean"))
    if "isdeletemarker" in columns:
        objects = objects.where(~columns["isdeletemarker"].cast("boolean"))
    # Keys in CSV are encoded as in a form, where `+` is a space.
    key = F.url_decode(columns["key"]) if manifest.format == "csv" else columns["key"]
    modified = columns.get("lastmodifieddate", F.lit(None).cast("timestamp"))
    files = objects.select(
        F.concat(F.lit(source), key).alias("file_path"),
        F.nullif(columns["size"].cast("string"), F.lit("")).cast("bigint").alias("size"),
        (modified.cast("timestamp") if manifest.format == "csv" else modified).alias("last_modified"),
    )
    return Inventory(files, manifest.created)


def _read_manifest(spark: SparkSession, uri: str) -> InventoryManifest:
    with spark_call(f"Reading the inventory manifest {uri}"):
        text = _reader(spark).format("text").option("wholetext", "true").load(uri).head()
    return parse_manifest(uri, text[0] if text else "")


def _reader(spark: SparkSession) -> DataFrameReader:
    # Names are neither patterns nor partition folders.
    return spark.read.option("__globPaths__", "false").option("recursiveFileLookup", "true")
