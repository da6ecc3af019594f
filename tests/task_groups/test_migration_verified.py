"""Migrations in a real Airflow whose verification has to find, or not to find, a difference."""

from __future__ import annotations

import pytest

from airflow_hive_to_delta import GlueDiscovery, S3Listing, rollback_table, sync_table
from tests.support.airflow_runs import asset_events, dag_source
from tests.support.lake import hand_converted
from tests.support.migrations import group
from tests.support.oracle import delta_at


def test_what_was_converted_and_never_verified_is_verified_by_the_next_run(lake, run_dag, spark) -> None:
    """A run can end between the conversion and the verification, or be one that does not verify."""
    for name in ("fresh", "grown", "written"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    hand_converted(lake, "fresh", "grown", "written")
    lake.put("grown/000001_0", {"n": [2]})
    spark.sql(f"INSERT INTO delta.`{lake.location('written')}` VALUES (3)")
    spark.sql(f"CREATE TABLE delta.`{lake.location('foreign')}` (n BIGINT) USING DELTA")
    lake.glue_table({"n": "bigint"}, name="foreign")

    def notes() -> dict[str, list[str]]:
        run = run_dag(group(lake, per_table="batch_size=4"))
        assert run.state == "success"
        report = run.xcom("report", "report")
        assert {table["status"] for table in report["tables"]} == {"already_delta"}
        return {t["table"].rpartition(".")[2]: [n for n in t["notes"] if "erified" in n] for t in report["tables"]}

    first = notes()
    equal = ["Verified by counts at version 0: 1 file and 1 row"]
    assert (first["fresh"], first["written"]) == (equal, equal)
    (too_late,) = first["grown"]
    assert too_late.startswith("Not verified: an earlier run has converted it, and the new file ")
    assert first["foreign"] == [
        "Not verified: this run did not write it, or not all of it, and Hive or others may have written since"
    ]
    before = ["Verified before, by counts at version 0"]
    assert notes() == {**first, "fresh": before, "written": before}
    assert not asset_events(lake.location("fresh")), "nobody touched it"


FORGETFUL = """
class Forgetful(SharedSession):
    '''An engine that loses a file of the original on the way to the verification.'''

    def prepare(self, request):
        if request.action == "verify":
            for files in request.arguments["lists"]:
                files["files"] = [file for file in files["files"] if "day=2" not in file["path"]]
                files["file_count"] -= 1
"""


def test_a_table_that_is_not_what_it_was_made_from_fails(lake, run_dag) -> None:
    for day in (1, 2):
        lake.put(f"t/day={day}/000000_0", {"n": [day, None]})
    lake.glue_table({"n": "bigint"}, {"day": "int"}, [([day], lake.location(f"t/day={day}")) for day in "12"])

    run = run_dag(group(lake, engine="Forgetful()", imports=FORGETFUL))

    assert run.state == "failed"
    assert run.states[f"tables.convert[{lake.database}.t]"] == "success"
    assert run.tries[f"tables.verify[{lake.database}.t]"] == 1, "no retry can help"
    (outcome,) = run.xcom("report", "report")["tables"]
    assert outcome["status"] == "failed"
    assert "day=2" in outcome["error"]


REWRITTEN = """
import boto3

class Rewritten(SharedSession):
    # Hive writes a file anew before the first verification.
    def prepare(self, request):
        if request.action == "verify" and not DONE:
            DONE.append(boto3.client("s3").copy_object(Bucket={bucket!r}, Key="t/000000_0", CopySource={source!r}))

DONE = []
"""


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("mend", ["sync", "roll back"])
def test_a_difference_is_mended_by_the_advice(lake, run_dag, clear_and_run, spark, mend, batch_size) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.put("anew", {"n": [2, 3, 4]})
    lake.glue_table({"n": "bigint"}, name="t")
    imports = REWRITTEN.format(bucket=lake.bucket, source=f"{lake.bucket}/anew")
    run = run_dag(group(lake, engine="Rewritten()", imports=imports, per_table=f"batch_size={batch_size}"))
    assert run.state == "failed"
    (outcome,) = run.xcom("report", "report")["tables"]
    assert outcome["status"] == "failed"
    assert outcome["advice"].startswith("If Hive has written since, sync the table by a new run, then clear this task.")

    (table,) = GlueDiscovery(lake.database).discover()
    red = run.red
    if mend == "sync":
        assert sync_table(spark, table, S3Listing(), output_mode="complete").status == "synced"
    else:
        assert rollback_table(spark, table).status == "rolled_back"
        red += [("hive_to_delta.tables.convert", 0)]
    again = clear_and_run(run, task_ids=red)

    assert again.state == "success", again.states
    (outcome,) = again.xcom("report", "report")["tables"]
    assert (outcome["status"], list(outcome["verified"])) == ("converted", ["counts"])
    assert sorted(delta_at(spark, lake.location()).collect()) == [(2,), (3,), (4,)]


def test_another_list_does_not_make_a_difference_green(lake, run_dag, clear_and_run) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.put("anew", {"n": [2, 3, 4]})
    lake.glue_table({"n": "bigint"}, name="t")
    imports = REWRITTEN.format(bucket=lake.bucket, source=f"{lake.bucket}/anew")
    run = run_dag(group(lake, engine="Rewritten()", imports=imports))
    assert run.state == "failed"

    steps = [(f"hive_to_delta.tables.{step}", 0) for step in ("list_files", "convert", "verify")]
    again = clear_and_run(run, task_ids=[*steps, "hive_to_delta.report"])

    assert again.state == "failed", "this run has converted it, and it was never verified"
    (outcome,) = again.xcom("report", "report")["tables"]
    assert (outcome["status"], outcome["verified"]) == ("failed", {})
    assert outcome["advice"].startswith("If Hive has written since, sync the table by a new run, then clear this task.")


def test_what_was_verified_before_is_not_compared_with_a_later_list(lake, run_dag, clear_and_run) -> None:
    """Hive, or others, may have written since: a difference would say nothing."""
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    first = run_dag(group(lake))
    assert clear_and_run(first).states[f"tables.verify[{lake.database}.t]"] == "success", "this run has converted it"
    lake.put("t/000001_0", {"n": [2]})

    for run, status in ((clear_and_run(first), "converted"), (run_dag(group(lake)), "already_delta")):
        assert run.state == "success"
        assert run.states[f"tables.verify[{lake.database}.t]"] == "skipped"
        (outcome,) = run.xcom("report", "report")["tables"]
        assert outcome["status"] == status
        assert "Verified before, by counts at version 0" in outcome["notes"]


def test_a_last_step_without_a_result_is_a_failure(lake, run_dag) -> None:
    """A killed task records nothing, and the outcome of an earlier step is not that of the whole run."""
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    body = f"""
discover = GlueDiscoverOperator(task_id="discover", databases={lake.database!r}, aws_conn_id=None)
files = ListFilesOperator.partial(task_id="list", aws_conn_id=None).expand(table=discover.output)
convert = ConvertTableOperator.partial(task_id="convert", engine=SharedSession(), aws_conn_id=None).expand_kwargs(
    discover.output.zip(files.output).map(lambda pair: dict(table=pair[0], files=pair[1]))
)
silent = EmptyOperator(task_id="sync")
report = MigrationReportOperator(
    task_id="report", discover_task_id="discover", table_task_ids=["list", "convert", "sync"],
    staging="s3://{lake.bucket}/staging", action="sync", aws_conn_id=None,
)
convert >> silent >> report
"""
    run = run_dag(dag_source(body, imports="from airflow.providers.standard.operators.empty import EmptyOperator"))
    assert run.state == "failed"
    (outcome,) = run.xcom("report", "report")["tables"]
    assert outcome["status"] == "not_run"
    assert "ended without a word" in outcome["error"]
