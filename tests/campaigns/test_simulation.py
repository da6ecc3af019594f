"""Campaigns from the first wave to the last table, though workers are killed, windows end and leases are lost."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from airflow_hive_to_delta.campaigns.closing import close_wave
from airflow_hive_to_delta.campaigns.leases import live_leases
from airflow_hive_to_delta.campaigns.outcomes import WorkOutcome
from airflow_hive_to_delta.campaigns.states import FINAL
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.units import UnitWork, read_unit
from airflow_hive_to_delta.campaigns.waves import UnitSize, Wave, plan_wave
from airflow_hive_to_delta.core.errors import MissingError
from benchmarks.campaigns.simulation import Simulation
from tests.support.campaigns import NOON, Clock, converted, failed, local_store, planned, row


def test_every_table_ends_once_and_none_is_forgotten_though_workers_are_killed() -> None:
    simulation = Simulation(500, killed=0.3, wave=Wave(tables=200), size=UnitSize(tables=10))
    last = simulation.run()
    states = last.states
    assert len(states) == 500
    assert all(state.state in FINAL["convert"] for state in states.values())
    assert {name for name, state in states.items() if state.state == "needs_person"} == simulation.lake.broken
    assert set(simulation.lake.conversions.values()) == {1}
    assert len(simulation.lake.conversions) == 500 - len(simulation.lake.broken)
    assert simulation.kills > 10
    assert last.summary["by_state"]["verified"]["tables"] == 495
    assert last.summary["forecast"] is not None
    assert live_leases(simulation.store(), simulation.time) == {}


def test_a_unit_hands_back_what_it_has_not_begun_in_its_window(tmp_path: Path) -> None:
    store, clock = local_store(tmp_path), Clock()
    planned(store, [row("a"), row("b")])
    wave = plan_wave(store, "one", wave=Wave(until="13:00"), now=NOON)
    assert wave is not None
    work = UnitWork(store, read_unit(store, wave.packed[0]), clock=clock)
    assert [table.name for table in work.begin()] == ["a", "b"]
    assert not work.is_past_window()
    clock.move(hours=1)
    assert work.is_past_window()
    assert work.release() == ["sales.a", "sales.b"]
    closed = close_wave(store, "one", now=clock())
    assert (closed.left, closed.failed, store.states()["sales.a"].state) == (["sales.a", "sales.b"], [], "planned")
    assert plan_wave(store, "two", now=clock()) is not None


def test_who_has_lost_a_lease_writes_no_state(tmp_path: Path) -> None:
    store, clock = local_store(tmp_path), Clock()
    planned(store, [row("a"), row("b")])
    wave = plan_wave(store, "one", now=NOON)
    assert wave is not None
    slow = UnitWork(store, read_unit(store, wave.packed[0]), clock=clock, lease=dt.timedelta(hours=1))
    assert len(slow.begin()) == 2
    clock.move(minutes=50)
    slow.renew()
    clock.move(minutes=50)
    assert slow.record("sales.a", WorkOutcome.of_result("convert", converted("sales.a"))) is not None
    clock.move(hours=2)
    slow.renew()
    assert slow.record("sales.b", WorkOutcome.of_result("convert", converted("sales.b"))) is None
    assert slow.count_states() == {"verified": 1, "planned": 1}


def test_a_later_try_works_on_what_is_unfinished(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    planned(store, [row("done"), row("denied"), row("slow")])
    wave = plan_wave(store, "one", now=NOON)
    assert wave is not None
    first = UnitWork(store, read_unit(store, wave.packed[0]), clock=lambda: NOON)
    first.begin()
    results = [converted("sales.done"), failed("sales.denied", retryable=False), failed("sales.slow")]
    outcomes = {each["source_table"]: WorkOutcome.of_result("convert", each) for each in results}
    assert first.conclude(outcomes, is_last_try=False) == ["sales.slow"]
    assert first.release() == ["sales.slow"]
    assert store.states()["sales.slow"].state == "planned"
    second = UnitWork(store, read_unit(store, wave.packed[0]), clock=lambda: NOON)
    assert [table.name for table in second.begin()] == ["slow"]
    assert second.conclude({"sales.slow": outcomes["sales.slow"]}, is_last_try=True) == []
    assert close_wave(store, "one", now=NOON).lost_units == ["0000"]
    second.end()
    closed = close_wave(store, "one", now=NOON)
    assert closed.lost_units == []
    assert (closed.failed, closed.needs_person) == (["sales.denied", "sales.slow"], {"": ["sales.denied"]})
    assert [closed.exceeds(most) for most in (1, 2, 0.5, 0.7)] == [True, False, True, False]
    assert store.read("waves/one.json")["failed"] == ["sales.denied", "sales.slow"]  # type: ignore[index]
    with pytest.raises(MissingError, match="has planned no wave"):
        close_wave(store, "never", now=NOON)
    with pytest.raises(MissingError, match="no unit at"):
        read_unit(store, wave.packed[0].replace("0000", "0009"))


def work_on(store: CampaignStore, run: str, clock: Clock, *, fails: bool = False) -> str | None:
    """A wave of two tables that takes an hour. Returns the forecast."""
    wave = plan_wave(store, run, wave=Wave(tables=2), now=clock())
    assert wave is not None
    work = UnitWork(store, read_unit(store, wave.packed[0]), clock=clock, lease=dt.timedelta(hours=2))
    tables = work.begin()
    clock.move(hours=1)
    for table in tables:
        name = table.qualified_name
        result = failed(name) if fails else converted(name, byte_count=1_000)
        work.record(name, WorkOutcome.of_result("convert", result))
    work.end()
    forecast: str | None = close_wave(store, run, now=clock()).summary["forecast"]
    return forecast


def test_the_end_is_forecast_by_the_speed_of_the_waves_and_of_the_pauses_between_them(tmp_path: Path) -> None:
    store, clock = local_store(tmp_path), Clock()
    planned(store, [row(f"t{number}") for number in range(8)])
    assert work_on(store, "one", clock) == "2026-11-18T16:00:00+00:00", "six more, two an hour"
    clock.move(hours=23)
    assert work_on(store, "two", clock) == "2026-11-21T13:00:00+00:00", "four more, two a day"


def test_a_wave_that_gets_nothing_done_has_no_forecast(tmp_path: Path) -> None:
    store, clock = local_store(tmp_path), Clock()
    planned(store, [row(f"t{number}") for number in range(8)])
    assert work_on(store, "one", clock, fails=True) is None
    assert work_on(local_store(tmp_path), "two", clock) is not None
