"""Running a job on an engine: its log in the task's log, its end with the task's end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.engines import Engine, JobError, JobRequest
from airflow_hive_to_delta.operators.identity import job_environment
from airflow_hive_to_delta.operators.staging import RunFolder, plain_uri

_KILLED = "The task was killed, and its job was ended with it"
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN")


class JobRunner:
    """Runs jobs on an engine, one at a time, for one task.

    :param engine: where the jobs run.
    :param log: the logger of the task.
    """

    def __init__(self, engine: Engine, log: Any) -> None:
        self._engine = engine
        self._log = log
        self._job: str | None = None
        self._kept_logs = 0
        #: Whether the task was killed: a job that runs is ended, and later ones are ended as they begin.
        self.killed = False
        #: The address of a page about the latest job, where the engine has one.
        self.page: str | None = None

    def run(
        self, request: JobRequest, *, aws_conn_id: str | None, region_name: str | None, folder: RunFolder | None
    ) -> dict[str, Any]:
        """Run a job to its end and return its result.

        :param aws_conn_id: the AWS connection whose identity the job gets; None: what its process has anyway.
        :param folder: where the whole of the job's log is kept; None: it is not kept.
        :raises JobError: the job has no result: it failed, or the task was killed.
        """
        here = getattr(self._engine, "runs_on_this_machine", False)
        with job_environment(aws_conn_id, region_name, on_this_machine=here) as environment:
            self._job = job = self._engine.submit(request, environment)
            self._log.info("Started %s as job %s on %s", request.name, job, type(self._engine).__name__)
            self.page = self._engine.page(job)
            try:
                whole_log = self._follow(job)
                if whole_log is not None and folder is not None:
                    self._keep_log(whole_log, folder, environment)
                result = {} if self.killed else self._engine.result(job)
            except Exception as error:
                if self.killed:
                    raise JobError(_KILLED, retryable=True) from error
                raise
            finally:
                self._engine.cancel(job)
                self._job = None
        if self.killed:
            raise JobError(_KILLED, retryable=True)
        if "error" in result:
            raise JobError(redact_credentials(result["error"]), retryable=bool(result["retryable"]))
        return result

    def kill(self) -> None:
        """End the job that runs, if there is one. :meth:`run` then raises ``JobError``."""
        self.killed = True
        if self._job is not None:
            self._log.info("The task is being killed: ending its job %s", self._job)
            self._engine.cancel(self._job)

    def _follow(self, job: str) -> Path | None:
        """Write the job's log into the task's until the job has ended. Returns the file with the whole log, if any."""
        while not self.killed:
            status = self._engine.status(job)
            for line in status.log:
                self._log.info("%s", redact_credentials(line))
            if status.state == "ended":
                return status.whole_log
            time.sleep(self._engine.poll_seconds)
        return None

    def _keep_log(self, whole_log: Path, folder: RunFolder, environment: Mapping[str, str]) -> None:
        index = "" if folder.map_index == -1 else f".{folder.map_index}"
        self._kept_logs += 1
        again = f".{self._kept_logs}" if self._kept_logs > 1 else ""  # a try may run several jobs
        secrets = [environment[name] for name in _SECRET_VARIABLES if environment.get(name)]
        try:
            path: Any = folder.file("logs", f"{folder.task_name}{index}.{folder.try_number}{again}.log")
            with whole_log.open(errors="replace") as lines, path.open("w") as kept:
                for line in lines:
                    kept.write(_without(secrets, redact_credentials(line)))
        except Exception as error:
            # The result of the job counts more than its log.
            self._log.warning("The whole log of the job could not be kept under %s: %s", folder.root, error)
        else:
            self._log.info("The whole log of the job, with Spark's own, is kept at %s", plain_uri(path))


def _without(secrets: Sequence[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
