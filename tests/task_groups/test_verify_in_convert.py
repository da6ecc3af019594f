"""Tables that are verified by the job that converts them: one Spark session, and the same report."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_hive_to_delta import (
    GlueDiscovery,
    GlueSource,
    PerTable,
    S3Listing,
    hive_to_delta_sync_task_group,
    hive_to_delta_task_group,
    rollback_table,
    sync_table,
    verify_table,
)
from airflow_hive_to_delta.core.errors import TransientError
from airflow_hive_to_delta.core.lifecycle.convert import TableConverter
from airflow_hive_to_delta.job import verifier
from tests.support.airflow_runs import Run, asset_events
from tests.support.lake import Lake
from tests.support.migrations import group, orders_and_people
from tests.support.oracle import delta_at
from tests.support.policies import OF_TASKS, asked_of_aws, denied, policies_of
from tests.support.project import PROJECT

IN_CONVERT = "verify_in_convert=True"
#: An engine after whose conversions another writer commits to the table.
WRITTEN_SINCE = """
from pyspark.sql import SparkSession

class WrittenSince(SharedSession):
    def do(self, request, results):
        super().do(request, results)
        if request.action == "convert":
            spark = SparkSession.builder.getOrCreate()
            location = request.arguments["tables"][0]["location"].replace("s3://", "s3a://")
            spark.range(1).selectExpr("id AS n").write.format("delta").mode("append").save(location)
