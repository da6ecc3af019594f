"""What a job does: the actions of a :class:`JobRequest`, each a function of the session and the request's arguments.

- ``discover``: ``allow`` and ``deny``, patterns on ``catalog.schema.table``. The result has ``tables``.
- ``list``: ``tables``; ``listing``, as :func:`listing_of` takes it; ``manifests``, where each table's manifest goes,
  or null; ``inline_limit``; ``options``. The result has ``lists``: a file list for each table, or its error.
- ``plan``: ``tables``; ``listing``, or ``lists`` in which an error may stand for a list; ``max_workers``; ``options``.
  The result has ``results``, a plan for each table.
- ``convert``: ``tables``; ``lists``, a file list for each; ``target_catalog``; ``target_schemas``, one for each table;
  ``max_workers``; ``options``. The result has ``results``, as those of all that follow.
- ``verify``: ``tables``; ``lists``; ``level``; ``versions``, one or null for each table; ``max_workers``; ``options``.
- ``sync``: ``tables``; ``lists``; ``output_mode``; ``merge_schema``; ``overwrite_schema``; ``run_version``;
  ``accept_conflicts``; ``allow_forgotten_entries``; ``quiet_period``, in seconds, or null; ``max_workers``;
  ``options``.
- ``vacuum``: ``tables``; ``retention_hours``; ``dry_run``; ``allow_short_retention``; ``dropped``; ``options``.
- ``rollback``: ``tables``; ``lose_versions``; ``options``.
- ``cut_over``: ``tables``; ``options``.

Results are in the order of the tables. A table that fails has a result that says why, and touches no other.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_hive_to_delta.core.converter import convert
from airflow_hive_to_delta.core.cutover import cut_over_table
from airflow_hive_to_delta.core.discovery import UCDiscovery
from airflow_hive_to_delta.core.errors import (
    KINDS,
    HiveToDeltaError,
    PermanentError,
    TransientError,
    VerificationError,
    spark_call,
)
from airflow_hive_to_delta.core.list_age import ListedAt, listed_before, now
from airflow_hive_to_delta.core.listing import (
    DatabricksListing,
    DataFrameListing,
    InventoryListing,
    MadeListing,
    S3Listing,
    log_version,
)
from airflow_hive_to_delta.core.models import (
    ConversionOptions,
    ConversionResult,
    CutOverResult,
    OutputMode,
    RollbackResult,
    SyncResult,
    TableInfo,
    VacuumResult,
    VerifyLevel,
    VerifyResult,
)
from airflow_hive_to_delta.core.parallel import run_parallel
from airflow_hive_to_delta.core.paths import redacted
from airflow_hive_to_delta.core.plan import plan_migration
from airflow_hive_to_delta.core.rollback import rollback_table
from airflow_hive_to_delta.core.sync import sync_table
from airflow_hive_to_delta.core.vacuum import vacuum_external_files
from airflow_hive_to_delta.core.verify import verify_table
from airflow_hive_to_delta.engines.engine import Action
from airflow_hive_to_delta.manifests import FileList, files_df, list_error, too_many

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tables = list[dict[str, Any]]
Result = TypeVar("Result", VerifyResult, SyncResult, VacuumResult, RollbackResult, CutOverResult)


def listing_of(spark: SparkSession, given: Mapping[str, Any]) -> DataFrameListing:
    """The listing that a request names: ``{"strategy": "s3" | "spark" | "inventory", …}`` with its own arguments."""
    arguments = {name: value for name, value in given.items() if name != "strategy"}
    match given["strategy"]:
        case "s3":
            return S3Listing(**arguments)
        case "spark":
            return DatabricksListing(**arguments)
        case "inventory":
            return InventoryListing.from_manifest(spark, **arguments)
    raise PermanentError(f"The listing strategy is {given['strategy']!r}, expected s3, spark or inventory")


def say(line: str) -> None:
    """Tell what the job is doing, where the engine finds it."""
    print(line, file=sys.stderr, flush=True)


def _discover(spark: SparkSession, allow: list[str], deny: list[str]) -> dict[str, Any]:
    tables = UCDiscovery(allow, deny).discover(spark)
    say(f"Found {len(tables)} tables")
    return {"tables": [table.to_dict() for table in tables]}


def _list(
    spark: SparkSession,
    tables: Tables,
    listing: dict[str, Any],
    manifests: list[str | None],
    inline_limit: int,
    options: dict[str, Any],
) -> dict[str, Any]:
    strategy = listing_of(spark, listing)
    chosen = ConversionOptions.from_dict(options)
    lists = []
    for document, manifest in zip(tables, manifests, strict=True):
        table = TableInfo.from_dict(document)
        try:
            # Before the listing, so that it is never too new.
            listed = listed_before(strategy, table) or ListedAt(now(), log_version(table, chosen, spark))
            files = _list_one(strategy.list_files_df(spark, table, chosen), table, manifest, inline_limit)
            files.log_version, files.listed_at = listed.version, listed.time
            say(f"{table.qualified_name}: {files.file_count} files, {files.byte_count} bytes")
            lists.append(files.to_dict())
        except Exception as error:
            say(f"{table.qualified_name}: {error}")
            lists.append(list_error(table.qualified_name, error))
    return {"lists": lists}


def _list_one(files: DataFrame, table: TableInfo, manifest: str | None, inline_limit: int) -> FileList:
    kept = files.persist()
    try:
        count, size = kept.selectExpr("count(*)", "coalesce(sum(size), 0)").collect()[0]
        if count <= inline_limit:
            inline = [row.asDict() for row in kept.collect()]
            return FileList(table.qualified_name, count, size, files=inline)
        if manifest is None:
            raise PermanentError(too_many(table.qualified_name, inline_limit))
        kept.write.parquet(manifest, mode="overwrite", compression="zstd")
        return FileList(table.qualified_name, count, size, manifest=manifest)
    finally:
        kept.unpersist()


def _plan(
    spark: SparkSession,
    tables: Tables,
    options: dict[str, Any],
    listing: dict[str, Any] | None = None,
    lists: list[dict[str, Any]] | None = None,
    max_workers: int = 4,
) -> dict[str, Any]:
    strategy = _Listed(lists or []) if listing is None else listing_of(spark, listing)
    plans = plan_migration(
        spark,
        _Known([TableInfo.from_dict(table) for table in tables]),
        strategy,
        max_workers=max_workers,
        options=ConversionOptions.from_dict(options),
    )
    return {"results": [plan.to_dict() for plan in plans]}


def _convert(
    spark: SparkSession,
    tables: Tables,
    lists: list[dict[str, Any]],
    target_catalog: str | None,
    target_schemas: list[str | None],
    options: dict[str, Any],
    max_workers: int = 4,
) -> dict[str, Any]:
    chosen = ConversionOptions.from_dict(options)
    infos = [TableInfo.from_dict(table) for table in tables]
    listing = _Listed(lists)
    results: dict[str, ConversionResult] = {}
    for schema in dict.fromkeys(target_schemas):
        chosen_tables = [table for table, its in zip(infos, target_schemas, strict=True) if its == schema]
        done = convert(
            spark, _Known(chosen_tables), listing, target_catalog, schema, max_workers=max_workers, options=chosen
        )
        results |= {table.qualified_name: result for table, result in zip(chosen_tables, done, strict=True)}
    return {"results": [results[table.qualified_name].to_dict() for table in infos]}


def _verify(
    spark: SparkSession,
    tables: Tables,
    lists: list[dict[str, Any]],
    level: VerifyLevel,
    versions: list[int | None],
    options: dict[str, Any],
    max_workers: int = 4,
) -> dict[str, Any]:
    listing, chosen = _Listed(lists), ConversionOptions.from_dict(options)
    wanted = {
        TableInfo.from_dict(table).qualified_name: version for table, version in zip(tables, versions, strict=True)
    }

    def verify(table: TableInfo) -> VerifyResult:
        version = wanted[table.qualified_name]
        try:
            return verify_table(spark, table, listing, level=level, version=version, options=chosen)
        except VerificationError as error:
            return replace(error.result, success=False, error=str(error), retryable=False)

    def failed(table: TableInfo) -> VerifyResult:
        return VerifyResult(table.qualified_name, redacted(table.location), level, success=False)

    return _each(tables, verify, failed, max_workers)


def _sync(
    spark: SparkSession,
    tables: Tables,
    lists: list[dict[str, Any]],
    output_mode: OutputMode,
    merge_schema: bool,
    overwrite_schema: bool,
    run_version: int | None,
    options: dict[str, Any],
    accept_conflicts: bool = False,
    allow_forgotten_entries: bool = False,
    quiet_period: float | None = None,
    max_workers: int = 4,
) -> dict[str, Any]:
    listing, chosen = _Listed(lists), ConversionOptions.from_dict(options)

    def sync(table: TableInfo) -> SyncResult:
        return sync_table(
            spark,
            table,
            listing,
            output_mode=output_mode,
            merge_schema=merge_schema,
            overwrite_schema=overwrite_schema,
            run_version=run_version,
            accept_conflicts=accept_conflicts,
            allow_forgotten_entries=allow_forgotten_entries,
            quiet_period=None if quiet_period is None else timedelta(seconds=quiet_period),
            options=chosen,
        )

    def failed(table: TableInfo) -> SyncResult:
        return SyncResult(table.qualified_name, redacted(table.location), False, "failed", run_version=run_version)

    return _each(tables, sync, failed, max_workers)


def _vacuum(
    spark: SparkSession,
    tables: Tables,
    retention_hours: float,
    dry_run: bool,
    allow_short_retention: bool,
    dropped: Sequence[str],
    options: dict[str, Any],
) -> dict[str, Any]:
    chosen = ConversionOptions.from_dict(options)

    def vacuum(table: TableInfo) -> VacuumResult:
        result = vacuum_external_files(
            spark,
            table,
            retention_hours,
            dry_run,
            allow_short_retention=allow_short_retention,
            dropped=dropped,
            options=chosen,
        )
        return replace(result, table_name=table.qualified_name)

    def failed(table: TableInfo) -> VacuumResult:
        return VacuumResult(table.qualified_name, dry_run=dry_run, location=redacted(table.location))

    return _each(tables, vacuum, failed)


def _rollback(
    spark: SparkSession, tables: Tables, lose_versions: Sequence[int], options: dict[str, Any]
) -> dict[str, Any]:
    chosen = ConversionOptions.from_dict(options)

    def roll_back(table: TableInfo) -> RollbackResult:
        result = rollback_table(spark, table, lose_versions=lose_versions, options=chosen)
        return replace(result, source_table=table.qualified_name)

    def failed(table: TableInfo) -> RollbackResult:
        return RollbackResult(table.qualified_name, redacted(table.location), False, "failed")

    return _each(tables, roll_back, failed)


def _cut_over(spark: SparkSession, tables: Tables, options: dict[str, Any]) -> dict[str, Any]:
    chosen = ConversionOptions.from_dict(options)

    def failed(table: TableInfo) -> CutOverResult:
        return CutOverResult(table.qualified_name, redacted(table.location), False, "failed")

    return _each(tables, lambda table: cut_over_table(spark, table, options=chosen), failed)


def _each(
    tables: Tables,
    call: Callable[[TableInfo], Result],
    failed: Callable[[TableInfo], Result],
    max_workers: int = 1,
) -> dict[str, Any]:
    """The result of every table. ``failed`` makes that of one for which ``call`` raises; why is filled in here."""

    def one(table: TableInfo) -> Result:
        started = time.monotonic()
        try:
            result = call(table)
        except Exception as error:
            if not isinstance(error, HiveToDeltaError):
                say(traceback.format_exc())
            result = replace(
                failed(table),
                error=str(error) or type(error).__name__,
                retryable=not isinstance(error, PermanentError),
                duration_seconds=round(time.monotonic() - started, 3),
            )
        word = result.error or getattr(result, "status", "done")
        say(f"{table.qualified_name}: {word} ({result.duration_seconds:.1f} s)")
        return result

    results = run_parallel(one, [TableInfo.from_dict(table) for table in tables], max_workers)
    # Only what is no Exception, such as an interrupt, gets past one().
    return {"results": [result.to_dict() for result in results if not isinstance(result, Exception)]}


class _Known:
    """A discovery of tables that were discovered already."""

    def __init__(self, tables: list[TableInfo]) -> None:
        self._tables = tables

    def discover(self, spark: SparkSession) -> list[TableInfo]:  # noqa: ARG002
        return self._tables


class _Listed(MadeListing):
    """A listing of files that were listed already. A list that is an error is raised for its table."""

    def __init__(self, lists: list[dict[str, Any]]) -> None:
        self._lists = {files["table"]: files for files in lists}

    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame:  # noqa: ARG002
        document = self._lists[table.qualified_name]
        if "error" in document:
            kind = TransientError if document["retryable"] else PermanentError
            raise KINDS.get(document.get("kind", ""), kind)(document["error"])
        files = FileList.from_dict(document)
        found = files_df(spark, files)
        with spark_call(f"Reading the list of the files of {table.qualified_name}"):
            count = found.count()
        if count != files.file_count:
            where = f" at {files.manifest}" if files.manifest else ""
            raise PermanentError(
                f"The list of the files of {table.qualified_name}{where} has {count} files, but "
                f"{files.file_count} were listed: it was changed since. List the files again"
            )
        return found

    def listed_at_version(self, table: TableInfo) -> int | None:
        version: int | None = self._lists[table.qualified_name].get("log_version")
        return version

    def listed_at_time(self, table: TableInfo) -> int | None:
        time: int | None = self._lists[table.qualified_name].get("listed_at")
        return time


ACTIONS: dict[Action, Callable[..., dict[str, Any]]] = {
    "convert": _convert,
    "cut_over": _cut_over,
    "discover": _discover,
    "list": _list,
    "plan": _plan,
    "rollback": _rollback,
    "sync": _sync,
    "vacuum": _vacuum,
    "verify": _verify,
}
