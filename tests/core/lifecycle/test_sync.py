"""What Hive has written since a conversion reaches the Delta table, once, and what Delta has done stays done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta import GlueDiscovery, S3Listing
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
from airflow_hive_to_delta.core.errors import (
    PartitionError,
    PermanentError,
    UnsupportedTableError,
)
from airflow_hive_to_delta.core.lifecycle.rollback.rollback import rollback_table
from airflow_hive_to_delta.core.lifecycle.sync.sync import sync_table
from tests.support.hive_folder import Folder, Given, original
from tests.support.lake import Lake
from tests.support.oracle import assert_same, delta_at
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
        assert folder.ids  # Delta has read the table, and remembers its state
    assert checkpoints(folder) == [2]
    # Where nobody has read the table yet, and without the entries that the checkpoint stands for.
    copy = Folder(folder.spark, tmp_path / "copy")
    shutil.copytree(folder.root, copy.root)
    for version in (0, 1, 2):
        (copy.root / "_delta_log" / f"{version:020d}.json").unlink()
    assert_same(copy.spark, original(copy), copy.delta)


def test_a_checkpoint_is_never_of_a_table_that_was_rolled_back(folder: Folder) -> None:
    for last in (2, 1):  # of the second table's versions there are fewer
        folder.convert(properties={"delta.checkpointInterval": "1"})
        for number in range(last):
            folder.write("9", f"{number:06d}_{last}", [number])
            assert folder.sync().status == "synced"
        assert folder.ids
        assert checkpoints(folder) == list(range(1, last + 1))
        if last == 2:
            rollback_table(folder.spark, folder.table)
    assert_same(folder.spark, original(folder), folder.delta)


def checkpoints(folder: Folder) -> list[int]:
    return sorted(int(path.name[:20]) for path in folder.root.glob("_delta_log/0*.checkpoint.parquet"))


def test_a_table_with_a_checkpoint_is_synced_without_a_job_if_nothing_has_changed(folder: Folder) -> None:
    folder.convert(properties={"delta.checkpointInterval": "1"})
    folder.write("4", "000000_0", [4])
    assert folder.sync().status == "synced"
    assert checkpoints(folder) == [1]
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


@needs_spark_4("Delta 3.3 writes files of partitions into their folders")
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


def test_names_that_look_like_patterns(spark: SparkSession, tmp_path: Path) -> None:
    hive = Folder(spark, tmp_path / "t{x}[1]*")
    hive.write("1", "000000_0", [1])
    hive.convert()
    for number in (2, 3):
        hive.write("1", f"00000{number}_0", [number])
        assert hive.sync().num_added_files == 1
    assert sorted(row.id for row in hive.delta.collect()) == [1, 2, 3]


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
