"""Jobs on an engine, without a task around them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_hive_to_delta.engines import Engine, JobRef, JobRequest, JobSpec, JobStatus
from airflow_hive_to_delta.job.documents import DONE, REQUEST


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
    return status, lines + status.log


def result_in(folder: Path) -> dict[str, Any]:
    """The whole result of a job."""
    result: dict[str, Any] = json.loads((folder / DONE).read_text())
    return result
