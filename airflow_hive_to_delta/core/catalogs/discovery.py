"""Discovering tables in AWS Glue, or in any catalog of the Spark session.

A table that cannot be converted is returned too, with the reason in ``refusal`` (rule 45). Tables that lie inside the
location of another are in its ``nested_tables``. In Glue all tables of the database are compared for that, in a catalog
of Spark those that are discovered together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Protocol

from airflow_hive_to_delta.core.catalogs.classify import StorageFormat, format_of, refusal_of
from airflow_hive_to_delta.core.catalogs.nested_tables import mark_nested_tables
from airflow_hive_to_delta.core.errors import MissingError, SchemaError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.schema.translation import (
    build_delta_schema_from_json,
    build_delta_schema_from_spark,
    spark_type_of,
)
from airflow_hive_to_delta.core.schema.types import (
    CHAR_VARCHAR,
)
from airflow_hive_to_delta.core.spark.errors import is_spark_error, spark_call, translate_spark_error
from airflow_hive_to_delta.core.spark.sql import details, error_condition, sql_identifier
from airflow_hive_to_delta.core.storage.aws import glue_client
from airflow_hive_to_delta.core.storage.aws_errors import aws_call

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import Row, SparkSession

_SPARK = "spark.sql.sources."
#: The columns that Spark gives a table which Hive cannot read.
_PLACEHOLDER = [{"Name": "col", "Type": "array<string>"}]
_ABSENT = {"SCHEMA_NOT_FOUND", "CATALOG_NOT_FOUND", "NO_SUCH_CATALOG_EXCEPTION"}


class Discovery(Protocol):
    """Discovers tables. Users can write their own: any class with this method is a discovery."""

    def discover(self, spark: SparkSession) -> list[TableInfo]:
        """The discovered tables, convertible or not, in a stable order."""
        ...


@dataclass
class GlueDiscovery:
    """Discovers the tables of one database in AWS Glue.

    :param pattern: a glob that the names of the tables must match, in any case.
    :param region: the region of the database; that of the environment when it is not given.
    :param catalog_id: the account of the Glue catalog, if it is not the caller's own. It becomes the ``catalog`` of the
        tables.
    """

    database: str
    pattern: str | None = None
    region: str | None = None
    catalog_id: str | None = None

    def discover(self, spark: SparkSession | None = None) -> list[TableInfo]:  # noqa: ARG002
        pattern = (self.pattern or "*").lower()
        found = sorted(self._tables(), key=lambda table: str(table["Name"]))
        tables = [from_glue(table, self) for table in found if fnmatchcase(table["Name"].lower(), pattern)]
        prefix = "".join(f"{part}." for part in (self.catalog_id, self.database) if part)
        mark_nested_tables(tables, ((f"{prefix}{table['Name']}", _glue_location(table)) for table in found))
        return tables

    def _tables(self) -> list[Mapping[str, Any]]:
        request: dict[str, Any] = {"DatabaseName": self.database}
        if self.catalog_id:
            request["CatalogId"] = self.catalog_id
        with aws_call("Connecting to Glue"):
            client = glue_client(self.region)
        try:
            with aws_call(f"Listing the tables of the Glue database {self.database} in {client.meta.region_name}"):
                pages = client.get_paginator("get_tables").paginate(**request)
                return [table for page in pages for table in page["TableList"]]
        except MissingError as error:
            raise MissingError(
                f"{str(error).rstrip('.')}. Correct the name of the database, or look in the region and the catalog "
                "(account) that have it"
            ) from error


@dataclass
class UCDiscovery:
    """Discovers the tables of Unity Catalog, ``hive_metastore``, ``spark_catalog`` or any other catalog of the session.

    Catalogs and schemas that no pattern can match are not listed. Temporary views are left out. Columns are read for
    Parquet tables only.

    :param allow: globs of which a table must match one, as ``catalog.schema.table``, in any case. A wildcard in the
        catalog finds those that ``SHOW CATALOGS`` lists. Open-source Spark lists a catalog there only after its first
        use; one that the pattern names is always found.
    :param deny: globs of which a table must match none.
    :param max_workers: how many tables are described in parallel.
    """

    allow: Sequence[str]
    deny: Sequence[str] = field(default_factory=lambda: ["*.information_schema.*"])
    max_workers: int = 8

    def __post_init__(self) -> None:
        for name, patterns, least in (("allow", self.allow, 1), ("deny", self.deny, 0)):
            if isinstance(patterns, str) or len(patterns) < least:
                raise ValueError(
                    f"{name} is {patterns!r}, expected a list of patterns such as ['hive_metastore.sales.*']"
                )

    def discover(self, spark: SparkSession) -> list[TableInfo]:
        schemas = [(catalog, schema) for catalog in self._catalogs(spark) for schema in self._schemas(spark, catalog)]
        with ThreadPoolExecutor(self.max_workers) as pool:
            listed = pool.map(lambda schema: _tables_of(spark, *schema), schemas)
            names = [(*schema, table) for schema, tables in zip(schemas, listed, strict=True) for table in tables]
            chosen = sorted((name for name in names if self._chooses(".".join(name))), key=".".join)
            tables = list(pool.map(lambda name: from_spark(spark, *name), chosen))
        mark_nested_tables(tables)
        return tables

    def _catalogs(self, spark: SparkSession) -> list[str]:
        named = [prefix.partition(".") for prefix in map(_literal_prefix, self.allow)]
        catalogs = [catalog for catalog, dot, _ in named if dot]
        if any(not dot for _, dot, _ in named):
            catalogs += [row.catalog for row in _rows_if_there(spark, "SHOW CATALOGS", "Listing the catalogs")]
        spelt_once = {catalog.lower(): catalog for catalog in reversed(catalogs)}
        return sorted(catalog for catalog in spelt_once.values() if self._may_choose_in(f"{catalog}."))

    def _schemas(self, spark: SparkSession, catalog: str) -> list[str]:
        rows = _rows_if_there(spark, f"SHOW SCHEMAS IN {sql_identifier(catalog)}", f"Listing the schemas of {catalog}")
        schemas = [_unquoted(row[0]) for row in rows]
        return [schema for schema in schemas if self._may_choose_in(f"{catalog}.{schema}.")]

    def _chooses(self, name: str) -> bool:
        return _matches(name, self.allow) and not _matches(name, self.deny)

    def _may_choose_in(self, parent: str) -> bool:
        """Whether a name that starts with ``parent`` (``catalog.`` or ``catalog.schema.``) can be chosen."""
        parent = parent.lower()
        prefixes = [_literal_prefix(pattern).lower() for pattern in self.allow]
        reachable = any(prefix.startswith(parent) or parent.startswith(prefix) for prefix in prefixes)
        # A pattern with a final `*` that matches the parent itself matches every name in it.
        return reachable and not _matches(parent, [pattern for pattern in self.deny if pattern.endswith("*")])


def describe_in_glue(table: TableInfo) -> TableInfo:
    """A table of Glue, as Glue describes it now.

    :raises MissingError: there is no such table.
    """
    discovery = GlueDiscovery(table.database or "", region=table.region, catalog_id=table.catalog)
    catalog: dict[str, Any] = {"CatalogId": table.catalog} if table.catalog else {}
    with aws_call(f"Reading the table {table.qualified_name} from Glue"):
        found = glue_client(table.region).get_table(DatabaseName=discovery.database, Name=table.name, **catalog)
    return from_glue(found["Table"], discovery)


def describe_in_spark(spark: SparkSession, table: TableInfo) -> TableInfo:
    """A table of a catalog of the session, as the catalog describes it now."""
    return from_spark(spark, table.catalog or "", table.database or "", table.name)


# --- AWS Glue ---------------------------------------------------------------------------------------------------


def from_glue(found: Mapping[str, Any], discovery: GlueDiscovery) -> TableInfo:
    """The table that Glue's ``get_table`` or ``get_tables`` describes.

    :param found: the table in the answer of Glue.
    :param discovery: the discovery that found it, for its region, database and catalog.
    """
    descriptor = found.get("StorageDescriptor") or {}
    serde = descriptor.get("SerdeInfo") or {}
    serde_properties = serde.get("Parameters") or {}
    properties = found.get("Parameters") or {}
    target = found.get("TargetTable") or {}
    storage = StorageFormat(
        provider=properties.get(f"{_SPARK}provider", ""),
        serde=serde.get("SerializationLibrary") or "",
        input_format=descriptor.get("InputFormat") or "",
        properties={key.lower(): value for key, value in {**serde_properties, **properties}.items()},
        link_target=".".join(target[key] for key in ("CatalogId", "DatabaseName", "Name") if target.get(key)),
    )
    table = TableInfo(
        name=found["Name"],
        location=_glue_location(found),
        catalog=discovery.catalog_id,
        database=found.get("DatabaseName") or discovery.database,
        source="glue",
        region=discovery.region or glue_client().meta.region_name,
        account_id=str(found.get("CatalogId") or discovery.catalog_id or "").partition(":")[0] or None,
        format=format_of(found.get("TableType"), storage),
        table_type=found.get("TableType"),
        comment=found.get("Description") or properties.get("comment"),
        # Spark's schema is long, and is in the columns already.
        properties={key: value for key, value in properties.items() if not key.startswith(f"{_SPARK}schema")},
        bucket_columns=list(descriptor.get("BucketColumns") or []),
    )
    _set_columns(
        table,
        columns=[_glue_column(column) for column in descriptor.get("Columns") or []],
        keys=[_glue_column(key) for key in found.get("PartitionKeys") or []],
    )
    if table.format == "parquet":
        try:
            _take_columns_of_spark(table, properties)
        except (SchemaError, LookupError, TypeError, ValueError) as error:
            table.refusal = (
                f"{table.qualified_name} has a schema of Spark in its properties ({_SPARK}schema…) that cannot be "
                f"used: {error}. Mend it, or take it off so that Glue's columns count"
            )
    table.refusal = table.refusal or refusal_of(table, storage)
    return table


def _glue_location(found: Mapping[str, Any]) -> str:
    descriptor = found.get("StorageDescriptor") or {}
    serde_properties = (descriptor.get("SerdeInfo") or {}).get("Parameters") or {}
    # Spark keeps the location of its own tables in the serde's parameters. The location for Hive can be a placeholder.
    own = serde_properties.get("path") if _is_data_source(found.get("Parameters") or {}) else None
    return own or descriptor.get("Location") or ""


def _take_columns_of_spark(table: TableInfo, properties: Mapping[str, str]) -> None:
    """Use the columns that Spark wrote into the properties, with the case of their names, unless they are outdated."""
    text = properties.get(f"{_SPARK}schema") or "".join(_numbered(properties, "numParts", "part"))
    if not text:
        return
    columns = {column["Name"].lower(): column for column in _columns_of(build_delta_schema_from_json(json.loads(text)))}
    keys = [columns.pop(name.lower()) for name in _numbered(properties, "numPartCols", "partCol")]
    glue_keys = [{"Name": key, "Type": table.partition_types.get(key, "")} for key in table.partition_keys]
    in_glue = [*(table.columns or []), *glue_keys]
    # For a Hive table they are a copy, which is out of date once Hive or Athena has changed the columns.
    is_copy = not _is_data_source(properties) and table.columns != _PLACEHOLDER
    if is_copy and _ignoring_case([*columns.values(), *keys]) != _ignoring_case(in_glue):
        return
    _set_columns(table, list(columns.values()), keys)
    table.bucket_columns = _numbered(properties, "numBucketCols", "bucketCol") or table.bucket_columns


def _numbered(properties: Mapping[str, str], count: str, item: str) -> list[str]:
    number = int(properties.get(f"{_SPARK}schema.{count}", 0))
    return [properties[f"{_SPARK}schema.{item}.{i}"] for i in range(number)]


def _glue_column(column: Mapping[str, Any]) -> dict[str, str]:
    return {key: column[key] for key in ("Name", "Type", "Comment") if column.get(key)}


def _ignoring_case(columns: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    return [(c["Name"].lower(), re.sub(r"[`\s]", "", c.get("Type", "")).lower()) for c in columns]


def _is_data_source(properties: Mapping[str, str]) -> bool:
    return properties.get(f"{_SPARK}provider", "hive").lower() != "hive"


# --- Catalogs of the Spark session ------------------------------------------------------------------------------


def from_spark(spark: SparkSession, catalog: str, schema: str, name: str) -> TableInfo:
    """The table that a catalog of the session describes. If it cannot be described, ``refusal`` says why."""
    table = TableInfo(name=name, location="", catalog=catalog, database=schema, source="spark", format="unknown")
    try:
        _describe(spark, table)
    except SchemaError as error:
        table.refusal = f"{table.qualified_name} cannot be converted: {error}"
    except Exception as error:
        # Any other error is not about this table: a lost connection, or a bug.
        if not is_spark_error(error):
            raise
        reason = translate_spark_error(error, f"{table.qualified_name} cannot be described")
        table.refusal = f"{reason}. Mend the table, or deny it by a pattern"
    return table


def _describe(spark: SparkSession, table: TableInfo) -> None:
    name = sql_identifier(table.catalog or "", table.database or "", table.name)
    described = details(spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect())
    shown = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    # SHOW TBLPROPERTIES has the serde's properties with a prefix or not at all, and leaves out names that Spark
    # reserves, such as `table_type`. DESCRIBE has them, but only as one text.
    properties = {
        **_printed_properties(described.get("Table Properties", "")),
        **_printed_properties(described.get("Storage Properties", "")),
        **{key.removeprefix("option."): value for key, value in shown.items()},
    }
    storage = StorageFormat(
        provider=described.get("Provider", ""),
        serde=described.get("Serde Library", ""),
        input_format=described.get("InputFormat", ""),
        properties={key.lower(): value for key, value in properties.items()},
    )
    # The pattern may have another case than the catalog's name.
    table.catalog = described.get("Catalog") or table.catalog
    table.location = described.get("Location", "")
    table.table_type = described.get("Type")
    table.comment = described.get("Comment") or None
    table.properties = {key: value for key, value in shown.items() if not key.startswith("option.")}
    table.format = format_of(table.table_type, storage)
    if table.format == "parquet":
        listed = spark.catalog.listColumns(name)
        keys = {column.name for column in listed if column.isPartition}
        columns = _columns_of(build_delta_schema_from_spark(spark.table(name).schema))
        _set_columns(table, [c for c in columns if c["Name"] not in keys], [c for c in columns if c["Name"] in keys])
        table.bucket_columns = [column.name for column in listed if column.isBucket]
    table.refusal = refusal_of(table, storage)


def _printed_properties(text: str) -> dict[str, str]:
    """The properties in a text such as ``[a=1, b=2]``, which ``DESCRIBE`` prints."""
    pairs = (pair.partition("=") for pair in re.split(r",\s*", text.strip("[]")))
    return {key: value for key, equals, value in pairs if equals}


def _tables_of(spark: SparkSession, catalog: str, schema: str) -> list[str]:
    statement = f"SHOW TABLES IN {sql_identifier(catalog, schema)}"
    rows = _rows_if_there(spark, statement, f"Listing the tables of {catalog}.{schema}")
    return [row.tableName for row in rows if not row.isTemporary]


def _rows_if_there(spark: SparkSession, statement: str, doing: str) -> list[Row]:
    from pyspark.errors import PySparkException

    with spark_call(doing):
        try:
            return spark.sql(statement).collect()
        except PySparkException as error:
            if is_absent(error):
                return []
            raise


def is_absent(error: PySparkException) -> bool:
    """Whether the error says that a schema or a catalog does not exist."""
    return error_condition(error) in _ABSENT


# --- Columns, names and patterns --------------------------------------------------------------------------------


def _set_columns(table: TableInfo, columns: list[dict[str, str]], keys: list[dict[str, str]]) -> None:
    table.columns = columns
    table.partition_keys = [key["Name"] for key in keys]
    table.partition_types = {key["Name"]: key["Type"] for key in keys if "Type" in key}
    table.partition_comments = {key["Name"]: key["Comment"] for key in keys if "Comment" in key}


def _columns_of(schema: Mapping[str, Any]) -> list[dict[str, str]]:
    """The columns of a Delta schema in the form of Glue, with the types that Spark declares (rule 26)."""
    columns = []
    for column in schema["fields"]:
        metadata = column["metadata"]
        declared = metadata.get(CHAR_VARCHAR) or spark_type_of(column["type"])
        comment = {"Comment": metadata["comment"]} if metadata.get("comment") else {}
        columns.append({"Name": column["name"], "Type": declared, **comment})
    return columns


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def _literal_prefix(pattern: str) -> str:
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0]


def _unquoted(name: str) -> str:
    """A name without the backticks that ``SHOW SCHEMAS`` puts around it where needed."""
    return name[1:-1].replace("``", "`") if len(name) > 1 and name[0] == name[-1] == "`" else name
