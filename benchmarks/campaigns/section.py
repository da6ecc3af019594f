"""The part of the report about campaigns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

SIMULATION = "campaign-simulation"
PAGE = "campaign-page"
SCHEDULER = "campaign-scheduler"
CASES = (SIMULATION, PAGE, SCHEDULER)

Line = Mapping[str, Any]
_SHAPES = {"mapped-group": "one mapped group", "campaign": "campaign"}


def format_line(line: Line) -> str:
    """One result, for a terminal."""
    facts = [f"{name} {value}" for name, value in line.items() if name not in ("case", "contender", "machine")]
    return f"{line['case']}, {line['contender']}: {', '.join(facts)}"


def campaign_section(lines: Sequence[Line]) -> list[str]:
    """The paragraphs about campaigns in Markdown; none when they have not been measured."""
    parts: list[str] = []
    for case, describe in ((SIMULATION, _simulation), (PAGE, _page), (SCHEDULER, _scheduler)):
        found = sorted((line for line in lines if line["case"] == case), key=lambda line: line["tables"])
        parts += describe(found) if found else []
    return ["## Campaigns", *parts] if parts else []


def _simulation(lines: Sequence[Line]) -> list[str]:
    rows: dict[str, Callable[[Line], str]] = {
        "waves of at most 2,500 tables": lambda line: f"{line['waves']:,}",
        "units (one task and one job each)": lambda line: f"{line['units']:,}",
        "workers killed": lambda line: f"{line['workers_killed']:,}",
        "tables by state at the end": lambda line: ", ".join(
            f"{count:,} {state.replace('_', ' ')}" for state, count in sorted(line["by_state"].items())
        ),
        "tables converted twice": lambda line: f"{line['converted_twice']:,}",
        "tables forgotten": lambda line: f"{line['forgotten']:,}",
        "largest XCom of plan_wave (addresses of units)": lambda line: _bytes(line["xcom_bytes"]["plan_wave"]),
        "largest XCom of large_units": lambda line: _bytes(line["xcom_bytes"]["large_units"]),
        "largest XCom of a unit": lambda line: _bytes(line["xcom_bytes"]["unit"]),
        "requests to S3 for a table, over all waves": lambda line: ", ".join(
            f"{count:.1f} {kind}" for kind, count in line["requests_per_table"].items()
        ),
        "seconds of the simulation": lambda line: f"{line['seconds']:.0f}",
        "memory, with all documents": lambda line: f"{line['memory_mb']:,} MB",
    }
    return [
        "### A campaign from its plan to the last table, simulated",
        "Waves, units, leases, states and decisions are the code that runs in production; a stand-in takes the place "
        "of the job, and documents are in memory. 2 % of the tables fail at each try for a reason that passes, 1 % "
        "for good, and one try in twenty loses its worker in the middle.",
        _table("tables", [f"{line['tables']:,}" for line in lines], rows, lines),
    ]


def _page(lines: Sequence[Line]) -> list[str]:
    rows: dict[str, Callable[[Line], str]] = {
        "plan.parquet, with the definitions of the tables": lambda line: _bytes(line["plan_bytes"]),
        "planning a wave: memory": lambda line: f"{line['planning']['memory_mb']:,} MB",
        "planning a wave: seconds": lambda line: f"{line['planning']['seconds']:.1f}",
        "planning a wave: units": lambda line: f"{line['planning']['units']:,}",
        "planning a wave: XCom, packed and alone": lambda line: " + ".join(
            _bytes(each) for each in line["planning"]["xcom_bytes"].values()
        ),
        "the page: memory for all tables": lambda line: f"{line['page']['memory_mb']:,} MB",
        "the page: first reading of all states, seconds": lambda line: f"{line['page']['first_seconds']:.2f}",
        "the page: looking again, nothing changed, seconds": lambda line: f"{line['page']['again_seconds']:.2f}",
        "the page: a search, sorted by size, ms": lambda line: f"{line['page']['query_seconds'] * 1e3:.0f}",
        "the page: an answer of 100 tables": lambda line: _bytes(line["page"]["page_bytes"]),
    }
    return [
        "### The plan and the page",
        "Documents on a local disk, each measured in a process of its own; memory is what it grows by, beyond what its "
        "imports take.",
        _table("tables", [f"{line['tables']:,}" for line in lines], rows, lines),
    ]


def _scheduler(lines: Sequence[Line]) -> list[str]:
    columns = [
        "tables in the run",
        "scheduler, CPU s",
        "turns of its loop",
        "longest turn, s",
        "task instances",
        "SQL statements",
        "database",
        "XCom",
        "XCom read by each mapped task",
    ]
    rows = []
    for line in sorted(lines, key=lambda line: (line["shape"] != "mapped-group", line["tables"])):
        has_ended = line["has_ended"]
        instances = f"{line['task_instances']:,}"
        rows.append(
            [
                f"{_SHAPES[line['shape']]}, {line['tables']:,}",
                f"{line['cpu_seconds']:,.1f}" if has_ended else f"not ended after {line['cpu_seconds']:,.0f}",
                f"{line['turns']:,}",
                f"{line['longest_turn_seconds']:.2f}",
                instances if has_ended else f"{instances}, of which {line['ended_instances']:,} done",
                f"{line['statements']:,}",
                _bytes(line["database_bytes"]),
                _bytes(line["xcom_bytes"]),
                _bytes(line["xcom_bytes_read_by_a_mapped_task"]),
            ]
        )
    table = [columns, ["---", *["--:"] * (len(columns) - 1)], *rows]
    versions = ", ".join(sorted({line["airflow"] for line in lines}))
    return [
        "### Airflow's scheduler and its database",
        f"One DAG run through the scheduler of Airflow {versions}, with its default settings, on SQLite; only "
        "`core.max_map_length` is larger where it must be. Tasks do nothing: a stand-in for the executor ends each at "
        "once and writes its XCom, and neither its time nor its statements count. CPU is that of the scheduler with "
        "the database in it. While a turn of the loop lasts, no task of any other DAG is scheduled. Database and XCom "
        "are what the run adds, without the logs of events and the rendered fields of tasks. A run that has not ended "
        "was stopped, if need be in the middle of a turn.",
        "\n".join(f"| {' | '.join(row)} |" for row in table),
    ]


def _table(first: str, heads: Sequence[str], rows: Mapping[str, Callable[[Line], str]], lines: Sequence[Line]) -> str:
    table = [[first, *heads], ["---", *["--:"] * len(lines)]]
    table += [[name, *(show(line) for line in lines)] for name, show in rows.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
