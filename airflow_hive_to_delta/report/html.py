"""The migration report as one HTML page: it asks no other host or file for anything, and works without its script.

The page is the template ``templates/report.html.j2``, with the styles and the script that lie beside it. Its look, in
light and dark, is that of the page of campaigns in Airflow, which takes it from the same files. This module
prepares what the template shows: texts and numbers, never markup.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

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

if TYPE_CHECKING:
    from jinja2 import Template

_CHART_TABLES = 30
#: Beyond this ratio of the largest to the smallest, small bars would vanish on a linear scale.
_LINEAR_SPREAD = 100
_TEXT_BUDGET = 1_000_000


def render_html(report: Mapping[str, Any]) -> str:
    """Return a report, as :func:`build_report` makes it, as one HTML page with its style and its script inside."""
    tables: Sequence[Mapping[str, Any]] = report["tables"]
    # So that thousands of long errors still make a page that a browser opens at once.
    text_limit = min(1_000, max(120, _TEXT_BUDGET // max(len(tables), 1)))
    rows = [_row(table, text_limit) for table in tables]
    page = _template().render(
        report=report,
        verdicts=_verdicts(report),
        cards=_cards(report),
        shares=_shares(report["totals"]),
        chart=_chart(tables),
        # Columns whose every cell is empty are left out.
        has_targets=any(row.target or row.target_details for row in rows),
        number_columns=[column for column in _NUMBER_COLUMNS if any(row.numbers[column] for row in rows)],
        rows=rows,
    )
    # A name that is not Unicode would keep the whole page from being written.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


@cache
def _template() -> Template:
    # Jinja2 is imported when a page is rendered: modules of operators, which a DAG processor imports, import this one.
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("airflow_hive_to_delta.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["csp_hash"] = _csp_hash
    folder = files("airflow_hive_to_delta.report") / "templates"
    look, dark, own = ((folder / f"{name}.css").read_text(encoding="utf-8") for name in ("look", "dark", "report"))
    # Paper is light.
    style = f"{look}@media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n{own}"
    constants = {
        "labels": {name: status.label for name, status in STATUSES.items()},
        "colours": {name: status.colour_of or name for name, status in STATUSES.items()},
        # Both are files of this package, and not escaped: their hashes are of what a browser finds in the page.
        "style": Markup(style),  # noqa: S704
        "script": Markup((folder / "report.js").read_text(encoding="utf-8")),  # noqa: S704
    }
    return environment.get_template("report.html.j2", globals=constants)


def _csp_hash(source: str) -> str:
    """Return the hash by which a Content-Security-Policy allows an inline style or script."""
    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"


class _Verdict(NamedTuple):
    text: str
    tone: str


def _verdicts(report: Mapping[str, Any]) -> list[_Verdict]:
    """Return the sentences under the title that say how the run went."""
    totals = report["totals"]
    failed = sum(totals["by_status"][status] for status in FAILURES)
    verdicts = [_Verdict(_summary(report, failed), "bad" if failed or not totals["tables"] else "good")]
    if empty := totals["empty"]:
        subject = "One of them has" if empty == 1 else f"{empty:,} of them have"
        text = f"{subject} no data file: an empty table, a wrong location, or partitions that the catalog lacks."
        verdicts.append(_Verdict(text, "warning"))
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


class _Card(NamedTuple):
    name: str
    value: str
    detail: str
    tone: str = ""


def _cards(report: Mapping[str, Any]) -> list[_Card]:
    totals = report["totals"]
    action = ACTIONS[report["action"]]
    counts = totals["by_status"]
    failed = sum(counts[status] for status in FAILURES)
    labels = _goal_labels(report)
    cards = [
        _Card("Tables", f"{totals['tables']:,}", "found in this run"),
        _Card(labels.title, f"{sum(counts[status] for status in action.goals):,}", labels.detail, "ok"),
        _Card(
            "Failed",
            f"{failed:,}",
            "as a run would" if action.is_forecast else "or did not run",
            "bad" if failed else "",
        ),
    ]
    if totals["empty"]:
        cards.append(_Card("Empty", f"{totals['empty']:,}", "no data file", "warning"))
    if action.counts_files:
        detail = ", ".join(filter(None, [f"{totals['files']:,}", action.files_note]))
        cards.append(_Card("Files", format_short(totals["files"]), detail))
        cards.append(_Card("Data", format_bytes(totals["bytes"]), format_count(totals["bytes"], "byte")))
    if action.counts_rows:
        unknown = any(table["row_count"] is None for table in report["tables"] if table["status"] in action.goals)
        rows = f"{totals['rows']:,}{' or more' if unknown else ''}"
        cards.append(_Card("Rows", format_short(totals["rows"]), rows))
    if totals["elapsed_seconds"] is not None:
        cards.append(_Card("Elapsed", format_seconds(totals["elapsed_seconds"]), "from the start of the run"))
    cards.append(_Card("Work", format_seconds(totals["seconds"]), "summed over the tables"))
    return cards


class _Share(NamedTuple):
    """The tables that have one status: how many, and their segment of the bar, in thousandths of its width."""

    status: str
    start: str
    width: str
    table_count: str


def _shares(totals: Mapping[str, Any]) -> list[_Share]:
    shares = []
    start = 0.0
    for status in STATUSES:
        if count := totals["by_status"][status]:
            width = 1000 * count / totals["tables"]
            shares.append(_Share(status, f"{start:.2f}", f"{width:.2f}", f"{count:,}"))
            start += width
    return shares


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


class _Number(NamedTuple):
    """A cell with a number."""

    text: str
    #: What the column is sorted by; None: the number that the text is.
    sort_value: float | None = None
    title: str = ""


class _Row(NamedTuple):
    """A row of the table of tables."""

    status: str
    is_empty: bool
    table: str
    location: str
    target: str
    target_details: str
    #: By column; None: the cell is empty.
    numbers: dict[str, _Number | None]
    error: str
    advice: str
    notes: list[str]


def _row(table: Mapping[str, Any], text_limit: int) -> _Row:
    """Return the row of one table, with texts that are no longer than ``text_limit`` characters each."""
    version = [] if table["version"] is None else [f"version {table['version']}"]
    return _Row(
        status=table["status"],
        is_empty=table["is_empty"],
        table=table["table"],
        location=truncate_end(table["location"], 1_000),
        target=table["target_table"],
        target_details=", ".join([*version, *table["features"]]),
        numbers={column: make_cell(table) for column, make_cell in _NUMBER_COLUMNS.items()},
        error=truncate_end(table["error"] or "", text_limit),
        advice=truncate_end(table["advice"], text_limit),
        notes=truncate_list(table["notes"], text_limit),
    )


def _file_count(table: Mapping[str, Any]) -> _Number | None:
    count = table["file_count"]
    return _Number(f"{count:,}") if count or STATUSES[table["status"]].has_file_count else None


def _size(table: Mapping[str, Any]) -> _Number | None:
    size = table["byte_count"]
    if not size and not STATUSES[table["status"]].has_file_count:
        return None
    return _Number(format_bytes(size), size, format_count(size, "byte"))


def _row_count(table: Mapping[str, Any]) -> _Number | None:
    if table["row_count"] is not None:
        return _Number(f"{table['row_count']:,}")
    return _Number("unknown", -1) if STATUSES[table["status"]].has_row_count else None


def _duration(table: Mapping[str, Any]) -> _Number | None:
    seconds = table["duration_seconds"]
    return _Number(format_seconds(seconds), seconds) if seconds else None


#: By the name of the column, which is its title in lower case and its class in the style.
_NUMBER_COLUMNS: dict[str, Callable[[Mapping[str, Any]], _Number | None]] = {
    "files": _file_count,
    "size": _size,
    "rows": _row_count,
    "time": _duration,
}
