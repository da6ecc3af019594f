"""The partitions of a table and their locations, from Glue or the catalog of the Spark session (rules 43 and 52).

A partition can lie outside the table's root, in another bucket or in another region. Only the catalog knows where.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.errors import PartitionError, PermanentError, UnsupportedTableError
from airflow_hive_to_delta.core.schema.partition_values import HIVE_NULL, unescape
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.sql import (
    PARTITION_DETAILS,
    STORAGE_DETAILS,
    details,
    error_condition,
    sql_identifier,
    sql_literal,
)
from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.aws_errors import aws_call
from airflow_hive_to_delta.core.storage.uri import Location, check_allowed, parse_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_hive_to_delta.core.models import TableInfo
    from airflow_hive_to_delta.core.options import ConversionOptions

#: With this setting Spark looks a partition up by the text in the metastore. Without it, ``month='01'`` becomes
#: ``month=1`` for a column of integers.
_KEEP_AS_TEXT = "spark.sql.legacy.skipTypeValidationOnAlterPartition"
_keep_as_text_lock = threading.Lock()


@dataclass(frozen=True)
class PartitionLocation:
    """One partition: its values as the metastore has them, in the order of the keys, and where its files are."""

    values: dict[str, str | None]
    location: Location

    @property
    def name(self) -> str:
        """The partition as messages name it: ``year=2024/month=01``."""
        return "/".join(f"{key}={HIVE_NULL if value is None else value}" for key, value in self.values.items())


def table_partitions(
    spark: SparkSession | None,
    table: TableInfo,
    options: ConversionOptions,
    *,
    glue_database: str | None = None,
    region: str | None = None,
    max_workers: int = 8,
) -> list[PartitionLocation] | None:
    """The partitions of a table, from the catalog that tracks them.

    That is Glue when ``glue_database`` is given or the table was discovered there, and the session's catalog when the
    table was discovered with Spark.

    :param spark: needed for a table that was discovered with Spark.
    :param glue_database: a Glue database with a table of this name.
    :param region: the region of Glue, where the table does not name one.
    :param max_workers: how many partitions are described in parallel.
    :returns: None when no catalog tracks partitions of the table: it has none, or they are the folders under its root.
    :raises PartitionError: two partitions share files, or one has no location.
    :raises UnsupportedTableError: a partition is not in Parquet, or the catalog does not know the partitions.
    """
    if not table.partition_keys:
        return None
    if glue_database or table.source == "glue":
        database = glue_database or table.database
        if not database:
            raise PermanentError(f"{table.qualified_name} comes from Glue but names no database; set its database")
        region = table.region or region or options.region
        if not _glue_tracks_partitions(table, database, region):
            return None
        partitions = glue_partitions(table, database, region)
    elif table.source == "spark":
        if spark is None:
            raise PermanentError(
                f"Only a Spark session knows the partitions of {table.qualified_name}; list it with one"
            )
        if not catalog_tracks_partitions(spark, table):
            return None
        partitions = catalog_partitions(spark, table, max_workers)
    else:
        return None
    check_locations(table, partitions, options)
    return partitions


def glue_partitions(table: TableInfo, database: str, region: str | None = None) -> list[PartitionLocation]:
    """The partitions of a table in Glue.

    :raises UnsupportedTableError: one of them is not in Parquet.
    """
    # A Spark table in Glue can have the storage format of a text table. Only its provider counts.
    any_format = table.properties.get("spark.sql.sources.provider", "").lower() == "parquet"
    partitions = []
    for found in _in_glue(table, database, region):
        storage = found.get("StorageDescriptor", {})
        partition = _partition(table, found.get("Values", []), storage.get("Location"))
        if not any_format:
            serde = storage.get("SerdeInfo", {}).get("SerializationLibrary")
            _check_parquet(table, partition, serde or storage.get("InputFormat"))
        partitions.append(partition)
    return partitions


def glue_partition_locations(table: TableInfo) -> list[str]:
    """The locations of the partitions of a table in Glue, unchecked, for a table of any format."""
    found = _in_glue(table, table.database or "", table.region)
    locations = (partition.get("StorageDescriptor", {}).get("Location") for partition in found)
    return [location for location in locations if location]


def _in_glue(table: TableInfo, database: str, region: str | None) -> Iterator[Mapping[str, Any]]:
    pages = aws.glue_client(region).get_paginator("get_partitions")
    with aws_call(f"Reading the partitions of {database}.{table.name} from Glue"):
        # The columns of each partition would be most of the answer, and are taken from the footers.
        for page in pages.paginate(
            DatabaseName=database, TableName=table.name, ExcludeColumnSchema=True, **_catalog_id(table)
        ):
            yield from page["Partitions"]


def catalog_partitions(spark: SparkSession, table: TableInfo, max_workers: int = 8) -> list[PartitionLocation]:
    """The partitions of a table in the session's catalog, read with Spark SQL.

    :raises PartitionError: one of them is listed, but cannot be described.
    :raises UnsupportedTableError: one of them is not in Parquet.
    """
    table_name = _sql_name(table)
    with spark_call(f"Reading the partitions of {table.qualified_name}"):
        names = [row[0] for row in spark.sql(f"SHOW PARTITIONS {table_name}").collect()]
    # Spark prints the folder form, where each half of each `key=value` is escaped (rule 24).
    specs = [[unescape(segment.partition("=")[2]) for segment in name.split("/")] for name in names]

    def describe(values: Sequence[str]) -> dict[str, str] | None:
        return _describe_partition(spark, table, table_name, values)

    with ThreadPoolExecutor(max_workers) as pool:
        described = list(pool.map(describe, specs))
        if None in described:
            with spark_call(f"Looking up partitions of {table.qualified_name} by their text"), _keep_as_text(spark):
                again = pool.map(lambda spec, found: found or describe(spec), specs, described)
                described = list(again)

    partitions = []
    for values, found in zip(specs, described, strict=True):
        if found is None:
            raise PartitionError(
                f"{table.qualified_name} has the partition {'/'.join(values)!r} in SHOW PARTITIONS, but DESCRIBE does "
                "not find it. Drop it from the metastore and add it again with values of its columns' types"
            )
        partition = _partition(table, values, found.get("Location"))
        _check_parquet(table, partition, found.get("Serde Library") or found.get("InputFormat"))
        partitions.append(partition)
    return partitions


def catalog_tracks_partitions(spark: SparkSession, table: TableInfo) -> bool:
    """Whether the session's catalog has a list of the table's partitions. Otherwise Spark lists the table's folders."""
    with spark_call(f"Describing {table.qualified_name}"):
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {_sql_name(table)}").collect()
    described = details(rows)
    # Unity Catalog has the property instead.
    return (
        described.get("Partition Provider", "").lower() == "catalog"
        or "partitionmetadataenabled=true" in described.get("Table Properties", "").lower()
    )


