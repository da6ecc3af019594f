"""Jobs that go on without the process that submitted them: found again, ended with the task, never started twice."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta.operators.submitted_job import SubmittedJob, SubmittedJobStore
from tests.support.airflow_runs import dag_source
from tests.support.detached import Detached, make_platform

TASK = """
CatalogDiscoverOperator(
    task_id="discover", allow="a.b.*", engine={engine}({platform!r}), staging="file://{staging}", aws_conn_id=None,
    retry_delay=timedelta(0), {more}
)
"""
IMPORTS = "import os, signal\nfrom tests.support.detached import Detached\n"
NEVER_ENDS = """
class NeverEnds(Detached):
    def when_asked(self):
        pass
"""
KILLS = """
class Kills(Detached):
    '''A person kills the task while its job runs.'''

    def when_asked(self):
        os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Path]:
    folder = make_platform(tmp_path / "platform", {"tables": []})
    yield folder
    left = [json.loads(job.read_text())["pid"] for job in Detached(str(folder)).jobs()]
    running = [pid for pid in left if Path(f"/proc/{pid}").exists()]
    assert running == [], "no test leaves a job behind"


def task(platform: Path, more: str = "retries=1", *, engine: str = "Detached", classes: str = "") -> str:
    staging = platform.parent / "staging"
    body = TASK.format(engine=engine, platform=str(platform), staging=staging, more=more)
    return dag_source(body, imports=IMPORTS + classes)


def submitted(platform: Path) -> list[dict[str, Any]]:
    """What the platform knows of each job that was ever submitted to it."""
    return [json.loads(job.read_text()) for job in Detached(str(platform)).jobs()]


def test_a_few_failed_polls_are_nothing(run_dag, platform) -> None:
    (platform / "fail").write_text("2")
    run = run_dag(task(platform, "retries=0"))
    assert run.state == "success"
    assert "No answer, 2 of at most 2 times in a row: ConnectionError: The platform does not answer" in run.log
    assert run.xcom("discover", "_link_SparkJobLink") == "http://127.0.0.1/job-0"
    assert len(submitted(platform)) == 1


def test_a_later_try_finds_the_running_job_again(run_dag, platform) -> None:
    (platform / "fail").write_text("3")  # one more than are nothing, as of a worker that ends
    run = run_dag(task(platform))
    assert (run.state, run.tries) == ("success", {"discover": 2})
    assert len(submitted(platform)) == 1
    assert "of try 1 again" in run.log
    assert run.xcom("discover") == []
    assert run.xcom("discover", "_link_SparkJobLink") == "http://127.0.0.1/job-0"


def test_a_job_of_the_last_try_is_not_left_running(run_dag, platform) -> None:
    (platform / "fail").write_text("3")
    assert run_dag(task(platform, "retries=0")).state == "failed"
    assert (platform / "job-0.cancelled").exists()


@pytest.mark.parametrize(("lost", "tries"), [(["lose_answer"], 1), (["lose_answer", "lose_find"], 2)])
def test_a_job_whose_submission_got_no_answer_is_found_by_its_token(run_dag, platform, lost, tries) -> None:
    for name in lost:
        (platform / name).touch()
    run = run_dag(task(platform))
    assert (run.state, run.tries) == ("success", {"discover": tries})
    (job,) = submitted(platform)
    assert len(job["token"]) <= 64


def test_a_retry_after_a_failed_job_and_a_cleared_task_start_new_jobs(run_dag, clear_and_run, platform) -> None:
    (platform / "answer").write_text(json.dumps({"error": "Throttled", "retryable": True}))
    run = run_dag(task(platform))
    assert (run.state, run.tries) == ("failed", {"discover": 2})
    (platform / "answer").write_text(json.dumps({"tables": []}))
    again = clear_and_run(run)
    assert again.state == "success"
    assert clear_and_run(run).state == "success"
    tokens = [job["token"] for job in submitted(platform)]
    assert len(set(tokens)) == len(tokens) == 4


def test_a_permanent_error_of_the_job_fails_the_task_without_a_retry(run_dag, platform) -> None:
    (platform / "answer").write_text(json.dumps({"error": "allow matches nothing", "retryable": False}))
    run = run_dag(task(platform, "retries=3"))
    assert (run.state, run.tries) == ("failed", {"discover": 1})
    assert "allow matches nothing" in run.log


def test_a_job_that_was_cancelled_on_its_platform_is_tried_again(run_dag, platform) -> None:
    (platform / "job-0.cancelled").touch()
    run = run_dag(task(platform))
    assert (run.state, run.tries) == ("success", {"discover": 2})
    assert "The job was cancelled where it runs, before it had a result" in run.log
    Detached(str(platform)).cancel(Detached(str(platform))._ref(platform / "job-0"), 1)


def test_a_killed_task_ends_its_job(run_dag, platform) -> None:
    run = run_dag(task(platform, "retries=0", engine="Kills", classes=KILLS))
    assert run.state == "failed"
    assert "The task was killed, and its job was ended with it" in run.log
    assert (platform / "job-0.cancelled").exists()


def test_a_timeout_ends_the_job(run_dag, platform) -> None:
    more = "retries=0, execution_timeout=timedelta(seconds=2)"
    run = run_dag(task(platform, more, engine="NeverEnds", classes=NEVER_ENDS))
    assert run.state == "failed"
    assert (platform / "job-0.cancelled").exists()
    assert [job["timeout"] for job in submitted(platform)] == [2], "the platform knows when to end it, too"


def test_what_is_kept_of_a_job_is_a_file_where_airflow_keeps_no_state(airflow_home, tmp_path) -> None:
    class Folder:
        from airflow.sdk import ObjectStoragePath

        jobs = ObjectStoragePath(f"file://{tmp_path}/jobs")

    folder: Any = Folder()
    store = SubmittedJobStore({}, folder)
    assert store.read() is None
    job = SubmittedJob(0, 1, "0001-01-x", "x", {"id": "1", "results_uri": "file:///r", "page": None})
    store.write(job)
    assert SubmittedJobStore({}, folder).read() == job
    store.clear()
    assert store.read() is None
    assert os.listdir(tmp_path / "jobs") == []
