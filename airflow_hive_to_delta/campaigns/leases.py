"""Leases: who may write the state of a table, until when.

A lease is a document ``leases/<hash2>/<table>.<n>.json`` that is written once for each number. Who finds the lease
with the highest number released or expired may write the one with the next number, and only one of all who try it
succeeds. A release is a document beside it. No number is used twice, so nobody can take one lease for another.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from airflow_hive_to_delta.campaigns.states import TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore, hash_folder
from airflow_hive_to_delta.campaigns.times import format_time, parse_time
from airflow_hive_to_delta.job.file_names import safe_name

_FILE = re.compile(r"(?P<table>.+)\.(?P<number>\d{6})\.(?P<kind>json|released)")
#: For as long as states are changed without work on the tables.
_CHANGING = dt.timedelta(minutes=10)


@dataclass(frozen=True)
class Lease:
    """The right to work on a table."""

    table: str
    run: str
    unit: str
    expires: dt.datetime
    number: int = 1

    def is_live(self, now: dt.datetime) -> bool:
        return now < self.expires


def take_leases(
    store: CampaignStore, tables: Iterable[str], run: str, unit: str, *, now: dt.datetime, lasts: dt.timedelta
) -> dict[str, Lease]:
    """Take the leases of tables. Those that somebody else holds are left out.

    A lease that an earlier try of the same unit holds is taken over: that try has ended.
    """
    wanted = list(dict.fromkeys(tables))
    last = _last_leases(store, wanted)

    def take(table: str) -> Lease | None:
        before = last.get(table)
        if before is not None and not before.released:
            held = _read(store, table, before.number)
            if held is not None and held.is_live(now) and (held.run, held.unit) != (run, unit):
                return None
        number = 1 if before is None else before.number + 1
        lease = Lease(table, run, unit, now + lasts, number)
        return lease if store.put(_path(table, number), _document(lease)) else None

    taken = {lease.table: lease for lease in store.map(take, wanted) if lease is not None}
    # Old leases are deleted below. Who has read them before that, and took so long, has taken a number once more.
    highest = _highest_numbers(store, taken)
    held = {table: lease for table, lease in taken.items() if highest[table] == lease.number}
    overtaken = [(table, lease.number) for table, lease in taken.items() if table not in held]
    old = [(table, lease.number - 2) for table, lease in held.items() if lease.number > 2]
    store.delete(
        path for table, number in (*overtaken, *old) for path in (_path(table, number), _released_path(table, number))
    )
    return held


def renew_leases(
    store: CampaignStore, leases: Mapping[str, Lease], *, now: dt.datetime, lasts: dt.timedelta
) -> dict[str, Lease]:
    """Extend leases. Those that have expired are left out: somebody else may take them at any moment."""
    highest = _highest_numbers(store, leases)
    kept = [
        replace(lease, expires=now + lasts)
        for table, lease in leases.items()
        if lease.is_live(now) and highest[table] == lease.number
    ]
    store.map(lambda lease: store.write(_path(lease.table, lease.number), _document(lease)), kept)
    return {lease.table: lease for lease in kept}


def is_held(store: CampaignStore, lease: Lease) -> bool:
    """Whether nobody has taken a lease over, which may happen while it seems to last: clocks differ."""
    return _highest_numbers(store, [lease.table])[lease.table] == lease.number


def release_leases(store: CampaignStore, leases: Iterable[Lease]) -> None:
    """Release leases, so that others need not wait until they expire. It can be called again."""
    store.map(lambda lease: store.put(_released_path(lease.table, lease.number), {}), leases)


def change_states(
    store: CampaignStore,
    tables: Iterable[str],
    change: Callable[[TableState], TableState | None],
    *,
    run: str,
    unit: str,
    now: dt.datetime,
) -> list[TableState]:
    """Change the states of tables that nobody works on, by their leases.

    :param change: takes the state as it is while the lease is held, and returns the new one; None: it stays.
    :returns: the states that were written. A table that somebody works on, or that has no state, is left out.
    """
    leases = take_leases(store, tables, run, unit, now=now, lasts=_CHANGING)
    try:
        # A unit may have written it since the caller has read it.
        current = store.states_of(leases)
        changed = [state for state in map(change, current.values()) if state is not None]
        store.map(store.write_state, changed)
    finally:
        release_leases(store, leases.values())
    return changed


def live_leases(store: CampaignStore, now: dt.datetime) -> dict[str, Lease]:
    """All leases that somebody holds, by table."""
    return {lease.table: lease for lease in _read_unreleased(store) if lease.is_live(now)}


def release_run(store: CampaignStore, run: str) -> int:
    """Release the leases of a run whose units have all ended. Returns how many there were."""
    left = [lease for lease in _read_unreleased(store) if lease.run == run]
    release_leases(store, left)
    return len(left)


@dataclass(frozen=True)
class _LastLease:
    number: int
    released: bool


def _last_leases(store: CampaignStore, tables: Iterable[str]) -> dict[str, _LastLease]:
    by_folder: dict[str, list[str]] = defaultdict(list)
    for table in tables:
        by_folder[hash_folder(table)].append(table)
    listed = dict(zip(by_folder, store.map(lambda folder: _list_folder(store, folder), by_folder), strict=True))
    found = {table: listed[folder].get(safe_name(table)) for folder, each in by_folder.items() for table in each}
    return {table: last for table, last in found.items() if last is not None}


def _list_folder(store: CampaignStore, folder: str) -> dict[str, _LastLease]:
    """The last lease of each table in a folder, by the safe name of the table."""
    numbers: dict[str, int] = {}
    released = set()
    for name in store.names(f"leases/{folder}"):
        if match := _FILE.fullmatch(name):
            table, number = match["table"], int(match["number"])
            if match["kind"] == "json":
                numbers[table] = max(number, numbers.get(table, 0))
            else:
                released.add((table, number))
    return {table: _LastLease(number, (table, number) in released) for table, number in numbers.items()}


def _highest_numbers(store: CampaignStore, tables: Iterable[str]) -> dict[str, int]:
    tables = list(tables)
    last = _last_leases(store, tables)
    return {table: last[table].number if table in last else 0 for table in tables}


def _read_unreleased(store: CampaignStore) -> Iterator[Lease]:
    folders = [name.rstrip("/") for name in store.names("leases")]
    paths = [
        f"leases/{folder}/{name}.{last.number:06d}.json"
        for folder, each in zip(folders, store.map(lambda f: _list_folder(store, f), folders), strict=True)
        for name, last in each.items()
        if not last.released
    ]
    for path, document in store.read_all(paths):
        yield _as_lease(document, int(path.rpartition("/")[2].split(".")[-2]))


def _read(store: CampaignStore, table: str, number: int) -> Lease | None:
    found = store.read(_path(table, number))
    return None if found is None else _as_lease(found, number)


def _as_lease(document: Mapping[str, str], number: int) -> Lease:
    return Lease(document["table"], document["run"], document["unit"], parse_time(document["expires"]), number)


def _document(lease: Lease) -> dict[str, str]:
    return {"table": lease.table, "run": lease.run, "unit": lease.unit, "expires": format_time(lease.expires)}


def _path(table: str, number: int) -> str:
    return f"leases/{hash_folder(table)}/{safe_name(table)}.{number:06d}.json"


def _released_path(table: str, number: int) -> str:
    return f"leases/{hash_folder(table)}/{safe_name(table)}.{number:06d}.released"
