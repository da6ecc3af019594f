"""The migration report as one HTML page: it asks no other host or file for anything, and works without its script."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any, NamedTuple

from airflow_hive_to_delta.job.actions import ACTIONS, DELTA_STATUSES, STATUSES, GoalLabels
from airflow_hive_to_delta.report.outcomes import FAILURES, GOALS, counted


def render_html(report: Mapping[str, Any]) -> str:
    """The report as one HTML page that asks for nothing else."""
    # Only this style and this script: what else got into the page could load and run nothing.
    policy = f"default-src 'none'; style-src {_digest(_STYLE)}; script-src {_digest(_SCRIPT)}; base-uri 'none'"
    tables: Sequence[Mapping[str, Any]] = report["tables"]
    title = escape(report["title"])
    page = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=False)}">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        '<meta name="referrer" content="no-referrer">\n',
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n",
        *_headline(report),
        "</header>\n<main>\n",
        *_cards(report),
        *_chart(tables),
        *_table(tables),
        f"</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n",
    ]
    # A name that is not Unicode would keep the whole page from being written.
    return "".join(page).encode("utf-8", "backslashreplace").decode("utf-8")


# Statuses of tables whose files were counted: a zero is one, not an unknown number.
_MEASURED = frozenset({"converted", "convertible", "synced", "unchanged", "verified", "vacuumed"})
# Statuses of tables whose rows should be known.
_COUNTED = frozenset({"converted", "already_delta", "registered", "verified"})
_CHART_TABLES = 30
# Beyond this ratio of the largest to the smallest, small bars would vanish on a linear scale.
_LINEAR_SPREAD = 100
_TEXT_BUDGET = 1_000_000


def _digest(source: str) -> str:
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


def _headline(report: Mapping[str, Any]) -> Iterator[str]:
    counts = report["totals"]["by_status"]
    total = report["totals"]["tables"]
    failed = sum(counts[status] for status in FAILURES)
    done = sum(counts[status] for status in GOALS[report["action"]])
    goal = _labels(report).sentence
    if not total:
        verdict = "The run found no table."
    elif report["action"] == "plan":
        fails = f" {failed:,} would fail." if failed else ""
        already = sum(counts[status] for status in DELTA_STATUSES)
        verdict = f"{done:,} of {_tables(total)} can be converted."
        verdict += f" {already:,} in Delta already.{fails}" if already else fails
    elif failed:
        verdict = f"{failed:,} of {_tables(total)} failed or did not run. {done:,} {goal}."
    elif done < total:
        verdict = f"No table failed. {done:,} of {_tables(total)} {goal}."
    else:
        verdict = f"Every table is {goal}: {done:,} of {total:,}."
    yield f'<p class="verdict {"bad" if failed or not total else "good"}">{verdict}</p>\n'
    if empty := report["totals"]["empty"]:
        what = "One of them has" if empty == 1 else f"{empty:,} of them have"
        yield f'<p class="verdict warning">{what} nothing at the location: an empty table, or a wrong location.</p>\n'
    if report["run"]:
        pairs = (f"<div><dt>{_label(n)}</dt><dd>{escape(str(v))}</dd></div>" for n, v in report["run"].items())
        yield f"<dl>{''.join(pairs)}</dl>\n"


def _labels(report: Mapping[str, Any]) -> GoalLabels:
    labels = ACTIONS[report["action"]].labels
    assert labels is not None, "an action that is reported"
    return labels


def _cards(report: Mapping[str, Any]) -> Iterator[str]:
    totals = report["totals"]
    counts = totals["by_status"]
    goals = GOALS[report["action"]]
    uncounted = any(t["row_count"] is None for t in report["tables"] if t["status"] in goals)
    failed = sum(counts[status] for status in FAILURES)
    labels = _labels(report)
    rows = f"{totals['rows']:,}{' or more' if uncounted else ''}"
    is_plan = report["action"] == "plan"
    copied = ", none copied" if report["action"] in ("convert", "plan") else ""
    elapsed = totals["elapsed_seconds"]
    measured = report["action"] not in ("rollback", "cut_over")
    cards = [
        ("Tables", f"{totals['tables']:,}", "found in this run", ""),
        (labels.title, f"{sum(counts[status] for status in goals):,}", labels.detail, "ok"),
        ("Failed", f"{failed:,}", "as a run would" if is_plan else "or did not run", "bad" if failed else ""),
        *([("Empty", f"{totals['empty']:,}", "nothing at the location", "warning")] if totals["empty"] else []),
        *([("Files", _short(totals["files"]), f"{totals['files']:,}{copied}", "")] if measured else []),
        *([("Data", _bytes(totals["bytes"]), counted(totals["bytes"], "byte"), "")] if measured else []),
        *([("Rows", _short(totals["rows"]), rows, "")] if report["action"] in ("convert", "verify") else []),
        *([("Elapsed", _seconds(elapsed), "from the start of the run", "")] if elapsed is not None else []),
        ("Work", _seconds(totals["seconds"]), "summed over the tables", ""),
    ]
    yield '<section aria-label="Totals">\n<ul class="cards">\n'
    for name, value, detail, tone in cards:
        yield f'<li class="{tone}"><span>{name}</span><strong>{value}</strong><small>{detail}</small></li>\n'
    yield "</ul>\n"
    present = [(status, counts[status]) for status in STATUSES if counts[status]]
    if present:
        yield '<svg class="share" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">'
        x = 0.0
        for status, count in present:
            width = 1000 * count / totals["tables"]
            yield f'<rect class="{status}" x="{x:.2f}" width="{width:.2f}" height="10"/>'
            x += width
        legend = (f"<li>{_pill(status)} <b>{count:,}</b></li>" for status, count in present)
        yield f'</svg>\n<ul class="legend">{"".join(legend)}</ul>\n'
    yield "</section>\n"


def _chart(tables: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    measured = [table for table in tables if table["byte_count"] or table["duration_seconds"]]
    if not measured:
        return
    shown = sorted(measured, key=lambda t: (-t["byte_count"], -t["duration_seconds"], t["table"]))[:_CHART_TABLES]
    which = f"The {len(shown)} largest of" if len(shown) < len(measured) else "All"
    which += f" {_tables(len(measured))} with a size or a time"
    size, size_scale = _scale([table["byte_count"] for table in shown])
    time, time_scale = _scale([table["duration_seconds"] for table in shown])
    yield '<section>\n<h2>Sizes and times</h2>\n<p class="hint">'
    yield f"{which}, the largest first. Each column has a scale of its own.</p>\n"
    yield '<div class="chart" role="table" aria-label="Size and time per table">\n<div role="row" class="axis">'
    for name in ("Table", f"Size{size_scale}", f"Time{time_scale}"):
        yield f'<span role="columnheader">{name}</span>'
    yield "</div>\n"
    for table, wide, long in zip(shown, size, time, strict=True):
        name = table["table"]
        yield f'<div role="row"><span role="rowheader" title="{escape(name)}">{_name(_middle(name, 60))}</span>'
        yield _bar("size", wide, _bytes(table["byte_count"])) + _bar("time", long, _seconds(table["duration_seconds"]))
        yield "</div>\n"
    yield "</div>\n</section>\n"


def _bar(kind: str, share: float, value: str) -> str:
    # Widths are attributes of SVG: the page's policy allows no style of an element's own.
    return (
        f'<span role="cell"><svg aria-hidden="true"><rect class="track" width="100%" height="16" rx="3"/>'
        f'<rect class="{kind}" width="{100 * share:.1f}%" height="16" rx="3"/></svg><b>{value}</b></span>'
    )


def _scale(values: Sequence[float]) -> tuple[list[float], str]:
    """The length of each value's bar, from 0 to 1, and what to say of the scale."""
    positive = [value for value in values if value > 0]
    if not positive:
        return [0.0] * len(values), ""
    least, most = min(positive), max(positive)
    if most / least <= _LINEAR_SPREAD:
        return [max(value, 0) / most for value in values], ""
    whole = math.log1p(most / least)
    return [math.log1p(value / least) / whole if value > 0 else 0.0 for value in values], " (logarithmic)"


