"""The report of a run as one HTML page, which works without its script.

This module prepares what the template ``report.html.j2`` shows. Its look, in light and dark, is that of all pages of
this package: see :mod:`pages`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from airflow_hive_to_delta.job.actions import ACTIONS, DELTA_STATUSES, STATUSES, GoalLabels
from airflow_hive_to_delta.report.formatting import (
    format_bytes,
    format_count,
    format_seconds,
    format_short,
    truncate_end,
    truncate_list,
    truncate_middle,
)
from airflow_hive_to_delta.report.outcomes import FAILURES
from airflow_hive_to_delta.report.pages import (
    Card,
    Listing,
    NumberCell,
    TableLine,
    Verdict,
    make_shares,
    render_report,
    text_limit,
)

_CHART_TABLES = 30
#: Beyond this ratio of the largest to the smallest, small bars would vanish on a linear scale.
_LINEAR_SPREAD = 100


def render_html(report: Mapping[str, Any]) -> str:
    """Return a report, as :func:`build_report` makes it, as one HTML page with its style and its script inside."""
    tables: Sequence[Mapping[str, Any]] = report["tables"]
    limit = text_limit(len(tables))
    counts = report["totals"]["by_status"]
    return render_report(
        "report.html.j2",
        title=report["title"],
        verdicts=_verdicts(report),
        facts={name.replace("_", " "): value for name, value in report["run"].items()},
        cards=_cards(report),
        shares=make_shares((_tone(name), status.label, counts[name]) for name, status in STATUSES.items()),
        chart=_chart(tables),
        rows=Listing.of([_line(table, limit) for table in tables]),
    )


def _tone(status: str) -> str:
    return STATUSES[status].colour_of or status


def _verdicts(report: Mapping[str, Any]) -> list[Verdict]:
    """Return the sentences under the title that say how the run went."""
    totals = report["totals"]
    failed = sum(totals["by_status"][status] for status in FAILURES)
    verdicts = [Verdict(_summary(report, failed), "bad" if failed or not totals["tables"] else "good")]
    if empty := totals["empty"]:
        subject = "One of them has" if empty == 1 else f"{empty:,} of them have"
        text = f"{subject} no data file: an empty table, a wrong location, or partitions that the catalog lacks."
        verdicts.append(Verdict(text, "warning"))
    return verdicts


def _summary(report: Mapping[str, Any], failed: int) -> str:
    counts = report["totals"]["by_status"]
    total = report["totals"]["tables"]
    done = sum(counts[status] for status in ACTIONS[report["action"]].goals)
    goal = _goal_labels(report).sentence
    if not total:
        return "The run found no table."
    if ACTIONS[report["action"]].is_forecast:
        already = sum(counts[status] for status in DELTA_STATUSES)
        parts = [
            f"{done:,} of {format_count(total, 'table')} can be converted.",
            *([f"{already:,} in Delta already."] if already else []),
            *([f"{failed:,} would fail."] if failed else []),
        ]
        return " ".join(parts)
    if failed:
        return f"{failed:,} of {format_count(total, 'table')} failed or did not run. {done:,} {goal}."
    if done < total:
        return f"No table failed. {done:,} of {format_count(total, 'table')} {goal}."
    return f"Every table is {goal}: {done:,} of {total:,}."


def _goal_labels(report: Mapping[str, Any]) -> GoalLabels:
    labels = ACTIONS[report["action"]].labels
    assert labels is not None, "an action that is reported"
    return labels


def _cards(report: Mapping[str, Any]) -> list[Card]:
    totals = report["totals"]
    action = ACTIONS[report["action"]]
    counts = totals["by_status"]
    failed = sum(counts[status] for status in FAILURES)
    labels = _goal_labels(report)
    cards = [
        Card("Tables", f"{totals['tables']:,}", "found in this run"),
        Card(labels.title, f"{sum(counts[status] for status in action.goals):,}", labels.detail, "ok"),
        Card(
            "Failed",
            f"{failed:,}",
            "as a run would" if action.is_forecast else "or did not run",
            "bad" if failed else "",
        ),
    ]
    if totals["empty"]:
        cards.append(Card("Empty", f"{totals['empty']:,}", "no data file", "warning"))
    if action.counts_files:
        detail = ", ".join(filter(None, [f"{totals['files']:,}", action.files_note]))
        cards.append(Card("Files", format_short(totals["files"]), detail))
        cards.append(Card("Data", format_bytes(totals["bytes"]), format_count(totals["bytes"], "byte")))
    if action.counts_rows:
        unknown = any(table["row_count"] is None for table in report["tables"] if table["status"] in action.goals)
        rows = f"{totals['rows']:,}{' or more' if unknown else ''}"
        cards.append(Card("Rows", format_short(totals["rows"]), rows))
    if totals["elapsed_seconds"] is not None:
        cards.append(Card("Elapsed", format_seconds(totals["elapsed_seconds"]), "from the start of the run"))
    cards.append(Card("Work", format_seconds(totals["seconds"]), "summed over the tables"))
    return cards


class _Bar(NamedTuple):
    percent: str
    text: str


class _ChartRow(NamedTuple):
    table: str
    label: str
    size: _Bar
    time: _Bar


class _Chart(NamedTuple):
    #: Which tables it shows.
    shown: str
    size_title: str
    time_title: str
    rows: list[_ChartRow]


def _chart(tables: Sequence[Mapping[str, Any]]) -> _Chart | None:
    """Return the bars of the largest tables, or None when no table has a size or a time."""
    measured = [table for table in tables if table["byte_count"] or table["duration_seconds"]]
    if not measured:
        return None
    shown = sorted(measured, key=lambda t: (-t["byte_count"], -t["duration_seconds"], t["table"]))[:_CHART_TABLES]
    which = f"The {len(shown)} largest of" if len(shown) < len(measured) else "All"
    sizes, size_scale = _scale([table["byte_count"] for table in shown])
    times, time_scale = _scale([table["duration_seconds"] for table in shown])
    rows = [
        _ChartRow(
            table["table"],
            truncate_middle(table["table"], 60),
            _Bar(f"{100 * size:.1f}", format_bytes(table["byte_count"])),
            _Bar(f"{100 * time:.1f}", format_seconds(table["duration_seconds"])),
        )
        for table, size, time in zip(shown, sizes, times, strict=True)
    ]
    description = f"{which} {format_count(len(measured), 'table')} with a size or a time"
    return _Chart(description, f"Size{size_scale}", f"Time{time_scale}", rows)


def _scale(values: Sequence[float]) -> tuple[list[float], str]:
    """Return the length of each value's bar, from 0 to 1, and what the column's title says of the scale."""
    positive = [value for value in values if value > 0]
    if not positive:
        return [0.0] * len(values), ""
    least, most = min(positive), max(positive)
    if most / least <= _LINEAR_SPREAD:
        return [max(value, 0) / most for value in values], ""
    whole = math.log1p(most / least)
    return [math.log1p(value / least) / whole if value > 0 else 0.0 for value in values], " (logarithmic)"


def _line(table: Mapping[str, Any], limit: int) -> TableLine:
    """Return the row of one table, with texts that are no longer than ``limit`` characters each."""
    version = [] if table["version"] is None else [f"version {table['version']}"]
    return TableLine(
        tone=_tone(table["status"]),
        label=STATUSES[table["status"]].label,
        table=table["table"],
        numbers={column: make_cell(table) for column, make_cell in _NUMBER_COLUMNS.items()},
        location=truncate_end(table["location"], 1_000),
        target=table["target_table"],
        target_details=", ".join([*version, *table["features"]]),
        error=truncate_end(table["error"] or "", limit),
        advice=truncate_end(table["advice"], limit),
        notes=truncate_list(table["notes"], limit),
        is_empty=table["is_empty"],
    )


def _file_count(table: Mapping[str, Any]) -> NumberCell | None:
    count = table["file_count"]
    return NumberCell(f"{count:,}") if count or STATUSES[table["status"]].has_file_count else None


def _size(table: Mapping[str, Any]) -> NumberCell | None:
    size = table["byte_count"]
    if not size and not STATUSES[table["status"]].has_file_count:
        return None
    return NumberCell(format_bytes(size), size, format_count(size, "byte"))


def _row_count(table: Mapping[str, Any]) -> NumberCell | None:
    if table["row_count"] is not None:
        return NumberCell(f"{table['row_count']:,}")
    return NumberCell("unknown", -1) if STATUSES[table["status"]].has_row_count else None


def _duration(table: Mapping[str, Any]) -> NumberCell | None:
    seconds = table["duration_seconds"]
    return NumberCell(format_seconds(seconds), seconds) if seconds else None


#: By the name of the column, which is its title in lower case and its class in the style.
_NUMBER_COLUMNS: dict[str, Callable[[Mapping[str, Any]], NumberCell | None]] = {
    "files": _file_count,
    "size": _size,
    "rows": _row_count,
    "time": _duration,
}
