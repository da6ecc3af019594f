"""Rollback: Hive reads what it read before, byte for byte, whatever Delta did meanwhile and wherever the call ended."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_hive_to_delta import ConversionOptions, UCDiscovery, convert
from airflow_hive_to_delta.core.catalogs.registration import Target
from airflow_hive_to_delta.core.delta.deletion_vectors import vector_file
from airflow_hive_to_delta.core.delta.log.files import ROLLED_BACK
from airflow_hive_to_delta.core.delta.snapshot import snapshot_of
from airflow_hive_to_delta.core.errors import PermanentError, TransientError
from airflow_hive_to_delta.core.lifecycle.ledger import read_ledger
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.lifecycle.rollback.rollback import rollback_table
from airflow_hive_to_delta.core.listing.spark import DatabricksListing
from airflow_hive_to_delta.core.results import RollbackResult
from airflow_hive_to_delta.core.storage.local import LocalStorage
from airflow_hive_to_delta.core.storage.s3 import S3Storage
from airflow_hive_to_delta.core.storage.uri import Location, parse_location
from tests.support.crashes import Killed, at_every_step, killed_at
from tests.support.lake import Lake
from tests.support.oracle import assert_same, delta_at
from tests.support.tables import convert_folder, write_parquet
from tests.support.tables import snapshot as snapshot_of_folder

pytestmark = pytest.mark.slow

COLUMNS, KEYS = {"id": "bigint"}, {"p": "int"}


def rows(data: DataFrame) -> Counter[Any]:
    return Counter(tuple(row) for row in data.collect())


def hive(lake: Lake, name: str = "t") -> Counter[Any]:
    """The rows that Hive has, looked up anew."""
    lake.spark.catalog.refreshTable(f"{lake.database}.{name}")
    return rows(lake.spark.table(f"{lake.database}.{name}"))


def data_objects(lake: Lake) -> dict[str, Any]:
    """What is outside of logs, markers of folders aside, which S3A leaves wherever it has been."""
    return {
        name: found for name, found in lake.objects().items() if "/_delta_log" not in name and not name.endswith("/")
    }


def make(lake: Lake) -> DataFrame:
    """A table with a partition under its root and one in another bucket."""
    other = lake.add_bucket()
    lake.put("t/p=1/f", {"id": [1, 2, 3]})
    lake.put("t/p=1/g", {"id": [4]})
    lake.put("p=2/f", {"id": [5, 6]}, other)
    return lake.table(COLUMNS, KEYS, [(["1"], f"{lake.location()}/p=1"), (["2"], f"s3://{other}/p=2")])


def path_of(lake: Lake) -> str:
    return f"delta.`{lake.location()}`"


def roll_back(lake: Lake, *lose_versions: int) -> RollbackResult:
    return rollback_table(lake.spark, lake.location(), lose_versions=lose_versions)


# --- without other writers ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rolled_back_and_converted_again_and_rolled_back_again(lake: Lake) -> None:
    original = make(lake)
    before, data = hive(lake), data_objects(lake)
    assert lake.convert((None, lake.database + "_delta"), register_in="glue").status == "converted"
    assert_same(lake.spark, original, delta_at(lake.spark, lake.location()))
    first = roll_back(lake)
    assert (first.status, first.dropped, first.lost_versions) == ("rolled_back", [f"{lake.database}_delta.t"], [])
    assert first.source_table == f"{lake.database}.t"
    assert (hive(lake), data_objects(lake)) == (before, data)
    assert not [name for name in lake.objects() if "/t/_delta_log/" in name]
    assert not lake.glue.get_tables(DatabaseName=f"{lake.database}_delta")["TableList"]
    again = roll_back(lake)
    assert (again.status, again.success, again.log_moved_to) == ("not_delta", True, "")

    # Hive goes on, and the next conversion knows nothing of the one before.
    lake.put("t/p=1/h", {"id": [7]})
    assert lake.convert((None, lake.database + "_delta"), register_in="glue").file_count == 4
    assert rows(delta_at(lake.spark, lake.location())) == before + Counter([(7, 1)])
    second = roll_back(lake)
    assert second.dropped == first.dropped
    assert second.log_moved_to != first.log_moved_to
    assert hive(lake) == before + Counter([(7, 1)])


def test_the_log_that_was_moved_aside_is_whole_also_where_the_owner_of_the_bucket_is_checked(lake: Lake) -> None:
    make(lake)
    options: dict[str, Any] = {"checkpoint_over_files": 1, "expected_bucket_owner": "123456789012"}
    lake.convert(**options)
    log = {n.partition("/_delta_log/")[2]: o[0] for n, o in lake.objects().items() if "/_delta_log/" in n}
    result = rollback_table(lake.spark, lake.location(), options=ConversionOptions(**options))
    moved = parse_location(result.log_moved_to)
    found = {
        name.partition(f"{moved.key}/")[2]: entry[0]
        for name, entry in lake.objects().items()
        if f"{moved.key}/" in name and not name.endswith("/")
    }
    assert found.pop("_hive_to_delta/rollback.json")
    assert found == {name: entry for name, entry in log.items() if not name.endswith("/")}


class Saved:
    """A lake at one moment, to go back to: much faster than to make it again."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.objects = {
            name: lake.s3.get_object(Bucket=name.partition("/")[0], Key=name.partition("/")[2])["Body"].read()
            for name in lake.objects()
        }
        self.glue = {}
        for database in (lake.database, f"{lake.database}_delta"):
            tables = lake.glue.get_tables(DatabaseName=database)["TableList"]
            fields = lake.glue.meta.service_model.shape_for("TableInput").members
            self.glue[database] = [{k: v for k, v in table.items() if k in fields} for table in tables]

    def restore(self) -> Lake:
        lake = self.lake
        for name in lake.objects().keys() - self.objects.keys():
            bucket, _, key = name.partition("/")
            lake.s3.delete_object(Bucket=bucket, Key=key)
        for name in self.objects.keys() - lake.objects().keys():
            bucket, _, key = name.partition("/")
            lake.s3.put_object(Bucket=bucket, Key=key, Body=self.objects[name])
        for database, tables in self.glue.items():
            there = {table["Name"] for table in lake.glue.get_tables(DatabaseName=database)["TableList"]}
            for table in tables:
                if table["Name"] not in there:
                    lake.glue.create_table(DatabaseName=database, TableInput=table)
        return lake


