"""The draft of a plan: the tables that a run has found, while what the catalog does not say of them is found out.

    drafts/<run>/
      plan.parquet               the tables as discovery has found them
      units/<n>.json             the tables that one task looks at
      measured/<n>.<chunk>.json  what it has found, chunk by chunk
      inventory/<n>.json         the files of tables in one file of an inventory report

A draft is deleted when the next run begins its own. A task that is tried again goes on after what is there.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from airflow_hive_to_delta.campaigns.closing import count_states, write_summary
from airflow_hive_to_delta.campaigns.csv_files import export_csv
from airflow_hive_to_delta.campaigns.decisions import read_decisions
from airflow_hive_to_delta.campaigns.documents import CampaignDocument, CheckedDocument, check_tables
from airflow_hive_to_delta.campaigns.plan import (
    PLAN,
    PlanRow,
    first_states,
    merge_plans,
    parse_plan,
    read_earlier_plan,
    sort_rows,
    with_decisions,
    write_plan,
)
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.waves import MOST_UNITS
from airflow_hive_to_delta.core.errors import MissingError
from airflow_hive_to_delta.job.file_names import safe_name

#: Tables of one task, unless there are more than so many for every task that there may be.
_TABLES_PER_UNIT = 64


@dataclass(frozen=True)
class DraftUnit(CampaignDocument):
    """The tables that one task looks at."""

    noun: ClassVar[str] = "unit of a draft"

    run: str
    unit: str
    #: :class:`TableInfo` dicts.
    tables: list[dict[str, Any]]
    #: The names of those whose files are to be counted.
    counted: list[str]
    #: The names of those whose partitions are to be filtered.
    filtered: list[str]

    def __post_init__(self) -> None:
        check_tables(self.tables)


@dataclass(frozen=True)
class Measurement(CheckedDocument):
    """What was found of a table."""

    table: str
    #: Neither files nor bytes: they are not known.
    files: int = 0
    bytes: int = 0
    #: How many partitions it has; None: nobody asked, or no catalog lists them.
    partitions: int | None = None
    #: Whether the filter takes one of them; None: nobody asked, or it is not known.
    is_taken: bool | None = None
    #: Where its files are, as URIs, for the pass over an inventory.
    locations: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class MeasuredTables(CampaignDocument):
    """What was found of some tables of a unit."""

    noun: ClassVar[str] = "measurement of tables"

    #: :class:`Measurement` dicts.
    tables: list[dict[str, Any]]

    @property
    def each(self) -> list[Measurement]:
        return [Measurement.from_dict(table) for table in self.tables]

    def __post_init__(self) -> None:
        _ = self.each  # which is refused here when it cannot be read


def write_draft(
    store: CampaignStore,
    run: str,
    rows: Sequence[PlanRow],
    *,
    counted: Collection[str],
    filtered: Collection[str],
) -> list[str]:
    """Begin a draft, in the place of all that are there.

    :param counted: the names of the tables whose files are to be counted.
    :param filtered: the names of those whose partitions are to be filtered.
    :returns: the names of its units, at most 256.
    """
    _delete_drafts(store)
    tables = [row for row in rows if row.table in counted or row.table in filtered]
    size = max(_TABLES_PER_UNIT, -(-len(tables) // MOST_UNITS))
    units: list[DraftUnit] = []
    for start in range(0, len(tables), size):
        each = tables[start : start + size]
        names = [row.table for row in each]
        units.append(
            DraftUnit(
                run,
                f"{len(units):04d}",
                [row.definition for row in each if row.definition is not None],
                [name for name in names if name in counted],
                [name for name in names if name in filtered],
            )
        )
    store.map(lambda unit: store.write(f"{draft_folder(run)}/units/{unit.unit}.json", unit.to_dict()), units)
    write_plan(store, rows, f"{draft_folder(run)}/{PLAN}")
    return [unit.unit for unit in units]


def draft_folder(run: str) -> str:
    """The folder of a run's draft, from the folder of the campaign."""
    return f"drafts/{safe_name(run)}"