"""


def jobs(lake: Lake) -> list[str]:
    """The tasks that have run jobs so far, one for each job."""
    requests = [name for name in lake.objects() if name.endswith("/_request.json")]
    return sorted(name.partition("/jobs/")[2].partition("/")[0] for name in requests)


def report_of(run: Run) -> dict[str, dict[str, Any]]:
    return {table["table"].rpartition(".")[2]: table for table in run.xcom("report", "report")["tables"]}


@pytest.fixture
def rewritten(lake, monkeypatch) -> None:
    """Hive writes the file of the table ``t`` anew, right after its first conversion."""
    convert = TableConverter.convert
    done: list[Any] = []

    def convert_and_rewrite(self, table):
        result = convert(self, table)
        if table.name == "t" and not done:
            done.append(lake.s3.copy_object(Bucket=lake.bucket, Key="t/000000_0", CopySource=f"{lake.bucket}/anew"))
        return result

    lake.put("t/000000_0", {"n": [1]})
    lake.put("anew", {"n": [2, 3, 4]})
    lake.glue_table({"n": "bigint"}, name="t")
    monkeypatch.setattr(TableConverter, "convert", convert_and_rewrite)


def test_one_job_converts_and_verifies_and_the_report_is_the_same(lake, run_dag, clear_and_run) -> None:
    orders_and_people(lake)
    run = run_dag(group(lake, per_table=f"{IN_CONVERT}, batch_size=2"))

    assert run.state == "success"
    assert set(run.states.values()) == {"success"}
    assert jobs(lake) == ["convert"]
    outcomes = report_of(run)
    assert {name: (t["status"], t["verified"]) for name, t in outcomes.items()} == dict.fromkeys(
        ("orders", "people"), ("converted", {"counts": 0})
    )
    assert outcomes["orders"]["notes"].count("Verified by counts at version 0: 2 files and 4 rows") == 1
    label = f"{lake.database}.orders and 1 more"
    verified = run.xcom("tables.verify", label=label)
    assert verified == [result["verification"] for result in run.xcom("tables.convert", label=label)]
    assert [result["row_count"] for result in verified] == [4, 2]

    again = clear_and_run(run, task_ids=["hive_to_delta.tables.verify", "hive_to_delta.report"])
    assert again.state == "success"
    assert jobs(lake) == ["convert", "verify"], "who clears the task wants the tables compared"


def test_a_table_that_was_written_to_since_is_compared_by_a_job(lake, run_dag) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    run = run_dag(group(lake, engine="WrittenSince()", imports=WRITTEN_SINCE, per_table=IN_CONVERT))
    assert run.state == "success"
    assert jobs(lake) == ["convert", "verify"]
    assert "written to since the job that converted it has verified it" in run.log
    assert report_of(run)["t"]["verified"] == {"counts": 0}


@pytest.mark.parametrize(("mend", "batch_size"), [("sync", None), ("sync", 2), ("roll back", 2)])
def test_a_difference_fails_its_table_alone_and_is_mended_by_the_advice(
    lake, run_dag, clear_and_run, spark, rewritten, mend, batch_size
) -> None:
    lake.put("good/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="good")
    run = run_dag(group(lake, per_table=f"{IN_CONVERT}, batch_size={batch_size}"))

    assert run.state == "failed"
    label = f"{lake.database}.{'good and 1 more' if batch_size else 't'}"
    assert run.tries[f"tables.convert[{label}]"] == 1, "no retry can help"
    assert set(jobs(lake)) == {"convert"}
    outcomes = report_of(run)
    assert {name: t["status"] for name, t in outcomes.items()} == {"good": "converted", "t": "failed"}
    assert (outcomes["t"]["error_kind"], outcomes["t"]["verified"]) == ("StaleFileListError", {})
    assert (outcomes["t"]["location"], outcomes["t"]["file_count"]) == (lake.location("t"), 1), "the conversion is kept"
    assert outcomes["t"]["advice"].startswith("If Hive has written since, sync the table by a new run. If not, roll")
    assert outcomes["good"]["verified"] == {"counts": 0}
    assert not asset_events(lake.location("t")), "nobody may use it"

    table = next(found for found in GlueDiscovery(lake.database).discover() if found.name == "t")
    if mend == "sync":
        assert sync_table(spark, table, S3Listing(), output_mode="complete").status == "synced"
    else:
        assert rollback_table(spark, table).status == "rolled_back"
    again = clear_and_run(run, task_ids=run.red)

    assert again.state == "success", again.states
    outcomes = report_of(again)
    assert (outcomes["t"]["status"], list(outcomes["t"]["verified"]), outcomes["t"]["error"]) == (
        "converted",
        ["counts"],
        None,
    )
    if batch_size is None:
        assert set(jobs(lake)) == {"convert"}, "the version that the sync has written is the one that was compared"
    assert sorted(delta_at(spark, lake.location("t")).collect()) == [(2,), (3,), (4,)]


def test_another_list_does_not_make_a_difference_green(lake, run_dag, clear_and_run, rewritten) -> None:
    run = run_dag(group(lake, per_table=IN_CONVERT))
    assert run.state == "failed"
    again = clear_and_run(run)
    assert again.state == "failed"
    assert (report_of(again)["t"]["status"], report_of(again)["t"]["verified"]) == ("failed", {})


def test_a_verification_that_fails_for_a_moment_is_tried_again_without_another_conversion(
    lake, run_dag, monkeypatch
) -> None:
    lake.put("t/000000_0", {"n": [1, None]})
    lake.glue_table({"n": "bigint"}, name="t")
    verify = verify_table
    failed: list[bool] = []

    def fails_once(*arguments, **options):
        if not failed:
            failed.append(True)
            raise TransientError("throttled")
        return verify(*arguments, **options)

    monkeypatch.setattr(verifier, "verify_table", fails_once)
    run = run_dag(group(lake, per_table=IN_CONVERT))

    assert run.state == "success"
    label = f"{lake.database}.t"
    assert run.tries[f"tables.convert[{label}]"] == 2
    assert jobs(lake) == ["convert", "convert"]
    result = run.xcom("tables.convert", label=label)
    assert (result["success"], result["error"], result["row_count"]) == (True, None, 2), "with what the first try knew"
    assert result["verified"] == {"counts": 0}
    assert asset_events(lake.location("t")) == [0]


def test_what_was_verified_before_is_not_compared_with_a_later_list(lake, run_dag, clear_and_run) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    first = run_dag(group(lake, per_table=IN_CONVERT))
    lake.put("t/000001_0", {"n": [2]})
    again = clear_and_run(first)
    assert again.state == "success"
    assert again.states[f"tables.verify[{lake.database}.t]"] == "skipped"
    assert "Verified before, by counts at version 0" in report_of(again)["t"]["notes"]


@pytest.mark.slow
def test_an_embedded_spark_is_started_once_for_a_table(lake, run_dag) -> None:
    """By the DAG of the engine's page, with a full verification."""
    lake.put("t/000000_0", {"n": [1, 2]})
    lake.glue_table({"n": "bigint"}, name="t")
    page = PROJECT / "docs" / "engines" / "local.md"
    (source,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    source = source.replace("s3://lake/", f"s3://{lake.bucket}/").replace('"sales', f'"{lake.database}')
    with asked_of_aws() as asked:
        run = run_dag(source.replace('"2g"', '"1g"').replace("staging=", 'verify="full", staging='))
    names = {":::lake": f":::{lake.bucket}", "/sales": f"/{lake.database}"}
    (policy,) = policies_of(page, names)
    assert asked.keys() == {OF_TASKS}, "one identity for tasks and jobs"
    assert denied(asked[OF_TASKS], policy) == []
    assert run.state == "success", run.log
    assert run.log.count("as job ") == len(jobs(lake)) == 1, "one job converts and verifies"
    assert report_of(run)["t"]["verified"] == {"full": 0}
    assert delta_at(lake.spark, lake.location("t")).count() == 2
    registered = lake.glue.get_table(DatabaseName=f"{lake.database}_delta", Name="t")["Table"]
    assert registered["Parameters"]["table_type"] == "DELTA"


def test_a_group_that_does_not_verify_after_the_conversion_refuses_it(airflow_home) -> None:
    arguments: dict[str, Any] = {"source": GlueSource("a"), "staging": "s3://b/s"}
    in_convert = PerTable(verify_in_convert=True)
    with pytest.raises(ValueError, match="verify_in_convert=True beside verify=None"):
        hive_to_delta_task_group(**arguments, per_table=in_convert, verify=None)
    with pytest.raises(ValueError, match="a sync comes between"):
        hive_to_delta_sync_task_group(**arguments, per_table=in_convert, verify="counts", convert_new=True)
    with pytest.raises(TypeError, match="verify_in_convert is 'counts', expected True or False"):
        PerTable(verify_in_convert="counts")
