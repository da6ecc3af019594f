"""Campaigns in a real Airflow: waves over a lake on moto, on the Spark session of the tests."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_to_delta.campaigns.store import CampaignStore
from tests.support.airflow_runs import dag_source
from tests.support.lake import Lake
from tests.support.oracle import assert_same, delta_at

NOTIFIER = """
from airflow.sdk import BaseNotifier
from tests.task_groups.notes import NOTES

class Note(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, text):
        super().__init__()
        self.text = text

    def notify(self, context):
        NOTES.append(self.text)
"""


def campaign(lake: Lake, more: str = "", *, phase: str = "convert", engine: str = "SharedSession()") -> str:
    source = f"source=GlueSource({lake.database!r}), sizes='list', " if phase == "convert" else ""
    return dag_source(
        f"hive_to_delta_campaign('lake', 'hive_to_delta', {source}phase={phase!r}, staging='s3://{lake.bucket}/staging',"
        f" packed=Lane(engine={engine}), aws_conn_id=None, "
        f"retries=Retries(attempts=2, backoff=timedelta(0), in_unit=1, delay_in_unit=timedelta(0)), {more})"
    )


def states(lake: Lake) -> dict[str, Any]:
    store = CampaignStore.open(f"s3://{lake.bucket}/staging", "lake")
    return {name.rpartition(".")[2]: state for name, state in store.states().items()}


def test_a_wave_converts_and_verifies_packs_small_tables_and_names_what_failed(lake, run_dag, spark) -> None:
    originals = {}
    for name in ("a", "b", "large"):
        lake.put(f"{name}/000000_0", {"n": [1, 2] if name != "large" else list(range(1000))})
        lake.glue_table({"n": "bigint"}, name=name)
        originals[name] = lake.hive_table({"n": "bigint"}, name=name)
    lake.put("bad/000000_0", b"not parquet")
    lake.glue_table({"n": "bigint"}, name="bad")

    run = run_dag(campaign(lake, "units=UnitSize(bytes=3000)"))
    print(run.states, {n: (s.state, s.error) for n, s in states(lake).items()}, run.log[-6000:])

    assert run.state == "failed"
    found = states(lake)
    assert {name: state.state for name, state in found.items()} == {
        "a": "verified",
        "b": "verified",
        "bad": "refused",
        "large": "verified",
    }
