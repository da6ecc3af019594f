"""Runs of one campaign that overlap, and a run that a person clears: who works on which table, and who says so."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta.campaigns.closing import ClosedWave, close_wave
from airflow_hive_to_delta.campaigns.csv_files import import_csv
from airflow_hive_to_delta.campaigns.decisions import (
    Decision,
    apply_approvals,
    apply_decisions,
    read_decisions,
    record_approval,
)
from airflow_hive_to_delta.campaigns.drafts import finish_plan
from airflow_hive_to_delta.campaigns.leases import take_leases
from airflow_hive_to_delta.campaigns.outcomes import WorkOutcome
from airflow_hive_to_delta.campaigns.plan import first_states
from airflow_hive_to_delta.campaigns.states import Phase
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.units import UnitWork, read_unit
from airflow_hive_to_delta.campaigns.waves import plan_wave
from airflow_hive_to_delta.plugins.documents import CampaignFolder
from tests.support.campaigns import NOON, add_decision, converted, failed, local_store, planned, row

HOUR = dt.timedelta(hours=1)


def plan(store: CampaignStore, run: str, phase: Phase, hours: float = 0) -> UnitWork:
    """The work on the only unit of a wave."""
    now = NOON + hours * HOUR
    wave = plan_wave(store, run, phase=phase, now=now)
    assert wave is not None
    return UnitWork(store, read_unit(store, wave.packed[0]), clock=lambda: now)


def work(unit: UnitWork, **known: Any) -> list[str]:
    """Work on a unit. Returns the names of the tables that were worked on."""
    names = [table.qualified_name for table in unit.begin()]
    for name in names:
        unit.record(name, WorkOutcome.of_result(unit.unit.phase, converted(name, **known)))
    unit.end()
    return names


def run_wave(store: CampaignStore, run: str, phase: Phase, hours: float = 0) -> tuple[list[str], ClosedWave]:
    unit = plan(store, run, phase, hours)
    return work(unit), close_wave(store, run, now=unit.clock())


@pytest.mark.parametrize(
    ("slow", "fast", "state"),
    [("convert", "convert", "verified"), ("sync", "cut_over", "cut_over"), ("cut_over", "cut_over", "cut_over")],
)
def test_a_unit_leaves_a_table_that_another_run_has_finished_since_it_was_planned(
    tmp_path: Path, slow: Phase, fast: Phase, state: str
) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a")])
    if slow != "convert":
        run_wave(store, "before", "convert")
    late = plan(store, "slow", slow)
    assert run_wave(store, "fast", fast)[0] == ["sales.a"]
    history = store.states()["sales.a"].history
    assert work(late) == []
    assert (store.states()["sales.a"].state, store.states()["sales.a"].history) == (state, history)
    assert close_wave(store, "slow", now=NOON).left == ["sales.a"]


def test_a_unit_leaves_a_table_that_a_person_has_excluded_since_it_was_planned(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a"), row("b")])
    unit = plan(store, "one", "convert")
    add_decision(store, Decision("2026-11-18T12:00:00+00:00", "ada", "sales.a", decision="exclude"))
    plan_wave(store, "two", phase="sync", now=NOON)
    assert work(unit) == ["sales.b"]
    assert store.states()["sales.a"].state == "excluded"


def test_a_lease_that_a_worker_with_another_clock_has_taken_is_lost(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a")])
    unit = plan(store, "one", "convert")
    unit.begin()
    assert take_leases(store, ["sales.a"], "two", "0000", now=NOON + 3 * HOUR, lasts=HOUR)
    assert unit.record("sales.a", WorkOutcome.of_result("convert", converted("sales.a"))) is None
    assert store.states()["sales.a"].state == "planned"


def test_a_run_that_a_person_clears_works_on_its_tables_once_more(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a"), row("b")])
    run_wave(store, "one", "convert")
    assert run_wave(store, "sync", "sync", 1)[0] == ["sales.a", "sales.b"]
    again = plan(store, "sync", "sync", 2)
    assert close_wave(store, "sync", now=NOON + 2 * HOUR).lost_units == ["0001"], "it has not ended anew"
    again = plan(store, "sync", "sync", 3)
    assert work(again) == ["sales.a", "sales.b"]
    assert work(again) == [], "a later try of the task finds it done"
    closed = close_wave(store, "sync", now=NOON + 3 * HOUR)
    assert (closed.left, closed.failed, closed.lost_units) == ([], [], [])


def test_a_run_that_is_cleared_counts_the_work_of_workers_whose_clocks_are_slow(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a"), row("b")])
    run_wave(store, "one", "convert")
    run_wave(store, "sync", "sync", 1)
    unit = plan(store, "sync", "sync", 2)
    unit.clock = lambda: NOON
    assert work(unit) == ["sales.a", "sales.b"]
    closed = close_wave(store, "sync", now=NOON + 2 * HOUR)
    assert (closed.left, closed.failed, closed.lost_units) == ([], [], [])


def test_a_table_that_only_the_plan_or_a_decision_has_changed_in_a_run_waits_for_the_next_wave(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    finish_plan(store, [row("a")], run="one", now=NOON, dag_id="d")
    plan(store, "one", "convert")
    closed = close_wave(store, "one", now=NOON)
    assert (closed.left, closed.failed) == (["sales.a"], []), "the window has ended, say"
    second = plan(store, "two", "convert")
    second.begin()
    second.record("sales.a", WorkOutcome.of_result("convert", failed("sales.a")))
    assert close_wave(store, "two", now=NOON).failed == ["sales.a"]
    add_decision(store, Decision("2026-11-18T12:00:00+00:00", "ada", "sales.a", priority=3))
    plan(store, "three", "convert", 5)
    assert store.states()["sales.a"].history[-1]["run"] == "three"
    closed = close_wave(store, "three", now=NOON + 5 * HOUR)
    assert (closed.left, closed.failed) == (["sales.a"], []), "it has failed in an earlier run"


def test_what_a_run_has_read_before_another_worked_on_a_table_overwrites_no_state(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    rows = planned(store, [row("a"), row("b", decision="exclude")])
    record_approval(store, "convert", ["sales.a"], run="one", by="ada", now=NOON)
    add_decision(store, Decision("2026-11-18T12:00:00+00:00", "ada", "sales.b", decision="include"))
    stale = store.states()
    run_wave(store, "one", "convert")
    verified = store.states()
    assert {state.state for state in verified.values()} == {"verified"}
    apply_approvals(store, stale, run="two", now=NOON)
    first_states(store, [replace(each, decision="refused") for each in rows], stale, run="two", now=NOON)
    assert store.states() == verified


def test_a_decision_counts_though_one_of_a_faster_clock_was_applied_before(tmp_path: Path, monkeypatch) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a")])
    real = time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: real() + 300 * 10**9)
        import_csv(store, "table,priority\nsales.a,5\n", by="somebody at a laptop", now=NOON)
    apply_decisions(store, store.states(), read_decisions(store), run="one", now=NOON)
    folder = CampaignFolder.find_all(f"file://{tmp_path}", None)["lake"]
    about = {"format": 1, "at": "2026-11-18T12:00:00+00:00", "by": "somebody at the page", "table": "sales.a"}
    folder.write_decisions([{**about, "decision": "exclude"}, {**about, "priority": 7}])
    state = apply_decisions(store, store.states(), read_decisions(store), run="two", now=NOON)["sales.a"]
    assert (state.state, [entry.get("by") for entry in state.history[-2:]]) == ("excluded", [about["by"]] * 2)
