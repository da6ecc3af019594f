"""Vacuum outside the root: files that Delta removed long ago, where its own VACUUM never looks (rules 49 and 50).

Only what is certain is deleted. Whatever cannot be read or asked is an error, and nothing is deleted then; whatever is
in doubt about one file keeps that file, and a note says why.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import TYPE_CHECKING, NamedTuple

from airflow_hive_to_delta.core.catalogs.references import (
    find_catalog_references,
)
from airflow_hive_to_delta.core.delta.roots import delta_roots, folders_above
from airflow_hive_to_delta.core.delta.snapshot import Snapshot, log_segment, snapshot_of, some
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView, view_of
from airflow_hive_to_delta.core.delta.writable import check_vacuum
from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    HiveToDeltaError,
    PermanentError,
    TransientError,
    describe_error,
)
from airflow_hive_to_delta.core.lifecycle.ledger import ledger_of
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.results import VacuumResult
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.existence import look_up_files
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import (
    Location,
    canonical_uri,
    check_allowed,
    loose_uri,
    loose_uri_column,
    parse_location,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    :param dry_run: only say what would go.
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
        retention, notes = _retention(snapshot, retention_hours, allow_short_retention)
        orphans = _orphans(spark, snapshot, retention, given, options, dropped, notes)
        if dry_run or _delete(spark, snapshot, orphans, options, deleted):
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


class _Orphan(NamedTuple):
    location: Location
    size: int

    @property
    def uri(self) -> str:
        return str(self.location)


class _Removed(NamedTuple):
    """What the log says of a file that it has removed."""

    size: int | None
    #: When Hive's file was last written, as far as the log knows.
    modified: int | None
    removed_at: int


_TRIES = 5
_WORKERS = 8
_FILES_PER_BATCH = 1_000
#: Listings of one storage through two clients agree to the second.
_SAME_TIME_MS = 1_000
_REFERENCED = "lie under a location that the catalog still has. Drop the partition there when Hive needs it no more"
_IN_DELTA_TABLE = "lie under the root of another Delta table, whose they may be"
_ABSOLUTE = "^([A-Za-z][A-Za-z0-9+.-]*:|/)"
_MILLIS = {"week": 604_800_000, "day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1_000,
           "millisecond": 1, "microsecond": 0.001}  # fmt: skip
_HOUR = _MILLIS["hour"]


# --- how long --------------------------------------------------------------------------------------------------------


def _retention(snapshot: Snapshot, hours: float, allow_short: bool) -> tuple[float, list[str]]:
    """The retention in milliseconds, and what to say about it."""
    if hours < 0:
        raise PermanentError(f"retention_hours is {hours}, expected 0 or more")
    text = snapshot.metadata.configuration.get("delta.deletedFileRetentionDuration")
    least = DEFAULT_RETENTION_HOURS if text is None else _interval(text, snapshot.root) / _HOUR
    if hours >= least or allow_short:
        return hours * _HOUR, []
    if hours == DEFAULT_RETENTION_HOURS:
        return least * _HOUR, [f"The table keeps removed files for {least:g} hours ({text}), so that is the retention"]
    raise PermanentError(
        f"retention_hours is {hours:g}, and {snapshot.root} keeps removed files for {least:g} hours "
        f"({text or 'the default'}). Nothing was deleted. If nobody needs older versions, pass "
        "allow_short_retention=True"
    )


def _interval(text: str, root: Location) -> float:
    """Milliseconds of an interval as Delta's properties have it: ``interval 1 week``."""
    words = text.lower().replace("interval", "", 1).split()
    units = [unit.rstrip("s") for unit in words[1::2]]
    try:
        if not words or len(words) % 2:
            raise ValueError(text)  # noqa: TRY301
        return sum(float(count) * _MILLIS[unit] for count, unit in zip(words[::2], units, strict=True))
    except (ValueError, KeyError) as error:
        raise PermanentError(
            f"{root} has delta.deletedFileRetentionDuration = {text!r}, expected something like 'interval 1 week'. "
            "Nothing was deleted"
        ) from error


# --- which files -----------------------------------------------------------------------------------------------------


