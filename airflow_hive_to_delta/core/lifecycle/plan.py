"""What a migration would do, table by table, found out by reading alone: :func:`plan_migration`.

A table goes through every check of the conversion (:mod:`preflight`) up to where that begins to write. Footers are
read, for the columns are in them; statistics are not collected.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.errors import PermanentError, SchemaError, describe_error, is_refusal
from airflow_hive_to_delta.core.lifecycle.context import TableContext
from airflow_hive_to_delta.core.lifecycle.preflight import (
    declare_schema,
    find_schema_conflicts,
    note_managed_table,
    parse_partition_types,
    prepare_table,
    read_log_state,
)
from airflow_hive_to_delta.core.listing.base import Listing
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.parquet.describe import DescribedFiles, describe_files
from airflow_hive_to_delta.core.readers import TableTraits, unreadable_by
from airflow_hive_to_delta.core.results import PlanStatus, TablePlan
from airflow_hive_to_delta.core.runner import run_tables
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location, parse_location, redacted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_hive_to_delta.core.catalogs.discovery import Discovery
    from airflow_hive_to_delta.core.delta.log.commits import LogState
    from airflow_hive_to_delta.core.schema.merge import TableSchema


def plan_migration(
    spark: SparkSession,
    discovery: Discovery,
    listing: Listing,
    *,
    max_workers: int = 4,
    options: ConversionOptions | None = None,
    progress: bool = True,
) -> list[TablePlan]:
    """Say what :func:`convert` would do with every table that ``discovery`` finds, in its order. Writes nothing.

    A table that would be refused has the reason in its plan, one that could not be looked at, because it was denied or
    the storage did not answer, is ``failed``; neither touches another. Whether a target is free is not looked at.

    :param options: those of the conversion that is planned.
    :param progress: a line per table on standard error, and a progress bar in a terminal.
    """
    return plan_conversions(
        spark, discovery.discover(spark), listing, max_workers=max_workers, options=options, progress=progress
    )


def plan_conversions(
    spark: SparkSession,
    tables: Sequence[TableInfo],
    listing: Listing,
    *,
    max_workers: int = 4,
    options: ConversionOptions | None = None,
    progress: bool = True,
) -> list[TablePlan]:
    """Plan the conversion of tables that are known already: see :func:`plan_migration`."""
    options = options or ConversionOptions()
    with_statistics = options.stats != "none"
    if options.stats == "footer":
        options = replace(options, stats="none")

    def plan(table: TableInfo) -> TablePlan:
        started = time.monotonic()
        context = TableContext.open(spark, table, options)
        found = _plan_one(context, listing, with_statistics=with_statistics)
        return replace(found, duration_seconds=round(time.monotonic() - started, 3))

    plans = run_tables(plan, tables, _make_failed_plan, max_workers=max_workers, progress=progress)
    return _note_shared_locations(plans)


def _plan_one(context: TableContext, listing: Listing, *, with_statistics: bool) -> TablePlan:
    """Plan one table.

    :param with_statistics: whether the conversion collects statistics; the plan does not.
    """
    table, root, options = context.table, context.root, context.options
    partition_types = parse_partition_types(context)
    state = read_log_state(context)
    plan = TablePlan(table.qualified_name, "convertible", str(root))
    if state.exists:
        return _plan_existing(plan, state, note_managed_table(table))
    declared = declare_schema(table)
    files = context.list_files(listing)
    with describe_files(context.spark, files, root, partition_types, options) as described:
        plan, escaped = _count_files(plan, described, partitioned=bool(partition_types))
        try:
            found = prepare_table(context, declared, described, partition_types)
        except SchemaError as error:
            conflicts = find_schema_conflicts(declared, described.evidence, partition_types, options)
            return _refuse(plan, error, conflicts or [str(error)])
        except PermanentError as error:
            return _refuse(plan, error, [])
        schema = found.schema
        if not options.type_widening:
            widening = replace(context, options=replace(options, type_widening=True, properties={}))
            schema = prepare_table(widening, declared, described, partition_types).schema
    notes = list(found.notes)
    if table.bucket_columns:
        notes.append(f"The bucketing by {', '.join(table.bucket_columns)} is lost")
    return replace(
        plan,
        features=found.schema.features,
        unreadable_by=unreadable_by(
            TableTraits(
                on_s3=root.scheme in S3_SCHEMES,
                outside=described.absolute_count > 0,
                escaped=escaped,
                features=found.schema.features,
                narrower_files="typeWidening" in schema.features,
                without_bounds=_booleans(found.schema, partition_types) if with_statistics else (),
                decimal_partitions=[name for name, kind in partition_types.items() if kind.startswith("decimal")],
            )
        ),
        notes=notes,
    )


def _count_files(plan: TablePlan, described: DescribedFiles, *, partitioned: bool) -> tuple[TablePlan, bool]:
    """Count the files, and the partitions that have some; and find out whether paths under the root are escaped.

    Raises for a file that is listed twice (rule 4).
    """
    from pyspark.sql import functions as F  # noqa: N812

    outside = F.when(F.col("add_path").contains("://"), F.col("partition_values"))
    counts = described.frame.agg(
        F.count_distinct("add_path").alias("paths"),
        F.count_distinct("partition_values").alias("partitions"),
        F.count_distinct(outside).alias("external"),
        F.count_if(~F.col("add_path").contains("://") & F.col("add_path").contains("%")).alias("escaped"),
    )
    with spark_call(f"Counting the partitions of {plan.source_table}"):
        (found,) = counts.collect()
        if found.paths != described.file_count:
            described.refuse_duplicates()
    counted = replace(
        plan,
        file_count=described.file_count,
        byte_count=described.byte_count,
        is_empty=not described.file_count,
        partition_count=found.partitions if partitioned else 0,
        external_partition_count=found.external if partitioned else 0,
    )
    return counted, found.escaped > 0


def _booleans(schema: TableSchema, partition_types: Mapping[str, str]) -> list[str]:
    """The columns that no file has bounds of in the log (rule 32)."""
    columns = schema.schema["fields"]
    return [c["name"] for c in columns if c["type"] == "boolean" and c["name"] not in partition_types]


def _plan_existing(plan: TablePlan, state: LogState, notes: list[str]) -> TablePlan:
    """Plan a table that has a log: nothing is to be done, but for a registration that may be missing."""
    if state.ours and state.catalog_table not in (None, plan.source_table):
        notes = [*notes, f"The log was made as {state.catalog_table}, at the same location"]
    status: PlanStatus = "converted" if state.ours else "already_delta"
    return replace(plan, status=status, version=state.version, file_count=state.file_count or 0, notes=notes)


def _refuse(plan: TablePlan, error: Exception, conflicts: list[str]) -> TablePlan:
    return replace(plan, status="refused", schema_conflicts=conflicts, **describe_error(error).to_fields())


def _make_failed_plan(table: TableInfo, error: Exception) -> TablePlan:
    plan = TablePlan(table.qualified_name, "failed", redacted(table.location))
    if is_refusal(error):
        return _refuse(plan, error, [str(error)] if isinstance(error, SchemaError) else [])
    return plan


def _note_shared_locations(plans: Sequence[TablePlan]) -> list[TablePlan]:
    """The plans, with a note on each convertible table that lies at the location of another one."""
    at: dict[Location, list[str]] = {}
    for plan in plans:
        if plan.status == "convertible":
            at.setdefault(parse_location(plan.location).canonical, []).append(plan.source_table)
    shared = {name: [other for other in names if other != name] for names in at.values() for name in names}
    return [
        replace(plan, notes=[*plan.notes, _shared_note(others)]) if (others := shared.get(plan.source_table)) else plan
        for plan in plans
    ]


def _shared_note(others: Sequence[str]) -> str:
    return f"Lies at the same location as {', '.join(others)}: the first of them to be converted has the log"
