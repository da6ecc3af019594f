"""How tables are converted: what a caller can choose, with the safe side as the default."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from airflow_hive_to_delta.core.models import Document


@dataclass
class ConversionOptions(Document):
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
