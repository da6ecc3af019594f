"""Discoveries of tables, for tests of what is done with them."""

from __future__ import annotations

from pyspark.sql import SparkSession

from airflow_hive_to_delta.core.catalogs.discovery import UCDiscovery
from airflow_hive_to_delta.core.models import TableInfo


class KnownTables:
    """A discovery of tables that are known already, as a user may write one."""

    def __init__(self, *tables: TableInfo) -> None:
        self.tables = tables

    def discover(self, spark: SparkSession) -> list[TableInfo]:
        return list(self.tables)


def discover_tables(spark: SparkSession, database: str) -> list[TableInfo]:
    """The tables of a database in the session's own catalog."""
    return UCDiscovery([f"spark_catalog.{database}.*"]).discover(spark)