def _table(tables: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    # So that thousands of long errors still make a page that a browser opens at once.
    limit = min(1_000, max(120, _TEXT_BUDGET // max(len(tables), 1)))
    yield '<section>\n<h2 id="tables">Tables</h2>\n<p class="filter" hidden><label>Filter <input type="search" '
    yield 'placeholder="name, status, error" autocomplete="off"></label> <output></output></p>\n'
    yield '<div class="scroll" role="group" tabindex="0" aria-labelledby="tables">\n<table>\n'
    yield "<caption>What became of each table: failures first, then by name</caption>\n<thead><tr>"
    columns = [column for column in _COLUMNS if column.always or any(map(column.cell, tables))]
    for column in columns:
        yield f'<th scope="col" class="{column.css}">{column.name}</th>'
    yield '<th scope="col">Error and what to do, notes</th></tr></thead>\n<tbody>\n'
    for table in tables:
        yield "<tr>"
        for column in columns:
            yield column.start + column.cell(table)
        yield f"<td>{''.join(_remarks(table, limit))}</tr>\n"
    yield "</tbody>\n</table>\n</div>\n</section>\n"


class _Column(NamedTuple):
    """A column of the table of tables. One whose every cell is empty is left out, unless it is always shown."""

    name: str
    cell: Callable[[Mapping[str, Any]], str]
    #: ``number`` for a column that is sorted by number and aligned to the right.
    css: str = ""
    always: bool = False

    @property
    def start(self) -> str:
        """The tag that begins a cell; without its end, for the page may have tens of thousands of them."""
        if "number" in self.css:
            return f"<td class={self.name.lower()}>"
        return '<th scope="row">' if self.name == "Table" else "<td>"


def _status_cell(table: Mapping[str, Any]) -> str:
    return _pill(table["status"]) + (' <span class="pill empty">Empty</span>' if table["is_empty"] else "")


def _table_cell(table: Mapping[str, Any]) -> str:
    return _name(table["table"]) + _small(_clip(table["location"], 1_000))


def _target_cell(table: Mapping[str, Any]) -> str:
    version = [] if table["version"] is None else [f"version {table['version']}"]
    return _name(table["target_table"]) + _small(", ".join([*version, *table["features"]]))


def _files_cell(table: Mapping[str, Any]) -> str:
    files = table["file_count"]
    return f"{files:,}" if files or table["status"] in _MEASURED else ""


def _size_cell(table: Mapping[str, Any]) -> str:
    size = table["byte_count"]
    if not size and table["status"] not in _MEASURED:
        return ""
    return f'<data value="{size}" title="{counted(size, "byte")}">{_bytes(size)}</data>'


def _rows_cell(table: Mapping[str, Any]) -> str:
    rows = table["row_count"]
    unknown = '<data value="-1">unknown</data>' if table["status"] in _COUNTED else ""
    return unknown if rows is None else f"{rows:,}"


def _time_cell(table: Mapping[str, Any]) -> str:
    time = table["duration_seconds"]
    return f'<data value="{time}">{_seconds(time)}</data>' if time else ""


_COLUMNS = (
    _Column("Status", _status_cell, "status", always=True),
    _Column("Table", _table_cell, "name", always=True),
    _Column("Target", _target_cell, "target"),
    _Column("Files", _files_cell, "number files"),
    _Column("Size", _size_cell, "number size"),
    _Column("Rows", _rows_cell, "number rows"),
    _Column("Time", _time_cell, "number time"),
)


def _remarks(table: Mapping[str, Any], limit: int) -> Iterator[str]:
    """The error of a table, what to do about it, and its notes."""
    if table["error"]:
        yield f"<p class=error>{escape(_clip(table['error'], limit))}"
    if table["advice"]:
        yield f"<p class=advice><b>What to do</b> {escape(_clip(table['advice'], limit))}"
    if table["notes"]:
        yield f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in _first(table['notes'], limit))}</ul>"


def _first(notes: Sequence[str], limit: int) -> list[str]:
    """As many notes as fit the limit, one at least."""
    shown: list[str] = []
    for note in notes:
        if shown and sum(map(len, shown)) + len(note) > limit:
            return [*shown, f"{len(notes) - len(shown)} more in the JSON report"]
        shown.append(_clip(note, limit))
    return shown


def _pill(status: str) -> str:
    return f'<span class="pill {status}">{STATUSES[status].label}</span>'


def _name(qualified: str) -> str:
    """A name that may be broken after its dots."""
    return escape(qualified).replace(".", ".<wbr>")


def _small(text: str) -> str:
    return f"<small>{escape(text)}</small>" if text else ""


def _label(name: str) -> str:
    return escape(name.replace("_", " "))


def _tables(number: int) -> str:
    return counted(number, "table")


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… (whole in the JSON report)"


def _middle(text: str, limit: int) -> str:
    """A name cut in its middle: tables of one database differ at the end."""
    return text if len(text) <= limit else f"{text[: limit // 3]}…{text[-(limit - limit // 3 - 1) :]}"


def _short(number: float) -> str:
    return _with_unit(number, ("", " K", " M", " B", " T"))


def _bytes(number: float) -> str:
    return _with_unit(number, (" B", " kB", " MB", " GB", " TB", " PB", " EB"))


def _with_unit(number: float, units: Sequence[str]) -> str:
    power = 0
    # 999.95 would be written as 1000.0.
    while abs(number) >= (1000 if power == 0 else 999.95) and power < len(units) - 1:
        number, power = number / 1000, power + 1
    return f"{number:,.0f}{units[0]}" if power == 0 else f"{number:,.1f}{units[power]}"


def _seconds(seconds: float) -> str:
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min" if hours else f"{minutes} min {left:02} s"


_STYLE = """
:root { color-scheme: light dark; --page: #f4f6f9; --card: #fff; --text: #17202e; --dim: #5a6679; --line: #e1e6ee;
  --track: #edf1f6; --size: #2f6fde; --time: #cf7a10; --converted: #14754a; --already_delta: #2860c8;
  --registered: #0a7474; --refused: #965900; --failed: #c62836; --skipped: #5d697c; --not_run: #9333a8;
  --convertible: #5a45c9; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #0e131b; --card: #171e29; --text: #e6ebf3;
  --dim: #98a5b9; --line: #283243; --track: #212a38; --size: #5b95f5; --time: #f0a848; --converted: #3fc380;
  --already_delta: #6fa3f7; --registered: #35c2c2; --refused: #e5a23c; --failed: #ff6b76; --skipped: #94a1b5;
  --not_run: #cd83dc; --convertible: #a795ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1480px; padding: 36px 32px 64px; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif; }
h1 { margin: 0 0 8px; font-size: 30px; line-height: 1.2; letter-spacing: -.02em; overflow-wrap: anywhere; }
h2 { margin: 0 0 4px; font-size: 18px; letter-spacing: -.01em; }
.verdict { margin: 0 0 16px; font-size: 17px; font-weight: 600; }
.verdict.bad, .cards .bad strong { color: var(--failed); }
.verdict.warning, .cards .warning strong { color: var(--refused); } .empty { --tone: var(--refused); }
.verdict.good, .cards .ok strong { color: var(--converted); }
dl { display: flex; flex-wrap: wrap; gap: 6px 32px; margin: 0 0 24px; }
dt { color: var(--dim); font-size: 12px; } dt::first-letter { text-transform: uppercase; }
dd { margin: 0; font-size: 14px; overflow-wrap: anywhere; }
section { margin: 0 0 20px; padding: 22px 24px; background: var(--card); border: 1px solid var(--line);
  border-radius: 14px; }
.hint, caption { color: var(--dim); font-size: 13px; } .hint { margin: 0 0 12px; }
.cards, .legend { display: flex; flex-wrap: wrap; list-style: none; margin: 0; padding: 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 20px 24px; }
.cards li { border-left: 3px solid var(--line); padding-left: 14px; min-width: 0; }
.cards span, .cards strong, .cards small { display: block; } .cards span { font-size: 13px; color: var(--dim); }
.cards strong { font-size: 27px; line-height: 1.25; letter-spacing: -.02em; font-variant-numeric: tabular-nums; }
small { color: var(--dim); font-size: 12px; overflow-wrap: anywhere; }
.share { display: block; width: 100%; height: 10px; margin: 22px 0 12px; border-radius: 5px; }
.legend { gap: 8px 18px; }
.pill { display: inline-flex; align-items: center; gap: 7px; padding: 1px 10px 1px 8px; font-size: 13px;
  font-weight: 600; white-space: nowrap; color: var(--tone); border-radius: 99px;
  background: color-mix(in srgb, var(--tone) 11%, var(--card)); }
.pill::before { content: ""; width: 8px; height: 8px; border-radius: 4px; background: var(--tone); }
@STATUSES@
.scroll { overflow-x: auto; } .scroll:focus-visible, button:focus-visible { outline: 2px solid var(--size); }
.chart { font-size: 13px; }
.chart > div { display: grid; grid-template-columns: minmax(0, 5fr) repeat(2, minmax(0, 6fr)); gap: 4px 20px;
  padding: 4px 0; align-items: center; overflow-wrap: anywhere; } .chart .axis { font-weight: 600; }
.chart [role=cell] { display: flex; gap: 10px; align-items: center; min-width: 0; }
.chart svg { flex: 1; width: 0; height: 16px; }
.chart b { width: 6.5em; font-weight: 400; color: var(--dim); font-variant-numeric: tabular-nums; }
.chart .track { fill: var(--track); } .chart .size { fill: var(--size); } .chart .time { fill: var(--time); }
.filter { margin: 8px 0; } .filter output { color: var(--dim); font-size: 13px; margin-left: 8px; }
.filter input { font: inherit; width: min(340px, 60vw); padding: 6px 12px; margin-left: 6px; color: inherit;
  background: var(--page); border: 1px solid var(--line); border-radius: 8px; }
table { width: 100%; min-width: 1080px; border-spacing: 0; table-layout: fixed; font-size: 14px; }
caption { text-align: left; padding-bottom: 10px; }
td, th { padding: 10px 12px; text-align: left; vertical-align: top; border-top: 1px solid var(--line); }
thead th { border: 0; color: var(--dim); font-size: 12px; font-weight: 600;
  white-space: nowrap; vertical-align: bottom; }
/* A browser lays out ten thousand rows much faster when the widths are given. */
.status { width: 11.5%; } .name { width: 19.5%; } .target { width: 15.5%; } .number { width: 7.2%; }
.files { width: 5.5%; } .rows { width: 10%; }
tbody { overflow-wrap: anywhere; }
tbody th { font-weight: 600; } tbody small { display: block; font-weight: 400; }
td:is(.files, .size, .rows, .time), .number { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
td p, td ul { margin: 0 0 6px; } td ul { padding-left: 18px; color: var(--dim); } td :last-child { margin-bottom: 0; }
.error { white-space: pre-line; } .advice { padding-left: 10px; border-left: 3px solid var(--line); color: var(--dim); }
.advice b { color: var(--text); } tbody tr:hover { background: color-mix(in srgb, var(--size) 4%, var(--card)); }
th button { all: unset; cursor: pointer; } th[aria-sort] button { color: var(--text); }
th[aria-sort=ascending] button::after { content: " ↑"; } th[aria-sort=descending] button::after { content: " ↓"; }
@media screen and (max-width: 760px) {
  body { padding: 20px 12px 40px; } section { padding: 16px 14px; border-radius: 10px; } h1 { font-size: 24px; }
  .cards { grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); gap: 14px 16px; }
  .chart .axis { display: none; } .chart > div { grid-template-columns: minmax(0, 1fr); padding: 8px 0; }
  table { min-width: 0; } table, caption, tbody, tr, td, tbody th { display: block; width: 100%; }
  thead { display: none; } tr { padding: 12px 0; border-top: 1px solid var(--line); }
  tbody :is(td, th, td:is(.files, .size, .rows, .time)) { padding: 2px 0; border: 0; text-align: left;
    white-space: normal; width: 100%; }
  tbody .files:not(:empty)::before { content: "Files: "; } tbody .size:not(:empty)::before { content: "Size: "; }
  tbody .rows:not(:empty)::before { content: "Rows: "; } tbody .time:not(:empty)::before { content: "Time: "; }
  tbody :is(td, th):empty { display: none; } }
@page { size: landscape; margin: 12mm; }
@media print { body { max-width: none; padding: 0; font-size: 11px; background: #fff; } .filter { display: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } section { padding: 10px 0; border: 0; }
  table { min-width: 0; } table, .pill, thead th { font-size: 10px; } tbody small { font-size: 9px; }
  .cards { grid-template-columns: repeat(7, auto); } .cards strong { font-size: 18px; } .cards small { font-size: 9px; }
  td, th { padding: 4px 6px; } tr, .chart > div { break-inside: avoid; } .scroll { overflow: visible; } }
"""
_STYLE = _STYLE.replace(
    "@STATUSES@",
    "\n".join(
        f".{status} {{ --tone: var(--{known.colour_of or status}); fill: var(--{known.colour_of or status}); }}"
        for status, known in STATUSES.items()
    ),
)

# Sorting and filtering are extras: without the script the page shows all of the report.
_SCRIPT = """
(() => {
  const body = document.querySelector("tbody"), rows = [...body.rows], filter = document.querySelector(".filter");
  const said = filter.querySelector("output"), input = filter.querySelector("input");
  const texts = rows.map(row => row.textContent.toLowerCase());
  filter.hidden = false;
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    rows.forEach((row, i) => { row.hidden = !texts[i].includes(wanted); shown += !row.hidden; });
    said.textContent = wanted ? `${shown} of ${rows.length} tables` : "";
  });
  const number = cell => Number(cell.firstElementChild?.value ?? (cell.textContent.replaceAll(",", "") || -1));
  const words = new Intl.Collator("en", { numeric: true });
  document.querySelectorAll("thead th").forEach((head, column, heads) => {
    const button = document.createElement("button"), numeric = head.classList.contains("number");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const first = numeric ? "descending" : "ascending", other = numeric ? "ascending" : "descending";
      const order = head.getAttribute("aria-sort") === first ? other : first, sign = order === "ascending" ? 1 : -1;
      heads.forEach(each => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const keys = new Map(rows.map(row => [row, numeric ? number(row.cells[column]) : row.cells[column].textContent]));
      const compare = numeric ? (a, b) => a - b : words.compare;
      body.append(...[...rows].sort((a, b) => sign * compare(keys.get(a), keys.get(b))));
    });
  });
})();
"""
