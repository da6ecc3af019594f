"""No credential reaches a report, and what only looks like one stays."""

from __future__ import annotations

import json

import pytest

from airflow_hive_to_delta.report.html import render_html
from airflow_hive_to_delta.report.outcomes import TableOutcome, build_report


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIAIOSFODNN7EXAMPLE:canary/with/slash@bucket/t",
        "reading (s3a://key:canary@bucket/t) failed",
        "jdbc:postgresql://user:canary@host/db",
        "https://b.s3.amazonaws.com/k?X-Amz-Credential=canary&X-Amz-Signature=canary",
        "wasbs://c@a.blob.core.windows.net/t?sv=1&sig=canary",
        "spark.hadoop.fs.s3a.secret.key=canary",
        "fs.azure.account.key.acme.dfs.core.windows.net = canary",
        "{'aws_secret_access_key': 'canary', \"token\": \"canary\"}",
        "Authorization: Bearer canary.canary.canary",
        "password: canary",
    ],
)
def test_no_credential_reaches_the_report(text: str) -> None:
    outcome = TableOutcome("d.t", "failed", location=text, error=text, notes=[text], advice=text)
    made = build_report([outcome], title="", run={"conf": text})
    assert "***" in json.dumps(made)
    assert "canary" not in json.dumps(made) + render_html(made)


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/d/t/dt=2020-01-01 00:00:00/a@b",
        "abfss://container@account.dfs.core.windows.net/t",
        "Listing s3://b/t: ExpiredToken: The provided token has expired",
        "InvalidAccessKeyId: The AWS Access Key Id you provided does not exist",
    ],
)
def test_what_only_looks_like_a_credential_stays(text: str) -> None:
    assert TableOutcome("d.t", "failed", location=text, error=text).error == text
