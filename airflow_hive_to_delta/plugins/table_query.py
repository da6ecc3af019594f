"""Sorting, filtering and searching the tables of a campaign, one page at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from airflow_hive_to_delta.campaigns.states import STATES
from airflow_hive_to_delta.campaigns.view.table_rows import TableRow

SortColumn = Literal[
    "table", "state", "owner", "files", "bytes", "priority", "attempts", "updated", "next_attempt", "error"
]

_STATE_ORDER: dict[str, int] = {name: number for number, name in enumerate(STATES)}
_NUMBERS = re.compile(r"([0-9]{1,18})")


@dataclass(frozen=True)
class TableQuery:
    """Which tables are wanted, in which order."""

    #: In which the name, the owner or the error of a table has every word, in whichever case.
    search: str = ""
    states: frozenset[str] = frozenset()
    owner: str | None = None
    #: The DAG run that changed a table last: its id, or the name that documents have for it, in which the id is.
    run: str = ""
    sort: SortColumn = "table"
    descending: bool = False


def select_rows(rows: Iterable[TableRow], query: TableQuery) -> list[TableRow]:
    """The rows that a query asks for, sorted. Rows that are equal by the column are sorted by name."""
    words = query.search.casefold().split()
    found = [
        row
        for row in rows
        if (not query.states or row.state in query.states)
        and (query.owner is None or row.owner == query.owner)
        and (not query.run or row.run == query.run or f".{query.run}." in row.run)
        and all(word in f"{row.table} {row.owner} {row.error}".casefold() for word in words)
    ]
    found.sort(key=lambda row: _by_numbers(row.table))
    if query.sort == "table":
        return found[::-1] if query.descending else found
    if query.sort == "state":
        found.sort(key=lambda row: _STATE_ORDER[row.state], reverse=query.descending)
    else:
        found.sort(key=lambda row: getattr(row, query.sort), reverse=query.descending)
    return found


def _by_numbers(name: str) -> list[str | int]:
    """A key by which ``orders_2`` comes before ``orders_10``."""
    return [int(part) if number % 2 else part for number, part in enumerate(_NUMBERS.split(name.casefold()))]
