"""Credentials are taken out of texts by the forms that they have."""

from __future__ import annotations

import pytest

from airflow_hive_to_delta.core.redaction import redact_credentials
from tests.support.credentials import WITH_CREDENTIALS, WITHOUT_CREDENTIALS


@pytest.mark.parametrize("text", WITH_CREDENTIALS)
def test_credentials_are_replaced(text: str) -> None:
    redacted = redact_credentials(text)
    assert "***" in redacted
    assert "canary" not in redacted


@pytest.mark.parametrize("text", WITHOUT_CREDENTIALS)
def test_what_only_looks_like_a_credential_stays(text: str) -> None:
    assert redact_credentials(text) == text
