"""A crash before every write of a campaign's documents, in each phase: the next try of the task mends it."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_hive_to_delta.campaigns.closing import close_wave
from airflow_hive_to_delta.campaigns.csv_files import import_csv
from airflow_hive_to_delta.campaigns.decisions import record_approval
from airflow_hive_to_delta.campaigns.drafts import finish_plan
from airflow_hive_to_delta.campaigns.leases import live_leases
from airflow_hive_to_delta.campaigns.outcomes import WorkOutcome
from airflow_hive_to_delta.campaigns.states import PHASES, Phase
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.units import UnitWork, read_unit
from airflow_hive_to_delta.campaigns.waves import UnitSize, plan_wave
from tests.support.campaigns import NOON, converted, failed, local_store, row
from tests.support.crashes import Killed, killed_at

#: A task of a run, which is called again after a crash. The counter has the work that the tables have seen.
Task = Callable[[CampaignStore, Counter[str]], object]


def plan(run: str, **decisions: Any) -> Task:
    """A plan in which tables of these names are decided so."""
    rows = [row(name, decision=decision) for name, decision in decisions.items()]
    return lambda store, _: finish_plan(store, rows, run=run, now=NOON, dag_id="d")


def edit(text: str) -> Task:
    return lambda store, _: import_csv(store, text, by="ada", now=NOON)


def approve(phase: Phase, run: str, *names: str) -> Task:
    tables = [f"sales.{name}" for name in names]
    return lambda store, _: record_approval(store, phase, tables, run=run, by="ada", now=NOON)


def wave(phase: Phase) -> list[Task]:
    """The tasks of a wave. The table ``denied`` fails for good."""

    def begin(store: CampaignStore, _: Counter[str]) -> None:
        plan_wave(store, phase, phase=phase, approve=phase != "sync", size=UnitSize(tables=2), now=NOON)

    def work(store: CampaignStore, done: Counter[str]) -> None:
        for number in range((store.read(f"waves/{phase}.json") or {"units": 0})["units"]):
            run_unit(store, str(store.location(f"units/{phase}/{number:04d}.json")), done)

    return [begin, work, lambda store, _: close_wave(store, phase, now=NOON)]


def run_unit(store: CampaignStore, uri: str, done: Counter[str]) -> None:
    unit = read_unit(store, uri)
    work = UnitWork(store, unit, clock=lambda: NOON, probation=dt.timedelta(days=14))
    outcomes = {}
    for table in work.begin():
        name = table.qualified_name
        if table.name == "denied":
            result = failed(name, "denied", retryable=False)
        else:
            # A job finds what an earlier one has done, and does it no second time.
            status = "already_done" if done[name] else "done"
            done[name] += status == "done"
            result = converted(name, status=status)
        outcomes[name] = WorkOutcome.of_result(unit.phase, result)
    work.conclude(outcomes, is_last_try=True)
    work.end()


@dataclass(frozen=True)
class Chapter:
    """A part of the life of a campaign, and the states of its tables afterwards."""

    tasks: Sequence[Task]
    states: dict[str, str]


LIFE = {
    "plan": Chapter(
        [plan("plan", a="convert", b="convert", denied="convert", out="convert", late="refused")],
        {"a": "planned", "b": "planned", "denied": "planned", "out": "planned", "late": "refused"},
    ),
    "decisions": Chapter(
        [edit("table,decision,priority\nsales.a,convert,7\nsales.out,exclude,\n")],
        {"a": "planned", "b": "planned", "denied": "planned", "out": "planned", "late": "refused"},
    ),
    "convert": Chapter(
        [approve("convert", "convert", "a", "b", "denied", "out"), *wave("convert")],
        {"a": "verified", "b": "verified", "denied": "needs_person", "out": "excluded", "late": "refused"},
    ),
    "second plan": Chapter(
        [plan("again", a="convert", b="convert", denied="convert", out="convert", late="convert", new="convert")],
        {
            **{"a": "verified", "b": "verified", "denied": "needs_person", "out": "excluded"},
            **{"late": "planned", "new": "planned"},
        },
    ),
    "sync": Chapter(
        wave("sync"),
        {
            **{"a": "synced", "b": "synced", "denied": "needs_person", "out": "excluded"},
            **{"late": "planned", "new": "planned"},
        },
    ),
    "cut_over": Chapter(
        [approve("cut_over", "cut_over", "a", "b"), *wave("cut_over")],
        {
            **{"a": "cut_over", "b": "cut_over", "denied": "needs_person", "out": "excluded"},
            **{"late": "planned", "new": "planned"},
        },
    ),
    "roll_back": Chapter(
        [approve("roll_back", "roll_back", "a"), *wave("roll_back")],
        {
            **{"a": "rolled_back", "b": "cut_over", "denied": "needs_person", "out": "excluded"},
            **{"late": "planned", "new": "planned"},
        },
    ),
}


def run_tasks(store: CampaignStore, tasks: Sequence[Task], done: Counter[str], step: int) -> bool:
    """Run the tasks of a chapter, of which one dies before a step and is called again. Returns whether one did."""
    steps, is_killed = 0, False
    for task in tasks:
        if not is_killed:
            with killed_at(step - steps, after=False) as taken, suppress(Killed):
                task(store, done)
            steps += len(taken)
            is_killed = steps > step
            if not is_killed:
                continue
        task(store, done)
    return is_killed


def test_a_crash_between_any_two_writes_of_any_phase_is_mended_by_the_next_try(tmp_path: Path) -> None:
    whole, steps = local_store(tmp_path / "whole"), {}
    for name, chapter in LIFE.items():
        step, is_killed = 0, True
        while is_killed:
            folder = tmp_path / f"{name}{step}"
            if (tmp_path / "whole").exists():
                shutil.copytree(tmp_path / "whole", folder)
            store, done = local_store(folder), Counter[str]()
            is_killed = run_tasks(store, chapter.tasks, done, step)
            found = {table.removeprefix("sales."): state.state for table, state in store.states().items()}
            assert found == chapter.states, (name, step)
            assert set(done.values()) <= {1}, (name, step)
            if name in PHASES:
                assert live_leases(store, NOON) == {}, (name, step)
                closed = close_wave(store, name, now=NOON)
                denied = ["sales.denied"] if name == "convert" else []
                assert (closed.failed, closed.left, closed.lost_units) == (denied, [], []), (name, step)
            shutil.rmtree(folder)
            step += 1
        for task in chapter.tasks:
            task(whole, Counter())
        steps[name] = step
    assert all(steps[name] > 12 for name in PHASES), steps
