"""The trigger that waits for a job in the triggerer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from airflow_hive_to_delta.engines import JobRequest, watch
from airflow_hive_to_delta.triggers.spark_job import SparkJobTrigger
from tests.support.detached import EndsForTriggers, make_platform
from tests.support.jobs import submit


@pytest.fixture
def platform(tmp_path: Path) -> Path:
    return make_platform(tmp_path / "platform", {"tables": []})


@pytest.fixture
def trigger(platform: Path) -> SparkJobTrigger:
    engine = EndsForTriggers(str(platform))
    ref = submit(engine, JobRequest("discover", {}), platform.parent / "job")
    made = SparkJobTrigger(list(engine.serialize()), ref.to_dict(), "Discover tables", table_count=3)
    path, arguments = made.serialize()
    assert path == "airflow_hive_to_delta.triggers.spark_job.SparkJobTrigger"
    return SparkJobTrigger(**json.loads(json.dumps(arguments)))


def fire(trigger: SparkJobTrigger) -> object:
    async def first() -> object:
        async for event in trigger.run():
            return event.payload
        return None

    return asyncio.run(first())


def test_a_trigger_bears_a_few_failed_polls_and_tells_of_the_job(trigger, platform, monkeypatch, capfd) -> None:
    monkeypatch.setattr(watch, "PROGRESS_SECONDS", 0)
    (platform / "fail").write_text("2")
    (platform / "hold").write_text("3")  # the two that fail, and one more
    (platform.parent / "job" / "_progress.json").write_text('{"files_listed": 12000, "footers_read": 9000}')
    (platform.parent / "job" / "a.json").write_text("{}")
    assert fire(trigger) == {"cursor": None}
    said = capfd.readouterr().out
    assert "No answer, 2 of at most 2 times in a row" in said
    counted = "12,000 files listed, 9,000 footers read; 1 of 3 tables have ended"
    assert f"Discover tables is running, for 0 s by now; {counted}" in said
    assert (platform.parent / "job" / "_done.json").exists(), "it fired when the job had ended"


def test_a_trigger_that_gets_no_answer_leaves_it_to_the_task(trigger, platform) -> None:
    (platform / "fail").write_text("4")
    assert fire(trigger) == {"cursor": None}
    assert (platform / "fail").read_text() == "1", "asked three times, two of which are nothing"
    asyncio.run(trigger.on_kill())


def test_a_trigger_whose_task_a_person_ends_ends_the_job(trigger, platform) -> None:
    asyncio.run(trigger.on_kill())
    assert (platform / "job-0.cancelled").exists()
