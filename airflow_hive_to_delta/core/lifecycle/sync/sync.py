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
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.delta import actions as log_actions
from airflow_hive_to_delta.core.delta.log import commits as delta_log
from airflow_hive_to_delta.core.delta.snapshot import Snapshot, snapshot_of
from airflow_hive_to_delta.core.delta.writable import check_writable
from airflow_hive_to_delta.core.errors import (
    HiveToDeltaError,
    MissingError,
    PermanentError,
    SchemaError,
    TransientError,
    UnsupportedTableError,
)
from airflow_hive_to_delta.core.lifecycle.context import TableContext
from airflow_hive_to_delta.core.lifecycle.ledger import read_ledger
from airflow_hive_to_delta.core.lifecycle.preflight import declare_schema, parse_partition_types, preflight
from airflow_hive_to_delta.core.lifecycle.registered_names import update_registered_columns
from airflow_hive_to_delta.core.lifecycle.sync.changes import Differences, find_differences
from airflow_hive_to_delta.core.lifecycle.sync.commit import Change, Run, commit_changes
from airflow_hive_to_delta.core.lifecycle.sync.plan import note_waiting, plan_change, quiet_since
from airflow_hive_to_delta.core.lifecycle.sync.schema import (
    SyncedSchema,
    fits_without_overwrite,
    make_overwritten_schema,
    physical_partition_types,
    resolve_synced_schema,
)
from airflow_hive_to_delta.core.listing.age import ListedAt, check_age, is_of_run, listed_before, now
from airflow_hive_to_delta.core.listing.base import Listing
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions, SyncOptions
from airflow_hive_to_delta.core.parquet.describe import DescribedFiles, describe_files
from airflow_hive_to_delta.core.results import SyncResult
from airflow_hive_to_delta.core.spark.delta_log import write_latest_checkpoint
from airflow_hive_to_delta.core.spark.errors import spark_call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_hive_to_delta.core.delta.actions import Metadata
    from airflow_hive_to_delta.core.files import ListedFiles
    from airflow_hive_to_delta.core.lifecycle.records import Records

logger = logging.getLogger(__name__)

#: How often a sync that others were faster than looks again.
_TRIES = 10
#: Versions between two checkpoints, where ``delta.checkpointInterval`` does not say.
_CHECKPOINT_INTERVAL = 10


def sync_table(
    spark: SparkSession,
    table: TableInfo,
    listing: Listing,
    *,
    run_version: int | None = None,
    sync_options: SyncOptions | None = None,
    options: ConversionOptions | None = None,
    **flags: Any,
) -> SyncResult:
    """Bring what has changed in a Hive table into the Delta table that was made of it.

    What Delta itself has deleted or rewritten stays as Delta left it.

    :param table: the Hive table, as discovery finds it now.
    :param listing: finds its files as they are now.
    :param run_version: the number of this run, larger for every later one: a run whose number, or a larger one, was
        committed before changes nothing. When not given, this is a new run.
    :param sync_options: what to bring, and which checks to give up.
    :param options: those that the table was converted with.
    :param flags: fields of :class:`SyncOptions`, such as ``output_mode="complete"``, instead of ``sync_options``.
    :raises PermanentError: nothing was written.
    :raises TransientError: trying again may help; others kept committing, or the storage did not answer.
    """
    started = time.monotonic()
    options = options or ConversionOptions()
    sync_options = _sync_options(sync_options, flags)
    context = TableContext.open(spark, table, options)
    if table.format == "delta":
        raise UnsupportedTableError(
            f"{table.qualified_name} is a Delta table in its catalog: it was cut over, so there is no Hive table any "
            "more to sync from. Take it out of the sync"
        )
    for _ in range(_TRIES):
        # Before the listing: what it does not show and a later version has was committed meanwhile, and is not gone.
        # The log is not listed again after it: a change is committed as the next version of this one, or not at all.
        snapshot = _open_snapshot(context)
        records = context.records.with_names()
        known = _check_ours(context, records)
        listed_at = listed_before(listing, table) or ListedAt(now(), snapshot.version)
        with spark_call(f"Listing the files of {table.qualified_name}"):
            listed = context.list_files(listing)
        with listed.kept() as files:
            attempt = _Attempt(context, snapshot, records, files, listed_at, known)
            try:
                result = attempt.sync(run_version, sync_options)
            except HiveToDeltaError:
                # Files of a version that was committed meanwhile look like new ones of Hive.
                if attempt.is_committing or not _is_outdated(snapshot):
                    raise
                result = None
        if result is not None:
            notes = _update_names(context, records, snapshot, result)
            duration = round(time.monotonic() - started, 3)
            return replace(result, notes=[*result.notes, *notes], duration_seconds=duration)
        logger.info("%s: another writer was faster; comparing again", table.qualified_name)
    raise TransientError(
        f"{context.name} at {context.root}: in each of {_TRIES} tries another writer was faster. Try again later"
    )


