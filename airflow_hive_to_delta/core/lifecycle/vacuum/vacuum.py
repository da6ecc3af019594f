"""Vacuum outside the root: files that Delta removed long ago, where its own VACUUM never looks (rules 49 and 50).

Only what is certain is deleted. Whatever cannot be read or asked is an error, and nothing is deleted then; whatever is
in doubt about one file keeps that file, and a note says why.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.delta.log.files import some
from airflow_hive_to_delta.core.delta.log.segment import log_segment
from airflow_hive_to_delta.core.delta.snapshot import Snapshot, snapshot_of
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView, view_of
from airflow_hive_to_delta.core.delta.writable import check_vacuum
from airflow_hive_to_delta.core.errors import (
    HiveToDeltaError,
    PermanentError,
    TransientError,
    describe_error,
)
from airflow_hive_to_delta.core.lifecycle.vacuum.orphans import Orphan, find_orphans
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.results import VacuumResult
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What Delta keeps removed files for, unless the table says otherwise.
DEFAULT_RETENTION_HOURS = 168


def vacuum_external_files(
    spark: SparkSession,
    table: DeltaTableView | TableInfo | str,
    retention_hours: float = DEFAULT_RETENTION_HOURS,
    dry_run: bool = True,
    *,
    allow_short_retention: bool = False,
    dropped: Sequence[str] = (),
    options: ConversionOptions | None = None,
) -> VacuumResult:
    """Delete the files outside the table's root that Delta removed longer ago than the retention.

    A file stays that is live, however its path is spelt; that lies under a location which a catalog still has (the
    tables of the Hive table's database, and of those in which the Delta table was registered, and their partitions);
    that lies under the root of another Delta table; that no conversion or sync has put into the table; that Hive and
    not Delta has dropped; or that was written again since. Safe to call again: what was deleted before is no longer
    found.

    The Hive table counts as gone only when its catalog says "not found" of that very table: a list of tables may not
    show it to this identity. AWS Glue and a Hive metastore say so. Of Unity Catalog, and of other catalogs, that is
    not known: there name the table in ``dropped``. Other tables that are hidden from the identity are not known.

    :param table: a view, the Hive table, a path, or a name.
    :param retention_hours: the table's ``delta.deletedFileRetentionDuration`` counts when it is longer than 168.
    :param dry_run: only name what would be deleted.
    :param allow_short_retention: take ``retention_hours`` as it is. Whoever reads an older version, or wants to go
        back to one, loses its files.
    :param dropped: full names (``catalog.schema.table``, ``database.table``) of the Hive table, or of a schema, that
        you know to be dropped, where the catalog cannot say so.
    :param options: ``allowed_roots`` are the locations that may be deleted from; empty: anywhere.
    :raises HiveToDeltaError: something could not be read or asked. Nothing was deleted. Files that could not be deleted
        are no such error: the result names what went, and has the error.
    """
    started = time.monotonic()
    options = options or ConversionOptions()
    view = view_of(spark, table, options)
    if view.travels:
        raise PermanentError(f"{view.path} with a version or a time is no table to vacuum; give it without")
    if isinstance(dropped, str):
        raise PermanentError(f"dropped is {dropped!r}, expected a list of names")
    given = table if isinstance(table, TableInfo) else None
    deleted = _Deleted()
    for _ in range(_TRIES):
        snapshot = snapshot_of(spark, view.storage, view.root)
        check_vacuum(snapshot)
        retention, notes = _choose_retention(snapshot, retention_hours, allow_short_retention)
        orphans = find_orphans(spark, snapshot, retention, given, options, dropped, notes)
        if dry_run or _delete_orphans(spark, snapshot, orphans, options, deleted):
            break
    else:
        raise TransientError(
            f"{view.root} was written to each time before its files could be deleted. Try again when less is written"
        )
    # After a write in between the last look did not find what had gone before it.
    found = {**deleted.sizes, **{orphan.uri: orphan.size for orphan in orphans}}
    return VacuumResult(
        table_name=given.qualified_name if given else view.name,
        orphaned_files=sorted(found),
        deleted_files=sorted(deleted.sizes),
        orphaned_bytes=sum(found.values()),
        deleted_bytes=sum(deleted.sizes.values()),
        dry_run=dry_run,
        notes=notes,
        location=str(view.root),
        error=deleted.error,
        retryable=deleted.retryable,
        error_kind=deleted.error_kind,
        duration_seconds=round(time.monotonic() - started, 3),
    )


_TRIES = 5
_WORKERS = 8
_FILES_PER_BATCH = 1_000
_MILLIS = {"week": 604_800_000, "day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1_000,
           "millisecond": 1, "microsecond": 0.001}  # fmt: skip
_HOUR = _MILLIS["hour"]


# --- how long --------------------------------------------------------------------------------------------------------


def _choose_retention(snapshot: Snapshot, hours: float, allow_short: bool) -> tuple[float, list[str]]:
    """The retention in milliseconds, and notes on it."""
    if hours < 0:
        raise PermanentError(f"retention_hours is {hours}, expected 0 or more")
    text = snapshot.metadata.configuration.get("delta.deletedFileRetentionDuration")
    least = DEFAULT_RETENTION_HOURS if text is None else _parse_interval(text, snapshot.root) / _HOUR
    if hours >= least or allow_short:
        return hours * _HOUR, []
    if hours == DEFAULT_RETENTION_HOURS:
        return least * _HOUR, [f"The table keeps removed files for {least:g} hours ({text}), so that is the retention"]
    raise PermanentError(
        f"retention_hours is {hours:g}, and {snapshot.root} keeps removed files for {least:g} hours "
        f"({text or 'the default'}). Nothing was deleted. If nobody needs older versions, pass "
        "allow_short_retention=True"
    )


def _parse_interval(text: str, root: Location) -> float:
    """Milliseconds of an interval as Delta's properties have it: ``interval 1 week``."""
    parts = text.lower().replace("interval", "", 1).split()
    units = [unit.rstrip("s") for unit in parts[1::2]]
    try:
        if not parts or len(parts) % 2:
            raise ValueError(text)  # noqa: TRY301
        return sum(float(count) * _MILLIS[unit] for count, unit in zip(parts[::2], units, strict=True))
    except (ValueError, KeyError) as error:
        raise PermanentError(
            f"{root} has delta.deletedFileRetentionDuration = {text!r}, expected something like 'interval 1 week'. "
            "Nothing was deleted"
        ) from error


# --- deleting --------------------------------------------------------------------------------------------------------


@dataclass
class _Deleted:
    sizes: dict[str, int] = field(default_factory=dict)
    error: str | None = None
    retryable: bool | None = None
    #: The kind of all errors, if they are of one.
    error_kind: str | None = None


def _delete_orphans(
    spark: SparkSession,
    snapshot: Snapshot,
    orphans: Sequence[Orphan],
    options: ConversionOptions,
    deleted: _Deleted,
) -> bool:
    """Delete files, and add them to ``deleted``. False: the table was written to, so one of them may be live again."""

    def delete(batch: Sequence[Orphan]) -> dict[Location, HiveToDeltaError]:
        return storage_for(batch[0].location, spark, options).delete_files([orphan.location for orphan in batch])

    failed: dict[Location, HiveToDeltaError] = {}
    batches = _split_into_batches(orphans)
    with ThreadPoolExecutor(_WORKERS) as pool:
        while some_batches := list(islice(batches, _WORKERS)):
            if log_segment(snapshot.storage, snapshot.root).version != snapshot.version:
                return False
            for batch, errors in zip(some_batches, pool.map(delete, some_batches), strict=True):
                failed |= errors
                deleted.sizes |= {orphan.uri: orphan.size for orphan in batch if orphan.location not in errors}
    if failed:
        deleted.error = (
            f"{len(failed)} of {len(orphans)} files could not be deleted: {some(list(failed.values()), 3)}. "
            "Call it again when that is mended"
        )
        described = [describe_error(error) for error in failed.values()]
        deleted.retryable = any(error.retryable for error in described)
        kinds = {error.kind for error in described}
        deleted.error_kind = kinds.pop() if len(kinds) == 1 else None
    return True


def _split_into_batches(orphans: Sequence[Orphan]) -> Iterator[list[Orphan]]:
    """Batches of as many files as one request takes, each on one kind of storage."""
    for _, same in groupby(orphans, key=lambda orphan: orphan.location.scheme):
        found = list(same)
        yield from (found[start : start + _FILES_PER_BATCH] for start in range(0, len(found), _FILES_PER_BATCH))
