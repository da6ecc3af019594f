"""Migrations in a real Airflow in which tables or tasks fail, and what gets them well."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest

from airflow_hive_to_delta import GlueDiscovery, rollback_table
from airflow_hive_to_delta.core.catalogs import registration
from airflow_hive_to_delta.core.errors import TransientError
from airflow_hive_to_delta.core.lifecycle import convert
from tests.support.aws import REGION, checked_identities
from tests.support.crashes import Killed
from tests.support.lake import TEXT
from tests.support.migrations import LOSES, group
from tests.support.oracle import delta_at


def test_a_batch_converts_its_good_tables_and_fails_for_the_bad_ones(lake, run_dag, spark, clear_and_run) -> None:
    for name in ("a", "b", "c"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    lake.put("b/000001_0", b"not parquet")
    gone = f"{lake.bucket}-gone"
    lake.glue_table({"n": "bigint"}, name="d", location=f"s3://{gone}/d")

    run = run_dag(group(lake, per_table="batch_size=4"))

    assert run.state == "failed"
    statuses = {t["table"].rpartition(".")[2]: t["status"] for t in run.xcom("report", "report")["tables"]}
    assert statuses == {"a": "converted", "b": "failed", "c": "converted", "d": "failed"}
    assert run.states[f"tables.list_files[{lake.database}.a and 3 more]"] == "success", "three can go on"
    assert run.tries[f"tables.convert[{lake.database}.a and 3 more]"] == 1, "a permanent error is not tried again"
    assert "is not a Parquet file" in run.log
    assert f"bucket {gone}" in run.log

    lake.s3.delete_object(Bucket=lake.bucket, Key="b/000001_0")
    lake.s3.create_bucket(Bucket=gone)
    lake.put("d/000000_0", {"n": [1]}, bucket=gone)
    again = clear_and_run(run, task_ids=run.red)
    assert again.state == "success", again.states
    report = again.xcom("report", "report")
    found = {t["table"].rpartition(".")[2]: (t["status"], t["row_count"]) for t in report["tables"]}
    assert found == dict.fromkeys("abcd", ("converted", 1)), "with the results that the first try had"
    assert delta_at(spark, lake.location("b")).count() == 1


@pytest.mark.parametrize("batch_size", [None, 6])
def test_what_is_mended_and_cleared_gets_well(lake, run_dag, clear_and_run, spark, batch_size) -> None:
    """The advice of the report, followed to the letter, for each kind of failure."""
    gone, delta = f"{lake.bucket}-gone", f"{lake.database}_delta"
    lake.glue.create_database(DatabaseInput={"Name": delta})
    for name in ("good", "junk", "kind", "moved", "part", "taken"):
        lake.put(f"{name}/p=1/000000_0", {"n": [1]})
        partitions = [(["1"], lake.location(f"{name}/p=1"))]
        partitions += [(["2"], f"s3://{gone}/p=2")] if name == "part" else []
        lake.glue_table({"n": "string" if name == "kind" else "bigint"}, {"p": "int"}, partitions, name=name)
    lake.put("junk/p=1/000001_0", b"not parquet")
    mended = lake.glue.get_table(DatabaseName=lake.database, Name="moved")["Table"]
    mended = {"Name": "moved", **{key: mended[key] for key in ("TableType", "PartitionKeys", "StorageDescriptor")}}
    elsewhere = {**mended, "StorageDescriptor": {**mended["StorageDescriptor"], "Location": f"s3://{gone}/moved"}}
    lake.glue.update_table(DatabaseName=lake.database, TableInput=elsewhere)
    lake.glue.delete_partition(DatabaseName=lake.database, TableName="moved", PartitionValues=["1"])
    lake.glue.create_table(
        DatabaseName=delta,
        TableInput={"Name": "taken", "StorageDescriptor": {"Location": f"s3://{lake.bucket}/other", "Columns": []}},
    )
    target = f"target=GlueTarget({delta!r})"

    run = run_dag(group(lake, target, per_table=f"batch_size={batch_size}"))

    assert run.state == "failed"
    outcomes = {t["table"].rpartition(".")[2]: t for t in run.xcom("report", "report")["tables"]}
    bad = {"junk", "kind", "moved", "part", "taken"}
    assert {name for name, table in outcomes.items() if table["status"] == "failed"} == bad
    for name in bad:
        assert outcomes[name]["advice"].startswith(
            "Fix what the error names, then clear this table's red task with what comes"
        )

    lake.s3.delete_object(Bucket=lake.bucket, Key="junk/p=1/000001_0")
    kind = lake.glue.get_table(DatabaseName=lake.database, Name="kind")["Table"]
    kind["StorageDescriptor"]["Columns"] = [{"Name": "n", "Type": "bigint"}]
    lake.glue.update_table(
        DatabaseName=lake.database,
        TableInput={"Name": "kind", **{key: kind[key] for key in ("TableType", "PartitionKeys", "StorageDescriptor")}},
    )
    lake.glue.update_table(DatabaseName=lake.database, TableInput=mended)
    lake.glue.create_partition(
        DatabaseName=lake.database,
        TableName="moved",
        PartitionInput={"Values": ["1"], "StorageDescriptor": {"Location": lake.location("moved/p=1")}},
    )
    lake.glue.delete_partition(DatabaseName=lake.database, TableName="part", PartitionValues=["2"])
    lake.glue.delete_table(DatabaseName=delta, Name="taken")
    again = clear_and_run(run, task_ids=run.red)

    assert again.state == "success", again.states
    outcomes = {t["table"].rpartition(".")[2]: t for t in again.xcom("report", "report")["tables"]}
    for name in bad | {"good"}:
        assert (outcomes[name]["status"], outcomes[name]["verified"]) == ("converted", {"counts": 0}), name
        assert outcomes[name]["target_table"] == f"{delta}.{name}"
        assert delta_at(spark, lake.location(name)).collect() == [(1, 1)]


def test_a_wrong_location_that_was_converted_is_mended_as_the_docs_say(lake, run_dag, clear_and_run, spark) -> None:
    delta = f"{lake.database}_delta"
    lake.glue.create_database(DatabaseInput={"Name": delta})
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t", location=lake.location("mistyped"))
    run = run_dag(group(lake, f"target=GlueTarget({delta!r})"))
    assert (run.state, run.xcom("report", "report")["totals"]["empty"]) == ("success", 1)

    (table,) = GlueDiscovery(lake.database).discover()
    assert rollback_table(spark, table).dropped == [f"{delta}.t"]
    lake.glue.delete_table(DatabaseName=lake.database, Name="t")
    lake.glue_table({"n": "bigint"}, name="t")
    steps = [(f"hive_to_delta.tables.{step}", 0) for step in ("list_files", "convert", "verify")]
    again = clear_and_run(run, task_ids=[*steps, "hive_to_delta.report"])

    assert again.state == "success", again.states
    (outcome,) = again.xcom("report", "report")["tables"]
    assert (outcome["status"], outcome["file_count"], outcome["verified"]) == ("converted", 1, {"counts": 0})
    assert outcome["location"] == lake.location()


def test_one_table_that_kills_its_job_takes_no_other_with_it(lake, run_dag, spark, monkeypatch) -> None:
    for name in ("a", "poison", "z"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    convert_files, converted = convert._convert_files, []

    def kills(context, *arguments):
        converted.append(context.table.name)
        if context.table.name == "poison":
            raise Killed
        return convert_files(context, *arguments)

    monkeypatch.setattr(convert, "_convert_files", kills)

    run = run_dag(group(lake, per_table="batch_size=3, max_workers=1"))

    assert run.state == "failed"
    assert converted == ["a", "poison", "z", "poison"], "what is done is not run again, the suspect last"
    outcomes = {t["table"].rpartition(".")[2]: t for t in run.xcom("report", "report")["tables"]}
    assert {name: t["status"] for name, t in outcomes.items()} == {
        "a": "converted",
        "poison": "failed",
        "z": "converted",
    }
    assert outcomes["a"]["row_count"] == 1, "from the result that the first try left"
    assert [outcomes[name]["verified"] for name in ("a", "z")] == [{"counts": 0}] * 2
    assert outcomes["poison"]["error"] == "The job was killed"
    assert outcomes["poison"]["retryable"]


def test_a_table_that_fails_when_it_is_run_again_is_not_called_converted(lake, run_dag, clear_and_run) -> None:
    """The task that converts does not run then, and still has the result of the first time."""
    other = lake.add_bucket()
    lake.put("t/000000_0", {"n": [1]}, bucket=other)
    lake.glue_table({"n": "bigint"}, name="t", location=f"s3://{other}/t")
    run = run_dag(group(lake))
    assert run.state == "success"
    for found in lake.s3.list_objects_v2(Bucket=other)["Contents"]:
        lake.s3.delete_object(Bucket=other, Key=found["Key"])
    lake.s3.delete_bucket(Bucket=other)

    again = clear_and_run(run)

    assert again.state == "failed"
    (outcome,) = again.xcom("report", "report")["tables"]
    assert outcome["status"] == "failed"
    assert other in outcome["error"]


def test_results_of_tasks_that_a_cleared_run_has_no_more_are_not_reported(lake, run_dag, clear_and_run) -> None:
    for name in ("a", "b"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    lake.put("b/000001_0", b"not parquet")
    run = run_dag(group(lake))
    assert run.state == "failed"

    lake.glue.delete_table(DatabaseName=lake.database, Name="a")
    lake.s3.delete_object(Bucket=lake.bucket, Key="b/000001_0")
    again = clear_and_run(run)  # b is the first of the mapped tasks now, and was the second

    assert again.state == "success"
    (outcome,) = again.xcom("report", "report")["tables"]
    assert (outcome["table"], outcome["status"]) == (f"{lake.database}.b", "converted")


def test_a_table_whose_registration_failed_once_is_verified(lake, run_dag, spark, monkeypatch) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    (size,) = (found["Size"] for found in lake.s3.list_objects_v2(Bucket=lake.bucket)["Contents"])
    register, calls = registration.register, []

    def fails_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise TransientError("The catalog did not answer")
        return register(*arguments)

    monkeypatch.setattr(registration, "register", fails_once)
    target = f"target=GlueTarget('{lake.database}_delta', create_schema=True)"

    run = run_dag(group(lake, target))

    assert run.state == "success"
    (outcome,) = run.xcom("report", "report")["tables"]
    assert (outcome["status"], outcome["byte_count"]) == ("converted", size), "by this run, in whichever try"
    assert "Verified by counts at version 0: 1 file and 1 row" in outcome["notes"]
    assert f"The schema {lake.database}_delta was missing, and was created" in outcome["notes"]
    (commit,) = spark.sql(f"DESCRIBE HISTORY delta.`{lake.location('t')}`").collect()
    assert commit.userMetadata == f"{run.dag.dag_id}/{run.run_id}"


@pytest.mark.parametrize("options", ["", "options=ConversionOptions(user_metadata='ours')"])
def test_a_table_whose_result_was_lost_is_verified(lake, run_dag, options) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    (size,) = (found["Size"] for found in lake.s3.list_objects_v2(Bucket=lake.bucket)["Contents"])

    run = run_dag(group(lake, options, engine="Loses()", imports=LOSES.format(action="convert")))

    assert run.state == "success"
    assert run.tries[f"tables.convert[{lake.database}.t]"] == 1, "the job has left the result of the table itself"
    (outcome,) = run.xcom("report", "report")["tables"]
    assert (outcome["status"], outcome["file_count"], outcome["byte_count"]) == ("converted", 1, size)
    assert "Verified by counts at version 0: 1 file and 1 row" in outcome["notes"]


def test_a_table_that_a_try_was_done_with_before_it_died_is_this_runs(lake, run_dag) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    lost = 'return JobStatus("failed", "The connection was lost")'
    assert lost in LOSES
    dies = LOSES.format(action="convert").replace(lost, "raise OSError")

    run = run_dag(group(lake, engine="Loses()", imports=dies))

    assert run.state == "success"
    assert run.tries[f"tables.convert[{lake.database}.t]"] == 2
    (outcome,) = run.xcom("tables.convert", "outcomes", label=f"{lake.database}.t")
    assert (outcome["status"], outcome["written_version"]) == ("converted", 0), (
        "so that it is compared as what the run made"
    )


FLAKY = """
import dataclasses
from airflow_hive_to_delta.engines import JobError

