"""The report of a campaign as one HTML page: what the page in Airflow shows, at one time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from airflow_hive_to_delta.campaigns.states import PHASES, STATES, TableState, done_states
from airflow_hive_to_delta.campaigns.view.burn_down import BurnDown, burn_down
from airflow_hive_to_delta.campaigns.view.glance import count_rows, format_moment, format_span, glance_at
from airflow_hive_to_delta.campaigns.view.table_rows import build_rows, epoch, summarize_state
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.report.formatting import format_bytes, format_count, truncate_end, truncate_list
from airflow_hive_to_delta.report.pages import Listing, NumberCell, TableLine, make_shares, render_report, text_limit

_SHOWN_WAVES = 30
_WHOLE_IN = "the state of the table"
#: The space of the curve, as the template has it.
_WIDTH, _HEIGHT = 1_000, 220


def render_campaign_report(
    states: Iterable[TableState], summary: Mapping[str, Any], facts: Mapping[str, str], *, run: str, now: dt.datetime
) -> str:
    """The report of all tables of a campaign.

    :param summary: the summary of the campaign, as it was written last.
    :param facts: what the report says of the run that makes it.
    :param run: the key of that run, whose wave stands out.
    """
    states = list(states)
    summaries = [found for state in states if (found := summarize_state(vars(state))) is not None]
    rows = build_rows([], summaries, {})
    since = {found.table: found.since for found in summaries if found.since is not None}
    counts = count_rows(rows.values())
    curve = burn_down(rows.values(), since, summary, now.timestamp())
    owners = len({row.owner for row in rows.values()} - {""})
    glance = glance_at(counts, done_states(summary), owners=owners, forecast=curve["forecast"], now=now.timestamp())
    limit = text_limit(len(states))
    return render_report(
        "campaign_report.html.j2",
        title=f"{summary['campaign']} – Hive to Delta",
        heading=summary["campaign"],
        verdicts=[glance.verdict],
        facts={
            "Phase": PHASES[summary["phase"]].label,
            **{name.replace("_", " "): redact_credentials(value) for name, value in facts.items()},
            "Written": format_moment(now.timestamp()),
        },
        live=False,
        cards=glance.cards,
        shares=make_shares((name, label, counts[name]["tables"]) for name, label in STATES.items()),
        burn_down=_draw(curve),
        rows=Listing.of([_line(state, limit) for state in sorted(states, key=_order)]),
        waves=[_wave(wave, run) for wave in reversed(summary["waves"][-_SHOWN_WAVES:])],
        wave_note="The newest first, in UTC.",
    )


def _order(state: TableState) -> tuple[int, str]:
    first = ("needs_person", "failed", "refused")
    return (first.index(state.state) if state.state in first else len(first), state.table)


def _line(state: TableState, limit: int) -> TableLine:
    """The row of one table, with texts that are no longer than ``limit`` characters each."""
    proofs = [f"Verified by {level} at version {version}" for level, version in state.verified.items()]
    notes = [redact_credentials(text) for text in (*proofs, *state.notes)]
    return TableLine(
        tone=state.state,
        label=STATES[state.state],
        table=state.table,
        numbers={
            "files": NumberCell(f"{state.files:,}") if state.files else None,
            "size": NumberCell(format_bytes(state.bytes), state.bytes, format_count(state.bytes, "byte"))
            if state.bytes
            else None,
            "rows": None if state.rows is None else NumberCell(f"{state.rows:,}"),
            "time": None,
        },
        location=truncate_end(redact_credentials(state.location), 1_000, _WHOLE_IN),
        owner=state.owner,
        target=state.target_table,
        target_details="" if state.version is None else f"version {state.version}",
        error=truncate_end(redact_credentials(state.error or ""), limit, _WHOLE_IN),
        advice=truncate_end(redact_credentials(state.advice), limit, _WHOLE_IN),
        notes=truncate_list(notes, limit, _WHOLE_IN),
    )


class _WaveLine(NamedTuple):
    """A row of the list of waves, in the order of the template's columns."""

    run: str
    started: str
    took: str
    tables: str
    data: str
    failed: str
    is_current: bool


def _wave(wave: Mapping[str, Any], run: str) -> _WaveLine:
    started, ended = epoch(wave.get("started")), epoch(wave.get("ended"))
    failed = wave.get("failed_count") or len(wave.get("failed") or ())
    return _WaveLine(
        run=str(wave.get("run_id") or wave.get("run") or ""),
        started="" if started is None else format_moment(started).removesuffix(" UTC"),
        took="runs" if ended is None or started is None else format_span(ended - started),
        tables=f"{wave.get('tables') or 0:,}",
        data=format_bytes(wave.get("bytes") or 0),
        failed=f"{failed:,}" if failed else "",
        is_current=wave.get("run") == run,
    )


class _Drawing(NamedTuple):
    """The burn-down as lines of SVG, and the words around it."""

    hint: str
    area: str
    tables: str
    bytes: str
    #: The dashed lines to the end; empty: it is not known.
    tables_ahead: str
    bytes_ahead: str
    began: str
    ends: str
    tables_left: str
    bytes_left: str


def _draw(curve: BurnDown) -> _Drawing | None:
    """None before the first wave."""
    if not curve["at"]:
        return None
    times, forecast = curve["at"], curve["forecast"]
    end = forecast or times[-1]
    span = max(end - times[0], 1)

    def place(values: Sequence[float], at: Sequence[float], most: float) -> str:
        points = zip(at, values, strict=True)
        return " ".join(
            f"{_WIDTH * (time - times[0]) / span:.1f},{_HEIGHT - (_HEIGHT - 6) * value / max(most, 1):.1f}"
            for time, value in points
        )

    def ahead(values: Sequence[float]) -> str:
        return "" if forecast is None else place([values[-1], 0], [times[-1], forecast], max(values))

    tables, sizes = curve["tables"], curve["bytes"]
    line = place(tables, times, max(tables))
    right = f"{_WIDTH * (times[-1] - times[0]) / span:.1f}"
    hint = "Tables and data that are not done yet."
    if forecast is not None:
        hint += f" At the pace of the waves so far nothing is left on {format_moment(forecast)} (dashed)."
    return _Drawing(
        hint=hint,
        area=f"0,{_HEIGHT} {line} {right},{_HEIGHT}",
        tables=line,
        bytes=place(sizes, times, max(sizes)),
        tables_ahead=ahead(tables),
        bytes_ahead=ahead(sizes),
        began=format_moment(times[0]),
        ends=format_moment(end),
        tables_left=f"{tables[-1]:,} of {tables[0]:,}",
        bytes_left=f"{format_bytes(sizes[-1])} of {format_bytes(sizes[0])}",
    )
