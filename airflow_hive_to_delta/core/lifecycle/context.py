"""What the work on one table needs, as one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from airflow_hive_to_delta.core.errors import UnsupportedTableError
from airflow_hive_to_delta.core.files import ListedFiles
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.listing.base import Listing, list_table
from airflow_hive_to_delta.core.storage.base import Storage
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import Location, check_allowed, parse_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_hive_to_delta.core.models import TableInfo
    from airflow_hive_to_delta.core.options import ConversionOptions


@dataclass(frozen=True)
class TableContext:
    """A Hive table, the location and the storage that it lies on, and how it is worked on."""

    spark: SparkSession
    table: TableInfo
    root: Location
    storage: Storage
    options: ConversionOptions

    @classmethod
    def open(cls, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> Self:
        """Find the location and the storage of a table. Nothing is read.

        :raises UnsupportedTableError: it is no table to be converted.
        :raises PermanentError: it lies where no table may lie by ``options.allowed_roots``, or nowhere.
        """
        if reason := table.why_refused(options):
            raise UnsupportedTableError(reason)
        root = parse_location(table.location, f"the location of {table.qualified_name}")
        check_allowed(root, options.allowed_roots)
        return cls(spark, table, root, storage_for(root, spark, options), options)

    @property
    def name(self) -> str:
        """Qualified name of the table."""
        return self.table.qualified_name

    @property
    def records(self) -> Records:
        """What this package keeps beside the table's log."""
        return Records(self.storage, self.root)

    def list_files(self, listing: Listing) -> ListedFiles:
        """The files of the table, as the listing finds them now."""
        return list_table(self.spark, listing, self.table, self.options)
