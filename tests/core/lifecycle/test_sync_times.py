"""How old a list of files is, and how young the files are: what a sync takes over, and what waits."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta import InventoryListing, ParquetFileInfo, TableInfo, convert
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
from airflow_hive_to_delta.core.errors import PermanentError, TransientError
from airflow_hive_to_delta.core.lifecycle.sync.sync import sync_table
from airflow_hive_to_delta.core.options import OutputMode
from airflow_hive_to_delta.core.results import ConversionResult, SyncResult
from tests.support.discoveries import KnownTables
from tests.support.hive_folder import Folder, Given, Walk, original
from tests.support.oracle import assert_same

pytestmark = pytest.mark.slow

MINUTES_10 = dt.timedelta(minutes=10)
HOUR = dt.timedelta(hours=1)


def live_files(hive: Folder) -> list[str]:
    rows = DeltaTableView.for_path(hive.spark, str(hive.root)).files.select("path").collect()
    return sorted(row.path for row in rows)


# --- lists that were made before ---------------------------------------------------------------------------------


def report(hive: Folder, listed_at: dt.datetime | None) -> InventoryListing:
    """The files as they are now, and the time that they are said to be of."""
    files = Walk().list_files(hive.spark, hive.table)
    rows = [(file.path, file.size, file.modification_time) for file in files]
    frame = hive.spark.createDataFrame(rows, "file_path string, size bigint, last_modified bigint")
    return InventoryListing(frame, listed_at=listed_at)


def convert_from(hive: Folder, listing: InventoryListing) -> ConversionResult:
    (result,) = convert(hive.spark, KnownTables(hive.table), listing, None, None, progress=False)
    return result


def sync_from(hive: Folder, listing: InventoryListing, output_mode: OutputMode) -> SyncResult:
    return sync_table(hive.spark, hive.table, listing, output_mode=output_mode)


def test_a_report_older_than_the_last_sync_is_not_mirrored(folder: Folder) -> None:
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    old = report(folder, yesterday)
    result = convert_from(folder, old)
    said = yesterday.isoformat(timespec="seconds").replace("+00:00", "Z")
    assert any(note.startswith(f"Its files were listed at {said}: what Hive wrote") for note in result.notes)
    assert sync_from(folder, old, "complete").status == "unchanged", "the report that the conversion was made from"
    with pytest.raises(PermanentError, match=r"before the list of its conversion, version 0, at .*later S3 Inventory"):
        sync_from(folder, report(folder, yesterday - HOUR), "complete")

    folder.write("3", "000000_0", [5])
    newer = report(folder, yesterday + HOUR)
    assert sync_from(folder, newer, "complete").num_added_files == 1
    with pytest.raises(PermanentError, match=r"before the list of its sync, version 1, at "):
        sync_from(folder, old, "complete")
    noted = sync_from(folder, old, "append")
    assert (noted.status, live_files(folder)[-1]) == ("unchanged", "day=3/000000_0")
    assert noted.notes[0].endswith("what Hive has written since the list waits for a newer one")
    assert sync_from(folder, newer, "complete").status == "unchanged"

    folder.write("4", "000000_0", [6])
    assert folder.sync("complete").num_added_files == 1  # listed by itself: its entry is as old as it
    with pytest.raises(PermanentError, match=r"before the list of its sync, version 2, at "):
        sync_from(folder, newer, "complete")
    assert sync_from(folder, report(folder, dt.datetime.now(dt.UTC) + HOUR), "complete").status == "unchanged"
    assert_same(folder.spark, original(folder), folder.delta)


def test_a_list_of_which_nobody_knows_the_age_is_not_mirrored(folder: Folder) -> None:
    result = convert_from(folder, report(folder, None))
    assert any(note.startswith("It is not known when its files were listed") for note in result.notes)
    folder.write("3", "000000_0", [5])
    for listing in (report(folder, None), Given(folder.spark, folder.table)):
        with pytest.raises(PermanentError, match=r"not known when its files were listed.*listed_at=.*S3Listing"):
            sync_table(folder.spark, folder.table, listing, output_mode="complete")
    assert sync_from(folder, report(folder, None), "append").num_added_files == 1
    with pytest.raises(PermanentError, match="listed_at is 2026-01-02T00:00:00, expected a time with a time zone"):
        report(folder, dt.datetime(2026, 1, 2))


def test_when_the_log_has_no_entry_of_ours_any_more_the_oldest_that_it_has_counts(converted: Folder) -> None:
    """The last sync was before the oldest entry."""
    log = converted.root / "_delta_log"
    converted.sync("complete")
    converted.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    converted.sql("INSERT INTO {t} VALUES (9, '9')")
    converted.sync("complete")
    os.utime(log / f"{2:020d}.json", (1_000_000_000, 1_000_000_000))
    for version in (0, 1):
        (log / f"{version:020d}.json").unlink()
    before, after = (dt.datetime.fromtimestamp(1_000_000_000 + more, dt.UTC) for more in (-1, 1))
    with pytest.raises(PermanentError, match="before version 2, the oldest in its log, at 2001-09-09T01:46:40Z"):
        sync_from(converted, report(converted, before), "complete")
    assert sync_from(converted, report(converted, after), "complete").status == "unchanged"


# --- partitions that Hive may be writing -------------------------------------------------------------------------


def age(path: Path, by: dt.timedelta, since: float | None = None) -> None:
    moment = (since or time.time()) - by.total_seconds()
    os.utime(path, (moment, moment))


@pytest.fixture
def quiet(folder: Folder) -> Folder:
    for path in folder.root.glob("day=*/*"):
        age(path, HOUR)
    folder.convert()
    return folder


@pytest.mark.parametrize("mode", ["append", "complete"])
def test_partitions_with_young_files_wait_whole(quiet: Folder, mode: OutputMode) -> None:
    """Half of an INSERT OVERWRITE of day 1: the old file is deleted, and one of two new ones is there."""
    (quiet.root / "day=1" / "000000_0").unlink()
    young = quiet.write("1", "000000_1", [1])
    age(quiet.write("1", "000000_2", [2]), HOUR)
    age(quiet.write("3", "000000_0", [5]), HOUR)
    first = quiet.sync(mode, quiet_period=MINUTES_10, run_version=1)
    assert (first.num_added_files, first.num_removed_files) == (1, 0)
    assert live_files(quiet) == ["day=1/000000_0", "day=2/000000_0", "day=3/000000_0"]
    assert (first.waiting_partition_count, first.waiting_partitions) == (1, ["day=1"])
    assert "files younger than 0:10:00 in 1 partition(s): day=1. What it has changed there waits" in first.notes[0]
    assert str(first).endswith(", 1 partitions wait")
    for number, status in ((1, "already_synced"), (2, "unchanged")):
        again = quiet.sync(mode, quiet_period=MINUTES_10, run_version=number)
        assert (again.status, again.waiting_partition_count) == (status, 1)
    age(young, HOUR)
    if mode == "append":
        with pytest.raises(PermanentError, match="could double rows"):
            quiet.sync(mode, quiet_period=MINUTES_10)
        return
    last = quiet.sync(mode, quiet_period=MINUTES_10)
    assert (last.num_added_files, last.num_removed_files, last.waiting_partition_count) == (2, 1, 0)
    assert_same(quiet.spark, original(quiet), quiet.delta)


def test_the_age_of_a_file_is_that_at_the_time_of_the_list(quiet: Folder) -> None:
    """A list of an earlier task, or a report, may show half of what a job has written by now."""
    listed = time.time() - 1800
    age(quiet.write("1", "000001_0", [1]), dt.timedelta(minutes=9), since=listed)
    age(quiet.write("2", "000001_0", [2]), dt.timedelta(minutes=11), since=listed)
    made = Given(quiet.spark, quiet.table, version=0, time=round(listed * 1000))
    result = sync_table(quiet.spark, quiet.table, made, quiet_period=MINUTES_10)
    assert (result.num_added_files, result.waiting_partitions) == (1, ["day=1"])
    made.version = 1
    assert sync_table(quiet.spark, quiet.table, made, quiet_period=dt.timedelta(0)).num_added_files == 1
    assert_same(quiet.spark, original(quiet), quiet.delta)


class Timeless(Walk):
    """A listing that knows no modification times."""

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
        return [ParquetFileInfo(file.path, file.size) for file in super().list_files(spark, table)]


def test_what_a_quiet_period_cannot_do_is_said(quiet: Folder) -> None:
    quiet.write("1", "000001_0", [1])
    quiet.columns = {"id": "string"}
    with pytest.raises(TransientError, match=r"in 1 partition\(s\): day=1\. overwrite_schema=True adds every file"):
        quiet.sync("complete", overwrite_schema=True, quiet_period=MINUTES_10)
    quiet.columns = {"id": "bigint"}
    with pytest.raises(PermanentError, match="quiet_period is -1 day, 23:59:00, expected"):
        quiet.sync(quiet_period=dt.timedelta(minutes=-1))
    result = sync_table(quiet.spark, quiet.table, Timeless(), quiet_period=MINUTES_10)
    assert result.num_added_files == 1
    assert "1 new or changed file(s) have no time in the list" in result.notes[0]
