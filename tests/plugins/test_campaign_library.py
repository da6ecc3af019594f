"""What the library of campaigns writes is what the page reads, and the other way around."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from airflow.sdk import ObjectStoragePath

from airflow_hive_to_delta.campaigns import states as library
from airflow_hive_to_delta.campaigns.closing import close_wave, write_summary
from airflow_hive_to_delta.campaigns.decisions import apply_decisions, read_decisions
from airflow_hive_to_delta.campaigns.view.burn_down import burn_down
from airflow_hive_to_delta.campaigns.waves import plan_wave
from airflow_hive_to_delta.plugins.campaign_index import CampaignIndex, Snapshot
from airflow_hive_to_delta.plugins.documents import CampaignFolder
from tests.support.campaigns import NOON, local_store, planned, row


def read(index: CampaignIndex) -> Snapshot:
    snapshot, _ = index.snapshot(60)
    assert snapshot is not None
    return snapshot


def test_the_page_reads_what_the_library_writes(airflow_home: Path, tmp_path: Path) -> None:
    store = local_store(tmp_path)
    planned(
        store, [row("one", owner="risk", priority=2), row("two", decision="refused", reason="It is ORC"), row("three")]
    )
    write_summary(store, store.states(), phase="convert", now=NOON, dag_id="migrate")
    folder = CampaignFolder(ObjectStoragePath((tmp_path / "campaigns" / "lake").as_uri()))
    index = CampaignIndex(folder, max_age=0)
    summary = index.summary()
    assert summary is not None
    assert summary["dag_id"] == "migrate"
    rows = read(index).rows
    assert {name: each.state for name, each in rows.items()} == {
        **{"sales.one": "planned", "sales.three": "planned", "sales.two": "refused"},
    }
    assert (rows["sales.one"].owner, rows["sales.one"].priority, rows["sales.two"].error) == ("risk", 2, "It is ORC")
    assert folder.read_state("sales.one") == store.read("tables/" + next(iter_states(tmp_path, "sales.one")))


def test_the_library_acts_upon_a_decision_of_the_page(airflow_home: Path, tmp_path: Path) -> None:
    store = local_store(tmp_path)
    planned(store, [row("one"), row("two")])
    folder = CampaignFolder(ObjectStoragePath((tmp_path / "campaigns" / "lake").as_uri()))
    index = CampaignIndex(folder, max_age=0)
    about = {"format": 1, "at": "2026-11-18T12:00:00+00:00", "by": "ada", "table": "sales.one"}
    folder.write_decisions([{**about, "decision": "exclude", "note": "a copy"}, {**about, "priority": 9}])
    before = read(index).rows["sales.one"]
    assert (before.state, before.pending, before.priority) == ("planned", "exclude", 9)
    apply_decisions(store, store.states(), read_decisions(store), run="next", now=NOON)
    after = read(index).rows["sales.one"]
    assert (after.state, after.pending, after.priority) == ("excluded", "", 9)
    assert plan_wave(store, "next", now=NOON, about={"dag_id": "migrate", "run_id": "r"}) is not None
    running = index.summary()
    assert running is not None
    assert [(wave["run_id"], wave["ended"]) for wave in running["waves"]] == [("r", None)], "seen while it runs"
    snapshot = read(index)
    assert burn_down(snapshot.rows.values(), snapshot.since, running, NOON.timestamp())["tables"][0] == 2
    close_wave(store, "next", now=NOON)
    summary = index.summary()
    assert summary is not None
    assert (summary["dag_id"], summary["waves"][0]["run_id"]) == ("migrate", "r")


def test_the_page_knows_every_state_and_when_a_table_is_done() -> None:
    for phase in library.PHASES:
        assert library.done_states({"phase": phase}) - {"synced"} == library.FINAL[phase] - {"synced"}
        final = sorted(library.final_states(phase, verify=False))
        assert library.done_states({"phase": phase, "final": final}) >= set(final)


def iter_states(folder: Path, table: str) -> Iterator[str]:
    for path in (folder / "campaigns" / "lake" / "tables").rglob("*.json"):
        if f'"{table}"' in path.read_text():
            yield "/".join(path.parts[-2:])
