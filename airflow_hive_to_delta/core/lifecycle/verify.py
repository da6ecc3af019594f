"""A Delta table against its original, the Hive or Parquet table whose files it stands on.

``counts`` compares what the log says with what is on the storage: which files there are, and the files, bytes and rows
of every partition, rows as the Parquet footers have them. ``full`` reads both sides through Spark as well, and compares
checksums of every column in every partition. All is compared on Spark: the driver sees totals, and what differs first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from airflow_hive_to_delta.core.delta.log.files import some
from airflow_hive_to_delta.core.delta.snapshot import Snapshot, snapshot_of
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    HiveToDeltaError,
    MissingError,
    PermanentError,
    UnsupportedTableError,
    describe_error,
)
from airflow_hive_to_delta.core.files import ListedFiles
from airflow_hive_to_delta.core.lifecycle.comparison import Comparison
from airflow_hive_to_delta.core.lifecycle.context import TableContext
from airflow_hive_to_delta.core.lifecycle.ledger import read_ledger
from airflow_hive_to_delta.core.lifecycle.preflight import parse_partition_types, preflight
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.listing.base import Listing
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.results import (
    ConversionResult,
    VerificationError,
    VerifyLevel,
    VerifyResult,
    levels_that_prove,
)
from airflow_hive_to_delta.core.storage.uri import canonical_uri_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)
_IN_MESSAGE = 5


def verify_table(
    spark: SparkSession,
    table: TableInfo,
    listing: Listing,
    *,
    level: VerifyLevel = "counts",
    version: int | Literal["ours"] | None = None,
    options: ConversionOptions | None = None,
) -> VerifyResult:
    """Compare the Delta table at the table's location with the original, as the listing finds it now.

    That they are equal is kept as a record beside the log, with the version and the level, where the table is a
    conversion of this package. An identity that may not write there verifies all the same: the result then has a note.

    :param table: the Hive table, as discovery gives it.
    :param level: ``counts``, or ``full``, which reads all data of both sides.
    :param version: the version of the Delta table; the latest when not given; ``ours``: the latest before anybody
        else than this package wrote to it.
    :param options: those that the table was converted with.
    :raises VerificationError: they differ. Its message says where, and its ``result`` has the numbers.
    """
    started = time.monotonic()
    options = options or ConversionOptions()
    if level not in ("counts", "full"):
        raise PermanentError(f"level is {level!r}, expected counts or full")
    context = TableContext.open(spark, table, options)
    root = context.root
    if table.format == "delta":
        raise UnsupportedTableError(
            f"{table.qualified_name} is a Delta table in its catalog, so there is no original to compare it with"
        )
    asked = None if version == "ours" else version
    view = DeltaTableView.for_path(spark, table.location, version=asked, options=options)
    if view.root != root:  # the location ends like a version, and the folder of that name has no log
        raise MissingError(f"{root} holds no Delta log. Convert the table first")
    latest = view.snapshot if asked is None else snapshot_of(spark, view.storage, root)
    if version == "ours" and (own := _find_last_version_of_ours(table, latest, level)) != latest.version:
        view = DeltaTableView.for_path(spark, table.location, version=own, options=options)
    found_version = view.version
    files = context.list_files(listing)
    # Of the footers only the rows and the columns are needed.
    if options.stats != "scan":
        context = replace(context, options=replace(options, stats="none"))
    written_by_others = not all(commit.ours for commit in latest.history)
    if written_by_others:
        files = ListedFiles(spark, _without_files_of_delta(files.frame, latest))
    with preflight(context, files, parse_partition_types(context)) as original:
        # Spark would read what others have written into the table's folders as a part of it.
        through_catalog = table.source == "spark" and not written_by_others
        comparison = Comparison(context, view, original, through_catalog)
        result = VerifyResult(
            source_table=table.qualified_name,
            location=str(root),
            level=level,
            success=True,
            version=found_version,
            notes=list(original.files.notes),
        )
        comparison.compare(result)
    if not result.mismatch_count:
        _keep_verified(Records(view.storage, root), latest, result)
    result.duration_seconds = round(time.monotonic() - started, 3)
    if result.mismatch_count:
        raise VerificationError(_describe_mismatches(table, view, result), result)
    return result


def verify_conversion(
    table: TableInfo,
    result: ConversionResult,
    level: VerifyLevel,
    compare: Callable[[TableInfo, int], VerifyResult],
) -> ConversionResult:
    """Compare a table with its original right after its conversion, and return the result with what was found.

    Only a table that this run has converted, in whichever try, is compared. One that differs, or that cannot be
    compared, has the error of the verification then and is no success. It stays a Delta table and its status stays
    ``converted``: converting it again only verifies it again.

    A table that an earlier try has verified by this level is not held to a second comparison: Hive may have written
    since. If that finds a difference or fails, the result stays a success and gets a note with the error.

    :param table: the Hive table, as it was converted.
    :param compare: compares the table, at a version, with the files that it was converted from, as
        :func:`verify_table` does.
    """
    if result.status != "converted":
        return result
    try:
        found = compare(table, 0)
    except VerificationError as error:
        found = error.result
    except Exception as error:
        if not isinstance(error, HiveToDeltaError):
            logger.exception("%s: an unexpected error of its verification", table.qualified_name)
        failed = VerifyResult(table.qualified_name, result.location, level, success=False)
        found = replace(failed, **describe_error(error).to_fields())
    if found.success:
        verified = {} if found.version is None else {found.level: found.version}
        return replace(result, verification=found, verified=result.verified | verified)
    if before := [proof for proof in levels_that_prove(level) if proof in result.verified]:
        proven = f"by {before[0]} at version {result.verified[before[0]]}"
        note = f"It was verified before, {proven}. Comparing it again has failed: {found.error}"
        return replace(result, notes=[*result.notes, note])
    fields = {name: getattr(found, name) for name in ("error", "error_kind", "retryable")}
    return replace(result, verification=found, success=False, **fields)


def _find_last_version_of_ours(table: TableInfo, latest: Snapshot, level: VerifyLevel) -> int:
    """The latest version before anybody else wrote to the table."""
    others = [commit for commit in latest.history if not commit.ours]
    if not others:
        return latest.version
    first = others[-1]
    if first.version - 1 in latest.segment.times:
        return first.version - 1
    since = f"version {first.version} ({first.operation}) of another writer"
    message = (
        f"{table.qualified_name} cannot be verified any more: the log at {latest.root} has {since}, and no version "
        "before it is left to compare with the original"
    )
    result = VerifyResult(table.qualified_name, str(latest.root), level, success=False, version=latest.version)
    raise VerificationError(message, replace(result, written_since=since))


def _keep_verified(records: Records, latest: Snapshot, result: VerifyResult) -> None:
    if not records.is_ours(latest):
        return
    try:
        records.keep_verified(result)
    except AccessDeniedError as error:
        result.notes.append(f"That it was verified could not be kept beside its log: {error}")


def _without_files_of_delta(files: DataFrame, latest: Snapshot) -> DataFrame:
    """The listed files, less those that Delta wrote, which may lie in the same folders."""
    deltas = read_ledger(latest).files().where("delta AND hive IS NULL").select("key")
    return files.withColumn("key", canonical_uri_column("path")).join(deltas, "key", "left_anti").drop("key")


def _describe_mismatches(table: TableInfo, view: DeltaTableView, result: VerifyResult) -> str:
    shown = [
        f"{found['partition'] or 'the table'}: {found['what']}: original {found['original']}, delta {found['delta']}"
        for found in result.mismatches[:_IN_MESSAGE]
    ]
    more = result.mismatch_count - len(shown)
    return (
        f"{table.qualified_name}: version {result.version} of the Delta table at {view.root} is not its original: "
        f"{'; '.join(shown)}{f'; and {more} more differences' if more else ''}. {_advise(view)}"
    )


def _advise(view: DeltaTableView) -> str:
    others = sorted((commit for commit in view.history if not commit.ours), key=lambda commit: commit.version)
    if not others:
        return (
            "If Hive has written since, call sync_table and verify again; if not, do not use the Delta table: call "
            "rollback_table and convert it again"
        )
    written = some([f"{commit.version} ({commit.operation})" for commit in others])
    before = others[0].version - 1
    earlier = f"; pass version={before} to verify it as it was before them" if before >= 0 else ""
    return f"Others than this package wrote to the Delta table, in the versions {written}{earlier}"
