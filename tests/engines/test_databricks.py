"""The engine on Databricks, against a stand-in for a workspace."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from airflow_hive_to_delta import Databricks
from airflow_hive_to_delta.core.errors import MissingDependencyError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.databricks import NO_CREDENTIALS_NOTE
from airflow_hive_to_delta.core.storage.uri import parse_location
from airflow_hive_to_delta.engines import Engine, JobError, JobRef, JobRequest, JobSpec
from airflow_hive_to_delta.engines.databricks import SCRIPT_NAME
from airflow_hive_to_delta.engines.package import package_zip
from airflow_hive_to_delta.job.documents import DONE, put_document, read_document
from airflow_hive_to_delta.job.file_lists import ListMaker
from airflow_hive_to_delta.job.run import run as run_job
from tests.support.airflow_runs import dag_source
from tests.support.oracle import assert_same, delta_at
from tests.support.platform_databricks import TOKEN, USER, DatabricksPlatform
from tests.support.project import PROJECT

HOME = f"/Workspace/Users/{USER}/.airflow-hive-to-delta"
CLUSTER = {"spark_version": "17.3.x-scala2.13", "node_type_id": "m7g.large", "num_workers": 2}


@pytest.fixture
def platform(airflow_home: Path, tmp_path: Path, bucket: str) -> Iterator[DatabricksPlatform]:
    made = DatabricksPlatform(tmp_path, staging=f"s3://{bucket}/staging")
    yield made
    made.close()


def engine_of(platform: DatabricksPlatform, **compute: Any) -> Databricks:
    return Databricks(platform.conn_id, poll_seconds=0.01, **(compute or {"serverless": True}))


def spec_of(platform: DatabricksPlatform, token: str = "hive-to-delta-1") -> JobSpec:
    folder = f"{platform.staging}/jobs/0001-01-{token}"
    return JobSpec("convert sales.orders", f"{folder}/_request.json", folder, token, timeout=90.5)


def test_it_is_an_engine_that_can_be_made_again_from_json() -> None:
    engine = Databricks("dbx", new_cluster=CLUSTER, package_folder="/Volumes/main/default/airflow/")
    assert isinstance(engine, Engine)
    assert engine.survives_worker
    path, arguments = engine.serialize()
    assert path == "airflow_hive_to_delta.engines.databricks.Databricks"
    assert Databricks(**json.loads(json.dumps(arguments))) == engine
    assert repr(engine) == repr(Databricks(**arguments))
    assert "m7g.large" not in repr(engine)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Nothing says where runs go, expected exactly one of existing_cluster_id, new_cluster, serverless, job"),
        ({"serverless": True, "new_cluster": CLUSTER}, "new_cluster and serverless says where"),
        ({"job_id": "12"}, "job_id is '12', expected the number of a job"),
        ({"job_id": 12}, "job_id is given without package_folder"),
        (
            {"job_id": 12, "package_folder": "/Workspace/x", "run_settings": {"queue": {}}},
            "a job that is defined has its own",
        ),
        ({"serverless": True, "package_folder": "/Shared/x"}, "begins with /Workspace/ or /Volumes/"),
        ({"new_cluster": {"spark_conf": {"fs.s3a.secret.key": "abc"}}}, "'fs.s3a.secret.key' that may be secret"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        Databricks(**arguments)
    assert "abc" not in str(error.value)


def test_a_reference_to_a_secret_is_none() -> None:
    Databricks(new_cluster={"spark_conf": {"fs.s3a.secret.key": "{{secrets/lake/key}}"}})


@pytest.mark.parametrize(
    ("compute", "where"),
    [
        ({"existing_cluster_id": "0923-1"}, {"existing_cluster_id": "0923-1"}),
        ({"new_cluster": CLUSTER}, {"new_cluster": CLUSTER}),
        ({"serverless": True}, {"environment_key": "default"}),
        (
            {"new_cluster": CLUSTER, "libraries": ["boto3>=1.36"]},
            {"new_cluster": CLUSTER, "libraries": [{"pypi": {"package": "boto3>=1.36"}}]},
        ),
    ],
)
def test_a_run_is_submitted_with_its_package_and_two_addresses(platform, compute, where) -> None:
    engine = engine_of(platform, run_settings={"queue": {"enabled": True}}, **compute)
    spec = spec_of(platform)
    ref = engine.submit(spec, {})
    assert ref.page == f"http://127.0.0.1:{platform.port}/#job/1/run/{ref.id}"
    assert JobRef.from_dict(json.loads(json.dumps(ref.to_dict()))) == ref
    (asked,) = platform.submitted
    assert (asked["run_name"], asked["timeout_seconds"]) == ("convert sales.orders", 90)
    assert asked["queue"] == {"enabled": True}
    (task,) = asked["tasks"]
    parameters = [f"{HOME}/{package_zip().name}", *spec.arguments, "--keep-session"]
    assert task == {
        "task_key": spec.token,
        "spark_python_task": {"python_file": f"{HOME}/{SCRIPT_NAME}", "parameters": parameters},
        **where,
    }
    assert platform.local(f"{HOME}/{package_zip().name}").read_bytes() == package_zip().content

    engine.submit(spec_of(platform, "hive-to-delta-2"), {})
    assert [r for r in platform.requests if r.endswith("workspace/import")] == ["POST /api/2.0/workspace/import"] * 2
    assert len(platform.jobs) == 2


def test_serverless_compute_gets_an_environment(platform) -> None:
    engine_of(platform, serverless=True, libraries=["boto3>=1.36"]).submit(spec_of(platform), {})
    (asked,) = platform.submitted
    environment = {"environment_version": "4", "dependencies": ["boto3>=1.36"]}
    assert asked["environments"] == [{"environment_key": "default", "spec": environment}]


def test_a_volume_has_the_package_once(platform) -> None:
    engine = engine_of(platform, serverless=True, package_folder="/Volumes/main/default/air flow")
    engine.submit(spec_of(platform), {})
    engine.submit(spec_of(platform, "hive-to-delta-2"), {})
    kept = sorted(file.name for file in platform.local("/Volumes/main/default/air flow").iterdir())
    assert kept == sorted([package_zip().name, SCRIPT_NAME])
    assert len([request for request in platform.requests if request.startswith("PUT /api/2.0/fs/files")]) == 2
    assert TOKEN not in json.dumps(platform.submitted)


def test_a_job_that_is_defined_is_run_with_other_parameters(platform) -> None:
    engine = engine_of(platform, job_id=620, package_folder="/Workspace/Shared/hive-to-delta")
    spec = spec_of(platform)
    ref = engine.submit(spec, {})
    (asked,) = platform.submitted
    package = f"/Workspace/Shared/hive-to-delta/{package_zip().name}"
    parameters = [package, *spec.arguments, "--keep-session"]
    assert asked == {"job_id": 620, "idempotency_token": spec.token, "python_params": parameters}
    assert engine.find(spec.token) == ref


def test_a_run_whose_answer_was_lost_is_found_on_a_later_page(platform) -> None:
    platform.held = None
    engine = engine_of(platform)
    refs = [engine.submit(spec_of(platform, f"hive-to-delta-{number}"), {}) for number in range(3)]
    assert engine.find("hive-to-delta-0") == refs[0]
    assert engine.find("hive-to-delta-9") is None
    assert len(platform.jobs) == 3


@pytest.mark.parametrize("failures", [[None], [429, 503]])
def test_a_submission_that_fails_for_a_moment_is_sent_again_with_its_token(platform, failures) -> None:
    platform.submit_failures = failures
    engine_of(platform).submit(spec_of(platform), {})
    assert len(platform.jobs) == 1


def test_a_submission_that_goes_on_failing_says_nothing_of_the_run(platform) -> None:
    """The error is no JobError, so that the caller looks for the run."""
    platform.submit_failures = [503] * 3
    with pytest.raises(Exception, match="failed 3 times") as error:
        engine_of(platform).submit(spec_of(platform), {})
    assert not isinstance(error.value, JobError)


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ((403, "PERMISSION_DENIED", "You do not have access to the cluster"), "CAN ATTACH TO"),
        ((400, "INVALID_PARAMETER_VALUE", "Cluster 0923-1 does not exist"), "Correct the arguments of the engine"),
    ],
)
def test_a_run_that_is_refused_is_not_tried_again_and_says_what_to_do(run_dag, platform, refusal, message) -> None:
    platform.refusals = [refusal]
    body = f"""
