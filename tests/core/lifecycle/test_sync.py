"""What Hive has written since a conversion reaches the Delta table, once, and what Delta has done stays done."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta import GlueDiscovery, S3Listing
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    PartitionError,
    PermanentError,
    SchemaError,
    TransientError,
    UnsupportedTableError,
)
from airflow_hive_to_delta.core.lifecycle.cut_over import GlueName
from airflow_hive_to_delta.core.lifecycle.ledger import read_ledger
from airflow_hive_to_delta.core.lifecycle.sync.commit import commit_changes
from airflow_hive_to_delta.core.lifecycle.sync.sync import sync_table
from airflow_hive_to_delta.core.models import ParquetFileInfo, TableInfo
from tests.support.crashes import at_every_step
from tests.support.hive_folder import Folder, Given, Walk, original
from tests.support.lake import Lake
from tests.support.oracle import assert_same, delta_at
from tests.support.project import PROJECT
from tests.support.small_tables import count_jobs
from tests.support.spark_versions import needs_spark_4
from tests.support.tables import write_parquet

pytestmark = pytest.mark.slow


def test_new_files_are_one_entry_with_the_transaction_of_the_run(converted: Folder) -> None:
    converted.write("2", "000001_0", [4])
    converted.write("3", "000000_0", [5, 6])
    result = converted.sync(run_version=7)
    assert (result.status, result.version, result.run_version) == ("synced", 1, 7)
    assert (result.num_added_files, result.num_removed_files) == (2, 0)
    assert (
        result.added_bytes
        == sum(path.stat().st_size for path in converted.root.glob("day=[23]/00000*"))
        - (converted.root / "day=2" / "000000_0").stat().st_size
    )
    assert_same(converted.spark, original(converted), converted.delta)
    info, *actions = converted.entry(1)
    assert info["commitInfo"]["operation"] == "STREAMING UPDATE"
    assert info["commitInfo"]["operationMetrics"] == {"numAddedFiles": "2", "numRemovedFiles": "0"}
    assert info["commitInfo"]["operationParameters"]["outputMode"] == "Append"
    assert info["commitInfo"]["operationParameters"]["epochId"] == "7"
    assert [kind for action in actions for kind in action] == ["txn", "add", "add"]
    assert actions[0]["txn"]["version"] == 7


def test_the_same_run_twice_changes_nothing(converted: Folder) -> None:
    converted.write("3", "000000_0", [5])
    assert converted.sync(run_version=7).status == "synced"
    converted.write("4", "000000_0", [6])
    for version in (7, 6):
        again = converted.sync(run_version=version)
        assert (again.status, again.version, again.num_added_files) == ("already_synced", 1, 0)
    assert converted.version == 1
    assert converted.sync(run_version=8).num_added_files == 1


def test_without_anything_new_nothing_is_written(converted: Folder) -> None:
    for mode in ("append", "complete"):
        result = converted.sync(mode)
        assert (result.status, result.version) == ("unchanged", 0)
    assert converted.version == 0


def test_a_checkpoint_is_written_at_the_tables_interval(folder: Folder, tmp_path: Path) -> None:
    folder.convert(properties={"delta.checkpointInterval": "2"})
    for day in ("4", "5", "6"):  # versions 1 to 3
        folder.write(day, "000000_0", [int(day)])
        assert folder.sync().status == "synced"
    assert [path.name for path in folder.root.glob("_delta_log/0*.checkpoint*")] == [f"{2:020d}.checkpoint.parquet"]
    # Where nobody has read the table yet, and without the entries that the checkpoint stands for.
    copy = Folder(folder.spark, tmp_path / "copy")
    shutil.copytree(folder.root, copy.root)
    for version in (0, 1, 2):
        (copy.root / "_delta_log" / f"{version:020d}.json").unlink()
    assert_same(copy.spark, original(copy), copy.delta)


def test_a_table_with_a_checkpoint_is_synced_without_a_job_if_nothing_has_changed(folder: Folder) -> None:
    folder.convert(properties={"delta.checkpointInterval": "1"})
    folder.write("4", "000000_0", [4])
    assert folder.sync().status == "synced"
    assert list(folder.root.glob("_delta_log/0*.checkpoint*"))
    for entry in (0, 1):
        (folder.root / "_delta_log" / f"{entry:020d}.json").unlink()
    # Delta cleans up the entries before a checkpoint after a month; the last one stays.
    folder.write("5", "000000_0", [5])
    assert folder.sync().status == "synced"
    with count_jobs(folder.spark) as jobs:
        assert folder.sync().status == "unchanged"
    assert jobs() == 0
    assert_same(folder.spark, original(folder), folder.delta)


def test_a_late_file_with_an_old_time_is_new(converted: Folder) -> None:
    converted.write("3", "000000_0", [5])
    converted.sync()
    converted.write("1", "late", [9], at=1_000_000_000)
    assert converted.sync().num_added_files == 1
    assert_same(converted.spark, original(converted), converted.delta)


@pytest.mark.slow
def test_what_delta_deleted_and_compacted_stays_so(converted: Folder) -> None:
    converted.write("1", "000001_0", [10])
    converted.sync()
    converted.sql("DELETE FROM {t} WHERE id = 1")
    converted.sql("OPTIMIZE {t}")
    before = converted.ids
    assert before == [("1", 2), ("1", 10), ("2", 3)]
    assert converted.sync("complete").status == "unchanged"
    converted.write("1", "000002_0", [11])
    assert converted.sync("complete").num_added_files == 1
    assert converted.ids == sorted([*before, ("1", 11)])


@pytest.mark.slow
def test_what_delta_removed_is_remembered_when_the_log_has_forgotten_it(converted: Folder) -> None:
    """Tombstones expire, and entries are cleaned up, while Hive's files and Delta's own lie in the folder for years."""
    converted.sql("DELETE FROM {t} WHERE id = 1")  # Hive's file out, one of Delta's own in
    converted.sql("DELETE FROM {t} WHERE id = 2")  # and that out again
    assert converted.sync().status == "unchanged"
    converted.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours', "
                  "'delta.checkpointInterval' = '1')")  # fmt: skip
    converted.sql("DELETE FROM {t} WHERE id = 77")
    converted.sql("INSERT INTO {t} VALUES (12, '2')")
    log = converted.root / "_delta_log"
    checkpoint = max(int(path.name[:20]) for path in log.glob("*.checkpoint.parquet"))
    for path in log.glob("*.json"):
        if path.stem.isdecimal() and int(path.stem) < checkpoint:
            path.unlink()
    view = DeltaTableView.for_path(converted.spark, str(converted.root))
    assert view.snapshot.removed.count() == 0
    assert view.snapshot.segment.checkpoint_version == checkpoint
    with pytest.raises(PermanentError, match=r"are gone from its log.*allow_forgotten_entries"):
        converted.sync()
    # Nothing but those entries was unknown, and they removed nothing.
    result = converted.sync(allow_forgotten_entries=True)
    assert result.status == "unchanged", "neither Hive's file nor Delta's own is taken for a new one"
    assert converted.ids == [("2", 3), ("2", 12)]


def test_an_overwrite_under_the_same_name_is_removed_and_added_in_two_entries(converted: Folder) -> None:
    converted.write("1", "000000_0", [100, 200, 300])
    with pytest.raises(PermanentError, match=r"rewritten or deleted by Hive.*output_mode='complete'"):
        converted.sync()
    result = converted.sync("complete")
    assert (result.version, result.num_added_files, result.num_removed_files) == (2, 1, 1)
    assert_same(converted.spark, original(converted), converted.delta)
    assert [kind for action in converted.entry(1) for kind in action] == ["commitInfo", "remove"]
    assert [kind for action in converted.entry(2) for kind in action] == ["commitInfo", "txn", "add"]


def test_an_overwrite_of_the_same_size_is_seen_by_its_time(converted: Folder) -> None:
    path = converted.root / "day=2" / "000000_0"
    size = path.stat().st_size
    converted.write("2", "000000_0", [33], at=1_700_000_000)
    assert path.stat().st_size == size
    assert converted.sync("complete").num_removed_files == 1
    assert_same(converted.spark, original(converted), converted.delta)


def test_a_dropped_partition_goes_in_complete_mode_only(converted: Folder) -> None:
    (converted.root / "day=1" / "000000_0").unlink()
    kept = converted.sync()
    assert kept.status == "unchanged"
    assert "1 file(s) that Hive has no more stay" in kept.notes[0]
    assert DeltaTableView.for_path(converted.spark, str(converted.root)).files.count() == 2
    result = converted.sync("complete")
    assert (result.num_added_files, result.num_removed_files) == (0, 1)
    assert converted.ids == [("2", 3)]


def test_a_partition_that_was_dropped_and_comes_back_is_added_again(converted: Folder) -> None:
    path = converted.root / "day=1" / "000000_0"
    aside = converted.root / "_aside"
    path.rename(aside)
    converted.sync("complete")
    aside.rename(path)
    assert converted.sync("complete").num_added_files == 1
    assert_same(converted.spark, original(converted), converted.delta)


def test_appending_refuses_a_partition_that_hive_has_written_anew(converted: Folder) -> None:
    (converted.root / "day=1" / "000000_0").unlink()
    converted.write("1", "part-00000", [1, 2, 3])
    with pytest.raises(PermanentError, match=r"day=1 and written others there.*could double rows"):
        converted.sync()
    converted.sync("complete")
    assert_same(converted.spark, original(converted), converted.delta)


@pytest.mark.slow
def test_hive_taking_deltas_files_with_an_overwrite_is_mirrored(converted: Folder) -> None:
    """INSERT OVERWRITE deletes whatever lies in the partition's folder."""
    converted.write("1", "000001_0", [10])
    converted.sync()
    converted.sql("OPTIMIZE {t}")
    for path in (converted.root / "day=1").glob("*"):
        path.unlink()
    converted.write("1", "000000_7", [70])
    with pytest.raises(PermanentError, match="rewritten or deleted by Hive"):
        converted.sync()
    result = converted.sync("complete")
    assert (result.num_added_files, result.num_removed_files) == (1, 1)
    assert any("1 file(s) that Delta had written were deleted" in note for note in result.notes)
    assert converted.ids == [("1", 70), ("2", 3)]


