"""Registering a converted table in a catalog: in a SQL catalog (Unity Catalog, Hive metastore) or in AWS Glue.

A registration is only a pointer to the table, whose schema and properties are in its log. A name that already points to
the table is left as it is, and one that points to anything else is never changed. Dropping a name deletes no files.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from airflow_hive_to_delta.core.errors import (
    HiveToDeltaError,
    MissingError,
    PermanentError,
    TransientError,
)
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.schema.translation import (
    hive_type_of,
)
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.sql import details, error_condition, sql_identifier, sql_literal
from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.aws_errors import aws_call
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location, parse_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)
_SESSION_NAMES = re.compile(r"[A-Za-z0-9_]+")
#: The names that Unity Catalog allows.
_OTHER_NAMES = re.compile(r"[^\x00-\x20./\x7f]+")
_NOT_THERE = {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"}


@dataclass(frozen=True)
class Target:
    """The name that a table is registered under. In Glue the catalog is the id of an account, None for the own one."""

    catalog: str | None
    schema: str
    table: str
    kind: Literal["sql", "glue"] = "sql"

    @property
    def name(self) -> str:
        """The full name, as messages show it."""
        return ".".join(part for part in (self.catalog, self.schema, self.table) if part is not None)

    @property
    def quoted(self) -> str:
        """The name in the syntax of SQL."""
        return sql_identifier(*_given(self.catalog, self.schema, self.table))


def target_of(catalog: str | None, schema: str | None, table: str | None, options: ConversionOptions) -> Target | None:
    """The target of these names; None when none is given, so that the table is not registered.

    :raises PermanentError: the schema or the table is missing.
    """
    if not _given(catalog, schema, table):
        return None
    if not schema or not table or catalog == "":
        raise PermanentError(
            f"The target is catalog {catalog!r}, schema {schema!r}, table {table!r}; expected a schema and a table, "
            "with or without a catalog, or None for all three to leave the table unregistered"
        )
    if options.register_in == "glue":
        return Target(catalog, schema.lower(), table.lower(), "glue")  # as Glue keeps them
    return Target(catalog, schema, table)


def check_target(spark: SparkSession, target: Target, root: Location, options: ConversionOptions) -> bool:
    """Whether the target is already registered as a Delta table at this location; False when the name is free.

    It is called before anything is written.

    :raises PermanentError: the name belongs to something else.
    :raises MissingError: the schema does not exist and is not to be created.
    """
    found = _registered(spark, target, root, options)
    if found is None:
        if not creates_schema(options) and not _has_schema(spark, target, options):
            raise MissingError(missing_schema(target.catalog, target.schema, target.kind, options))
        return False
    if not found.is_delta_at(root):
        raise PermanentError(
            f"{target.name} exists: {found.provider or 'no table'} at {found.location or 'no location'}; expected a "
            f"Delta table at {root}, or nothing of that name. Choose another target, or drop that one"
        )
    return True


def register(
    spark: SparkSession,
    target: Target,
    root: Location,
    schema: dict[str, Any],
    partition_columns: Sequence[str],
    description: str | None,
    options: ConversionOptions,
) -> Registration:
    """Register a committed table. It can be called again.

    :raises PermanentError: the name belongs to something else.
    :raises TransientError: the name was dropped again meanwhile.
    """
    if check_target(spark, target, root, options):
        return Registration(made=False)
    notes = []
    try:
        if not _has_schema(spark, target, options):  # and it is to be created, as check_target has found
            _create_schema(spark, target, options)
            notes.append(f"The schema {_schema_name(target.catalog, target.schema)} was missing, and was created")
            logger.info("%s: %s", target.name, notes[-1])
        if target.kind == "glue":
            table = glue_table_input(target, root, schema, partition_columns, description)
            _create_in_glue(target, root, table, options)
        else:
            _create_in_sql(spark, target, root)
    except HiveToDeltaError:
        # Another run may have registered it first, and each catalog has another error for that. So the catalog is
        # asked again.
        if not check_target(spark, target, root, options):
            raise
        return Registration(made=False)
    if not check_target(spark, target, root, options):
        raise TransientError(f"{target.name} was registered at {root} and is not there; somebody dropped it. Try again")
    return Registration(made=True, notes=notes)


def creates_schema(options: ConversionOptions) -> bool:
    """Whether a missing schema is created. In Glue it is only if the options say so, as a safeguard against typos."""
    return options.register_in == "sql" if options.create_schema is None else options.create_schema


def missing_schema(catalog: str | None, schema: str, kind: str, options: ConversionOptions) -> str:
    """The message for a target whose schema does not exist and is not to be created."""
    what = f"There is no schema {_schema_name(catalog, schema)}"
    if kind == "glue":
        account = f" of account {catalog}" if catalog else ""
        what = f"Glue in {aws.glue_client(options.region).meta.region_name}{account} has no database {schema}"
    return (
        f"{what} to register tables in. Nothing was written. Correct the target, create the schema, or pass "
        "ConversionOptions(create_schema=True) to have it created"
    )


def has_glue_database(catalog: str | None, schema: str, options: ConversionOptions) -> bool:
    """Whether Glue has a database of this name."""
    catalog_id: dict[str, Any] = {"CatalogId": catalog} if catalog else {}
    try:
        with aws_call(f"Looking for the database {schema} in Glue"):
            aws.glue_client(options.region).get_database(Name=schema, **catalog_id)
    except MissingError:
        return False
    return True


def unregister(spark: SparkSession, target: Target, root: Location, options: ConversionOptions) -> bool:
    """Drop a name that is registered as a Delta table at this location. It can be called again.

    :returns: False when the name is not registered, or is something else, which is left as it is.
    :raises PermanentError: the catalog would delete the files too.
    """
    found = _registered(spark, target, root, options)
    if found is None or not found.is_delta_at(root):
        return False
    if found.is_managed:
        raise PermanentError(
            f"{target.name} is a managed table at {root}: dropping it would delete its files, which Hive reads. Make "
            "it an external table in its catalog, then try again"
        )
    if target.kind == "glue":
        with suppress(MissingError), aws_call(f"Dropping {target.name} from Glue"):
            aws.glue_client(options.region).delete_table(
                DatabaseName=target.schema, Name=target.table, **_catalog_id(target)
            )
    else:
        with spark_call(f"Dropping {target.name}"):
            spark.sql(f"DROP TABLE IF EXISTS {target.quoted}")
    return True


def glue_table_input(
    target: Target, root: Location, schema: dict[str, Any], partition_columns: Sequence[str], description: str | None
) -> dict[str, Any]:
    """The ``TableInput`` of a Delta table for Glue, which both Athena and Spark can read.

    Columns and partition keys are those that Athena gives the Delta tables it creates; engines read them from the log.
    The formats are those that Spark gives its Delta tables: with them a reader that does not know Delta fails, instead
    of reading files that the log has removed.
    """
    location = f"s3://{root.authority}{root.path or '/'}"
    columns = {field["name"]: _glue_column(field) for field in schema["fields"]}
    return {
        "Name": target.table,
        **({"Description": _glue_text(description, 2048)} if description else {}),
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "EXTERNAL": "TRUE",
            "classification": "delta",
            "spark.sql.sources.provider": "delta",
            "table_type": "DELTA",
        },
        "PartitionKeys": [columns.pop(name) for name in partition_columns],
        "StorageDescriptor": {
            "Columns": list(columns.values()),
            "Location": location,
            "InputFormat": "org.apache.hadoop.mapred.SequenceFileInputFormat",
            "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
            "SerdeInfo": {
                "SerializationLibrary": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
                "Parameters": {"path": location, "serialization.format": "1"},
            },
        },
    }


def is_delta_in_glue(table: Mapping[str, Any], root: Location) -> bool:
    """Whether a table, as Glue's ``get_table`` returns it, is a Delta table at this location."""
    return _of_glue(table).is_delta_at(root)


