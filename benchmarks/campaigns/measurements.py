"""What a campaign takes by itself: the simulation, planning a wave, and the page, each in a process of its own."""

from __future__ import annotations

import datetime as dt
import json
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet  # noqa: F401  (else reading the plan would import it, and count with its memory)

from airflow_hive_to_delta.campaigns.closing import write_summary
from airflow_hive_to_delta.campaigns.plan import PlanRow, first_states, write_plan
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.waves import plan_wave
from airflow_hive_to_delta.core.models import TableInfo
from benchmarks.campaigns.simulation import Simulation

Facts = dict[str, Any]
CAMPAIGN = "measured"
_NOW = dt.datetime(2026, 11, 20, 22, tzinfo=dt.UTC)
_COLUMNS = 20


def measure_simulation(tables: int) -> Facts:
    """Run a campaign to its last table, and say what became of its tables and what it took."""
    started, before = time.monotonic(), read_memory("VmRSS")
    simulation = Simulation(tables)
    simulation.run()
    seconds = time.monotonic() - started
    requests = simulation.storage.requests
    states = simulation.by_state()
    return {
        "tables": tables,
        "waves": simulation.waves,
        "units": simulation.units,
        "workers_killed": simulation.kills,
        "by_state": states,
        "converted_twice": sum(count > 1 for count in simulation.lake.conversions.values()),
        "forgotten": tables - sum(states.values()),
        "xcom_bytes": simulation.xcom_bytes,
        "requests_per_table": {kind: round(requests[kind] / tables, 1) for kind in ("PUT", "GET", "LIST")},
        "seconds": round(seconds, 1),
        # The documents of the campaign, which a real one has on S3, are in memory, too.
        "memory_mb": round(read_memory("VmHWM") - before),
    }


def make_documents(folder: Path, tables: int) -> Facts:
    """Write the documents of a campaign whose plan was made: a plan, a state for each table, and a summary."""
    dice = random.Random(tables)
    store = _store(folder)
    rows = [_row(number, dice) for number in range(tables)]
    write_plan(store, rows)
    first_states(store, rows, {}, run="plan", now=_NOW)
    write_summary(store, store.states(), phase="convert", now=_NOW, dag_id="measured")
    return {"plan_bytes": len(store.read_bytes("plan.parquet") or b"")}


def measure_planning(folder: Path) -> Facts:
    """Plan a wave, as the task ``plan_wave`` does: read the plan and all states, and write the units."""
    store = _store(folder)
    with _measured() as facts:
        wave = plan_wave(store, "measured", now=_NOW)
    assert wave is not None
    xcom = {"packed": len(json.dumps(wave.packed)), "alone": len(json.dumps(wave.alone))}
    return {**facts, "tables": wave.tables, "units": len(wave.packed) + len(wave.alone), "xcom_bytes": xcom}


def measure_page(folder: Path) -> Facts:
    """Read a campaign as the page does: all of it for the first request, then what has changed, and tables to show."""
    from airflow_hive_to_delta.plugins.campaign_index import CampaignIndex
    from airflow_hive_to_delta.plugins.documents import CampaignFolder
    from airflow_hive_to_delta.plugins.table_query import TableQuery

    index = CampaignIndex(CampaignFolder.find_all(f"file://{folder}", None)[CAMPAIGN])
    with _measured() as first:
        snapshot, _ = index.snapshot(patience=600)
    assert snapshot is not None
    index.expire()
    with _measured() as again:
        index.snapshot(patience=600)
    with _measured() as query:
        shown = snapshot.select(TableQuery(search="db1", sort="bytes", descending=True))[:100]
    page = json.dumps([row.to_dict() for row in shown])
    return {
        "tables": len(snapshot.rows),
        "memory_mb": first["memory_mb"],
        "first_seconds": first["seconds"],
        "again_seconds": again["seconds"],
        "query_seconds": query["seconds"],
        "page_bytes": len(page),
    }


def _row(number: int, dice: random.Random) -> PlanRow:
    columns = [{"Name": f"column_{each}", "Type": "bigint", "Comment": ""} for each in range(_COLUMNS)]
    name, database = f"t{number:05d}", f"db{number % 40:02d}"
    table = TableInfo(name, f"s3://lake/{database}/{name}", columns=columns, database=database, source="glue")
    size = round(dice.paretovariate(0.8) * 1024**3 / 8)
    return PlanRow.of_table(table, files=size // (128 * 1024**2) + 1, bytes=size, owner=f"team{number % 7}")


def _store(folder: Path) -> CampaignStore:
    return CampaignStore.open(f"file://{folder}", CAMPAIGN)


@contextmanager
def _measured() -> Iterator[Facts]:
    """Seconds of a block, and by how much its process has grown at most."""
    facts: Facts = {}
    before, started = read_memory("VmRSS"), time.monotonic()
    yield facts
    facts["seconds"] = round(time.monotonic() - started, 3)
    facts["memory_mb"] = round(max(0.0, read_memory("VmHWM") - before))


def read_memory(field: str) -> float:
    """A line of the status of this process, in megabytes: what it has now (``VmRSS``) or had at most (``VmHWM``)."""
    lines: Iterable[str] = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))