@pytest.mark.slow
def test_a_file_that_hive_rewrites_after_delta_did_is_a_conflict_for_people(converted: Folder) -> None:
    converted.sql("DELETE FROM {t} WHERE id = 1")
    converted.write("1", "000000_0", [100, 200, 300])
    for mode in ("append", "complete"):
        with pytest.raises(PermanentError, match=r"anew after Delta had deleted or rewritten.*accept_conflicts"):
            converted.sync(mode)
    converted.sql("DELETE FROM {t} WHERE day = '1'")
    assert converted.sync("complete", accept_conflicts=True).num_added_files == 1
    assert_same(converted.spark, original(converted).where("id != 2"), converted.delta.where("id != 2"))


@pytest.mark.slow
def test_a_list_older_than_deltas_own_files_takes_none_of_them_away(converted: Folder) -> None:
    listed = Given(converted.spark, converted.table, version=0)
    converted.sql("DELETE FROM {t} WHERE id = 1")  # writes a file of Delta's own into the folder of day 1
    for mode in ("append", "complete"):
        result = sync_table(converted.spark, converted.table, listed, output_mode=mode)
        assert result.status == "unchanged"
    assert converted.ids == [("1", 2), ("2", 3)]


def test_a_list_older_than_another_sync_is_refused(converted: Folder) -> None:
    listed = Given(converted.spark, converted.table, version=0)
    converted.write("3", "000000_0", [5])
    converted.sync("complete", run_version=1)
    again = sync_table(converted.spark, converted.table, listed, output_mode="complete", run_version=1)
    assert again.status == "already_synced"
    with pytest.raises(PermanentError, match=r"synced, as version 1, after its files were listed at version 0\. List"):
        sync_table(converted.spark, converted.table, listed, output_mode="complete", run_version=2)


