"""The checkpoint of a converted table serves readers alone, and can be made again at any point (rule 39)."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from airflow_hive_to_delta.core.delta import checkpoint
from airflow_hive_to_delta.core.delta.actions import action_line, add_action
from airflow_hive_to_delta.core.delta.checkpoint import write_checkpoint
from airflow_hive_to_delta.core.delta.log.commits import generate_delta_log, log_state, write_delta_log
from airflow_hive_to_delta.core.delta.log.files import log_folder
from airflow_hive_to_delta.core.errors import PermanentError, TransientError
from airflow_hive_to_delta.core.models import ParquetFileInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.local import LocalStorage
from airflow_hive_to_delta.core.storage.s3 import S3Storage
from airflow_hive_to_delta.core.storage.uri import Location, parse_location

ENTRY = "00000000000000000000.json"
CHECKPOINT = "00000000000000000000.checkpoint.parquet"


def field(name: str, delta_type: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": delta_type, "nullable": True, "metadata": metadata}


def make_table(folder: Path, columns: dict[str, Any], fields: list[dict[str, Any]], **settings: Any) -> Location:
    """Three partitions, one of them null, of one file each."""
    files = []
    for value in ("x y", "a%2Fb", "__HIVE_DEFAULT_PARTITION__"):
        path = folder / f"p={value}" / "f.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table(columns), path)
        files.append(ParquetFileInfo(str(path), path.stat().st_size, modification_time=1_700_000_000_000))
    schema = {"type": "struct", "fields": [*fields, field("p", "string")]}
    write_delta_log(generate_delta_log(files, schema, ["p"], str(folder), **settings), str(folder))
    return parse_location(str(folder))


def plain_table(folder: Path) -> Location:
    return make_table(folder, {"a": [1, 2]}, [field("a", "long")], description="d", configuration={"k": "v"})


def rows_by_spark(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in spark.read.format("delta").load(str(folder)).collect()), key=repr)


def rows_by_delta_rs(folder: Path) -> list[tuple[Any, ...]]:
    table = DeltaTable(folder).to_pyarrow_table()
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def without_entry(folder: Path) -> Path:
    """A copy of the table whose entry, which Spark wants to see in the folder, holds no action but its commitInfo."""
    copy = folder.with_name(f"{folder.name}-copy")
    shutil.copytree(folder, copy)
    entry = copy / "_delta_log" / ENTRY
    entry.write_bytes(entry.read_bytes().partition(b"\n")[0] + b"\n")
    return copy


def test_rule_39_the_checkpoint_alone_serves_spark_and_delta_rs(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    root = plain_table(folder)
    by_spark, by_delta_rs = rows_by_spark(spark, folder), rows_by_delta_rs(folder)
    write_checkpoint(LocalStorage(), root, 0)
    assert log_state(LocalStorage(), root).has_checkpoint
    assert rows_by_spark(spark, folder) == by_spark
    copy = without_entry(folder)
    assert rows_by_spark(spark, copy) == by_spark
    assert rows_by_delta_rs(copy) == by_delta_rs
    assert (1, None) in by_spark
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{copy}`").first()
    assert detail is not None
    assert (detail.description, detail.partitionColumns, detail.numFiles) == ("d", ["p"], 3)
    assert detail.properties == {"k": "v"}


def test_rule_39_features_survive_in_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    columns = {"a b": [1, None], "at": pa.array([0, None], pa.timestamp("us"))}
    fields = [field("a b", "long"), field("at", "timestamp_ntz")]
    configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    for number, each in enumerate(fields, 1):
        each["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": each["name"]}
    files = []
    (folder / "p=1").mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "p=1" / "f")
    files.append(ParquetFileInfo(f"{folder}/p=1/f", (folder / "p=1" / "f").stat().st_size))
    mapped = field("p", "integer", **{"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "p"})
    schema = {"type": "struct", "fields": [*fields, mapped]}
    write_delta_log(generate_delta_log(files, schema, ["p"], str(folder), configuration=configuration), str(folder))
    expected = rows_by_spark(spark, folder)
    write_checkpoint(LocalStorage(), parse_location(str(folder)), 0)
    copy = without_entry(folder)
    assert rows_by_spark(spark, copy) == expected
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{copy}`").first()
    assert detail is not None
    assert (detail.minReaderVersion, detail.minWriterVersion) == (3, 7)
    assert {"columnMapping", "timestampNtz"} <= set(detail.tableFeatures)


def test_spark_goes_on_from_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write_checkpoint(LocalStorage(), plain_table(folder), 0)
    copy = without_entry(folder)
    spark.createDataFrame([(9, "z")], "a bigint, p string").write.format("delta").mode("append").save(str(copy))
    spark.sql(f"DELETE FROM delta.`{copy}` WHERE a = 1")
    assert rows_by_spark(spark, copy) == [(2, "a/b"), (2, "x y"), (2, None), (9, "z")]


def test_a_checkpoint_in_many_batches_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = plain_table(tmp_path / "t")
    monkeypatch.setattr(checkpoint, "_ROWS_PER_BATCH", 2)
    write_checkpoint(LocalStorage(), root, 0)
    found = pq.read_table(tmp_path / "t" / "_delta_log" / CHECKPOINT)
    assert found.num_rows == 5
    assert not any(name == "commitInfo" for name in found.column_names)
    adds = [add for add in found.column("add").to_pylist() if add is not None]
    assert [add["dataChange"] for add in adds] == [False] * 3
    pointer = json.loads((tmp_path / "t" / "_delta_log" / "_last_checkpoint").read_text())
    size = (tmp_path / "t" / "_delta_log" / CHECKPOINT).stat().st_size
    assert pointer == {"version": 0, "size": 5, "sizeInBytes": size, "numOfAddFiles": 3}


@pytest.mark.parametrize("partitions", [[], ["p"], ["p", "Ä \U0001f600", "a.b"]])
def test_many_add_actions_are_parsed_as_each_by_itself(partitions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    entry = parse_location("/t/_delta_log/0.json")
    values = [None, "", "a/b", "\u2028 \x00 \U0001f600", '"quoted"', "1" * 40_000]
    adds = [
        add_action(
            f"f%20{number}",
            {name: values[(number + place) % len(values)] for place, name in enumerate(partitions)},
            2**62 + number,
            number or None,
            json.dumps({"numRecords": number, "minValues": {"s": values[number % len(values)]}})
            if number % 3
            else None,
        )
        for number in range(25)
    ]
    lines = [action_line(add).encode() + b"\n" for add in adds]
    monkeypatch.setattr(checkpoint, "_ROWS_PER_BATCH", 10)
    parsed = pa.Table.from_batches(checkpoint._read_batches(lines, entry))
    # Python's own parser has these, which do not begin as those that this package writes.
    others = [b" " + line for line in lines]
    expected = pa.Table.from_batches(checkpoint._read_batches(others, entry))
    assert parsed.to_pylist() == expected.to_pylist()
    assert parsed.schema == expected.schema
    assert parsed.num_rows == 25
    parsed.validate(full=True)


def test_pyarrow_parses_the_add_actions_of_this_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("parsed line by line")

    root = plain_table(tmp_path / "t")
    with (tmp_path / "t" / "_delta_log" / ENTRY).open("rb") as lines:
        adds = [line for line in lines if line.startswith(b'{"add"')]
    monkeypatch.setattr(checkpoint, "_parse_line", fail)
    assert checkpoint._parse_adds(adds, root).num_rows == 3


def test_it_can_be_run_again_at_any_point(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    root = plain_table(folder)
    write_checkpoint(LocalStorage(), root, 0)
    log = folder / "_delta_log"
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    write_checkpoint(LocalStorage(), root, 0)
    (log / "_last_checkpoint").unlink()
    write_checkpoint(LocalStorage(), root, 0)
    assert {path.name: path.read_bytes() for path in log.iterdir()} == before


def test_a_pointer_to_a_later_checkpoint_is_kept(tmp_path: Path) -> None:
    root = plain_table(tmp_path / "t")
    LocalStorage().put_if_absent(log_folder(root).child("_last_checkpoint"), io.BytesIO(b'{"version":10,"size":1}'))
    write_checkpoint(LocalStorage(), root, 0)
    assert (tmp_path / "t" / "_delta_log" / "_last_checkpoint").read_bytes() == b'{"version":10,"size":1}'


class Damaging(LocalStorage):
    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        written = super().put_if_absent(path, source)
        os.truncate(path.path, 100)
        return written


def test_rule_39_nothing_points_at_a_checkpoint_that_cannot_be_read_back(tmp_path: Path) -> None:
    root = plain_table(tmp_path / "t")
    with pytest.raises(PermanentError, match="cannot be read"):
        write_checkpoint(Damaging(), root, 0)
    assert not (tmp_path / "t" / "_delta_log" / "_last_checkpoint").exists()


def test_a_checkpoint_of_other_files_is_not_pointed_at(tmp_path: Path) -> None:
    root, other = plain_table(tmp_path / "t"), tmp_path / "empty"
    empty = {"type": "struct", "fields": [field("a", "long")]}
    write_delta_log(generate_delta_log([], empty, [], str(other)), str(other))
    write_checkpoint(LocalStorage(), parse_location(str(other)), 0)
    shutil.copy(other / "_delta_log" / CHECKPOINT, tmp_path / "t" / "_delta_log" / CHECKPOINT)
    with pytest.raises(PermanentError, match="expected 5 and 3"):
        write_checkpoint(LocalStorage(), root, 0)
    assert not (tmp_path / "t" / "_delta_log" / "_last_checkpoint").exists()


def test_an_action_that_the_checkpoint_would_lose_is_refused(tmp_path: Path) -> None:
    for number, line in enumerate(('{"domainMetadata":{"domain":"d"}}', '{"add":{"path":"f","baseRowId":3}}')):
        root = plain_table(tmp_path / f"t{number}")
        log = tmp_path / f"t{number}" / "_delta_log"
        with (log / ENTRY).open("a") as entry:
            entry.write(line + "\n")
        with pytest.raises(PermanentError, match=r"domainMetadata|baseRowId"):
            write_checkpoint(LocalStorage(), root, 0)
        assert [path.name for path in log.iterdir()] == [ENTRY]


def test_only_version_0_is_a_table_by_itself(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="version 0"):
        write_checkpoint(LocalStorage(), parse_location(str(tmp_path)), 3)


def test_a_storage_that_does_not_answer_may_be_asked_again(tmp_path: Path) -> None:
    class Silent(LocalStorage):
        def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
            super().put_if_absent(path, source)
            raise TransientError("made up")

    root = plain_table(tmp_path / "t")
    with pytest.raises(TransientError):
        write_checkpoint(Silent(), root, 0)
    write_checkpoint(LocalStorage(), root, 0)
    assert log_state(LocalStorage(), root).has_checkpoint


def test_a_checkpoint_on_s3_serves_spark(spark: SparkSession, bucket: str, s3: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "f")
    s3.upload_file(str(tmp_path / "f"), bucket, "t/f")
    schema = {"type": "struct", "fields": [field("a", "long")]}
    file = ParquetFileInfo(f"s3://{bucket}/t/f", (tmp_path / "f").stat().st_size)
    write_delta_log(generate_delta_log([file], schema, [], f"s3://{bucket}/t"), f"s3://{bucket}/t")
    write_checkpoint(S3Storage(ConversionOptions()), parse_location(f"s3://{bucket}/t"), 0)
    s3.put_object(Bucket=bucket, Key=f"t/_delta_log/{ENTRY}", Body=b'{"commitInfo":{"timestamp":1}}\n')
    found = spark.read.format("delta").load(f"s3://{bucket}/t").collect()
    assert sorted(row.a for row in found) == [1, 2]
