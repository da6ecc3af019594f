"""Which places a metastore still has: what lies under them belongs to somebody, whatever a Delta log says of it."""

from __future__ import annotations

import glob
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.discovery import GlueDiscovery, UCDiscovery
from airflow_hive_to_delta.core.errors import PermanentError, spark_call
from airflow_hive_to_delta.core.partition_locations import glue_partition_places, table_partitions
from airflow_hive_to_delta.core.paths import Location
from airflow_hive_to_delta.core.snapshot import key_of, some
from airflow_hive_to_delta.core.sql import sql_identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from airflow_hive_to_delta.core.models import ConversionOptions, TableInfo


@dataclass(frozen=True)
class Claims:
    """The places of tables and partitions, in one spelling each."""

    places: frozenset[str]

    def hold(self, file: Location) -> bool:
        """Whether a file lies under one of them."""
        place = one_spelling(key_of(file))
        cut = len(place)
        while cut > 0 and place[:cut] not in self.places:
            cut = place.rfind("/", 0, cut)
        return cut > 0


def claims_of(spark: SparkSession, source: TableInfo, options: ConversionOptions) -> Claims:
    """The places of the tables in the source's database, and of their partitions, as they are now.

    A source that is gone from its database has none; one of no catalog neither.

    :raises HiveToDeltaError: the metastore cannot be asked, or does not say.
    """
    if source.source == "none":
        return Claims(frozenset())
    tables = _tables_beside(spark, source)
    if unknown := [
        t.qualified_name for t in tables if not t.location and t.source == "spark" and t.format == "unknown"
    ]:
        raise PermanentError(
            f"The catalog does not say where {some(unknown)} lies, so whether it has files to be deleted is not known. "
            "Nothing was deleted. Mend or drop the table"
        )
    places = [table.location for table in tables if table.location]
    # Spark keeps no partitions of a Delta table; in Glue those of the Hive table outlast a cut-over.
    partitioned = [t for t in tables if t.partition_keys and (t.source == "glue" or t.format == "parquet")]
    # Places that may not be deleted from need not be allowed.
    anywhere = replace(options, allowed_roots=[])
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        for found in pool.map(lambda table: _partition_places(spark, table, source, anywhere), partitioned):
            places += found
    return Claims(frozenset(one_spelling(re.sub("^/", "file:///", place)).rstrip("/") for place in places))


def one_spelling(key: str) -> str:
    """A key, however its place is spelt: it may take two places for one, but never one for two."""
    for pattern, spelling in _SPELLINGS:
        key = re.sub(pattern, spelling, key)
    return key


def one_spelling_of(column: str) -> Column:
    """The same for a column of keys."""
    from pyspark.sql import functions as F  # noqa: N812

    return reduce(lambda text, spelling: F.regexp_replace(text, *spelling), _SPELLINGS, F.col(column))


#: Tables whose partitions are asked for side by side.
_TABLES_AT_ONCE = 8
#: Spellings beyond those that a key knows already.
_SPELLINGS = (
    (r"(?i)^s3[an]?://", "s3://"),
    (r"(?i)^(hdfs|viewfs)://[^/]*", "hdfs://"),
    (r"(?i)^abfss?://", "abfs://"),
    (r"(?i)^wasbs?://", "wasb://"),
    (r"(?i)^gs://", "gs://"),
    (r"(?i)^dbfs:/+", "dbfs:///"),
    (r"(?i)^file:/+", "file:///"),
    (r"(?<!:)/{2,}", "/"),
)


def _partition_places(
    spark: SparkSession, table: TableInfo, source: TableInfo, options: ConversionOptions
) -> list[str]:
    """Where the partitions of a table lie, of whatever format it is."""
    if table.source == "glue":
        return glue_partition_places(table, source.region)
    return [str(partition.location) for partition in table_partitions(spark, table, options) or ()]


def _tables_beside(spark: SparkSession, source: TableInfo) -> list[TableInfo]:
    """The tables of the source's database, which must be there: another metastore would know none of them."""
    if source.source == "glue":
        return GlueDiscovery(source.database or "", region=source.region, catalog_id=source.catalog).discover()
    with spark_call(f"Looking for the schema of {source.qualified_name}"):
        catalog = source.catalog or spark.catalog.currentCatalog()
        database = source.database or spark.catalog.currentDatabase()
        there = spark.catalog.databaseExists(sql_identifier(catalog, database))
    if not there:
        raise PermanentError(
            f"The session knows no schema {catalog}.{database}, where {source.qualified_name} was, so it may not be "
            "the right metastore to ask. Nothing was deleted. Run it in a session like that of the conversion"
        )
    return UCDiscovery([f"{glob.escape(catalog)}.{glob.escape(database)}.*"], deny=[]).discover(spark)