@pytest.mark.slow
def test_a_partition_that_hive_writes_anew_where_delta_has_compacted_it_is_a_conflict(lake: Lake) -> None:
    """In another bucket Delta's own copy lies elsewhere, under the root, and no overwrite of Hive's touches it."""
    far = lake.add_bucket()
    lake.put("a", {"id": [10]}, far)
    lake.put("b", {"id": [11]}, far)
    lake.glue_table({"id": "bigint"}, {"p": "int"}, [(["2"], f"s3://{far}/")])
    assert lake.convert().success
    delta = f"delta.`{lake.location()}`"
    lake.spark.sql(f"OPTIMIZE {delta}")
    for key in "ab":
        lake.s3.delete_object(Bucket=far, Key=key)
    lake.put("c", {"id": [10, 11]}, far)
    (hive,) = GlueDiscovery(lake.database).discover()
    for mode in ("append", "complete"):
        with pytest.raises(PermanentError, match="accept_conflicts"):
            sync_table(lake.spark, hive, S3Listing(), output_mode=mode)
    lake.spark.sql(f"DELETE FROM {delta} WHERE p = 2")
    sync_table(lake.spark, hive, S3Listing(), output_mode="complete", accept_conflicts=True)
    assert sorted(row.id for row in delta_at(lake.spark, lake.location()).collect()) == [10, 11]
    # What was decided once is not asked again, though Delta has files of the partition again.
    lake.spark.sql(f"INSERT INTO {delta} VALUES (12, 2)")
    lake.put("d", {"id": [13]}, far)
    assert sync_table(lake.spark, hive, S3Listing()).num_added_files == 1
    assert sorted(row.id for row in delta_at(lake.spark, lake.location()).collect()) == [10, 11, 12, 13]


