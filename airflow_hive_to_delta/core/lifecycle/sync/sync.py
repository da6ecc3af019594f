"""What Hive jobs have written since the conversion, brought into the Delta table: :func:`sync_table`.

    list -> compare with the log and the ledger -> describe what is new -> resolve the schema -> commit

As one transaction: new, replaced and dropped files in one entry, with a ``txn`` by which the same run twice changes
nothing (rule 8). Only a file that was replaced under its name needs an entry before it, which removes the old one: one
entry cannot hold a remove and an add of the same path (rules 4 and 48). Every check comes before the first of them, and
a crash between the two leaves the file to be added by the next call.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.delta import actions as log_actions
from airflow_hive_to_delta.core.delta import log as delta_log
from airflow_hive_to_delta.core.delta.snapshot import Snapshot, log_segment, snapshot_of
from airflow_hive_to_delta.core.delta.writable import check_writable
from airflow_hive_to_delta.core.errors import (
    PermanentError,
    SchemaError,
    TransientError,
    UnsupportedTableError,
)
from airflow_hive_to_delta.core.lifecycle.ledger import ledger_of
from airflow_hive_to_delta.core.lifecycle.preflight import checked_root, declared_schema, examined, partition_types_of
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.lifecycle.registered_names import update_registered_columns
from airflow_hive_to_delta.core.lifecycle.sync.changes import Differences, WaitingPartitions, differences
from airflow_hive_to_delta.core.lifecycle.sync.commit import Change, Run, commit_changes
from airflow_hive_to_delta.core.lifecycle.sync.schema import (
    SyncedSchema,
    fits_without_overwrite,
    overwritten_schema,
    physical_partition_types,
    synced_schema,
)
from airflow_hive_to_delta.core.listing.age import ListedAt, check_age, is_of_run, listed_before, now
from airflow_hive_to_delta.core.listing.base import Listing, files_as_df
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.parquet.describe import DescribedFiles, describe_files, persisted
from airflow_hive_to_delta.core.results import OutputMode, SyncResult
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.log_storage import Storage, storage_for
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_hive_to_delta.core.delta.actions import Metadata

logger = logging.getLogger(__name__)

#: How often a sync that others were faster than looks again.
_TRIES = 10
_MODES = ("append", "complete")


def sync_table(
    spark: SparkSession,
    table: TableInfo,
    listing: Listing,
    *,
    output_mode: OutputMode = "append",
    merge_schema: bool = False,
    overwrite_schema: bool = False,
    run_version: int | None = None,
    accept_conflicts: bool = False,
    allow_forgotten_entries: bool = False,
    quiet_period: timedelta | None = None,
    options: ConversionOptions | None = None,
) -> SyncResult:
    """Bring what has changed in a Hive table into the Delta table that was made of it.

    What Delta itself has deleted or rewritten stays as Delta left it.

    :param table: the Hive table, as discovery finds it now.
    :param listing: finds its files as they are now.
    :param output_mode: ``append`` adds new files and leaves those that Hive has dropped; it refuses partitions that
        Hive has written anew, whose rows would be there twice. ``complete`` mirrors what Hive has replaced and dropped.
    :param merge_schema: take over columns that Hive has got, and types that it has made wider.
    :param overwrite_schema: take over Hive's columns whatever they were before, by adding every file anew. Only with
        ``complete``.
    :param run_version: the number of this run, larger for every later one: a run whose number, or a larger one, was
        committed before changes nothing. When not given, this is a new run.
    :param accept_conflicts: add files that Hive has written anew after Delta had deleted or rewritten rows of them.
        What Delta kept of their old rows stays.
    :param allow_forgotten_entries: go on though entries of the log are gone that no sync has seen.
    :param quiet_period: leave a partition as it is, for the next sync, while one of its files in Hive is younger than
        this: a job may be in the midst of writing it. A table without partition columns is one partition. Times of
        files are the storage's, and the age is by this machine's clock at the moment of the listing, or by the time of
        the list where it was made before. Without one, what a job has written so far is taken over.
    :raises PermanentError: nothing was written.
    :raises TransientError: trying again may help; others kept committing, or the storage did not answer.
    """
    started = time.monotonic()
    options = options or ConversionOptions()
    if quiet_period is not None and quiet_period < timedelta(0):
        raise PermanentError(f"quiet_period is {quiet_period}, expected a time of at least 0")
    if output_mode not in _MODES:
        raise PermanentError(f"output_mode is {output_mode!r}, expected one of {', '.join(_MODES)}")
    if overwrite_schema and output_mode != "complete":
        raise PermanentError("overwrite_schema=True goes with output_mode='complete' only: it adds every file anew")
    root = checked_root(table, options)
    if table.format == "delta":
        raise UnsupportedTableError(
            f"{table.qualified_name} is a Delta table in its catalog: it was cut over, so there is no Hive table any "
            "more to sync from. Take it out of the sync"
        )
    asked = _Asked(
        output_mode,
        merge_schema,
        overwrite_schema,
        run_version,
        accept_conflicts,
        allow_forgotten_entries,
        quiet_period,
    )
    storage = storage_for(root, spark, options)
    known = _check_ours(table, storage, root)
    for _ in range(_TRIES):
        # Before the listing: what it does not show and a later version has was committed meanwhile, and is not gone.
        version = log_segment(storage, root).version
        listed_at = listed_before(listing, table) or ListedAt(now(), version)
        with spark_call(f"Listing the files of {table.qualified_name}"):
            listed = files_as_df(spark, listing, table, options)
        with persisted(listed) as files:
            snapshot = snapshot_of(spark, storage, root)
            if snapshot.version == version:
                result = _sync_once(snapshot, table, files, listed_at, asked, known, options)
                if result is not None:
                    notes = _update_names(snapshot, result.version, options)
                    duration = round(time.monotonic() - started, 3)
                    return replace(result, notes=[*result.notes, *notes], duration_seconds=duration)
        logger.info("%s: another writer was faster; comparing again", table.qualified_name)
    raise TransientError(
        f"{table.qualified_name} at {root}: in each of {_TRIES} tries another writer was faster. Try again later"
    )


def _update_names(snapshot: Snapshot, version: int | None, options: ConversionOptions) -> list[str]:
    """Give the table's names in Glue the columns of this version, also when an earlier call ended before it did."""
    records = Records(snapshot.storage, snapshot.root)

    def metadata() -> Metadata:
        now = snapshot if version == snapshot.version else snapshot_of(snapshot.spark, snapshot.storage, snapshot.root)
        return now.metadata

    changed = update_registered_columns(records, metadata, options)
    return [f"{', '.join(changed)} in Glue has the columns of the log now"] if changed else []


