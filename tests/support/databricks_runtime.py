"""A process that looks as it does on compute of Databricks."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.databricks import needs_dbutils
from tests.support import dbutils_module


@pytest.fixture
def databricks_runtime(aws_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Makes this process look like compute of Databricks without AWS credentials for Python: boto3 fails."""
    monkeypatch.setitem(sys.modules, "pyspark.dbutils", dbutils_module)
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    needs_dbutils.cache_clear()
    aws._client.cache_clear()
    yield monkeypatch
    needs_dbutils.cache_clear()
    aws._client.cache_clear()
