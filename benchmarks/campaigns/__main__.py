"""Measure campaigns: ``python -m benchmarks.campaigns``, or a part: ``python -m benchmarks.campaigns scheduler 200``.

The simulation and the page are measured with 1,000 and 10,000 tables. The scheduler is measured with one mapped group
over 200, 1,000 and 4,000 tables, and with a wave of a campaign over as many, and over 10,000.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.campaigns import section
from benchmarks.machine import describe_machine
from benchmarks.measure import PROJECT
from benchmarks.report import keep_lines, read_lines, write_report

Line = dict[str, Any]
PARTS = ("simulation", "page", "scheduler")
#: Tables by part, when none are given.
TABLES = {"simulation": (1_000, 10_000), "page": (1_000, 10_000), "scheduler": (200, 1_000, 4_000, 10_000)}
#: More tables than this are measured with campaigns only: a mapped group would take hours.
LARGEST_GROUP = 4_000


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _parser().parse_args(arguments)
    for part in [chosen.part] if chosen.part else PARTS:
        for tables in chosen.tables or TABLES[part]:
            for line in _MEASURED[part](tables, chosen.seconds):
                print(json.dumps(line), flush=True)
                if chosen.json:
                    keep_lines(chosen.json, [line])
                if chosen.report:
                    write_report(read_lines(chosen.json), chosen.report)
                print(section.format_line(line), file=sys.stderr, flush=True)


def _measure_simulation(tables: int, seconds: float) -> Iterator[Line]:  # noqa: ARG001
    yield _line(section.SIMULATION, f"{tables} tables", _work("simulation", tables))


def _measure_page(tables: int, seconds: float) -> Iterator[Line]:  # noqa: ARG001
    with tempfile.TemporaryDirectory(prefix="bench-campaign-") as folder:
        made = _work("documents", folder, tables)
        planning = _work("planning", folder)
        page = _work("page", folder)
    yield _line(section.PAGE, f"{tables} tables", {"tables": tables, **made, "planning": planning, "page": page})


def _measure_scheduler(tables: int, seconds: float) -> Iterator[Line]:
    for shape in ("mapped-group", "campaign"):
        if shape == "campaign" or tables <= LARGEST_GROUP:
            with tempfile.TemporaryDirectory(prefix="bench-airflow-") as home:
                facts = _work("scheduler", shape, tables, seconds, environment=_airflow(Path(home), tables))
            yield _line(section.SCHEDULER, f"{shape}, {tables} tables", facts)


_MEASURED = {"simulation": _measure_simulation, "page": _measure_page, "scheduler": _measure_scheduler}


def _line(case: str, contender: str, facts: Line) -> Line:
    return {"case": case, "contender": contender, **facts, "machine": describe_machine(Path(tempfile.gettempdir()))}


def _work(*arguments: object, environment: dict[str, str] | None = None) -> Line:
    """The facts of a measurement, from a process of its own."""
    search_path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.campaigns.worker", *map(str, arguments)],
        env={**os.environ, **(environment or {}), "PYTHONPATH": search_path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    facts: Line = json.loads(done.stdout.splitlines()[-1])
    return facts


def _airflow(home: Path, tables: int) -> dict[str, str]:
    """An Airflow with its default settings, but for where it lives and how many tasks may be mapped."""
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "false",
        "AIRFLOW__CORE__MAX_MAP_LENGTH": str(max(1024, tables)),
        "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "false",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.campaigns",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", nargs="?", choices=PARTS, help="what is measured; all when not given")
    parser.add_argument("tables", nargs="*", type=int, help="how many tables, in the place of the numbers above")
    parser.add_argument("--seconds", type=float, default=600, help="CPU seconds after which a scheduler is stopped")
    parser.add_argument("--json", type=Path, help="a file for the results, in the place of earlier ones")
    parser.add_argument("--report", type=Path, help="write a report of all results in the file of --json")
    return parser


if __name__ == "__main__":
    main()
