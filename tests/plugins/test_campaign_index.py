"""The documents of a campaign in memory: what is old is read again, and what fails is tried again."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath

from airflow_hive_to_delta.plugins.campaign_index import CampaignIndex, Snapshot
from airflow_hive_to_delta.plugins.documents import CampaignFolder
from tests.support.campaign_documents import SimulatedCampaign


@pytest.fixture
def campaign(airflow_home: Path, tmp_path: Path) -> SimulatedCampaign:
    return SimulatedCampaign(tmp_path, tables=12).write()


class Clock:
    """Seconds that pass when a test says so."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def index_of(campaign: SimulatedCampaign, clock: Clock) -> CampaignIndex:
    return CampaignIndex(CampaignFolder(ObjectStoragePath(campaign.root.as_uri())), max_age=10, clock=clock)


def state_of(index: CampaignIndex, table: str) -> str:
    snapshot, _ = index.snapshot(60)
    assert isinstance(snapshot, Snapshot)
    return snapshot.rows[table].state


def cut_over(campaign: SimulatedCampaign, table: str) -> None:
    campaign.write_state({"format": 1, "table": table, "state": "cut_over", "history": []})


def test_a_change_is_seen_after_the_age_or_after_a_decision(campaign: SimulatedCampaign) -> None:
    index = index_of(campaign, clock := Clock())
    snapshot, progress = index.snapshot(60)
    assert snapshot is not None
    assert progress is None
    one, two = list(snapshot.rows)[:2]
    cut_over(campaign, one)
    clock.seconds = 9
    assert state_of(index, one) != "cut_over"
    clock.seconds = 10
    assert state_of(index, one) == "cut_over"
    cut_over(campaign, two)
    index.expire()
    assert state_of(index, two) == "cut_over"


def test_what_was_read_while_nobody_waited_is_not_taken_for_the_present(
    campaign: SimulatedCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_of(campaign, clock := Clock())
    may_read = threading.Event()
    read_plan = CampaignFolder.read_plan

    def wait_and_read(self: CampaignFolder, path: str) -> Any:
        may_read.wait(60)
        return read_plan(self, path)

    monkeypatch.setattr(CampaignFolder, "read_plan", wait_and_read)
    snapshot, progress = index.snapshot(0)
    assert snapshot is None
    assert progress is not None, "it is being read"
    may_read.set()
    assert index._loading is not None
    index._loading.result(60)
    table = str(json.loads(next(campaign.root.glob("tables/*/*.json")).read_text())["table"])
    cut_over(campaign, table)
    clock.seconds = 1_000
    assert state_of(index, table) == "cut_over"


def test_a_storage_that_fails_is_asked_again_by_the_next_request(
    campaign: SimulatedCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_of(campaign, Clock())
    with monkeypatch.context() as patch:
        patch.setattr(CampaignFolder, "list_files", raise_error)
        with pytest.raises(PermissionError):
            index.snapshot(60)
    snapshot, _ = index.snapshot(60)
    assert snapshot is not None
    assert len(snapshot.rows) == 12


def test_a_file_that_is_no_document_does_not_hide_later_changes(campaign: SimulatedCampaign) -> None:
    (campaign.root / "tables" / "zz").mkdir()
    (campaign.root / "tables" / "zz" / "half.json").write_text('{"table": "a')
    index = index_of(campaign, clock := Clock())
    before, _ = index.snapshot(60)
    assert before is not None
    cut_over(campaign, next(iter(before.rows)))
    clock.seconds = 10
    after, _ = index.snapshot(60)
    assert after is not None
    assert before.revision != after.revision


def raise_error(*_: Any) -> Any:
    raise PermissionError("denied")
