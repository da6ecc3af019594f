"""The report of a campaign, as one HTML page among its documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_to_delta.campaigns.closing import ClosedWave
from airflow_hive_to_delta.campaigns.states import PHASES, StateName, TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.operators.report_publishing import describe_run, seconds_since_start
from airflow_hive_to_delta.report.html import render_html
from airflow_hive_to_delta.report.outcomes import OutcomeStatus, TableOutcome, build_report

if TYPE_CHECKING:
    from airflow.sdk import Context

REPORT_PAGE = "page"
_STATUSES: dict[StateName, OutcomeStatus] = {
    "planned": "convertible",
    "approved": "convertible",
    "converted": "converted",
    "verified": "converted",
    "synced": "synced",
    "cut_over": "cut_over",
    "rolled_back": "rolled_back",
    "refused": "refused",
    "failed": "failed",
    "needs_person": "failed",
    "excluded": "skipped",
}


def write_report(store: CampaignStore, closed: ClosedWave, context: Context) -> str:
    """Write the report of all tables of a campaign. Returns its URI."""
    report = build_report(
        (outcome_of_state(state) for state in closed.states.values()),
        title=f"Hive to Delta: {store.campaign}",
        run=describe_run(context),
        action=PHASES[closed.phase].action,
        elapsed_seconds=seconds_since_start(context),
    )
    store.write_bytes("report.html", render_html(report).encode())
    return str(store.location("report.html"))


def outcome_of_state(state: TableState) -> TableOutcome:
    """The state of a table as a report shows it."""
    notes = [f"Verified by {level} at version {version}" for level, version in state.verified.items()]
    if state.state == "needs_person":
        notes.append("It needs a person")
    return TableOutcome(
        state.table,
        _STATUSES[state.state],
        target_table=state.target_table,
        file_count=state.files,
        byte_count=state.bytes,
        row_count=state.rows,
        location=state.location,
        version=state.version,
        notes=notes,
        error=state.error,
        retryable=state.retryable,
        advice=state.advice,
        verified=state.verified,
        error_kind=state.error_kind,
    )
