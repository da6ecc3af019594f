"""A read-only view of a Delta table at one version: its schema, properties, files and history.

The table is given by its path or its name. The version is the latest, or an earlier one by its number or by a time,
given as an argument or in the path (``/lake/orders@v3``, ``/lake/orders@20260101000000000``).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from airflow_hive_to_delta.core.delta.log.commits import log_state
from airflow_hive_to_delta.core.delta.log.entries import Commit
from airflow_hive_to_delta.core.delta.snapshot import Snapshot, snapshot_of
from airflow_hive_to_delta.core.errors import MissingError, PermanentError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.sql import details, sql_identifier
from airflow_hive_to_delta.core.storage.base import Storage
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import Location, parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: What can be done with a Delta table, by the names of Spark's ``TableCapability``.
CAPABILITIES = frozenset({"ACCEPT_ANY_SCHEMA", "BATCH_READ", "V1_BATCH_WRITE", "OVERWRITE_BY_FILTER", "TRUNCATE"})
_TRAVEL = re.compile(r"(?P<path>.*)@(?:[vV](?P<version>[0-9]{1,19})|(?P<time>[0-9]{17}))", re.DOTALL)


@dataclass(frozen=True)
class CatalogTable:
    """What a catalog says of a Delta table that it knows by name."""

    name: str
    location: str
    #: ``EXTERNAL`` or ``MANAGED``.
    table_type: str
    comment: str | None = None


@dataclass
class DeltaTableView:
    """One Delta table at one version. It is made by :meth:`for_path` or :meth:`for_name`.

    Everything is read when it is first used, and then kept: a view never moves to a later version.
    """

    spark: SparkSession = field(repr=False)
    #: The path as it was given, which may end in a version or a time.
    path: str
    version_as_of: int | None = None
    timestamp_as_of: dt.datetime | str | None = None
    options: ConversionOptions = field(default_factory=ConversionOptions, repr=False)
    _catalog_table: CatalogTable | None = field(default=None, repr=False)

    @classmethod
    def for_path(
        cls,
        spark: SparkSession,
        path: str,
        *,
        version: int | None = None,
        timestamp: dt.datetime | str | None = None,
        options: ConversionOptions | None = None,
    ) -> DeltaTableView:
        """The table at a path.

        :param version: the version to look at; the latest when neither this nor ``timestamp`` is given.
        :param timestamp: the version that was the latest at this time. A text, or a time without a zone, is in the
            session's zone.
        """
        return cls(spark, path, version, timestamp, options or ConversionOptions())

    @classmethod
    def for_name(
        cls,
        spark: SparkSession,
        name: str | Sequence[str],
        *,
        version: int | None = None,
        timestamp: dt.datetime | str | None = None,
        options: ConversionOptions | None = None,
    ) -> DeltaTableView:
        """The table of a name in the session's catalogs.

        :param name: the parts of the name, ``["spark_catalog", "bronze", "orders"]``; or one text with dots between
            them, for names that hold none themselves.
        """
        parts = name.split(".") if isinstance(name, str) else list(name)
        known = _catalog_table(spark, parts)
        return cls(spark, known.location, version, timestamp, options or ConversionOptions(), known)

    @cached_property
    def root(self) -> Location:
        """The table's location: the path without a version or time at its end."""
        return self._parsed[0]

    @cached_property
    def storage(self) -> Storage:
        return storage_for(parse_location(self.path, "path"), self.spark, self.options)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The state of the table, which is read once.

        :raises UnsupportedTableError: the table has a reader version or feature that this package does not know.
        """
        version, timestamp = self._travel
        found = self._at(timestamp) if timestamp else snapshot_of(self.spark, self.storage, self.root, version)
        found.load()
        return found

    @property
    def version(self) -> int:
        return self.snapshot.version

    @property
    def name(self) -> str:
        """The registered name, or the name by which SQL reads the path."""
        return self._catalog_table.name if self._catalog_table else f"delta.`{self.root}`"

    @cached_property
    def schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(self.snapshot.metadata.schema)

    @property
    def partitioning(self) -> list[str]:
        """The partition columns, in order."""
        return list(self.snapshot.metadata.partition_columns)

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties, with its protocol, and ``provider``, ``location``, ``comment`` and ``Type``."""
        metadata, protocol = self.snapshot.metadata, self.snapshot.protocol
        features = protocol.reader_features | protocol.writer_features
        return {
            **metadata.configuration,
            "delta.minReaderVersion": str(protocol.reader),
            "delta.minWriterVersion": str(protocol.writer),
            **{f"delta.feature.{feature}": "supported" for feature in sorted(features)},
            "provider": "delta",
            "location": str(self.root),
            **({"comment": metadata.description} if metadata.description is not None else {}),
            **({"Type": self._catalog_table.table_type} if self._catalog_table else {}),
        }

    @property
    def capabilities(self) -> frozenset[str]:
        """What can be done with the table, by the names of Spark's ``TableCapability``."""
        return CAPABILITIES

    @property
    def history(self) -> list[Commit]:
        """The entries of the log up to this version that still exist, the newest first."""
        return self.snapshot.history

    @property
    def files(self) -> DataFrame:
        """The live files with their sizes and statistics: see :attr:`Snapshot.files`."""
        return self.snapshot.files

    @property
    def catalog_table(self) -> CatalogTable:
        """What the catalog says of the table.

        :raises PermanentError: the table was given by its path.
        """
        if self._catalog_table is None:
            raise PermanentError("v1Table call is not expected with path based DeltaTableV2")
        return self._catalog_table

    def to_df(self) -> DataFrame:
        """The rows of the table at this version, through Delta's own reader."""
        return self.spark.read.format("delta").option("versionAsOf", self.version).load(str(self.root))

    @property
    def travels(self) -> bool:
        """Whether a version or a time was given, by an argument or in the path."""
        return self._travel != (None, None)

    @cached_property
    def _parsed(self) -> tuple[Location, int | None, dt.datetime | None]:
        """The table's location, and the version or time at the end of the path."""
        whole = parse_location(self.path, "path")
        found = _TRAVEL.fullmatch(whole.path)
        # A table's folder may have such a name. Then it is not a version or a time.
        if found is None or self._catalog_table is not None or log_state(self.storage, whole).exists:
            return whole, None, None
        root = Location(whole.scheme, whole.authority, found["path"].rstrip("/"))
        if found["version"]:
            return root, int(found["version"]), None
        try:
            moment = dt.datetime.strptime(f"{found['time']}000", "%Y%m%d%H%M%S%f")
        except ValueError as error:
            raise PermanentError(
                f"The path {self.path!r} ends in @ and digits that are no time; expected yyyyMMddHHmmssSSS, or @v and "
                "a version"
            ) from error
        return root, None, moment.replace(tzinfo=_zone(self.spark))

    @cached_property
    def _travel(self) -> tuple[int | None, dt.datetime | None]:
        """The version or the time that was given, by an argument or in the path."""
        _, version, moment = self._parsed
        given = [self.version_as_of, self.timestamp_as_of, version, moment]
        if sum(value is not None for value in given) > 1:
            raise PermanentError("Cannot specify time travel in multiple formats.")
        if self.timestamp_as_of is not None:
            moment = _moment(self.timestamp_as_of, self.spark)
        return (version if self.version_as_of is None else self.version_as_of), moment

    def _at(self, moment: dt.datetime) -> Snapshot:
        """The version that was the latest at a time, as Delta's time travel finds it."""
        latest = snapshot_of(self.spark, self.storage, self.root)
        wanted = int(moment.timestamp() * 1000)
        oldest, newest = latest.history[-1], latest.history[0]
        if wanted > newest.timestamp:
            raise MissingError(
                f"{moment.isoformat()} is after the latest version {newest.version} of {self.root}, which is of "
                f"{_shown(newest.timestamp)}. Take that time or an earlier one, or no time for the latest version"
            )
        found = next((commit for commit in latest.history if commit.timestamp <= wanted), None)
        if found is None:
            raise MissingError(
                f"{moment.isoformat()} is before version {oldest.version} of {self.root}, the oldest that is left, "
                f"which is of {_shown(oldest.timestamp)}. Take that time or a later one"
            )
        return snapshot_of(self.spark, self.storage, self.root, found.version)