def _open_snapshot(context: TableContext) -> Snapshot:
    """The latest version of the table.

    :raises PermanentError: the table is not converted yet.
    """
    try:
        return snapshot_of(context.spark, context.storage, context.root)
    except MissingError:
        if not delta_log.log_state(context.storage, context.root).exists:
            raise PermanentError(
                f"{context.name} is not converted yet: {context.root} holds no Delta log. Convert it first"
            ) from None
        raise


def _is_outdated(snapshot: Snapshot) -> bool:
    """Whether the table has another version by now, as far as its log can be listed."""
    try:
        return delta_log.latest_version(snapshot.storage, snapshot.root) != snapshot.version
    except HiveToDeltaError:
        return False


def _update_names(context: TableContext, records: Records, snapshot: Snapshot, result: SyncResult) -> list[str]:
    """Give the table's names in Glue the columns of this version, also when an earlier call ended before it did."""
    is_same = result.version == snapshot.version

    def metadata() -> Metadata:
        now = snapshot if is_same else snapshot_of(snapshot.spark, snapshot.storage, snapshot.root)
        return now.metadata

    changed = update_registered_columns(records if is_same else context.records, metadata, context.options)
    return [f"{', '.join(changed)} in Glue has the columns of the log now"] if changed else []


def make_app_id(snapshot: Snapshot) -> str:
    """The application id of a table's syncs in its log."""
    return f"{log_actions.DISTRIBUTION}-sync-{snapshot.metadata.id}"


def _sync_options(given: SyncOptions | None, flags: dict[str, Any]) -> SyncOptions:
    if given is not None and flags:
        raise PermanentError(f"sync_options and {', '.join(flags)} were given, expected either")
    try:
        return given or SyncOptions(**flags)
    except ValueError as error:
        raise PermanentError(str(error)) from error


def _check_ours(context: TableContext, records: Records) -> frozenset[str]:
    """Refuse a log that is not of this table's conversion. Returns the columns that the table had then."""
    table, root = context.table, context.root
    kept = records.source()
    if kept is None:
        state = delta_log.log_state(context.storage, root)
        if not state.ours:
            raise UnsupportedTableError(
                f"The Delta log at {root} was not made by a conversion of this package, so nobody knows which of its "
                "files are Hive's. Leave the table out of the sync, and load new files of Hive with Delta's own writers"
            )
    of = kept.qualified_name if kept else state.catalog_table
    if of is not None and table.source != "none" and of != table.qualified_name:
        raise UnsupportedTableError(
            f"The Delta log at {root} was made of {of}, not of {table.qualified_name}. Sync that table"
        )
    return _names(kept.columns if kept else None) | records.columns()


def _names(columns: Sequence[Mapping[str, Any]] | None) -> frozenset[str]:
    return frozenset(column["Name"].lower() for column in columns or ())