def read_draft(store: CampaignStore, run: str) -> list[PlanRow]:
    """The tables of a draft.

    :raises MissingError: there is none.
    """
    path = f"{draft_folder(run)}/{PLAN}"
    content = store.read_bytes(path)
    if content is None:
        raise _missing(store, path)
    return parse_plan(content, store.location(path), with_definitions=True)


def read_draft_unit(store: CampaignStore, run: str, unit: str) -> DraftUnit:
    """One unit of a draft.

    :raises MissingError: there is none.
    """
    path = f"{draft_folder(run)}/units/{unit}.json"
    found = store.read_as(DraftUnit, path)
    if found is None:
        raise _missing(store, path)
    return found


def read_measurements(store: CampaignStore, run: str) -> dict[str, Measurement]:
    """What the units of a draft have found, by table.

    :raises MissingError: a table of them has not been looked at.
    """
    folder = draft_folder(run)
    paths = [f"{folder}/measured/{name}" for name in store.names(f"{folder}/measured")]
    found = {each.table: each for _, chunk in store.read_all_as(MeasuredTables, paths) for each in chunk.each}
    units = store.read_all_as(DraftUnit, [f"{folder}/units/{name}" for name in store.names(f"{folder}/units")])
    missing = sorted({name for _, unit in units for name in (*unit.counted, *unit.filtered)} - found.keys())
    if missing:
        raise MissingError(
            f"{len(missing)} tables have not been looked at, such as {missing[0]}: a task that measures was marked as "
            f"done, or somebody has changed documents in {store.location(folder)}. Clear the task that finds the "
            "tables, with all after it"
        )
    return found


def with_measurements(
    rows: Iterable[PlanRow], measurements: Mapping[str, Measurement], sizes: Mapping[str, tuple[int, int]]
) -> list[PlanRow]:
    """The rows of a draft with the sizes that were found, without the tables that the partition filter leaves out.

    :param sizes: files and bytes by table, where they were counted otherwise than by the units.
    """

    def measured(row: PlanRow) -> PlanRow:
        found = measurements.get(row.table)
        if found is None:
            return row
        if found.is_taken is False:
            why = f"None of its {found.partitions} partitions is taken" if found.partitions else "It has no partitions"
            return replace(row, decision="exclude", reason=f"{why} (partition_filter)", target="")
        files, size = sizes.get(row.table, (found.files, found.bytes))
        return replace(row, files=files, bytes=size) if files or size else row

    return [measured(row) for row in rows]


@dataclass(frozen=True)
class FinishedPlan:
    """A plan that was written."""

    rows: list[PlanRow]
    #: The tables and bytes in each state.
    by_state: dict[str, dict[str, int]]
    #: Tables that are new, or that the plan has changed.
    changed: int


def finish_plan(
    store: CampaignStore, found: Iterable[PlanRow], *, run: str, now: dt.datetime, dag_id: str
) -> FinishedPlan:
    """Write the plan over the one before, give new tables their first states, and write the summary.

    What people have decided stays, and so does every table that a wave has worked on. It can be called again.
    """
    rows = merge_plans(read_earlier_plan(store, with_definitions=True), found)
    write_plan(store, rows)
    before = store.states()
    changed = first_states(store, rows, before, run=run, now=now)
    states = store.states(before)
    decisions = read_decisions(store)
    decided = sort_rows(with_decisions(rows, decisions))
    # With a mark by which a spreadsheet knows that it is UTF-8.
    store.write_bytes("plan.csv", export_csv(decided, states, decisions).encode("utf-8-sig"))
    write_summary(store, states, phase="convert", now=now, dag_id=dag_id)
    return FinishedPlan(rows, count_states(states.values()), changed)


def _delete_drafts(store: CampaignStore) -> None:
    for run in store.names("drafts"):
        folder = f"drafts/{run.rstrip('/')}"
        kinds = [f"{folder}/{name}" for name in ("units", "measured", "inventory")]
        names = store.map(store.names, kinds)
        paths = [f"{kind}/{name}" for kind, each in zip(kinds, names, strict=True) for name in each]
        store.delete([*paths, f"{folder}/{PLAN}"])


def _missing(store: CampaignStore, path: str) -> MissingError:
    return MissingError(
        f"There is no draft of the plan at {store.location(path)}: another run has begun its own, or somebody has "
        "deleted it. Clear the task that finds the tables"
    )
