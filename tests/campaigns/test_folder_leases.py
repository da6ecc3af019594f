"""Changes of many states by the lease of a folder: only who holds a lease writes, whoever comes in between."""

from __future__ import annotations

import datetime as dt
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta.campaigns import leases
from airflow_hive_to_delta.campaigns.leases import (
    change_states,
    is_held,
    live_leases,
    read_unreleased,
    release_leases,
    take_leases,
)
from airflow_hive_to_delta.campaigns.states import TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore, hash_folder
from airflow_hive_to_delta.core.storage.uri import Location
from benchmarks.campaigns.storages import MemoryStorage
from tests.support.campaigns import NOON, local_store

HOUR = dt.timedelta(hours=1)
#: Tables of one folder.
FOLDER = hash_folder("sales.t0")
SAME = [name for name in (f"sales.t{number}" for number in range(3_000)) if hash_folder(name) == FOLDER]


def approve(state: TableState) -> TableState | None:
    return state.change("approved", NOON, run="approval") if state.state == "planned" else None


def change(store: CampaignStore, *tables: str, run: str = "one", hours: float = 0) -> set[str]:
    found = change_states(
        store, tables, approve, known=store.states(), run=run, unit="approval", now=NOON + hours * HOUR
    )
    return {state.table for state in found}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignStore:
    monkeypatch.setattr(leases, "_PAUSE", 0)
    store = local_store(tmp_path)
    for name in SAME[:3]:
        store.put_state(TableState(name))
    return store


def test_a_change_leaves_tables_out_that_somebody_works_on_and_leaves_no_lease(store: CampaignStore) -> None:
    a, b, c = SAME[:3]
    held = take_leases(store, [a], "unit", "0001", now=NOON, lasts=HOUR)
    assert change(store, a, b, "sales.gone") == {b}
    states = store.states()
    assert [states[table].state for table in (a, b, c)] == ["planned", "approved", "planned"]
    assert set(live_leases(store, NOON)) == {a}
    release_leases(store, held.values())
    assert change(store, a, b, c) == {a, c}
    assert read_unreleased(store) == []


def test_who_had_an_expired_lease_can_tell_that_a_change_has_taken_it(store: CampaignStore) -> None:
    a, b = SAME[:2]
    held = take_leases(store, [a], "unit", "0001", now=NOON, lasts=HOUR)
    assert is_held(store, held[a])
    assert change(store, a, b, hours=2) == {a, b}
    assert not is_held(store, held[a]), "its clock may be slow: it writes nothing any more"


def take_folder(store: CampaignStore, run: str, hours: float = 0) -> leases.Lease:
    lease = leases._take_folder(store, FOLDER, run, "approval", NOON + hours * HOUR)
    assert lease is not None
    return lease


