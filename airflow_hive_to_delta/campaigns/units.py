"""One unit of work: the tables that one task works on with one job, and their states while it does."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_hive_to_delta.campaigns.documents import CampaignDocument, check_tables, check_times
from airflow_hive_to_delta.campaigns.leases import Lease, is_held, release_leases, renew_leases, take_leases
from airflow_hive_to_delta.campaigns.outcomes import WorkOutcome, apply_outcome
from airflow_hive_to_delta.campaigns.states import WORKED_ON, Phase, Retries, TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.times import format_time, parse_time
from airflow_hive_to_delta.campaigns.times import now as current_time
from airflow_hive_to_delta.core.errors import MissingError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.job.file_names import safe_name


@dataclass(frozen=True)
class WaveRecord(CampaignDocument):
    """A wave, and what became of it."""

    noun: ClassVar[str] = "wave"

    #: The key of the run.
    run: str
    phase: Phase
    started: str
    #: How many units it has; those of them that are of small tables come first.
    units: int
    packed: int
    tables: int
    bytes: int
    #: None: it goes on.
    ended: str | None = None
    until: str | None = None
    #: The number of its first unit. Those before are of earlier waves of the same run, which a person has cleared.
    first_unit: int = 0
    #: The tables and bytes of the campaign in each state, at its end.
    by_state: dict[str, dict[str, int]] = field(default_factory=dict)
    #: The first of the tables that failed, and how many there were.
    failed: list[str] = field(default_factory=list)
    failed_count: int = 0
    left: int = 0
    lost_units: int = 0
    dag_id: str | None = None
    run_id: str | None = None

    def __post_init__(self) -> None:
        check_times(started=self.started, ended=self.ended, until=self.until)
        if self.first_unit < 0:
            raise ValueError(f"first_unit is {self.first_unit}, expected at least 0")
        if not 0 <= self.packed <= self.units:
            raise ValueError(f"packed is {self.packed}, expected at most the number of units, {self.units}")
        for state, counts in self.by_state.items():
            if not counts.keys() >= {"tables", "bytes"}:
                raise ValueError(f"by_state has {counts!r} for {state}, expected tables and bytes")

    @property
    def unit_names(self) -> list[str]:
        """The names of its units, those of small tables first."""
        return [unit_name(self.first_unit + number) for number in range(self.units)]


@dataclass(frozen=True)
class Unit(CampaignDocument):
    """The document of a unit, of which a task gets the URI alone."""

    noun: ClassVar[str] = "unit"

    campaign: str
    run: str
    unit: str
    phase: Phase
    #: :class:`TableInfo` dicts.
    tables: list[dict[str, Any]]
    #: No table is begun after this time.
    until: str | None
    files: int
    bytes: int
    lane: str = "packed"

    def __post_init__(self) -> None:
        check_times(until=self.until)
        check_tables(self.tables)

    @property
    def path(self) -> str:
        """Where the document lies, from the folder of the campaign."""
        return f"{units_folder(self.run)}/{self.unit}.json"

    @property
    def table_names(self) -> list[str]:
        return [TableInfo.from_dict(table).qualified_name for table in self.tables]


def unit_name(number: int) -> str:
    """The name of a unit of a run."""
    return f"{number:04d}"


def units_folder(run: str) -> str:
    """The folder of a run's units, from the folder of the campaign."""
    return f"units/{safe_name(run)}"


def end_path(run: str, unit: str) -> str:
    """The path of the document that says that the task of a unit has ended well, from the folder of the campaign."""
    return f"{units_folder(run)}/ended/{unit}.json"


def entries_of_units(state: TableState, run: str, units: Collection[str]) -> list[dict[str, Any]]:
    """The entries in the history of a table that units of a run have written."""
    return [entry for entry in state.history if entry["run"] == run and entry["unit"] in units]


def wave_path(run: str) -> str:
    """The path of the document of a run's wave, from the folder of the campaign."""
    return f"waves/{safe_name(run)}.json"


def read_unit(store: CampaignStore, uri: str) -> Unit:
    """Read the document of a unit.

    :raises MissingError: there is none.
    """
    path = store.path(uri)
    found = store.read_as(Unit, path)
    if found is None:
        raise MissingError(f"There is no unit at {uri}: somebody has deleted it. Start a new run")
    if found.path != path:
        raise store.wrong_document(path, f"is of {found.path}, by its run and unit")
    return found


def read_wave_record(store: CampaignStore, run: str) -> WaveRecord | None:
    """The document of a run's wave; None when it has planned none.

    :raises PermanentError: it is no such document.
    """
    path = wave_path(run)
    found = store.read_as(WaveRecord, path)
    if found is not None and found.run != run:
        raise store.wrong_document(path, f"is of the run {found.run!r}, expected {run!r}")
    return found


