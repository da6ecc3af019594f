"""What travels between the steps: tables, files, options and results, all plain data.

``to_dict`` gives a JSON-ready dict and ``from_dict`` takes it back; unknown keys are an error, so that a
misspelt option is never silently nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self

#: The DataFrame form of a file list. ``modification_time`` is in milliseconds since the epoch, or null when the
#: listing does not know it. ``partition_values`` are as the metastore has them; null: they are in the path.
FILES_SCHEMA = "path string, size bigint, modification_time bigint, partition_values map<string,string>"

ALREADY_DELTA = "The table you are trying to convert is already a delta table"


class _Document:
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
class TableInfo(_Document):
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
class ParquetFileInfo(_Document):
    """One data file. ``path`` is as the storage has it, never URL-encoded."""

    path: str
    size: int
    #: As the metastore has them, None for a null partition. None: they are to be parsed from the path.
    partition_values: dict[str, str | None] | None = None
    #: Milliseconds since the epoch.
    modification_time: int | None = None


@dataclass
class ConversionOptions(_Document):
    """How to convert. The defaults are the safe side; each ``allow_…`` gives one thing up knowingly."""

    #: Where statistics come from: the Parquet footers, one Spark scan of the data, or nowhere.
    stats: Literal["footer", "scan", "none"] = "footer"
    #: Most files that one task takes when it reads statistics. Unset: the session's
    #: ``spark.databricks.delta.import.batchSize.statsCollection``, or 2,500.
    stats_batch_size: int | None = None
    #: The same for reading schemas only: ``spark.databricks.delta.import.batchSize.schemaInference``, or 2,500.
    schema_batch_size: int | None = None
    #: Bytes read from the end of each file; a longer footer costs a second read.
    footer_tail_bytes: int = 64 * 1024
    #: Footers read at a time by one task, where the storage is remote.
    footer_threads: int = 16
    #: Tables with more files than this get a checkpoint with their first commit.
    checkpoint_over_files: int = 10_000
    #: The zone of ``timestamp`` partition values that name none.
    partition_timezone: str = "UTC"
    #: Table properties of the Delta table (``delta.…`` and others).
    properties: dict[str, str] = field(default_factory=dict)
    #: Write the feature ``typeWidening`` when a file is narrower than the table (rule 29).
    type_widening: bool = True
    #: Accept files that spell a column's name in different cases, for readers that ignore case as Spark does.
    allow_name_case_conflict: bool = False
    #: Read bytes that carry no text annotation as text where the catalog says ``string``.
    binary_as_string: bool = False
    #: Read times that carry no zone as UTC where the catalog says ``timestamp``, as Spark does.
    ntz_as_timestamp: bool = False
    #: Accept ``key=value`` folders whose key is neither a partition column nor in the files.
    allow_undeclared_partitions: bool = False
    #: Accept partitions whose location does not exist: they hold no files.
    allow_missing_partitions: bool = False
    #: Refuse a table without any data file, whose location may be wrong; by default it becomes an empty Delta table.
    refuse_empty: bool = False
    #: Accept tables whose location holds other tables of the catalog: the files of those become files of this one.
    allow_nested_tables: bool = False
    #: Accept losing the bucketing of a bucketed table.
    allow_bucketed: bool = False
    #: Places that tables and partitions may lie under; empty: anywhere (rule 52).
    allowed_roots: list[str] = field(default_factory=list)
    #: Where a table with a target is registered: through Spark SQL, or in AWS Glue.
    register_in: Literal["sql", "glue"] = "sql"
    #: Create the target's schema when it is missing, instead of refusing the table. Unset: with SQL, not in Glue.
    create_schema: bool | None = None
    region: str | None = None
    #: The account that must own the buckets written to and read from (rule 54).
    expected_bucket_owner: str | None = None
    #: KMS key for the log entries, where the bucket's own default will not do.
    sse_kms_key_id: str | None = None
    #: A text of your own in the first commit, which ``DESCRIBE HISTORY`` shows as ``userMetadata``.
    user_metadata: str | None = None
    #: The run that converts, kept in the first commit: by it a later try knows what an earlier one has converted. The
    #: operators fill it in.
    run_id: str | None = None

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Numbers and truth values may be text, as templates render them."""
        return super().from_dict({name: cls._value(name, value) for name, value in document.items()})

    @classmethod
    def _value(cls, name: str, value: Any) -> Any:
        kind = next((f.type for f in fields(cls) if f.name == name), "")
        if str(kind).startswith("bool") and isinstance(value, str):
            return {"true": True, "false": False}.get(value.lower(), value)
        if str(kind).startswith("int") and isinstance(value, str) and value.isdecimal():
            return int(value)
        return value

    def __post_init__(self) -> None:
        for name, allowed in (("stats", ("footer", "scan", "none")), ("register_in", ("sql", "glue"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(allowed)}")
        for option in fields(self):
            value = getattr(self, option.name)
            # A text such as "False" would count as true, and give up a check that nobody meant to.
            unset = option.type == "bool | None" and value is None
            if str(option.type).startswith("bool") and not unset and not isinstance(value, bool):
                raise ValueError(f"{option.name} is {value!r}, expected True or False")
            if option.type in ("int", "int | None") and value is not None and type(value) is not int:
                raise ValueError(f"{option.name} is {value!r}, expected a whole number")
        for name in ("stats_batch_size", "schema_batch_size", "footer_tail_bytes", "footer_threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, expected at least 1")


Status = Literal["converted", "already_delta", "registered", "refused", "failed"]


@dataclass
class ConversionResult(_Document):
    """What became of one table."""

    source_table: str
    #: Fully qualified name it is registered under, empty when it is not registered.
    target_table: str
    success: bool
    #: ``registered``: the log was there already, from an earlier run; only the registration was missing.
    status: Status
    file_count: int = 0
    byte_count: int = 0
    #: None when no statistics were collected.
    row_count: int | None = None
    location: str = ""
    delta_log_location: str = ""
    version: int | None = None
    #: What the first commit says as ``userMetadata``, where it is a conversion of this table.
    user_metadata: str | None = None
    #: Whether the first commit is a conversion of this table by this package, in whichever run.
    ours: bool = False
    #: The run that wrote the first commit, where that says so.
    run_id: str | None = None
    #: The latest version that was verified, by level; empty: none was.
    verified: dict[str, int] = field(default_factory=dict)
    #: Reader and writer features beyond the default protocol.
    features: list[str] = field(default_factory=list)
    #: What a reader of this table should know: absolute paths, widened types, columns left out.
    notes: list[str] = field(default_factory=list)
    message: str | None = None
    error: str | None = None
    #: Whether trying again may help; None when there was no error.
    retryable: bool | None = None
    duration_seconds: float = 0.0
    #: Whether no data file was found: the table is empty, or its location is wrong.
    is_empty: bool = False

    def __str__(self) -> str:
        target = self.target_table or self.location
        if not self.success:
            return f"{self.source_table}: {self.status}: {self.error}"
        # Of a table that was there already nobody counts the bytes.
        size = f", {self.byte_count} bytes" if self.byte_count or self.status == "converted" else ""
        return f"{self.source_table} -> {target}: {self.status}, {self.file_count} files{size}"


@dataclass
class VacuumResult(_Document):
    """What a vacuum of external files found, and what it deleted."""

    table_name: str
    #: Files that Delta removed long ago and that nothing refers to any more, as URIs.
    orphaned_files: list[str] = field(default_factory=list)
    deleted_files: list[str] = field(default_factory=list)
    orphaned_bytes: int = 0
    deleted_bytes: int = 0
    dry_run: bool = True
    #: Why files that Delta removed were kept: too young, live under another spelling, still in the metastore.
    notes: list[str] = field(default_factory=list)
    location: str = ""
    error: str | None = None
    #: Whether trying again may help; None when there was no error.
    retryable: bool | None = None
    duration_seconds: float = 0.0

    @property
    def success(self) -> bool:
        return self.error is None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.table_name}: failed: {self.error}"
        if self.dry_run:
            return f"{self.table_name}: {len(self.orphaned_files)} files to delete, {self.orphaned_bytes} bytes"
        return f"{self.table_name}: {len(self.deleted_files)} files deleted, {self.deleted_bytes} bytes"


#: ``converted``: by an earlier run of this package. ``failed``: it could not be looked at.
PlanStatus = Literal["convertible", "refused", "already_delta", "converted", "failed"]


@dataclass
class TablePlan(_Document):
    """What a conversion of one table would do. Nothing was written to find out."""

    source_table: str
    status: PlanStatus
    location: str = ""
    #: The version of the Delta table that is there already.
    version: int | None = None
    #: Of a table that was converted earlier: the files that it had then.
    file_count: int = 0
    byte_count: int = 0
    #: Partitions that have files; 0 for a table without partition columns.
    partition_count: int = 0
    #: Partitions with files outside the table's location.
    external_partition_count: int = 0
    #: Where the catalog and the files do not fit together; each keeps the table from being converted.
    schema_conflicts: list[str] = field(default_factory=list)
    #: Reader and writer features that the Delta table will need beyond the default protocol.
    features: list[str] = field(default_factory=list)
    #: Readers that will not be able to read the Delta table, each with the reason.
    unreadable_by: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: Why it is refused, and what to do about it.
    error: str | None = None
    #: Whether trying again may help; None when there was no error.
    retryable: bool | None = None
    duration_seconds: float = 0.0
    #: Whether no data file was found: the table is empty, or its location is wrong.
    is_empty: bool = False

    def __str__(self) -> str:
        if self.error:
            return f"{self.source_table}: {self.status}: {self.error}"
        words = [f"{self.source_table}: {self.status}"]
        if self.status == "convertible":
            words += [f"{self.file_count} files", f"{self.byte_count} bytes"]
        else:  # a Delta table, whose bytes nobody counts, and its files only if it was converted here
            words += [f"version {self.version}", *([f"{self.file_count} files"] if self.file_count else [])]
        if self.partition_count:
            outside = f" ({self.external_partition_count} outside)" if self.external_partition_count else ""
            words.append(f"{self.partition_count} partitions{outside}")
        if self.features:
            words.append(f"needs {' and '.join(self.features)}")
        if self.unreadable_by:
            kinds = len(self.unreadable_by)
            words.append(f"not readable by {kinds} kind{'' if kinds == 1 else 's'} of readers")
        return ", ".join(words)


VerifyLevel = Literal["counts", "full"]


@dataclass
class VerifyResult(_Document):
    """How a Delta table compares with its original."""

    source_table: str
    location: str
    level: VerifyLevel
    success: bool
    #: The version of the Delta table that was compared.
    version: int | None = None
    file_count: int = 0
    byte_count: int = 0
    row_count: int | None = None
    partition_count: int = 0
    #: What differs, the first of it: each with ``partition``, ``what``, ``original`` and ``delta``.
    mismatches: list[dict[str, Any]] = field(default_factory=list)
    mismatch_count: int = 0
    #: Of one that differs: what was written after the compared version, where that may be all of the difference.
    written_since: str | None = None
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    retryable: bool | None = None
    duration_seconds: float = 0.0
    #: Whether there was nothing to compare: neither side has a file with rows.
    is_empty: bool = False

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.source_table}: failed: {self.error}"
        if self.success and self.is_empty:
            return f"{self.source_table}: nothing to compare at version {self.version}: neither side has a row"
        found = "equal to the original" if self.success else f"{self.mismatch_count} differences from the original"
        rows = "" if self.row_count is None else f", {self.row_count} rows"
        files = f"{self.file_count} files, {self.byte_count} bytes{rows}"
        return f"{self.source_table}: {found} by {self.level} at version {self.version}, {files}"


