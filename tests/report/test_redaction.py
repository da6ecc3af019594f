"""No credential reaches a report, and what only looks like one stays."""

from __future__ import annotations

import json

import pytest

from airflow_hive_to_delta.report.html import render_html
from airflow_hive_to_delta.report.outcomes import TableOutcome, build_report
from tests.support.credentials import WITH_CREDENTIALS, WITHOUT_CREDENTIALS


@pytest.mark.parametrize("text", WITH_CREDENTIALS)
def test_no_credential_reaches_the_report(text: str) -> None:
    outcome = TableOutcome("d.t", "failed", location=text, error=text, notes=[text], advice=text)
    made = build_report([outcome], title="", run={"conf": text})
    assert "***" in json.dumps(made)
    assert "canary" not in json.dumps(made) + render_html(made)


@pytest.mark.parametrize("text", WITHOUT_CREDENTIALS)
def test_what_only_looks_like_a_credential_stays(text: str) -> None:
    assert TableOutcome("d.t", "failed", location=text, error=text).error == text
