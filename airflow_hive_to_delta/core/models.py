"""What travels between the steps: tables and files, as plain data.

``to_dict`` gives a JSON-ready dict and ``from_dict`` takes it back; unknown keys are an error, so that a
misspelt option is never silently nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.options import ConversionOptions

#: The DataFrame form of a file list. ``modification_time`` is in milliseconds since the epoch, or null when the
#: listing does not know it. ``partition_values`` are as the metastore has them; null: they are in the path.
FILES_SCHEMA = "path string, size bigint, modification_time bigint, partition_values map<string,string>"

ALREADY_DELTA = "The table you are trying to convert is already a delta table"


class Document:
    """Plain data that travels as JSON."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
        unknown = sorted(set(document) - known)
        if unknown:
            raise ValueError(f"{cls.__name__} has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
        return cls(**document)


#: The properties of a Hive table that any step after discovery needs: those that say where its partitions are known.
NEEDED_PROPERTIES = frozenset({"projection.enabled", "spark.sql.partitionProvider", "spark.sql.sources.provider"})


@dataclass
class TableInfo(Document):
    """One table as a catalog describes it. Small on purpose: it has no partitions and no files."""

    name: str
    location: str
    #: Name to register the Delta table under; the table's own name when not given.
    target_table_name: str | None = None
    #: Data columns in Glue's form (``Name``, ``Type``, optionally ``Comment``), without the partition columns.
    columns: list[dict[str, str]] | None = None
    partition_keys: list[str] = field(default_factory=list)
    #: Hive type of each partition key; a key without one is a string.
    partition_types: dict[str, str] = field(default_factory=dict)
    #: Comment of each partition key that has one.
    partition_comments: dict[str, str] = field(default_factory=dict)
    catalog: str | None = None
    database: str | None = None
    #: Which catalog knows this table's partitions: Glue, the Spark session's, or none (they are in the paths).
    source: Literal["glue", "spark", "none"] = "none"
    #: The region of the Glue catalog that a table came from; its partitions are in no other.
    region: str | None = None
    #: ``parquet``, ``delta``, ``orc``, ``iceberg``, ``view`` and so on.
    format: str = "parquet"
    table_type: str | None = None
    comment: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    bucket_columns: list[str] = field(default_factory=list)
    #: Why this table cannot be converted whatever the options say (rule 45); None when it can.
    refusal: str | None = None
    #: The AWS account of the Glue catalog that a table came from.
    account_id: str | None = None
    #: Other tables of the catalog whose location is below this one's, the first 100 of them: name and location.
    nested_tables: dict[str, str] = field(default_factory=dict)
    #: Of a table that a task handed on to others: by which they know that nobody changed it by hand, and what was
    #: chosen for it (:mod:`definitions`).
    discovered: dict[str, Any] = field(default_factory=dict)

    @property
    def qualified_name(self) -> str:
        return ".".join(part for part in (self.catalog, self.database, self.name) if part)

    @property
    def is_managed(self) -> bool:
        """Whether Hive or Spark delete the files of this table when somebody drops it."""
        return (self.table_type or "").upper() in ("MANAGED", "MANAGED_TABLE")

    def without_other_properties(self) -> Self:
        """The table as it is kept and handed on: properties can hold anything, credentials too."""
        needed = {name: value for name, value in self.properties.items() if name in NEEDED_PROPERTIES}
        return replace(self, properties=needed)

    def why_refused(self, options: ConversionOptions) -> str | None:
        """The reason this table is not converted, given what the options allow."""
        if self.refusal:
            return self.refusal
        if self.bucket_columns and not options.allow_bucketed:
            return (
                f"{self.qualified_name} is bucketed by {', '.join(self.bucket_columns)}, which Delta tables cannot be. "
                "Pass ConversionOptions(allow_bucketed=True) if losing the bucketing is fine"
            )
        # Which files a partitioned table has is known when its partitions are; a Delta table has them in its log.
        lists_all = not self.partition_keys and self.format != "delta"
        if self.nested_tables and lists_all and not options.allow_nested_tables:
            return self.nested_refusal(list(self.nested_tables))
        return None

    def nested_refusal(self, names: list[str]) -> str:
        """Why this table is refused for these of its ``nested_tables``, and what to do."""
        shown = ", ".join(f"{name} at {self.nested_tables[name]}" for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return (
            f"{self.qualified_name} has other tables of its catalog inside its location: {shown}{more}. Their files "
            "would be taken for its own. Give each table a location of its own; or, if the rows of those tables are "
            "rows of this one too, pass ConversionOptions(allow_nested_tables=True)"
        )


@dataclass
class ParquetFileInfo(Document):
    """One data file. ``path`` is as the storage has it, never URL-encoded."""

    path: str
    size: int
    #: As the metastore has them, None for a null partition. None: they are to be parsed from the path.
    partition_values: dict[str, str | None] | None = None
    #: Milliseconds since the epoch.
    modification_time: int | None = None