@dataclass
class UnitWork:
    """The work on a unit: takes the leases of its tables, and writes their states while it holds them."""

    store: CampaignStore
    unit: Unit
    retries: Retries = field(default_factory=Retries)
    #: How long leases last. They are renewed while the work goes on.
    lease: dt.timedelta = dt.timedelta(hours=1)
    probation: dt.timedelta | None = None
    clock: Callable[[], dt.datetime] = current_time

    def __post_init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._states: dict[str, TableState] = {}

    def is_past_window(self) -> bool:
        """Whether no table may be begun any more."""
        return self.unit.until is not None and self.clock() >= parse_time(self.unit.until)

    def begin(self) -> list[TableInfo]:
        """Take the leases, and return the tables that are to be worked on.

        Those that somebody else works on are left out, those that an earlier try of this unit is done with, and those
        that have come to a state since the wave was planned in which the phase has nothing to do with them: another run
        was faster, or a person has excluded them.
        """
        tables = {table.qualified_name: table for table in map(TableInfo.from_dict, self.unit.tables)}
        self._leases = take_leases(
            self.store, tables, self.unit.run, self.unit.unit, now=self.clock(), lasts=self.lease
        )
        self._states = self.store.states_of(self._leases)
        for name in self._leases:
            self._states.setdefault(name, TableState(name))
        self._release([name for name in self._leases if not self._is_wanted(self._states[name])])
        return [table for name, table in tables.items() if name in self._leases]

    def holds(self, table: str) -> bool:
        """Whether this task holds the lease of a table, whose outcome is not written yet."""
        return table in self._leases

    def record(
        self, table: str, outcome: WorkOutcome, links: Mapping[str, str | None] | None = None
    ) -> TableState | None:
        """Write the state of a table by the outcome of its work, and release its lease.

        :returns: None when the lease was lost meanwhile: whoever has it now writes the state.
        """
        lease = self._leases.get(table)
        if lease is None:
            return None
        if not lease.is_live(self.clock()) or not is_held(self.store, lease):
            del self._leases[table]
            return None
        before = self._states[table]
        unit = self.unit
        state = apply_outcome(
            before,
            outcome,
            self.retries,
            now=self.clock(),
            run=unit.run,
            unit=unit.unit,
            probation=self.probation,
            links=links,
        )
        if state is not before:
            self.store.write_state(state)
        self._release([table])
        return state

    def conclude(
        self,
        outcomes: Mapping[str, WorkOutcome],
        *,
        is_last_try: bool,
        links: Mapping[str, str | None] | None = None,
    ) -> list[str]:
        """Write the states of tables by the outcomes of their work, and release their leases.

        :param is_last_try: no other try of the unit follows. If one does, tables that it may help keep their states
            and leases.
        :returns: the names of those tables.
        """
        unfinished = [name for name, outcome in outcomes.items() if outcome.retryable and not is_last_try]
        for name, outcome in outcomes.items():
            if name not in unfinished:
                self.record(name, outcome, links)
        return unfinished

    def end(self) -> None:
        """Release the leases that are left, and record that the task of the unit has ended well."""
        left = self.release()
        self.store.write(end_path(self.unit.run, self.unit.unit), {"at": format_time(self.clock()), "left": left[:100]})

    def renew(self, lasts: dt.timedelta | None = None) -> None:
        """Extend the leases of the tables that are left."""
        kept = renew_leases(self.store, dict(self._leases), now=self.clock(), lasts=lasts or self.lease)
        self._leases = {table: kept[table] for table in self._leases if table in kept}

    def release(self) -> list[str]:
        """Release the leases of the tables that are left, whose states stay as they are. Returns their names."""
        left = list(self._leases)
        self._release(left)
        return left

    def count_states(self) -> dict[str, int]:
        """How many tables of the unit are in each state now."""
        states = self.store.states_of(self.unit.table_names)
        return dict(Counter(state.state for state in states.values()))

    def _release(self, tables: list[str]) -> None:
        release_leases(self.store, [self._leases.pop(table) for table in tables])

    def _is_wanted(self, state: TableState) -> bool:
        """Whether the phase has something to do with a table, which no earlier try of this unit has done.

        A table that has failed is tried again when a person clears the task.
        """
        unit = self.unit
        written = entries_of_units(state, unit.run, [unit.unit])
        return state.state in WORKED_ON[unit.phase] and (not written or "error" in written[-1])
