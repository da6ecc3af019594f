"""Where a job runs. An engine takes a :class:`JobRequest` and gives back its result; it knows nothing of Airflow."""

from __future__ import annotations

from airflow_hive_to_delta.engines.engine import Engine, JobError, JobStatus
from airflow_hive_to_delta.engines.local import LocalSpark
from airflow_hive_to_delta.job.request import JobRequest

__all__ = ["Engine", "JobError", "JobRequest", "JobStatus", "LocalSpark"]