@pytest.mark.slow
def test_ended_at_every_step_on_s3_with_a_name_in_glue(lake: Lake) -> None:
    """The process ends before and after every change; the same call mends it."""
    make(lake)
    before = hive(lake)
    lake.convert((None, lake.database + "_delta"), register_in="glue", checkpoint_over_files=1)
    data = {name: entry[0] for name, entry in data_objects(lake).items()}

    def check(lake: Lake) -> None:
        assert {name: entry[0] for name, entry in data_objects(lake).items()} == data
        assert not lake.glue.get_tables(DatabaseName=f"{lake.database}_delta")["TableList"]
        assert roll_back(lake).status == "not_delta"
        left = lake.s3.list_objects_v2(Bucket=lake.bucket, Prefix="t/_delta_log/").get("Contents", [])
        assert left == []
        moved = lake.s3.list_objects_v2(Bucket=lake.bucket, Prefix=f"t/{ROLLED_BACK}/")["Contents"]
        names = [re.sub(r".*/_delta_log/", "", entry["Key"]) for entry in moved]
        assert {f"{0:020d}.json", f"{0:020d}.checkpoint.parquet", "_last_checkpoint"} <= set(names)
        assert len(names) == len(set(names)), "one log, in one folder"

    steps = at_every_step(Saved(lake).restore, roll_back, check)
    assert {"Glue's delete_table", "put_if_absent on S3Storage", "move on S3Storage"} <= set(steps)
    assert hive(lake) == before


# --- with other writers ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_writes_of_others_are_lost_only_by_their_numbers(lake: Lake) -> None:
    make(lake)
    lake.convert()
    lake.spark.sql(f"DELETE FROM {path_of(lake)} WHERE id = 1")
    lake.spark.sql(f"INSERT INTO {path_of(lake)} VALUES (9, 1)")
    objects = lake.objects()
    for lose in ((), (1,), (1, 2, 3)):
        with pytest.raises(PermanentError, match=r"version 1: DELETE at .* UTC; version 2: WRITE at .*=\[1, 2\]$"):
            roll_back(lake, *lose)
    assert lake.objects() == objects
    assert roll_back(lake, 2, 1).lost_versions == [1, 2]


def test_words_for_writes_that_are_not_there_are_refused(lake: Lake) -> None:
    make(lake)
    lake.convert()
    with pytest.raises(PermanentError, match=r"every version of .* was made by this package"):
        roll_back(lake, 1)


