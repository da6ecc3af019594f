"""States made again where documents are lost, from logs that Delta has cleaned up or that cannot be read."""

from __future__ import annotations

from pathlib import Path

from airflow_hive_to_delta.campaigns.drafts import finish_plan
from airflow_hive_to_delta.campaigns.plan import PlanRow, read_plan
from airflow_hive_to_delta.campaigns.rebuild import rebuild_states
from airflow_hive_to_delta.cli import main
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.storage.local import LocalStorage
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.campaigns import NOON, local_store, row


def table(folder: Path, name: str, *log: str) -> TableInfo:
    """A table on disk whose Delta log has files of these names."""
    (folder / name / "_delta_log").mkdir(parents=True)
    for file in log:
        (folder / name / "_delta_log" / file).write_text("{}")
    return TableInfo(name, f"file://{folder / name}", database="sales")


def test_a_table_whose_first_entry_delta_has_cleaned_up_is_still_ours(tmp_path: Path) -> None:
    store = local_store(tmp_path / "staging")
    old = table(tmp_path, "old", f"{40:020d}.checkpoint.parquet", f"{40:020d}.json", "_last_checkpoint")
    Records(LocalStorage(), parse_location(old.location)).keep_source(old)
    others = table(tmp_path, "others", f"{40:020d}.checkpoint.parquet", f"{40:020d}.json", "_last_checkpoint")
    written = rebuild_states(store, map(PlanRow.of_table, (old, others)), run="r", now=NOON)
    assert (written["sales.old"].state, written["sales.old"].version) == ("converted", 40)
    assert (written["sales.others"].state, written["sales.others"].version) == ("planned", None)


def test_a_log_that_cannot_be_read_stops_no_other_table_and_needs_a_person(tmp_path: Path) -> None:
    store = local_store(tmp_path / "staging")
    rows = [
        PlanRow.of_table(table(tmp_path, "broken", f"{5:020d}.json")),
        row("plain", decision="refused", reason="why"),
    ]
    rows[1].definition = TableInfo("plain", f"file://{tmp_path}/plain", database="sales").to_dict()
    written = rebuild_states(store, rows, run="r", now=NOON)
    broken, plain = written["sales.broken"], written["sales.plain"]
    assert (broken.state, broken.retryable, broken.history[-1]["unit"]) == ("needs_person", False, "rebuild")
    assert f"{tmp_path}/broken/_delta_log" in (broken.error or "")
    assert "Fix what the error names" in broken.advice
    assert (plain.state, plain.error) == ("refused", "why")
    assert rebuild_states(store, rows, run="again", now=NOON) == {}, "what a document says stays"


def test_a_plan_that_cannot_be_read_is_made_anew_by_the_task_that_plans(tmp_path: Path, capsys, caplog) -> None:
    store = local_store(tmp_path)
    assert main(["rebuild-states", f"file://{tmp_path}", "lake"]) == 1
    assert "plan.parquet has no table, expected the plan of the campaign" in capsys.readouterr().err
    store.write_bytes("plan.parquet", b"PAR1 and no more")
    assert main(["rebuild-states", f"file://{tmp_path}", "lake"]) == 1
    assert "Clear the task that plans" in capsys.readouterr().err
    finish_plan(store, [row("a")], run="one", now=NOON, dag_id="d")
    assert "without what the old one knew" in caplog.text
    assert [each.table for each in read_plan(store)] == ["sales.a"]
