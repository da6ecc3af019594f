"""The tables and files that steps pass to each other, as plain data.

This module must not import pyarrow or PySpark, because operators import it whenever a DAG is parsed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Protocol, Self

#: The schema of a list of files as a DataFrame. ``modification_time`` is in milliseconds since the epoch, or null when
#: the listing does not know it. ``partition_values`` are as the metastore has them, or null when they are in the path.
FILES_SCHEMA = "path string, size bigint, modification_time bigint, partition_values map<string,string>"

ALREADY_DELTA = "The table you are trying to convert is already a delta table"


class AllowedTables(Protocol):
    """The options that say which tables may be converted although something of them is lost or doubtful."""

    @property
    def allow_bucketed(self) -> bool: ...

    @property
    def allow_nested_tables(self) -> bool: ...


class Document:
    """Plain data that can be passed on as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """The data as a dict that can be written as JSON."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """The object that :meth:`to_dict` made a dict of.

        :raises ValueError: the dict has an unknown key, such as a misspelt option.
        """
        known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
        unknown = sorted(set(document) - known)
        if unknown:
            raise ValueError(f"{cls.__name__} has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
        return cls(**document)


#: The properties of a Hive table that steps after discovery need, to find out which catalog tracks its partitions.
NEEDED_PROPERTIES = frozenset({"projection.enabled", "spark.sql.partitionProvider", "spark.sql.sources.provider"})


@dataclass
class TableInfo(Document):
    """One table as a catalog describes it, without its partitions and files."""

    name: str
    location: str
    #: Name to register the Delta table under; the table's own name when not given.
    target_table_name: str | None = None
    #: Data columns in the form of Glue (``Name``, ``Type``, optionally ``Comment``), without the partition columns.
    columns: list[dict[str, str]] | None = None
    partition_keys: list[str] = field(default_factory=list)
    #: Hive type of each partition key. A key without one is a string.
    partition_types: dict[str, str] = field(default_factory=dict)
    #: Comment of each partition key that has one.
    partition_comments: dict[str, str] = field(default_factory=dict)
    catalog: str | None = None
    database: str | None = None
    #: The catalog that knows this table's partitions: Glue, that of the Spark session, or none (they are in the paths).
    source: Literal["glue", "spark", "none"] = "none"
    #: The region of the Glue catalog that the table was found in.
    region: str | None = None
    #: ``parquet``, ``delta``, ``orc``, ``iceberg``, ``view`` and so on.
    format: str = "parquet"
    table_type: str | None = None
    comment: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    bucket_columns: list[str] = field(default_factory=list)
    #: Why this table cannot be converted with any options (rule 45); None when it can.
    refusal: str | None = None
    #: The AWS account of the Glue catalog that the table was found in.
    account_id: str | None = None
    #: Name and location of the other tables of the catalog that lie inside this one's location, at most 100 of them.
    nested_tables: dict[str, str] = field(default_factory=dict)
    #: Set by discovery for later steps: a digest by which they see that the table was not changed by hand, and the
    #: fields that the user has chosen (:mod:`definitions`).
    discovered: dict[str, Any] = field(default_factory=dict)

    @property
    def qualified_name(self) -> str:
        """The name with the catalog and the database before it."""
        return ".".join(part for part in (self.catalog, self.database, self.name) if part)

    @property
    def is_managed(self) -> bool:
        """Whether Hive and Spark delete the files of this table when it is dropped."""
        return (self.table_type or "").upper() in ("MANAGED", "MANAGED_TABLE")

    def without_other_properties(self) -> Self:
        """The table without the properties that no step needs, which can hold anything, even credentials."""
        needed = {name: value for name, value in self.properties.items() if name in NEEDED_PROPERTIES}
        return replace(self, properties=needed)

    def why_refused(self, options: AllowedTables) -> str | None:
        """Return why this table is not converted with these options, or None when it can be.

        :param options: such as :class:`ConversionOptions`.
        """
        if self.refusal:
            return self.refusal
        if self.bucket_columns and not options.allow_bucketed:
            return (
                f"{self.qualified_name} is bucketed by {', '.join(self.bucket_columns)}, which Delta tables cannot be. "
                "Pass ConversionOptions(allow_bucketed=True) if losing the bucketing is fine"
            )
        # The files of a partitioned table are not known yet, and a Delta table has them in its log.
        lists_all = not self.partition_keys and self.format != "delta"
        if self.nested_tables and lists_all and not options.allow_nested_tables:
            return self.nested_refusal(list(self.nested_tables))
        return None

    def nested_refusal(self, names: list[str]) -> str:
        """The message of a refusal for some of the ``nested_tables``, by their names."""
        shown = ", ".join(f"{name} at {self.nested_tables[name]}" for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return (
            f"{self.qualified_name} has other tables of its catalog inside its location: {shown}{more}. Their files "
            "would be taken for its own. Give each table a location of its own; or, if the rows of those tables are "
            "rows of this one too, pass ConversionOptions(allow_nested_tables=True)"
        )


@dataclass
class ParquetFileInfo(Document):
    """One data file."""

    #: A URI or an absolute local path, not URL-encoded.
    path: str
    #: In bytes.
    size: int
    #: The values as the metastore has them, with None for null. None instead of a dict: they are in the path.
    partition_values: dict[str, str | None] | None = None
    #: Milliseconds since the epoch.
    modification_time: int | None = None
