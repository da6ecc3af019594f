"""What a local session is started with."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from airflow_hive_to_delta.core.spark.session import _submit_arguments


def test_a_local_session_reads_the_defaults_and_its_own_settings_come_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.app.name ü\nspark.ui.enabled true", encoding="utf-8")
    with _submit_arguments({"spark.ui.enabled": "false"}):
        (_, file, *_) = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    assert [re.split("[ =]", line) for line in lines] == [
        *(["spark.app.name", "ü"], ["spark.ui.enabled", "true"], ["spark.ui.enabled", "false"]),
    ]