def test_who_wants_a_table_waits_while_its_folder_is_changed_and_not_for_a_process_that_is_dead(
    store: CampaignStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = SAME[0]
    take_folder(store, "one")
    assert take_leases(store, [a], "unit", "0001", now=NOON, lasts=HOUR) == {}
    assert live_leases(store, NOON) == {}, "what it has given up is free"
    assert change(store, a, run="two") == set(), "another change waits as well"
    assert change(store, a, run="one") == {a}, "a later try of the same task goes on at once"
    take_folder(store, "dead")
    assert set(take_leases(store, [a], "unit", "0001", now=NOON + HOUR, lasts=HOUR)) == {a}, "it has expired"
    latest = take_folder(store, "two", hours=1)
    monkeypatch.setattr(time, "sleep", lambda _: release_leases(store, [latest]))
    assert set(take_leases(store, [SAME[1]], "unit", "0002", now=NOON + HOUR, lasts=HOUR)) == {SAME[1]}


def test_a_state_is_read_again_only_when_its_document_has_changed_since(store: CampaignStore, monkeypatch) -> None:
    known = store.states()
    store.write_state(known[SAME[1]].change("excluded", NOON))
    read: list[str] = []
    real = store.read

    def read_and_note(path: str) -> Any:
        read.append(path)
        return real(path)

    monkeypatch.setattr(store, "read", read_and_note)
    changed = change_states(store, SAME[:3], approve, known=known, run="r", unit="u", now=NOON)
    assert {state.table for state in changed} == {SAME[0], SAME[2]}
    assert [path for path in read if path.startswith("tables/")] == [f"tables/{hash_folder(SAME[1])}/{SAME[1]}.json"]


class TurnsStorage(MemoryStorage):
    """A storage at which two threads take turns as they are told; when one has ended, the other goes on alone."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[int] = []
        self.ended: set[int] = set()
        self.threads: dict[int, int] = {}
        self.condition = threading.Condition()
        self.log: list[str] = []

    def wait_for_turn(self, what: str) -> None:
        me = self.threads.get(threading.get_ident())
        if me is None:
            return
        with self.condition:
            self.condition.wait_for(lambda: not self.turns or self.turns[0] == me or 1 - me in self.ended, timeout=20)
            if self.turns and self.turns[0] == me:
                self.turns.pop(0)
            self.log.append(f"{me}: {what}")
            self.condition.notify_all()

    def sleep(self, _: float) -> None:
        """Wait until the other thread has ended, which needs no turns of this one for that."""
        me = self.threads[threading.get_ident()]
        with self.condition:
            self.ended.add(me)
            self.condition.notify_all()
            self.condition.wait_for(lambda: 1 - me in self.ended, timeout=20)
            self.ended.remove(me)

    def run(self, turns: tuple[int, ...], *works: Callable[[], Any]) -> None:
        self.turns, self.ended, self.log = list(turns), set(), []

        def follow(me: int) -> None:
            self.threads[threading.get_ident()] = me
            try:
                works[me]()
            finally:
                with self.condition:
                    self.ended.add(me)
                    self.condition.notify_all()

        started = [threading.Thread(target=follow, args=(me,)) for me in range(len(works))]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        self.threads = {}


def _taking_turns(name: str) -> Callable[..., Any]:
    def call(self: TurnsStorage, *arguments: Any) -> Any:
        self.wait_for_turn(f"{name} {getattr(arguments[0], 'path', '')}")
        return getattr(MemoryStorage, name)(self, *arguments)

    return call


for _name in ("put_if_absent", "replace", "open", "list_names", "list_files", "delete_files"):
    setattr(TurnsStorage, _name, _taking_turns(_name))


def race(storage: TurnsStorage, turns: tuple[int, ...]) -> tuple[bool, bool]:
    """A change and a unit that want the same table. Returns whether the unit has it, and whether it was changed."""
    store = CampaignStore(storage, Location("s3", "b", "/c"))
    store.put_state(TableState(SAME[0]))
    known = store.states()
    changed: list[TableState] = []
    held: list[str] = []

    def approval() -> None:
        changed.extend(change_states(store, [SAME[0]], approve, known=known, run="one", unit="approval", now=NOON))

    def unit() -> None:
        held.extend(take_leases(store, [SAME[0]], "two", "0001", now=NOON, lasts=HOUR))
        storage.log.append("1: has it")

    storage.run(turns, approval, unit)
    written = [at for at, line in enumerate(storage.log) if line.startswith("0: replace")]
    has_it = storage.log.index("1: has it")
    assert not held or all(at < has_it for at in written), (turns, storage.log)
    return bool(held), bool(changed)


def test_of_a_change_and_a_unit_that_come_at_the_same_time_only_the_holder_of_a_lease_writes(monkeypatch) -> None:
    """In every order in which their requests may reach the storage."""
    steps = 6
    outcomes = set()
    for first in itertools.combinations(range(2 * steps), steps):
        storage = TurnsStorage()
        monkeypatch.setattr(time, "sleep", storage.sleep)
        outcomes.add(race(storage, tuple(0 if place in first else 1 for place in range(2 * steps))))
    assert outcomes == {(True, True), (True, False)}, "the unit gets the table, at once or after the change"
