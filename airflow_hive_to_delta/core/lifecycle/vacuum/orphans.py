"""Which files outside a table's root Delta removed long ago, and nothing refers to any more (rules 49 and 50)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from airflow_hive_to_delta.core.catalogs.references import find_catalog_references
from airflow_hive_to_delta.core.delta.log.files import some
from airflow_hive_to_delta.core.delta.roots import delta_roots, folders_above
from airflow_hive_to_delta.core.delta.snapshot import Snapshot
from airflow_hive_to_delta.core.errors import AccessDeniedError, PermanentError
from airflow_hive_to_delta.core.lifecycle.ledger import read_ledger
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.existence import look_up_files
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


class Orphan(NamedTuple):
    """A file that may be deleted."""

    location: Location
    size: int

    @property
    def uri(self) -> str:
        return str(self.location)


def find_orphans(
    spark: SparkSession,
    snapshot: Snapshot,
    retention: float,
    given: TableInfo | None,
    options: ConversionOptions,
    dropped: Sequence[str],
    notes: list[str],
) -> list[Orphan]:
    """Find the files that may be deleted, and add notes on those that may not.

    :param retention: milliseconds that a removed file is kept for.
    :param given: the Hive table, where the caller has given one.
    :param dropped: names of tables and schemas that the caller knows to be dropped.
    :raises HiveToDeltaError: the log, a catalog or the storage could not be read.
    """
    _check_log_is_whole(snapshot)
    kept = Counter[str]()
    until = time.time() * 1000 - retention
    with spark_call(f"Looking for the files that were removed from {snapshot.root}"):
        removed = list(_removed_before(snapshot, until, options, kept))
    orphans = []
    if removed:
        source = _choose_source(snapshot, given, options)
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
                orphans.append(Orphan(file, found.size))
    notes += [f"{count} removed files outside the root were kept: they {why}" for why, count in kept.items() if count]
    return orphans


#: Listings of one storage through two clients agree to the second.
_SAME_TIME_MS = 1_000
_REFERENCED = "lie under a location that the catalog still has. Drop the partition there when Hive needs it no more"
_IN_DELTA_TABLE = "lie under the root of another Delta table, whose they may be"
_ABSOLUTE = "^([A-Za-z][A-Za-z0-9+.-]*:|/)"


class _Removed(NamedTuple):
    """What the log says of a file that it has removed."""

    size: int | None
    #: When Hive's file was last written, as far as the log knows.
    modified: int | None
    removed_at: int


def _check_log_is_whole(snapshot: Snapshot) -> None:
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
    """Files outside the root that are not live and were removed before a time, in the order of their locations."""
    for row in _find_external(snapshot).toLocalIterator():
        location = _parse_key(row.key)
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


def _find_external(snapshot: Snapshot) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    root = f"{loose_uri(canonical_uri(snapshot.root))}/"
    ledger = read_ledger(snapshot)
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
    # Delta forgets a removal when it is as old as a vacuum waits for. What the ledger has, and the log does not name
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


def _parse_key(key: str) -> Location | None:
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


def _choose_source(snapshot: Snapshot, given: TableInfo | None, options: ConversionOptions) -> TableInfo:
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
