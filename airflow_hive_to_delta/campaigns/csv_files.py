"""The plan as CSV, for people: written, edited in a spreadsheet, and read back as decisions."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_hive_to_delta.campaigns.decisions import Decision, TableDecisions, add_decisions, read_decisions
from airflow_hive_to_delta.campaigns.plan import PlanRow, read_plan, with_decisions
from airflow_hive_to_delta.campaigns.states import TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.times import format_time
from airflow_hive_to_delta.core.errors import PermanentError

#: The columns of the file. What people write into the first three after the name is read back. The last one has the
#: name of the latest decision about the table in the file, so that a line which nobody has edited undoes no later one.
COLUMNS = (
    "table",
    "decision",
    "priority",
    "owner",
    "state",
    "files",
    "bytes",
    "format",
    "target",
    "location",
    "reason",
    "decided",
)
_EDITED = ("decision", "priority", "owner")
#: A cell that begins so is a formula for a spreadsheet. What a metastore says must never be one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
#: Spreadsheets write what their language is used to.
_DELIMITERS = (",", ";", "\t")
_WHOLE_NUMBER = re.compile(r"([+-]?\d+)([.,]0+)?")
_CHOICES = {"convert": "include", "include": "include", "exclude": "exclude", "retry": "retry"}


def export_csv(
    rows: Iterable[PlanRow],
    states: Mapping[str, TableState],
    decisions: Mapping[str, TableDecisions] | None = None,
) -> str:
    """The plan as CSV, one line for each table. What a spreadsheet would take for a formula begins with ``'``.

    :param rows: with the decisions of people.
    :param decisions: the same decisions, so that reading the file back undoes none that is made until then.
    """
    decided = {table: found.all[-1][0] for table, found in (decisions or {}).items() if found.all}
    target = io.StringIO()
    writer = csv.DictWriter(target, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        state = states.get(row.table)
        cells = {name: getattr(row, name, "") for name in COLUMNS}
        cells |= {"state": state.state if state else "planned", "decided": decided.get(row.table, "")}
        writer.writerow({name: _as_cell(value) for name, value in cells.items()})
    return target.getvalue()


def import_csv(store: CampaignStore, text: str, *, by: str, now: dt.datetime) -> list[Decision]:
    """Add a decision for each line whose decision, priority or owner somebody has edited.

    :param text: as :func:`export_csv` made it, edited; other columns, and lines of tables that stay, may be missing,
        and the order of both does not matter. Semicolons and tabs may stand for commas. A decision is ``convert``,
        ``exclude`` or ``retry``.
    :param by: the name of the person.
    :returns: the decisions that were added.
    :raises PermanentError: a line names a table that is not in the plan, or what cannot be read. None is added then.
    """
    plan = {row.table: row for row in read_plan(store)}
    decisions = read_decisions(store)
    lines: dict[str, int] = {}
    found, errors = [], []
    for number, cells in _read_lines(text):
        table = _as_text(cells["table"])
        table = table if table in plan else table.strip()
        if table not in plan:
            errors.append(f"line {number}: the plan has no table {table!r}")
            continue
        if table in lines:
            errors.append(f"line {number}: {table} has another line, {lines[table]}")
            continue
        lines[table] = number
        known = decisions.get(table, TableDecisions())
        (current,) = with_decisions([plan[table]], {table: known})
        exported = current
        if "decided" in cells:
            (exported,) = with_decisions([plan[table]], {table: known.until(cells["decided"])})
        edited = {name: _as_text(cells.get(name, "")) for name in _EDITED}
        try:
            decision = _difference(exported, current, edited, by, now)
        except ValueError as error:
            errors.append(f"line {number}: {table}: {error}")
            continue
        if decision is not None:
            found.append(decision)
    if errors:
        more = f"; and {len(errors) - 10} more" if len(errors) > 10 else ""
        raise PermanentError(f"The CSV file cannot be read, and nothing was decided: {'; '.join(errors[:10])}{more}")
    add_decisions(store, found)
    return found


def _read_lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The lines that are not empty, each with its number and its cells by column.

    :raises PermanentError: there is no column ``table``, or a column twice.
    """
    text, before = text.removeprefix("\ufeff"), 0
    first = text.partition("\n")[0].strip()
    delimiters: Sequence[str] = _DELIMITERS
    if first.lower().startswith("sep=") and len(first) == len("sep=") + 1:  # for Excel, which hides it
        delimiters, text, before = first[-1], text.partition("\n")[2], 1
    header: list[str] = []
    for delimiter in delimiters:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        header = [name.strip().lower() for name in next(reader, [])]
        if "table" in header:
            break
    else:
        columns = ", ".join(header) or "none"
        raise PermanentError(
            f"The CSV file has no column table, only {columns}; expected columns between commas, semicolons or tabs"
        )
    if twice := sorted({name for name in header if name and header.count(name) > 1}):
        raise PermanentError(f"The CSV file has more than one column {', '.join(twice)}, expected each once")
    for cells in reader:
        if any(cell.strip() for cell in cells):
            # A line may be shorter than the first one.
            padded = [*cells, *[""] * (len(header) - len(cells))]
            yield reader.line_num + before, dict(zip(header, padded, strict=False))


def _difference(
    exported: PlanRow, current: PlanRow, cells: Mapping[str, str], by: str, now: dt.datetime
) -> Decision | None:
    """The decision that makes the plan what a line says, where somebody has edited it.

    An empty cell leaves the plan as it is, and so does one that is as it was exported.
    """
    changes: dict[str, object] = {}
    chosen = cells["decision"].strip().lower()
    if chosen and chosen not in (exported.decision, current.decision):
        if chosen not in _CHOICES:
            raise ValueError(f"decision is {chosen!r}, expected convert, exclude or retry")
        changes["decision"] = "retry" if chosen == "convert" and current.decision == "refused" else _CHOICES[chosen]
    if written := cells["priority"].strip():
        number = _WHOLE_NUMBER.fullmatch(written)
        if number is None:
            raise ValueError(f"priority is {written!r}, expected a whole number")
        if int(number[1]) not in (exported.priority, current.priority):
            changes["priority"] = int(number[1])
    owner = cells["owner"].strip()
    if owner and owner not in (exported.owner.strip(), current.owner.strip()):
        changes["owner"] = owner
    return Decision(format_time(now), by, current.table, **changes) if changes else None  # type: ignore[arg-type]


def _as_cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _as_text(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell
