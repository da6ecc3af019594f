"""Jobs on AWS Glue: the job definition, what is passed with a run, and what the answers mean."""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
import threading
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_hive_to_delta.engines import GlueJob, JobError
from airflow_hive_to_delta.engines.package import main_script
from airflow_hive_to_delta.job.documents import DONE
from tests.support.aws import REGION, ROLE
from tests.support.aws_apis import SPEC, ApiError, open_platform
from tests.support.platform_glue import NAME, GluePlatform


@pytest.fixture
def platform(aws_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GluePlatform]:
    with open_platform(GluePlatform, tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def engine(platform: GluePlatform) -> GlueJob:
    return GlueJob(NAME, ROLE, aws_conn_id=None)


def test_what_is_submitted(platform, engine) -> None:
    environment = {
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL_S3": "https://s3.example/?a=b",
        "AWS_SECRET_ACCESS_KEY": "hush",
        "AWS_SESSION_TOKEN": "hush",
        "AWS_PROFILE": "",
    }
    own = replace(
        engine,
        worker_type="G.2X",
        number_of_workers=7,
        execution_class="FLEX",
        connections=["vpc"],
        security_configuration="encrypted",
        python_modules="pyarrow==18.1.0",
        conf={"spark.sql.shuffle.partitions": 64},
    )
    ref = own.submit(SPEC, environment)
    assert platform.definitions == {
        NAME: {
            "Description": "airflow-hive-to-delta: runs its Spark jobs. Changed by the DAGs that use it.",
            "Role": ROLE,
            "GlueVersion": "5.0",
            "Command": {"Name": "glueetl", "PythonVersion": "3", "ScriptLocation": SPEC.main_uri},
            "ExecutionProperty": {"MaxConcurrentRuns": 200},
            "MaxRetries": 0,
            "WorkerType": "G.2X",
            "NumberOfWorkers": 7,
            "Connections": {"Connections": ["vpc"]},
        }
    }
    assert platform.runs[ref.id].asked == {
        "JobName": NAME,
        "Timeout": 2,
        "WorkerType": "G.2X",
        "NumberOfWorkers": 7,
        "ExecutionClass": "FLEX",
        "SecurityConfiguration": "encrypted",
        "Arguments": {
            "--scriptLocation": SPEC.main_uri,
            "--extra-py-files": SPEC.package_uri,
            "--datalake-formats": "delta",
            "--conf": (
                "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
                "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog "
                f"--conf spark.executorEnv.AWS_DEFAULT_REGION={REGION} "
                "--conf spark.executorEnv.AWS_ENDPOINT_URL_S3=https://s3.example/?a=b "
                "--conf spark.sql.shuffle.partitions=64"
            ),
            "--request": SPEC.request_uri,
            "--results": SPEC.results_uri,
            "--token": SPEC.token,
            "--variables": f"AWS_DEFAULT_REGION={REGION},AWS_ENDPOINT_URL_S3=https://s3.example/?a=b",
            "--additional-python-modules": "pyarrow==18.1.0",
        },
    }
    console = f"https://{REGION}.console.aws.amazon.com/gluestudio/home?region={REGION}"
    assert ref.page == f"{console}#/job/{NAME}/run/{ref.id}"


def test_the_job_takes_its_arguments_from_among_those_of_glue(tmp_path, monkeypatch) -> None:
    (tmp_path / "_request.json").write_text('{"action": "fly", "name": "x", "arguments": {}}')
    for name in ("AWS_ENDPOINT_URL_X", "AWS_REGION"):
        monkeypatch.setenv(name, "before")
    pairs = {"--JOB_ID": "j_1", "--request": f"{tmp_path}/_request.json", "--JOB_NAME": "n", "--results": str(tmp_path)}
    arguments = [text for pair in pairs.items() for text in pair]
    arguments += ["--variables", "AWS_ENDPOINT_URL_X=http://a?b=c,AWS_REGION=eu-west-1", "--TempDir", "s3://x"]
    (script := tmp_path / "script.py").write_bytes(main_script(GlueJob.main_script).content)
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    with pytest.raises(SystemExit):
        runpy.run_path(str(script), run_name="__main__")
    assert os.environ["AWS_ENDPOINT_URL_X"] == "http://a?b=c"
    assert not (tmp_path / DONE).exists()


def test_a_job_without_a_timeout_has_the_longest_that_glue_allows(platform, engine) -> None:
    for token, timeout, minutes in (("a", None, 10080), ("b", 10**9, 10080), ("c", 5, 1)):
        ref = engine.submit(replace(SPEC, token=token, timeout=timeout), {})
        assert platform.runs[ref.id].asked["Timeout"] == minutes


def test_the_definition_is_changed_with_the_engine_and_not_otherwise(platform, engine) -> None:
    engine.submit(SPEC, {})
    again = replace(engine, number_of_workers=9, conf={"spark.a": "b"})
    ref = again.submit(replace(SPEC, token="b", main_uri="s3a://elsewhere/run_job.py"), {})
    assert platform.runs[ref.id].asked["Arguments"]["--scriptLocation"] == "s3://elsewhere/run_job.py"
    replace(engine, role="hive-to-delta").submit(replace(SPEC, token="c"), {})
    assert "UpdateJob" not in platform.called, "all this is said with the run, or is the same role"
    replace(engine, max_concurrent_runs=5, glue_version="5.1").submit(replace(SPEC, token="d"), {})
    definition = platform.definitions[NAME]
    assert (definition["ExecutionProperty"], definition["GlueVersion"]) == ({"MaxConcurrentRuns": 5}, "5.1")
    assert definition["Command"]["ScriptLocation"] == SPEC.main_uri
    assert platform.called.count("CreateJob") == platform.called.count("UpdateJob") == 1


def test_a_job_of_somebody_else_is_left_alone(platform, engine) -> None:
    theirs = {"Role": "other", "Command": {"Name": "glueetl"}, "Description": "Nightly load"}
    platform.definitions[NAME] = dict(theirs)
    with pytest.raises(JobError, match="its description is 'Nightly load', expected one that begins with") as raised:
        engine.submit(SPEC, {})
    assert not raised.value.retryable
    assert platform.definitions[NAME] == theirs
    assert platform.jobs == []
    platform.definitions[NAME]["Description"] = "airflow-hive-to-delta, by Terraform"
    assert engine.submit(SPEC, {}).id in platform.runs, "as the message says"


def test_many_tasks_at_once_share_one_definition(platform, engine, monkeypatch) -> None:
    """All of them see that there is no definition before any of them creates it."""
    engines = [deepcopy(engine) for _ in range(4)]
    together = threading.Barrier(len(engines))
    get_job = platform.get_job

    def gets_together(asked):
        platform.lock.release()
        try:
            together.wait(30)
        finally:
            platform.lock.acquire()
        platform.get_job = get_job
        return get_job(asked)

    platform.get_job = gets_together
    refs, failures = [], []

    def submit(number: int) -> None:
        try:
            refs.append(engines[number].submit(replace(SPEC, token=f"t-{number}"), {}))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(len(engines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {ref.id for ref in refs} == set(platform.runs)
    assert len(refs) == 4, "and all four run at a time"
    assert platform.called.count("CreateJob") >= 1


def test_a_definition_that_others_change_at_the_same_time(platform, engine) -> None:
    engine.submit(SPEC, {})
    update_job = platform.update_job
    conflicts = [ApiError(400, "ConcurrentModificationException", "changed")] * 2

    def conflicting(asked):
        if conflicts:
            raise conflicts.pop()
        return update_job(asked)

    platform.update_job = conflicting
    other = replace(engine, role="another")
    other.submit(replace(SPEC, token="b"), {})
    assert platform.definitions[NAME]["Role"] == "another"
    conflicts += [ApiError(400, "ConcurrentModificationException", "changed")] * 9
    with pytest.raises(JobError, match="jobs of different names") as raised:
        engine.submit(replace(SPEC, token="c"), {})
    assert raised.value.retryable


def test_the_limit_of_runs_at_a_time_is_glues(platform, engine) -> None:
    few = replace(engine, max_concurrent_runs=1)
    first = few.submit(SPEC, {})
    with pytest.raises(JobError, match="max_concurrent_runs is 1: raise it") as raised:
        few.submit(replace(SPEC, token="b"), {})
    assert raised.value.retryable
    few.cancel(first, 4)
    few.submit(replace(SPEC, token="b"), {})


def test_only_what_started_nothing_is_repeated(platform, engine) -> None:
    platform.submit_failures = [429, 429, 429]
    assert engine.submit(SPEC, {}).id in platform.runs
    for failure, jobs in ((None, 2), (500, 2), (503, 2)):
        platform.submit_failures = [failure]
        with pytest.raises(Exception, match=r"as the test says|Connection was closed") as raised:
            engine.submit(replace(SPEC, token="lost"), {})
        assert not isinstance(raised.value, JobError), "it is not known whether it was started"
        assert len(platform.jobs) == jobs


def test_a_run_whose_answer_was_lost_is_found_by_its_token(platform, engine) -> None:
    assert engine.find(SPEC.token) is None, "there is no definition, and no run"
    platform.page = 2
    ref = engine.submit(SPEC, {})
    for number in range(5):
        engine.submit(replace(SPEC, token=f"later-{number}"), {})
    assert engine.find(SPEC.token) == ref
    assert engine.find("dag-1-2") is None
    platform.runs[ref.id].started -= timedelta(days=8)
    assert engine.find(SPEC.token) is None
    assert len(platform.jobs) == 6


@pytest.mark.parametrize(
    ("state", "meant", "said"),
    [
        ("STARTING", "pending", None),
        ("WAITING", "pending", None),
        ("STOPPING", "running", None),
        (
            "TIMEOUT",
            "failed",
            "was ended by Glue at its timeout of 2 minutes, without a result: Out of memory. Its",
        ),
        ("ERROR", "failed", "could not be run by Glue"),
        ("EXPIRED", "failed", "waited in the queue of Glue for too long"),
        ("STOPPED", "cancelled", "was cancelled on Glue"),
        ("FAILED", "failed", "failed, without a result: Out of memory. Its logs are in CloudWatch, in the log groups"),
    ],
)
def test_what_glue_says_of_a_run(platform, engine, state, meant, said) -> None:
    ref = engine.submit(SPEC, {})
    platform.runs[ref.id].state = state
    platform.jobs[0].error = "Out of memory."
    status = asyncio.run(engine.astatus(ref))
    assert (status.state, status.retryable) == (meant, True)
    assert (said in status.error) if said else status.error is None


def test_a_run_that_glue_does_not_stop_is_an_error(platform, engine) -> None:
    ref = engine.submit(SPEC, {})
    refused = {"JobRunId": ref.id, "ErrorDetail": {"ErrorCode": "InternalServiceException", "ErrorMessage": "later"}}
    platform.batch_stop_job_run = lambda _: {"Errors": [refused]}
    with pytest.raises(JobError, match=r"does not stop the run jr_.* InternalServiceException: later"):
        engine.cancel(ref, 4)
