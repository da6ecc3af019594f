"""The plan as CSV, for people: written, edited in a spreadsheet, and read back as decisions."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Iterable, Mapping

from airflow_hive_to_delta.campaigns.decisions import Decision, add_decisions, read_decisions
from airflow_hive_to_delta.campaigns.plan import PlanRow, read_plan, with_decisions
from airflow_hive_to_delta.campaigns.states import TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.times import format_time
from airflow_hive_to_delta.core.errors import PermanentError

#: The columns of the file. What people write into the first three after the name is read back.
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
)
_EDITED = ("decision", "priority", "owner")
#: A cell that begins so is a formula for a spreadsheet. What a metastore says must never be one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_CHOICES = {"convert": "include", "include": "include", "exclude": "exclude", "retry": "retry"}


def export_csv(rows: Iterable[PlanRow], states: Mapping[str, TableState]) -> str:
    """The plan as CSV, one line for each table. What a spreadsheet would take for a formula begins with ``'``."""
    target = io.StringIO()
    writer = csv.DictWriter(target, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        state = states.get(row.table)
        cells = {name: getattr(row, name, "") for name in COLUMNS} | {"state": state.state if state else "planned"}
        writer.writerow({name: _as_cell(value) for name, value in cells.items()})
    return target.getvalue()


def import_csv(store: CampaignStore, text: str, *, by: str, now: dt.datetime) -> list[Decision]:
    """Add a decision for each line that differs from the plan in its decision, priority or owner.

    :param text: as :func:`export_csv` made it, edited; other columns, and lines of tables that stay, may be missing.
        A decision is ``convert``, ``exclude`` or ``retry``.
    :param by: the name of the person.
    :returns: the decisions that were added.
    :raises PermanentError: a line names a table that is not in the plan, or what cannot be read. None is added then.
    """
    reader = csv.DictReader(io.StringIO(text))
    if "table" not in (reader.fieldnames or ()):
        raise PermanentError(f"The CSV file has no column table, only {', '.join(reader.fieldnames or ()) or 'none'}")
    rows = {row.table: row for row in with_decisions(read_plan(store), read_decisions(store))}
    found, errors = [], []
    for line in reader:
        table = _as_text(line["table"] or "")
        if table not in rows:
            errors.append(f"line {reader.line_num}: the plan has no table {table!r}")
            continue
        try:
            decision = _difference(rows[table], {name: _as_text(line.get(name) or "") for name in _EDITED}, by, now)
        except ValueError as error:
            errors.append(f"line {reader.line_num}: {table}: {error}")
            continue
        if decision is not None:
            found.append(decision)
    if errors:
        more = f"; and {len(errors) - 10} more" if len(errors) > 10 else ""
        raise PermanentError(f"The CSV file cannot be read, and nothing was decided: {'; '.join(errors[:10])}{more}")
    add_decisions(store, found)
    return found


def _difference(row: PlanRow, cells: Mapping[str, str], by: str, now: dt.datetime) -> Decision | None:
    """The decision that makes the plan what a line says. An empty cell leaves it as it is."""
    changes: dict[str, object] = {}
    chosen = cells["decision"].strip().lower()
    if chosen and chosen != row.decision:
        if chosen not in _CHOICES:
            raise ValueError(f"decision is {chosen!r}, expected convert, exclude or retry")
        changes["decision"] = "retry" if chosen == "convert" and row.decision == "refused" else _CHOICES[chosen]
    if cells["priority"].strip():
        try:
            priority = int(cells["priority"])
        except ValueError:
            raise ValueError(f"priority is {cells['priority']!r}, expected a whole number") from None
        changes |= {"priority": priority} if priority != row.priority else {}
    if cells["owner"] and cells["owner"] != row.owner:
        changes["owner"] = cells["owner"]
    return Decision(format_time(now), by, row.table, **changes) if changes else None  # type: ignore[arg-type]


def _as_cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _as_text(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell
