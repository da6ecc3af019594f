"""The locations that catalogs refer to. A file under one of them is not deleted, whatever a Delta log says of it.

Catalogs such as Lake Formation and Unity Catalog show only the tables that the caller may see, so a table that is
missing in a list may be hidden. It counts as dropped only if the catalog answers "not found" for that very table, or
the caller says that it was dropped (rules 50 and 54).
"""

from __future__ import annotations

import glob
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from airflow_hive_to_delta.core.catalogs.discovery import GlueDiscovery, UCDiscovery, from_glue, from_spark, is_absent
from airflow_hive_to_delta.core.catalogs.partitions import glue_partition_locations, table_partitions
from airflow_hive_to_delta.core.delta.log.files import some
from airflow_hive_to_delta.core.errors import AccessDeniedError, MissingError, PermanentError
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.sql import error_condition, sql_identifier
from airflow_hive_to_delta.core.storage.aws import glue_client
from airflow_hive_to_delta.core.storage.aws_errors import aws_call
from airflow_hive_to_delta.core.storage.uri import Location, canonical_uri, loose_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_hive_to_delta.core.catalogs.registration import Target
    from airflow_hive_to_delta.core.models import TableInfo
    from airflow_hive_to_delta.core.options import ConversionOptions

#: Tables whose partitions are read in parallel.
_TABLES_AT_ONCE = 8
#: Catalogs that answer "not found" only for tables that do not exist, and an error for those that the caller may not
#: see. Others may answer "not found" for both: Unity Catalog does not document it, and some REST catalogs intend it.
_TELL_HIDDEN_FROM_GONE = frozenset({"spark_catalog", "hive_metastore"})


@dataclass(frozen=True)
class CatalogReferences:
    """The locations of tables and partitions, as :func:`loose_uri` spells them."""

    locations: frozenset[str]

    def cover(self, file: Location) -> bool:
        """Whether a file lies at or under one of the locations."""
        uri = loose_uri(canonical_uri(file))
        cut = len(uri)
        while cut > 0 and uri[:cut] not in self.locations:
            cut = uri.rfind("/", 0, cut)
        return cut > 0


def find_catalog_references(
    spark: SparkSession,
    source: TableInfo,
    registrations: Iterable[tuple[Target, str | None]],
    options: ConversionOptions,
    dropped: Collection[str] = (),
) -> CatalogReferences:
    """The locations of all tables and partitions in the databases of a Hive table and of its Delta table.

    The databases are that of the Hive table, if a catalog has it, and those in which the Delta table was registered.

    :param source: the Hive table.
    :param registrations: the names of the Delta table, each with the region of its catalog.
    :param dropped: full names of tables and schemas that the caller knows to be dropped. They are believed to be gone
        if their catalog does not show them; one that it shows counts as any other.
    :raises HiveToDeltaError: a catalog cannot be asked, or does not say whether the Hive table is gone.
    """
    known_dropped = {name.lower() for name in dropped}
    databases = [_database_of(spark, source)] if source.source != "none" else []
    databases += [_database_of_target(spark, target, region, options) for target, region in registrations]
    tables: list[TableInfo] = []
    for number, database in enumerate(dict.fromkeys(databases)):
        found = _tables_of(spark, database, known_dropped)
        if number == 0 and source.source != "none" and not _is_among(source, found):
            found += _source_by_its_name(spark, source, database, known_dropped)
        tables += found
    _check_described(tables)
    locations = [table.location for table in tables if table.location]
    # Spark keeps no partitions of a Delta table; in Glue those of the Hive table outlast a cut-over.
    partitioned = [t for t in tables if t.partition_keys and (t.source == "glue" or t.format == "parquet")]
    # Nothing is deleted at these locations, so they may lie outside the allowed roots.
    anywhere = replace(options, allowed_roots=[])
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        for found_there in pool.map(lambda table: _partition_locations(spark, table, anywhere), partitioned):
            locations += found_there
    return CatalogReferences(frozenset(loose_uri(location).rstrip("/") for location in locations))


@dataclass(frozen=True)
class _Database:
    kind: Literal["glue", "spark"]
    catalog: str | None
    schema: str
    region: str | None = None

    @property
    def name(self) -> str:
        return ".".join(part for part in (self.catalog, self.schema) if part)


def _database_of(spark: SparkSession, source: TableInfo) -> _Database:
    if source.source == "glue":
        return _Database("glue", source.catalog, source.database or "", source.region)
    with spark_call(f"Looking for the schema of {source.qualified_name}"):
        catalog = source.catalog or spark.catalog.currentCatalog()
        return _Database("spark", catalog, source.database or spark.catalog.currentDatabase())


def _database_of_target(
    spark: SparkSession, target: Target, region: str | None, options: ConversionOptions
) -> _Database:
    if target.kind == "glue":
        return _Database(
            "glue", target.catalog, target.schema, region or options.region or glue_client().meta.region_name
        )
    with spark_call(f"Looking for the schema of {target.name}"):
        return _Database("spark", target.catalog or spark.catalog.currentCatalog(), target.schema)


