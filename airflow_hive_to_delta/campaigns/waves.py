"""Waves: which tables a run takes, and the units of work that it makes of them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_hive_to_delta.campaigns.closing import write_summary
from airflow_hive_to_delta.campaigns.decisions import apply_approvals, apply_decisions, approved_tables, read_decisions
from airflow_hive_to_delta.campaigns.leases import read_unreleased, release_leases
from airflow_hive_to_delta.campaigns.plan import PLAN, PlanRow, matches, read_plan, with_decisions
from airflow_hive_to_delta.campaigns.states import WORKED_ON, Phase, StateName, TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.times import format_time, parse_time
from airflow_hive_to_delta.campaigns.units import Unit, WaveRecord, read_wave_record, unit_name, units_folder, wave_path
from airflow_hive_to_delta.core.errors import MissingError, PermanentError
from airflow_hive_to_delta.core.options import check_count

#: More mapped tasks slow Airflow's scheduler down.
MOST_UNITS = 256
Lane = Literal["packed", "alone"]
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True)
class Wave:
    """How much one run takes, and until when."""

    #: At most this many tables; None: as many as its units hold.
    tables: int | None = None
    #: At most this many bytes; None: as many as its units hold. A table that is larger has a wave to itself.
    bytes: int | None = None
    #: The first time of day after the start of the run, such as ``06:00``, from which no table is begun any more; None:
    #: there is none.
    until: str | None = None
    #: The time zone of ``until``.
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        check_count("tables", self.tables, least=1, optional=True)
        check_count("bytes", self.bytes, least=1, optional=True)
        if self.until is not None and not (isinstance(self.until, str) and _TIME.fullmatch(self.until)):
            raise ValueError(f"until is {self.until!r}, expected a time of day such as '06:00'")
        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, AttributeError, OSError) as error:
            raise ValueError(f"timezone is {self.timezone!r}, expected a name such as 'Europe/Berlin'") from error

    def deadline(self, started: dt.datetime) -> dt.datetime | None:
        """The end of the window of a run that has started at this time; None: it has none."""
        if self.until is None:
            return None
        hour, minute = map(int, self.until.split(":"))
        local = started.astimezone(ZoneInfo(self.timezone))
        end = local.replace(hour=hour, minute=minute, second=0, microsecond=0)
        # A day of the calendar, also where the clocks are changed meanwhile.
        return (end if end > local else end + dt.timedelta(days=1)).astimezone(dt.UTC)


@dataclass(frozen=True)
class UnitSize:
    """What one unit of work, which is one task and one job, holds at most. A table that is larger is a unit itself."""

    tables: int = 50
    files: int = 50_000
    bytes: int = 500 * 1024**3

    def __post_init__(self) -> None:
        for name in ("tables", "files", "bytes"):
            check_count(name, getattr(self, name), least=1)


@dataclass
class PackedUnit:
    """Tables that are worked on together."""

    lane: Lane
    rows: list[PlanRow] = field(default_factory=list)
    files: int = 0
    bytes: int = 0

    def add(self, row: PlanRow) -> None:
        self.rows.append(row)
        self.files += row.files
        self.bytes += row.bytes

    def has_room(self, row: PlanRow, size: UnitSize) -> bool:
        fits = self.files + row.files <= size.files and self.bytes + row.bytes <= size.bytes
        return fits and len(self.rows) < size.tables


@dataclass(frozen=True)
class PlannedWave:
    """The units of a wave, by their URIs."""

    packed: list[str]
    alone: list[str]
    tables: int
    bytes: int
    until: str | None


def plan_wave(
    store: CampaignStore,
    run: str,
    *,
    phase: Phase = "convert",
    wave: Wave | None = None,
    size: UnitSize | None = None,
    approve: bool = False,
    verify: bool = True,
    only: str | Sequence[str] | None = None,
    now: dt.datetime,
    started: dt.datetime | None = None,
    about: Mapping[str, str] | None = None,
) -> PlannedWave | None:
    """Choose the tables of a wave and write its units. Called again in the same run, it returns the same wave.

    :param run: a name for the run that no other run of the campaign has.
    :param approve: take only tables that a person has approved: once and for all in the phase ``convert``, in this run
        in other phases.
    :param verify: whether the campaign verifies what it converts.
    :param only: patterns of the tables to take.
    :param started: when the run started, whose window counts: who approves it the next morning opens no other window;
        now when not given.
    :param about: ``dag_id`` and ``run_id`` of the run, for its document.
    :returns: None when no table is left to be worked on now, or the window of the run has ended.
    :raises PermanentError: a document cannot be read, or the plan is gone.
    """
    before = read_wave_record(store, run)
    if before is not None and before.ended is None:
        return _as_planned_wave(store, before)
    wave, size = wave or Wave(), size or UnitSize()
    until = wave.deadline(started or now)
    if until is not None and until <= now:
        return None
    unreleased = read_unreleased(store)
    # No unit of this run works yet: an earlier try of a task before them was killed while it changed the states.
    release_leases(store, [lease for lease in unreleased if lease.run == run])
    leased = {lease.table for lease in unreleased if lease.run != run and lease.is_live(now)}
    decisions = read_decisions(store)
    rows = with_decisions(read_plan(store, with_definitions=True), decisions)
    states: Mapping[str, TableState] = store.states()
    if states and not rows:
        raise MissingError(
            f"There is no plan at {store.location(PLAN)}, expected one of {len(states)} tables, which have states: "
            "somebody has deleted it. Clear the task that plans, in the DAG with phase='convert', and then this one"
        )
    states = apply_approvals(store, states, run=run, now=now)
    states = apply_decisions(store, states, decisions, run=run, now=now)
    if approve and phase != "convert":
        approved = approved_tables(store, phase, run)
        rows = [row for row in rows if row.table in approved]
    wanted = choose_tables(rows, states, phase=phase, approve=approve, verify=verify, only=only, leased=leased, now=now)
    units = pack_units(limit_tables(wanted, wave), size)
    if not units:
        return None
    # A person has cleared a run whose wave had ended: its units are not taken for those of the new one.
    first_unit = 0 if before is None else before.first_unit + before.units
    planned = _write_wave(store, run, phase, units, until=until, now=now, first_unit=first_unit, about=about)
    # So that people see the wave while it runs.
    write_summary(store, dict(states), phase=phase, verify=verify, now=now)
    return planned


def read_wave(store: CampaignStore, run: str) -> PlannedWave | None:
    """The wave that the run has planned; None: it has planned none, or the wave has ended since."""
    wave = read_wave_record(store, run)
    return None if wave is None or wave.ended is not None else _as_planned_wave(store, wave)


def choose_tables(
    rows: Iterable[PlanRow],
    states: Mapping[str, TableState],
    *,
    phase: Phase,
    approve: bool = False,
    verify: bool = True,
    only: str | Sequence[str] | None = None,
    leased: Collection[str] = (),
    now: dt.datetime,
) -> list[PlanRow]:
    """The tables that can be worked on now, in the order in which waves take them.

    By priority; then the largest first, or in the phase ``sync`` those first that have waited longest.
    """
    allowed = _allowed_states(phase, approve=approve, verify=verify)
    found = []
    for row in rows:
        state = states.get(row.table) or TableState(row.table, "refused" if row.decision == "refused" else "planned")
        is_left_out = row.decision == "exclude" or row.table in leased or not matches(row.table, only)
        if is_left_out or state.state not in allowed or not state.is_due(now):
            continue
        over = state.probation_until is None or parse_time(state.probation_until) <= now
        if phase == "roll_back" and over:
            continue
        found.append((row, state))
    if phase == "sync":
        found.sort(key=lambda each: (-each[0].priority, each[1].updated or "", each[0].table))
    else:
        found.sort(key=lambda each: (-each[0].priority, -each[0].bytes, -each[0].files, each[0].table))
    return [row for row, _ in found]


def limit_tables(rows: Iterable[PlanRow], wave: Wave) -> list[PlanRow]:
    """The first of the tables, as many as the wave may take. One that does not fit lets smaller ones go before it."""
    taken: list[PlanRow] = []
    size = 0
    for row in rows:
        if wave.tables is not None and len(taken) >= wave.tables:
            break
        if wave.bytes is not None and size + row.bytes > wave.bytes and taken:
            continue
        taken.append(row)
        size += row.bytes
    return taken


def pack_units(rows: Iterable[PlanRow], size: UnitSize, most: int = MOST_UNITS) -> list[PackedUnit]:
    """Pack tables into units: large ones alone, small ones together, each into the first unit that has room for it.

    The largest units come first, those of tables with a priority before them all. Tables for which there is no unit
    left are left out.
    """
    units: list[PackedUnit] = []
    for row in rows:
        is_large = row.files > size.files or row.bytes > size.bytes
        unit = None if is_large else next((u for u in units if u.lane == "packed" and u.has_room(row, size)), None)
        if unit is None:
            if len(units) >= most:
                continue
            unit = PackedUnit("alone" if is_large else "packed")
            units.append(unit)
        unit.add(row)
    return sorted(units, key=lambda unit: (-max(row.priority for row in unit.rows), -unit.bytes))


def _allowed_states(phase: Phase, *, approve: bool, verify: bool) -> frozenset[StateName]:
    left_out: set[StateName] = {"planned"} if approve else set()
    if verify != (phase == "convert"):  # a conversion that is to be verified is not done yet
        left_out.add("converted")
    return WORKED_ON[phase] - left_out


def _write_wave(
    store: CampaignStore,
    run: str,
    phase: Phase,
    packed: Sequence[PackedUnit],
    *,
    until: dt.datetime | None,
    now: dt.datetime,
    first_unit: int,
    about: Mapping[str, str] | None,
) -> PlannedWave:
    """Write the units, and then the document of the wave, by which they count."""
    ordered = [*(u for u in packed if u.lane == "packed"), *(u for u in packed if u.lane == "alone")]
    units = []
    for number, unit in enumerate(ordered, first_unit):
        missing = [row.table for row in unit.rows if row.definition is None]
        if missing:
            raise PermanentError(f"The plan has no definition of {', '.join(missing[:10])}. Clear the task that plans")
        units.append(
            Unit(
                campaign=store.campaign,
                run=run,
                unit=unit_name(number),
                phase=phase,
                tables=[dict(row.definition or {}) for row in unit.rows],
                until=None if until is None else format_time(until),
                files=unit.files,
                bytes=unit.bytes,
                lane=unit.lane,
            )
        )
    store.map(lambda unit: store.write(unit.path, unit.to_dict()), units)
    wave = WaveRecord(
        run=run,
        phase=phase,
        started=format_time(now),
        until=units[0].until,
        first_unit=first_unit,
        units=len(units),
        packed=sum(unit.lane == "packed" for unit in units),
        tables=sum(len(unit.tables) for unit in units),
        bytes=sum(unit.bytes for unit in units),
        dag_id=(about or {}).get("dag_id"),
        run_id=(about or {}).get("run_id"),
    )
    store.write(wave_path(run), wave.to_dict())
    return _as_planned_wave(store, wave)


def _as_planned_wave(store: CampaignStore, wave: WaveRecord) -> PlannedWave:
    folder = units_folder(wave.run)
    uris = [str(store.location(f"{folder}/{name}.json")) for name in wave.unit_names]
    return PlannedWave(uris[: wave.packed], uris[wave.packed :], wave.tables, wave.bytes, wave.until)