@pytest.mark.slow
def test_after_delete_optimize_and_merge_hive_reads_what_it_read_before(lake: Lake) -> None:
    original = make(lake)
    before, data = hive(lake), data_objects(lake)
    lake.convert()
    spark, path = lake.spark, path_of(lake)
    spark.sql(f"DELETE FROM {path} WHERE id IN (1, 5)")
    spark.sql(f"OPTIMIZE {path}")
    spark.sql(
        f"MERGE INTO {path} AS t USING (SELECT 2 AS id, 1 AS p UNION ALL SELECT 10, 3) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET id = 20 WHEN NOT MATCHED THEN INSERT *"
    )
    written = data_objects(lake).keys() - data.keys()
    assert hive(lake) != before, "Hive reads what Delta wrote into its partitions, until it is moved"
    result = roll_back(lake, 1, 2, 3)
    assert (hive(lake), data_objects(lake)) == (before, data)
    assert result.files_moved_aside == len(written)
    aside = parse_location(result.log_moved_to.removesuffix("/_delta_log"))
    assert {f"{lake.bucket}/{aside.key}/{name.partition('/t/')[2]}" for name in written} <= lake.objects().keys()
    # What Delta wrote is in no way of the next conversion.
    lake.convert()
    assert_same(spark, original, delta_at(spark, lake.location()))


@pytest.mark.slow
def test_ended_at_every_step_with_files_of_delta_to_move(spark: SparkSession, tmp_path: Path) -> None:
    template = tmp_path / "template"
    write_parquet(template / "f", {"id": [1, 2]})
    convert_folder(spark, template)
    spark.sql(f"INSERT INTO delta.`{template}` VALUES (3)")
    made = iter(range(1000))

    def fresh() -> Path:
        # Without what Hadoop and Delta add of their own: each would be a step more, like the others.
        ignored = shutil.ignore_patterns(".*", "*.crc", "_staged_commits")
        return Path(shutil.copytree(template, tmp_path / f"t{next(made)}", ignore=ignored))

    def check(root: Path) -> None:
        assert [path.name for path in root.iterdir() if not path.name.startswith((".", "_"))] == ["f"]
        assert not (root / "_delta_log").exists()
        assert [path.suffix for path in root.glob(f"{ROLLED_BACK}/*/*.parquet")] == [".parquet"]
        assert rollback_table(spark, str(root)).status == "not_delta"

    call: Callable[[Path], Any] = lambda root: rollback_table(spark, str(root), lose_versions=[1])  # noqa: E731
    steps = at_every_step(fresh, call, check)
    assert steps.count("move on LocalStorage") >= 5


def test_deletion_vectors_are_moved_out_of_hives_sight(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "f", {"id": list(range(10))})
    convert_folder(spark, tmp_path, options=ConversionOptions(properties={"x": "y"}))
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE id = 1")
    assert list(tmp_path.glob("deletion_vector_*.bin"))
    result = rollback_table(spark, str(tmp_path), lose_versions=[1, 2])
    assert result.files_moved_aside == 1
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith((".", "_"))] == ["f"]
    assert spark.read.parquet(str(tmp_path)).count() == 10


