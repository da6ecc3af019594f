"""Tasks that wait for their jobs in the triggerer, without a worker."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_hive_to_delta import CatalogDiscoverOperator, LocalSpark
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.engines import JobRef
from airflow_hive_to_delta.job.manifests import FileList
from airflow_hive_to_delta.triggers.spark_job import SparkJobTrigger
from tests.support.airflow_runs import SharedSession, dag_source
from tests.support.detached import Detached, make_platform

IMPORTS = "from tests.support.detached import EndsForTriggers, NoAnswerForTriggers\n"
TIMES_OUT = """
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason

class TimesOut(CatalogDiscoverOperator):
    def execute_after_deferral(self, context, event):
        error = {"error": TriggerFailureReason.TRIGGER_TIMEOUT}
        return self.resume_execution(TRIGGER_FAIL_REPR, error, context)  # as Airflow does
"""


@pytest.fixture
def platform(tmp_path: Path) -> Path:
    return make_platform(tmp_path / "platform", {"tables": []})


def discover(platform: Path, more: str, *, engine: str = "EndsForTriggers", times_out: bool = False) -> str:
    operator = "TimesOut" if times_out else "CatalogDiscoverOperator"
    body = f"""
{operator}(
    task_id="discover", allow="a.b.*", engine={engine}({str(platform)!r}), aws_conn_id=None,
    staging="file://{platform.parent}/staging", retry_delay=timedelta(0), {more}
)
"""
    return dag_source(body, imports=IMPORTS + (TIMES_OUT if times_out else ""))


def test_a_deferred_task_takes_up_its_job_when_that_has_ended(run_dag, platform) -> None:
    run = run_dag(discover(platform, "deferrable=True"))
    assert (run.state, run.tries) == ("success", {"discover": 1})
    assert run.xcom("discover") == []
    assert len(Detached(str(platform)).jobs()) == 1
    assert run.xcom("discover", "_link_SparkJobLink") == "http://127.0.0.1/job-0"


def test_airflows_own_default_counts(run_dag, platform, monkeypatch) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "true")
    assert run_dag(discover(platform, "retries=0")).state == "success", "without a trigger the job would not end"


def test_an_error_of_the_job_is_the_tasks_and_a_retry_begins_a_new_job(run_dag, platform) -> None:
    (platform / "answer-job-0").write_text(json.dumps({"error": "Throttled", "retryable": True}))
    run = run_dag(discover(platform, "deferrable=True, retries=1"))
    assert (run.state, run.tries) == ("success", {"discover": 2})
    assert "Throttled" in run.log
    assert len(Detached(str(platform)).jobs()) == 2


def test_a_try_of_several_jobs_is_deferred_for_each_and_runs_none_twice(run_dag, platform) -> None:
    """A job for all tables that leaves nothing, then one for each table."""
    tables = [TableInfo(name, f"file://{platform.parent}/{name}") for name in ("a", "b")]
    lists = [FileList(table.qualified_name, 0, 0, files=[]).to_dict() for table in tables]
    (platform / "answer-job-0").write_text("")
    for number, found in enumerate(lists, 1):
        (platform / f"answer-job-{number}").write_text(json.dumps({"lists": [found]}))
    body = f"""
ListFilesOperator(
    task_id="list", table={[table.to_dict() for table in tables]!r}, listing="spark", deferrable=True, aws_conn_id=None,
    engine=EndsForTriggers({str(platform)!r}), staging="file://{platform.parent}/staging"
)
"""
    run = run_dag(dag_source(body, imports=IMPORTS))
    assert run.state == "success"
    assert [found["table"] for found in run.xcom("list")] == ["a", "b"]
    assert len(Detached(str(platform)).jobs()) == 3
    assert "Each table is listed by a job of its own" in run.log


def test_a_deferral_that_times_out_ends_the_job(run_dag, platform) -> None:
    more = "deferrable=True, retries=1, execution_timeout=timedelta(hours=1)"
    run = run_dag(discover(platform, more, engine="NoAnswerForTriggers", times_out=True))
    assert (run.state, run.tries) == ("failed", {"discover": 2})
    assert all(Path(f"{job}.cancelled").exists() for job in Detached(str(platform)).jobs())
    assert len(Detached(str(platform)).jobs()) == 2


def test_the_timeout_of_a_deferral_is_what_the_try_has_left(platform) -> None:
    """A try that is deferred for several jobs, one after the other, has one timeout."""
    operator = CatalogDiscoverOperator(
        task_id="discover",
        allow="a.b.*",
        engine=Detached(str(platform)),
        staging="file:///staging",
        deferrable=True,
        execution_timeout=timedelta(hours=1),
    )

    def timeout_after(elapsed: timedelta) -> timedelta:
        context: Any = {"ti": SimpleNamespace(start_date=datetime.now(UTC) - elapsed)}
        with pytest.raises(TaskDeferred) as deferred:
            operator._defer(context, SparkJobTrigger([], {}, "Discover tables"))
        return deferred.value.timeout

    assert timedelta(minutes=19) < timeout_after(timedelta(minutes=40)) <= timedelta(minutes=20)
    assert timeout_after(timedelta(hours=2)) == timedelta(0)


def test_what_cannot_be_deferred_is_refused_when_the_dag_is_parsed(platform) -> None:
    class Plain(SharedSession):
        survives_worker = True

        def serialize(self) -> tuple[str, dict[str, Any]]:
            raise TypeError("cannot be made again")

    with pytest.raises(ValueError, match="jobs of LocalSpark end with the worker"):
        CatalogDiscoverOperator(task_id="a", allow="a.b.*", engine=LocalSpark(), staging="s3://b/s", deferrable=True)
    with pytest.raises(ValueError, match="staging is not given"):
        CatalogDiscoverOperator(task_id="b", allow="a.b.*", engine=Detached(str(platform)), deferrable=True)
    with pytest.raises(TypeError, match="cannot be made again"):
        CatalogDiscoverOperator(task_id="c", allow="a.b.*", engine=Plain(), staging="s3://b/s", deferrable=True)


def test_a_ref_comes_back_from_json() -> None:
    ref = JobRef("1", "s3://b/r", "https://page")
    assert JobRef.from_dict(json.loads(json.dumps(ref.to_dict()))) == ref
