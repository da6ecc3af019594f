"""Scheduled syncs in a real Airflow: tables are converted once, followed while Hive writes, and left when cut over."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from airflow_hive_to_delta import GlueDiscovery, cut_over_table
from tests.support.airflow_runs import Run, dag_source
from tests.support.lake import Lake, hand_converted
from tests.support.migrations import LOSES
from tests.support.oracle import assert_same, delta_at

REPORT = "hive_to_delta_sync.report"


def group(
    lake: Lake,
    more: str = "",
    *,
    per_table: str = "",
    engine: str = "SharedSession()",
    imports: str = "",
    sync: str = "quiet_period=None",
) -> str:
    return dag_source(
        f"hive_to_delta_sync_task_group(source=GlueSource({lake.database!r}), staging='s3://{lake.bucket}/staging',"
        f" engine={engine}, aws_conn_id=None, per_table=PerTable(retries=1, retry_delay=timedelta(0){per_table}),"
        f" sync=SyncSettings({sync}), {more})",
        imports=imports,
    )


def outcomes_of(run: Run) -> dict[str, dict[str, Any]]:
    return {t["table"].rpartition(".")[2]: t for t in run.xcom(REPORT, "report")["tables"]}


def statuses(run: Run) -> dict[str, str]:
    return {name: table["status"] for name, table in outcomes_of(run).items()}


@pytest.mark.slow
def test_converted_once_synced_after_and_left_when_cut_over(lake, run_dag, spark) -> None:
    originals = {}
    for name in ("a", "b"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
        originals[name] = lake.hive_table({"n": "bigint"}, name=name)
    arguments = f"convert_new=True, target=GlueTarget('{lake.database}_delta', create_schema=True), verify='counts'"
    mirror = "output_mode='complete', merge_schema=True"
    daily = group(lake, arguments, per_table=", batch_size=5", sync=f"{mirror}, quiet_period=None")

    first = run_dag(daily)
    assert first.state == "success"
    assert statuses(first) == {"a": "converted", "b": "converted"}
    assert outcomes_of(first)["a"]["target_table"] == f"{lake.database}_delta.a"
    assert "Verified by counts at version 0: 1 file and 1 row" in outcomes_of(first)["a"]["notes"]

    lake.put("a/000001_0", {"n": [2]})
    lake.s3.delete_object(Bucket=lake.bucket, Key="a/000000_0")
    early = run_dag(group(lake, arguments, per_table=", batch_size=5", sync=mirror))
    assert early.state == "success"
    assert statuses(early) == {"a": "unchanged", "b": "unchanged"}
    assert any(
        "younger than 0:10:00 in 1 partition(s): the table." in note for note in outcomes_of(early)["a"]["notes"]
    )
    assert [any(n.startswith("Verified") for n in outcomes_of(early)[name]["notes"]) for name in "ab"] == [False, True]
    second = run_dag(daily)
    assert second.state == "success"
    assert statuses(second) == {"a": "synced", "b": "unchanged"}
    assert any(note.startswith("1 file added, 1 removed") for note in outcomes_of(second)["a"]["notes"])
    for name, original in originals.items():
        spark.catalog.refreshTable(f"{lake.database}.{name}")
        assert_same(spark, original, delta_at(spark, lake.location(name)))

    (found,) = GlueDiscovery(lake.database, "a").discover(spark)
    assert cut_over_table(spark, found).status == "cut_over"
    third = run_dag(daily)
    assert third.state == "success"
    assert statuses(third) == {"a": "skipped", "b": "unchanged"}
    assert "It is a Delta table in its catalog: cut over" in outcomes_of(third)["a"]["error"]


def test_what_is_converted_and_not_verified_is_said(lake, run_dag) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    run = run_dag(group(lake, "convert_new=True"))
    assert (run.state, statuses(run)) == ("success", {"t": "converted"})
    assert [note for note in outcomes_of(run)["t"]["notes"] if note.startswith("Not verified: no step of this run has")]


def test_a_table_that_was_never_converted_fails_and_the_others_are_synced(lake, run_dag, spark) -> None:
    for name in ("new", "old"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    hand_converted(lake, "old")
    lake.put("old/000001_0", {"n": [2]})

    run = run_dag(group(lake))

    assert run.state == "failed"
    assert statuses(run) == {"new": "failed", "old": "synced"}
    assert lake.location("new") in outcomes_of(run)["new"]["error"]
    assert delta_at(spark, lake.location("old")).count() == 2
    assert f"1 of 2 tables failed: {lake.database}.new" in run.log


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_bad_table_stops_no_other_and_keeps_its_first_error(lake, run_dag, spark, batch_size) -> None:
    for name in ("bad", "good"):
        lake.put(f"{name}/000000_0", {"n": [1]})
        lake.glue_table({"n": "bigint"}, name=name)
    gone = f"{lake.bucket}-gone"
    lake.glue_table({"n": "bigint"}, name="gone", location=f"s3://{gone}/gone")
    hand_converted(lake, "good")
    lake.put("good/000001_0", {"n": [2]})
    lake.put("bad/000001_0", b"not parquet")

    run = run_dag(group(lake, "convert_new=True, verify='counts'", per_table=f", batch_size={batch_size}"))

    assert run.state == "failed"
    assert statuses(run) == {"bad": "failed", "gone": "failed", "good": "synced"}
    assert "is not a Parquet file" in outcomes_of(run)["bad"]["error"]
    assert gone in outcomes_of(run)["gone"]["error"]
    assert "Verified by counts at version 1: 2 files and 2 rows" in outcomes_of(run)["good"]["notes"]
    assert f"2 of 3 tables failed: {lake.database}.bad, {lake.database}.gone" in run.log
    assert delta_at(spark, lake.location("good")).count() == 2
    last = Counter(state for task, state in run.states.items() if ".verify[" in task)
    assert last == ({"success": 1, "upstream_failed": 2} if batch_size is None else {"success": 1})


@pytest.mark.slow
def test_what_this_run_wrote_is_verified_though_its_result_was_lost(lake, run_dag, clear_and_run) -> None:
    lake.put("t/000000_0", {"n": [1]})
    lake.glue_table({"n": "bigint"}, name="t")
    hand_converted(lake, "t")
    lake.put("t/000001_0", {"n": [2]})

    run = run_dag(group(lake, "verify='counts'", imports=LOSES.format(action="sync"), engine="Loses()"))

    assert run.state == "success"
    sync = f"hive_to_delta_sync.tables.sync[{lake.database}.t]"
    assert run.tries[sync] == 1, "the job has left the result of the table itself"
    assert statuses(run) == {"t": "synced"}
    assert any(note.startswith("Verified by counts at version 1: ") for note in outcomes_of(run)["t"]["notes"])

    lake.put("t/000002_0", {"n": [3]})
    again = clear_and_run(run)
    assert again.state == "success", "a newer list says nothing of what this run wrote"
    assert any(note.startswith("Not verified: ") for note in outcomes_of(again)["t"]["notes"])