def test_the_name_of_a_deletion_vector() -> None:
    """The example is that of Delta's protocol."""
    root = Location("s3", "mytable", "")
    path = "ab^-aqEH.-t@S}K{vb[*k^"
    assert str(vector_file(root, "u", path)) == (
        "s3://mytable/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    )
    assert str(vector_file(root, "p", "s3://other/a%20b.bin")) == "s3://other/a b.bin"


def test_files_that_hive_had_and_vacuum_deleted_are_named(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "f", {"id": [1, 2]})
    write_parquet(tmp_path / "g", {"id": [3]})
    convert_folder(spark, tmp_path)
    spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE id = 1")
    (tmp_path / "f").unlink()  # as VACUUM would have done, a week later
    with pytest.raises(PermanentError, match=r"1 files that Hive reads .* are deleted: no rollback brings them back"):
        rollback_table(spark, str(tmp_path))
    assert (tmp_path / "_delta_log").exists()
    (note,) = rollback_table(spark, str(tmp_path), lose_versions=[1]).notes
    assert note.startswith("1 files that Hive reads")


@pytest.mark.slow
def test_entries_that_are_gone_count_as_writes_of_others(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "f", {"id": [1, 2]})
    convert_folder(spark, tmp_path, options=ConversionOptions(properties={"delta.checkpointInterval": "2"}))
    for number in (3, 4):
        spark.sql(f"INSERT INTO delta.`{tmp_path}` VALUES ({number})")
    root = parse_location(str(tmp_path))
    # What Delta does with entries that are older than its retention, with and without a ledger.
    kept = {path: path.read_bytes() for path in (tmp_path / "_delta_log").glob("*.json")}
    for version in (0, 1):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(PermanentError, match=r"entries \[0, 1\] are gone .*version 2: WRITE.*=\[0, 1, 2\]$"):
        rollback_table(spark, str(tmp_path))
    with pytest.raises(PermanentError, match="of 2 files nobody knows any more whether Hive wrote them or Delta"):
        rollback_table(spark, str(tmp_path), lose_versions=range(3))
    for path, text in kept.items():
        path.write_bytes(text)
    read_ledger(snapshot_of(spark, LocalStorage(), root)).keep()
    for version in (0, 1):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    assert rollback_table(spark, str(tmp_path), lose_versions=range(3)).files_moved_aside == 2
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith((".", "_"))] == ["f"]


def test_many_versions_are_named_as_a_range(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "f", {"id": [1, 2]})
    convert_folder(spark, tmp_path)
    log = tmp_path / "_delta_log"
    for version in range(1, 9):
        info = {"commitInfo": {"timestamp": 0, "operation": "SET TBLPROPERTIES", "engineInfo": "another"}}
        (log / f"{version:020d}.json").write_text(json.dumps(info) + "\n")
    with pytest.raises(PermanentError, match=r"lose_versions=\[\*range\(1, 9\)\]$"):
        rollback_table(spark, str(tmp_path))


# --- what is refused ---------------------------------------------------------------------------------------------


def test_a_log_of_another_writer_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "t"))
    before = sorted((tmp_path / "t").rglob("*"))
    with pytest.raises(PermanentError, match="was not made by a conversion of this package"):
        rollback_table(spark, str(tmp_path / "t"), lose_versions=[0])
    assert sorted((tmp_path / "t").rglob("*")) == before


def test_a_version_is_no_table_to_roll_back(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "f", {"id": [1, 2]})
    convert_folder(spark, tmp_path)
    with pytest.raises(PermanentError, match="is no table to roll back"):
        rollback_table(spark, f"{tmp_path}@v0")


def test_a_write_after_the_rollback_began_is_found(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "f", {"id": [1, 2]})
    convert_folder(spark, tmp_path)
    with killed_at(0, after=True), pytest.raises(Killed):
        rollback_table(spark, str(tmp_path))
    with pytest.raises(PermanentError, match=r"A rollback of .* was begun and did not finish"):
        convert_folder(spark, tmp_path)
    spark.sql(f"INSERT INTO delta.`{tmp_path}` VALUES (3)")
    with pytest.raises(PermanentError, match=r"version 1: WRITE .*lose_versions=\[1\]$"):
        rollback_table(spark, str(tmp_path))
    assert rollback_table(spark, str(tmp_path), lose_versions=[1]).files_moved_aside == 1


def test_a_write_between_the_plan_and_the_move_is_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "f", {"id": [1, 2]})
    convert_folder(spark, tmp_path)
    put = LocalStorage.put_if_absent

    def put_and_write(self: LocalStorage, path: Location, source: Any) -> bool:
        done = put(self, path, source)
        monkeypatch.undo()
        spark.sql(f"INSERT INTO delta.`{tmp_path}` VALUES (3)")
        return done

    monkeypatch.setattr(LocalStorage, "put_if_absent", put_and_write)
    with pytest.raises(TransientError, match=r"Version 1 of .* was written while it was being rolled back"):
        rollback_table(spark, str(tmp_path))
    assert spark.read.format("delta").load(str(tmp_path)).count() == 3


# --- records that somebody changed -------------------------------------------------------------------------------