@dataclass
class _Attempt:
    """One try against one version of the table."""

    context: TableContext
    snapshot: Snapshot
    records: Records
    files: ListedFiles
    listed_at: ListedAt
    #: The columns that the table had when it was converted, or that a sync has taken over.
    known: Collection[str]
    #: Whether entries of the log are being written.
    is_committing: bool = False

    def sync(self, run_version: int | None, sync_options: SyncOptions) -> SyncResult | None:
        """Compare the files with this version and commit what differs. Returns None when another writer was faster."""
        snapshot, files = self.snapshot, self.files
        context, table, options = self.context, self.context.table, self.context.options
        app_id = make_app_id(snapshot)
        last = snapshot.transactions.get(app_id)
        run_version = (last or 0) + 1 if run_version is None else run_version
        result = SyncResult(table.qualified_name, str(snapshot.root), True, "unchanged", snapshot.version, run_version)
        if last is not None and last >= run_version:
            reason = (
                f"Run {run_version} was committed before" if last == run_version else f"The later run {last} was before"
            )
            notes = [f"{reason}: nothing was changed"]
            waited = _count_waited(snapshot, last)
            return replace(
                result,
                status="already_synced",
                committed_run_version=last,
                notes=notes,
                waiting_partition_count=waited,
            )
        notes = check_age(snapshot, table, self.listed_at, sync_options.output_mode, run_version)
        check_writable(snapshot, removes=False)
        ledger = read_ledger(snapshot)
        if not sync_options.allow_forgotten_entries:
            ledger.check_whole(f"{table.qualified_name} cannot be synced")
        declared = declare_schema(table)
        overwrite = sync_options.overwrite_schema and not fits_without_overwrite(
            snapshot, declared, table.partition_keys
        )
        partition_types = _partition_types(context, snapshot, overwrite=overwrite)
        young_after = quiet_since(self.listed_at, sync_options.quiet_period)
        with find_differences(
            snapshot, ledger, files, partition_types, options, self.records.settled(), young_after
        ) as found:
            waiting = found.waiting_partitions()
            notes += note_waiting(found, waiting, sync_options.quiet_period, overwrite=overwrite)
            result = replace(result, waiting_partition_count=waiting.count, waiting_partitions=waiting.names)
            change, more = plan_change(table, found, sync_options, overwrite=overwrite)
            notes += more
            removes = found.count_live(*change.removed_before, *change.removed)
            adds = found.count(*change.added)
            if removes:
                check_writable(snapshot, removes=True)
            with _describe_added(context, snapshot, files, found, change, partition_types, overwrite) as (new, schema):
                if schema is None:
                    schema = resolve_synced_schema(
                        snapshot,
                        declared,
                        new.evidence,
                        self.known,
                        options,
                        merge=sync_options.merge_schema or sync_options.overwrite_schema,
                    )
                if not (adds or removes or schema.actions):
                    # Nothing is written beside a log that was rolled back meanwhile.
                    if not ledger.is_kept and _is_outdated(snapshot):
                        return None
                    ledger.keep()
                    return replace(result, notes=[*notes, *schema.notes])
                run = Run(app_id, run_version, sync_options.output_mode, self.listed_at.report_time, waiting.count)
                self.is_committing = True
                committed = commit_changes(snapshot, found, change, new, schema, list(partition_types), run, options)
            settled = found.vanished() if committed is not None and sync_options.accept_conflicts else []
        if committed is None:
            return None
        if schema.metadata is not None:
            self.records.keep_columns(_names(table.columns), committed)
        if settled:
            self.records.keep_settled(settled, committed)
        ledger.at(snapshot_of(snapshot.spark, snapshot.storage, snapshot.root)).keep()
        if _wants_checkpoint(schema.configuration, snapshot.version, committed):
            write_latest_checkpoint(snapshot.spark, str(snapshot.root), snapshot.metadata.id)
        return replace(
            result,
            status="synced",
            version=committed,
            committed_run_version=run_version,
            num_added_files=adds,
            num_removed_files=removes,
            added_bytes=found.size_in_hive(*change.added),
            removed_bytes=found.size_live(*change.removed_before, *change.removed),
            notes=[*notes, *schema.notes, *new.notes],
        )


def _wants_checkpoint(properties: Mapping[str, str], before: int, committed: int) -> bool:
    """Whether Delta's writers would have written a checkpoint after one of the versions since ``before``."""
    interval = properties.get("delta.checkpointInterval", "")
    every = int(interval) if interval.isdecimal() and int(interval) else _CHECKPOINT_INTERVAL
    return before // every < committed // every


def _count_waited(snapshot: Snapshot, run_version: int) -> int:
    """How many partitions a run that was committed before has left for a later one."""
    metrics = [
        commit.info["operationMetrics"] for commit in snapshot.history if commit.ours and is_of_run(commit, run_version)
    ]
    return max((int(found.get(log_actions.WAITING, 0)) for found in metrics), default=0)


def _partition_types(context: TableContext, snapshot: Snapshot, *, overwrite: bool) -> dict[str, str]:
    """The types by which partition values are read: the Delta table's own, unless its schema is overwritten."""
    table = context.table
    if overwrite:
        return parse_partition_types(context)
    types = physical_partition_types(snapshot.metadata)
    if [key.lower() for key in table.partition_keys] != [name.lower() for name in types]:
        raise SchemaError(
            f"{table.qualified_name} is partitioned by {', '.join(table.partition_keys) or 'nothing'} in Hive now, and "
            f"by {', '.join(types) or 'nothing'} in Delta. Pass overwrite_schema=True with output_mode='complete' to "
            "take over Hive's partition columns"
        )
    return types


@contextmanager
def _describe_added(
    context: TableContext,
    snapshot: Snapshot,
    files: ListedFiles,
    found: Differences,
    change: Change,
    partition_types: dict[str, str],
    overwrite: bool,
) -> Iterator[tuple[DescribedFiles, SyncedSchema | None]]:
    """Describe the files to add; and resolve the schema where it is overwritten by what they and Hive's catalog say."""
    if not (overwrite or found.count(*change.added)):
        yield DescribedFiles.none(context.spark), None
        return
    added = files.select(found.of(change.added).selectExpr("h_path AS path"))
    if overwrite:
        with preflight(context, added, partition_types) as whole:
            schema = make_overwritten_schema(snapshot, whole.schema, list(partition_types))
            yield whole.files, schema
        return
    with describe_files(context.spark, added, context.root, partition_types, context.options) as described:
        yield described, None