class Registration(NamedTuple):
    """The result of registering a table."""

    #: False when it was registered before.
    made: bool
    notes: Sequence[str] = ()


class _Registered(NamedTuple):
    #: The format in lower case, such as ``delta``; empty for a view.
    provider: str
    location: str
    #: Whether dropping the table deletes its files.
    is_managed: bool

    def is_delta_at(self, root: Location) -> bool:
        return self.provider == "delta" and _is_at(self.location, root)


def _given(*names: str | None) -> list[str]:
    return [name for name in names if name is not None]


def _is_at(location: str, root: Location) -> bool:
    try:
        return parse_location(location).canonical == root.canonical
    except PermanentError:  # no location, or one that a converted table cannot have
        return False


def _registered(spark: SparkSession, target: Target, root: Location, options: ConversionOptions) -> _Registered | None:
    """The table that is registered under a name; None when there is none."""
    return _glue_table(target, root, options) if target.kind == "glue" else _sql_table(spark, target)


def _sql_table(spark: SparkSession, target: Target) -> _Registered | None:
    from pyspark.errors import AnalysisException

    name = target.quoted
    _check_names(spark, target)
    with spark_call(f"Looking for {target.name}"):
        try:
            # Before DESCRIBE, for which Spark logs a long error if the table does not exist.
            if not spark.catalog.tableExists(name):
                return None
            rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
        except AnalysisException as error:
            if error_condition(error) in _NOT_THERE:
                return None
            if error_condition(error) == "DELTA_PATH_DOES_NOT_EXIST":
                raise PermanentError(
                    f"{target.name} is registered as a Delta table whose log is gone; expected a table with its log, "
                    "or nothing of that name. Drop it, then run the conversion again"
                ) from error
            raise
    found = details(rows)
    return _Registered(
        found.get("Provider", "").lower(), found.get("Location", ""), found.get("Type", "").upper() == "MANAGED"
    )


