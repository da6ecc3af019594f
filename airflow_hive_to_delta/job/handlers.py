"""What a job does: the actions of a :class:`JobRequest`, each a function of the session and the request's arguments.

- ``discover``: ``allow`` and ``deny``, patterns on ``catalog.schema.table``. The result has ``tables``.
- ``list``: ``tables``; ``listing``, as :func:`make_listing` takes it; ``manifests``, where each table's manifest goes,
  or null; ``inline_limit``; ``options``. The result has ``lists``: a file list for each table, or its error.
- ``plan``: ``tables``; ``listing``, or ``lists`` in which an error may stand for a list; ``max_workers``; ``options``.
  The result has ``results``, a plan for each table.
- ``convert``: ``tables``; ``lists``, a file list for each; ``target_catalog``; ``target_schemas``, one for each table;
  ``verify``, a level or null: compare each table that was converted, too; ``max_workers``; ``options``. The result has
  ``results``, as those of all that follow.
- ``verify``: ``tables``; ``lists``; ``level``; ``versions``, one, ``ours`` or null for each table; ``max_workers``;
  ``options``.
- ``sync``: ``tables``; ``lists``; ``sync_options``, a :class:`SyncOptions`; ``run_version``, or null; ``max_workers``;
  ``options``.
- ``vacuum``: ``tables``; ``retention_hours``; ``dry_run``; ``allow_short_retention``; ``dropped``; ``options``.
- ``rollback``: ``tables``; ``lose_versions``; ``options``.
- ``cut_over``: ``tables``; ``options``.

Results are in the order of the tables. A table that fails has a result that says why, and touches no other. Each is
kept as it ends, where the job has a folder for results (:class:`TableResults`).

Those that take ``lists`` take ``list_again`` too: ``manifests`` and ``inline_limit``, as for ``list``, and
``later_try``, true when an earlier try of the task has failed. A list is then made again by the listing that made it;
and so it is, in any try, when the table's definition names another location by now. The result has ``files``: the list
that was made again for each table, or null.

``convert``, ``sync``, ``cut_over`` and ``rollback`` take ``until`` too, a time in ISO 8601 or null: a table whose work
has not begun by then fails with a :class:`WindowClosedError`, and is as it was.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from airflow_hive_to_delta.core.catalogs.definitions import current_definition
from airflow_hive_to_delta.core.catalogs.discovery import UCDiscovery
from airflow_hive_to_delta.core.errors import WindowClosedError
from airflow_hive_to_delta.core.lifecycle.convert import TableConverter, make_failed_conversion
from airflow_hive_to_delta.core.lifecycle.cut_over import cut_over_table
from airflow_hive_to_delta.core.lifecycle.plan import plan_conversions
from airflow_hive_to_delta.core.lifecycle.rollback.rollback import rollback_table
from airflow_hive_to_delta.core.lifecycle.sync.sync import sync_table
from airflow_hive_to_delta.core.lifecycle.vacuum.vacuum import vacuum_external_files
from airflow_hive_to_delta.core.lifecycle.verify import verify_conversion
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions, SyncOptions
from airflow_hive_to_delta.core.results import (
    ConversionResult,
    CutOverResult,
    RollbackResult,
    SyncResult,
    TableResult,
    VacuumResult,
    VerificationError,
    VerifyLevel,
    VerifyResult,
)
from airflow_hive_to_delta.core.runner import run_tables
from airflow_hive_to_delta.core.storage.databricks import NO_CREDENTIALS_NOTE, needs_dbutils
from airflow_hive_to_delta.core.storage.uri import redacted
from airflow_hive_to_delta.job.file_lists import GivenLists, ListMaker, make_given_listing, make_listing
from airflow_hive_to_delta.job.manifests import list_error
from airflow_hive_to_delta.job.progress import print_progress
from airflow_hive_to_delta.job.table_results import TableResults
from airflow_hive_to_delta.job.verifier import TableVerifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tables = list[dict[str, Any]]
Result = TypeVar("Result", bound=TableResult)


def discover_tables(spark: SparkSession, allow: list[str], deny: list[str]) -> dict[str, Any]:
    tables = UCDiscovery(allow, deny).discover(spark)
    print_progress(f"Found {len(tables)} tables")
    return {"tables": [table.to_dict() for table in tables]}


def list_files(
    spark: SparkSession,
    tables: Tables,
    listing: dict[str, Any],
    manifests: list[str | None],
    inline_limit: int,
    options: dict[str, Any],
) -> dict[str, Any]:
    maker = ListMaker(spark, _read_options(options), inline_limit)
    maker.strategy(listing)  # a listing that cannot be had fails the job, and not each of its tables
    lists = []
    for document, manifest in zip(tables, manifests, strict=True):
        table = TableInfo.from_dict(document)
        try:
            lists.append(maker.make(_read_definition(spark, table), listing, manifest).to_dict())
        except Exception as error:
            print_progress(f"{table.qualified_name}: {error}")
            lists.append(list_error(table.qualified_name, error, listing))
    return {"lists": lists}


def _read_definition(spark: SparkSession, table: TableInfo) -> TableInfo:
    """Read the definition of a table of the session's catalog again. The task has done so for tables of Glue."""
    return current_definition(table, spark) if table.source == "spark" else table