def test_records_that_somebody_changed_are_refused_before_anything_is_done(spark: SparkSession, tmp_path: Path) -> None:
    root, records = tmp_path / "t", tmp_path / "t" / "_delta_log" / "_hive_to_delta"
    write_parquet(root / "f", {"id": [1, 2]})
    write_parquet(tmp_path / "elsewhere", {"id": [9]})
    convert_folder(spark, root)
    spark.sql(f"INSERT INTO delta.`{root}` VALUES (3)")
    Records(LocalStorage(), parse_location(str(root))).keep_registration(Target(None, "a", "b"), None)
    with killed_at(1, after=True), pytest.raises(Killed):
        rollback_table(spark, str(root), lose_versions=[1])
    record = records / "rollback.json"
    (files,), (registration,) = records.glob("rollback-*.jsonl"), (records / "registrations").iterdir()
    whole = {path: path.read_text() for path in (record, files, registration, records / "source.json")}
    plan, source = json.loads(whole[record]), json.loads(whole[records / "source.json"])
    name = plan["moved_to"].rpartition("/")[2]
    changes = [
        *(
            (record, json.dumps({**plan, **change}))
            for change in (
                {"moved_to": f"{tmp_path}/{ROLLED_BACK}/{name}"},
                {"moved_to": f"{root}/{ROLLED_BACK}/../{name}"},
                {"moved_to": f"{root}/{ROLLED_BACK}/shown"},
                {"moved_to": None},
                {"files": "../../f"},
                {"files": "source.json"},
                {"version": "0"},
                {"lost_versions": [True]},
                {"notes": "text"},
            )
        ),
        *(
            (files, whole[files] + line + "\n")
            for line in ('"../elsewhere"', '"a/../../elsewhere"', '"/etc/passwd"', f'"_delta_log/{0:020d}.json"',
                         f'"s3://{root}"', '"_delta_log_rolled_back/x"', '"a//b"', '"./f"', "17", "{", '"a\\u0000"')
        ),
        (registration, "{}"),
        (registration, json.dumps({**json.loads(whole[registration]), "kind": "shell"})),
        (records / "source.json", json.dumps({**source, "columns": ["id"]})),
        (records / "source.json", json.dumps({**source, "more": 1})),
    ]  # fmt: skip
    for path, text in changes:
        path.write_text(text)
        before = snapshot_of_folder(tmp_path)
        with pytest.raises(PermanentError, match=rf"The record \S+/{path.name} is not as this package writes it"):
            rollback_table(spark, str(root), lose_versions=[1])
        assert snapshot_of_folder(tmp_path) == before, text
        path.write_text(whole[path])
    assert rollback_table(spark, str(root)).files_moved_aside == 1
    assert [path.name for path in root.iterdir() if not path.name.startswith((".", "_"))] == ["f"]


# --- names -------------------------------------------------------------------------------------------------------


def test_names_in_a_sql_catalog_are_dropped_and_nothing_else(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    write_parquet(root / "p=1" / "f", {"id": [1, 2]})
    spark.sql(f"CREATE TABLE {database}.t (id BIGINT) PARTITIONED BY (p INT) STORED AS PARQUET LOCATION '{root}'")
    spark.sql(f"ALTER TABLE {database}.t ADD PARTITION (p = 1) LOCATION '{root}/p=1'")
    before = rows(spark.table(f"{database}.t"))
    discovery = UCDiscovery([f"spark_catalog.{database}.t"])
    for schema in (f"{database}_a", f"{database}_b"):
        (result,) = convert(spark, discovery, DatabricksListing(), None, schema, progress=False)
        assert result.success, result.error
    # One name has come to mean something else since.
    spark.sql(f"DROP TABLE {database}_b.t")
    spark.sql(f"CREATE TABLE {database}_b.t (other STRING) USING PARQUET LOCATION '{tmp_path}/other'")
    (table,) = discovery.discover(spark)
    result = rollback_table(spark, table)
    assert result.dropped == [f"{database}_a.t"]
    assert result.source_table == rollback_table(spark, table).source_table == table.qualified_name
    assert not spark.catalog.tableExists(f"{database}_a.t")
    assert spark.table(f"{database}_b.t").columns == ["other"]
    assert rows(spark.table(f"{database}.t")) == before
    for schema in (f"{database}_a", f"{database}_b"):
        spark.sql(f"DROP DATABASE {schema} CASCADE")


def test_a_call_that_ended_between_the_copy_and_the_delete_of_one_move_is_finished_by_the_next(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(lake)
    lake.convert()

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(S3Storage, "delete", killed)
        with pytest.raises(Killed):
            roll_back(lake)
    assert roll_back(lake).status == "rolled_back"
    assert not [name for name in lake.objects() if "/t/_delta_log/" in name]