CatalogDiscoverOperator(
    task_id="discover", allow="a.b.*", engine={platform.engine}, staging={platform.staging!r}, aws_conn_id=None,
    retries=2, retry_delay=timedelta(0),
)
"""
    run = run_dag(dag_source(body))
    assert (run.state, run.tries) == ("failed", {"discover": 1})
    assert refusal[2] in run.log
    assert message in run.log
    assert TOKEN not in run.log + run.all_xcoms()
    assert platform.jobs == []


def test_an_expired_token_may_be_renewed_while_the_run_goes_on(platform) -> None:
    platform.held = 2
    engine = engine_of(platform)
    ref = engine.submit(spec_of(platform), {})
    platform.expired = True
    for ask in (lambda: engine.status(ref), lambda: asyncio.run(engine.astatus(ref))):
        with pytest.raises(JobError, match="has expired: renew it in the connection") as error:
            ask()
        assert error.value.retryable
        assert TOKEN not in str(error.value)
    with pytest.raises(JobError, match="has expired"):
        engine.submit(spec_of(platform, "hive-to-delta-2"), {})
    platform.expired = False
    assert engine.status(ref).state == "running"
    assert asyncio.run(engine.astatus(ref)).state == "succeeded"


@pytest.mark.parametrize(
    ("state", "status", "output", "expected"),
    [
        (
            {"life_cycle_state": "INTERNAL_ERROR", "result_state": "FAILED", "state_message": "Task failed."},
            {"termination_details": {"code": "DRIVER_ERROR", "type": "INTERNAL_ERROR", "message": "Driver is gone"}},
            {"error": "SystemExit: 1"},
            ("failed", "The run on Databricks ended as FAILED: Task failed. SystemExit: 1. Driver is gone", True),
        ),
        (
            {"life_cycle_state": "INTERNAL_ERROR", "state_message": "Cluster was terminated"},
            {},
            {},
            ("failed", "The run on Databricks ended as INTERNAL_ERROR: Cluster was terminated", True),
        ),
        (
            {"life_cycle_state": "TERMINATED", "result_state": "TIMEDOUT"},
            {},
            {},
            ("failed", "The run on Databricks ended as TIMEDOUT", True),
        ),
        (
            {"life_cycle_state": "SKIPPED", "state_message": "Too many runs"},
            {},
            {},
            (
                "failed",
                "The run on Databricks ended as SKIPPED: Too many runs. Let the job have more concurrent runs, or "
                "queue them (its setting queue)",
                True,
            ),
        ),
        (
            {"life_cycle_state": "TERMINATED", "result_state": "FAILED", "state_message": "No such node type"},
            {"termination_details": {"code": "INVALID_CLUSTER_REQUEST", "type": "CLIENT_ERROR"}},
            {},
            ("failed", "The run on Databricks ended as FAILED: No such node type", False),
        ),
        (
            {"life_cycle_state": "TERMINATED", "result_state": "CANCELED", "state_message": "By ann@example.com"},
            {},
            {},
            ("cancelled", "The run on Databricks was cancelled: By ann@example.com", True),
        ),
    ],
)
def test_how_a_run_ended(platform, state, status, output, expected) -> None:
    platform.end_state, platform.end_status = state, status
    platform.output = {"logs": "a line\n", "error_trace": "Traceback", **output}
    engine = engine_of(platform)
    ref = engine.submit(spec_of(platform), {})
    platform.end(platform.jobs[0], "failed")
    found = engine.status(ref)
    assert (found.state, found.error, found.retryable) == expected
    assert found.log == ["a line", "Traceback"]
    assert asyncio.run(engine.astatus(ref)) == found


@pytest.mark.parametrize("life", ["PENDING", "QUEUED", "BLOCKED", "WAITING_FOR_RETRY"])
def test_a_run_that_waits_is_pending(platform, life) -> None:
    platform.held, platform.waits_as = None, life
    engine = engine_of(platform)
    assert engine.status(engine.submit(spec_of(platform), {})).state == "pending"


def test_a_run_that_is_not_known(platform) -> None:
    engine, ref = engine_of(platform), JobRef("404", f"{platform.staging}/x")
    assert engine.status(ref).state == "not_found"
    assert asyncio.run(engine.astatus(ref)).state == "not_found"
    engine.cancel(ref, within=1)


def test_a_run_is_cancelled_in_time_and_without_a_question_to_airflow(platform, monkeypatch) -> None:
    """The signal that kills a task may come in the middle of such a question, and Airflow takes one at a time."""
    platform.held = None
    engine = engine_of(platform)
    ref = engine.submit(spec_of(platform), {})
    assert engine.status(ref).state == "running"
    monkeypatch.delenv(f"AIRFLOW_CONN_{platform.conn_id.upper()}")
    timeouts = []
    post = requests.post

    def timed(*arguments: Any, timeout: float, **more: Any) -> Any:
        timeouts.append(timeout)
        return post(*arguments, timeout=timeout, **more)

    monkeypatch.setattr(requests, "post", timed)
    engine.cancel(ref, within=4)
    assert platform.jobs[0].state == "cancelled"
    assert timeouts == [2], "to connect, and as much to answer"


def test_without_the_provider_the_error_names_the_extra(platform, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "airflow.providers.databricks.hooks.databricks", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'airflow-hive-to-delta\[databricks\]'"):
        engine_of(platform).submit(spec_of(platform), {})


def orders(lake) -> TableInfo:
    lake.put("orders/day=2024-01-01/000000_0", {"id": [1, 2], "name": ["a", None]})
    lake.put("orders/day=2024-01-02 x/000000_0", {"id": [3], "name": ["ü"]})
    lake.table({"id": "bigint", "name": "string"}, {"day": "string"}, name="orders")
    return TableInfo(
        "orders",
        lake.location("orders"),
        columns=[{"Name": "id", "Type": "bigint"}, {"Name": "name", "Type": "string"}],
        partition_keys=["day"],
        partition_types={"day": "string"},
    )


@pytest.mark.slow
def test_a_table_is_converted_where_python_has_no_keys(lake, platform, spark) -> None:
    """What was submitted runs for real. Only the JVM can reach S3, as where Unity Catalog gives the access."""
    table = orders(lake)
    listed = ListMaker(spark, ConversionOptions(), 100).make(table, {"strategy": "spark"}, None).to_dict()
    arguments = {
        "tables": [table.to_dict()],
        "lists": [listed],
        "list_again": {"manifests": [None], "inline_limit": 100, "later_try": True},
        "target_catalog": None,
        "target_schemas": [None],
        "options": ConversionOptions().to_dict(),
    }
    spec = spec_of(platform)
    put_document(parse_location(spec.request_uri), JobRequest("convert", arguments).to_dict(), None)
    platform.runs_jobs = True
    engine = engine_of(platform)
    ref = engine.submit(spec, {})
    process = platform.jobs[0].process
    assert process is not None
    process.wait(300)
    status = engine.status(ref)
    said = platform.log_of(platform.jobs[0])
    assert status.state == "succeeded", said
    (result,) = read_document(parse_location(spec.results_uri).child(DONE), None)["results"]
    assert result["status"] == "converted", result
    assert NO_CREDENTIALS_NOTE in result["notes"]
    original = spark.read.schema("id bigint, name string, day string").parquet(lake.location("orders"))
    assert_same(spark, original, delta_at(spark, lake.location("orders")))
    keys = {key for key in lake.objects() if "_delta_log" in key}
    assert f"{lake.bucket}/orders/_delta_log/00000000000000000000.json" in keys
    assert not [key for key in keys if "claim-" in key]
    assert any("began, on Spark" in line for line in status.log)


def test_the_dag_of_its_page(lake, platform, run_dag, monkeypatch) -> None:
    """Against the stand-in, as it is. The jobs are done by the session of the tests, whose catalog is a metastore."""
    page = (PROJECT / "docs" / "engines" / "databricks.md").read_text()
    (source,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    lake.put("people/000000_0", {"name": ["Ada", None]})
    original = lake.hive_table({"name": "string"}, name="people")
    lake.spark.sql(f"CREATE SCHEMA {lake.database}_bronze")
    platform.play = lambda job: run_job(
        JobRequest.from_dict(read_document(parse_location(job.arguments[0]), None)),
        lake.spark,
        results=parse_location(job.results_uri),
    )
    for there, here in {
        "hive_metastore.sales.": f"spark_catalog.{lake.database}.",
        '"main", "bronze"': f'"spark_catalog", "{lake.database}_bronze"',
        "s3://lake/": f"s3://{lake.bucket}/",
        '"databricks_default",': f"{platform.conn_id!r}, poll_seconds=0.02,",
        "PerTable(": "PerTable(retries=0, ",
    }.items():
        assert there in source
        source = source.replace(there, here)
    platform.held = 2  # the first task waits for its job in the triggerer
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "true")
    run = run_dag(source)
    assert run.state == "success", run.log
    (outcome,) = run.xcom("report", "report")["tables"]
    assert (outcome["status"], outcome["verified"]) == ("converted", {"counts": 0})
    assert_same(lake.spark, original, lake.spark.table(f"{lake.database}_bronze.people"))
    assert "without a worker" in run.log
    assert {body["tasks"][0]["new_cluster"]["node_type_id"] for body in platform.submitted} == {"m7gd.xlarge"}
    assert TOKEN not in run.log + run.all_xcoms()
