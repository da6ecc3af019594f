"""The lines that say how far a job is, in the log of the task that waits for it and of its trigger, by a fake clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_hive_to_delta.engines import Engine, JobRef, JobRequest, JobSpec, JobStatus, watch
from airflow_hive_to_delta.operators.jobs import runner as job_runner
from airflow_hive_to_delta.operators.jobs.folder import JobFolder
from airflow_hive_to_delta.operators.jobs.runner import JobRunner
from airflow_hive_to_delta.triggers import spark_job
from airflow_hive_to_delta.triggers.spark_job import SparkJobTrigger

COUNTS = "12,000 files listed, 9,000 footers read"


class Clock:
    """Stands still, but for what is slept."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)


class Chatty(Engine):
    """Its jobs write a line of log by every poll, and end after 100 seconds."""

    def __init__(self, clock: Clock, poll_seconds: float) -> None:
        self.clock = clock
        self.poll_seconds = poll_seconds

    def submit(self, spec: JobSpec, environment: Mapping[str, str]) -> JobRef:
        raise NotImplementedError

    def find(self, token: str) -> JobRef | None:
        return None

    def cancel(self, ref: JobRef, within: float) -> None:
        raise NotImplementedError

    def status(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        return JobStatus("succeeded" if self.clock.now >= 100 else "running", log=["a stage has ended"])

    async def astatus(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        return self.status(ref, cursor)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (watch, job_runner, spark_job):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def job(tmp_path: Path) -> JobRef:
    (tmp_path / "_progress.json").write_text('{"files_listed": 12000, "footers_read": 9000}')
    return JobRef("job-0", f"file://{tmp_path}")


@pytest.mark.parametrize("poll_seconds", [0.5, 10, 35, 100])
def test_a_task_says_every_30_seconds_how_far_its_job_is(clock, job, caplog, poll_seconds) -> None:
    from airflow.sdk import ObjectStoragePath

    caplog.set_level(logging.INFO)
    engine, context = Chatty(clock, poll_seconds), SimpleNamespace()
    runner = JobRunner(engine, logging.getLogger("task"), context, folder=None, timeout=None)  # type: ignore[arg-type]
    ended = runner._follow(job, JobRequest("discover", {}), JobFolder(ObjectStoragePath(job.results_uri)), None)
    assert ended is not None
    assert ended.state == "succeeded"
    said = [record.getMessage() for record in caplog.records if COUNTS in record.getMessage()]
    assert [line.partition(", for ")[2].partition(" s ")[0] for line in said] == ["30", "60", "90"]
    assert caplog.messages.count("a stage has ended") > 1, "the job's own lines did not put them off"


def test_a_task_ends_in_time_though_the_signal_of_its_timeout_was_lost(clock, job) -> None:
    from airflow.sdk import ObjectStoragePath

    engine, context = Chatty(clock, 35), SimpleNamespace()
    runner = JobRunner(engine, logging.getLogger("task"), context, folder=None, timeout=40)  # type: ignore[arg-type]
    with pytest.raises(AirflowTaskTimeout, match="execution_timeout of 40 s"):
        runner._follow(job, JobRequest("discover", {}), JobFolder(ObjectStoragePath(job.results_uri)), None)
    assert 45 < clock.now < 46


@pytest.mark.parametrize("poll_seconds", [0.5, 10, 35, 100])
def test_a_trigger_says_every_30_seconds_how_far_its_job_is(clock, job, monkeypatch, capfd, poll_seconds) -> None:
    trigger: Any = SparkJobTrigger([], job.to_dict(), "Discover tables")
    monkeypatch.setattr(trigger, "_make_engine", lambda: Chatty(clock, poll_seconds))
    monkeypatch.setattr(asyncio, "sleep", clock.sleep_async)

    async def fire() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    assert asyncio.run(fire()) == [{"cursor": None}]
    said = capfd.readouterr().out
    for seconds in (30, 60, 90):
        assert said.count(f"Discover tables is running, for {seconds} s by now; {COUNTS}") == 1
    assert said.count(COUNTS) == 3
    assert said.count("a stage has ended") > 1, "the job's own lines did not put them off"