OutputMode = Literal["append", "complete"]
#: ``unchanged``: Hive has nothing new. ``already_synced``: this run, or a later one, was committed before.
SyncStatus = Literal["synced", "unchanged", "already_synced", "failed"]


@dataclass
class SyncResult(_Document):
    """What a sync brought from a Hive table into its Delta table."""

    source_table: str
    location: str
    success: bool
    status: SyncStatus
    #: The version that the sync committed, or found when there was nothing to do.
    version: int | None = None
    #: The version of this run in the log's ``txn``.
    run_version: int | None = None
    num_added_files: int = 0
    num_removed_files: int = 0
    added_bytes: int = 0
    removed_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    retryable: bool | None = None
    duration_seconds: float = 0.0
    #: The run that was committed: this one, or the later one for which this one was passed over.
    committed_run_version: int | None = None
    #: Partitions in which Hive may have been writing (``quiet_period``), left for the next sync; and the first of them.
    waiting_partition_count: int = 0
    waiting_partitions: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.success:
            return f"{self.source_table}: {self.status}: {self.error}"
        moved = ""
        if self.status == "synced":
            added = f"{self.num_added_files} files added ({self.added_bytes} bytes)"
            moved = f", {added}, {self.num_removed_files} removed ({self.removed_bytes} bytes)"
        waits = f", {self.waiting_partition_count} partitions wait" if self.waiting_partition_count else ""
        return f"{self.source_table}: {self.status}, version {self.version}{moved}{waits}"


