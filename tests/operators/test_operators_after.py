"""The operators before and after a conversion, in a real Airflow: what they do, what they leave, and how they fail."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_hive_to_delta import S3Listing
from tests.support.airflow_runs import asset_events, dag_source
from tests.support.lake import TEXT, Lake, hand_converted
from tests.support.migrations import read_text
from tests.support.oracle import assert_same, delta_at

COLUMNS = {"n": "bigint"}


def table(lake: Lake, name: str = "t") -> dict[str, str]:
    """A table by its name and location alone."""
    return {"name": name, "database": lake.database, "location": lake.location(name)}


def wired(lake: Lake, *steps: str, include: str = "*", batch_size: int | None = None) -> str:
    """A DAG that discovers and lists the lake's tables, and runs steps with them, one after the other."""
    lines = [
        f"discover = GlueDiscoverOperator(task_id='discover', databases={lake.database!r}, include={include!r},"
        f" batch_size={batch_size}, aws_conn_id=None)",
        "files = ListFilesOperator.partial(task_id='list', aws_conn_id=None).expand(table=discover.output)",
        f"job = dict(engine=SharedSession(), aws_conn_id=None, staging='s3://{lake.bucket}/staging',"
        " retries=1, retry_delay=timedelta(0), map_index_template='{{ task.table_label }}')",
        "both = discover.output.zip(files.output).map(lambda pair: dict(table=pair[0], files=pair[1]))",
        *steps,
    ]
    return dag_source("\n".join(lines))


def sync(more: str = "") -> str:
    return f"SyncTableOperator.partial(task_id='sync', {more} **job).expand_kwargs(both)"


def one_task(operator: str, arguments: str) -> str:
    return dag_source(f"{operator}(task_id='it', {arguments}, engine=SharedSession(), aws_conn_id=None)")


def redefine(lake: Lake, name: str, kind: str = "EXTERNAL_TABLE", **descriptor: Any) -> None:
    """Change a table in Glue."""
    found = lake.glue.get_table(DatabaseName=lake.database, Name=name)["Table"] | {"TableType": kind}
    found["StorageDescriptor"] |= descriptor
    kept = {key: found[key] for key in ("TableType", "PartitionKeys", "StorageDescriptor")}
    lake.glue.update_table(DatabaseName=lake.database, TableInput={"Name": name, **kept})


def planned(lake: Lake) -> str:
    return dag_source(
        f"""
discover = GlueDiscoverOperator(task_id="discover", databases={lake.database!r}, aws_conn_id=None, batch_size=2)
PlanMigrationOperator(
    task_id="plan", tables=discover.output, left_out=discover.output["left_out"],
    staging="s3://{lake.bucket}/staging", engine=SharedSession(), aws_conn_id=None,
)
"""
    )


def test_a_plan_has_every_table_and_writes_nothing_else(lake, run_dag, clear_and_run) -> None:
    lake.put("good/000000_0", {"n": [1]})
    lake.glue_table(COLUMNS, name="good")
    lake.put("conflict/000000_0", {"n": ["text"]})
    lake.glue_table(COLUMNS, name="conflict")
    lake.glue_table(COLUMNS, name="gone", location=f"s3://{lake.bucket}-gone/gone")
    lake.glue.create_table(
        DatabaseName=lake.database,
        TableInput={"Name": "notes", "StorageDescriptor": {**TEXT, "Location": lake.location("notes"), "Columns": []}},
    )
    before = lake.objects()

    run = run_dag(planned(lake))

    assert run.state == "success", "a table that is refused fails nothing"
    report = run.xcom("plan", "report")
    assert {t["table"].rpartition(".")[2]: t["status"] for t in report["tables"]} == {
        "good": "convertible",
        "conflict": "failed",
        "gone": "failed",
        "notes": "refused",
    }, "as the run says it"

    kept = {name for name in lake.objects() if "/staging/" not in name}
    assert kept == set(before)
    where = run.xcom("plan")
    assert where["totals"]["files"] == 1
    assert json.loads(read_text(lake, where["json"]))["totals"] == where["totals"]
    assert f"{lake.database}.conflict" in read_text(lake, where["html"])

    redefine(lake, "conflict", Columns=[{"Name": "n", "Type": "string"}])
    lake.glue.delete_table(DatabaseName=lake.database, Name="gone")
    again = clear_and_run(run, task_ids=["plan"])
    outcomes = {t["table"].rpartition(".")[2]: t for t in again.xcom("plan", "report")["tables"]}
    assert outcomes["conflict"]["status"] == "convertible", "its definition is read anew"
    assert outcomes["gone"]["status"] == "failed"
    assert "gone from Glue" in outcomes["gone"]["error"]


