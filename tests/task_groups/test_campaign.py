"""Campaigns in a real Airflow: waves over a lake on moto, on the Spark session of the tests."""

from __future__ import annotations

import os
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_to_delta import GlueDiscovery
from airflow_hive_to_delta.campaigns.decisions import Decision
from airflow_hive_to_delta.campaigns.leases import live_leases
from airflow_hive_to_delta.campaigns.plan import first_states, read_plan
from airflow_hive_to_delta.campaigns.rebuild import rebuild_states
from airflow_hive_to_delta.campaigns.states import TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.times import now, parse_time
from airflow_hive_to_delta.cli import main
from airflow_hive_to_delta.core.errors import PermanentError
from tests.support.airflow_runs import Run, dag_source
from tests.support.campaigns import NOTES, add_decision, answering
from tests.support.inventories import put_inventory
from tests.support.lake import Lake
from tests.support.migrations import LOSES
from tests.support.oracle import assert_same, delta_at

NOTIFIER = """
from airflow.sdk import BaseNotifier
from tests.support.campaigns import NOTES

class Note(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, text):
        super().__init__()
        self.text = text

    def notify(self, context):
        NOTES.append(self.text)
"""


def campaign(
    lake: Lake,
    more: str = "",
    *,
    phase: str = "convert",
    plan: str = "sizes='list'",
    size: str = "",
    engine: str = "SharedSession()",
    imports: str = "",
) -> str:
    source = f"source=GlueSource({lake.database!r}), plan=PlanSettings({plan}), " if phase == "convert" else ""
    retries = "Retries(attempts=2, backoff=timedelta(0), in_unit=1, delay_in_unit=timedelta(0))"
    return dag_source(
        f"hive_to_delta_campaign('lake', 'hive_to_delta', {source}phase={phase!r}, staging='s3://{lake.bucket}/staging',"
        f" units=Units(UnitSize({size}), packed=Lane(engine={engine}), retries={retries}), aws_conn_id=None, {more})",
        imports=imports,
    )


def store_of(lake: Lake) -> CampaignStore:
    return CampaignStore.open(f"s3://{lake.bucket}/staging", "lake")


def table_states(lake: Lake) -> dict[str, TableState]:
    return {name.rpartition(".")[2]: state for name, state in store_of(lake).states().items()}


def names(lake: Lake) -> dict[str, str]:
    return {name: state.state for name, state in table_states(lake).items()}


def small_table(lake: Lake, name: str, files: int = 1) -> Any:
    for number in range(files):
        lake.put(f"{name}/00000{number}_0", {"n": [number, 7]})
    lake.glue_table({"n": "bigint"}, name=name)
    return lake.hive_table({"n": "bigint"}, name=name)


def state_key(lake: Lake) -> str:
    """Where the state of the only table of a campaign is."""
    (found,) = lake.s3.list_objects_v2(Bucket=lake.bucket, Prefix="staging/campaigns/lake/tables/")["Contents"]
    return str(found["Key"])


def decide(lake: Lake, table: str, **decision: Any) -> None:
    add_decision(store_of(lake), Decision("2026-11-18T12:00:00+00:00", "ada", f"{lake.database}.{table}", **decision))


