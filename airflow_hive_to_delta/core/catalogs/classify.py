"""The format of a table, and whether it can become a Delta table in place (rule 45).

Both are found from a :class:`StorageFormat`, which is what a catalog says of how the table is stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.storage.uri import parse_location

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.models import TableInfo

_TABLE_FORMATS = {"hudi": ("hudi", "hoodie"), "delta": ("delta",), "iceberg": ("iceberg",)}
_FILE_FORMATS = ("orc", "avro", "json", "csv", "rcfile", "sequencefile", "xml", "text")
# Whole names: another class with Parquet in its name may read the files in another way.
_PARQUET_CLASSES = {"parquethiveserde", "mapredparquetinputformat", "deprecatedparquetinputformat"}
_NO_PARTITION_TYPE = re.compile(r"\s*(array|map|struct|uniontype|variant|interval)\b", re.IGNORECASE)


@dataclass(frozen=True)
class StorageFormat:
    """How a table is stored, as its catalog says."""

    #: The data source of Spark; empty or ``hive`` for a table whose format is given by its serde.
    provider: str
    serde: str
    input_format: str
    #: Properties of the table and of its serde, with keys in lower case.
    properties: Mapping[str, str]
    #: The table that this one is a resource link to; empty if it is not a link.
    link_target: str = ""

    def is_set(self, name: str) -> bool:
        """Whether a property is ``true``."""
        return self.properties.get(name, "").strip().lower() == "true"


def format_of(table_type: str | None, storage: StorageFormat) -> str:
    """The format of a table: ``parquet``, ``delta``, ``orc``, ``view`` and so on, or ``unknown``."""
    if storage.link_target:
        return "link"
    if "VIEW" in (table_type or "").upper():
        return "view"
    properties, provider = storage.properties, storage.provider.lower()
    classes = [_class_name(name) for name in (storage.input_format, storage.serde) if name]
    handler = _class_name(properties.get("storage_handler", ""))
    classification = properties.get("classification", "").lower()
    # Table formats and symlinks come first, because they can have the serde or the provider of Parquet. Delta comes
    # before Iceberg, because a Delta table with Iceberg metadata beside its log is marked as both.
    names = [provider, properties.get("table_type", "").lower(), handler, classification, *classes]
    for table_format, markers in _TABLE_FORMATS.items():
        if any(marker in text for marker in markers for text in names):
            return table_format
    if "metadata_location" in properties:
        return "iceberg"
    if "symlinktextinputformat" in classes:
        return "symlink"
    if handler:
        return handler
    if provider not in ("", "hive"):
        is_parquet = provider == "parquet" or (provider.startswith("org.apache.spark.sql.") and "parquet" in provider)
        return "parquet" if is_parquet else _file_format(_class_name(provider))
    if classes:
        others = [_file_format(name) for name in classes if name not in _PARQUET_CLASSES]
        # Every format of lines has the input format of text, so the serde counts.
        return next((name for name in others if name != "text"), "text") if others else "parquet"
    return classification or "unknown"


def refusal_of(table: TableInfo, storage: StorageFormat) -> str | None:
    """Why a table cannot be converted, and what to do about it; None for a table that can be, and for a Delta table."""
    name = table.qualified_name
    copy = "copy its rows into a Delta table with CREATE TABLE … USING delta AS SELECT"
    match table.format:
        case "delta":
            return None
        case "link":
            return f"{name} is a resource link to {storage.link_target}. Discover that table in its own database"
        case "view":
            return f"{name} is a view and has no files. Convert the tables it reads"
        case "hudi":
            return f"{name} is a Hudi table: its files hold replaced and deleted rows. To have it in Delta, {copy}"
        case "iceberg":
            return (
                f"{name} is an Iceberg table: its files hold replaced and deleted rows. "
                f"Use CONVERT TO DELTA iceberg.`…` of Delta Lake, or {copy}"
            )
        case "symlink":
            return (
                f"{name} reads the files that symlink manifests name; its location holds no data. "
                "Convert the table that the manifests were made from"
            )
    if table.format != "parquet" and (table.location or table.format != "unknown"):
        return (
            "CONVERT TO DELTA only supports parquet tables, but you are trying to convert "
            f"a {table.format} source: {name}"
        )
    if not table.location:
        return f"{name} has no location, so its files cannot be found. Set its location in the catalog"
    try:
        parse_location(table.location, f"The location of {name}")
    except PermanentError as error:
        return str(error)
    if storage.is_set("transactional"):
        return (
            f"{name} is a Hive ACID table (transactional=true): only Hive knows which of its files count. "
            f"To have it in Delta, {copy}"
        )
    if storage.is_set("projection.enabled"):
        return (
            f"{name} has Athena partition projection (projection.enabled=true): its partitions are not in the catalog. "
            "Add them there and set projection.enabled to false, or pass its files to convert_table()"
        )
    if storage.is_set("parquet.column.index.access"):
        return (
            f"{name} finds its columns in the files by position (parquet.column.index.access=true), Delta by name. "
            f"Take the property off if the files have the table's column names; if not, {copy}"
        )
    for key, hive_type in table.partition_types.items():
        if _NO_PARTITION_TYPE.match(hive_type):
            return (
                f"{name} is partitioned by {key} of the type {hive_type}, expected a primitive type. "
                f"To have it in Delta, {copy} and another partition column"
            )
    return None


def _class_name(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _file_format(class_name: str) -> str:
    bare = re.sub(r"(inputformat|serde)$", "", class_name)
    return "text" if bare == "lazysimple" else next((name for name in _FILE_FORMATS if name in bare), bare)