def _read_known_definition(spark: SparkSession, table: TableInfo) -> TableInfo:
    """Read the definition of a table again; the one that was discovered, if its catalog has no location of it now."""
    current = _read_definition(spark, table)
    return current if current.location else table


def plan_tables(
    spark: SparkSession,
    tables: Tables,
    options: dict[str, Any],
    listing: dict[str, Any] | None = None,
    lists: list[dict[str, Any]] | None = None,
    max_workers: int = 4,
) -> dict[str, Any]:
    strategy = GivenLists(lists or []) if listing is None else make_listing(spark, listing)
    plans = plan_conversions(
        spark,
        [_read_definition(spark, table) for table in _parse_tables(tables)],
        strategy,
        max_workers=max_workers,
        options=_read_options(options),
    )
    return {"results": [plan.to_dict() for plan in plans]}


def convert_tables(
    spark: SparkSession,
    tables: Tables,
    lists: list[dict[str, Any]],
    target_catalog: str | None,
    target_schemas: list[str | None],
    options: dict[str, Any],
    verify: VerifyLevel | None = None,
    max_workers: int = 4,
    list_again: dict[str, Any] | None = None,
    until: str | None = None,
    table_results: TableResults | None = None,
) -> dict[str, Any]:
    chosen = _read_options(options)
    infos = _parse_tables(tables)
    schemas = {table.qualified_name: schema for table, schema in zip(infos, target_schemas, strict=True)}
    listing = make_given_listing(spark, lists, list_again, chosen)
    converter = TableConverter(
        spark, infos, listing, target_catalog, lambda table: schemas[table.qualified_name], chosen
    )
    verifier = None if verify is None else TableVerifier(spark, verify, chosen, lists, list_again)

    def convert(table: TableInfo) -> ConversionResult:
        result = converter.convert(table)
        if verifier is None:
            return result
        # With the very list that it was converted by: one that was made again, or the one that was given.
        used = listing if listing.made(table.qualified_name) else None
        return verify_conversion(
            table, result, verifier.level, lambda table, version: verifier.verify(table, version, used)
        )

    return _run(
        spark,
        converter.tables,
        convert,
        make_failed_conversion,
        max_workers,
        listing=listing,
        until=until,
        table_results=table_results,
    )


def verify_tables(
    spark: SparkSession,
    tables: Tables,
    lists: list[dict[str, Any]],
    level: VerifyLevel,
    versions: list[int | Literal["ours"] | None],
    options: dict[str, Any],
    max_workers: int = 4,
    list_again: dict[str, Any] | None = None,
    table_results: TableResults | None = None,
) -> dict[str, Any]:
    verifier = TableVerifier(spark, level, _read_options(options), lists, list_again)
    infos = _parse_tables(tables)
    wanted = {table.qualified_name: version for table, version in zip(infos, versions, strict=True)}

    def verify(table: TableInfo) -> VerifyResult:
        try:
            return verifier.verify(table, wanted[table.qualified_name])
        except VerificationError as error:
            return error.result

    def make_failed(table: TableInfo, _: Exception) -> VerifyResult:
        return VerifyResult(table.qualified_name, redacted(table.location), level, success=False)

    return _run(spark, infos, verify, make_failed, max_workers, listing=verifier.listing, table_results=table_results)


def sync_tables(
    spark: SparkSession,
    tables: Tables,
    lists: list[dict[str, Any]],
    sync_options: dict[str, Any],
    run_version: int | None,
    options: dict[str, Any],
    max_workers: int = 4,
    list_again: dict[str, Any] | None = None,
    until: str | None = None,
    table_results: TableResults | None = None,
) -> dict[str, Any]:
    chosen = _read_options(options)
    listing = make_given_listing(spark, lists, list_again, chosen)

    what_to_sync = SyncOptions.from_dict(sync_options)

    def sync(table: TableInfo) -> SyncResult:
        return sync_table(spark, table, listing, run_version=run_version, sync_options=what_to_sync, options=chosen)

    def make_failed(table: TableInfo, _: Exception) -> SyncResult:
        return SyncResult(table.qualified_name, redacted(table.location), False, "failed", run_version=run_version)

    return _run(
        spark,
        _parse_tables(tables),
        sync,
        make_failed,
        max_workers,
        listing=listing,
        until=until,
        table_results=table_results,
    )