@dataclasses.dataclass
class Flaky(SharedSession):
    '''An engine that loses its connection when it is first asked for one of the tables.'''

    def submit(self, spec, environment):
        if "flaky" in spec.name and spec.name.startswith("Convert") and not FAILED:
            FAILED.append(1)
            raise JobError("The connection was lost", retryable=True)
        return super().submit(spec, environment)

FAILED = []
"""


@pytest.mark.slow
def test_one_denied_one_unsupported_one_flaky(lake, run_dag, clear_and_run, aws_endpoint, monkeypatch, spark) -> None:
    """The others are done, the run is failed, the report names each; cleared and re-run, only those run again."""
    for name in ("good", "flaky"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    secret = lake.add_bucket()
    lake.put("denied/000000_0", {"n": [1]}, bucket=secret)
    lake.glue_table({"n": "bigint"}, name="denied", location=f"s3://{secret}/denied")
    lake.glue.create_table(
        DatabaseName=lake.database,
        TableInput={"Name": "text", "StorageDescriptor": {**TEXT, "Location": lake.location("text"), "Columns": []}},
    )

    with identity_denied(secret, aws_endpoint) as user:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(user.connection))
        run = run_dag(group(lake, engine="Flaky()", conn="lake", imports=FLAKY))

        assert run.state == "failed"
        assert {task: state for task, state in run.states.items() if "convert" in task} == {
            "tables.convert[0]": "upstream_failed",  # the denied one: Airflow labels a task when it runs
            f"tables.convert[{lake.database}.flaky]": "success",
            f"tables.convert[{lake.database}.good]": "success",
        }
        assert run.tries[f"tables.convert[{lake.database}.flaky]"] == 2
        assert run.tries[f"tables.list_files[{lake.database}.denied]"] == 1, "no retry can help a denied identity"
        report = run.xcom("report", "report")
        outcomes = {t["table"].rpartition(".")[2]: t for t in report["tables"]}
        assert {name: t["status"] for name, t in outcomes.items()} == {
            "good": "converted", "flaky": "converted", "denied": "failed", "text": "refused",
        }  # fmt: skip
        assert "AccessDenied" in outcomes["denied"]["error"]
        assert "Fix what the error names" in outcomes["denied"]["advice"]
        assert "only supports parquet tables" in outcomes["text"]["error"]
        assert f"1 of 4 tables failed: {lake.database}.denied" in run.log
        before = run.tries
        assert before["tables.convert[0]"] == 0

        user.allow()
        again = clear_and_run(run, only_failed=True)

    assert again.state == "success"
    assert {task for task, tries in again.tries.items() if tries > before.get(task, 0)} == {
        f"tables.list_files[{lake.database}.denied]",
        f"tables.convert[{lake.database}.denied]",
        f"tables.verify[{lake.database}.denied]",
        "report",
    }
    assert delta_at(spark, f"s3://{secret}/denied").collect() == [(1,)]
    for secret_word in (user.secret, user.connection["password"]):
        assert secret_word not in run.log + again.log + again.all_xcoms()


class _User:
    def __init__(self, name: str, endpoint: str) -> None:
        self._iam = boto3.client("iam", region_name=REGION)
        self.name = name
        self._iam.create_user(UserName=name)
        key = self._iam.create_access_key(UserName=name)["AccessKey"]
        self.secret = key["SecretAccessKey"]
        self.connection = {
            "conn_type": "aws",
            "login": key["AccessKeyId"],
            "password": self.secret,
            "extra": {"region_name": REGION, "endpoint_url": endpoint},
        }
        self._put([{"Effect": "Deny", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{name}"}])

    def allow(self) -> None:
        self._put([])

    def _put(self, denied: list[dict[str, str]]) -> None:
        statements = [{"Effect": "Allow", "Action": "*", "Resource": "*"}, *denied]
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        # From inside: the server may be checking identities already.
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.iam.models import iam_backends

        iam_backends[DEFAULT_ACCOUNT_ID]["aws"].put_user_policy(self.name, "p", policy)


@contextmanager
def _allowed_session() -> Iterator[None]:
    """Let the keys of the tests' own session be those of a user who may do everything, while the block runs."""
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.iam.models import iam_backends

    backend = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    name = f"session-{uuid.uuid4().hex[:8]}"
    backend.create_user(REGION, name)
    key = backend.create_access_key(name)
    made = key.access_key_id
    key.access_key_id, key.secret_access_key = "testing", "testing"
    allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    backend.put_user_policy(name, "p", json.dumps(allowed))
    try:
        yield
    finally:
        key.access_key_id = made
        backend.delete_access_key(made, name)
        backend.delete_user_policy(name, "p")
        backend.delete_user(name)


@contextmanager
def identity_denied(bucket: str, endpoint: str) -> Iterator[_User]:
    """A user of AWS who may do everything but list one bucket, while moto checks who asks."""

    user = _User(bucket, endpoint)
    with _allowed_session(), checked_identities(endpoint):
        yield user
