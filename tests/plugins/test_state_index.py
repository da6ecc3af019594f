"""The index that waves write of the states: the page starts from it, and shows no state that is not the latest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath

from airflow_hive_to_delta.campaigns.closing import write_summary
from airflow_hive_to_delta.campaigns.decisions import Decision
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.view.state_index import StateIndex, parse_index
from airflow_hive_to_delta.plugins import campaign_index
from airflow_hive_to_delta.plugins.campaign_index import CampaignIndex, Snapshot
from airflow_hive_to_delta.plugins.documents import CampaignFolder
from tests.support.campaigns import NOON, add_decision, local_store, planned, row

TABLES = 45


def open_page(address: str) -> Snapshot:
    """What a process of the API server finds that has just been started."""
    snapshot, _ = CampaignIndex(CampaignFolder(ObjectStoragePath(address)), max_age=0).snapshot(60)
    assert snapshot is not None
    return snapshot


def change(store: CampaignStore, table: str, owner: str) -> None:
    state = store.state(table)
    assert state is not None
    store.write_state(state.change("refused", NOON, run="r", unit="0", changes={"owner": owner, "error": "It is ORC"}))


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests to S3 by their kinds."""
    s3fs: Any = import_module("s3fs")
    sent: Counter[str] = Counter()
    call = s3fs.S3FileSystem._call_s3

    async def count(self: Any, method: str, *arguments: Any, **named: Any) -> Any:
        sent[method] += 1
        return await call(self, method, *arguments, **named)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", count)
    return sent


def test_the_page_reads_the_index_and_what_has_changed_since(
    airflow_home: Path, s3: Any, bucket: str, aws_endpoint: str, requests: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {"conn_type": "aws", "login": "k", "password": "s", "extra": {"endpoint_url": aws_endpoint}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    store = CampaignStore.open(f"s3://{bucket}/staging", "lake", s3_client=s3)
    planned(store, [row(f"t{number}") for number in range(TABLES)])
    for number in range(5):
        add_decision(store, Decision("2026-11-18T12:00:00+00:00", "ada", f"sales.t{number}", priority=number))
    write_summary(store, store.states(), phase="convert", now=NOON)
    changed = {f"sales.t{number}" for number in (3, 37, 44)}
    for table in changed:
        change(store, table, "risk")
    add_decision(store, Decision("2026-11-18T12:00:00+00:00", "ada", "sales.t0", priority=1_000))

    address = f"s3://lake@{bucket}/staging/campaigns/lake"
    requests.clear()
    seen = open_page(address)
    assert {table for table, each in seen.rows.items() if each.owner == "risk"} == changed
    assert {table for table, each in seen.rows.items() if each.state == "refused"} == changed
    assert (seen.rows["sales.t0"].priority, seen.rows["sales.t4"].priority) == (1_000, 4)
    assert requests["get_object"] == 2 + len(changed) + 1, "the plan and the index, three states and one decision"
    assert (requests["list_objects_v2"], requests.total() <= 12) == (2, True), "for any number of tables up to 1,000"

    store.write_bytes("index.json", b'{"format": 1')
    requests.clear()
    assert open_page(address) == seen
    assert requests["get_object"] == 2 + TABLES + 6, "without an index each of them"


def test_a_state_that_changes_while_the_index_is_made_is_read(
    airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = local_store(tmp_path)
    planned(store, [row("before"), row("after"), row("never")])
    read_all = CampaignStore.read_all

    def read_among_changes(self: CampaignStore, paths: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        change(store, "sales.before", "changed")
        found = list(read_all(self, paths))
        change(store, "sales.after", "changed")
        return iter(found)

    with monkeypatch.context() as patch:
        patch.setattr(CampaignStore, "read_all", read_among_changes)
        states = store.states()
    assert (states["sales.before"].owner, states["sales.after"].owner) == ("changed", "")
    write_summary(store, states, phase="convert", now=NOON)
    monkeypatch.setattr(campaign_index, "_WORTH_AN_INDEX", 0)
    read: list[str] = []
    read_files = CampaignFolder.read_files

    def note_and_read(self: CampaignFolder, paths: Iterable[str]) -> Any:
        wanted = list(paths)
        read.extend(wanted)
        return read_files(self, wanted)

    monkeypatch.setattr(CampaignFolder, "read_files", note_and_read)
    rows = open_page((tmp_path / "campaigns" / "lake").as_uri()).rows
    assert {name.removeprefix("sales."): each.owner for name, each in rows.items()} == {
        **{"before": "changed", "after": "changed", "never": ""},
    }
    assert sorted(Path(path).name.split(".")[1].split("-")[0] for path in read) == ["after", "before"]


def test_an_index_that_is_none_has_nothing(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    planned(store, [row("one")])
    write_summary(store, store.states(), phase="convert", now=NOON)
    content = store.read_bytes("index.json") or b""
    assert list(parse_index(content).states) == [path for path, _ in store.states().documents.values()]
    document = json.loads(content)
    state = document["states"][0]
    for broken in (
        *(b"", b"[]", b"{}", content[:-9], b"\xff"),
        *(document | {"format": 2}, document | {"columns": []}, document | {"states": [state[:-1]]}),
        *(document | {"states": [3]}, document | {"states": None}, document | {"decisions": [["a", "b"]]}),
        document | {"states": [[*state[:2], None, *state[3:]]]},
    ):
        assert parse_index(broken if isinstance(broken, bytes) else json.dumps(broken).encode()) == StateIndex(), broken
