"""Jobs on an engine, without a task around them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_hive_to_delta.core.models import ParquetFileInfo, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.engines import Engine, JobRef, JobRequest, JobSpec, JobStatus
from airflow_hive_to_delta.job.documents import DONE, REQUEST


def conversion(root: Path, files: int = 3) -> JobRequest:
    """The request to convert a table of a few files.

    :param files: how many; with more than :data:`FEW_FILES`, Python workers read them.
    """
    from tests.support.tables import write_parquet  # which needs Spark

    written = [write_parquet(root / f"f{number}", {"n": [number % 3, None]}) for number in range(files)]
    listed = [ParquetFileInfo(str(file), file.stat().st_size).to_dict() for file in written]
    return JobRequest(
        "convert",
        {
            "tables": [TableInfo("t", str(root)).to_dict()],
            "lists": [{"table": "t", "file_count": files, "byte_count": 0, "files": listed}],
            "target_catalog": None,
            "target_schemas": [None],
            "options": ConversionOptions().to_dict(),
        },
        "Convert t",
    )


def submit(engine: Engine, request: JobRequest, folder: Path, environment: Mapping[str, str] | None = None) -> JobRef:
    """Submit a job whose documents are in a folder of this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REQUEST).write_text(json.dumps(request.to_dict()))
    spec = JobSpec(request.name, f"file://{folder / REQUEST}", f"file://{folder}", "token")
    return engine.submit(spec, environment or {})


def wait(engine: Engine, ref: JobRef) -> tuple[JobStatus, list[str]]:
    """Wait for the end of a job. Returns its last status, and all lines of its log."""
    lines: list[str] = []
    cursor = None
    while not (status := engine.status(ref, cursor)).has_ended:
        lines += status.log
        cursor = status.cursor
        time.sleep(0.05)  # not asking all the time, which would take a core from the job
    return status, lines + status.log


def result_in(folder: Path) -> dict[str, Any]:
    """The whole result of a job."""
    result: dict[str, Any] = json.loads((folder / DONE).read_text())
    return result
