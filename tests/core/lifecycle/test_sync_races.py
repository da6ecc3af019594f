"""Syncs beside other writers, and syncs that end in the middle."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
from airflow_hive_to_delta.core.errors import (
    PermanentError,
    TransientError,
)
from airflow_hive_to_delta.core.lifecycle.ledger import read_ledger
from airflow_hive_to_delta.core.lifecycle.sync.commit import commit_changes
from airflow_hive_to_delta.core.lifecycle.sync.sync import sync_table
from airflow_hive_to_delta.core.models import ParquetFileInfo, TableInfo
from tests.support.crashes import at_every_step
from tests.support.hive_folder import Folder, Walk, original
from tests.support.oracle import assert_same
from tests.support.project import PROJECT

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_two_syncs_at_once_make_one(converted: Folder) -> None:
    converted.write("1", "000001_0", [10])
    results: list[Any] = []

    def sync() -> None:
        try:
            results.append(converted.sync())
        except (PermanentError, TransientError) as error:
            results.append(error)

    threads = [threading.Thread(target=sync) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.status for result in results) == ["synced", "unchanged", "unchanged"]
    assert_same(converted.spark, original(converted), converted.delta)


@pytest.mark.slow
def test_a_sync_that_loses_a_race_compares_again(converted: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_hive_to_delta.core.lifecycle.sync import sync

    converted.write("3", "000000_0", [5])
    whole = commit_changes
    raced: list[bool] = []

    def commit(*arguments: Any) -> Any:
        if not raced:
            raced.append(True)
            converted.sql("DELETE FROM {t} WHERE id = 3")
        return whole(*arguments)

    monkeypatch.setattr(sync, "commit_changes", commit)
    result = converted.sync("complete")
    assert (result.version, result.num_added_files) == (2, 1)
    assert converted.ids == [("1", 1), ("1", 2), ("3", 5)]


@pytest.mark.slow
@pytest.mark.parametrize("random_prefixes", ["false", "true"])
def test_what_delta_commits_during_the_listing_is_not_taken_for_a_file_of_hive(
    folder: Folder, random_prefixes: str
) -> None:
    """With random prefixes it lies in a folder of no partition, which is refused of a file of Hive."""
    folder.convert()
    before = folder.ids
    folder.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('delta.randomizeFilePrefixes' = '{random_prefixes}')")
    listings: list[int] = []

    class WithAnotherWriter(Walk):
        def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
            if not listings:
                folder.sql("INSERT INTO {t} VALUES (9, '9')")
            listings.append(1)
            return super().list_files(spark, table)

    result = sync_table(folder.spark, folder.table, WithAnotherWriter())
    assert (result.status, result.version, len(listings)) == ("unchanged", 2, 2)
    assert folder.ids == [*before, ("9", 9)]


@pytest.mark.slow
def test_a_crash_at_every_step_is_mended_by_the_same_call(spark: SparkSession, tmp_path: Path) -> None:
    made: list[Folder] = []

    def fresh() -> Folder:
        hive = Folder(spark, tmp_path / f"t{len(made)}")
        made.append(hive)
        hive.write("1", "000000_0", [1, 2])
        hive.write("2", "000000_0", [3])
        hive.convert()
        hive.write("1", "000000_0", [100, 200, 300])
        (hive.root / "day=2" / "000000_0").unlink()
        hive.write("3", "000000_0", [5])
        return hive

    def check(hive: Folder) -> None:
        assert hive.ids == [("1", 100), ("1", 200), ("1", 300), ("3", 5)]
        assert hive.sync("complete").status == "unchanged"

    steps = at_every_step(fresh, lambda hive: hive.sync("complete", run_version=1), check)
    assert len(steps) == 4, "the removes, the adds, the ledger and its record"


@pytest.mark.slow
def test_many_parts_of_the_ledger_are_written_together(converted: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_hive_to_delta.core.lifecycle import ledger

    monkeypatch.setattr(ledger, "_MOST_PARTS", 1)
    for number in range(3):
        converted.write("5", f"00000{number}_0", [number])
        assert converted.sync().num_added_files == 1
    view = DeltaTableView.for_path(converted.spark, str(converted.root))
    found = read_ledger(view.snapshot)
    assert [(part.first, part.last) for part in found.parts] == [(0, 3)]
    assert found.files().count() == 5
    assert converted.sync().status == "unchanged"
    assert_same(converted.spark, original(converted), converted.delta)


KILLED = """
import os, signal, sys
from airflow_hive_to_delta import local_session
from airflow_hive_to_delta.core.delta.log import commits as delta_log
from airflow_hive_to_delta.core.lifecycle.sync import sync
from tests.support.hive_folder import Folder
from pathlib import Path

spark = local_session(conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
whole = delta_log.commit

def commit(*arguments, **options):
    assert whole(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

delta_log.commit = commit
Folder(spark, Path(sys.argv[1])).sync("complete", run_version=1)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_between_its_entries(converted: Folder) -> None:
    converted.write("1", "000000_0", [100, 200, 300])
    command = [sys.executable, "-c", KILLED, str(converted.root)]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    assert converted.version == 1, "the old file was removed, and the new one not added"
    assert converted.sync("complete", run_version=1).num_added_files == 1
    assert converted.ids == [("1", 100), ("1", 200), ("1", 300), ("2", 3)]
    assert converted.sync("complete", run_version=1).status == "already_synced"
