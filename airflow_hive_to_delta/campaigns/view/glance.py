"""A campaign at a glance: the sentence and the numbers above everything else."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from airflow_hive_to_delta.campaigns.states import STATES
from airflow_hive_to_delta.campaigns.view.table_rows import TableRow
from airflow_hive_to_delta.report.formatting import format_bytes, format_count
from airflow_hive_to_delta.report.pages import Card, Verdict

#: The tables and the bytes in each state.
Counts = Mapping[str, Mapping[str, int]]


class Glance(NamedTuple):
    verdict: Verdict
    cards: list[Card]


def count_rows(rows: Iterable[TableRow]) -> dict[str, dict[str, int]]:
    """The tables and bytes in every state."""
    counts: dict[str, dict[str, int]] = {state: {"tables": 0, "bytes": 0} for state in STATES}
    for row in rows:
        counts[row.state]["tables"] += 1
        counts[row.state]["bytes"] += row.bytes
    return counts


def glance_at(
    counts: Counts, done_states: Iterable[str], *, owners: int = 0, forecast: float | None = None, now: float
) -> Glance:
    """Say how a campaign stands.

    :param done_states: the states in which nothing is left to be done for a table.
    :param owners: how many people or teams own its tables; 0: that is not known.
    :param forecast: when nothing will be left, in seconds since the epoch; None: that is not known.
    :param now: in seconds since the epoch.
    """

    def add_up(what: str, states: Iterable[str]) -> int:
        return sum(counts[state][what] for state in states if state in counts)

    done_states = list(done_states)
    total, done = add_up("tables", STATES), add_up("tables", done_states)
    size, done_size = add_up("bytes", STATES), add_up("bytes", done_states)
    people, failed = add_up("tables", ["needs_person"]), add_up("tables", ["failed"])
    cards = [
        Card("Tables", f"{total:,}", f"of {format_count(owners, 'owner')}" if owners > 1 else "in the plan"),
        Card("Done", f"{done:,}", f"{100 * done // total} % of all" if total else "", "ok" if done else ""),
        Card("Left", f"{total - done:,}", format_bytes(size - done_size)),
        Card("Need a person", f"{people:,}", "see what to do" if people else "none", "bad" if people else ""),
        Card("Failed", f"{failed:,}", "will be tried again" if failed else "none", "warning" if failed else ""),
        Card("Data", format_bytes(done_size), f"of {format_bytes(size)}"),
        _forecast_card(total - done, forecast, now),
    ]
    return Glance(_verdict(total, done, people, failed), cards)


def format_moment(seconds: float) -> str:
    """A time as a report shows it, such as ``18 Nov 2026, 04:30 UTC``."""
    time = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return f"{time.day} {time:%b %Y, %H:%M} UTC"


def format_span(seconds: float) -> str:
    """A duration of hours or days, such as ``45 min``, ``5 h 03 min`` or ``12 days``."""
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{round(hours / 24)} days"


def _verdict(total: int, done: int, people: int, failed: int) -> Verdict:
    tables = format_count(total, "table")
    if done == total:
        sentences = ["The one table is done." if total == 1 else f"All {tables} are done."]
    else:
        sentences = [f"{done:,} of {tables} {'is' if done == 1 else 'are'} done."]
    if people:
        sentences.append(f"{people:,} {'needs' if people == 1 else 'need'} a person.")
    if failed:
        sentences.append(f"{failed:,} failed and will be tried again.")
    tone = "bad" if people else "warning" if failed else "good" if done == total else ""
    return Verdict(" ".join(sentences), tone)


def _forecast_card(left: int, forecast: float | None, now: float) -> Card:
    if not left:
        return Card("Forecast", "done", "nothing is left")
    if forecast is None:
        return Card("Forecast", "–", "not known yet")
    day = dt.datetime.fromtimestamp(forecast, dt.UTC)
    return Card("Forecast", f"{day.day} {day:%b}", f"in {format_span(forecast - now)}", at=round(forecast))
