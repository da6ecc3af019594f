"""What is kept of the log's entries counts as long as the log does not say otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.lifecycle.ledger import Ledger, read_ledger
from airflow_hive_to_delta.core.lifecycle.records import Records
from tests.support.hive_folder import Folder, original
from tests.support.oracle import assert_same

pytestmark = pytest.mark.slow

#: As Delta's own writers leave them: with a ``txnId``, and without any ``commitInfo``.
OTHER_ENTRIES = {
    "with a txnId": [{"commitInfo": {"timestamp": 1, "operation": "WRITE", "engineInfo": "Spark", "txnId": "other"}}],
    "without a commitInfo": [{"txn": {"appId": "a", "version": 1}}],
}


def ledger(hive: Folder) -> Ledger:
    return read_ledger(DeltaTableView.for_path(hive.spark, str(hive.root)).snapshot)


def records(hive: Folder) -> list[Path]:
    return sorted((hive.root / "_delta_log" / "_hive_to_delta" / "ledger").glob("*.json"))


def overwrite(hive: Folder, version: int, entry: list[dict[str, Any]]) -> None:
    """Overwrite an entry, as a writer without conditional puts can when two commit a version at once."""
    path = hive.root / "_delta_log" / f"{version:020d}.json"
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    path.write_text("".join(json.dumps(action) + "\n" for action in entry))


@pytest.mark.parametrize("other", OTHER_ENTRIES)
def test_a_file_whose_entry_was_overwritten_is_added_again(converted: Folder, other: str) -> None:
    converted.write("3", "000000_0", [5])
    assert converted.sync().num_added_files == 1
    overwrite(converted, 1, OTHER_ENTRIES[other])
    assert converted.sync().num_added_files == 1
    assert_same(converted.spark, original(converted), converted.delta)
    assert [(part.first, part.last) for part in ledger(converted).parts] == [(0, 2)], "one part, made anew"


def test_the_part_that_was_made_anew_counts_when_delta_has_cleaned_up_the_entries(
    converted: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = converted.write("3", "000000_0", [5])
    converted.sync()
    overwrite(converted, 1, OTHER_ENTRIES["with a txnId"])
    path.unlink()
    assert converted.sync("complete").status == "unchanged"
    assert len(records(converted)) == 2, "both of the versions 0 and 1"
    monkeypatch.setattr("airflow_hive_to_delta.core.lifecycle.ledger._read_identity", lambda *_: None)
    found = ledger(converted)
    assert not found.forgotten
    assert sorted(row.key.rpartition("/day=")[2] for row in found.files().collect()) == ["1/000000_0", "2/000000_0"]


def test_parts_that_were_written_together_and_parts_of_earlier_versions(
    converted: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_hive_to_delta.core.lifecycle import ledger as module

    monkeypatch.setattr(module, "_MOST_PARTS", 2)
    for number in range(3):
        converted.write("3", f"00000{number}_0", [number])
        converted.sync()
    assert [(part.first, part.last) for part in ledger(converted).parts] == [(0, 3)]
    overwrite(converted, 2, OTHER_ENTRIES["with a txnId"])
    assert converted.sync().num_added_files == 1, "the digests of the parts are in the one that was made of them"
    assert_same(converted.spark, original(converted), converted.delta)
    for path in records(converted):  # as parts were before they had digests
        document = json.loads(path.read_text())
        path.write_text(json.dumps({"files": document["files"]}))
    overwrite(converted, 4, OTHER_ENTRIES["with a txnId"])
    assert converted.sync().num_added_files == 1
    assert_same(converted.spark, original(converted), converted.delta)


def test_a_record_that_is_gone_is_an_error(converted: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    converted.write("3", "000000_0", [5])
    converted.sync()
    (record,) = records(converted)
    with monkeypatch.context() as patch:
        read = Records.read
        patch.setattr(
            Records, "read", lambda self, name: None if name.startswith("ledger/") else read(self, name)
        )  # listed, and deleted before it is read
        with pytest.raises(PermanentError, match=rf"{record.name}.*is gone\. Restore it"):
            ledger(converted)
    record.write_text("{}")
    with pytest.raises(PermanentError, match=rf"{record.name}.*names no files.*entries 0 to 1, remove it"):
        converted.sync()
    record.unlink()
    assert converted.sync().status == "unchanged"
    assert ledger(converted).files().count() == 3
