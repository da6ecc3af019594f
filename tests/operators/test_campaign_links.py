"""Where people find the documents of a campaign: the links in the question of an approval, and of the report."""

from __future__ import annotations

import pytest

from airflow_hive_to_delta.campaigns.closing import SummaryRecord
from airflow_hive_to_delta.operators.campaigns.approval import describe_question
from airflow_hive_to_delta.operators.campaigns.wave import LargeUnitsOperator
from tests.support.campaigns import row


@pytest.mark.parametrize(
    ("staging", "address"),
    [
        (
            "s3://lake/staging/",
            "https://console.aws.amazon.com/s3/object/lake?prefix=staging%2Fcampaigns%2Fnightly%2Freport.html",
        ),
        ("file:///var/staging", "file:///var/staging/campaigns/nightly/report.html"),
    ],
)
def test_a_browser_shows_the_report_where_the_storage_has_a_page_for_it(
    monkeypatch, staging: str, address: str
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    task = LargeUnitsOperator(task_id="t", campaign="nightly", staging=staging, aws_conn_id=None)
    assert task.browser_address("report.html") == address


def test_the_question_links_the_plan_and_the_report_and_takes_no_name_for_markdown() -> None:
    rows = [row("a|`b`[x](http://evil)", owner="ada")]
    counts = {"needs_person": {"tables": 3, "bytes": 5}}
    links = {"plan": "https://console/plan.csv", "report": "file:///var/report.html"}
    text = describe_question("cut_over", rows, SummaryRecord(by_state=counts), links)
    assert text.splitlines()[0] == "**Cut over 1 table** with 1 file and 1.0 kB."
    assert "| `sales.ab[x](http://evil)` | `ada` | 1 |" in text
    assert text.splitlines()[-4:] == [
        "The campaign: 3 needs person.",
        "",
        "- [The plan](<https://console/plan.csv>)",
        "- The report: `file:///var/report.html`",
    ]
