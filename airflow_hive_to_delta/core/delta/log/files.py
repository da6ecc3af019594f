"""The files in a table's ``_delta_log``: their names, and whether they make up a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.delta.log.entries import commit_info_of, is_ours
from airflow_hive_to_delta.core.errors import MissingError, PermanentError, UnsupportedTableError
from airflow_hive_to_delta.core.storage.base import DELTA_LOG, RECORDS_FOLDER
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.storage.base import Storage

#: The record that a rollback writes before anything else, and removes at its end.
ROLLBACK = "rollback.json"
#: The folder of logs that were rolled back. Hive, Spark, Delta and every listing of this package ignore it.
ROLLED_BACK = "_delta_log_rolled_back"
COMMIT = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(
    r"(?P<version>\d{20})\.checkpoint"
    r"(\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<id>[0-9a-fA-F-]{32,36}))?\.(?P<kind>parquet|json)"
)


def log_folder(root: Location) -> Location:
    """The ``_delta_log`` of the table at a root."""
    return root.child(DELTA_LOG)


def records_folder(root: Location) -> Location:
    """The folder in which this package keeps what the log itself cannot hold: see :mod:`records`."""
    return log_folder(root).child(RECORDS_FOLDER)


def commit_path(root: Location, version: int) -> Location:
    """The log entry of a version."""
    return log_folder(root).child(f"{version:020d}.json")


@dataclass(frozen=True)
class LogFiles:
    """The entries and checkpoints in a log's folder."""

    #: Versions of the entries.
    commits: frozenset[int]
    #: The files of the checkpoint of each version that has a complete one.
    checkpoints: dict[int, tuple[str, ...]]
    #: The names of all of them, and of checkpoints that are not complete.
    names: tuple[str, ...]

    @property
    def latest(self) -> int:
        """The latest version; -1 when there is none."""
        return max([*self.commits, *self.checkpoints], default=-1)

    def checkpoint_for(self, version: int, before: int | None = None) -> int | None:
        """The version of the latest checkpoint to read a version from; None when it is read from entry 0 on.

        :param before: use only checkpoints of versions before this one.
        :raises MissingError: an entry is missing that the version needs.
        """
        most = version if before is None else min(version, before - 1)
        for start in sorted((found for found in self.checkpoints if found <= most), reverse=True):
            if self.commits.issuperset(range(start + 1, version + 1)):
                return start
        missing = next((entry for entry in range(max(version, 0) + 1) if entry not in self.commits), None)
        if missing is not None:
            raise MissingError(f"there is no entry {missing}, and no whole checkpoint after it")
        return None


def log_files(names: Iterable[str]) -> LogFiles:
    """The entries and checkpoints among the names in a log's folder."""
    commits = set()
    parts: dict[tuple[int, str], list[str]] = {}
    whole: dict[int, tuple[str, ...]] = {}
    for name in sorted(names):
        if COMMIT.fullmatch(name):
            commits.add(int(name[:20]))
        elif match := _CHECKPOINT.fullmatch(name):
            version = int(match["version"])
            group = parts.setdefault((version, match["id"] or match["parts"] or ""), [])
            group.append(name)
            if len(group) == int(match["parts"] or 1):
                whole[version] = tuple(group)
    found = [f"{version:020d}.json" for version in sorted(commits)]
    return LogFiles(frozenset(commits), whole, (*found, *(name for group in parts.values() for name in group)))


def refuse_broken(storage: Storage, root: Location, files: LogFiles) -> None:
    """Refuse a log whose latest version cannot be put together from its files. A log without any file is not refused.

    :raises MissingError: the message names what is missing, and what to do.
    """
    if not files.names:
        return
    try:
        files.checkpoint_for(files.latest)
    except MissingError as error:
        log = log_folder(root)
        found = f"The Delta log at {log} is broken: it holds {some(files.names)}, but {error}, so nobody can read it"
        if not storage.list_names(root.child(ROLLED_BACK)):
            raise MissingError(f"{found}. Restore the missing entries of the log from a backup") from error
        raise MissingError(
            f"{found}. {root.child(ROLLED_BACK)} holds a log that was rolled back: a writer that was still running has "
            f"written this one afterwards. Stop the writers of the table, {removal_of(storage, root, files)}, then "
            "convert the table again. If the table was not rolled back since its last conversion, restore the missing "
            "entries from a backup instead"
        ) from error


def removal_of(storage: Storage, root: Location, files: LogFiles) -> str:
    """The sentence in a message that says how to take these files out of a log."""
    move = f"move {', '.join(files.names)} out of {log_folder(root)}"
    foreign = []
    for version in sorted(files.commits):
        info = commit_info_of(storage, commit_path(root, version))
        if not is_ours(info):
            by = info.get("engineInfo", "an unknown writer")
            foreign.append(f"version {version} ({info.get('operation', 'an unnamed operation')} by {by})")
    if not foreign:
        return move
    return (
        f"{move}, and move the files that {' and '.join(foreign)} added, as the lines that begin with "
        '{"add" name them, out of the table\'s folders, unless Hive wrote them'
    )


def is_rollback_begun(storage: Storage, root: Location) -> bool:
    """Whether a rollback of the table was begun and has not finished."""
    return is_there(storage, records_folder(root).child(ROLLBACK))


def is_there(storage: Storage, path: Location) -> bool:
    """Whether a file exists."""
    try:
        storage.size(path)
    except MissingError:
        return False
    return True


def refuse_half_rolled_back(storage: Storage, root: Location) -> None:
    """Refuse a table whose rollback was begun and has not finished."""
    if is_rollback_begun(storage, root):
        raise PermanentError(
            f"A rollback of {root} was begun and did not finish, so its log may not be whole. Call rollback_table "
            "again, which finishes it"
        )


def refuse_catalog_managed(storage: Storage, root: Location) -> None:
    """Refuse a table whose commits a catalog decides about."""
    # Delta's Spark writer makes the folder for every table; only a catalog-managed one has entries in it.
    if storage.list_names(log_folder(root).child("_staged_commits")):
        raise UnsupportedTableError(
            f"{log_folder(root)}/_staged_commits holds entries: a catalog decides about the commits of this table, so "
            "nothing may be written beside it. Write through that catalog"
        )


def some(items: Sequence[object], most: int = 5) -> str:
    """The first few of a list, and how many more there are, for a message."""
    return ", ".join(map(str, items[:most])) + (f" and {len(items) - most} more" if len(items) > most else "")