def check_locations(table: TableInfo, partitions: Sequence[PartitionLocation], options: ConversionOptions) -> None:
    """Check that no two partitions share files (rule 43), and that all lie under the allowed roots (rule 52).

    :raises PartitionError: a partition lies at or inside the location of another.
    :raises PermanentError: a partition lies outside the allowed roots.
    """
    for partition in partitions:
        check_allowed(partition.location, options.allowed_roots)
    # What lies in a folder sorts directly after it, when both end in a slash.
    ordered = sorted(partitions, key=lambda p: (*p.location.store, p.location.path + "/"))
    for outer, inner in pairwise(ordered):
        same = outer.location.canonical == inner.location.canonical
        if same or outer.location.holds(inner.location):
            raise PartitionError(
                f"{table.qualified_name} has the partition {outer.name} at {outer.location} and the partition "
                f"{inner.name} {'at the same place' if same else f'inside it, at {inner.location}'}, so a file there "
                "would belong to both. Give each a location of its own, or drop one of them from the metastore"
            )


def _glue_tracks_partitions(table: TableInfo, database: str, region: str | None) -> bool:
    properties = table.properties
    if table.source != "glue":
        with aws_call(f"Reading the table {database}.{table.name} from Glue"):
            found = aws.glue_client(region).get_table(DatabaseName=database, Name=table.name)
        properties = found["Table"].get("Parameters", {})
    if properties.get("projection.enabled", "").lower() == "true":
        raise UnsupportedTableError(
            f"{database}.{table.name} has Athena partition projection, so Glue does not know its partitions. "
            "Add them to Glue and turn projection.enabled off"
        )
    # Spark can keep a table in Glue and find its partitions by looking at the folders.
    is_spark_table = "spark.sql.sources.provider" in properties
    return not is_spark_table or properties.get("spark.sql.partitionProvider", "").lower() == "catalog"


