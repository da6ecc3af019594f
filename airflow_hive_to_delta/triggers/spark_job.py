"""Waiting for a Spark job without a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_hive_to_delta.engines import Engine, JobRef, JobStatus
from airflow_hive_to_delta.engines.watch import CANCEL_SECONDS, JobWatch, warn_of_failure
from airflow_hive_to_delta.triggers.job_progress import JobProgress

#: The least that a trigger sleeps at a time between two polls.
_SHORTEST_NAP_SECONDS = 0.5


class SparkJobTrigger(BaseTrigger):
    """Waits for the end of a job that was submitted by a task which is deferred.

    It fires when the job has ended, and when the engine gives no answer any more. It does not read what the job did:
    the task does, when it goes on.

    :param engine: the class of the engine and its arguments, as :meth:`Engine.serialize` returns them.
    :param ref: the :class:`JobRef`, as a dict.
    :param name: what the job is called, for the log.
    :param cursor: where the log of the job goes on.
    :param results_conn_id: the Airflow connection by which the folder of the job's results is read, for lines of log
        that say how far it is.
    :param table_count: the tables whose results the job leaves there, one by one.
    """

    def __init__(
        self,
        engine: list[Any],
        ref: dict[str, Any],
        name: str,
        cursor: str | None = None,
        results_conn_id: str | None = None,
        table_count: int = 0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.engine = engine
        self.ref = ref
        self.name = name
        self.cursor = cursor
        self.results_conn_id = results_conn_id
        self.table_count = table_count

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("engine", "ref", "name", "cursor", "results_conn_id", "table_count")
        arguments = {name: getattr(self, name) for name in names}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        engine, ref = self._make_engine(), JobRef.from_dict(self.ref)
        progress = JobProgress(self.name, ref.results_uri, self.results_conn_id, self.table_count)
        watch = JobWatch(engine, self.log, progress.describe, self.cursor)
        failures = 0
        status: JobStatus | None = None
        while True:
            try:
                status = await engine.astatus(ref, watch.cursor)
            except Exception as error:
                failures += 1
                warn_of_failure(self.log, engine, failures, error)
                if failures > engine.poll_errors:
                    break  # the task asks again, and fails if there is still no answer
            else:
                failures = 0
                if watch.record(status):
                    break
            await _sleep(engine.poll_seconds, watch, status)
        yield TriggerEvent({"cursor": watch.cursor})  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """End the job of a task that a person has marked or cleared while it was deferred (Airflow 3.3 and later)."""
        self.log.info("The task is being ended: ending its job %s", self.ref["id"])
        await asyncio.to_thread(self._make_engine().cancel, JobRef.from_dict(self.ref), CANCEL_SECONDS)

    def _make_engine(self) -> Engine:
        path, arguments = self.engine
        module, _, name = path.rpartition(".")
        engine: Engine = getattr(import_module(module), name)(**arguments)
        return engine


async def _sleep(seconds: float, watch: JobWatch, status: JobStatus | None) -> None:
    """Wait until the next poll, and write how far the job is whenever that is due until then.

    :param status: the job's latest; None: it is not known yet.
    """
    until = time.monotonic() + seconds
    while True:
        if status is not None:
            await asyncio.to_thread(watch.log_progress, status)  # it reads the storage
        left = until - time.monotonic()
        nap = min(left, max(watch.seconds_until_progress(), _SHORTEST_NAP_SECONDS))
        await asyncio.sleep(max(nap, 0))
        if time.monotonic() >= until:
            return
