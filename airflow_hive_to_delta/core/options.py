"""How tables are converted and synced: what a caller can choose, with the safe side as the default."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Literal, Self, get_args

from airflow_hive_to_delta.core.models import Document

OutputMode = Literal["append", "complete"]


class Options(Document):
    """What a caller can choose, checked: numbers and truth values are what they claim to be."""

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Make options of a dict, in which numbers and truth values may be text, as templates render them."""
        return super().from_dict({name: cls._value(name, value) for name, value in document.items()})

    @classmethod
    def _value(cls, name: str, value: Any) -> Any:
        kind = next((f.type for f in fields(cls) if f.name == name), "")  # type: ignore[arg-type]
        if str(kind).startswith("bool") and isinstance(value, str):
            return {"true": True, "false": False}.get(value.lower(), value)
        if str(kind).startswith("int") and isinstance(value, str) and value.isdecimal():
            return int(value)
        return value

    def _check_types(self) -> None:
        for option in fields(self):  # type: ignore[arg-type]
            value = getattr(self, option.name)
            # A text such as "False" would count as true, and give up a check that nobody meant to.
            unset = option.type == "bool | None" and value is None
            if str(option.type).startswith("bool") and not unset and not isinstance(value, bool):
                raise ValueError(f"{option.name} is {value!r}, expected True or False")
            if option.type in ("int", "int | None") and value is not None and type(value) is not int:
                raise ValueError(f"{option.name} is {value!r}, expected a whole number")


@dataclass
class ConversionOptions(Options):
    """How to convert. The defaults are the safe side; each ``allow_…`` gives one thing up knowingly."""

    #: Where statistics come from: the Parquet footers, one Spark scan of the data, or nowhere. Where Python workers
    #: cannot reach the storage, Spark itself reads what would have come from footers; the result's notes say so.
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
    #: Locations that tables and partitions may lie under; empty: anywhere (rule 52).
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

    def __post_init__(self) -> None:
        _check_choice("stats", self.stats, ("footer", "scan", "none"))
        _check_choice("register_in", self.register_in, ("sql", "glue"))
        self._check_types()
        for name in ("stats_batch_size", "schema_batch_size", "footer_tail_bytes", "footer_threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, expected at least 1")


@dataclass
class SyncOptions(Options):
    """What a sync brings from a Hive table into its Delta table. Each ``accept_…`` and ``allow_…`` gives a check up."""

    #: ``append`` adds new files and leaves those that Hive has dropped; it refuses partitions that Hive has written
    #: anew, whose rows would be there twice. ``complete`` mirrors what Hive has replaced and dropped.
    output_mode: OutputMode = "append"
    #: Take over columns that Hive has got, and types that it has made wider.
    merge_schema: bool = False
    #: Take over Hive's columns whatever they were before, by adding every file anew. Only with ``complete``.
    overwrite_schema: bool = False
    #: Add files that Hive has written anew after Delta had deleted or rewritten rows of them. What Delta kept of their
    #: old rows stays.
    accept_conflicts: bool = False
    #: Go on though entries of the log are gone that no sync has seen.
    allow_forgotten_entries: bool = False
    #: Leave a partition as it is, for the next sync, while one of its files in Hive is younger than this: a job may be
    #: in the midst of writing it. A table without partition columns is one partition. Times of files are the
    #: storage's, and the age is by this machine's clock at the moment of the listing, or by the time of the list where
    #: it was made before. Without one, what a job has written so far is taken over.
    quiet_period: timedelta | None = None

    def to_dict(self) -> dict[str, Any]:
        """The options as JSON has them; the quiet period in seconds."""
        seconds = None if self.quiet_period is None else self.quiet_period.total_seconds()
        return {**super().to_dict(), "quiet_period": seconds}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """The options that :meth:`to_dict` made a dict of."""
        seconds = document.get("quiet_period")
        period = None if seconds is None else timedelta(seconds=seconds)
        return super().from_dict({**document, "quiet_period": period})

    def __post_init__(self) -> None:
        if not isinstance(self.quiet_period, timedelta | None):
            raise TypeError(f"quiet_period is {self.quiet_period!r}, expected a timedelta or None")
        if self.quiet_period is not None and self.quiet_period < timedelta(0):
            raise ValueError(f"quiet_period is {self.quiet_period}, expected a time of at least 0")
        _check_choice("output_mode", self.output_mode, get_args(OutputMode))
        self._check_types()
        if self.overwrite_schema and self.output_mode != "complete":
            raise ValueError("overwrite_schema=True goes with output_mode='complete' only: it adds every file anew")


def check_count(name: str, given: Any, *, least: int, optional: bool = False) -> None:
    """Refuse what is no whole number of at least ``least``.

    :param optional: accept None, too.
    :raises ValueError: it is none.
    """
    if given is None and optional:
        return
    if type(given) is not int or given < least:
        raise ValueError(f"{name} is {given!r}, expected a whole number, at least {least}")


def check_duration(name: str, given: Any, *, least: timedelta = timedelta(0), optional: bool = False) -> None:
    """Refuse what is no duration of at least ``least``.

    :param optional: accept None, too.
    :raises ValueError: it is none.
    """
    if given is None and optional:
        return
    if not isinstance(given, timedelta) or given < least:
        found = f"{given}" if isinstance(given, timedelta) else f"{given!r}"
        raise ValueError(f"{name} is {found}, expected a timedelta of at least {least}")


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(allowed)}")
