"""Waiting for a Spark job without a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.engines import Engine, JobRef

#: After so many seconds without a line of the job's log the trigger says how far the job is.
_SILENT_SECONDS = 30.0
#: The triggerer waits a few seconds for a trigger whose task a person ends.
_CANCEL_SECONDS = 4.0


class SparkJobTrigger(BaseTrigger):
    """Waits for the end of a job that was submitted by a task which is deferred.

    It fires when the job has ended, and when the engine gives no answer any more. It does not read what the job did:
    the task does, when it goes on.

    :param engine: the class of the engine and its arguments, as :meth:`Engine.serialize` returns them.
    :param ref: the :class:`JobRef`, as a dict.
    :param name: what the job is called, for the log.
    :param cursor: where the log of the job goes on.
    """

    def __init__(self, engine: list[Any], ref: dict[str, Any], name: str, cursor: str | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.engine = engine
        self.ref = ref
        self.name = name
        self.cursor = cursor

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {"engine": self.engine, "ref": self.ref, "name": self.name, "cursor": self.cursor}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        engine, ref = self._make_engine(), JobRef.from_dict(self.ref)
        cursor, failures, misses = self.cursor, 0, 0
        began = spoke = time.monotonic()
        while True:
            try:
                status = await engine.astatus(ref, cursor)
            except Exception as error:
                failures += 1
                text = redact_credentials(f"{type(error).__name__}: {error}")
                self.log.warning("No answer, %d of at most %d times in a row: %s", failures, engine.poll_errors, text)
                if failures > engine.poll_errors:
                    break  # the task asks again, and fails if there is still no answer
            else:
                failures, cursor = 0, status.cursor
                for line in status.log:
                    self.log.info("%s", redact_credentials(line))
                misses = misses + 1 if status.state == "not_found" else 0
                if status.has_ended and not 0 < misses <= engine.poll_errors:  # a platform may be late to know it
                    break
                now = time.monotonic()
                if status.log:
                    spoke = now
                elif now - spoke >= _SILENT_SECONDS:
                    spoke = now
                    self.log.info("%s is %s, for %.0f s by now", self.name, status.state, now - began)
            await asyncio.sleep(engine.poll_seconds)
        yield TriggerEvent({"cursor": cursor})  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """End the job of a task that a person has marked or cleared while it was deferred (Airflow 3.3 and later)."""
        self.log.info("The task is being ended: ending its job %s", self.ref["id"])
        await asyncio.to_thread(self._make_engine().cancel, JobRef.from_dict(self.ref), _CANCEL_SECONDS)

    def _make_engine(self) -> Engine:
        path, arguments = self.engine
        module, _, name = path.rpartition(".")
        engine: Engine = getattr(import_module(module), name)(**arguments)
        return engine