def _orphans(
    spark: SparkSession,
    snapshot: Snapshot,
    retention: float,
    given: TableInfo | None,
    options: ConversionOptions,
    dropped: Sequence[str],
    notes: list[str],
) -> list[_Orphan]:
    """The files that may go, and notes on those that may not."""
    _check_whole(snapshot)
    kept = Counter[str]()
    until = time.time() * 1000 - retention
    with spark_call(f"Looking for the files that were removed from {snapshot.root}"):
        removed = list(_removed_before(snapshot, until, options, kept))
    orphans = []
    if removed:
        source = _source(snapshot, given, options)
        registrations = Records(snapshot.storage, snapshot.root).registrations()
        references = find_catalog_references(spark, source, registrations, options, dropped)
        unreferenced = [(file, known) for file, known in removed if not references.cover(file)]
        kept[_REFERENCED] += len(removed) - len(unreferenced)
        free = _outside_delta_tables(unreferenced, spark, options)
        kept[_IN_DELTA_TABLE] += len(unreferenced) - len(free)
        for file, known, found in look_up_files(free, spark, options):
            if found is None:
                continue  # an earlier vacuum, or somebody else, has deleted it
            since = known.modified or known.removed_at
            if known.size not in (None, found.size) or found.modified > since + _SAME_TIME_MS:
                kept["were written again since Delta removed them"] += 1
            else:
                orphans.append(_Orphan(file, found.size))
    notes += [f"{count} removed files outside the root were kept: they {why}" for why, count in kept.items() if count]
    return orphans


def _check_whole(snapshot: Snapshot) -> None:
    """Every entry that is left can be read, and none is missing between two others."""
    versions = sorted(snapshot.segment.times)
    holes = sorted(set(range(versions[0], snapshot.version + 1)) - set(versions)) if versions else []
    if holes:
        raise PermanentError(
            f"The log of {snapshot.root} has no entry {some(holes)}, but entries before and after. Restore the log; "
            "nothing was deleted"
        )
    if versions:
        with spark_call(f"Reading every entry of the log of {snapshot.root}; nothing was deleted"):
            # All columns: of an entry that is only half read, half could be anything.
            snapshot.read_commits(versions).selectExpr("xxhash64(to_json(struct(*))) AS print").agg(
                {"print": "max"}
            ).first()


def _removed_before(
    snapshot: Snapshot, until: float, options: ConversionOptions, kept: Counter[str]
) -> Iterator[tuple[Location, _Removed]]:
    """Files outside the root that are not live and were removed before a time, in the order of their places."""
    for row in _external(snapshot).toLocalIterator():
        location = _location(row.key)
        if row.is_live:
            kept["are live, with other rows deleted or by another spelling"] += 1
        elif row.hive is None:
            kept["were put into the table by Delta, and may be another table's, as those of a clone are"] += 1
        elif not row.hive:
            # By a sync, because Hive had dropped the partition: an external table keeps its files for another day.
            kept["were dropped in Hive, and are Hive's to delete"] += 1
        elif row.removed_at is None:
            kept["have no time of removal in the log"] += 1
        elif row.removed_at > until:
            kept["were removed more recently than the retention"] += 1
        elif location is None:
            kept["have a path that is no plain place on a storage"] += 1
        elif not _is_allowed(location, options):
            kept["lie outside the allowed roots"] += 1
        else:
            yield location, _Removed(row.size, row.hive_time, row.removed_at)


def _external(snapshot: Snapshot) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    root = f"{loose_uri(canonical_uri(snapshot.root))}/"
    ledger = ledger_of(snapshot)
    written = ledger.files().select("key", "hive", "hive_time", "hive_size")
    live = snapshot.files.select("key", loose_uri_column("key").alias("loose_uri")).withColumn("is_live", F.lit(True))
    said = snapshot.removed.select("key", "path", "deletion_timestamp", "size")
    versions = sorted(snapshot.segment.times)
    if versions:
        entries = snapshot.file_actions(snapshot.read_commits(versions), "remove")
        said = said.union(entries.select("key", "path", "deletionTimestamp", "size"))
    removed = (
        said.where(F.col("path").rlike(_ABSOLUTE))
        .groupBy("key")
        .agg(
            # A file can be removed with several deletion vectors; the last time counts, and one unknown time is enough.
            F.when(F.bool_and(F.col("deletion_timestamp").isNotNull()), F.max("deletion_timestamp")).alias(
                "removed_at"
            ),
            F.max("size").alias("size"),
        )
    )
    # Delta forgets a removal when it is as old as a vacuum waits for. What the ledger has, and the log has no word of
    # any more, was removed before the oldest entry that is left.
    oldest = snapshot.history[-1].timestamp if versions and not ledger.forgotten else None
    forgotten = (
        written.where("hive")
        .join(removed, "key", "left_anti")
        .join(live, "key", "left_anti")
        .select("key", F.lit(oldest).cast("bigint").alias("removed_at"), F.col("hive_size").alias("size"))
    )
    live_uris = live.select("loose_uri", "is_live").distinct()
    return (
        removed.union(forgotten)
        .withColumn("loose_uri", loose_uri_column("key"))
        .where(~F.col("loose_uri").startswith(root))
        .join(live_uris, "loose_uri", "left")
        .join(written.drop("hive_size"), "key", "left")
        .orderBy("key")
    )


