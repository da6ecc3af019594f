"""Plans and waves: what a run takes, how it is packed, and how plans are kept, filtered, exported and read back."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from airflow_hive_to_delta.campaigns.decisions import Decision
from airflow_hive_to_delta.campaigns.leases import take_leases
from airflow_hive_to_delta.campaigns.plan import (
    PlanRow,
    filter_rows,
    merge_plans,
    read_plan,
    sort_rows,
    statistics_of,
    write_plan,
)
from airflow_hive_to_delta.campaigns.states import STATES, TableState
from airflow_hive_to_delta.campaigns.units import read_unit
from airflow_hive_to_delta.campaigns.waves import UnitSize, Wave, choose_tables, limit_tables, pack_units, plan_wave
from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.models import TableInfo
from tests.support.campaigns import NOON, add_decision, local_store, planned, row

HOUR = dt.timedelta(hours=1)


def names(rows: list[PlanRow]) -> list[str]:
    return [each.table.removeprefix("sales.") for each in rows]


def test_a_window_ends_at_the_next_such_time_of_its_time_zone() -> None:
    assert Wave(until="13:30").deadline(NOON) == NOON + 1.5 * HOUR
    assert Wave(until="12:00").deadline(NOON) == NOON + 24 * HOUR
    assert Wave(until="06:00", timezone="Europe/Berlin").deadline(NOON) == NOON + 17 * HOUR
    assert Wave().deadline(NOON) is None
    for wrong, message in (
        ({"until": "6:00"}, "until is '6:00'"),
        ({"tables": 0}, "tables is 0"),
        ({"timezone": "Berlin"}, "timezone is 'Berlin', expected a name such as 'Europe/Berlin'"),
    ):
        with pytest.raises(ValueError, match=message):
            Wave(**wrong)
    with pytest.raises(ValueError, match="files is 0"):
        UnitSize(files=0)


def test_a_wave_takes_by_priority_and_size_within_its_budget() -> None:
    rows = [row("small"), row("first", priority=5), row("large", bytes=90_000), row("middle", bytes=20_000)]
    chosen = choose_tables(rows, {}, phase="convert", now=NOON)
    assert names(chosen) == ["first", "large", "middle", "small"]
    assert names(limit_tables(chosen, Wave(tables=2))) == ["first", "large"]
    assert names(limit_tables(chosen, Wave(bytes=25_000))) == ["first", "middle", "small"]
    assert names(limit_tables(chosen[1:], Wave(bytes=10))) == ["large"], "one that is too large has a wave to itself"


@pytest.mark.parametrize(
    ("phase", "options", "expected"),
    [
        ("convert", {}, {"planned", "approved", "failed", "converted"}),
        ("convert", {"approve": True}, {"approved", "failed", "converted"}),
        ("convert", {"verify": False}, {"planned", "approved", "failed"}),
        ("sync", {}, {"verified", "synced"}),
        ("sync", {"verify": False}, {"verified", "synced", "converted"}),
        ("cut_over", {}, {"verified", "synced"}),
        ("roll_back", {}, {"cut_over"}),
    ],
)
def test_each_phase_takes_the_tables_in_its_states(phase, options, expected) -> None:
    every = [*_states("2026-12-01T00:00:00+00:00")]
    rows = [row(state.table.removeprefix("sales.")) for state in every]
    states = {state.table: state for state in every}
    assert set(names(choose_tables(rows, states, phase=phase, now=NOON, **options))) == expected
    assert choose_tables(rows, states, phase=phase, now=NOON, only="web.*", **options) == []
    assert choose_tables(rows, states, phase=phase, now=NOON, leased=states, **options) == []


def _states(probation: str) -> list[TableState]:
    return [TableState(f"sales.{name}", name, probation_until=probation) for name in STATES]


def test_what_is_not_due_excluded_or_out_of_its_probation_waits() -> None:
    later = {"sales.t": TableState("sales.t", "failed", next_attempt="2026-11-18T12:00:01+00:00")}
    assert choose_tables([row("t")], later, phase="convert", now=NOON) == []
    assert names(choose_tables([row("t")], later, phase="convert", now=NOON + HOUR)) == ["t"]
    assert choose_tables([row("t", decision="exclude")], {}, phase="convert", now=NOON) == []
    states = {state.table: state for state in _states("2026-11-18T12:00:00+00:00")}
    assert choose_tables([row("cut_over")], states, phase="roll_back", now=NOON) == []


def test_syncs_take_those_first_that_have_waited_longest() -> None:
    states = {f"sales.{n}": TableState(f"sales.{n}", "synced", updated=f"2026-11-1{n}") for n in (3, 1, 2)}
    assert names(choose_tables([row(n) for n in "123"], states, phase="sync", now=NOON)) == ["1", "2", "3"]


def test_small_tables_are_packed_and_large_ones_are_alone() -> None:
    size = UnitSize(tables=3, files=10, bytes=10_000)
    rows = sort_rows(
        [row("huge", bytes=50_000), row("many", files=11), *(row(f"t{n}", bytes=4_000) for n in range(4)), row("s")]
    )
    units = pack_units(rows, size)
    assert [(unit.lane, names(unit.rows), unit.bytes) for unit in units] == [
        ("alone", ["huge"], 50_000),
        ("packed", ["t0", "t1", "s"], 9_000),
        ("packed", ["t2", "t3"], 8_000),
        ("alone", ["many"], 1_000),
    ]
    assert [names(unit.rows) for unit in pack_units(rows, size, most=2)] == [["huge"], ["t0", "t1", "s"]]
    first = pack_units(sort_rows([*rows, row("urgent", priority=1, files=9)]), size)[0]
    assert names(first.rows) == ["urgent", "t0"]


def test_ten_thousand_tables_make_at_most_256_units() -> None:
    units = pack_units([row(str(n)) for n in range(20_000)], UnitSize(tables=50))
    assert (len(units), sum(len(unit.rows) for unit in units)) == (256, 256 * 50)


def test_a_wave_is_planned_once_and_anew_after_its_end(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    planned(
        store, [row("a"), row("b"), row("big", bytes=10**15), row("held"), row("no", decision="refused", reason="r")]
    )
    assert take_leases(store, ["sales.held"], "other", "1", now=NOON, lasts=HOUR)
    wave = plan_wave(store, "dag/run 1", wave=Wave(until="13:00"), now=NOON, about={"dag_id": "dag"})
    assert wave is not None
    assert (len(wave.packed), len(wave.alone), wave.tables, wave.until) == (1, 1, 3, "2026-11-18T13:00:00+00:00")
    unit = read_unit(store, wave.packed[0])
    assert (unit.table_names, unit.until, unit.lane, unit.phase) == (
        ["sales.a", "sales.b"],
        wave.until,
        "packed",
        "convert",
    )
    assert read_unit(store, wave.alone[0]).table_names == ["sales.big"]
    planned(store, [row("new")])
    assert plan_wave(store, "dag/run 1", now=NOON) == wave
    assert plan_wave(store, "other", only="nothing.*", now=NOON) is None
    write_plan(store, [PlanRow("sales.bare")])
    with pytest.raises(PermanentError, match=r"no definition of sales\.bare"):
        plan_wave(store, "third", now=NOON)


def test_decisions_and_approvals_count_when_a_wave_is_planned(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a"), row("b"), row("c")])
    for table, decision in (("a", {"decision": "exclude"}), ("b", {"approved": True}), ("b", {"priority": 3})):
        add_decision(store, Decision("2026-11-18T12:00:00+00:00", "ada", f"sales.{table}", **decision))
    wave = plan_wave(store, "one", approve=True, now=NOON)
    assert wave is not None
    assert read_unit(store, wave.packed[0]).table_names == ["sales.b"]
    assert {t: s.state for t, s in store.states().items()} == {
        "sales.a": "excluded",
        "sales.b": "approved",
        "sales.c": "planned",
    }


def test_a_plan_is_read_back_and_merged_with_the_one_before(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    assert read_plan(store) == []
    rows = [row("a", owner="ada", priority=2), row("gone", files=7)]
    write_plan(store, rows)
    assert read_plan(store, with_definitions=True) == rows
    assert read_plan(store)[0].definition is None
    merged = {each.table: each for each in merge_plans(rows, [row("a", files=0, bytes=0), row("new")])}
    assert (merged["sales.a"].bytes, merged["sales.gone"].decision) == (1_000, "refused")
    assert set(merged) == {"sales.a", "sales.gone", "sales.new"}


def test_a_new_plan_changes_only_what_no_wave_has_touched(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a"), row("b", decision="refused", reason="bucketed"), row("c")])
    store.write_state(store.states()["sales.c"].change("refused", NOON, run="r", unit="0001"))
    planned(store, [row("a", decision="refused", reason="orc"), row("b"), row("c")])
    found = {t: (s.state, s.error) for t, s in store.states().items()}
    assert found == {"sales.a": ("refused", "orc"), "sales.b": ("planned", None), "sales.c": ("refused", None)}
    planned(store, [row("d", files=0, bytes=0)])
    planned(store, [row("d", files=3, bytes=30)])
    state = store.states()["sales.d"]
    assert (state.files, state.bytes, len(state.history)) == (3, 30, 1), "a size that is known later"


def test_a_plan_is_filtered_and_sorted() -> None:
    rows = [row("a", owner="ada", files=3), row("b", owner="bob", files=9), row("c", owner="ada", decision="exclude")]
    assert names(filter_rows(rows, owners="ADA")) == ["a", "c"]
    assert names(filter_rows(rows, tables=["*.b", "*.c"], decisions=["convert"])) == ["b"]
    assert names(sort_rows(rows, "owner", "-files")) == ["a", "c", "b"]
    with pytest.raises(ValueError, match="no column 'size'"):
        sort_rows(rows, "size")


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"numFiles": "3", "totalSize": "99"}, (3, 99)),
        ({"objectCount": "4", "sizeKey": "50"}, (4, 50)),
        ({"spark.sql.statistics.totalSize": "7"}, (0, 7)),
        ({"totalSize": "-1"}, None),
        ({"numFiles": "0", "totalSize": "0", "sizeKey": "50"}, (0, 50)),
        ({"numFiles": "0", "totalSize": "0"}, None),
    ],
)
def test_sizes_come_from_what_the_catalog_has_counted(properties, expected) -> None:
    assert statistics_of(TableInfo("t", "s3://b/t", properties=properties)) == expected


@pytest.mark.parametrize(
    ("started", "until", "end"),
    [
        ("2026-10-24T22:00+02:00", "06:00", "2026-10-25T06:00+01:00"),  # a night of one hour more
        ("2026-03-28T22:00+01:00", "06:00", "2026-03-29T06:00+02:00"),  # of one hour less
        ("2026-03-28T22:00+01:00", "02:30", "2026-03-29T03:30+02:00"),  # a time that there is not
        ("2026-10-24T22:00+02:00", "02:30", "2026-10-25T02:30+02:00"),  # the first of two
        ("2026-10-25T02:10+01:00", "02:30", "2026-10-25T02:30+01:00"),  # the second
    ],
)
def test_a_window_ends_by_the_clock_on_the_wall_also_when_that_is_changed(started: str, until: str, end: str) -> None:
    wave = Wave(until=until, timezone="Europe/Berlin")
    assert wave.deadline(dt.datetime.fromisoformat(started)) == dt.datetime.fromisoformat(end)


def test_a_run_that_is_approved_after_its_window_begins_nothing(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    planned(store, [row("a")])
    night = Wave(until="06:00")
    evening, morning = NOON - 14 * HOUR, NOON - 3 * HOUR
    assert plan_wave(store, "one", wave=night, started=evening, now=morning) is None
    later = plan_wave(store, "two", wave=night, started=NOON, now=NOON)
    assert later is not None
    assert later.until == "2026-11-19T06:00:00+00:00"
    assert plan_wave(store, "two", wave=night, started=NOON, now=NOON + 30 * HOUR) == later, "a later try of the task"
