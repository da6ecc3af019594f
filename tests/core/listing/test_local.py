"""The files of the local disk, as the driver lists them without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_to_delta.core.errors import PartitionError, PermanentError
from airflow_hive_to_delta.core.files import FILES_ARROW_SCHEMA, SeenFolders
from airflow_hive_to_delta.core.listing import local
from airflow_hive_to_delta.core.listing.locations import TableLocation
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.files import write_files


def batches(root: Path, *days: str, seen: SeenFolders | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
    """List a table, or the given days of it, each of them a folder."""
    table = TableInfo("t", str(root))
    locations = [
        TableLocation(parse_location(f"{root}/day={day}"), {"day": day}, f"the partition day={day} of t")
        for day in days
    ] or [TableLocation(parse_location(str(root)), None, "the table t")]
    return local.list_local_files(table, locations, ConversionOptions(**options), 2, seen or SeenFolders())


def listed(root: Path, *days: str, **options: Any) -> dict[str, dict[str, str] | None]:
    """By path below the root, the partition values of each file."""
    rows = pa.Table.from_batches(batches(root, *days, **options), FILES_ARROW_SCHEMA).to_pylist(
        maps_as_pydicts="strict"
    )
    return {row["path"].removeprefix(f"file://{root}/"): row["partition_values"] for row in rows}


def test_files_of_partitions_have_their_values(tmp_path: Path) -> None:
    write_files(tmp_path / "day=1/a", tmp_path / "day=1/sub/b", tmp_path / "day=2/c", tmp_path / "day=3/d")
    assert listed(tmp_path, "1", "2") == {
        "day=1/a": {"day": "1"}, "day=1/sub/b": {"day": "1"}, "day=2/c": {"day": "2"},
    }  # fmt: skip


def test_no_batch_has_files_of_two_partitions_and_a_large_one_has_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_FILES_PER_BATCH", 2)
    write_files(*(tmp_path / f"day=1/{folder}/{name}" for folder in "abc" for name in "xy"))
    write_files(tmp_path / "day=2/f", tmp_path / "day=3/f")
    found = [batch.to_pylist(maps_as_pydicts="strict") for batch in batches(tmp_path, "1", "2", "3")]
    days = [{row["partition_values"]["day"] for row in rows} for rows in found]
    assert sorted(days, key=sorted) == [{"1"}, {"1"}, {"1"}, {"2"}, {"3"}]
    assert sum(len(rows) for rows in found) == 8


def test_delta_logs_are_seen_and_folders_that_were_listed_whole(tmp_path: Path) -> None:
    write_files(
        tmp_path / "day=1/_delta_log/0.json", tmp_path / "day=1/a", tmp_path / "day=2/_hidden/_delta_log/0.json"
    )
    seen = SeenFolders()
    assert [batch.num_rows for batch in batches(tmp_path, "1", "2", seen=seen)] == [1]
    one, two = (parse_location(f"{tmp_path}/day={day}").canonical for day in (1, 2))
    assert (seen.with_delta_log, seen.whole) == ({one}, {one, two})


def test_rule_43_missing_partitions_are_refused_after_all_others_were_listed(tmp_path: Path) -> None:
    write_files(tmp_path / "day=1/a")
    seen = SeenFolders()
    with pytest.raises(PartitionError, match="the partition day=2 of t"):
        list(batches(tmp_path, "1", "2", seen=seen))
    assert seen.whole == set()
    assert listed(tmp_path, "1", "2", allow_missing_partitions=True) == {"day=1/a": {"day": "1"}}


@pytest.mark.parametrize("name", [b"\xff.parquet", b"\xff/a.parquet"])
def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path, name: bytes) -> None:
    write_files(tmp_path / "a.parquet", Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)))
    with pytest.raises(PermanentError, match=r"'\\udcff(.parquet)?' in the table t has a name that is not UTF-8"):
        listed(tmp_path)


def test_a_location_that_is_a_file_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path / "t")
    with pytest.raises(PermanentError, match=r"Listing the table t at file://.*/t: Not a directory"):
        listed(tmp_path / "t")


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    write_files(tmp_path / "a.parquet")
    (tmp_path / "again").symlink_to(tmp_path)
    with pytest.raises(PermanentError, match="symbolic links"):
        listed(tmp_path)