def _catalog_id(table: TableInfo) -> dict[str, Any]:
    return {"CatalogId": table.catalog} if table.source == "glue" and table.catalog else {}


def _partition(table: TableInfo, values: Sequence[str], location: str | None) -> PartitionLocation:
    if len(values) != len(table.partition_keys):
        raise PartitionError(
            f"{table.qualified_name} has a partition with the values {list(values)}, expected one for each of its "
            f"{len(table.partition_keys)} partition column(s): {', '.join(table.partition_keys)}"
        )
    raw = (None if value == HIVE_NULL else value for value in values)
    named = dict(zip(table.partition_keys, raw, strict=True))
    what = f"The location of the partition {'/'.join(f'{k}={v}' for k, v in named.items())} of {table.qualified_name}"
    if not location:
        raise PartitionError(f"{what} is not set. Set it in the metastore, or drop the partition")
    return PartitionLocation(named, parse_location(location, what))


def _check_parquet(table: TableInfo, partition: PartitionLocation, storage_format: str | None) -> None:
    if storage_format and "parquet" not in storage_format.lower():
        raise UnsupportedTableError(
            f"The partition {partition.name} of {table.qualified_name} is stored as {storage_format}, expected Parquet "
            "as its table is. Rewrite the partition as Parquet, or drop it from the metastore"
        )


def _describe_partition(
    spark: SparkSession, table: TableInfo, table_name: str, values: Sequence[str]
) -> dict[str, str] | None:
    """The details of one partition in the catalog; None when it finds no partition, or another one."""
    from pyspark.errors import PySparkException

    if len(values) != len(table.partition_keys):
        return {}  # for _partition to refuse
    pairs = list(zip(table.partition_keys, values, strict=True))
    # Null too is given by its name in the metastore, which is a text for columns of every type.
    spec = ", ".join(f"{sql_identifier(key)} = {sql_literal(value)}" for key, value in pairs)
    with spark_call(f"Describing the partition ({spec}) of {table.qualified_name}"):
        try:
            rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table_name} PARTITION ({spec})").collect()
        except PySparkException as error:
            if error_condition(error) in {"PARTITIONS_NOT_FOUND", "CAST_INVALID_INPUT"}:
                return None
            raise
    described = details(rows, PARTITION_DETAILS)
    if not described:
        return None
    # Some Spark tables have the storage format of a text table, and so do their partitions. Only a difference counts.
    if described.get("Serde Library") == details(rows, STORAGE_DETAILS).get("Serde Library"):
        described |= {"Serde Library": "", "InputFormat": ""}
    # For a column of integers Spark finds the partition 1 when 01 is looked up. Names may differ in case only.
    expected = f"[{', '.join(f'{key}={value}' for key, value in pairs)}]"
    return described if (described.get("Partition Values") or expected).lower() == expected.lower() else None


@contextmanager
def _keep_as_text(spark: SparkSession) -> Iterator[None]:
    # One at a time: of two tables in parallel the first to finish would reset the session's setting.
    with _keep_as_text_lock:
        before = spark.conf.get(_KEEP_AS_TEXT, None)
        spark.conf.set(_KEEP_AS_TEXT, "true")
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(_KEEP_AS_TEXT)
            else:
                spark.conf.set(_KEEP_AS_TEXT, before)


def _sql_name(table: TableInfo) -> str:
    return sql_identifier(*(part for part in (table.catalog, table.database, table.name) if part))
