"""How many tables and bytes of a campaign were left over time, and when the last one will be done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from airflow_hive_to_delta.campaigns.states import done_states
from airflow_hive_to_delta.campaigns.view.table_rows import TableRow, epoch

#: Points of the curve at most: a screen shows no more.
_POINTS = 240


class BurnDown(TypedDict):
    """Points of a curve, each with a time in seconds since the epoch, and what was left then."""

    at: list[float]
    tables: list[int]
    bytes: list[int]
    #: When nothing will be left, in seconds since the epoch; None when that cannot be said.
    forecast: float | None


def burn_down(rows: Iterable[TableRow], since: Mapping[str, float], summary: Mapping[str, Any], now: float) -> BurnDown:
    """The curve of a campaign from its first wave to now.

    :param since: when each table with a state came to it, in seconds since the epoch.
    :param now: in seconds since the epoch.
    """
    began = _first_wave(summary)
    if began is None:
        return BurnDown(at=[], tables=[], bytes=[], forecast=None)
    done = done_states(summary)
    total_tables, total_bytes, ends = 0, 0, []
    for row in rows:
        ended = since.get(row.table) if row.state in done else now
        if ended is None or ended < began:
            continue  # a table that the plan left out was never to be done
        total_tables += 1
        total_bytes += row.bytes
        if row.state in done:
            ends.append((ended, row.bytes))
    ends.sort()
    curve = [(began, total_tables, total_bytes)]
    step = max(1, -(-len(ends) // _POINTS))
    for number, (at, size) in enumerate(ends, 1):
        total_tables, total_bytes = total_tables - 1, total_bytes - size
        if number % step == 0 or number == len(ends):
            curve.append((at, total_tables, total_bytes))
    if total_tables:
        curve.append((max(now, curve[-1][0]), total_tables, total_bytes))
    forecast = epoch(summary.get("forecast")) if total_tables else None
    return BurnDown(
        at=[round(at) for at, _, _ in curve],
        tables=[tables for _, tables, _ in curve],
        bytes=[left for _, _, left in curve],
        forecast=forecast if forecast is not None and forecast > now else None,
    )


def _first_wave(summary: Mapping[str, Any]) -> float | None:
    """When the first wave that the summary knows began; None before there is one."""
    waves: list[Any] = summary.get("waves") or []
    starts = [epoch(wave.get("started")) for wave in waves if isinstance(wave, dict)]
    return min((start for start in starts if start is not None), default=None)
