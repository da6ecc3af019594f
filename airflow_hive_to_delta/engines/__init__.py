"""Where a job runs. An engine runs what a :class:`JobSpec` names; it knows nothing of Airflow, nor of what jobs do."""

from __future__ import annotations

from airflow_hive_to_delta.engines.databricks import Databricks
from airflow_hive_to_delta.engines.engine import Engine, JobError, JobRef, JobSpec, JobStatus
from airflow_hive_to_delta.engines.local import LocalSpark
from airflow_hive_to_delta.job.request import JobRequest

__all__ = ["Databricks", "Engine", "JobError", "JobRef", "JobRequest", "JobSpec", "JobStatus", "LocalSpark"]