@pytest.mark.slow
def test_a_name_in_glue_gets_the_columns_that_a_sync_takes_over(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.put("t/a", {"id": [1]})
    lake.glue_table({"id": "bigint"})
    lake.glue.create_database(DatabaseInput={"Name": f"{lake.database}_delta"})
    assert lake.convert((None, f"{lake.database}_delta"), register_in="glue").success

    def columns(name: str = "t", database: str = f"{lake.database}_delta") -> list[str]:
        table = lake.glue.get_table(DatabaseName=database, Name=name)["Table"]
        return [column["Name"] for column in table["StorageDescriptor"]["Columns"]]

    hive = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"]
    hive = {key: hive[key] for key in ("Name", "TableType", "Parameters", "StorageDescriptor") if key in hive}
    hive["StorageDescriptor"]["Columns"].append({"Name": "price", "Type": "double"})
    lake.glue.update_table(DatabaseName=lake.database, TableInput=hive)
    lake.put("t/b", {"id": [2], "price": [2.5]})
    (table,) = GlueDiscovery(lake.database).discover()
    with monkeypatch.context() as denied:
        denied.setattr(GlueName, "replace", refuse)
        with pytest.raises(AccessDeniedError, match=r"glue:UpdateTable"):
            sync_table(lake.spark, table, S3Listing(), merge_schema=True, run_version=1)
    assert columns() == ["id"]
    # What is granted and run again gets well, though the run itself was committed before.
    result = sync_table(lake.spark, table, S3Listing(), merge_schema=True, run_version=1)
    assert (result.status, columns()) == ("already_synced", ["id", "price"])
    assert result.notes[-1] == f"{lake.database}_delta.t in Glue has the columns of the log now"
    assert sync_table(lake.spark, table, S3Listing()).notes == []


def refuse(*_: object) -> None:
    raise AccessDeniedError("Replacing the definition: not allowed to call glue:UpdateTable")


def test_deltas_own_files_may_lie_in_folders_of_no_partition(folder: Folder) -> None:
    """With delta.randomizeFilePrefixes their folders have random names. The files are listed from the root."""
    folder.convert(properties={"delta.randomizeFilePrefixes": "true"})
    folder.sql("INSERT INTO {t} VALUES (7, '1')")
    folder.sql("DELETE FROM {t} WHERE id = 1")
    folder.sql("DELETE FROM {t} WHERE id = 7")
    apart = [path for path in folder.root.rglob("*.parquet") if "day=" not in str(path.relative_to(folder.root))]
    assert len(apart) == 2, "one of them is not in the table any more"
    folder.write("3", "000000_0", [5])
    assert folder.sync("append").num_added_files == 1
    assert folder.sync("complete").num_added_files == 0
    assert folder.ids == [("1", 2), ("2", 3), ("3", 5)]
    write_parquet(folder.root / "Ab" / "part-0.parquet", {"id": [9]})
    with pytest.raises(PartitionError, match=r"Expecting 1 partition column.*Ab/part-0\.parquet"):
        folder.sync("complete")


@pytest.mark.slow
def test_a_file_with_rows_that_delta_has_deleted_is_a_conflict_too(converted: Folder) -> None:
    converted.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    converted.sql("UPDATE {t} SET id = 1000 WHERE id = 1")
    converted.write("1", "000000_0", [1, 2, 50])
    with pytest.raises(PermanentError, match="accept_conflicts"):
        converted.sync("complete")
    converted.sql("DELETE FROM {t} WHERE id = 1000")
    result = converted.sync("complete", accept_conflicts=True)
    assert (result.num_added_files, result.num_removed_files) == (1, 1)
    assert converted.ids == [("1", 1), ("1", 2), ("1", 50), ("2", 3)]


@pytest.mark.slow
def test_deletion_vectors_stay_with_their_files(converted: Folder) -> None:
    converted.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    converted.sql("DELETE FROM {t} WHERE id = 1")
    assert converted.ids == [("1", 2), ("2", 3)]
    converted.write("3", "000000_0", [5])
    assert converted.sync("complete").num_added_files == 1
    assert converted.ids == [("1", 2), ("2", 3), ("3", 5)]
    (converted.root / "day=1" / "000000_0").unlink()
    assert converted.sync("complete").num_removed_files == 1
    assert converted.ids == [("2", 3), ("3", 5)]


def test_a_restore_is_not_undone(converted: Folder) -> None:
    converted.write("3", "000000_0", [5])
    converted.sync()
    converted.sql("RESTORE TABLE {t} TO VERSION AS OF 0")
    assert converted.sync("complete").status == "unchanged"
    assert len(converted.ids) == 3


@pytest.mark.slow
@needs_spark_4("reading files whose types are narrower than the table's")
def test_new_columns_and_wider_types_are_merged_on_request(folder: Folder) -> None:
    folder.columns = {"id": "int", "name": "string"}
    for path in folder.root.rglob("000000_0"):
        write_parquet(path, {"id": pa.array([1], pa.int32()), "name": ["a"]})
    folder.convert()
    folder.columns = {"id": "bigint", "name": "string", "price": "decimal(10,2)", "at": "timestamp"}
    folder.write("3", "000000_0", {"id": pa.array([1 << 40]), "price": pa.array([None], pa.decimal128(10, 2))})
    with pytest.raises(SchemaError, match=r"has got price decimal\(10,2\).*made id bigint of int.*merge_schema=True"):
        folder.sync()
    result = folder.sync(merge_schema=True)
    assert result.num_added_files == 1
    # Spark reads the original's int32 as bigint too.
    assert_same(folder.spark, original(folder).select("id", "name", "day", "price", "at"), folder.delta)
    assert folder.delta.columns == ["id", "name", "day", "price", "at"]
    view = DeltaTableView.for_path(folder.spark, str(folder.root))
    assert "typeWidening" in view.snapshot.protocol.reader_features
    assert folder.sync(merge_schema=True).status == "unchanged"
    folder.sql("INSERT INTO {t} VALUES (9, 'z', '9', 1.00, current_timestamp())")
    assert folder.delta.count() == 4


@pytest.mark.slow
@needs_spark_4("reading files whose types are narrower than the table's")
def test_narrow_files_in_a_wide_table_are_marked(converted: Folder) -> None:
    converted.write("3", "000000_0", {"id": pa.array([7], pa.int32())})
    converted.sync()
    assert_same(converted.spark, original(converted), converted.delta)
    converted.write("3", "000001_0", {"id": pa.array([8], pa.int32())})
    converted.sync()
    assert [kind for action in converted.entry(2) for kind in action] == ["commitInfo", "txn", "add"]
    assert_same(converted.spark, original(converted), converted.delta)


@pytest.mark.slow
def test_renamed_columns_are_found_by_their_names_in_the_files(converted: Folder) -> None:
    converted.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
                  "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')")  # fmt: skip
    converted.sql("ALTER TABLE {t} RENAME COLUMN id TO number")
    converted.sql("ALTER TABLE {t} RENAME COLUMN day TO date")
    converted.write("3", "000000_0", [5, 6])
    assert converted.sync("complete").num_added_files == 1
    expected = original(converted).withColumnsRenamed({"id": "number", "day": "date"})
    assert_same(converted.spark, expected, converted.delta)
    converted.columns = {"id": "bigint", "odd name": "string"}
    converted.write("4", "000000_0", {"id": [7], "odd name": ["x"]})
    assert converted.sync(merge_schema=True).num_added_files == 1
    expected = original(converted).withColumnsRenamed({"id": "number", "day": "date"})
    assert_same(converted.spark, expected.select("number", "date", "odd name"), converted.delta)