def _check_names(spark: SparkSession, target: Target) -> None:
    """Refuse names that the catalog would refuse later, when the log is already written."""
    with spark_call(f"Looking for {target.name}"):
        catalog = target.catalog or spark.catalog.currentCatalog()
    names, expected = (
        (_SESSION_NAMES, "letters, digits and _")
        if catalog in {"spark_catalog", "hive_metastore"}
        else (_OTHER_NAMES, "no space, '.', '/' or control character")
    )
    for what, name in (("schema", target.schema), ("table", target.table)):
        if not names.fullmatch(name):
            raise PermanentError(
                f"The target's {what} is called {name!r}, but the catalog {catalog} takes names of {expected} only. "
                "Choose another name"
            )


def _schema_name(catalog: str | None, schema: str) -> str:
    return ".".join(_given(catalog, schema))


def _has_schema(spark: SparkSession, target: Target, options: ConversionOptions) -> bool:
    if target.kind == "glue":
        return has_glue_database(target.catalog, target.schema, options)
    with spark_call(f"Looking for the schema of {target.name}"):
        return spark.catalog.databaseExists(sql_identifier(*_given(target.catalog, target.schema)))


def _create_schema(spark: SparkSession, target: Target, options: ConversionOptions) -> None:
    doing = f"Creating the schema of {target.name}"
    if target.kind == "glue":
        client = aws.glue_client(options.region)
        with aws_call(doing), suppress(client.exceptions.AlreadyExistsException):
            client.create_database(DatabaseInput={"Name": target.schema}, **_catalog_id(target))
        return
    with spark_call(doing):
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {sql_identifier(*_given(target.catalog, target.schema))}")


def _create_in_sql(spark: SparkSession, target: Target, root: Location) -> None:
    with spark_call(f"Registering {target.name} at {root}"):
        # The catalog takes columns, partitioning and comment from the log.
        spark.sql(f"CREATE TABLE {target.quoted} USING DELTA LOCATION {sql_literal(str(root))}")


def _glue_table(target: Target, root: Location, options: ConversionOptions) -> _Registered | None:
    if root.scheme not in S3_SCHEMES:
        raise PermanentError(f"{target.name} would be registered in Glue at {root}, expected a location on S3")
    try:
        with aws_call(f"Looking for {target.name} in Glue"):
            found: Any = aws.glue_client(options.region).get_table(
                DatabaseName=target.schema, Name=target.table, **_catalog_id(target)
            )
    except MissingError:
        return None
    return _of_glue(found["Table"])


def _of_glue(table: Mapping[str, Any]) -> _Registered:
    parameters = table.get("Parameters", {})
    storage = table.get("StorageDescriptor", {})
    marks = {parameters.get("table_type", ""), parameters.get("spark.sql.sources.provider", "")}
    provider = "delta" if "delta" in {mark.lower() for mark in marks} else table.get("TableType", "a table").lower()
    # Spark keeps the location of its tables in the SerDe's parameters. The location itself can be a placeholder.
    path = storage.get("SerdeInfo", {}).get("Parameters", {}).get("path") if provider == "delta" else None
    # Glue deletes no files when a table is dropped, whatever its type.
    return _Registered(provider, path or storage.get("Location", ""), is_managed=False)


def _create_in_glue(target: Target, root: Location, table: Any, options: ConversionOptions) -> None:
    client = aws.glue_client(options.region)
    with aws_call(f"Registering {target.name} in Glue at {root}"):
        client.create_table(DatabaseName=target.schema, TableInput=table, **_catalog_id(target))


def _glue_column(field: dict[str, Any]) -> dict[str, str]:
    column = {"Name": field["name"], "Type": hive_type_of(field["type"])}
    comment = field["metadata"].get("comment")
    return {**column, "Comment": _glue_text(comment, 255)} if comment else column


def _glue_text(text: str, most_bytes: int) -> str:
    """A text without control characters, cut to the length that Glue allows. The log has the whole text."""
    printable = "".join(character if character >= " " else " " for character in text)
    return printable.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")


def _catalog_id(target: Target) -> dict[str, Any]:
    return {"CatalogId": target.catalog} if target.catalog is not None else {}
