"""Who a job is to AWS: by the connection, by the machine, and for how long."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import boto3
import botocore.session
import pytest
from botocore.credentials import RefreshableCredentials

from airflow_hive_to_delta.operators.aws import credential_server
from airflow_hive_to_delta.operators.aws.credential_server import serve_credentials
from airflow_hive_to_delta.operators.aws.identity import job_environment
from tests.support.airflow_runs import dag_source
from tests.support.aws import REGION

IN_IRELAND = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1"}
ROLE = f"arn:aws:iam::123456789012:role/{uuid.uuid4().hex}"


def expiring(minutes: int) -> tuple[RefreshableCredentials, list[str]]:
    """Credentials that expire in so many minutes, and the secrets they have had: a new one with each renewal."""
    made: list[str] = []

    def renew() -> dict[str, str]:
        made.append(f"secret-{len(made)}")
        ends = datetime.now(UTC) + timedelta(minutes=minutes)
        return {"access_key": "a", "secret_key": made[-1], "token": "t", "expiry_time": ends.isoformat()}

    return RefreshableCredentials.create_from_metadata(renew(), renew, "test"), made


def environment_of(connection: str | None, *, region: str | None = None, here: bool = True) -> dict[str, str]:
    with job_environment(connection, region, on_this_machine=here) as environment:
        return environment


def define(monkeypatch: pytest.MonkeyPatch, name: str, **connection: Any) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "aws", **connection}))


@contextmanager
def machine_with_a_role(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment of a task on ECS or EKS: its identity is renewed, and the environment has no keys."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with serve_credentials(expiring(60)[0]) as address:
        for name, value in address.items():
            monkeypatch.setenv(name, value)
        yield


def test_a_connection_without_an_identity_adds_none_to_a_job(airflow_home, monkeypatch) -> None:
    define(monkeypatch, "empty")
    define(monkeypatch, "somewhere", extra={"region_name": "eu-west-1", "endpoint_url": "http://127.0.0.1:9"})
    with machine_with_a_role(monkeypatch):
        credentials = boto3.session.Session().get_credentials()
        assert credentials is not None
        assert credentials.method == "container-role"
        assert environment_of("empty") == {}
        assert environment_of("aws_default") == {}, "not defined: as for Airflow's own operators"
        assert environment_of(None) == {}
        assert environment_of(None, region="eu-west-1") == {
            "AWS_REGION": "eu-west-1",
            "AWS_DEFAULT_REGION": "eu-west-1",
        }
        found = environment_of("somewhere")
    assert {name: value for name, value in found.items() if "URL" not in name} == IN_IRELAND
    assert found["AWS_ENDPOINT_URL_GLUE"] == "http://127.0.0.1:9"


def test_keys_of_a_connection_are_passed_on_and_no_token_of_the_worker_with_them(airflow_home, monkeypatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-the-worker")
    define(monkeypatch, "keys", login="AKIAKEYS", password="secret")
    found = environment_of("keys")
    assert (found["AWS_ACCESS_KEY_ID"], found["AWS_SECRET_ACCESS_KEY"]) == ("AKIAKEYS", "secret")
    assert found["AWS_SESSION_TOKEN"] == "", "which takes it out of what the job inherits"
    assert environment_of("keys", here=False) == {}


def test_a_role_is_served_to_a_job_on_this_machine_only(airflow_home, monkeypatch, tmp_path, caplog) -> None:
    role = {"role_arn": ROLE, "region_name": "eu-west-1"}
    define(monkeypatch, "role", login="AKIAKEYS", password="secret", extra=role)
    assert environment_of("role", here=False) == IN_IRELAND
    assert "is not sent to an engine elsewhere" in caplog.text

    # All that would outrank it is on the worker.
    files = tmp_path / "credentials"
    files.write_text("[default]\naws_access_key_id = other\naws_secret_access_key = other\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(files))
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(files))
    with job_environment("role", None, on_this_machine=True) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
        session = botocore.session.Session()
        credentials = session.get_credentials()
        assert credentials is not None
        assert credentials.method == "container-role"
        assert credentials.access_key.startswith("ASIA"), "of the assumed role"
        assert session.get_config_variable("region") == "eu-west-1"


def test_credentials_are_renewed_and_only_the_token_opens_them() -> None:
    credentials, made = expiring(5)  # which botocore renews whenever they are asked for
    with serve_credentials(credentials) as address:
        uri = address["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        assert uri.startswith("http://127.0.0.1:")
        for token in ("", "wrong", address["AWS_CONTAINER_AUTHORIZATION_TOKEN"][:-1]):
            with pytest.raises(HTTPError, match="403"):
                urlopen(Request(uri, headers={"Authorization": token}))
        asked = Request(uri, headers={"Authorization": address["AWS_CONTAINER_AUTHORIZATION_TOKEN"]})
        answers = [json.load(urlopen(asked)) for _ in range(2)]
    assert [answer["SecretAccessKey"] for answer in answers] == made[-2:]
    assert len(set(made)) == len(made) == 3
    with pytest.raises(URLError):
        urlopen(asked)


def test_what_keeps_credentials_from_being_renewed_is_said(caplog) -> None:
    def denied() -> dict[str, str]:
        raise RuntimeError("STS says no")

    ended = datetime.now(UTC).isoformat()
    metadata = {"access_key": "a", "secret_key": "s", "token": "t", "expiry_time": ended}
    credentials = RefreshableCredentials.create_from_metadata(metadata, denied, "test")
    with serve_credentials(credentials) as address:
        headers = {"Authorization": address["AWS_CONTAINER_AUTHORIZATION_TOKEN"]}
        with pytest.raises(HTTPError, match="500"):
            urlopen(Request(address["AWS_CONTAINER_CREDENTIALS_FULL_URI"], headers=headers))
    assert "The credentials of the job could not be renewed: STS says no" in caplog.text


def test_a_connection_that_is_not_defined_fails_the_task_and_names_it(lake, run_dag) -> None:
    body = f"""
