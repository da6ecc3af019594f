"""Columns and types of a synced table: what Hive adds, what Delta has renamed or dropped, and what does not fit."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from airflow_hive_to_delta import GlueDiscovery, S3Listing
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    PermanentError,
    SchemaError,
    UnsupportedTableError,
)
from airflow_hive_to_delta.core.lifecycle.cut_over import GlueName
from airflow_hive_to_delta.core.lifecycle.sync.sync import sync_table
from tests.support.hive_folder import Folder, original
from tests.support.lake import Lake
from tests.support.oracle import assert_same
from tests.support.spark_versions import needs_spark_4
from tests.support.tables import write_parquet

pytestmark = pytest.mark.slow


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
