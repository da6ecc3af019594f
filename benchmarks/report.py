"""Results as JSON lines, as text in the terminal, and as a Markdown page with tables, a chart and the machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.campaigns.section import campaign_section
from benchmarks.cases import CASES, Case
from benchmarks.chart import draw_chart, format_seconds
from benchmarks.measure import Entry, Measured, Mode
from benchmarks.registry import CONTENDERS
from benchmarks.targets import WITHOUT_BOUNDS, format_targets

Line = dict[str, Any]
_MODES: tuple[Mode, ...] = ("cold", "warm")


def make_lines(
    case: Case,
    entries: Sequence[Entry],
    measured: Mapping[str, Mapping[Mode, Measured]],
    scale: float,
    machine: Mapping[str, Any],
) -> list[Line]:
    """One line for each contender of a case, with ratios to the contenders that the case compares with."""
    units = {entry.contender: entry.units for entry in entries}
    lines: list[Line] = []
    for entry in entries:
        line: Line = {
            "case": case.name,
            "contender": entry.contender,
            "scale": scale,
            f"{case.unit}s": entry.units,
            "files": sum(table.files for table in entry.job.tables),
        }
        for mode, result in measured[entry.contender].items():
            document = result.to_dict()
            if result.seconds is not None:
                document[f"seconds_per_{case.unit}"] = round(result.seconds / entry.units, 6)
                base = _base(case, measured, mode, units if case.unit == "table" else None)
                own = result.seconds / (entry.units if case.unit == "table" else 1)
                document["ratio"] = round(own / base, 3) if base else None
            line[mode] = document
        line["machine"] = dict(machine)
        lines.append(line)
    return lines


def _base(
    case: Case, measured: Mapping[str, Mapping[Mode, Measured]], mode: Mode, units: Mapping[str, int] | None
) -> float | None:
    """What times are divided by: seconds, or seconds per unit where contenders may have different numbers of units."""
    total = 0.0
    for name in case.relative_to:
        seconds = measured[name][mode].seconds if name in measured else None
        if seconds is None:
            return None
        total += seconds / (units[name] if units else 1)
    return total


def keep_lines(file: Path, lines: Sequence[Line]) -> None:
    """Put lines into a file, in the place of earlier ones of the same case and contender."""
    new = {(line["case"], line["contender"]) for line in lines}
    kept = [line for line in read_lines(file) if (line["case"], line["contender"]) not in new]
    order = {name: number for number, name in enumerate(CASES)}
    together = sorted([*kept, *lines], key=lambda line: order.get(line["case"], len(order)))
    file.write_text("".join(json.dumps(line) + "\n" for line in together), encoding="utf-8")


def read_lines(file: Path) -> list[Line]:
    """The lines of a file, none if there is no such file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def format_case(lines: Sequence[Line]) -> str:
    """The table of one case, for a terminal."""
    rows = [["", "cold s", "ratio", "warm s", "ratio", "driver MB", "workers MB", "JVM MB"]]
    rows += [[line["contender"], *_numbers(line)] for line in lines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    shown = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    shown += [f"{line['contender']}: {error}" for line in lines for error in _errors(line)]
    return "\n".join(shown) + "\n"


def write_report(lines: Sequence[Line], file: Path) -> None:
    """Write a page in Markdown, and its chart beside it."""
    chart = file.with_name("results.svg")
    chart.write_text(draw_chart(_conversions(lines)), encoding="utf-8")
    file.write_text(_page(lines, chart.name), encoding="utf-8")


def _conversions(lines: Sequence[Line]) -> list[Line]:
    """The lines of cases with contenders: other benchmarks keep theirs in the same file."""
    return [line for line in lines if line["case"] in CASES]


def _page(all_lines: Sequence[Line], chart: str) -> str:
    lines = _conversions(all_lines)
    cases = list(dict.fromkeys(line["case"] for line in lines))
    parts = [
        "# Results of the benchmarks",
        "Written by `make bench` from `results.jsonl`, which has one line for each case and contender. Times are the "
        "best of the runs, in seconds, from an unlisted folder or prefix to the table that the contender makes: every "
        "contender lists by itself. *Cold* is a new process, whose start, imports and session count; *warm* is a "
        "process that has done a smaller job of the same kind before. The files are in the page cache in both. "
        "Contenders run in turns, each in a process of its own. A ratio is a time divided by that of the contender "
        "named under the table: above 1 is slower. Ratios say more about another machine than times do. Memory is the "
        "peak of the process that calls, of Spark's Python workers together, and of the JVM, in cold runs where there "
        "are some.",
        f"![Warm times of all cases, on a logarithmic scale]({chart})",
    ]
    if targets := format_targets(lines):
        parts += ["## Targets", targets]
    for name in cases:
        parts += _case_section(CASES[name], [line for line in lines if line["case"] == name])
    parts += campaign_section(all_lines)
    parts += ["## The contenders", _descriptions(lines), "## The machine", _machine(all_lines)]
    return "\n\n".join(parts) + "\n"


def _case_section(case: Case, lines: Sequence[Line]) -> list[str]:
    per = f"per {case.unit}"
    rows = [
        ["contender", f"{case.unit}s", "cold", "ratio", "warm", "ratio", f"warm {per}", "driver", "workers", "JVM"],
        ["---", *["--:"] * 9],
    ]
    for line in lines:
        cold, cold_ratio, warm, warm_ratio, *memory = _numbers(line)
        each = (line.get("warm") or line.get("cold") or {}).get(f"seconds_per_{case.unit}")
        shown = "" if each is None else f"{each * 1e6:,.0f} µs" if each < 0.01 else f"{each:.3f} s"
        counted = f"{line[f'{case.unit}s']:,}"
        rows.append([line["contender"], counted, cold, cold_ratio, warm, warm_ratio, shown, *memory])
    scales = {line["scale"] for line in lines} - {1.0}
    notes = [f"Ratios to {' + '.join(case.relative_to)}. Memory in MB."]
    notes += [f"**Made smaller: scale {', '.join(f'{scale:g}' for scale in sorted(scales))}.**"] if scales else []
    notes += [f"{line['contender']} was run once." for line in lines if _runs(line) == 1 and case.rounds != 1]
    notes += [f"{line['contender']} failed: {error}." for line in lines for error in _errors(line)]
    section = [f"## {case.title}", "\n".join(f"| {' | '.join(row)} |" for row in rows), " ".join(notes)]
    if files_read := _files_read(lines):
        section.append(files_read)
    return section


def _files_read(lines: Sequence[Line]) -> str:
    """A table of the files that each contender's table has read for the filters of a query."""
    read = {line["contender"]: _facts(line).get("files_read") for line in lines}
    read = {name: found for name, found in read.items() if found}
    if not read:
        return ""
    rows = [["files read for a filter on", *read], ["---", *["--:"] * len(read)]]
    filters = next(iter(read.values())) or {}
    rows += [[each, *(f"{(found or {}).get(each, 0):,}" for found in read.values())] for each in filters]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return (
        f"{table}\n\nOurs gives no bounds to {', '.join(sorted(WITHOUT_BOUNDS))} columns of files that parquet-mr has "
        "not written, because other writers leave NaN out of their bounds (docs/rules.md)."
    )


def _facts(line: Line) -> dict[str, Any]:
    return {**line.get("cold", {}).get("facts", {}), **line.get("warm", {}).get("facts", {})}


def _runs(line: Line) -> int:
    return max((len(line[mode].get("runs", ())) for mode in _MODES if mode in line), default=0)


def _errors(line: Line) -> Iterable[str]:
    return dict.fromkeys(line[mode]["error"] for mode in _MODES if line.get(mode, {}).get("error"))


def _numbers(line: Line) -> list[str]:
    """Time and ratio, cold and warm, and the memory of driver, workers and JVM."""
    shown = []
    for mode in _MODES:
        found = line.get(mode) or {}
        seconds, ratio = found.get("seconds"), found.get("ratio")
        shown += ["" if seconds is None else format_seconds(seconds), "" if ratio is None else f"{ratio:.2f}"]
    peak = (line.get("cold") or {}).get("peak_mb") or (line.get("warm") or {}).get("peak_mb") or {}
    return [*shown, *(f"{peak[kind]:,.0f}" if peak.get(kind) else "" for kind in ("driver", "workers", "jvm"))]


def _descriptions(lines: Sequence[Line]) -> str:
    names = [name for name in CONTENDERS if any(line["contender"] == name for line in lines)]
    return "\n".join(f"- **{name}**: {CONTENDERS[name].description}" for name in names)


def _machine(lines: Sequence[Line]) -> str:
    """The machines that the lines are of, one paragraph for each that differs in more than its load."""
    found: dict[str, list[str]] = {}
    loads = []
    for line in lines:
        machine = dict(line["machine"])
        loads.append(machine.pop("load_before"))
        server = machine.pop("s3_server", None)
        packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items() if number)
        text = (
            f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']} GB of memory, {machine['disk']}, "
            f"{machine['system']}, Python {machine['python']}, Java {machine['java']}, {packages}."
        )
        servers = found.setdefault(text, [])
        if server and server not in servers:
            servers.append(server)
    texts = [f"{text} S3 by {', '.join(servers)}." if servers else text for text, servers in found.items()]
    load = f"Load before the cases: {min(loads):g} to {max(loads):g}." if loads else ""
    return "\n\n".join([*texts, load])