GlueDiscoverOperator(task_id="discover", databases={lake.database!r}, aws_conn_id="aws_defualt", retries=3)
RollbackTableOperator(
    task_id="roll_back", table=dict(name="t", location="s3://b/t"), aws_conn_id="aws_defualt", engine=SharedSession()
)
ListFilesOperator(
    task_id="list", table=dict(name="t", location="s3://b/t"), staging="s3://b", staging_conn_id="aws_defualt",
    aws_conn_id=None
)
ListFilesOperator(
    task_id="list_by_root", table=dict(name="t", location="s3://b/t"), staging="s3://aws_defualt@b/s", aws_conn_id=None
)
"""
    run = run_dag(dag_source(body))
    assert set(run.states.values()) == {"failed"}
    assert set(run.tries.values()) == {1}
    for task in ("roll_back", "list", "list_by_root"):
        (outcome,) = run.xcom(task, "outcomes")
        assert outcome["error"].startswith(
            "The AWS connection 'aws_defualt' is not defined. Define it, correct the aws_conn_id"
        )
    assert run.log.count("The AWS connection 'aws_defualt' is not defined") >= 4


WATCHED = """
from pathlib import Path

class Watched(LocalSpark):
    # Writes down what anybody on the machine can read of the processes while the job runs.
    def status(self, ref, cursor=None):
        with open(SEEN, "ab") as seen:
            for command in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.write(command.read_bytes())
                except OSError:
                    pass
        return super().status(ref, cursor)
"""


@pytest.mark.slow
def test_jobs_under_a_role_ask_for_new_credentials_and_say_little_and_nothing_secret(
    lake, run_dag, spark, monkeypatch, tmp_path
) -> None:
    """One run, since each of its two jobs starts a JVM: who they are to AWS, what they say, and what others can see."""
    asked: list[str] = []
    monkeypatch.setattr(
        credential_server._Handler, "log_request", lambda self, *_: asked.append(self.headers["User-Agent"])
    )
    # Fifteen minutes is the least that AWS gives, and so near to the end that SDKs renew whenever they are asked.
    role = {"role_arn": ROLE, "region_name": REGION, "assume_role_kwargs": {"DurationSeconds": 900}}
    define(monkeypatch, "role", login="AKIAKEYS", password="secret-of-the-user", extra=role)
    lake.put("t/000000_0", {"n": [1, 2]})
    lake.glue_table({"n": "bigint"}, name="t")
    lake.glue.create_database(DatabaseInput={"Name": f"{lake.database}_delta"})
    body = f"""
identity = dict(aws_conn_id="role", staging="s3://{lake.bucket}/staging")
engine = Watched(cores=1, conf={{"spark.hadoop.metastore.password": "Hunter2 ü=:\\\\x"}}, poll_seconds=0.2)
options = ConversionOptions(stats="scan", register_in="glue")
tables = GlueDiscoverOperator(task_id="discover", databases={lake.database!r}, aws_conn_id="role").output
files = ListFilesOperator(task_id="list", table=tables, **identity).output
convert = ConvertTableOperator(
    task_id="convert", table=tables, files=files, engine=engine, target_schema="{lake.database}_delta", options=options,
    **identity
)
convert >> RollbackTableOperator(task_id="roll_back", table=tables, engine=engine, **identity)
"""
    seen = tmp_path / "seen"
    run = run_dag(dag_source(body, imports=f"SEEN = {str(seen)!r}\n{WATCHED}"))
    assert run.state == "success"

    by_java = [agent for agent in asked if "java" in agent.lower()]
    assert len(by_java) >= 1, "S3A has asked in the job that reads data"
    assert len(asked) - len(by_java) >= 2, "boto3 has asked in both"
    (result,) = run.xcom("roll_back")
    dropped = f"{lake.database}_delta.t"
    assert result["dropped"] == [dropped]

    lines = run.log.splitlines()
    job = lines[next(i for i, line in enumerate(lines) if "Started Roll back" in line) :]
    job = job[: max(i for i, line in enumerate(job) if f"dropped {dropped}" in line) + 1]
    assert len(job) < 10, "quiet"
    assert f"the log is at {result['log_moved_to']}, dropped {dropped}" in job[-1], "and ends with what was done"
    (kept,) = re.findall(rf"is kept at s3://{lake.bucket}/(\S+/logs/roll_back\S+\.log)", "\n".join(job))
    whole = lake.s3.get_object(Bucket=lake.bucket, Key=kept)["Body"].read().decode()
    assert "Using Spark's default log4j profile" in whole
    assert "Using Spark's default log4j profile" not in run.log

    commands = seen.read_bytes()
    assert b"org.apache.spark.deploy.SparkSubmit" in commands
    for secret in ("Hunter2", "secret-of-the-user"):
        assert secret.encode() not in commands
        assert secret not in run.log + run.all_xcoms() + whole
