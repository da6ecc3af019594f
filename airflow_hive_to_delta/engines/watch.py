"""Watching a job until it has ended: for a task that polls, and for a trigger."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.engines.engine import Engine, JobStatus

#: The longest that cancelling a job may take: Airflow kills a task 5 s after it has asked it to end.
CANCEL_SECONDS = 4.0
#: The seconds between two lines that say how far a job is, whatever the job writes itself.
PROGRESS_SECONDS = 30.0


class JobWatch:
    """Writes the log of one job into another log, and decides when the job has ended.

    :param engine: where the job runs.
    :param log: the logger to write to.
    :param describe: the line that says how far the job is, made of its status and the seconds since the watch began.
    :param cursor: where the job's log goes on.
    """

    def __init__(
        self, engine: Engine, log: Any, describe: Callable[[JobStatus, float], str], cursor: str | None = None
    ) -> None:
        self._engine = engine
        self._log = log
        self._describe = describe
        self.cursor = cursor
        self._began = self._last_progress = time.monotonic()
        self._misses = 0

    def record(self, status: JobStatus) -> bool:
        """Write the new lines of the job's log, and return whether the job has ended.

        A job that the platform does not know has not: the platform may be late to know it, for some polls.
        """
        self.cursor = status.cursor
        for line in status.log:
            self._log.info("%s", redact_credentials(line))
        self._misses = self._misses + 1 if status.state == "not_found" else 0
        return status.has_ended and not 0 < self._misses <= self._engine.poll_errors

    def log_progress(self, status: JobStatus) -> None:
        """Write a line that says how far the job is, if the last one was PROGRESS_SECONDS ago.

        Call it at each poll, and between two polls that are further apart than that. Lines of the job's own log do not
        put it off: they need not say how far it is.

        :param status: the job's latest.
        """
        if self.seconds_until_progress() <= 0:
            self._last_progress = now = time.monotonic()
            self._log.info("%s", self._describe(status, now - self._began))

    def seconds_until_progress(self) -> float:
        """The seconds until :meth:`log_progress` writes its next line; 0 or less when it is due."""
        return self._last_progress + PROGRESS_SECONDS - time.monotonic()


def warn_of_failure(log: Any, engine: Engine, failures: int, error: Exception) -> None:
    """Say in a log that there was no answer, so many times in a row."""
    text = describe_failure(error)
    log.warning("No answer, %d of at most %d times in a row: %s", failures, engine.poll_errors, text)


def describe_failure(error: Exception) -> str:
    """An exception in one line, without credentials."""
    return redact_credentials(f"{type(error).__name__}: {error}")