def _tables_of(spark: SparkSession, database: _Database, dropped: Collection[str]) -> list[TableInfo]:
    """The tables of a database. A database that is not found is an error: it may be hidden, or in another metastore."""
    if database.kind == "glue":
        try:
            return GlueDiscovery(database.schema, region=database.region, catalog_id=database.catalog).discover()
        except MissingError as error:
            if database.name.lower() in dropped:
                return []
            raise MissingError(f"{error}. {_is_dropped('the database', database.name)}") from error
    catalog = database.catalog or ""
    if _is_schema_there(spark, catalog, database.schema):
        return UCDiscovery([f"{glob.escape(catalog)}.{glob.escape(database.schema)}.*"], deny=[]).discover(spark)
    if database.name.lower() in dropped:
        return []
    raise PermanentError(
        f"The session knows no schema {database.name}, where the table was, so it may not be the right metastore to "
        "ask, or not show the schema to this identity. Nothing was deleted. Run it in a session like that of the "
        f"conversion. {_is_dropped('the schema', database.name)}"
    )


def _is_schema_there(spark: SparkSession, catalog: str, schema: str) -> bool:
    from pyspark.errors import PySparkException

    with spark_call(f"Looking for the schema {catalog}.{schema}"):
        try:
            return spark.catalog.databaseExists(sql_identifier(catalog, schema))
        except PySparkException as error:
            if is_absent(error):
                return False
            raise


def _is_among(source: TableInfo, tables: Sequence[TableInfo]) -> bool:
    return any(table.name.lower() == source.name.lower() for table in tables)


def _source_by_its_name(
    spark: SparkSession, source: TableInfo, database: _Database, dropped: Collection[str]
) -> list[TableInfo]:
    """The Hive table, looked up by its name because the list of tables does not show it; none when it is gone."""
    name = f"{database.name}.{source.name}"
    try:
        found = _glue_table(source, database) if database.kind == "glue" else _spark_table(spark, source, database)
    except AccessDeniedError as error:
        if name.lower() in dropped:
            return []
        raise AccessDeniedError(
            f"{name} is not among the tables of {database.name} that this identity may see, and whether it is gone its "
            f"catalog does not say: {error}. Nothing was deleted. Grant the identity the right to describe the table "
            "(glue:GetTable, and DESCRIBE where Lake Formation governs it). Lake Formation denies a table that does "
            f"not exist, too, to who has no rights on its database. {_is_dropped('the table', name)}"
        ) from error
    if found is None and database.kind == "spark" and (database.catalog or "").lower() not in _TELL_HIDDEN_FROM_GONE:
        if name.lower() in dropped:
            return []
        raise PermanentError(
            f"{name} is not among the tables that the catalog {database.catalog} shows this identity, and such a "
            "catalog may say that of a table which it hides. Nothing was deleted. Grant the identity SELECT on the "
            f"table, USE CATALOG and USE SCHEMA. {_is_dropped('the table', name)}"
        )
    return [] if found is None else [found]


def _glue_table(source: TableInfo, database: _Database) -> TableInfo | None:
    discovery = GlueDiscovery(database.schema, region=database.region, catalog_id=database.catalog)
    account: dict[str, Any] = {"CatalogId": database.catalog} if database.catalog else {}
    try:
        with aws_call(f"Looking for {source.qualified_name} in Glue"):
            answer = glue_client(database.region).get_table(DatabaseName=database.schema, Name=source.name, **account)
    except MissingError:
        return None
    return from_glue(answer["Table"], discovery)


def _spark_table(spark: SparkSession, source: TableInfo, database: _Database) -> TableInfo | None:
    from pyspark.errors import PySparkException

    parts = (database.catalog or "", database.schema, source.name)
    with spark_call(f"Looking for {'.'.join(parts)}"):
        try:
            # Not tableExists(), which is False for a table that the caller may not see.
            spark.sql(f"DESCRIBE TABLE {sql_identifier(*parts)}").collect()
        except PySparkException as error:
            if error_condition(error) == "TABLE_OR_VIEW_NOT_FOUND":
                return None
            raise
    return from_spark(spark, *parts)


def _is_dropped(what: str, name: str) -> str:
    return f"If {what} was dropped, pass dropped=[{name!r}]"


def _check_described(tables: Sequence[TableInfo]) -> None:
    """Raise an error when the session's catalog lists a table but does not give its location."""
    unknown = [t for t in tables if not t.location and t.source == "spark" and t.format == "unknown"]
    if unknown:
        raise PermanentError(
            f"The catalog does not say where {some([table.qualified_name for table in unknown])} lies, so whether it "
            f"has files to be deleted is not known: {unknown[0].refusal}. Nothing was deleted"
        )


def _partition_locations(spark: SparkSession, table: TableInfo, options: ConversionOptions) -> list[str]:
    """The locations of the partitions of a table of any format."""
    if table.source == "glue":
        return glue_partition_locations(table)
    return [str(partition.location) for partition in table_partitions(spark, table, options) or ()]
