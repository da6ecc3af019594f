"""Where a job runs. An engine runs what a :class:`JobSpec` names, and does not know what jobs do.

Connections and hooks of Airflow are imported when a job is submitted or asked about, so that importing an engine
imports no Airflow.
"""

from __future__ import annotations

from airflow_hive_to_delta.engines.databricks import Databricks
from airflow_hive_to_delta.engines.emr_serverless import EmrServerless
from airflow_hive_to_delta.engines.engine import Engine, JobError, JobRef, JobSpec, JobStatus
from airflow_hive_to_delta.engines.glue import GlueJob
from airflow_hive_to_delta.engines.local import LocalSpark
from airflow_hive_to_delta.engines.spark_connect import SparkConnect
from airflow_hive_to_delta.engines.spark_submit import SparkSubmit
from airflow_hive_to_delta.job.request import JobRequest

__all__ = [
    "Databricks",
    "EmrServerless",
    "Engine",
    "GlueJob",
    "JobError",
    "JobRef",
    "JobRequest",
    "JobSpec",
    "JobStatus",
    "LocalSpark",
    "SparkConnect",
    "SparkSubmit",
]