def _location(key: str) -> Location | None:
    """The location of a key; None when it is spelt so that it may lead elsewhere."""
    try:
        location = parse_location(key)
    except PermanentError:
        return None
    return location if canonical_uri(location) == key else None


def _is_allowed(location: Location, options: ConversionOptions) -> bool:
    try:
        check_allowed(location, options.allowed_roots)
    except PermanentError:
        return False
    return True


def _outside_delta_tables(
    files: Sequence[tuple[Location, _Removed]], spark: SparkSession, options: ConversionOptions
) -> list[tuple[Location, _Removed]]:
    """The files that lie under no other Delta table's root.

    Every folder above a file is looked at, up to the root of its storage. Above the allowed roots, where an identity
    often has no rights, one that may not be listed is passed over: whoever named the roots answers for it.
    """

    def is_above_allowed(folder: Location) -> bool:
        return bool(options.allowed_roots) and not _is_allowed(folder, options)

    folders = folders_above(file for file, _ in files)
    try:
        roots = {root.canonical for root in delta_roots(folders, spark, options, may_be_unknown=is_above_allowed)}
    except AccessDeniedError as error:
        raise AccessDeniedError(
            f"Whether a folder above the files to be deleted is another Delta table cannot be told: {error}. Nothing "
            "was deleted. Or name the locations that may be deleted from in ConversionOptions(allowed_roots=[…]): "
            "folders above those need not be listable"
        ) from error
    if not roots:
        return list(files)
    return [(file, known) for file, known in files if not any(f.canonical in roots for f in folders_above([file]))]


def _source(snapshot: Snapshot, given: TableInfo | None, options: ConversionOptions) -> TableInfo:
    """The Hive table, whose metastore is to be asked."""
    kept = Records(snapshot.storage, snapshot.root).source()
    source = given if given is not None and given.source != "none" else kept
    if source is None:
        raise PermanentError(
            f"No record of the Hive table that {snapshot.root} was converted from is kept beside its log, so no "
            "metastore can be asked what it still has. Nothing was deleted. Pass the table as GlueDiscovery or "
            "UCDiscovery finds it"
        )
    if source.source == "none" and not options.allowed_roots:
        raise PermanentError(
            f"{snapshot.root} was converted from a list of files, so no metastore can be asked what it still has. "
            "Nothing was deleted. Pass the Hive table as a discovery finds it; or, if there is none, name the places "
            "that may be deleted from in ConversionOptions(allowed_roots=[…])"
        )
    return source


# --- deleting --------------------------------------------------------------------------------------------------------


@dataclass
class _Deleted:
    sizes: dict[str, int] = field(default_factory=dict)
    error: str | None = None
    retryable: bool | None = None
    #: The kind of all errors, if they are of one.
    error_kind: str | None = None


def _delete(
    spark: SparkSession,
    snapshot: Snapshot,
    orphans: Sequence[_Orphan],
    options: ConversionOptions,
    deleted: _Deleted,
) -> bool:
    """Delete them. False: the table was written to, so that one of them may be live again; look anew."""

    def delete(batch: Sequence[_Orphan]) -> dict[Location, HiveToDeltaError]:
        return storage_for(batch[0].location, spark, options).delete_files([orphan.location for orphan in batch])

    failed: dict[Location, HiveToDeltaError] = {}
    batches = _batches(orphans)
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


def _batches(orphans: Sequence[_Orphan]) -> Iterator[list[_Orphan]]:
    """As many as one request takes, each batch on one kind of storage."""
    for _, same in groupby(orphans, key=lambda orphan: orphan.location.scheme):
        found = list(same)
        yield from (found[start : start + _FILES_PER_BATCH] for start in range(0, len(found), _FILES_PER_BATCH))