def test_a_list_is_inline_in_a_plan_however_many_tables_there_are(lake, run_dag, monkeypatch) -> None:
    monkeypatch.setattr("airflow_hive_to_delta.operators.plan.INLINE_LIMIT", 1)
    for name in ("a", "b"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table(COLUMNS, name=name)
    run = run_dag(planned(lake))
    assert run.state == "success"
    assert run.xcom("plan")["totals"]["files"] == 2
    assert not [name for name in lake.objects() if "/files/" in name]


def test_a_table_that_cannot_be_listed_for_an_unknown_reason_stops_no_other(lake, run_dag, monkeypatch) -> None:
    for name in ("bad", "good"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table(COLUMNS, name=name)
    known = S3Listing.list_batches

    def list_batches(self, table, options):
        if table.name == "bad":
            raise RuntimeError("nobody thought of this")
        return known(self, table, options)

    monkeypatch.setattr(S3Listing, "list_batches", list_batches)
    run = run_dag(planned(lake))
    outcomes = {t["table"].rpartition(".")[2]: t for t in run.xcom("plan", "report")["tables"]}
    assert {name: t["status"] for name, t in outcomes.items()} == {"bad": "failed", "good": "convertible"}
    assert outcomes["bad"]["error"] == "nobody thought of this"


def test_the_plan_of_no_tables_is_empty(lake, run_dag) -> None:
    run = run_dag(planned(lake))
    assert run.state == "success"
    assert run.xcom("plan")["totals"]["tables"] == 0


@pytest.mark.slow
def test_a_run_syncs_once_and_tells_who_waits(lake, run_dag, clear_and_run, spark) -> None:
    lake.put("t/000000_0", {"n": [1]})
    original = lake.table(COLUMNS)
    lake.convert()
    lake.put("t/000001_0", {"n": [2, None]})

    run = run_dag(wired(lake, sync()))

    assert run.state == "success"
    label = f"{lake.database}.t"
    result = run.xcom("sync", label=label)
    assert (result["status"], result["version"], result["num_added_files"]) == ("synced", 1, 1)
    assert result["run_version"] == run_after(run)
    spark.catalog.refreshTable(label)
    assert_same(spark, original, delta_at(spark, lake.location()))
    assert asset_events(lake.location()) == [1]

    again = clear_and_run(run, task_ids=["sync"])
    assert again.xcom("sync", label=label) == result, "with the result that the first time had"
    # What came later is for the next run: this one was committed.
    lake.put("t/000002_0", {"n": [3]})
    again = clear_and_run(run)
    assert again.state == "success"
    assert again.xcom("sync", label=label)["status"] == "already_synced"
    assert delta_at(spark, lake.location()).count() == 3
    later = run_dag(wired(lake, sync()))
    assert later.xcom("sync", label=label)["num_added_files"] == 1
    event_count = len(asset_events(lake.location()))
    nothing = run_dag(wired(lake, sync("run_version='{{ 4 * 10**13 }}',")))
    assert nothing.xcom("sync", label=label)["status"] == "unchanged"
    assert len(asset_events(lake.location())) == event_count, "nothing has changed"


def run_after(run: Any) -> int:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(DagRun).filter_by(dag_id=run.dag.dag_id, run_id=run.run_id).one()
        moment: datetime = found.run_after
        return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1_000)


def test_a_table_of_a_batch_that_fails_touches_no_other(lake, run_dag, spark) -> None:
    for name in ("a", "b", "c"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table(COLUMNS, name=name)
    hand_converted(lake, "a", "c")
    for name in ("a", "b", "c"):
        lake.put(f"{name}/000001_0", {"n": [2]})

    run = run_dag(wired(lake, sync("max_workers=2,"), batch_size=3))

    assert run.state == "failed"
    label = f"{lake.database}.a and 2 more"
    assert run.tries[f"sync[{label}]"] == 1, "no retry can make it a Delta table"
    outcomes = {o["table"].rpartition(".")[2]: o for o in run.xcom("sync", "outcomes", label=label)}
    assert {name: o["status"] for name, o in outcomes.items()} == {"a": "synced", "b": "failed", "c": "synced"}
    assert lake.location("b") in outcomes["b"]["error"]
    assert [delta_at(spark, lake.location(name)).count() for name in ("a", "c")] == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["counts", "full"])
def test_what_differs_is_named_by_partition_and_number(lake, run_dag, level) -> None:
    locations = [([day], lake.location(f"t/day={day}")) for day in ("1", "2")]
    for _, location in locations:
        lake.put(f"{location.removeprefix(f's3://{lake.bucket}/')}/000000_0", {"n": [1, 2]})
    lake.table(COLUMNS, {"day": "int"}, locations)
    lake.convert()
    verify = f"VerifyTableOperator.partial(task_id='verify', level={level!r}, **job).expand_kwargs(both)"
    same = run_dag(wired(lake, verify))
    assert same.state == "success"
    result = same.xcom("verify", label=f"{lake.database}.t")
    assert (result["success"], result["row_count"], result["level"]) == (True, 4, level)

    lake.spark.sql(f"DELETE FROM delta.`{lake.location()}` WHERE day = 2 AND n = 1")
    differs = run_dag(wired(lake, verify))
    assert differs.state == "failed"
    assert differs.tries[f"verify[{lake.database}.t]"] == 1
    (outcome,) = differs.xcom("verify", "outcomes", label=f"{lake.database}.t")
    assert outcome["status"] == "failed"
    assert "day=2" in outcome["error"]
    assert "day=1" not in outcome["error"]
    at_version = run_dag(wired(lake, verify.replace("task_id", "version='{{ 0 }}', task_id")))
    assert at_version.state == "success"


def test_a_table_is_cut_over_and_rolled_back(lake, run_dag, spark) -> None:
    lake.put("t/000000_0", {"n": [1, None]})
    original = lake.table(COLUMNS)
    lake.convert()
    expected = original.collect()
    cut_over = "CutOverTableOperator.partial(task_id='cut_over', **job).expand(table=discover.output)"

    run = run_dag(wired(lake, cut_over))

    assert run.state == "success"
    assert run.xcom("cut_over", label=f"{lake.database}.t")["status"] == "cut_over"
    in_glue = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"]
    assert in_glue["Parameters"]["table_type"] == "DELTA"

    spark.sql(f"INSERT INTO delta.`{lake.location()}` VALUES (3)")
    refused = run_dag(one_task("RollbackTableOperator", f"table={table(lake)!r}"))
    assert refused.state == "failed"
    (outcome,) = refused.xcom("it", "outcomes")
    assert (outcome["table"], outcome["retryable"]) == (f"{lake.database}.t", False)
    back = run_dag(one_task("RollbackTableOperator", f"table={table(lake)!r}, lose_versions='{{{{ [1] }}}}'"))
    assert back.state == "success"
    result = back.xcom("it")
    assert (result["source_table"], result["lost_versions"]) == (f"{lake.database}.t", [1])
    assert "table_type" not in lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"].get("Parameters", {})
    spark.catalog.refreshTable(f"{lake.database}.t")
    assert sorted(spark.table(f"{lake.database}.t").collect(), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("operator", ["CutOverTableOperator", "VacuumExternalFilesOperator"])
def test_a_location_that_is_mended_counts_when_the_task_is_cleared(lake, run_dag, clear_and_run, operator) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table(COLUMNS)
    lake.convert()
    redefine(lake, "t", Location=lake.location("mistyped"))
    run = run_dag(wired(lake, f"{operator}.partial(task_id='it', **job).expand(table=discover.output)"))
    assert run.states[f"it[{lake.database}.t]"] == "failed"

    redefine(lake, "t", Location=lake.location())
    again = clear_and_run(run, task_ids=["it"])

    assert again.state == "success", again.log
    assert again.xcom("it", label=f"{lake.database}.t")["location"] == lake.location()


def test_what_a_person_should_know_of_a_table_is_in_the_log(lake, run_dag) -> None:
    lake.glue_table(COLUMNS)
    redefine(lake, "t", "MANAGED_TABLE")
    run = run_dag(wired(lake, "ConvertTableOperator.partial(task_id='it', **job).expand_kwargs(both)"))
    assert run.state == "success"
    *_, said = run.log.partition(f"{lake.location()}: converted, 0 files")
    assert f"{lake.database}.t is a managed table: Hive and Spark delete its files" in said
    assert f"Nothing is at the location of {lake.database}.t: it is an empty table, or the location is wrong" in said


def test_nothing_is_done_when_its_result_cannot_be_kept(lake, run_dag, tmp_path) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table(COLUMNS)
    lake.convert()
    before = lake.objects()
    (tmp_path / "file").write_text("no folder")
    for root in (f"s3://{lake.bucket}-gone/staging", f"file://{tmp_path}/file/staging"):
        run = run_dag(one_task("RollbackTableOperator", f"table={table(lake)!r}, staging={root!r}, retries=1"))
        assert run.state == "failed"
        assert set(run.tries.values()) == {1}
        (outcome,) = run.xcom("it", "outcomes")
        assert outcome["error"].startswith(f"The staging root {root} cannot be written to: ")
        assert outcome["error"].endswith("create its bucket or folder, or give this identity access")
    assert lake.objects() == before


def test_a_vacuum_says_what_would_go_and_then_deletes_it(lake, run_dag, spark) -> None:
    far = lake.add_bucket()
    lake.put("t/p=1/000000_0", {"n": [1]})
    lake.put("p=2/000000_0", {"n": [2]}, bucket=far)
    locations = [(["1"], lake.location("t/p=1")), (["2"], f"s3://{far}/p=2")]
    lake.glue_table(COLUMNS, {"p": "int"}, locations)
    lake.convert()
    spark.sql(f"DELETE FROM delta.`{lake.location()}` WHERE p = 2")
    # While Hive has the partition, its file stays.
    lake.glue.delete_partition(DatabaseName=lake.database, TableName="t", PartitionValues=["2"])
    arguments = f"table={table(lake)!r}, retention_hours='{{{{ 0 }}}}', allow_short_retention=True, dropped='[]'"

    dry = run_dag(one_task("VacuumExternalFilesOperator", arguments)).xcom("it")
    assert (dry["dry_run"], dry["deleted_files"], dry["orphaned_files"]) == (True, [], [f"s3://{far}/p=2/000000_0"])
    assert f"{far}/p=2/000000_0" in lake.objects()

    done = run_dag(one_task("VacuumExternalFilesOperator", f"{arguments}, dry_run='{{{{ 1 == 2 }}}}'"))
    assert done.state == "success"
    assert done.xcom("it")["deleted_files"] == [f"s3://{far}/p=2/000000_0"]
    assert done.xcom("it")["table_name"] == f"{lake.database}.t"
    assert f"{far}/p=2/000000_0" not in lake.objects()
    assert delta_at(spark, lake.location()).collect() == [(1, 1)]


def test_what_a_template_renders_is_checked_when_it_runs(lake, run_dag) -> None:
    run = run_dag(one_task("VacuumExternalFilesOperator", f"table={table(lake)!r}, dry_run='{{{{ 42 }}}}'"))
    assert run.state == "failed"
    (outcome,) = run.xcom("it", "outcomes")
    assert outcome["error"] == "dry_run is '42', expected True or False"
    assert outcome["retryable"] is False


def test_what_is_too_long_to_travel_is_cut_short_and_says_so(airflow_home) -> None:
    from airflow.sdk import DAG

    from airflow_hive_to_delta import VacuumExternalFilesOperator, VacuumResult, VerifyResult, VerifyTableOperator

    files = [f"s3://b/{number}" for number in range(100_000)]
    found = {"partition": "day=1", "what": "rows", "original": 2, "delta": 1}
    differs = VerifyResult("d.t", "s3://b/t", "counts", False, mismatches=[found] * 100, mismatch_count=5_000)
    with DAG("long", schedule=None):
        vacuum = VacuumExternalFilesOperator(task_id="vacuum", table={}, staging="s3://b/staging")
        verify = VerifyTableOperator(task_id="verify", table={}, files={})
    result = VacuumResult("d.t", files, location="s3://b/t", orphaned_bytes=7).to_dict()
    travels = vacuum.shorten(result)
    assert travels["orphaned_files"] == files[:100]
    assert travels["notes"] == ["The first 100 of 100000 files; the others are with the results under the staging root"]
    assert vacuum.outcome(result).file_count == 100_000, "the report counts all of them"
    outcome = verify.outcome(differs.to_dict())
    assert len(outcome.notes) == 11
    assert outcome.notes[0].startswith("day=1: rows: original 2, Delta 1")
    assert outcome.notes[-1] == "91 more of what differs: not kept: pass staging"
    kept = VerifyTableOperator(task_id="kept", table={}, files={}, staging="s3://b/staging").outcome(differs.to_dict())
    assert kept.notes[-1] == "91 more of what differs: with the results under the staging root"


def test_notes_of_a_result_travel_without_credentials(lake, run_dag) -> None:
    """A job can repeat credentials that are in its arguments."""
    engine = """
from airflow_hive_to_delta.job.documents import DONE, put_document

class LeavesCredentials(SharedSession):
    def do(self, request, results):
        kept = [VacuumResult("d.t", notes=["Kept s3://key:canary@b/t"]).to_dict()]
        put_document(results.child(DONE), {"results": kept}, None)
"""
    dag = one_task("VacuumExternalFilesOperator", f"table={table(lake)!r}").replace(
        "SharedSession()", "LeavesCredentials()"
    )
    run = run_dag(dag.replace("\nwith DAG", f"{engine}\nwith DAG"))
    assert run.xcom("it")["notes"] == ["Kept s3://***@b/t"]
    assert "canary" not in run.all_xcoms()
