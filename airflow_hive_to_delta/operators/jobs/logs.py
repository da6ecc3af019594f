"""The whole logs of a task's jobs, kept with the run under the staging root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.operators.staging import RunFolder, plain_uri

_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN")


class JobLogs:
    """Keeps the logs of the jobs of one try of a task.

    :param folder: the run's folder under the staging root.
    :param log: the logger of the task, which says where a log is kept.
    """

    def __init__(self, folder: RunFolder, log: Any) -> None:
        self._folder = folder
        self._log = log
        self._kept = 0

    def keep(self, whole_log: Path, environment: Mapping[str, str]) -> None:
        """Copy the log of a job, without credentials. One that cannot be kept is a warning in the task's log, no error.

        :param whole_log: the file with the log, on this machine.
        :param environment: the variables of the job's process, whose secrets are left out.
        """
        index = "" if self._folder.map_index == -1 else f".{self._folder.map_index}"
        self._kept += 1
        again = f".{self._kept}" if self._kept > 1 else ""  # a try may run several jobs
        secrets = [environment[name] for name in _SECRET_VARIABLES if environment.get(name)]
        name = f"{self._folder.task_name}{index}.{self._folder.try_number}{again}.log"
        try:
            path: Any = self._folder.file("logs", name)
            with whole_log.open(errors="replace") as lines, path.open("w") as kept:
                for line in lines:
                    kept.write(_without(secrets, redact_credentials(line)))
        except Exception as error:
            # The result of the job counts more than its log.
            self._log.warning("The whole log of the job could not be kept under %s: %s", self._folder.root, error)
        else:
            self._log.info("The whole log of the job, with Spark's own, is kept at %s", plain_uri(path))


def _without(secrets: Sequence[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
