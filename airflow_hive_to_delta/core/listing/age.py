"""The age of a list of files, and whether a sync may use it (rule 57).

A list that was made before the last sync does not have the files that this sync added. A sync that mirrors such a list
would remove them from the Delta table again. A list of an earlier task has the version that the log had before it was
made. An S3 Inventory report has only the time at which S3 began to scan the bucket, which is compared with

- the time of the report that an entry of the log was made from, if it was made from one: both are times of S3;
- otherwise the modification time of the entry, which is a time of S3 too where the table is on S3.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.delta import actions as log_actions
from airflow_hive_to_delta.core.errors import PermanentError, StaleFileListError
from airflow_hive_to_delta.core.listing.base import DatedListing, Listing, MadeListing

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.delta.log.entries import Commit
    from airflow_hive_to_delta.core.delta.snapshot import Snapshot
    from airflow_hive_to_delta.core.models import TableInfo
    from airflow_hive_to_delta.core.options import OutputMode


@dataclass(frozen=True)
class ListedAt:
    """When a list of a table's files was made."""

    #: The time at which listing began, or one before it, in milliseconds since the epoch; None: not known.
    time: int | None
    #: The version that the table's log had before the files were listed, -1 for none; None: not known.
    version: int | None

    @property
    def report_time(self) -> int | None:
        """The time of a list for which no version is known, such as an S3 Inventory report; None for any other."""
        return self.time if self.version is None else None


def listed_before(listing: Listing, table: TableInfo) -> ListedAt | None:
    """When the files of a table were listed; None for a listing that has not listed them yet."""
    if isinstance(listing, MadeListing):
        return ListedAt(listing.listed_at_time(table), listing.listed_at_version(table))
    if isinstance(listing, DatedListing):
        return ListedAt(listing.listed_at_time(table), None)
    return None


def now() -> int:
    """The time of this machine, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def conversion_notes(listed: ListedAt | None) -> list[str]:
    """The notes of a conversion that was made from an earlier list, with what that means."""
    if listed is None or listed.version is not None:
        return []
    if listed.time is None:
        return ["It is not known when its files were listed: what Hive wrote or deleted since then is not in the table"]
    return [
        f"Its files were listed at {format_time(listed.time)}: what Hive wrote or deleted since then is not in the "
        "table before the next sync"
    ]


def check_age(
    snapshot: Snapshot, table: TableInfo, listed: ListedAt, output_mode: OutputMode, run_version: int
) -> list[str]:
    """Refuse a list that is too old for a sync.

    :param run_version: the number of this run, whose own entries do not count.
    :returns: the notes for the result of the sync.
    :raises PermanentError: files that are in the table were added after the list was made.
    """
    if listed.version is not None:
        _check_version(snapshot, table, listed.version, run_version)
        return []
    name = table.qualified_name
    if listed.time is None:
        if output_mode == "append":
            return []
        raise PermanentError(
            f"{name}: it is not known when its files were listed, and output_mode='complete' would take out of the "
            "Delta table what was added since then. Take an S3 Inventory report whose manifest.json has a "
            "creationTimestamp; or pass InventoryListing(files_df, listed_at=…), the time before the files were "
            "listed; or list them with S3Listing or DatabricksListing"
        )
    last = _last_written(snapshot, run_version)
    if last is None or listed.time >= last[0]:
        return []
    written, what = last
    found = f"Its files were listed at {format_time(listed.time)}, before {what} at {format_time(written)}"
    if output_mode == "append":
        return [f"{found}: what Hive has written since the list waits for a newer one"]
    raise PermanentError(
        f"{name}: {found[0].lower()}{found[1:]}. output_mode='complete' would take out of the Delta table what was "
        "added in between. Take a later S3 Inventory report, or list the files with S3Listing or DatabricksListing"
    )


def format_time(milliseconds: int) -> str:
    """A time in milliseconds since the epoch, as messages show it."""
    moment = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _check_version(snapshot: Snapshot, table: TableInfo, listed_at: int, run_version: int) -> None:
    if listed_at >= snapshot.version:
        return
    later = [
        commit.version
        for commit in snapshot.history
        if commit.ours
        and commit.operation == log_actions.SYNC
        and commit.version > listed_at
        and not is_of_run(commit, run_version)
    ]
    if later:
        raise StaleFileListError(
            f"{table.qualified_name} was synced, as version {max(later)}, after its files were listed at version "
            f"{listed_at}. List the files again"
        )


def _last_written(snapshot: Snapshot, run_version: int) -> tuple[int, str] | None:
    """The time of the latest list that is in the table, and the words of a message for it; None without any.

    The time of an entry stands for that of its list where the entry does not have it.
    """
    ours = [commit for commit in snapshot.history if commit.ours]
    others = [commit for commit in ours if not is_of_run(commit, run_version)]
    if others:
        found = max((_time_of_list(snapshot, commit), commit.version, commit.operation) for commit in others)
        made = "its sync" if found[2] == log_actions.SYNC else "its conversion"
        return found[0], f"the list of {made}, version {found[1]},"
    if ours or not snapshot.segment.times:
        return None
    # Delta has deleted all entries of this package. They were written before the oldest entry that is left.
    oldest = min(snapshot.segment.times)
    return snapshot.segment.times[oldest], f"version {oldest}, the oldest in its log,"


def _time_of_list(snapshot: Snapshot, commit: Commit) -> int:
    kept = commit.info.get("operationParameters", {}).get(log_actions.LISTED_AT)
    return int(kept) if kept is not None else snapshot.segment.times[commit.version]


def is_of_run(commit: Commit, run_version: int) -> bool:
    """Whether a commit of this package was made by the sync with this number."""
    return commit.operation == log_actions.SYNC and commit.info["operationParameters"]["epochId"] == str(run_version)
