"""The report of a campaign, as one HTML page among its documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_to_delta.campaigns.closing import ClosedWave
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.times import now
from airflow_hive_to_delta.campaigns.view.report import render_campaign_report
from airflow_hive_to_delta.operators.report_publishing import describe_run

if TYPE_CHECKING:
    from airflow.sdk import Context

REPORT_PAGE = "page"
#: From the folder of the campaign.
REPORT_DOCUMENT = "report.html"


def write_report(store: CampaignStore, closed: ClosedWave, context: Context) -> None:
    """Write the report of all tables of a campaign."""
    page = render_campaign_report(
        closed.states.values(), closed.summary, describe_run(context), run=closed.run, now=now()
    )
    store.write_bytes(REPORT_DOCUMENT, page.encode())
