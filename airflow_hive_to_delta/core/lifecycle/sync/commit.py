"""The entries of a sync: what is removed and added, as actions of the log, committed in order (rules 4 and 8)."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from airflow_hive_to_delta.core.delta import actions as log_actions
from airflow_hive_to_delta.core.delta.log import commits as delta_log
from airflow_hive_to_delta.core.delta.writable import in_commit_timestamp
from airflow_hive_to_delta.core.errors import TransientError
from airflow_hive_to_delta.core.lifecycle.commit_writer import write_actions, write_adds
from airflow_hive_to_delta.core.spark.errors import spark_call

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.delta.snapshot import Snapshot
    from airflow_hive_to_delta.core.lifecycle.sync.changes import Differences
    from airflow_hive_to_delta.core.lifecycle.sync.schema import SyncedSchema
    from airflow_hive_to_delta.core.options import ConversionOptions, OutputMode
    from airflow_hive_to_delta.core.parquet.describe import DescribedFiles


@dataclass(frozen=True)
class Change:
    """What a sync is about to commit."""

    #: Kinds of :class:`Differences` whose live files are removed, in an entry before, or in the same one.
    removed_before: frozenset[str]
    removed: frozenset[str]
    added: frozenset[str]


@dataclass(frozen=True)
class Run:
    """What the entries say of the sync that writes them."""

    app_id: str
    version: int
    output_mode: OutputMode
    #: The time of the S3 Inventory report that the files are from, in milliseconds since the epoch; None: from none.
    report_time: int | None
    waiting_partitions: int


def commit_changes(
    snapshot: Snapshot,
    found: Differences,
    change: Change,
    new: DescribedFiles,
    schema: SyncedSchema,
    partition_columns: list[str],
    run: Run,
    options: ConversionOptions,
) -> int | None:
    """Write the entries. Returns the version that was committed, or None when another writer was faster."""
    expected = found.count(*change.added)
    if new.file_count != expected:
        raise TransientError(f"{new.file_count} files were described of {expected} to add; list the files again")
    now = time.time_ns() // 1_000_000
    before = found.count_live(*change.removed_before)

    def info(added: int, removed: int, step: int) -> tuple[str, dict[str, Any]]:
        txn_id = str(uuid.uuid4())
        stamp = in_commit_timestamp(snapshot, now, step)
        said = log_actions.sync_commit_info(
            output_mode=run.output_mode,
            app_id=run.app_id,
            run_version=run.version,
            added=added,
            removed=removed,
            txn_id=txn_id,
            in_commit_timestamp=stamp,
            listed_at=run.report_time,
            waiting_partitions=run.waiting_partitions,
        )
        return txn_id, said

    with tempfile.TemporaryFile() as entry:
        removed = found.count_live(*change.removed)
        txn_id, said = info(expected, removed, 1 if before else 0)
        write_actions(entry, [said, *schema.actions, log_actions.txn_action(run.app_id, run.version)])
        _write_removes(entry, found, change.removed, now)
        doing = f"Collecting the add actions of {snapshot.root}"
        write_adds(
            snapshot.spark, entry, new, schema.physical, partition_columns, schema.configuration, options, doing=doing
        )
        version = snapshot.version + 1
        previous = next((c.info.get("txnId") for c in snapshot.history if c.version == snapshot.version), None)
        if before:
            with tempfile.TemporaryFile() as first:
                first_id, first_said = info(0, before, 0)
                write_actions(first, [first_said])
                _write_removes(first, found, change.removed_before, now)
                if not delta_log.commit(snapshot.storage, snapshot.root, version, first, first_id, previous=previous):
                    return None
            version, previous = version + 1, first_id
        committed = delta_log.commit(snapshot.storage, snapshot.root, version, entry, txn_id, previous=previous)
        return version if committed else None


def _write_removes(entry: IO[bytes], found: Differences, kinds: Collection[str], now: int) -> None:
    expected = found.count_live(*kinds)
    if not expected:
        return
    rows = found.of(kinds).where("l_path IS NOT NULL").select("l_path", "l_values", "l_size", "l_vector")
    written = 0
    with spark_call("Collecting the files to remove"):
        for row in rows.toLocalIterator():
            vector = row.l_vector.asDict() if row.l_vector else None
            write_actions(entry, [log_actions.remove_action(row.l_path, row.l_values, row.l_size, vector, now)])
            written += 1
    if written != expected:
        raise TransientError(f"{written} files were found to remove instead of {expected}; try again")
