"""The plan of a campaign: one row for each table, in one Parquet file that is replaced as a whole.

What people decide is not in it (:mod:`decisions`), so a new plan loses none of it.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from airflow_hive_to_delta.campaigns.decisions import TableDecisions
from airflow_hive_to_delta.campaigns.documents import CheckedDocument
from airflow_hive_to_delta.campaigns.leases import change_states
from airflow_hive_to_delta.campaigns.states import StateName, TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.core.storage.uri import Location, redacted

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

PLAN = "plan.parquet"
PlanDecision = Literal["convert", "exclude", "refused"]
#: The state that the plan gives a table.
STATES_BY_DECISION: dict[PlanDecision, StateName] = {
    "convert": "planned",
    "exclude": "excluded",
    "refused": "refused",
}
_GONE = "It is not in its catalog any more, or the source of the campaign leaves it out now"
#: The unit in the history of a table whose state comes from the plan.
BY_PLAN = "plan"


@dataclass
class PlanRow(CheckedDocument):
    """What a campaign knows of a table before it works on it."""

    #: Qualified name.
    table: str
    owner: str = ""
    files: int = 0
    bytes: int = 0
    format: str = "parquet"
    #: Higher ones come first.
    priority: int = 0
    decision: PlanDecision = "convert"
    #: Why it is refused or excluded.
    reason: str = ""
    location: str = ""
    #: The name under which it will be registered; empty: it will not be.
    target: str = ""
    #: The :class:`TableInfo` of the table, as a dict.
    definition: dict[str, Any] | None = None

    @classmethod
    def of_table(cls, table: TableInfo, **known: Any) -> PlanRow:
        """The row of a table that discovery has found."""
        # A location with a password in it is refused by every job, and must not be kept.
        definition = {**table.without_other_properties().to_dict(), "location": redacted(table.location)}
        location = redact_credentials(table.location)
        return cls(table.qualified_name, format=table.format, location=location, definition=definition, **known)


def statistics_of(table: TableInfo) -> tuple[int, int] | None:
    """The files and bytes of a table as its catalog has counted them: Hive, Spark or a crawler; None: nobody has.

    No bytes count as nothing known: Hive writes so of a table that is created over files which are there already.
    """
    found = table.properties
    for files, size in (("numFiles", "totalSize"), ("objectCount", "sizeKey"), ("", "spark.sql.statistics.totalSize")):
        if found.get(size, "").isdecimal() and int(found[size]):
            count = found.get(files, "")
            return int(count) if count.isdecimal() else 0, int(found[size])
    return None


def write_plan(store: CampaignStore, rows: Iterable[PlanRow], path: str = PLAN) -> None:
    """Write the plan in the place of the one that is there.

    :param path: that of a draft (:mod:`drafts`), from the folder of the campaign.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [
        {**row.to_dict(), "definition": None if row.definition is None else json.dumps(row.definition)} for row in rows
    ]
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(columns, schema=_schema()), content, compression="zstd")
    store.write_bytes(path, content.getvalue())


def read_plan(store: CampaignStore, *, with_definitions: bool = False) -> list[PlanRow]:
    """The rows of the plan, in their order; none when there is no plan yet.

    :param with_definitions: read the definitions of the tables, too, which are most of the plan.
    """
    content = store.read_bytes(PLAN)
    return [] if content is None else parse_plan(content, store.location(PLAN), with_definitions=with_definitions)


def read_earlier_plan(store: CampaignStore, *, with_definitions: bool = False) -> list[PlanRow]:
    """The rows of the plan that a new one takes the place of; none when it cannot be read, which the log says."""
    try:
        return read_plan(store, with_definitions=with_definitions)
    except PermanentError as error:
        log.warning("A new plan is made without what the old one knew: %s", error)
        return []


def parse_plan(content: bytes, location: Location, *, with_definitions: bool) -> list[PlanRow]:
    """The rows of a plan, or of the draft of one (:mod:`drafts`), in their order.

    :param location: where it is, in the words of an error.
    :raises PermanentError: it cannot be read.
    """
    import pyarrow as pa

    columns = [name for name in _schema().names if with_definitions or name != "definition"]
    try:
        found = _read_columns(content, columns)
        for row in found:
            row["definition"] = json.loads(row["definition"]) if row.get("definition") else None
        return [PlanRow.from_dict(row) for row in found]
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise PermanentError(
            f"{location} cannot be read: {error}. Clear the task that plans, in the DAG with phase='convert'"
        ) from error


def _read_columns(content: bytes, columns: Sequence[str]) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(content))
    if missing := [name for name in columns if name not in file.schema_arrow.names]:
        raise ValueError(f"it has no column {', '.join(missing)}, expected {', '.join(columns)}")
    rows: list[dict[str, Any]] = file.read(columns).to_pylist()
    return rows