def vacuum_tables(
    spark: SparkSession,
    tables: Tables,
    retention_hours: float,
    dry_run: bool,
    allow_short_retention: bool,
    dropped: Sequence[str],
    options: dict[str, Any],
    table_results: TableResults | None = None,
) -> dict[str, Any]:
    chosen = _read_options(options)

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

    def make_failed(table: TableInfo, _: Exception) -> VacuumResult:
        return VacuumResult(table.qualified_name, dry_run=dry_run, location=redacted(table.location))

    return _run(spark, _parse_tables(tables), vacuum, make_failed, table_results=table_results)


def roll_back_tables(
    spark: SparkSession,
    tables: Tables,
    lose_versions: Sequence[int],
    options: dict[str, Any],
    until: str | None = None,
    table_results: TableResults | None = None,
) -> dict[str, Any]:
    chosen = _read_options(options)

    def roll_back(table: TableInfo) -> RollbackResult:
        result = rollback_table(spark, table, lose_versions=lose_versions, options=chosen)
        return replace(result, source_table=table.qualified_name)

    def make_failed(table: TableInfo, _: Exception) -> RollbackResult:
        return RollbackResult(table.qualified_name, redacted(table.location), False, "failed")

    return _run(spark, _parse_tables(tables), roll_back, make_failed, until=until, table_results=table_results)


def cut_over_tables(
    spark: SparkSession,
    tables: Tables,
    options: dict[str, Any],
    until: str | None = None,
    table_results: TableResults | None = None,
) -> dict[str, Any]:
    chosen = _read_options(options)

    def make_failed(table: TableInfo, _: Exception) -> CutOverResult:
        return CutOverResult(table.qualified_name, redacted(table.location), False, "failed")

    return _run(
        spark,
        _parse_tables(tables),
        lambda table: cut_over_table(spark, table, options=chosen),
        make_failed,
        until=until,
        table_results=table_results,
    )


def _run(
    spark: SparkSession,
    tables: Sequence[TableInfo],
    work: Callable[[TableInfo], Result],
    make_failed_result: Callable[[TableInfo, Exception], Result],
    max_workers: int = 1,
    *,
    listing: GivenLists | None = None,
    until: str | None = None,
    table_results: TableResults | None = None,
) -> dict[str, Any]:
    """Do the work of every table (:func:`run_tables`), and keep each result as it ends.

    The definitions of the tables are read again before the work.

    :param listing: of an action that needs the files, and therefore a table that its catalog describes.
    :param until: the time, in ISO 8601, after which no table is begun.
    """
    end_of_window = None if until is None else dt.datetime.fromisoformat(until)
    kept = table_results or TableResults(spark, None)

    def list_made(table: TableInfo) -> dict[str, Any] | None:
        return None if listing is None else listing.made(table.qualified_name)

    def begin(table: TableInfo) -> Result:
        if end_of_window is not None and dt.datetime.now(dt.UTC) >= end_of_window:
            raise WindowClosedError(f"{table.qualified_name} was not begun: the window of its wave ended at {until}")
        kept.begin(table.qualified_name)
        result = work(_read_known_definition(spark, table) if listing is None else _read_definition(spark, table))
        if needs_dbutils():
            result.notes.append(NO_CREDENTIALS_NOTE)
        return result

    def end(table: TableInfo, result: Result) -> None:
        kept.end(table.qualified_name, {"result": result.to_dict(), "files": list_made(table)})

    results = run_tables(begin, tables, make_failed_result, max_workers=max_workers, on_end=end)
    return {"results": [result.to_dict() for result in results], "files": [list_made(table) for table in tables]}


def _read_options(document: dict[str, Any]) -> ConversionOptions:
    """The options of a request. Where Python reaches no file, as with Unity Catalog, Spark is to read them.

    There is no checkpoint then, for ``dbutils`` writes texts only where users share the compute. Delta makes one with
    a later commit.
    """
    options = ConversionOptions.from_dict(document)
    return replace(options, stats="scan", checkpoint_over_files=sys.maxsize) if needs_dbutils() else options


def _parse_tables(documents: Tables) -> list[TableInfo]:
    return [TableInfo.from_dict(document) for document in documents]
