"""What a job does: the actions of a :class:`JobRequest`, each a function of the session and the request's arguments.

- ``discover``: ``allow`` and ``deny``, patterns on ``catalog.schema.table``. The result has ``tables``.
- ``list``: ``tables``; ``listing``, as :func:`listing_of` takes it; ``manifests``, where each table's manifest goes,
  or null; ``inline_limit``; ``options``. The result has ``lists``: a file list for each table, or its error.
- ``plan``: ``tables``; ``listing``, or ``lists`` in which an error may stand for a list; ``max_workers``; ``options``.
  The result has ``results``, a plan for each table.
- ``convert``: ``tables``; ``lists``, a file list for each; ``target_catalog``; ``target_schemas``, one for each table;
  ``max_workers``; ``options``. The result has ``results``, as those of all that follow.
- ``verify``: ``tables``; ``lists``; ``level``; ``versions``, one, ``ours`` or null for each table; ``max_workers``;
  ``options``.
- ``sync``: ``tables``; ``lists``; ``output_mode``; ``merge_schema``; ``overwrite_schema``; ``run_version``;
  ``accept_conflicts``; ``allow_forgotten_entries``; ``quiet_period``, in seconds, or null; ``max_workers``;
  ``options``.
- ``vacuum``: ``tables``; ``retention_hours``; ``dry_run``; ``allow_short_retention``; ``dropped``; ``options``.
- ``rollback``: ``tables``; ``lose_versions``; ``options``.
- ``cut_over``: ``tables``; ``options``.

Results are in the order of the tables. A table that fails has a result that says why, and touches no other. Each is
kept as it ends, where ``table_results`` says so (:class:`TableResults`).

Those that take ``lists`` take ``list_again`` too: ``manifests`` and ``inline_limit``, as for ``list``, and
``later_try``, true when an earlier try of the task has failed. A list is then made again by the listing that made it;
and so it is, in any try, when the table's definition names another location by now. The result has ``files``: the list
that was made again for each table, or null.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from airflow_hive_to_delta.core.catalogs.definitions import current_definition
from airflow_hive_to_delta.core.catalogs.discovery import UCDiscovery
from airflow_hive_to_delta.core.errors import HiveToDeltaError, PermanentError, VerificationError, describe_error
from airflow_hive_to_delta.core.lifecycle.convert import convert
from airflow_hive_to_delta.core.lifecycle.cut_over import cut_over_table
from airflow_hive_to_delta.core.lifecycle.plan import plan_migration
from airflow_hive_to_delta.core.lifecycle.rollback import rollback_table
from airflow_hive_to_delta.core.lifecycle.sync.sync import sync_table
from airflow_hive_to_delta.core.lifecycle.vacuum import vacuum_external_files
from airflow_hive_to_delta.core.lifecycle.verify import verify_table
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.results import (
    ConversionResult,
    CutOverResult,
    OutputMode,
    RollbackResult,
    SyncResult,
    VacuumResult,
    VerifyLevel,
    VerifyResult,
)
from airflow_hive_to_delta.core.runner import run_parallel
from airflow_hive_to_delta.core.storage.uri import redacted
from airflow_hive_to_delta.job.file_lists import GivenLists, ListMaker, listing_of
from airflow_hive_to_delta.job.manifests import list_error
from airflow_hive_to_delta.job.table_results import TableResults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tables = list[dict[str, Any]]
Result = TypeVar("Result", VerifyResult, SyncResult, VacuumResult, RollbackResult, CutOverResult)


def say(line: str) -> None:
    """Tell what the job is doing, where the engine finds it."""
    print(line, file=sys.stderr, flush=True)


def discover_tables(spark: SparkSession, allow: list[str], deny: list[str]) -> dict[str, Any]:
    tables = UCDiscovery(allow, deny).discover(spark)
    say(f"Found {len(tables)} tables")
    return {"tables": [table.to_dict() for table in tables]}


def list_files(
    spark: SparkSession,
    tables: Tables,
    listing: dict[str, Any],
    manifests: list[str | None],
    inline_limit: int,
    options: dict[str, Any],
) -> dict[str, Any]:
    maker = ListMaker(spark, ConversionOptions.from_dict(options), inline_limit, say)
    maker.strategy(listing)  # a listing that cannot be had fails the job, and not each of its tables
    lists = []
    for document, manifest in zip(tables, manifests, strict=True):
        table = TableInfo.from_dict(document)
        try:
            lists.append(maker.make(_current(spark, table), listing, manifest).to_dict())
        except Exception as error:
            say(f"{table.qualified_name}: {error}")
            lists.append(list_error(table.qualified_name, error, listing))
    return {"lists": lists}


def _current(spark: SparkSession, table: TableInfo) -> TableInfo:
    """A table of the session's catalog as it is described there now; of Glue's the task has asked."""
    return current_definition(table, spark) if table.source == "spark" else table


def _if_known(spark: SparkSession, table: TableInfo) -> TableInfo:
    """The current definition of a table; the one it was discovered with, if its catalog does not have it any more."""
    current = _current(spark, table)
    return current if current.location else table


def plan_tables(
    spark: SparkSession,
    tables: Tables,
    options: dict[str, Any],
    listing: dict[str, Any] | None = None,
    lists: list[dict[str, Any]] | None = None,
    max_workers: int = 4,
) -> dict[str, Any]:
    strategy = GivenLists(lists or []) if listing is None else listing_of(spark, listing)
    plans = plan_migration(
        spark,
        _Known([_current(spark, TableInfo.from_dict(table)) for table in tables]),
        strategy,
        max_workers=max_workers,
        options=ConversionOptions.from_dict(options),
    )
    return {"results": [plan.to_dict() for plan in plans]}


def convert_tables(
    spark: SparkSession,
    tables: Tables,
    lists: list[dict[str, Any]],
    target_catalog: str | None,
    target_schemas: list[str | None],
    options: dict[str, Any],
    max_workers: int = 4,
    list_again: dict[str, Any] | None = None,
    table_results: dict[str, Any] | None = None,
) -> dict[str, Any]:
    chosen = ConversionOptions.from_dict(options)
    infos = [TableInfo.from_dict(table) for table in tables]
    listing = _given_lists(spark, lists, list_again, chosen)
    kept = TableResults(spark, table_results, say)
    results: dict[str, ConversionResult] = {}

    def before(table: TableInfo) -> TableInfo:
        kept.begin(table.qualified_name)
        return _current(spark, table)

    def after(result: ConversionResult) -> None:
        kept.end(result.source_table, {"result": result.to_dict(), "files": listing.made(result.source_table)})

    for schema in dict.fromkeys(target_schemas):
        chosen_tables = [table for table, its in zip(infos, target_schemas, strict=True) if its == schema]
        done = convert(
            spark,
            _Known(chosen_tables),
            listing,
            target_catalog,
            schema,
            max_workers=max_workers,
            options=chosen,
            before=before,
            after=after,
        )
        results |= {table.qualified_name: result for table, result in zip(chosen_tables, done, strict=True)}
    names = [table.qualified_name for table in infos]
    return {"results": [results[name].to_dict() for name in names], "files": [listing.made(name) for name in names]}


def verify_tables(
    spark: SparkSession,
    tables: Tables,
    lists: list[dict[str, Any]],
    level: VerifyLevel,
    versions: list[int | Literal["ours"] | None],
    options: dict[str, Any],
    max_workers: int = 4,
    list_again: dict[str, Any] | None = None,
    table_results: dict[str, Any] | None = None,
) -> dict[str, Any]:
    chosen = ConversionOptions.from_dict(options)
    later_try = bool(list_again and list_again["later_try"])
    listing = _given_lists(spark, lists, list_again and {**list_again, "later_try": False}, chosen)
    # What was mended after a first try is seen by a new list only, and a sync may have mended it.
    afresh = _given_lists(spark, lists, list_again, chosen) if later_try else None
    wanted = {
        TableInfo.from_dict(table).qualified_name: version for table, version in zip(tables, versions, strict=True)
    }

    def verify(table: TableInfo) -> VerifyResult:
        version = wanted[table.qualified_name]
        try:
            try:
                return verify_table(spark, table, listing, level=level, version=version, options=chosen)
            except PermanentError:
                if afresh is None or not afresh.can_list(table):
                    raise
                return verify_table(spark, table, afresh, level=level, version="ours", options=chosen)
        except VerificationError as error:
            return error.result

    def failed(table: TableInfo) -> VerifyResult:
        return VerifyResult(table.qualified_name, redacted(table.location), level, success=False)

    return _each(spark, tables, verify, failed, max_workers, listing=listing, table_results=table_results)


def sync_tables(
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
    list_again: dict[str, Any] | None = None,
    table_results: dict[str, Any] | None = None,
) -> dict[str, Any]:
    chosen = ConversionOptions.from_dict(options)
    listing = _given_lists(spark, lists, list_again, chosen)

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

    return _each(spark, tables, sync, failed, max_workers, listing=listing, table_results=table_results)


def vacuum_tables(
    spark: SparkSession,
    tables: Tables,
    retention_hours: float,
    dry_run: bool,
    allow_short_retention: bool,
    dropped: Sequence[str],
    options: dict[str, Any],
    table_results: dict[str, Any] | None = None,
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

    return _each(spark, tables, vacuum, failed, table_results=table_results)


def roll_back_tables(
    spark: SparkSession,
    tables: Tables,
    lose_versions: Sequence[int],
    options: dict[str, Any],
    table_results: dict[str, Any] | None = None,
) -> dict[str, Any]:
    chosen = ConversionOptions.from_dict(options)

    def roll_back(table: TableInfo) -> RollbackResult:
        result = rollback_table(spark, table, lose_versions=lose_versions, options=chosen)
        return replace(result, source_table=table.qualified_name)

    def failed(table: TableInfo) -> RollbackResult:
        return RollbackResult(table.qualified_name, redacted(table.location), False, "failed")

    return _each(spark, tables, roll_back, failed, table_results=table_results)


def cut_over_tables(
    spark: SparkSession,
    tables: Tables,
    options: dict[str, Any],
    table_results: dict[str, Any] | None = None,
) -> dict[str, Any]:
    chosen = ConversionOptions.from_dict(options)

    def failed(table: TableInfo) -> CutOverResult:
        return CutOverResult(table.qualified_name, redacted(table.location), False, "failed")

    return _each(
        spark,
        tables,
        lambda table: cut_over_table(spark, table, options=chosen),
        failed,
        table_results=table_results,
    )


def _each(
    spark: SparkSession,
    tables: Tables,
    call: Callable[[TableInfo], Result],
    failed: Callable[[TableInfo], Result],
    max_workers: int = 1,
    *,
    listing: GivenLists | None = None,
    table_results: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The result of every table. ``failed`` makes that of one for which ``call`` raises; why is filled in here.

    Tables are described anew before they are worked on.

    :param listing: of an action that needs the files, and therefore a table that its catalog describes.
    """
    kept = TableResults(spark, table_results, say)

    def made(name: str) -> dict[str, Any] | None:
        return None if listing is None else listing.made(name)

    def one(table: TableInfo) -> Result:
        started = time.monotonic()
        try:
            kept.begin(table.qualified_name)
            result = call(_if_known(spark, table) if listing is None else _current(spark, table))
        except Exception as error:
            if not isinstance(error, HiveToDeltaError):
                say(traceback.format_exc())
            duration = round(time.monotonic() - started, 3)
            result = replace(failed(table), **describe_error(error).to_fields(), duration_seconds=duration)
        word = result.error or getattr(result, "status", "done")
        say(f"{table.qualified_name}: {word} ({result.duration_seconds:.1f} s)")
        name = table.qualified_name
        kept.end(name, {"result": result.to_dict(), "files": made(name)})
        return result

    infos = [TableInfo.from_dict(table) for table in tables]
    results = run_parallel(one, infos, max_workers)
    return {
        # Only what is no Exception, such as an interrupt, gets past one().
        "results": [result.to_dict() for result in results if not isinstance(result, Exception)],
        "files": [made(table.qualified_name) for table in infos],
    }


def _given_lists(
    spark: SparkSession, lists: list[dict[str, Any]], again: dict[str, Any] | None, options: ConversionOptions
) -> GivenLists:
    if again is None:
        return GivenLists(lists)
    maker = ListMaker(spark, options, again["inline_limit"], say)
    return GivenLists(lists, maker, again["manifests"], later_try=again["later_try"])


class _Known:
    """A discovery of tables that were discovered already."""

    def __init__(self, tables: list[TableInfo]) -> None:
        self._tables = tables

    def discover(self, spark: SparkSession) -> list[TableInfo]:  # noqa: ARG002
        return self._tables