def view_of(spark: SparkSession, table: DeltaTableView | TableInfo | str, options: ConversionOptions) -> DeltaTableView:
    """The view of a Delta table.

    :param table: a view, which is returned; a Hive table that was converted; a path; or a name, without a slash in it.
    """
    if isinstance(table, DeltaTableView):
        return table
    if isinstance(table, TableInfo):
        return DeltaTableView.for_path(spark, table.location, options=options)
    if "/" in table:
        return DeltaTableView.for_path(spark, table, options=options)
    return DeltaTableView.for_name(spark, table, options=options)


def _catalog_table(spark: SparkSession, parts: Sequence[str]) -> CatalogTable:
    name = ".".join(parts)
    with spark_call(f"Looking for {name}"):
        if not spark.catalog.tableExists(sql_identifier(*parts)):
            raise MissingError(f"There is no table {name}. Give the path of the Delta table, or its registered name")
        found = details(spark.sql(f"DESCRIBE TABLE EXTENDED {sql_identifier(*parts)}").collect())
    if found.get("Provider", "").lower() != "delta":
        raise PermanentError(
            f"{name} is {found.get('Provider') or 'a view or a Hive table'} in its catalog, expected a Delta table"
        )
    return CatalogTable(name, found["Location"], found.get("Type", "EXTERNAL"), found.get("Comment") or None)


def _zone(spark: SparkSession) -> ZoneInfo:
    return ZoneInfo(spark.conf.get("spark.sql.session.timeZone") or "UTC")


def _moment(given: dt.datetime | str, spark: SparkSession) -> dt.datetime:
    if isinstance(given, str):
        try:
            given = dt.datetime.fromisoformat(given)
        except ValueError as error:
            raise PermanentError(f"timestamp is {given!r}, expected a time such as 2026-01-31 12:00:00") from error
    return given if given.tzinfo is not None else given.replace(tzinfo=_zone(spark))


def _shown(millis: int) -> str:
    return dt.datetime.fromtimestamp(millis / 1000, dt.UTC).isoformat(timespec="milliseconds")