@pytest.mark.slow
def test_a_column_of_hive_that_delta_calls_another_one_is_refused(converted: Folder) -> None:
    converted.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
                  "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')")  # fmt: skip
    converted.sql("ALTER TABLE {t} RENAME COLUMN id TO number")
    converted.columns = {"id": "bigint", "number": "string"}
    converted.write("3", "000000_0", {"id": [5], "number": ["x"]})
    with pytest.raises(SchemaError, match="number and number have the same name"):
        converted.sync(merge_schema=True)
    assert len(converted.delta.collect()) == 3


@pytest.mark.slow
def test_a_column_that_delta_has_dropped_stays_dropped(converted: Folder) -> None:
    converted.columns = {"id": "bigint", "extra": "string"}
    converted.write("3", "000000_0", {"id": [5], "extra": ["x"]})
    converted.sync(merge_schema=True)
    converted.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
                  "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')")  # fmt: skip
    converted.sql("ALTER TABLE {t} DROP COLUMN extra")
    converted.write("4", "000000_0", {"id": [6], "extra": ["y"]})
    result = converted.sync()
    assert result.num_added_files == 1
    assert "dropped were left out: extra" in result.notes[0]
    assert converted.delta.columns == ["id", "day"]


def test_names_that_look_like_patterns(spark: SparkSession, tmp_path: Path) -> None:
    hive = Folder(spark, tmp_path / "t{x}[1]*")
    hive.write("1", "000000_0", [1])
    hive.convert()
    for number in (2, 3):
        hive.write("1", f"00000{number}_0", [number])
        assert hive.sync().num_added_files == 1
    assert sorted(row.id for row in hive.delta.collect()) == [1, 2, 3]


