"""A campaign of ten thousand tables by simulation: no Airflow, no Spark, a stand-in for the job, and workers that die.

    python -m benchmarks.campaigns [tables]

All else is the code that runs in production: the plan, the waves and their units, leases, states and decisions. Its
documents are in memory, and requests are counted as S3 would count them. Prints a table of what it took.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import random
import resource
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from airflow_hive_to_delta.campaigns.closing import ClosedWave, close_wave
from airflow_hive_to_delta.campaigns.outcomes import WorkOutcome
from airflow_hive_to_delta.campaigns.plan import PlanRow, first_states, write_plan
from airflow_hive_to_delta.campaigns.states import FINAL, Retries
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.units import UnitWork, read_unit
from airflow_hive_to_delta.campaigns.waves import UnitSize, Wave, plan_wave
from airflow_hive_to_delta.core.errors import HiveToDeltaError, MissingError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.storage.base import StoredFile
from airflow_hive_to_delta.core.storage.uri import Location

_START = dt.datetime(2026, 11, 20, 22, tzinfo=dt.UTC)
_GIB = 1024**3


class WorkerKilled(BaseException):
    """A worker is gone, in the middle of whatever it did."""


class MemoryStorage:
    """Files in memory, which counts the requests that it gets."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self._files: dict[str, bytes] = {}
        self._names: dict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        source.seek(0)
        with self._lock:
            self.requests["PUT"] += 1
            if path.path in self._files:
                return False
            self._put(path.path, source.read())
            return True

    def replace(self, path: Location, content: bytes) -> None:
        with self._lock:
            self.requests["PUT"] += 1
            self._put(path.path, content)

    def open(self, path: Location) -> BinaryIO:
        with self._lock:
            self.requests["GET"] += 1
            if path.path not in self._files:
                raise MissingError(f"There is no {path}")
            return io.BytesIO(self._files[path.path])

    def size(self, path: Location) -> int:
        return len(self._files[path.path])

    def list_names(self, folder: Location) -> list[str]:
        with self._lock:
            self.requests["LIST"] += 1
            return list(self._names.get(folder.path, ()))

    def list_files(self, folder: Location) -> list[StoredFile]:
        found = [name for name in self.list_names(folder) if not name.endswith("/")]
        return [StoredFile(name, self.size(folder.child(name)), 0) for name in found]

    def delete(self, path: Location) -> None:
        self.delete_files([path])

    def delete_files(self, paths: Sequence[Location]) -> dict[Location, HiveToDeltaError]:
        with self._lock:
            self.requests["DELETE"] += bool(paths)
            for path in paths:
                if self._files.pop(path.path, None) is not None:
                    folder, _, name = path.path.rpartition("/")
                    self._names[folder].discard(name)
        return {}

    def remove_folder(self, folder: Location) -> None:
        pass

    def move(self, source: Location, target: Location) -> None:
        raise NotImplementedError

    def _put(self, path: str, content: bytes) -> None:
        if path not in self._files:
            folder, _, name = path.rpartition("/")
            while name not in self._names[folder]:
                self._names[folder].add(name)
                folder, _, above = folder.rpartition("/")
                name = f"{above}/"
        self._files[path] = content


class DyingStorage:
    """A storage of a worker that is killed at one of its writes, before or after it.

    :param writes: how many it does before; None: it lives on.
    """

    def __init__(self, storage: MemoryStorage, writes: int | None, *, after: bool) -> None:
        self._storage = storage
        self._left = writes
        self._after = after
        self._lock = threading.Lock()

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        return bool(self._write("put_if_absent", path, source))

    def replace(self, path: Location, content: bytes) -> None:
        self._write("replace", path, content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def _write(self, name: str, *arguments: Any) -> Any:
        with self._lock:
            left = self._left
            self._left = None if left is None else left - 1
        if left is not None and left < 0:
            raise WorkerKilled
        if left == 0 and not self._after:
            raise WorkerKilled
        done = getattr(self._storage, name)(*arguments)
        if left == 0:
            raise WorkerKilled
        return done


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
        self.largest_xcom = 0
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
                self.largest_xcom = max(self.largest_xcom, len(json.dumps(wave.packed)), len(json.dumps(wave.alone)))
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
        return unfinished

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


def describe(simulation: Simulation, seconds: float) -> str:
    """What a simulation took, as a table of Markdown."""
    states = simulation.by_state()
    requests = simulation.storage.requests
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = {
        "tables": f"{simulation.tables:,}",
        "waves": simulation.waves,
        "units (one task and one job each)": f"{simulation.units:,}",
        "workers killed": f"{simulation.kills:,}",
        "tables by state": ", ".join(f"{count:,} {state}" for state, count in sorted(states.items())),
        "tables converted twice": sum(count > 1 for count in simulation.lake.conversions.values()),
        "tables forgotten": simulation.tables - sum(states.values()),
        "largest XCom (the URIs of a wave's units)": f"{simulation.largest_xcom:,} bytes",
        "requests to S3 for a table": ", ".join(
            f"{requests[kind] / simulation.tables:.1f} {kind}" for kind in ("PUT", "GET", "LIST")
        ),
        "time of the simulation": f"{seconds:.0f} s",
        "memory of its process": f"{megabytes:.0f} MB",
    }
    return "\n".join(["| What | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    started = time.monotonic()
    simulation = Simulation(int(given[0]) if given else 10_000)
    simulation.run()
    print(describe(simulation, time.monotonic() - started))
    return 0


if __name__ == "__main__":
    sys.exit(main())
