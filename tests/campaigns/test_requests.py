"""What campaigns ask of the storage, counted: each step costs so many requests for a table, and no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from airflow_hive_to_delta.campaigns.csv_files import import_csv
from airflow_hive_to_delta.campaigns.decisions import record_approval
from airflow_hive_to_delta.campaigns.drafts import finish_plan
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.waves import Wave, plan_wave
from airflow_hive_to_delta.core.storage.uri import Location
from benchmarks.campaigns.storages import MemoryStorage
from tests.support.campaigns import NOON, row

TABLES = 1_000
#: Requests that do not depend on how many tables there are: of each of 256 folders the names are listed, and a lease is
#: taken and given back.
FIXED = 256
ROWS = [row(f"t{number}") for number in range(TABLES)]
NAMES = [each.table for each in ROWS]


@pytest.fixture(scope="module")
def store() -> CampaignStore:
    store = CampaignStore(MemoryStorage(), Location("s3", "bucket", "/staging/campaigns/lake"))
    finish_plan(store, ROWS, run="plan", now=NOON, dag_id="d")
    return store


@contextmanager
def counted(store: CampaignStore) -> Iterator[Counter[str]]:
    """Yields a counter that has the requests of the block by their kinds afterwards."""
    storage = store._storage
    assert isinstance(storage, MemoryStorage)
    before, found = Counter(storage.requests), Counter[str]()
    yield found
    found.update(storage.requests - before)


def plan_next(store: CampaignStore, run: str) -> bool:
    """Plan a wave. Returns whether there is one."""
    return plan_wave(store, run, approve=True, wave=Wave(tables=50), now=NOON) is not None


def test_a_plan_that_changes_nothing_reads_each_state_once(store: CampaignStore) -> None:
    with counted(store) as requests:
        finish_plan(store, ROWS, run="plan again", now=NOON, dag_id="d")
    assert requests["GET"] <= TABLES + 20
    assert requests["PUT"] <= 10
    assert requests["LIST"] <= 2 * FIXED + 20


def test_an_approval_of_thousands_of_tables_costs_one_request_for_each_besides_reading_it(store: CampaignStore) -> None:
    record_approval(store, "convert", NAMES, run="approve", by="ada", now=NOON)
    with counted(store) as requests:
        assert plan_next(store, "approve")
    assert {state.state for state in store.states().values()} == {"approved"}
    assert requests["GET"] <= TABLES + 20
    assert requests["PUT"] <= TABLES + 2 * FIXED + 20
    assert requests["LIST"] <= 5 * FIXED + 20, "leases, states; leases twice and states once more in each folder"


def test_decisions_about_thousands_of_tables_cost_one_request_for_each_beside_what_people_wrote(
    store: CampaignStore,
) -> None:
    for decision, state, number in (("exclude", "excluded", 1), ("convert", "approved", 2)):
        text = "table,decision\n" + "".join(f"{name},{decision}\n" for name in NAMES)
        with counted(store) as requests:
            assert len(import_csv(store, text, by="ada", now=NOON)) == TABLES
            assert plan_next(store, state) == (state == "approved")
        assert {each.state for each in store.states().values()} == {state}
        # A decision is written once, and read by the next import and by the wave; a state is read and written.
        assert requests["PUT"] <= 2 * TABLES + 2 * FIXED + 20
        assert requests["GET"] <= (2 * number - 1) * TABLES + TABLES + 20
