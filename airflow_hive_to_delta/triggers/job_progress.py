"""How far a job is, by what it leaves in the folder of its results: for a task that waits, and for a trigger."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from airflow.sdk import ObjectStoragePath

from airflow_hive_to_delta.engines import JobRequest, JobStatus
from airflow_hive_to_delta.engines.watch import describe_failure
from airflow_hive_to_delta.job.actions import ACTIONS
from airflow_hive_to_delta.job.documents import PROGRESS, is_result_name
from airflow_hive_to_delta.job.progress import describe_progress


@dataclass(frozen=True)
class JobProgress:
    """Reads how far one job is. Reading blocks: on an event loop, call it in a thread."""

    #: What the job is called.
    name: str
    #: The address of the folder of its results.
    results_uri: str
    #: The Airflow connection of that storage; None: the identity that this process has anyway.
    conn_id: str | None = None
    #: The tables whose results it leaves there one by one; 0: it leaves none.
    table_count: int = 0

    def describe(self, status: JobStatus, seconds: float) -> str:
        """A line for the log: the job's state, the files and footers that it has counted, the tables that have ended.

        A storage that cannot be read is named in it, and is no error.

        :param seconds: since when the job is waited for.
        """
        line = f"{self.name} is {status.state}, for {seconds:.0f} s by now"
        try:
            folder = ObjectStoragePath(self.results_uri, conn_id=self.conn_id)
            folder.fs.invalidate_cache()  # the job writes there
            progress = _read_progress(folder)
            parts = [describe_progress(progress, progress.get("stages", ""))]
            if self.table_count > 1:
                ended = sum(is_result_name(path.name) for path in folder.iterdir())
                parts.append(f"{ended} of {self.table_count} tables have ended")
            return "; ".join([line, *filter(None, parts)])
        except Exception as error:  # of the storage; the line is worth less than the job
            return f"{line} (how far it is could not be read: {describe_failure(error)})"


def count_tables(request: JobRequest) -> int:
    """How many tables a job leaves results of, one by one as they end; 0 where its action leaves none."""
    keeps = ACTIONS[request.action].keeps_table_results
    return len(request.arguments.get("tables") or ()) if keeps else 0


def _read_progress(folder: ObjectStoragePath) -> dict[str, Any]:
    try:
        progress: dict[str, Any] = json.loads((folder / PROGRESS).read_text())
    except FileNotFoundError:  # the job has counted nothing yet, or the document is just being replaced
        return {}
    return progress
