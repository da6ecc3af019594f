"""The end of a wave: what became of its tables, and the summary of the campaign."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, get_args

from airflow_hive_to_delta.campaigns.documents import CampaignDocument
from airflow_hive_to_delta.campaigns.leases import release_run
from airflow_hive_to_delta.campaigns.states import Phase, StateName, TableState, final_states
from airflow_hive_to_delta.campaigns.store import CampaignStore, StatesByTable
from airflow_hive_to_delta.campaigns.times import format_time, parse_time
from airflow_hive_to_delta.campaigns.units import (
    Unit,
    WaveRecord,
    entries_of_units,
    read_wave_record,
    units_folder,
    wave_path,
)
from airflow_hive_to_delta.campaigns.view.state_index import write_index
from airflow_hive_to_delta.core.errors import MissingError

SUMMARY = "summary.json"


@dataclass(frozen=True)
class SummaryRecord(CampaignDocument):
    """What is read back of the summary of a campaign."""

    noun: ClassVar[str] = "summary of a campaign"

    #: The tables and bytes in each state.
    by_state: dict[str, dict[str, int]] = field(default_factory=dict)
    waves: list[dict[str, Any]] = field(default_factory=list)


_MOST_WAVES = 200
_MOST_NAMES = 100
#: Waves by whose speed the end is forecast.
_RECENT_WAVES = 10


@dataclass
class ClosedWave:
    """What became of a wave."""

    run: str
    phase: Phase
    #: Of the wave.
    tables: int
    units: int
    #: The names of its tables that have failed in it, in their order.
    failed: list[str] = field(default_factory=list)
    #: Of those, the ones that need a person since, by owner.
    needs_person: dict[str, list[str]] = field(default_factory=dict)
    #: Its tables that were not worked on: the window ended before, somebody else had them, or their task failed.
    left: list[str] = field(default_factory=list)
    #: The numbers of units whose tasks did not end well: they failed, or their workers were lost.
    lost_units: list[str] = field(default_factory=list)
    #: The state of every table of the campaign.
    states: dict[str, TableState] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)

    def exceeds(self, tolerance: float) -> bool:
        """Whether more tables have failed than are tolerated.

        :param tolerance: a whole number of tables, or a part of the wave's, such as ``0.05``.
        """
        most = tolerance if isinstance(tolerance, int) else tolerance * self.tables
        return len(self.failed) > most


def close_wave(store: CampaignStore, run: str, *, verify: bool = True, now: dt.datetime) -> ClosedWave:
    """Release the leases that the run still holds, and write the numbers of its wave and the summary of the campaign.

    It can be called again, and then writes the same.

    :raises MissingError: the run has planned no wave.
    """
    wave = read_wave_record(store, run)
    if wave is None:
        raise MissingError(f"The run {run} has planned no wave of the campaign {store.campaign}")
    release_run(store, run)
    states = store.states()
    names = _tables_of(store, wave)
    closed = ClosedWave(run, wave.phase, len(names), wave.units, states=states)
    ended = {name.removesuffix(".json") for name in store.names(f"{units_folder(run)}/ended")}
    units = wave.unit_names
    closed.lost_units = [unit for unit in units if unit not in ended]
    needs_person: dict[str, list[str]] = defaultdict(list)
    for name in names:
        state = states.get(name)
        # What the plan, an approval or a decision has written in this run is no work on the table.
        entries = [] if state is None else entries_of_units(state, run, frozenset(units))
        if state is None or not entries:
            closed.left.append(name)
        elif "error" in entries[-1] and state.state != "refused":
            closed.failed.append(name)
            if state.state == "needs_person":
                needs_person[state.owner].append(name)
    closed.needs_person = dict(sorted(needs_person.items()))
    wave = replace(
        wave,
        ended=wave.ended or format_time(now),
        by_state=count_states(states.values()),
        failed=closed.failed[:_MOST_NAMES],
        failed_count=len(closed.failed),
        left=len(closed.left),
        lost_units=len(closed.lost_units),
    )
    store.write(wave_path(run), wave.to_dict())
    closed.summary = write_summary(store, states, phase=closed.phase, verify=verify, now=now)
    return closed


def count_states(states: Iterable[TableState]) -> dict[str, dict[str, int]]:
    """The tables and bytes in each state that there is."""
    found: dict[str, dict[str, int]] = {}
    for state in states:
        counts = found.setdefault(state.state, {"tables": 0, "bytes": 0})
        counts["tables"] += 1
        counts["bytes"] += state.bytes
    return {name: found[name] for name in get_args(StateName) if name in found}


def write_summary(
    store: CampaignStore,
    states: Mapping[str, TableState],
    *,
    phase: Phase,
    verify: bool = True,
    now: dt.datetime,
    dag_id: str | None = None,
) -> dict[str, Any]:
    """Write the summary of the campaign, by the states of its tables and by its waves, and the index of the states.

    :param states: of all tables. The index is written where it is known from which versions of the documents they were
        read, as :meth:`CampaignStore.states` gives them.
    :param dag_id: the DAG that the campaign belongs to, whose readers may see it; None: that of its newest wave.
    """
    names = store.names("waves")
    waves = sorted(
        (wave for _, wave in store.read_all_as(WaveRecord, (f"waves/{name}" for name in names))),
        key=lambda wave: wave.started,
    )
    summary = {
        "campaign": store.campaign,
        "dag_id": dag_id or next((wave.dag_id for wave in reversed(waves) if wave.dag_id), None),
        "phase": phase,
        "updated": format_time(now),
        "tables": len(states),
        "bytes": sum(state.bytes for state in states.values()),
        "by_state": count_states(states.values()),
        "final": sorted(final_states(phase, verify=verify)),
        "waves": [wave.to_dict() for wave in waves[-_MOST_WAVES:]],
        "forecast": _forecast([wave for wave in waves if wave.phase == phase], phase, verify=verify),
    }
    if isinstance(states, StatesByTable):
        write_index(store, states)
    store.write(SUMMARY, summary)
    return summary


def _tables_of(store: CampaignStore, wave: WaveRecord) -> list[str]:
    """The names of the tables of all units of a wave."""
    folder = units_folder(wave.run)
    found = store.read_all_as(Unit, (f"{folder}/{name}.json" for name in wave.unit_names))
    return sorted(name for _, unit in found for name in unit.table_names)


def _forecast(waves: Sequence[WaveRecord], phase: Phase, *, verify: bool) -> str | None:
    """When no table will be left, at the speed of the latest waves; None: there is none, or they get nothing done.

    By tables and by bytes, whichever takes longer.
    """
    final = final_states(phase, verify=verify)
    ended = [wave for wave in waves if wave.ended is not None][-_RECENT_WAVES:]
    if not ended:
        return None
    first, last = ended[0], ended[-1]
    begin = parse_time(first.started if first is last else first.ended or first.started)
    end = parse_time(last.ended or last.started)
    ends = []
    for what in ("tables", "bytes"):
        left = [sum(n[what] for state, n in w.by_state.items() if state not in final) for w in (first, last)]
        done = left[0] - left[1] if first is not last else getattr(last, what) * _share_done(last)
        if left[1] == 0:
            ends.append(end)
        elif done <= 0:
            return None
        else:
            ends.append(end + (end - begin) * (left[1] / done))
    return format_time(max(ends))


def _share_done(wave: WaveRecord) -> float:
    """The share of the tables of a campaign's only wave that are done with."""
    undone = wave.left + wave.by_state.get("failed", {"tables": 0})["tables"]
    return max(0.0, 1 - undone / max(wave.tables, 1))