def app_id_of(snapshot: Snapshot) -> str:
    """The application id of a table's syncs in its log."""
    return f"{log_actions.DISTRIBUTION}-sync-{snapshot.metadata.id}"


@dataclass(frozen=True)
class _Asked:
    """What the caller of a sync wants."""

    output_mode: OutputMode
    merge_schema: bool
    overwrite_schema: bool
    run_version: int | None
    accept_conflicts: bool
    allow_forgotten_entries: bool
    quiet_period: timedelta | None


def _check_ours(table: TableInfo, storage: Storage, root: Location) -> frozenset[str]:
    """Refuse a log that is not of this table's conversion; the columns that the table had then."""
    records = Records(storage, root)
    kept = records.source()
    state = delta_log.log_state(storage, root)
    if not state.exists:
        raise PermanentError(
            f"{table.qualified_name} is not converted yet: {root} holds no Delta log. Convert it first"
        )
    of = kept.qualified_name if kept else state.catalog_table
    if kept is None and not state.ours:
        raise UnsupportedTableError(
            f"The Delta log at {root} was not made by a conversion of this package, so nobody knows which of its files "
            "are Hive's. Leave the table out of the sync, and load new files of Hive with Delta's own writers"
        )
    if of is not None and table.source != "none" and of != table.qualified_name:
        raise UnsupportedTableError(
            f"The Delta log at {root} was made of {of}, not of {table.qualified_name}. Sync that table"
        )
    return _names(kept.columns if kept else None) | records.columns()


def _names(columns: Sequence[Mapping[str, Any]] | None) -> frozenset[str]:
    return frozenset(column["Name"].lower() for column in columns or ())