def merge_plans(before: Iterable[PlanRow], found: Iterable[PlanRow]) -> list[PlanRow]:
    """A new plan after an earlier one: sizes that are not known any more stay, and so do tables that are gone."""
    old = {row.table: row for row in before}
    merged = []
    for row in found:
        known = old.pop(row.table, None)
        has_size = row.files or row.bytes or known is None
        merged.append(row if has_size or known is None else replace(row, files=known.files, bytes=known.bytes))
    merged += [replace(row, decision="refused", reason=_GONE) for row in old.values()]
    return sorted(merged, key=lambda row: row.table)


def with_decisions(rows: Iterable[PlanRow], decisions: Mapping[str, TableDecisions]) -> list[PlanRow]:
    """The plan with what people have decided about its tables."""

    def decided(row: PlanRow) -> PlanRow:
        found = decisions.get(row.table)
        if found is None:
            return row
        excluded = found.excluded if found.excluded is not None else row.decision == "exclude"
        decision: PlanDecision = "exclude" if excluded else "convert" if row.decision == "exclude" else row.decision
        return replace(
            row,
            priority=row.priority if found.priority is None else found.priority,
            owner=row.owner if found.owner is None else found.owner,
            decision=decision,
        )

    return [decided(row) for row in rows]


def first_states(
    store: CampaignStore, rows: Sequence[PlanRow], states: Mapping[str, TableState], *, run: str, now: dt.datetime
) -> int:
    """Give each table of a plan its first state, and change those that wait as the plan says now.

    A table that was worked on, or is now, keeps its state.

    :returns: how many were written.
    """
    by_table = {row.table: row for row in rows}

    def as_planned(state: TableState, *, is_new: bool = False) -> TableState | None:
        row = by_table[state.table]
        target = STATES_BY_DECISION[row.decision]
        known = {"files": row.files, "bytes": row.bytes, "owner": row.owner, "location": row.location}
        known |= {"target_table": row.target, "error": row.reason or None if target == "refused" else None}
        if is_new or (state.state != target and waits_for_plan(state)):
            return state.change(target, now, run=run, unit=BY_PLAN, changes=known)
        if waits_for_plan(state) and row.bytes and not state.bytes:  # its size is known since
            return replace(state, files=row.files, bytes=row.bytes)
        return None

    new = [as_planned(TableState(table), is_new=True) for table in by_table if table not in states]
    store.map(store.put_state, [state for state in new if state is not None])
    differing = [table for table in by_table if table in states and as_planned(states[table]) is not None]
    changed = change_states(store, differing, as_planned, known=states, run=run, unit=BY_PLAN, now=now)
    return len(new) + len(changed)


def waits_for_plan(state: TableState | None) -> bool:
    """Whether a table is what a plan has made of it: neither a wave nor a person has changed its state since."""
    if state is None:
        return True
    by_plan = state.state in ("planned", "refused", "excluded")
    return by_plan and bool(state.history) and state.history[-1]["unit"] == BY_PLAN


def matches(table: str, patterns: str | Sequence[str] | None) -> bool:
    """Whether a table's name fits one of the patterns, such as ``sales.*``; without patterns every table does."""
    if patterns is None:
        return True
    given = [patterns] if isinstance(patterns, str) else patterns
    return any(fnmatchcase(table.lower(), pattern.lower()) for pattern in given)


def filter_rows(
    rows: Iterable[PlanRow],
    *,
    tables: str | Sequence[str] | None = None,
    owners: str | Sequence[str] | None = None,
    decisions: Sequence[PlanDecision] | None = None,
) -> list[PlanRow]:
    """The rows whose tables and owners fit the patterns, and that are decided so."""
    return [
        row
        for row in rows
        if matches(row.table, tables)
        and matches(row.owner, owners)
        and (decisions is None or row.decision in decisions)
    ]


def sort_rows(rows: Iterable[PlanRow], *by: str) -> list[PlanRow]:
    """The rows in the order of columns, the first one first; a minus before a name turns its order round.

    Without columns they are in the order of waves: by priority, then the largest first.
    """
    found = list(rows)
    for column in reversed(by or ("-priority", "-bytes", "-files", "table")):
        name = column.removeprefix("-")
        if name not in _schema_names():
            raise ValueError(f"The plan has no column {name!r}; it has {', '.join(_schema_names())}")
        found.sort(key=lambda row: getattr(row, name), reverse=column.startswith("-"))
    return found


def _schema_names() -> list[str]:
    return [name for name in PlanRow.__dataclass_fields__ if name != "definition"]


def _schema() -> pa.Schema:
    import pyarrow as pa

    numbers = dict.fromkeys(("files", "bytes", "priority"), pa.int64())
    return pa.schema([(name, numbers.get(name, pa.string())) for name in PlanRow.__dataclass_fields__])