def test_waves_convert_verify_and_say_what_failed_until_nothing_is_left(lake, run_dag, spark) -> None:
    NOTES.clear()
    originals = {name: small_table(lake, name, 4 if name == "large" else 1) for name in ("a", "b", "large")}
    lake.put("bad/000000_0", b"not parquet")
    lake.glue_table({"n": "bigint"}, name="bad")
    view = {"Name": "view", "TableType": "VIRTUAL_VIEW", "StorageDescriptor": {"Columns": []}}
    lake.glue.create_table(DatabaseName=lake.database, TableInput=view)
    wave_ended, needs_person = "{{ campaign.text }}", "{{ campaign.owner }}: {{ campaign.text }}"
    closing = f"closing=Closing(wave_ended=[Note({wave_ended!r})], needs_person=[Note({needs_person!r})])"
    dag = campaign(
        lake,
        f"{closing}, target=GlueTarget('{lake.database}_delta', create_schema=True)",
        plan="sizes='list', owner_of=lambda table: 'team'",
        size="files=3",
        imports=NOTIFIER,
    )

    first: Run = run_dag(dag)

    assert first.state == "failed"
    assert "1 of 4 tables failed, of which 0 are tolerated" in first.log
    assert names(lake) == {
        "a": "verified",
        "b": "verified",
        "bad": "needs_person",
        "large": "verified",
        "view": "refused",
    }
    assert [state for task, state in first.states.items() if task.startswith(("packed", "alone"))] == ["success"] * 2
    assert any(task.startswith("alone[0001: ") and task.endswith(".large]") for task in first.states)
    for name, original in originals.items():
        assert_same(spark, original, delta_at(spark, lake.location(name)))
    state = table_states(lake)["a"]
    assert (state.target_table, state.version, state.verified, state.rows) == (
        f"{lake.database}_delta.a",
        0,
        {"counts": 0},
        2,
    )
    assert (state.owner, state.job_url is not None, state.history[-1]["unit"]) == ("team", True, "0000")
    assert [note.partition(":")[0] for note in NOTES] == ["Campaign lake", "team"]
    assert f"1 tables of team need a person: {lake.database}.bad" in NOTES[1]
    assert "1 refused" in NOTES[0]
    store = store_of(lake)
    assert live_leases(store, now()) == {}
    assert b"is not a Parquet file" in (store.read_bytes("report.html") or b"")
    assert b".view,refused,0,team,refused" in (store.read_bytes("plan.csv") or b"")
    assert max(len(line) for line in first.all_xcoms().splitlines()) < 2_000

    lake.put("bad/000000_0", {"n": [7]})
    decide(lake, "bad", decision="retry")
    second = run_dag(dag)
    assert (second.state, names(lake)["bad"]) == ("success", "verified")
    summary = store.read("summary.json") or {}
    assert [wave["tables"] for wave in summary["waves"]] == [4, 1]
    assert summary["by_state"]["verified"]["tables"] == 4

    third = run_dag(dag)
    assert third.state == "success"
    skipped = {task.partition("[")[0] for task, state in third.states.items() if state == "skipped"}
    assert skipped == {"measure", "plan_wave", "large_units", "packed", "alone", "close_wave"}

    for entry in lake.s3.list_objects_v2(Bucket=lake.bucket, Prefix="staging/campaigns/lake/tables/")["Contents"]:
        lake.s3.delete_object(Bucket=lake.bucket, Key=entry["Key"])
    rebuild_states(store, read_plan(store, with_definitions=True), run="rebuild", now=now())
    assert names(lake) == {"a": "verified", "b": "verified", "bad": "verified", "large": "verified", "view": "refused"}
    assert rebuild_states(store, read_plan(store, with_definitions=True), run="again", now=now()) == {}


def table_of_a_kind(lake: Lake, number: int) -> Any:
    """A small table: of one file, of several with nulls, or with partitions of which one lies elsewhere."""
    name = f"t{number:04d}"
    if number % 3 == 0:
        return small_table(lake, name)
    amounts = pa.array([Decimal(number) / 4, None], pa.decimal128(12, 2))
    columns: dict[str, str] = {"n": "bigint", "amount": "decimal(12,2)", "name": "string"}
    rows = pa.table({"n": [number, None], "amount": amounts, "name": [f"{name} ☃", None]})
    if number % 3 == 1:
        lake.put(f"{name}/000000_0", rows)
        lake.put(f"{name}/000001_0", rows)
        arguments: tuple[Any, ...] = (columns,)
    else:
        places = [
            ("2026-11-17", f"{name}/day=2026-11-17"),
            ("2026-11-18", f"elsewhere/{name}/moved"),
            (None, f"{name}/x"),
        ]
        for _, folder in places:
            lake.put(f"{folder}/000000_0", rows)
        partitions = [((value,), f"s3://{lake.bucket}/{folder}") for value, folder in places]
        arguments = (columns, {"day": "string"}, partitions)
    lake.glue_table(*arguments, name=name)
    return lake.hive_table(*arguments, name=name)


