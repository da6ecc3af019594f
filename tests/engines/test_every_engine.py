"""One suite over every engine, through the tasks that use them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from airflow_hive_to_delta.core.lifecycle import convert
from airflow_hive_to_delta.core.storage.uri import parse_location
from airflow_hive_to_delta.engines import watch
from airflow_hive_to_delta.job.documents import read_document
from airflow_hive_to_delta.job.request import JobRequest
from airflow_hive_to_delta.job.run import run as run_job
from tests.support.airflow_runs import dag_source
from tests.support.crashes import Killed
from tests.support.migrations import group
from tests.support.oracle import delta_at
from tests.support.platforms import Platform

#: The stand-ins, as module and class, of platforms whose jobs go on without the worker.
REMOTE: dict[str, str] = {
    "spark_submit_standalone": "tests.support.spark_platforms.StandalonePlatform",
    "spark_submit_yarn": "tests.support.spark_platforms.YarnPlatform",
    "spark_submit_kubernetes": "tests.support.platform_kubernetes.KubernetesPlatform",
    "glue": "tests.support.platform_glue.GluePlatform",
    "emr-serverless": "tests.support.platform_emr.EmrServerlessPlatform",
    "databricks": "tests.support.platform_databricks.DatabricksPlatform",
}
#: Those of engines whose jobs are processes on the worker, and end with it.
ON_WORKER: dict[str, str] = {
    "local_spark": "tests.support.process_platforms.LocalSparkPlatform",
    "spark_connect": "tests.support.process_platforms.SparkConnectPlatform",
    "spark_submit_client": "tests.support.process_platforms.SparkSubmitClientPlatform",
}
#: A standalone master asks nobody who he is. Of Kerberos on YARN the tests of that engine tell.
KNOWS_IDENTITIES = sorted(REMOTE.keys() - {"spark_submit_standalone", "spark_submit_yarn"})
on_remote = pytest.mark.parametrize("platform", sorted(REMOTE), indirect=True)


@pytest.fixture(params=sorted(REMOTE | ON_WORKER))
def platform(request: pytest.FixtureRequest, tmp_path: Path, bucket: str) -> Iterator[Platform]:
    module, _, name = {**REMOTE, **ON_WORKER}[request.param].rpartition(".")
    (folder := tmp_path / "platform").mkdir()
    made: Platform = getattr(import_module(module), name)(folder, staging=f"s3://{bucket}/staging")
    yield made
    left = made.end_states()
    made.close()
    assert "running" not in left, "no test leaves a job behind"


def discover(platform: Platform, more: str = "retries=1", *, imports: str = "") -> str:
    """A DAG with one task, whose job runs on the platform."""
    body = f"""
