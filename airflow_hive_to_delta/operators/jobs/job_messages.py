"""What a task says of its jobs: how far one is, and why one has no result."""

from __future__ import annotations

from airflow_hive_to_delta.engines import JobRequest, JobStatus
from airflow_hive_to_delta.engines.watch import describe_failure
from airflow_hive_to_delta.job.actions import ACTIONS
from airflow_hive_to_delta.job.progress import describe_progress
from airflow_hive_to_delta.operators.jobs.job_folder import JobFolder


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


def describe_running_job(request: JobRequest, documents: JobFolder, status: JobStatus, seconds: float) -> str:
    """A line that says how far a job is.

    :param seconds: for how long the task has waited for the job.
    """
    said = f"{request.name} is {status.state}, for {seconds:.0f} s by now"
    count = len(request.arguments.get("tables") or ())
    try:
        progress = documents.read_progress()
        parts = [describe_progress(progress, progress.get("stages", ""))]
        if count > 1 and ACTIONS[request.action].keeps_table_results:
            parts.append(f"{documents.count_results()} of {count} tables have ended")
        return "; ".join([said, *filter(None, parts)])
    except Exception as error:  # of the storage; the line is worth less than the job
        return f"{said} (how far it is could not be read: {describe_failure(error)})"
