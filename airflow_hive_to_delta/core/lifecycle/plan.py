"""What a migration would do, table by table, found out by reading alone: :func:`plan_migration`.

A table goes through every check of the conversion (:mod:`examine`) up to where that begins to write. Footers are read,
for the columns are in them; statistics are not collected.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.errors import HiveToDeltaError, PermanentError, SchemaError, describe_error, is_refusal
from airflow_hive_to_delta.core.lifecycle.preflight import (
    checked_log,
    checked_root,
    declared_schema,
    examine,
    partition_types_of,
    schema_conflicts,
    table_notes,
)
from airflow_hive_to_delta.core.listing.base import Listing, files_as_df
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.parquet.describe import DescribedFiles, describe_files
from airflow_hive_to_delta.core.readers import TableTraits, unreadable_by
from airflow_hive_to_delta.core.results import PlanStatus, TablePlan
from airflow_hive_to_delta.core.runner import Progress, run_parallel
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location, parse_location, redacted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_hive_to_delta.core.catalogs.discovery import Discovery
    from airflow_hive_to_delta.core.delta.log import LogState
    from airflow_hive_to_delta.core.schema.merge import TableSchema

logger = logging.getLogger(__name__)


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
    options = options or ConversionOptions()
    with_statistics = options.stats != "none"
    if options.stats == "footer":
        options = replace(options, stats="none")
    tables = discovery.discover(spark)

    def plan_discovered(table: TableInfo) -> TablePlan:
        started = time.monotonic()
        try:
            plan = _plan_one(spark, table, listing, options, with_statistics=with_statistics)
        except Exception as error:
            plan = _not_convertible(table, error)
        return replace(plan, duration_seconds=round(time.monotonic() - started, 3))

    with Progress(len(tables), shown=progress) as shown:
        outcomes = run_parallel(plan_discovered, tables, max_workers, on_done=lambda _, plan: shown.done(plan))
    # Only what is no Exception, such as an interrupt, gets past plan_discovered.
    return _with_shared_places([outcome for outcome in outcomes if isinstance(outcome, TablePlan)])


def _plan_one(
    spark: SparkSession, table: TableInfo, listing: Listing, options: ConversionOptions, *, with_statistics: bool
) -> TablePlan:
    """The plan of one table. Statistics are not collected for it; ``with_statistics``: the conversion will."""
    root = checked_root(table, options)
    partition_types = partition_types_of(table, options)
    state = checked_log(table, root, storage_for(root, spark, options))
    plan = TablePlan(table.qualified_name, "convertible", str(root))
    if state.exists:
        return _of_existing(plan, state, table_notes(table))
    declared = declared_schema(table)
    files = files_as_df(spark, listing, table, options)
    with describe_files(spark, files, root, partition_types, options) as described:
        plan, escaped = _counted(plan, described, partitioned=bool(partition_types))
        try:
            found = examine(table, declared, described, partition_types, options)
        except SchemaError as error:
            conflicts = schema_conflicts(declared, described.evidence, partition_types, options)
            return _refused(plan, error, conflicts or [str(error)])
        except PermanentError as error:
            return _refused(plan, error, [])
        schema = found.schema
        if not options.type_widening:
            widening = replace(options, type_widening=True, properties={})
            schema = examine(table, declared, described, partition_types, widening).schema
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


def _counted(plan: TablePlan, described: DescribedFiles, *, partitioned: bool) -> tuple[TablePlan, bool]:
    """The plan with the files and the partitions that have some, and whether paths under the root are escaped.

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


def _of_existing(plan: TablePlan, state: LogState, notes: list[str]) -> TablePlan:
    """The plan for a table that has a log: nothing is to be done, but for a registration that may be missing."""
    if state.ours and state.catalog_table not in (None, plan.source_table):
        notes = [*notes, f"The log was made as {state.catalog_table}, at the same location"]
    status: PlanStatus = "converted" if state.ours else "already_delta"
    return replace(plan, status=status, version=state.version, file_count=state.file_count or 0, notes=notes)


def _refused(plan: TablePlan, error: Exception, conflicts: list[str]) -> TablePlan:
    return replace(plan, status="refused", schema_conflicts=conflicts, **describe_error(error).to_fields())


def _not_convertible(table: TableInfo, error: Exception) -> TablePlan:
    plan = TablePlan(table.qualified_name, "failed", redacted(table.location))
    if is_refusal(error):
        return _refused(plan, error, [str(error)] if isinstance(error, SchemaError) else [])
    if not isinstance(error, HiveToDeltaError):
        logger.exception("%s: the plan failed", table.qualified_name, exc_info=error)
    return replace(plan, **describe_error(error).to_fields())


def _with_shared_places(plans: Sequence[TablePlan]) -> list[TablePlan]:
    """Tell convertible tables that lie at one place of each other: the first to be converted has the log."""
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