CatalogDiscoverOperator(
    task_id="discover", allow="a.b.*", engine={platform.engine}, staging={platform.staging!r}, aws_conn_id=None,
    retry_delay=timedelta(0), {more}
)
"""
    return dag_source(body, imports=platform.imports + imports)


def test_success(run_dag, platform) -> None:
    run = run_dag(discover(platform))
    assert (run.state, run.tries) == ("success", {"discover": 1})
    (job,) = platform.jobs
    assert len(job.token) <= 64
    assert job.arguments[0].startswith(platform.staging)
    assert run.xcom("discover") == []
    assert (run.xcom("discover", "_link_SparkJobLink") or "").startswith("http") is platform.has_pages


def test_a_permanent_failure_is_not_tried_again(run_dag, platform) -> None:
    platform.answer({"error": "'day'", "error_kind": "KeyError", "retryable": False})
    run = run_dag(discover(platform, "retries=3"))
    assert (run.state, run.tries) == ("failed", {"discover": 1})
    assert "KeyError: 'day'" in run.log


def test_a_retry_after_a_transient_failure_and_a_cleared_task_start_new_jobs(run_dag, clear_and_run, platform) -> None:
    platform.answer({"error": "Throttled", "retryable": True}, 0)
    run = run_dag(discover(platform))
    assert (run.state, run.tries) == ("success", {"discover": 2})
    assert "Throttled" in run.log
    assert clear_and_run(run).state == "success"
    tokens = [job.token for job in platform.jobs]
    assert len(set(tokens)) == len(tokens) == 3


@on_remote
def test_a_few_failed_polls_are_nothing(run_dag, platform) -> None:
    platform.failures = [429, 503, None]
    run = run_dag(discover(platform, "retries=0"))
    assert run.state == "success"
    assert len(platform.jobs) == 1


@on_remote
def test_a_later_try_finds_the_running_job_again(run_dag, platform) -> None:
    """The platform does not answer until the first try fails, so that the second one has to find the job."""
    platform.failures = [503] * 100
    imports = "from tests.support.platforms import Platform\n"
    more = "pre_execute=lambda context: context['ti'].try_number == 2 and Platform.current.failures.clear()"
    run = run_dag(discover(platform, f"retries=1, {more}", imports=imports))
    assert (run.state, run.tries) == ("success", {"discover": 2})
    assert len(platform.jobs) == 1
    assert "of try 1 again" in run.log


@pytest.mark.parametrize("platform", KNOWS_IDENTITIES, indirect=True)
def test_an_identity_that_expires_while_a_job_runs_is_named_and_costs_no_second_job(run_dag, platform) -> None:
    """It is renewed before the third try. The second has found the job, and does not take it for one that failed."""
    kept = platform.ask

    def expires(job):
        platform.expired, platform.ask = True, kept
        return "running"

    platform.ask = expires
    imports = "from tests.support.platforms import Platform\n"
    renewed = "context['ti'].try_number == 3 and setattr(Platform.current, 'expired', False)"
    run = run_dag(discover(platform, f"retries=2, pre_execute=lambda context: {renewed}", imports=imports))
    assert (run.state, run.tries) == ("success", {"discover": 3})
    assert len(platform.jobs) == 1
    assert platform.end_states() == ["succeeded"]
    assert re.search("expired. The next try takes them anew|expired: renew it", run.log)
    assert "goes on, and the next try finds it again" in run.log


@on_remote
@pytest.mark.parametrize("failure", [None, 500])
def test_a_lost_answer_to_submit_starts_no_second_job(run_dag, platform, failure, monkeypatch, capfd) -> None:
    if failure is None and not platform.finds_jobs:
        pytest.skip("the platform does not say which job has a token: the tests of its engine tell what happens then")
    monkeypatch.setattr(watch, "PROGRESS_SECONDS", 0)
    platform.submit_failures = [failure]
    platform.held = 4  # more than are asked before the trigger asks for the second time
    run = run_dag(discover(platform, "deferrable=True, retries=1"))
    assert run.state == "success"
    assert len(platform.jobs) == 1
    said = run.log + capfd.readouterr().out
    assert "Discover tables is running, for " in said
    assert "could not be read" not in said, "the trigger knows where the job leaves its results"


def test_a_lost_result_is_reported_and_tried_again(run_dag, platform) -> None:
    platform.answer(None, 0)
    run = run_dag(discover(platform))
    assert (run.state, run.tries) == ("success", {"discover": 2})
    assert "there is no result at" in run.log


@on_remote
def test_a_job_that_was_cancelled_on_its_platform_is_tried_again(run_dag, platform) -> None:
    platform.held = None
    kept = platform.ask

    def cancels_the_first(job):
        if job is platform.jobs[0]:
            platform.cancel_from_outside(0)
        platform.held = 0
        return kept(job)

    platform.ask = cancels_the_first
    run = run_dag(discover(platform))
    assert (run.state, run.tries) == ("success", {"discover": 2})
    assert "cancelled" in run.log.lower()


def test_a_killed_task_ends_its_job(run_dag, platform) -> None:
    platform.held = None
    ask = platform.ask

    def kills_the_task(job):
        platform.ask = ask
        os.kill(os.getpid(), signal.SIGTERM)
        return ask(job)

    platform.ask = kills_the_task
    run = run_dag(discover(platform, "retries=0"))
    assert run.state == "failed"
    assert "The task was killed, and its job was ended with it" in run.log
    assert platform.end_states() == ["cancelled"]


def test_a_timeout_ends_the_job(run_dag, platform) -> None:
    platform.held = None
    # A hundred questions each second would take a core, and Python drops the error of the timeout when it falls into
    # the closing of a connection that nobody has any more.
    platform.engine = re.sub(r"poll_seconds=[\d.]+", "poll_seconds=0.5", platform.engine)
    run = run_dag(discover(platform, "retries=0, execution_timeout=timedelta(seconds=3)"))
    assert run.state == "failed"
    assert platform.end_states() == ["cancelled"]


@on_remote
def test_a_deferred_task_takes_up_its_job_when_that_has_ended(run_dag, platform) -> None:
    platform.held = 2  # more than the task asks before it is deferred
    run = run_dag(discover(platform, "deferrable=True"))
    assert (run.state, run.tries) == ("success", {"discover": 1})
    assert len(platform.jobs) == 1
    assert "without a worker" in run.log


def test_a_table_that_kills_its_job_takes_no_other_of_its_batch_with_it(
    lake, run_dag, spark, platform, monkeypatch
) -> None:
    for name in ("a", "poison", "z"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    convert_files = convert._convert_files

    def kills(context, *arguments):
        if context.table.name == "poison":
            raise Killed
        return convert_files(context, *arguments)

    def play(job):
        request = JobRequest.from_dict(read_document(parse_location(job.arguments[0]), None))
        run_job(request, spark, results=parse_location(job.results_uri))

    monkeypatch.setattr(convert, "_convert_files", kills)
    platform.play = play
    more = {"engine": platform.engine, "imports": platform.imports, "per_table": "batch_size=3, max_workers=1"}
    run = run_dag(group(lake, "verify=None", **more))
    assert run.state == "failed"
    outcomes = {t["table"].rpartition(".")[2]: t for t in run.xcom("report", "report")["tables"]}
    assert {name: t["status"] for name, t in outcomes.items()} == {
        "a": "converted",
        "poison": "failed",
        "z": "converted",
    }
    assert platform.lost_driver in outcomes["poison"]["error"]
    assert delta_at(spark, lake.location("z")).collect() == [(1,)]
    assert len(platform.jobs) == 2, "the batch, and then the suspect by itself"
