"""What a task says of a job that has left no result."""

from __future__ import annotations

from airflow_hive_to_delta.engines import JobStatus
from airflow_hive_to_delta.operators.jobs.folder import JobFolder


def describe_missing_result(status: JobStatus, documents: JobFolder) -> str:
    """Why a job that has ended has left no result, as far as its engine and its folder say."""
    if status.error:
        return status.error
    match status.state:
        case "cancelled":
            return "The job was cancelled where it runs, before it had a result"
        case "not_found":
            return f"The engine does not know the job any more, and there is no result at {documents.uri}"
        case "succeeded":
            return (
                f"The job succeeded, but there is no result at {documents.uri}: it was deleted since, or lies at "
                "another place than the job was told"
            )
    return "The job failed where it runs, and says no more: see its log there"
