"""A campaign of ten thousand tables by simulation: no Airflow, no Spark, a stand-in for the job, and workers that die.

All else is the code that runs in production: the plan, the waves and their units, leases, states and decisions. Its
documents are in memory, and requests are counted as S3 would count them.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from airflow_hive_to_delta.campaigns.closing import ClosedWave, close_wave
from airflow_hive_to_delta.campaigns.outcomes import WorkOutcome
from airflow_hive_to_delta.campaigns.plan import PlanRow, first_states, write_plan
from airflow_hive_to_delta.campaigns.states import FINAL, Retries
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.units import UnitWork, read_unit
from airflow_hive_to_delta.campaigns.waves import UnitSize, Wave, plan_wave
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.storage.uri import Location
from benchmarks.campaigns.storages import DyingStorage, MemoryStorage, WorkerKilled

_START = dt.datetime(2026, 11, 20, 22, tzinfo=dt.UTC)
_GIB = 1024**3


@dataclass
class Lake:
    """A stand-in for the tables and for the job that converts them."""

    #: A table fails for a reason that passes so often, each time it is worked on.
    transient: float
    #: Tables that can never be converted.
    broken: frozenset[str]
    seed: int
    conversions: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def convert(self, table: TableInfo, dice: random.Random) -> dict[str, Any]:
        """What the job leaves of a table."""
        name = table.qualified_name
        shared: dict[str, Any] = {
            "source_table": name,
            "target_table": f"delta.{table.name}",
            "location": table.location,
        }
        shared |= {"file_count": 4, "byte_count": 0, "row_count": 100, "ours": True}
        if name in self.broken:
            error = {"error": "A type conflict in the column n", "error_kind": "AccessDeniedError", "retryable": False}
            return {**shared, "success": False, "status": "failed", "version": None, **error}
        if dice.random() < self.transient:
            error = {"error": "SlowDown", "error_kind": "TransientError", "retryable": True}
            return {**shared, "success": False, "status": "failed", "version": None, **error}
        with self.lock:  # commit 0 is put if absent
            status = "already_delta" if self.conversions[name] else "converted"
            self.conversions[name] += status == "converted"
        proof = {"success": True, "level": "counts", "version": 0, "row_count": 100}
        done = {"error": None, "error_kind": None, "retryable": None, "version": 0, "verification": proof}
        return {**shared, "success": True, "status": status, "verified": {"counts": 0}, **done}


@dataclass
class Simulation:
    """A campaign from its plan to the last table."""

    tables: int
    transient: float = 0.02
    permanent: float = 0.01
    #: Workers that are killed while they work on a unit.
    killed: float = 0.05
    seed: int = 1
    workers: int = 8
    wave: Wave = field(default_factory=lambda: Wave(tables=2_500))
    size: UnitSize = field(default_factory=lambda: UnitSize(tables=50, bytes=200 * _GIB))
    retries: Retries = field(default_factory=lambda: Retries(backoff=dt.timedelta(minutes=30), in_unit=1))

    def __post_init__(self) -> None:
        self.storage = MemoryStorage()
        self.root = Location("s3", "bucket", "/staging/campaigns/simulated")
        self.dice = random.Random(self.seed)
        self.time = _START
        self.waves = self.units = self.kills = 0
        #: The bytes of the largest XCom of each task.
        self.xcom_bytes = dict.fromkeys(("plan_wave", "large_units", "unit"), 0)
        rows = [self._row(number) for number in range(self.tables)]
        broken = self.dice.sample([row.table for row in rows], round(self.tables * self.permanent))
        self.lake = Lake(self.transient, frozenset(broken), self.seed)
        write_plan(self.store(), rows)
        first_states(self.store(), rows, {}, run="plan", now=self.time)

    def store(self, *, dies_after: int | None = None) -> CampaignStore:
        """A store of the campaign, as a process has it that may be killed."""
        if dies_after is None:
            return CampaignStore(self.storage, self.root)
        dying: Any = DyingStorage(self.storage, dies_after, after=self.dice.random() < 0.5)
        return CampaignStore(dying, self.root)

    def run(self, most_waves: int = 200) -> ClosedWave:
        """Run waves until no table is left. Returns the last one."""
        closed: ClosedWave | None = None
        for number in range(most_waves):
            wave = plan_wave(self.store(), f"wave-{number}", wave=self.wave, size=self.size, now=self.time)
            if wave is None:
                if closed is not None and not self._is_waiting():
                    return closed
            else:
                self.waves += 1
                self.units += len(wave.packed) + len(wave.alone)
                self._push("plan_wave", wave.packed)
                self._push("large_units", wave.alone)
                orders = [(uri, self._fates()) for uri in (*wave.alone, *wave.packed)]
                with ThreadPoolExecutor(self.workers) as pool:
                    list(pool.map(self._work, *zip(*orders, strict=True)))
                closed = close_wave(self.store(), f"wave-{number}", now=self.time)
            self.time += dt.timedelta(hours=1)
        raise RuntimeError(f"Tables are left after {most_waves} waves: {self.by_state()}")

    def by_state(self) -> dict[str, int]:
        """How many tables are in each state."""
        return dict(Counter(state.state for state in self.store().states().values()))

    def _work(self, uri: str, fates: Sequence[tuple[int, int | None]]) -> None:
        """What the tries of one task do: each may be killed, and the last one may be."""
        for number, (seed, dies_after) in enumerate(fates):
            try:
                if not self._try(uri, random.Random(seed), dies_after, is_last=number == len(fates) - 1):
                    return
            except WorkerKilled:
                self.kills += 1

    def _try(self, uri: str, dice: random.Random, dies_after: int | None, *, is_last: bool) -> list[str]:
        store = self.store(dies_after=dies_after)
        work = UnitWork(store, read_unit(store, uri), self.retries, clock=lambda: self.time)
        results = {table.qualified_name: self.lake.convert(table, dice) for table in work.begin()}
        outcomes = {name: WorkOutcome.of_result("convert", result) for name, result in results.items()}
        unfinished = work.conclude(outcomes, is_last_try=is_last)
        if unfinished:
            work.release()
        else:
            work.end()
            self._push("unit", work.count_states())
        return unfinished

    def _push(self, task: str, value: Any) -> None:
        """What a task returns to Airflow."""
        self.xcom_bytes[task] = max(self.xcom_bytes[task], len(json.dumps(value)))

    def _fates(self) -> list[tuple[int, int | None]]:
        """For each try of a unit a seed, and after how many writes its worker is killed, if it is."""
        tries = self.retries.in_unit + 1
        # A lease, a state and the end of the lease are written for each table.
        writes = 3 * self.size.tables
        dies = [self.dice.randrange(writes) if self.dice.random() < self.killed else None for _ in range(tries)]
        return [(self.dice.randrange(2**32), each) for each in dies]

    def _is_waiting(self) -> bool:
        return any(state.state not in FINAL["convert"] for state in self.store().states().values())

    def _row(self, number: int) -> PlanRow:
        table = TableInfo(f"t{number:05d}", f"s3://lake/t{number:05d}", database=f"db{number % 40:02d}")
        # Most tables are small, and a few are most of the bytes.
        size = round(self.dice.paretovariate(0.8) * _GIB / 8)
        return PlanRow.of_table(table, files=size // (128 * 1024**2) + 1, bytes=size, owner=f"team{number % 7}")
