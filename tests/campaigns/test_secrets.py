"""No document of a campaign has the credentials that an error, a note, a location or a person brings along."""

from __future__ import annotations

from pathlib import Path

from airflow_hive_to_delta.campaigns.closing import close_wave
from airflow_hive_to_delta.campaigns.decisions import Decision
from airflow_hive_to_delta.campaigns.drafts import finish_plan
from airflow_hive_to_delta.campaigns.outcomes import WorkOutcome
from airflow_hive_to_delta.campaigns.plan import PlanRow, read_plan
from airflow_hive_to_delta.campaigns.units import UnitWork, read_unit
from airflow_hive_to_delta.campaigns.view.report import render_campaign_report
from airflow_hive_to_delta.campaigns.waves import plan_wave
from airflow_hive_to_delta.core.models import TableInfo
from tests.support.campaigns import NOON, add_decision, failed, local_store
from tests.support.credentials import WITH_CREDENTIALS


def test_credentials_reach_no_document_of_a_campaign(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    rows, texts = [], {}
    for number, text in enumerate(WITH_CREDENTIALS):
        properties = {"password": text, "owner": "team"}
        table = TableInfo(f"t{number}", f"s3://key:canary@lake/t{number}", database="sales", properties=properties)
        rows.append(PlanRow.of_table(table))
        texts[table.qualified_name] = text
        add_decision(store, Decision("2026-11-18T12:00:00+00:00", "ada", table.qualified_name, "retry", note=text))
    finish_plan(store, rows, run="one", now=NOON, dag_id="d")
    wave = plan_wave(store, "one", now=NOON)
    assert wave is not None
    for uri in wave.packed:
        work = UnitWork(store, read_unit(store, uri), clock=lambda: NOON)
        for table in work.begin():
            text = texts[table.qualified_name]
            result = failed(table.qualified_name, text, retryable=False, notes=[text], message=text, location=text)
            work.record(table.qualified_name, WorkOutcome.of_result("convert", result))
        work.end()
    closed = close_wave(store, "one", now=NOON)
    assert len(closed.failed) == len(WITH_CREDENTIALS)
    page = render_campaign_report(closed.states.values(), closed.summary, {"run": "one"}, run="one", now=NOON)
    assert "***" in page
    assert "canary" not in page
    assert "canary" not in repr(read_plan(store, with_definitions=True))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} > {"plan.parquet", "plan.csv", "index.json", "summary.json", "0000.json"}
    assert [path.name for path in files if b"canary" in path.read_bytes()] == []