def test_small_tables_of_several_kinds_are_converted_in_two_waves_and_equal_their_originals(
    lake, run_dag, spark
) -> None:
    count = int(os.environ.get("CAMPAIGN_TABLES", "6"))
    originals = {f"t{number:04d}": table_of_a_kind(lake, number) for number in range(count)}
    wave = -(-count * 2 // 3)
    dag = campaign(lake, f"wave=Wave(tables={wave})", size=f"tables={max(2, count // 12)}")

    first, second = run_dag(dag), run_dag(dag)

    assert (first.state, second.state) == ("success", "success")
    states = table_states(lake)
    assert {name: state.state for name, state in states.items()} == dict.fromkeys(originals, "verified")
    assert all([entry["state"] for entry in state.history] == ["planned", "verified"] for state in states.values())
    summary = store_of(lake).read("summary.json") or {}
    assert [each["tables"] for each in summary["waves"]] == [wave, count - wave]
    assert live_leases(store_of(lake), now()) == {}
    longest = max(len(line) for run in (first, second) for line in run.all_xcoms().splitlines())
    assert longest < 3_000, "addresses of units, whatever the number of tables"
    for name, original in originals.items():
        assert_same(spark, original, delta_at(spark, lake.location(name)))


def test_a_plan_is_approved_then_synced_cut_over_by_a_person_and_rolled_back(lake, run_dag, spark) -> None:
    original = small_table(lake, "a")
    with answering("Reject") as questions:
        rejected = run_dag(campaign(lake, "approval=Approval()"))
    assert (rejected.state, names(lake)) == ("success", {"a": "planned"})
    assert rejected.states["close_wave"] == rejected.states["plan_wave"] == "skipped"
    assert f"| `{lake.database}.a` |" in questions[0]
    assert f"- The plan: `s3://{lake.bucket}/staging/campaigns/lake/plan.csv`" in questions[0]
    with answering("Approve"):
        assert run_dag(campaign(lake, "approval=Approval()")).state == "success"
    state = table_states(lake)["a"]
    assert state.state == "verified"
    assert [(entry["state"], entry.get("by")) for entry in state.history] == [
        ("planned", None),
        ("approved", "ada"),
        ("verified", None),
    ]

    lake.put("a/000001_0", {"n": [9]})
    assert run_dag(campaign(lake, "sync=SyncSettings(quiet_period=None)", phase="sync")).state == "success"
    assert (names(lake)["a"], table_states(lake)["a"].version) == ("synced", 1)
    spark.catalog.refreshTable(f"{lake.database}.a")
    assert_same(spark, original, delta_at(spark, lake.location("a")))

    with answering("Reject"):
        assert run_dag(campaign(lake, "approval=Approval()", phase="cut_over")).state == "success"
    assert names(lake)["a"] == "synced"
    with answering("Approve") as questions:
        assert run_dag(campaign(lake, "approval=Approval()", phase="cut_over")).state == "success"
    assert "**Cut over 1 table**" in questions[0]
    assert f"- The report: `s3://{lake.bucket}/staging/campaigns/lake/report.html`" in questions[0]
    assert names(lake)["a"] == "cut_over"
    assert table_states(lake)["a"].probation_until is not None
    assert GlueDiscovery(lake.database).discover(spark)[0].format == "delta"
    assert rebuild_states(store_of(lake), read_plan(store_of(lake), with_definitions=True), run="r", now=now()) == {}
    probation = parse_time(table_states(lake)["a"].probation_until or "")
    lake.s3.put_object(Bucket=lake.bucket, Key=state_key(lake), Body=b'{"format": 1, "sta')
    with pytest.raises(PermanentError, match=r"is not JSON.*airflow-hive-to-delta rebuild-states"):
        names(lake)
    assert main(["rebuild-states", f"s3://{lake.bucket}/staging", "lake"]) == 0
    rebuilt = table_states(lake)["a"]
    assert (rebuilt.state, rebuilt.version, rebuilt.verified) == ("cut_over", 1, {"counts": 0})
    assert abs(parse_time(rebuilt.probation_until or "") - probation) < timedelta(minutes=5), "since the cut-over"

    assert run_dag(campaign(lake, f"only='{lake.database}.a'", phase="roll_back")).state == "success"
    assert names(lake)["a"] == "rolled_back"
    assert GlueDiscovery(lake.database).discover(spark)[0].format == "parquet"

    lake.s3.delete_object(Bucket=lake.bucket, Key=state_key(lake))
    rows = read_plan(store_of(lake), with_definitions=True)
    for planned_first in (False, True):  # a run may plan before somebody rebuilds the states
        if planned_first:
            lake.s3.delete_object(Bucket=lake.bucket, Key=state_key(lake))
            first_states(store_of(lake), rows, {}, run="plan", now=now())
            assert names(lake) == {"a": "planned"}
        rebuild_states(store_of(lake), rows, run="r", now=now())
        assert names(lake) == {"a": "rolled_back"}, "no wave converts again what a person has rolled back"


def test_tables_of_a_catalog_of_spark_are_planned_converted_and_synced(lake, run_dag, spark) -> None:
    lake.put("a/000000_0", {"n": [1]})
    original = lake.hive_table({"n": "bigint"}, name="a")
    source = f"source=CatalogSource('spark_catalog.{lake.database}.*'), "
    dag = campaign(lake, plan="").replace(f"source=GlueSource({lake.database!r}), ", source)
    assert run_dag(dag).state == "success"
    lake.put("a/000001_0", {"n": [2]})
    assert run_dag(campaign(lake, "sync=SyncSettings(quiet_period=None)", phase="sync")).state == "success"
    assert names(lake) == {"a": "synced"}
    spark.catalog.refreshTable(f"{lake.database}.a")
    assert_same(spark, original, delta_at(spark, lake.location("a")))


def test_a_plan_takes_sizes_from_an_inventory_and_tables_by_their_partitions(lake, run_dag) -> None:
    small_table(lake, "plain")
    for name, dates in (("new", ["2023", "2024"]), ("old", ["2022"])):
        for date in dates:
            lake.put(f"{name}/dt={date}/000000_0", {"n": [1]})
        partitions = [([date], lake.location(f"{name}/dt={date}")) for date in dates]
        lake.glue_table({"n": "bigint"}, {"dt": "string"}, partitions, name=name)
    manifest = put_inventory(lake.s3, lake.bucket, lake.add_bucket())
    sizes = {found["Key"]: found["Size"] for found in lake.s3.list_objects_v2(Bucket=lake.bucket)["Contents"]}

    def dag(condition: str) -> str:
        filtered = f"partition_filter=lambda values: {condition}"
        return campaign(lake, plan=f"sizes=InventorySizes({manifest!r}), {filtered}")

    assert run_dag(dag("values['dt'] >= '2024'")).state == "success"
    assert names(lake) == {"new": "verified", "old": "excluded", "plain": "excluded"}
    rows = {row.table.rpartition(".")[2]: row for row in read_plan(store_of(lake))}
    expected = sum(size for key, size in sizes.items() if key.startswith("new/"))
    assert (rows["new"].files, rows["new"].bytes) == (2, expected)
    assert rows["old"].reason == "None of its 1 partitions is taken (partition_filter)"

    decide(lake, "old", decision="include")
    assert run_dag(dag("False")).state == "success"
    assert names(lake) == {"new": "verified", "old": "verified", "plain": "excluded"}, "a person takes it in"
    rows = {row.table.rpartition(".")[2]: row for row in read_plan(store_of(lake))}
    assert rows["new"].decision == "convert", "a table that a wave has taken stays in the campaign"


def test_a_unit_whose_job_is_lost_takes_what_it_has_left_of_each_table(lake, run_dag) -> None:
    small_table(lake, "a")
    small_table(lake, "b")
    run = run_dag(campaign(lake, engine="Loses()", imports=LOSES.format(action="convert")))
    assert (run.state, set(names(lake).values())) == ("success", {"verified"})
    assert [tries for task, tries in run.tries.items() if task.startswith("packed")] == [1], "both had their results"


#: An engine whose jobs end when the states of their tables are known.
WATCHED = """
import time
from airflow_hive_to_delta.campaigns.store import CampaignStore
from tests.support.campaigns import NOTES

class Watched(SharedSession):
    def do(self, request, results):
        super().do(request, results)
        store = CampaignStore.open({staging!r}, "lake")
        for _ in range(500):
            if all(state.state == "verified" for state in store.states().values()):
                NOTES.append("known before the end of the job")
                return
            time.sleep(0.02)
"""


def test_states_are_known_while_the_job_runs(lake, run_dag, monkeypatch) -> None:
    NOTES.clear()
    monkeypatch.setattr("airflow_hive_to_delta.operators.campaigns.live_states._SECONDS", 0.01)
    small_table(lake, "a")
    small_table(lake, "b")
    watched = WATCHED.format(staging=f"s3://{lake.bucket}/staging")
    run = run_dag(campaign(lake, engine="Watched()", imports=watched))
    assert (run.state, NOTES) == ("success", ["known before the end of the job"])
    assert [len(state.history) for state in table_states(lake).values()] == [2, 2], "and written once"


def test_where_no_job_can_be_run_the_run_is_red_and_the_tables_wait_for_the_next_wave(lake, run_dag) -> None:
    small_table(lake, "a")
    broken = (
        "class Broken(SharedSession):\n    def submit(self, spec, environment):\n"
        "        from airflow_hive_to_delta.engines import JobError\n"
        "        raise JobError('No cluster', retryable=False)\n"
    )
    run = run_dag(campaign(lake, engine="Broken()", imports=broken))
    state = table_states(lake)["a"]
    assert (run.state, state.state, state.attempts) == ("failed", "planned", 0), "it is nothing that a table can help"
    assert "1 of 1 units did not end well" in run.log
    assert run_dag(campaign(lake)).state == "success"
    assert names(lake) == {"a": "verified"}


def test_what_does_not_go_together_is_refused_when_the_dag_is_parsed(airflow_home) -> None:
    from airflow.sdk import DAG

    from airflow_hive_to_delta import (
        Approval,
        CatalogSource,
        Closing,
        GlueSource,
        GlueTarget,
        InventorySizes,
        PlanSettings,
        SyncSettings,
        hive_to_delta_campaign,
    )

    source = GlueSource("sales")
    filtered = PlanSettings(partition_filter=bool)
    config: Any
    given: dict[str, Any]
    for config, given, message in (
        (InventorySizes, {"manifests": []}, "manifests is empty"),
        (Closing, {"tolerance": 1.5}, "tolerance is 1.5"),
        (PlanSettings, {"sizes": "guess"}, "sizes is 'guess'"),
        (PlanSettings, {"partition_filter": "dt > 1"}, "partition_filter is 'dt > 1', expected a function"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            config(**given)
    for wrong, message in (
        ({}, "source is None"),
        ({"source": source, "phase": "sync"}, "source or target is given with phase='sync'"),
        ({"target": GlueTarget("x"), "phase": "cut_over"}, "source or target"),
        ({"source": source, "sync": SyncSettings()}, "sync is given"),
        ({"source": source, "verify": "some"}, "verify is 'some'"),
        ({"source": source, "phase": "copy"}, "phase is 'copy'"),
        ({"source": source, "staging": "gs://bucket/x"}, "expected an address on s3:// or file://"),
        ({"source": source, "name": "a b"}, "name of the campaign is 'a b'"),
        ({"phase": "sync", "plan": filtered}, "plan is given with phase='sync'"),
        ({"source": CatalogSource("a.b.*"), "plan": filtered}, "it goes with GlueSource"),
        ({"source": source, "approval": True}, "approval is True, expected Approval"),
        ({"source": source, "units": Approval()}, "units is Approval.*, expected Units"),
    ):
        arguments: dict[str, Any] = {"name": "lake", "staging": "s3://bucket/staging", **wrong}
        with DAG("d", schedule=None), pytest.raises((ValueError, TypeError), match=message):
            hive_to_delta_campaign(**arguments)
