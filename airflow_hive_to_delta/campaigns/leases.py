"""Leases: who may write the state of a table, until when.

A lease is a document ``leases/<hash2>/<table>.<n>.json`` that is written once for each number. Who finds the lease
with the highest number released or expired may write the one with the next number, and only one of all who try it
succeeds. A release is a document beside it. No number is used twice, so nobody can take one lease for another.

Who changes the states of many tables without working on them, as an approval does, takes one lease for all tables of a
folder that nobody has a lease of: ``leases/<hash2>/_folder.<n>.json``. Both sides look at the folder once more after
they have written their lease. Of two who come at the same time at least one sees the other: a change leaves a table out
whose lease somebody has, and who takes the lease of a table waits until the change of its folder has ended.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from airflow_hive_to_delta.campaigns.documents import CampaignDocument, check_times
from airflow_hive_to_delta.campaigns.states import TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore, StatesByTable, hash_folder, state_path
from airflow_hive_to_delta.campaigns.times import format_time, parse_time
from airflow_hive_to_delta.job.file_names import safe_name

_FILE = re.compile(r"(?P<table>.+)\.(?P<number>\d{6})\.(?P<kind>json|released)")
#: The name of the lease of a folder. No safe name of a table begins with an underscore.
_FOLDER = "_folder"
#: For as long as states are changed without work on the tables: a folder of them takes seconds.
_CHANGING = dt.timedelta(minutes=10)
#: How often and how many seconds apart somebody looks whether the change of a folder has ended.
_LOOKS, _PAUSE = 20, 0.5


@dataclass(frozen=True)
class Lease:
    """The right to write the state of a table; or of all tables of a folder, as far as nobody has their own leases."""

    #: Empty: of a folder.
    table: str
    run: str
    unit: str
    expires: dt.datetime
    number: int = 1
    folder: str = ""

    def is_live(self, now: dt.datetime) -> bool:
        return now < self.expires

    @property
    def path(self) -> str:
        """The path of the document, from the folder of the campaign, without its ending."""
        folder, name = (hash_folder(self.table), safe_name(self.table)) if self.table else (self.folder, _FOLDER)
        return f"leases/{folder}/{name}.{self.number:06d}"


@dataclass(frozen=True)
class LeaseRecord(CampaignDocument):
    """The document of a lease."""

    noun: ClassVar[str] = "lease"

    run: str
    unit: str
    expires: str
    table: str = ""
    folder: str = ""

    def __post_init__(self) -> None:
        check_times(expires=self.expires)
        if bool(self.table) == bool(self.folder):
            raise ValueError(f"table is {self.table!r} and folder is {self.folder!r}, expected one of them")


def take_leases(
    store: CampaignStore, tables: Iterable[str], run: str, unit: str, *, now: dt.datetime, lasts: dt.timedelta
) -> dict[str, Lease]:
    """Take the leases of tables. Those that somebody else holds are left out.

    A lease that an earlier try of the same unit holds is taken over: that try has ended.
    """
    wanted = list(dict.fromkeys(tables))
    listed = _list_folders(store, map(hash_folder, wanted))

    def take(table: str) -> Lease | None:
        before = listed[hash_folder(table)].get(safe_name(table))
        return _take_next(store, before, Lease(table, run, unit, now + lasts), now)

    taken = [lease for lease in store.map(take, wanted) if lease is not None]
    # Old leases are deleted below. Who has read them before that, and took so long, has taken a number once more.
    listed, changing = _wait_for_changes(store, {hash_folder(lease.table) for lease in taken}, run, unit, now)
    is_last = {lease.table: _number_of(listed, lease.table) == lease.number for lease in taken}
    held = [lease for lease in taken if is_last[lease.table] and hash_folder(lease.table) not in changing]
    release_leases(store, [lease for lease in taken if is_last[lease.table] and hash_folder(lease.table) in changing])
    old = [replace(lease, number=lease.number - 2) for lease in held if lease.number > 2]
    _delete(store, [*(lease for lease in taken if not is_last[lease.table]), *old])
    return {lease.table: lease for lease in held}


def renew_leases(
    store: CampaignStore, leases: Mapping[str, Lease], *, now: dt.datetime, lasts: dt.timedelta
) -> dict[str, Lease]:
    """Extend leases. Those that have expired are left out: somebody else may take them at any moment."""
    listed = _list_folders(store, map(hash_folder, leases))
    kept = [
        replace(lease, expires=now + lasts)
        for table, lease in leases.items()
        if lease.is_live(now) and _number_of(listed, table) == lease.number
    ]
    store.map(lambda lease: store.write(f"{lease.path}.json", _document(lease)), kept)
    return {lease.table: lease for lease in kept}


def is_held(store: CampaignStore, lease: Lease) -> bool:
    """Whether nobody has taken a lease over, which may happen while it seems to last: clocks differ."""
    return _number_of(_list_folders(store, [hash_folder(lease.table)]), lease.table) == lease.number


def release_leases(store: CampaignStore, leases: Iterable[Lease]) -> None:
    """Release leases, so that others need not wait until they expire. It can be called again."""
    store.map(lambda lease: store.put(f"{lease.path}.released", {}), leases)


def change_states(
    store: CampaignStore,
    tables: Iterable[str],
    change: Callable[[TableState], TableState | None],
    *,
    known: Mapping[str, TableState],
    run: str,
    unit: str,
    now: dt.datetime,
) -> list[TableState]:
    """Change the states of tables that nobody works on. It costs a request for each, and a few for each folder.

    :param change: takes the state as it is while the lease is held, and returns the new one; None: it stays.
    :param known: states that were read before, as :meth:`CampaignStore.states` gives them: of a table whose document
        has not changed since, it is not read again.
    :returns: the states that were written. A table that somebody works on, or that has no state, is left out.
    """
    by_folder: dict[str, list[str]] = defaultdict(list)
    for table in dict.fromkeys(tables):
        by_folder[hash_folder(table)].append(table)

    def change_folder(folder: str) -> list[TableState]:
        ends = time.monotonic() + _CHANGING.total_seconds() / 2
        lease = _take_folder(store, folder, run, unit, now)
        if lease is None:
            return []
        held, changed = [lease], []
        try:
            free, own = _free_tables(store, lease, by_folder[folder], now)
            held += own.values()
            for before in _current_states(store, folder, [*free, *own], known):
                # Of a process that was stopped meanwhile, somebody else may have taken the lease over.
                after = change(before) if time.monotonic() < ends else None
                if after is not None:
                    store.write_state(after)
                    changed.append(after)
        finally:
            release_leases(store, held)
        return changed

    return [state for changed in store.map(change_folder, by_folder) for state in changed]


def live_leases(store: CampaignStore, now: dt.datetime) -> dict[str, Lease]:
    """All leases of tables that somebody holds, by table."""
    return {lease.table: lease for lease in read_unreleased(store) if lease.table and lease.is_live(now)}


def read_unreleased(store: CampaignStore) -> list[Lease]:
    """All leases that nobody has released, of tables and of folders, expired or not.

    :raises PermanentError: one of the documents is none.
    """
    folders = [name.rstrip("/") for name in store.names("leases")]
    paths = [
        f"leases/{folder}/{name}.{last.number:06d}.json"
        for folder, each in _list_folders(store, folders).items()
        for name, last in each.items()
        if not last.released
    ]
    return [
        _as_lease(record, int(path.rpartition("/")[2].split(".")[-2]))
        for path, record in store.read_all_as(LeaseRecord, paths)
    ]


def release_run(store: CampaignStore, run: str) -> int:
    """Release the leases of a run whose units have all ended. Returns how many there were."""
    left = [lease for lease in read_unreleased(store) if lease.run == run]
    release_leases(store, left)
    return len(left)


@dataclass(frozen=True)
class _LastLease:
    number: int
    released: bool


#: By folder and by the safe name of the table, or that of the folder's lease.
_Listed = dict[str, dict[str, _LastLease]]


def _take_next(store: CampaignStore, before: _LastLease | None, lease: Lease, now: dt.datetime) -> Lease | None:
    """Take the lease after the last one, with the next number; None: somebody else holds that, or was faster.

    :param lease: with any number.
    """
    if before is not None and not before.released:
        held = _read(store, replace(lease, number=before.number))
        if held is not None and held.is_live(now) and not _is_of(held, lease.run, lease.unit):
            return None
    taken = replace(lease, number=1 if before is None else before.number + 1)
    return taken if store.put(f"{taken.path}.json", _document(taken)) else None


def _take_folder(store: CampaignStore, folder: str, run: str, unit: str, now: dt.datetime) -> Lease | None:
    """Take the lease of a folder; None: somebody else changes states there."""
    listed, changing = _wait_for_changes(store, {folder}, run, unit, now)
    if changing:
        return None
    wanted = Lease("", run, unit, now + _CHANGING, folder=folder)
    return _take_next(store, listed[folder].get(_FOLDER), wanted, now)


def _free_tables(
    store: CampaignStore, lease: Lease, tables: Iterable[str], now: dt.datetime
) -> tuple[list[str], dict[str, Lease]]:
    """Which tables the holder of a folder's lease can change.

    :returns: those that nobody has a lease of; and new leases of those whose last lease was never released, if that has
        expired: so whoever had it can tell that it is lost.
    """
    listed = _list_folder(store, lease.folder)
    if listed[_FOLDER].number != lease.number:  # it took a number that was deleted long ago
        return [], {}
    if lease.number > 2:
        _delete(store, [replace(lease, number=lease.number - 2)])
    last = {table: listed.get(safe_name(table)) for table in tables}
    free = [table for table, found in last.items() if found is None or found.released]
    unreleased = [table for table in last if table not in free]
    if not unreleased:
        return free, {}
    return free, take_leases(store, unreleased, lease.run, lease.unit, now=now, lasts=_CHANGING)


def _current_states(
    store: CampaignStore, folder: str, tables: Iterable[str], known: Mapping[str, TableState]
) -> Iterator[TableState]:
    """The states of tables of a folder as they are now."""
    path = f"tables/{folder}"
    versions = {f"{path}/{file.name}": file.version for file in store.files(path)}
    same = known.unchanged(versions) if isinstance(known, StatesByTable) else {}
    for table in tables:
        if (of_table := state_path(table)) in versions:
            found = same[of_table] if of_table in same else store.state(table)
            if found is not None:
                yield found


def _wait_for_changes(
    store: CampaignStore, folders: Iterable[str], run: str, unit: str, now: dt.datetime
) -> tuple[_Listed, set[str]]:
    """List folders; those whose tables somebody else changes, again until that has ended, but no longer than seconds.

    :returns: the leases in each folder, and the folders that are still being changed.
    """
    listed: _Listed = {}
    waiting = set(folders)
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE)
        listed |= _list_folders(store, waiting)
        waiting = {folder for folder in waiting if _is_changed_by_others(store, folder, listed[folder], run, unit, now)}
        if not waiting:
            break
    return listed, waiting


def _is_changed_by_others(
    store: CampaignStore, folder: str, listed: Mapping[str, _LastLease], run: str, unit: str, now: dt.datetime
) -> bool:
    last = listed.get(_FOLDER)
    if last is None or last.released:
        return False
    held = _read(store, Lease("", run, unit, now, last.number, folder))
    return held is not None and held.is_live(now) and not _is_of(held, run, unit)


def _is_of(lease: Lease, run: str, unit: str) -> bool:
    return (lease.run, lease.unit) == (run, unit)


def _list_folders(store: CampaignStore, folders: Iterable[str]) -> _Listed:
    """The last lease of each table, and of each folder itself."""
    folders = list(dict.fromkeys(folders))
    return dict(zip(folders, store.map(lambda folder: _list_folder(store, folder), folders), strict=True))


def _list_folder(store: CampaignStore, folder: str) -> dict[str, _LastLease]:
    numbers: dict[str, int] = {}
    released = set()
    for name in store.names(f"leases/{folder}"):
        if match := _FILE.fullmatch(name):
            table, number = match["table"], int(match["number"])
            # Of a lease that a person has deleted, the release may be left.
            numbers[table] = max(number, numbers.get(table, 0))
            if match["kind"] == "released":
                released.add((table, number))
    return {table: _LastLease(number, (table, number) in released) for table, number in numbers.items()}


def _number_of(listed: _Listed, table: str) -> int:
    last = listed[hash_folder(table)].get(safe_name(table))
    return 0 if last is None else last.number


def _read(store: CampaignStore, lease: Lease) -> Lease | None:
    """The document of a lease, by its table or folder and its number."""
    found = store.read_as(LeaseRecord, f"{lease.path}.json")
    return None if found is None else _as_lease(found, lease.number)


def _as_lease(record: LeaseRecord, number: int) -> Lease:
    return Lease(record.table, record.run, record.unit, parse_time(record.expires), number, record.folder)


def _document(lease: Lease) -> dict[str, str]:
    of = {"table": lease.table} if lease.table else {"folder": lease.folder}
    return {**of, "run": lease.run, "unit": lease.unit, "expires": format_time(lease.expires)}


def _delete(store: CampaignStore, leases: Iterable[Lease]) -> None:
    store.delete(f"{lease.path}.{kind}" for lease in leases for kind in ("json", "released"))
