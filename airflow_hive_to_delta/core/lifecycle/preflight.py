"""What can be known of a table before anything is written: its partition types, its files, and the schema they give.

The conversion and the plan both stand on this, so that what a plan calls convertible is converted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.delta import actions as log_actions
from airflow_hive_to_delta.core.delta.log import commits as delta_log
from airflow_hive_to_delta.core.errors import MissingError, PermanentError, SchemaError
from airflow_hive_to_delta.core.parquet.describe import DescribedFiles, describe_files
from airflow_hive_to_delta.core.parquet.statistics import TableLeaf, indexed_leaves
from airflow_hive_to_delta.core.readers import outside_note
from airflow_hive_to_delta.core.schema.evidence import Evidence
from airflow_hive_to_delta.core.schema.merge import TableSchema, build_table_schema
from airflow_hive_to_delta.core.schema.partition_values import check_zone, is_partition_type
from airflow_hive_to_delta.core.schema.translation import (
    build_delta_schema_from_glue,
    parse_hive_type,
)
from airflow_hive_to_delta.core.schema.types import (
    struct_of,
)
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, parse_location, redacted

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.files import ListedFiles
    from airflow_hive_to_delta.core.lifecycle.context import TableContext
    from airflow_hive_to_delta.core.models import TableInfo
    from airflow_hive_to_delta.core.options import ConversionOptions


@dataclass(frozen=True)
class PreparedTable:
    """The files of a table and the Delta table that they would be."""

    files: DescribedFiles
    schema: TableSchema
    #: The table's properties.
    configuration: dict[str, str]
    protocol: dict[str, Any]
    metadata: dict[str, Any]
    #: What a reader of the table should know.
    notes: list[str]


def read_log_state(context: TableContext) -> delta_log.LogState:
    """Read the state of the table's log. Where Delta has removed its first entry, the record of the conversion counts.

    :raises PermanentError: its catalog has it as a Delta table, and there is no log.
    """
    state = delta_log.log_state(context.storage, context.root)
    if context.table.format == "delta" and not state.exists:
        raise PermanentError(
            f"{context.name} is a Delta table in its catalog, but {context.root} holds no Delta log. "
            "Correct its location, or restore the log"
        )
    if not state.exists or state.has_first_entry or (kept := context.records.source()) is None:
        return state
    return replace(state, ours=True, catalog_table=kept.qualified_name if kept.source != "none" else None)


def parse_partition_types(context: TableContext) -> dict[str, str]:
    """The Delta type of each partition column, in order.

    :raises SchemaError: a column is of a type that no partition column can have.
    """
    check_zone(context.options.partition_timezone)
    types = {}
    table = context.table
    for key in table.partition_keys:
        delta_type = parse_hive_type(table.partition_types.get(key, "string"), key)
        if not is_partition_type(delta_type):
            raise SchemaError(
                f"The partition column {key} of {context.name} is of the type {table.partition_types[key]}, "
                "expected a primitive one"
            )
        types[key] = str(delta_type)
    return types


@contextmanager
def preflight(
    context: TableContext, files: ListedFiles, partition_types: dict[str, str], *, write_adds: bool = False
) -> Iterator[PreparedTable]:
    """Describe the files and resolve the schema. The files are kept in Spark while the block runs.

    :param write_adds: write the add actions while the files are described, where that can be done in one pass.
    :raises HiveToDeltaError: a file cannot be part of the table, or :func:`prepare_table` raises.
    """
    declared = declare_schema(context.table)

    def resolve_leaves(described: DescribedFiles) -> list[TableLeaf]:
        found = prepare_table(context, declared, described, partition_types)
        return indexed_leaves(found.schema.schema, list(partition_types), found.configuration)

    with describe_files(
        context.spark,
        files,
        context.root,
        partition_types,
        context.options,
        resolve_leaves if write_adds else None,
    ) as described:
        yield prepare_table(context, declared, described, partition_types)


def prepare_table(
    context: TableContext,
    declared: Mapping[str, Any] | None,
    described: DescribedFiles,
    partition_types: dict[str, str],
) -> PreparedTable:
    """Make the Delta table of the described files, without writing anything.

    :param declared: the columns by the catalog, of :func:`declare_schema`.
    :raises SchemaError: the catalog and the files do not fit together; :func:`find_schema_conflicts` finds all of it.
    """
    table, options = context.table, context.options
    if options.refuse_empty and not described.file_count:
        raise MissingError(
            f"{table.qualified_name} has no data file at {redacted(table.location)}, and refuse_empty is set. Correct "
            "its location, or pass ConversionOptions(refuse_empty=False) if it is an empty table"
        )
    schema = resolve_schema(described.evidence, declared, partition_types, options)
    configuration = _configuration(schema, options)
    return PreparedTable(
        files=described,
        schema=schema,
        configuration=configuration,
        protocol=log_actions.protocol_action(schema.features),
        metadata=log_actions.metadata_action(
            schema.schema, list(partition_types), configuration=configuration, description=table.comment
        ),
        notes=[*note_managed_table(table), *schema.notes, *_notes(table, described, partition_types, options)],
    )


def note_managed_table(table: TableInfo) -> list[str]:
    """A note for the owner of a managed table, whose files are deleted with it; none for an external one."""
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


def find_schema_conflicts(
    declared: Mapping[str, Any] | None,
    evidence: Evidence | None,
    partition_types: Mapping[str, str],
    options: ConversionOptions,
) -> list[str]:
    """The first conflict of every column, where :func:`prepare_table` raises for one of them.

    Empty when each column fits by itself.
    """
    conflicts = []
    partition_keys = {name.lower() for name in partition_types}
    catalog = None if declared is None else {column["name"].lower(): column for column in declared["fields"]}
    for key, seen in sorted(evidence.fields.items() if evidence else ()):
        if key in partition_keys or (catalog is not None and key not in catalog):
            continue
        column = None if catalog is None else struct_of([catalog[key]])
        try:
            resolve_schema(Evidence(fields={key: seen}), column, {}, options)
        except SchemaError as error:
            conflicts.append(str(error))
    return conflicts


def declare_schema(table: TableInfo) -> dict[str, Any] | None:
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


def resolve_schema(
    evidence: Evidence | None,
    declared: Mapping[str, Any] | None,
    partition_types: Mapping[str, str],
    options: ConversionOptions,
) -> TableSchema:
    """Resolve the one schema for the catalog and all files, by what the options allow (:func:`build_table_schema`)."""
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
    notes = list(described.notes)
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