def _sync_once(
    snapshot: Snapshot,
    table: TableInfo,
    files: DataFrame,
    listed_at: ListedAt,
    asked: _Asked,
    known: Collection[str],
    options: ConversionOptions,
) -> SyncResult | None:
    """One try against one version of the table. None: another writer was faster."""
    app_id = app_id_of(snapshot)
    last = snapshot.transactions.get(app_id)
    run_version = (last or 0) + 1 if asked.run_version is None else asked.run_version
    result = SyncResult(table.qualified_name, str(snapshot.root), True, "unchanged", snapshot.version, run_version)
    if last is not None and last >= run_version:
        word = f"Run {run_version} was committed before" if last == run_version else f"The later run {last} was before"
        notes = [f"{word}: nothing was changed"]
        waited = _waited(snapshot, last)
        return replace(
            result,
            status="already_synced",
            committed_run_version=last,
            notes=notes,
            waiting_partition_count=waited,
        )
    notes = check_age(snapshot, table, listed_at, asked.output_mode, run_version)
    check_writable(snapshot, removes=False)
    ledger = ledger_of(snapshot)
    if not asked.allow_forgotten_entries:
        ledger.check_whole(f"{table.qualified_name} cannot be synced")
    declared = declared_schema(table)
    overwrite = asked.overwrite_schema and not fits_without_overwrite(snapshot, declared, table.partition_keys)
    partition_types = _partition_types(snapshot, table, options, overwrite=overwrite)
    records = Records(snapshot.storage, snapshot.root)
    quiet_since = _quiet_since(listed_at, asked.quiet_period)
    with differences(snapshot, ledger, files, partition_types, options, records.settled(), quiet_since) as found:
        waiting = found.waiting_partitions()
        notes += _waiting_notes(found, waiting, asked.quiet_period, overwrite=overwrite)
        result = replace(result, waiting_partition_count=waiting.count, waiting_partitions=waiting.names)
        change, more = _change(table, found, asked, overwrite=overwrite)
        notes += more
        removes = found.count_live(*change.removed_before, *change.removed)
        adds = found.count(*change.added)
        if removes:
            check_writable(snapshot, removes=True)
        with _described(snapshot, table, files, found, change, partition_types, overwrite, options) as (new, schema):
            if schema is None:
                schema = synced_schema(
                    snapshot, declared, new.evidence, known, options, merge=asked.merge_schema or asked.overwrite_schema
                )
            if not (adds or removes or schema.actions):
                ledger.keep()
                return replace(result, notes=[*notes, *schema.notes])
            run = Run(app_id, run_version, asked.output_mode, listed_at.report_time, waiting.count)
            committed = commit_changes(snapshot, found, change, new, schema, list(partition_types), run, options)
        settled = found.vanished() if committed is not None and asked.accept_conflicts else []
    if committed is None:
        return None
    if schema.metadata is not None:
        records.keep_columns(_names(table.columns), committed)
    if settled:
        records.keep_settled(settled, committed)
    ledger.at(snapshot_of(snapshot.spark, snapshot.storage, snapshot.root)).keep()
    return replace(
        result,
        status="synced",
        version=committed,
        committed_run_version=run_version,
        num_added_files=adds,
        num_removed_files=removes,
        added_bytes=found.size_in_hive(*change.added),
        removed_bytes=found.size_live(*change.removed_before, *change.removed),
        notes=[*notes, *schema.notes],
    )


def _waited(snapshot: Snapshot, run_version: int) -> int:
    """How many partitions a run that was committed before has left for a later one."""
    metrics = [
        commit.info["operationMetrics"] for commit in snapshot.history if commit.ours and is_of_run(commit, run_version)
    ]
    return max((int(found.get(log_actions.WAITING, 0)) for found in metrics), default=0)


def _quiet_since(listed_at: ListedAt, quiet_period: timedelta | None) -> int | None:
    """The time after which a file is too young; None: none is."""
    if not quiet_period:
        return None
    moment = now() if listed_at.time is None else listed_at.time
    return moment - round(quiet_period.total_seconds() * 1000)


def _waiting_notes(
    found: Differences, waiting: WaitingPartitions, quiet_period: timedelta | None, *, overwrite: bool
) -> list[str]:
    notes = []
    if waiting.count:
        more = waiting.count - len(waiting.names)
        names = ", ".join(waiting.names) + (f" and {more} more" if more else "")
        young = f"files younger than {quiet_period} in {waiting.count} partition(s): {names}"
        if overwrite:
            raise TransientError(
                f"Hive has {young}. overwrite_schema=True adds every file anew, so none can wait for the next sync. "
                "Try again when Hive has not written for so long, or with a shorter quiet_period"
            )
        notes.append(
            f"Hive has {young}. What it has changed there waits for the next sync. If they are always written to, pass "
            "a shorter quiet_period"
        )
    changed = found.count("new", "replaced", "conflict")
    if quiet_period and changed and (timeless := found.count_without_time()):
        notes.append(
            f"{timeless} new or changed file(s) have no time in the list, so quiet_period did not apply to them"
        )
    return notes