@pytest.mark.slow
def test_other_types_need_an_overwrite_of_the_schema(converted: Folder) -> None:
    converted.columns = {"id": "string", "extra": "int"}
    for path in converted.root.glob("day=*/*"):
        write_parquet(path, {"id": ["x", None], "extra": pa.array([1, 2], pa.int32())})
    with pytest.raises(SchemaError, match=r"id is bigint in the Delta table and string in Hive now.*overwrite_schema"):
        converted.sync("complete", merge_schema=True)
    with pytest.raises(PermanentError, match="goes with output_mode='complete' only"):
        converted.sync("append", overwrite_schema=True)
    result = converted.sync("complete", overwrite_schema=True)
    assert (result.num_added_files, result.num_removed_files) == (2, 2)
    assert_same(converted.spark, original(converted), converted.delta)
    assert converted.sync("complete", overwrite_schema=True).status == "unchanged"


def test_a_file_that_does_not_fit_is_refused_before_anything_is_written(converted: Folder) -> None:
    converted.write("1", "000000_0", [100, 200, 300])  # to be replaced, and its old file to be removed first
    converted.write("3", "000000_0", {"id": ["text"]})
    with pytest.raises(SchemaError, match="day=3/000000_0"):
        converted.sync("complete")
    assert converted.version == 0


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)", "CHECK constraints"),
        ("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')", "rowTracking"),
        ("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')", "append-only"),
    ],
)
def test_promises_that_files_of_hive_may_break_are_not_broken(converted: Folder, change: str, found: str) -> None:
    converted.sql(change)
    version = converted.version
    (converted.root / "day=2" / "000000_0").unlink()
    with pytest.raises(UnsupportedTableError, match=found):
        converted.sync("complete")
    assert converted.version == version


