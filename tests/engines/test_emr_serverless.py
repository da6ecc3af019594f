"""Jobs on EMR Serverless: what is submitted, what the answers mean, and a migration that is really run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_hive_to_delta.engines import EmrServerless, JobError, JobRef
from tests.support.aws import REGION, ROLE
from tests.support.aws_apis import SPEC, ApiError, open_platform
from tests.support.platform_emr import APPLICATION, EmrServerlessPlatform


@pytest.fixture
def platform(aws_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmrServerlessPlatform]:
    with open_platform(EmrServerlessPlatform, tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def engine(platform: EmrServerlessPlatform) -> EmrServerless:
    return EmrServerless(APPLICATION, ROLE, aws_conn_id=None)


def test_what_is_submitted(platform, engine) -> None:
    environment = {
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL_S3": "https://s3.example",
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": "hush",
        "AWS_SESSION_TOKEN": "hush",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": "hush",
        "AWS_PROFILE": "",
    }
    own = replace(
        engine,
        log_uri="s3://logs/emr/",
        python_archive="s3://lake/python.tar.gz",
        conf={"spark.executor.cores": 2, "spark.driver.extraJavaOptions": "-Da=b -Dc=d"},
        tags={"team": "lake"},
    )
    ref = own.submit(SPEC, environment)
    (run,) = platform.runs.values()
    assert run.asked["clientToken"] == SPEC.token
    assert run.asked["executionRoleArn"] == ROLE
    assert run.asked["name"] == "Convert sales.orders [dag-1-2-abc]"
    assert run.asked["executionTimeoutMinutes"] == 2, "90 s in whole minutes"
    assert run.asked["tags"] == {"team": "lake"}
    overrides = run.asked["configurationOverrides"]
    assert overrides["monitoringConfiguration"] == {"s3MonitoringConfiguration": {"logUri": "s3://logs/emr/"}}
    assert overrides["applicationConfiguration"][0]["properties"] == {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.jars": "/usr/share/aws/delta/lib/delta-spark.jar,/usr/share/aws/delta/lib/delta-storage.jar",
        "spark.archives": "s3://lake/python.tar.gz#environment",
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": "./environment/bin/python",
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": "./environment/bin/python",
        "spark.executorEnv.PYSPARK_PYTHON": "./environment/bin/python",
        "spark.emr-serverless.driverEnv.AWS_DEFAULT_REGION": REGION,
        "spark.executorEnv.AWS_DEFAULT_REGION": REGION,
        "spark.emr-serverless.driverEnv.AWS_ENDPOINT_URL_S3": "https://s3.example",
        "spark.executorEnv.AWS_ENDPOINT_URL_S3": "https://s3.example",
        "spark.executor.cores": "2",
        "spark.driver.extraJavaOptions": "-Da=b -Dc=d",
    }
    assert run.asked["jobDriver"]["sparkSubmit"] == {
        "entryPoint": SPEC.main_uri,
        "entryPointArguments": SPEC.arguments,
        "sparkSubmitParameters": f"--py-files {SPEC.package_uri}",
    }
    assert "hush" not in json.dumps(run.asked)
    assert ref.results_uri == SPEC.results_uri
    assert ref.page == (
        f"https://{REGION}.console.aws.amazon.com/s3/buckets/logs?region={REGION}"
        f"&prefix=emr/applications/{APPLICATION}/jobs/{ref.id}/"
    )


def test_a_job_without_a_timeout_has_no_limit_and_a_long_name_keeps_its_token(platform, engine) -> None:
    ref = engine.submit(replace(SPEC, name="x" * 300, timeout=None, main_uri="s3a://lake/run_job.py"), {})
    (run,) = platform.runs.values()
    assert run.asked["jobDriver"]["sparkSubmit"]["entryPoint"] == "s3://lake/run_job.py"
    assert run.asked["executionTimeoutMinutes"] == 0
    assert len(run.asked["name"]) == 256
    assert engine.find(SPEC.token) == ref
    assert ref.page == f"https://{REGION}.console.aws.amazon.com/emr/home?region={REGION}#/serverless"


def test_an_application_that_is_not_there_is_named(platform, engine) -> None:
    with pytest.raises(
        JobError, match=r"Correct application_id, which is '00other', or region_name, which is 'us-"
    ) as e:
        replace(engine, application_id="00other").submit(SPEC, {})
    assert not e.value.retryable


@pytest.mark.parametrize("failures", [[429, 429, 429], [500, None, 503], [None, None, None]])
def test_a_submission_is_repeated_with_one_token(platform, engine, failures) -> None:
    platform.submit_failures = failures
    assert engine.submit(SPEC, {}).id in platform.runs
    assert len(platform.jobs) == 1
    assert platform.called == ["StartJobRun"] * 4


def test_a_platform_that_is_called_too_often_for_long_is_tried_again_by_the_task(platform, engine) -> None:
    platform.submit_failures = [429] * 4
    with pytest.raises(JobError, match="ThrottlingException") as raised:
        engine.submit(SPEC, {})
    assert raised.value.retryable
    assert platform.jobs == []


def test_a_job_whose_answers_were_all_lost_is_found_by_its_token_and_not_started_again(platform, engine) -> None:
    platform.page = 2
    platform.submit_failures = [None] * 4
    with pytest.raises(Exception, match="Connection was closed") as raised:
        engine.submit(SPEC, {})
    assert not isinstance(raised.value, JobError), "it is not known whether it was started"
    for number in range(5):
        engine.submit(replace(SPEC, token=f"later-{number}"), {})
    lost = platform.jobs[0]
    platform.end(lost, "cancelled")
    found = engine.find(SPEC.token)
    assert found == JobRef(lost.id, SPEC.results_uri, found.page)
    assert engine.status(found).state == "cancelled", "a person may have cancelled it since"
    assert engine.find("dag-1-2") is None
    assert len(platform.jobs) == 6


def test_what_the_platform_says_of_a_job(platform, engine) -> None:
    ref = engine.submit(SPEC, {})
    assert asyncio.run(engine.astatus(ref)).state == "running"
    platform.jobs[0].error = "Job failed, please check complete logs in configured logging destination. ExitCode: 1."
    platform.end(platform.jobs[0], "failed")
    status = replace(engine, log_uri="s3://logs").status(ref)
    assert (status.state, status.retryable) == ("failed", True)
    assert status.error == (
        f"The job run {ref.id} failed on EMR Serverless, without a result: Job failed, please check complete logs in "
        f"configured logging destination. ExitCode: 1. Its logs are at s3://logs/applications/{APPLICATION}/jobs/{ref.id}"
    )
    missing = engine.status(replace(ref, id="00missing"))
    assert missing.state == "not_found"
    assert "was deleted, or is another one" in (missing.error or "")


def test_expired_credentials_are_taken_anew(platform, engine, monkeypatch) -> None:
    ref = engine.submit(SPEC, {})
    first = engine._connected
    platform.refusals = [ApiError(403, "ExpiredTokenException", "expired")]
    with pytest.raises(JobError, match="The credentials have expired"):
        engine.submit(SPEC, {})
    assert engine.status(ref).state == "running"
    assert engine._connected is not first


def test_a_connection_that_is_not_defined_fails_for_good(platform, airflow_home) -> None:
    with pytest.raises(JobError, match="The AWS connection 'lake_writer' is not defined") as raised:
        EmrServerless(APPLICATION, ROLE, aws_conn_id="lake_writer").submit(SPEC, {})
    assert not raised.value.retryable


def test_the_connection_is_used(platform, airflow_home, monkeypatch) -> None:
    extra = {"endpoint_url": platform.endpoint, "region_name": "eu-central-1", "config_kwargs": {"read_timeout": 7}}
    uri = {"conn_type": "aws", "login": "AKIAOFTHECONNECTION", "password": "hush", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(uri))
    monkeypatch.delenv("AWS_ENDPOINT_URL_EMR_SERVERLESS")
    engine = EmrServerless(APPLICATION, ROLE, aws_conn_id="lake")
    ref = engine.submit(SPEC, {})
    assert "eu-central-1" in (ref.page or "")
    assert "hush" not in repr(engine) + str(engine.serialize()) + str(ref)
