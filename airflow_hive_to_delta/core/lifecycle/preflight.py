"""What can be known of a table before anything is written: its partition types, its files, and the schema they give.

The conversion and the plan both stand on this, so that what a plan calls convertible is converted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.delta import actions as log_actions
from airflow_hive_to_delta.core.delta import log as delta_log
from airflow_hive_to_delta.core.errors import (
    MissingError,
    PermanentError,
    SchemaError,
    UnsupportedTableError,
)
from airflow_hive_to_delta.core.parquet.describe import DescribedFiles, describe_files
from airflow_hive_to_delta.core.readers import outside_note
from airflow_hive_to_delta.core.schema.merge import Evidence, TableSchema, build_table_schema
from airflow_hive_to_delta.core.schema.partition_values import check_zone, is_partition_type
from airflow_hive_to_delta.core.schema.types import build_delta_schema_from_glue, parse_hive_type, struct_of
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location, check_allowed, parse_location, redacted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_hive_to_delta.core.models import TableInfo
    from airflow_hive_to_delta.core.options import ConversionOptions
    from airflow_hive_to_delta.core.storage.log_storage import Storage


@dataclass(frozen=True)
class Examined:
    """The files of a table and the Delta table that they would be."""

    files: DescribedFiles
    schema: TableSchema
    #: The table's properties.
    configuration: dict[str, str]
    protocol: dict[str, Any]
    metadata: dict[str, Any]
    #: What a reader of the table should know.
    notes: list[str]


def checked_root(table: TableInfo, options: ConversionOptions) -> Location:
    """Where the table lies. Raises when it is no table to be converted, or lies where none may."""
    if reason := table.why_refused(options):
        raise UnsupportedTableError(reason)
    root = parse_location(table.location, f"the location of {table.qualified_name}")
    check_allowed(root, options.allowed_roots)
    return root


def checked_log(table: TableInfo, root: Location, storage: Storage) -> delta_log.LogState:
    """The state of the table's log. Raises when its catalog has it as a Delta table, and there is no log."""
    state = delta_log.log_state(storage, root)
    if table.format == "delta" and not state.exists:
        raise PermanentError(
            f"{table.qualified_name} is a Delta table in its catalog, but {root} holds no Delta log. "
            "Correct its location, or restore the log"
        )
    return state


def partition_types_of(table: TableInfo, options: ConversionOptions) -> dict[str, str]:
    """The Delta type of each partition column, in order."""
    check_zone(options.partition_timezone)
    types = {}
    for key in table.partition_keys:
        delta_type = parse_hive_type(table.partition_types.get(key, "string"), key)
        if not is_partition_type(delta_type):
            raise SchemaError(
                f"The partition column {key} of {table.qualified_name} is of the type {table.partition_types[key]}, "
                "expected a primitive one"
            )
        types[key] = str(delta_type)
    return types


@contextmanager
def examined(
    spark: SparkSession,
    table: TableInfo,
    files: DataFrame,
    root: Location,
    partition_types: dict[str, str],
    options: ConversionOptions,
) -> Iterator[Examined]:
    """Describe the files and resolve the schema. The files are kept in Spark while the block runs.

    :param files: a DataFrame in FILES_SCHEMA.
    """
    declared = declared_schema(table)
    with describe_files(spark, files, root, partition_types, options) as described:
        yield examine(table, declared, described, partition_types, options)


def examine(
    table: TableInfo,
    declared: Mapping[str, Any] | None,
    described: DescribedFiles,
    partition_types: dict[str, str],
    options: ConversionOptions,
) -> Examined:
    """The Delta table that the described files would be.

    :param declared: the table's :func:`declared_schema`.
    :raises SchemaError: the catalog and the files do not fit together; :func:`schema_conflicts` tells all of it.
    """
    if options.refuse_empty and not described.file_count:
        raise MissingError(
            f"{table.qualified_name} has no data file at {redacted(table.location)}, and refuse_empty is set. Correct "
            "its location, or pass ConversionOptions(refuse_empty=False) if it is an empty table"
        )
    schema = resolved(described.evidence, declared, partition_types, options)
    configuration = _configuration(schema, options)
    return Examined(
        files=described,
        schema=schema,
        configuration=configuration,
        protocol=log_actions.protocol_action(schema.features),
        metadata=log_actions.metadata_action(
            schema.schema, list(partition_types), configuration=configuration, description=table.comment
        ),
        notes=[*table_notes(table), *schema.notes, *_notes(table, described, partition_types, options)],
    )