def _partition_types(
    snapshot: Snapshot, table: TableInfo, options: ConversionOptions, *, overwrite: bool
) -> dict[str, str]:
    """The types by which partition values are read: the Delta table's own, unless its schema is overwritten."""
    if overwrite:
        return partition_types_of(table, options)
    types = physical_partition_types(snapshot.metadata)
    if [key.lower() for key in table.partition_keys] != [name.lower() for name in types]:
        raise SchemaError(
            f"{table.qualified_name} is partitioned by {', '.join(table.partition_keys) or 'nothing'} in Hive now, and "
            f"by {', '.join(types) or 'nothing'} in Delta. Pass overwrite_schema=True with output_mode='complete' to "
            "take over Hive's partition columns"
        )
    return types


def _change(table: TableInfo, found: Differences, asked: _Asked, *, overwrite: bool) -> tuple[Change, list[str]]:
    """What is to be committed, and what people should know; raises for what this mode cannot do."""
    name = table.qualified_name
    notes = []
    if found.count("conflict") and not asked.accept_conflicts:
        raise PermanentError(
            f"{name}: Hive has written {found.count('conflict')} file(s) anew after Delta had deleted or rewritten "
            f"rows of them or of their partition: {found.some('conflict')}. Which rows are right only people know: "
            "delete the old ones from the Delta table, then pass accept_conflicts=True, which adds the files so"
        )
    new = {"new", *(("conflict",) if found.count("conflict") else ())}
    if asked.output_mode == "append":
        rewritten = found.count("replaced", "lost") + found.count_live("conflict")
        if rewritten:
            raise PermanentError(
                f"{name}: {rewritten} file(s) of the Delta table were rewritten or deleted by Hive under their names: "
                f"{found.some('replaced', 'lost', 'conflict')}. Appending cannot mend that: pass "
                "output_mode='complete', which mirrors what Hive has done"
            )
        if partitions := found.rewritten_partitions():
            raise PermanentError(
                f"{name}: Hive has dropped files of the partition(s) {', '.join(partitions)} and written others there, "
                "so appending these could double rows. Pass output_mode='complete', which mirrors what Hive has done"
            )
        if found.count("gone"):
            stay = f"{found.count('gone')} file(s) that Hive has no more stay in the Delta table"
            notes.append(
                f"{stay}: append only adds. If they were deleted, it cannot be read before output_mode='complete'"
            )
        return Change(frozenset(), frozenset(), frozenset(new)), notes
    if found.count("lost"):
        notes.append(
            f"{found.count('lost')} file(s) that Delta had written were deleted with Hive's own, as INSERT OVERWRITE "
            f"does with all that lies in a folder, and are removed from the log: {found.some('lost')}"
        )
    if not overwrite:
        before = frozenset({"replaced", "conflict"})
        return Change(before, frozenset({"gone", "lost"}), frozenset({"replaced", *new})), notes
    if found.count("delta", "taken", "lost"):
        raise SchemaError(
            f"{name}: overwrite_schema=True adds every file of Hive anew, but Delta has written to this table, and its "
            "writes would be lost. Roll the table back and convert it again, or change the columns in Delta"
        )
    every = frozenset({"replaced", "same", "conflict"})
    return Change(every, frozenset({"gone", "lost"}), frozenset({*every, *new})), notes


@contextmanager
def _described(
    snapshot: Snapshot,
    table: TableInfo,
    files: DataFrame,
    found: Differences,
    change: Change,
    partition_types: dict[str, str],
    overwrite: bool,
    options: ConversionOptions,
) -> Iterator[tuple[DescribedFiles, SyncedSchema | None]]:
    """The files to add, described; and the schema where it is overwritten by what they and Hive's catalog say."""
    spark, root = snapshot.spark, snapshot.root
    chosen = found.of(change.added).selectExpr("h_path AS path")
    added = files.join(chosen, "path", "left_semi")
    if overwrite:
        with examined(spark, table, added, root, partition_types, options) as whole:
            schema = overwritten_schema(snapshot, whole.schema, list(partition_types))
            yield whole.files, schema
        return
    with describe_files(spark, added, root, partition_types, options) as described:
        yield described, None