@dataclass
class RollbackResult(_Document):
    """What a rollback to the Hive table undid."""

    source_table: str
    location: str
    success: bool
    #: ``not_delta``: there was no log to roll back, or an earlier call has done it.
    status: Literal["rolled_back", "not_delta", "failed"]
    #: Where the log lies now.
    log_moved_to: str = ""
    #: Names that were dropped from catalogs.
    dropped: list[str] = field(default_factory=list)
    #: Names whose old definition is in the catalog again.
    restored: list[str] = field(default_factory=list)
    #: Versions of other writers that are lost with the log, as the caller accepted.
    lost_versions: list[int] = field(default_factory=list)
    #: Files that Delta wrote where Hive would have read them, and where they were moved to.
    files_moved_aside: int = 0
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    retryable: bool | None = None
    duration_seconds: float = 0.0

    def __str__(self) -> str:
        if not self.success:
            return f"{self.source_table}: {self.status}: {self.error}"
        words = [f"{self.source_table}: {self.status}"]
        words += [f"the log is at {self.log_moved_to}"] if self.log_moved_to else []
        words += [f"dropped {' and '.join(self.dropped)}"] if self.dropped else []
        words += [f"restored {' and '.join(self.restored)}"] if self.restored else []
        words += [f"lost the versions {', '.join(map(str, self.lost_versions))}"] if self.lost_versions else []
        return ", ".join(words)


@dataclass
class CutOverResult(_Document):
    """The replacement of a Hive definition by the Delta one, under the same name."""

    source_table: str
    location: str
    success: bool
    status: Literal["cut_over", "already_cut_over", "failed"]
    #: The version of the Delta table whose columns the catalog has now.
    version: int | None = None
    #: Where the old definition is kept.
    kept_definition: str = ""
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    retryable: bool | None = None
    duration_seconds: float = 0.0

    def __str__(self) -> str:
        if not self.success:
            return f"{self.source_table}: {self.status}: {self.error}"
        kept = f", the old definition is at {self.kept_definition}" if self.kept_definition else ""
        return f"{self.source_table}: {self.status}, version {self.version}{kept}"