def table_notes(table: TableInfo) -> list[str]:
    """What the owner of a table should know before it becomes a Delta table, whatever its files are."""
    if not table.is_managed:
        return []
    how = (
        "in Glue set its TableType to EXTERNAL_TABLE and its parameter EXTERNAL to TRUE"
        if table.source == "glue"
        else f"in Hive run ALTER TABLE `{table.database}`.`{table.name}` SET TBLPROPERTIES ('EXTERNAL'='TRUE')"
    )
    return [
        f"{table.qualified_name} is a managed table: Hive and Spark delete its files, which are the Delta table's too, "
        f"when somebody drops it. Make it external first: {how}"
    ]


def schema_conflicts(
    declared: Mapping[str, Any] | None,
    evidence: Evidence | None,
    partition_types: Mapping[str, str],
    options: ConversionOptions,
) -> list[str]:
    """The first conflict of every column, where :func:`examine` raises for one. Empty when each fits by itself."""
    conflicts = []
    partition_keys = {name.lower() for name in partition_types}
    catalog = None if declared is None else {column["name"].lower(): column for column in declared["fields"]}
    for key, seen in sorted(evidence.fields.items() if evidence else ()):
        if key in partition_keys or (catalog is not None and key not in catalog):
            continue
        column = None if catalog is None else struct_of([catalog[key]])
        try:
            resolved(Evidence(fields={key: seen}), column, {}, options)
        except SchemaError as error:
            conflicts.append(str(error))
    return conflicts


def declared_schema(table: TableInfo) -> dict[str, Any] | None:
    """The catalog's columns, partition columns among them, which have comments and lengths too."""
    if table.columns is None:
        return None
    partitions = [
        {
            "Name": key,
            "Type": table.partition_types.get(key, "string"),
            "Comment": table.partition_comments.get(key, ""),
        }
        for key in table.partition_keys
    ]
    return build_delta_schema_from_glue([*table.columns, *partitions])


def resolved(
    evidence: Evidence | None,
    declared: Mapping[str, Any] | None,
    partition_types: Mapping[str, str],
    options: ConversionOptions,
) -> TableSchema:
    """The one schema for the catalog and all files, by what the options allow: see :func:`resolve`."""
    return build_table_schema(
        evidence,
        declared,
        partition_types,
        type_widening=options.type_widening,
        allow_name_case_conflict=options.allow_name_case_conflict,
        binary_as_string=options.binary_as_string,
        ntz_as_timestamp=options.ntz_as_timestamp,
    )


def _configuration(schema: TableSchema, options: ConversionOptions) -> dict[str, str]:
    """The table's properties: what its schema needs, and what the caller asks for beside that."""
    for name, needed in schema.configuration.items():
        if options.properties.get(name, needed) != needed:
            raise PermanentError(
                f"The table property {name} is {options.properties[name]!r}, but the table's columns need {needed!r}. "
                "Leave it out of ConversionOptions(properties=…)"
            )
    return {**options.properties, **schema.configuration}


def _notes(
    table: TableInfo, described: DescribedFiles, partition_types: Mapping[str, str], options: ConversionOptions
) -> list[str]:
    notes = []
    if not described.file_count:
        # Object stores cannot tell an empty folder from one that is gone (rule 44). Of a partitioned table only its
        # partitions were looked at: files may well be at its location.
        notes.append(
            f"No partition of {table.qualified_name} has a data file: it is an empty table, or the catalog lacks its "
            "partitions. Files at its location that are in no partition do not count; if there are any, add their "
            "partitions, as MSCK REPAIR TABLE does, and sync the table"
            if table.partition_keys
            else f"Nothing is at the location of {table.qualified_name}: it is an empty table, or the location is wrong"
        )
    if described.absolute_count:
        on_s3 = parse_location(table.location).scheme in S3_SCHEMES
        notes.append(outside_note(described.absolute_count, described.file_count, on_s3=on_s3))
    zoned = [column for column, delta_type in partition_types.items() if delta_type == "timestamp"]
    if zoned:
        notes.append(f"Partition values of {', '.join(zoned)} without a zone were read in {options.partition_timezone}")
    return notes
