"""Leases: one of all who want a table works on it, and whoever died keeps it no longer than its lease lasts."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import pytest

from airflow_hive_to_delta.campaigns import leases
from airflow_hive_to_delta.campaigns.leases import (
    Lease,
    live_leases,
    release_leases,
    release_run,
    renew_leases,
    take_leases,
)
from airflow_hive_to_delta.campaigns.store import CampaignStore, hash_folder
from airflow_hive_to_delta.core.errors import PermanentError
from tests.support.campaigns import NOON, local_store

HOUR = dt.timedelta(hours=1)


def take(
    store: CampaignStore, *tables: str, run: str = "one", unit: str = "0001", hours: float = 0
) -> dict[str, Lease]:
    return take_leases(store, tables, run, unit, now=NOON + hours * HOUR, lasts=HOUR)


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CampaignStore:
    if request.param == "file":
        return local_store(tmp_path)
    return CampaignStore.open(f"s3://{request.getfixturevalue('bucket')}/staging", "lake")


def test_a_lease_is_had_by_one_until_it_is_given_back_or_expires(store: CampaignStore) -> None:
    first = take(store, "a", "b")
    assert set(first) == {"a", "b"}
    assert set(take(store, "a", "b", "c", run="two")) == {"c"}
    assert set(live_leases(store, NOON)) == {"a", "b", "c"}
    release_leases(store, [first["a"]])
    release_leases(store, [first["a"]])
    assert take(store, "a", "b", run="two")["a"].number == 2
    assert set(take(store, "a", "b", run="three", hours=1)) == {"a", "b"}
    assert {lease.run for lease in live_leases(store, NOON + HOUR).values()} == {"three"}


def test_a_later_try_of_a_unit_takes_its_leases_over(store: CampaignStore) -> None:
    take(store, "a")
    assert take(store, "a", unit="0002") == {}
    assert take(store, "a")["a"].number == 2


def test_a_lease_is_renewed_while_it_lasts_and_lost_when_it_has_expired(store: CampaignStore) -> None:
    held = take(store, "a", "b")
    renewed = renew_leases(store, held, now=NOON + 0.5 * HOUR, lasts=HOUR)
    assert set(renewed) == {"a", "b"}
    assert take(store, "a", run="two", hours=1.2) == {}
    assert renew_leases(store, renewed, now=NOON + 2 * HOUR, lasts=HOUR) == {}


def test_a_run_that_has_ended_keeps_no_lease(store: CampaignStore) -> None:
    take(store, "a", "b")
    take(store, "c", run="two")
    assert release_run(store, "one") == 2
    assert release_run(store, "one") == 0
    assert set(take(store, "a", "b", "c", run="three")) == {"a", "b"}


def test_of_many_who_find_a_lease_expired_one_gets_it(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    take(store, "a")
    together = threading.Barrier(8)
    won: list[str] = []

    def try_it(number: int) -> None:
        together.wait()
        won.extend(lease.run for lease in take(store, "a", run=str(number), hours=2).values())

    threads = [threading.Thread(target=try_it, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert live_leases(store, NOON + 2 * HOUR)["a"].run == won[0]


def test_who_takes_a_number_that_was_deleted_meanwhile_has_no_lease(tmp_path: Path, monkeypatch) -> None:
    """Old leases are deleted; one who has read them long ago finds the number free."""
    store = local_store(tmp_path)
    take(store, "a")
    stale = leases._list_folders(store, [hash_folder("a")])
    for number in range(2, 5):  # each takes the lease of the one before, and deletes the one before that
        take(store, "a", run=str(number), hours=2 * number)
    assert not list((tmp_path / "campaigns/lake").rglob("a.000002*"))
    answers = [stale]
    real = leases._list_folders
    monkeypatch.setattr(leases, "_list_folders", lambda *given: answers.pop() if answers else real(*given))
    assert take(store, "a", run="late", hours=8.5) == {}
    assert live_leases(store, NOON + 8.5 * HOUR)["a"].run == "4"


def test_the_root_and_the_name_of_a_campaign_are_checked() -> None:
    with pytest.raises(PermanentError, match="expected s3:// or file://"):
        CampaignStore.open("gs://bucket/staging", "lake")
    with pytest.raises(ValueError, match="name of the campaign is 'a/b'"):
        CampaignStore.open("file:///tmp", "a/b")
    with pytest.raises(PermanentError, match="is no document of the campaign lake"):
        CampaignStore.open("file:///tmp/x", "lake").path("file:///tmp/x/campaigns/other/units/0.json")