def test_a_column_that_takes_no_nulls_takes_no_files_of_hive(converted: Folder) -> None:
    metadata = next(action for action in converted.entry(0) if "metaData" in action)
    metadata["metaData"]["schemaString"] = metadata["metaData"]["schemaString"].replace(
        '"name":"id","type":"long","nullable":true', '"name":"id","type":"long","nullable":false'
    )
    (converted.root / "_delta_log" / f"{1:020d}.json").write_text(json.dumps(metadata))
    converted.write("3", "000000_0", [5])
    with pytest.raises(UnsupportedTableError, match="takes no nulls in the column id"):
        converted.sync()


@pytest.mark.slow
def test_times_in_the_log_go_on_growing(converted: Folder) -> None:
    converted.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    converted.write("1", "000000_0", [100, 200, 300])
    version = converted.version
    converted.sync("complete")
    times = [converted.entry(v)[0]["commitInfo"]["inCommitTimestamp"] for v in range(version, version + 3)]
    assert times == sorted(set(times))
    assert_same(converted.spark, original(converted), converted.delta)


def test_only_tables_of_ours_are_synced(folder: Folder) -> None:
    with pytest.raises(PermanentError, match="not converted yet"):
        folder.sync()
    folder.spark.sql(f"CONVERT TO DELTA parquet.`{folder.root}` PARTITIONED BY (day STRING)")
    with pytest.raises(UnsupportedTableError, match=r"not made by a conversion of this package.* Leave the table"):
        folder.sync()


def test_a_table_of_another_name_is_not_synced_into_the_log(lake: Lake) -> None:
    lake.put("t/000000_0", {"id": [1]})
    lake.glue_table({"id": "bigint"})
    lake.convert()
    lake.glue_table({"id": "bigint"}, name="u", location=lake.location("t"))
    (_, other) = GlueDiscovery(lake.database).discover()
    with pytest.raises(UnsupportedTableError, match=f"made of {lake.database}.t, not of {lake.database}.u"):
        sync_table(lake.spark, other, S3Listing())


@pytest.mark.slow
def test_a_partition_that_moves_to_another_bucket(lake: Lake) -> None:
    columns, keys = {"id": "bigint"}, {"day": "string"}
    lake.put("t/day=1/000000_0", {"id": [1, None]})
    lake.put("t/day=é %3A/000000_0", {"id": [2]})
    locations = [(["1"], lake.location("t/day=1")), (["é :"], lake.location("t/day=é %3A"))]
    hive = lake.table(columns, keys, locations)
    assert lake.convert().status == "converted"
    far = lake.add_bucket("eu-central-1")
    lake.put("moved/000000_0", {"id": [1, None]}, bucket=far)
    lake.put("t/day=2/000000_0", {"id": [3]})
    name = f"{lake.database}.t"
    lake.spark.sql(f"ALTER TABLE {name} PARTITION (day = '1') SET LOCATION 's3://{far}/moved'")
    lake.spark.sql(f"ALTER TABLE {name} ADD PARTITION (day = '2') LOCATION '{lake.location('t/day=2')}'")
    storage = lake.glue.get_partition(DatabaseName=lake.database, TableName="t", PartitionValues=["1"])["Partition"]
    moved = {**storage["StorageDescriptor"], "Location": f"s3://{far}/moved"}
    lake.glue.update_partition(
        DatabaseName=lake.database,
        TableName="t",
        PartitionValueList=["1"],
        PartitionInput={"Values": ["1"], "StorageDescriptor": moved},
    )
    lake.glue.create_partition(
        DatabaseName=lake.database,
        TableName="t",
        PartitionInput={"Values": ["2"], "StorageDescriptor": {**moved, "Location": lake.location("t/day=2")}},
    )
    (table,) = GlueDiscovery(lake.database).discover()
    with pytest.raises(PermanentError, match="could double rows"):
        sync_table(lake.spark, table, S3Listing())
    result = sync_table(lake.spark, table, S3Listing(), output_mode="complete")
    assert (result.num_added_files, result.num_removed_files) == (2, 1)
    assert_same(lake.spark, hive, delta_at(lake.spark, lake.location()))
    assert sync_table(lake.spark, table, S3Listing(), output_mode="complete").status == "unchanged"


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
from airflow_hive_to_delta.core.delta import log as delta_log
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
