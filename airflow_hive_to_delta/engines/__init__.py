"""Where a job runs. An engine takes a :class:`JobRequest` and gives back its result; it knows nothing of Airflow."""

from __future__ import annotations

from airflow_hive_to_delta.engines.engine import Engine, JobError, JobRequest, JobStatus
from airflow_hive_to_delta.engines.local import LocalSpark

__all__ = ["Engine", "JobError", "JobRequest", "JobStatus", "LocalSpark"]
