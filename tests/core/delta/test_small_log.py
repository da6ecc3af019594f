"""A log that the driver reads, against the same log read by Spark; and that the driver needs no Spark job for it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta import ConversionOptions
from airflow_hive_to_delta.core import arrow_columns
from airflow_hive_to_delta.core.delta.action_schemas import READ_ACTIONS_SCHEMA
from airflow_hive_to_delta.core.delta.actions import metadata_action
from airflow_hive_to_delta.core.delta.live_files import live_files_of
from airflow_hive_to_delta.core.delta.local_frames import arrow_table, local_frame
from airflow_hive_to_delta.core.delta.log import driver_reader
from airflow_hive_to_delta.core.delta.log.driver_reader import parse_checkpoint, parse_entry
from airflow_hive_to_delta.core.delta.snapshot import Snapshot, snapshot_of
from airflow_hive_to_delta.core.lifecycle.ledger import read_ledger
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import decoded_path, parse_location
from tests.support.small_tables import count_jobs, large_checkpoints, no_small_logs

PROTOCOL = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}}
METADATA = metadata_action({"type": "struct", "fields": []}, ["p"])
VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}


def add(path: str, **fields: Any) -> dict[str, Any]:
    known = {"path": path, "partitionValues": {"p": "1"}, "size": 7, "modificationTime": 8, "dataChange": True}
    return {"add": known | {"stats": '{"numRecords":3}'} | fields}


def remove(path: str, **fields: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 9, "dataChange": True} | fields}


#: Logs by what is odd in them: the actions of each entry.
LOGS: dict[str, list[list[dict[str, Any]]]] = {
    "one entry": [[add("p=1/a"), add("p=1/b")]],
    "no file": [[]],
    "removed, and added again": [[add("a"), add("b")], [remove("a"), remove("b")], [add("a", size=1)]],
    "removes without size or values": [[add("a")], [remove("a", extendedFileMetadata=False), remove("never/there")]],
    "removes with all fields": [
        [add("a")],
        [remove("a", extendedFileMetadata=True, size=7, partitionValues={"p": None}, tags={"x": "y"})],
    ],
    "deletion vectors": [
        [add("a"), add("b")],
        [remove("a"), add("a", deletionVector={**VECTOR, "cardinality": 1})],
        [
            remove("a", deletionVector={**VECTOR, "cardinality": 1}),
            add("a", deletionVector={**VECTOR, "offset": 44, "cardinality": 2}),
            remove("b"),
            add("b", deletionVector={"storageType": "i", "pathOrInlineDv": "x|y", "sizeInBytes": 1, "cardinality": 1}),
        ],
    ],
    "odd characters": [
        [
            *(add("p=a%20b%25c%3De+%C3%BC/f%231"), add("p=ü/😀"), add("p=%2520/+%2B"), add("a:b/c"), add("x%0Ay")),
            *(add("\u2028"), add("p=%5C%22", partitionValues={"p": '\\" \u2028'}), add("a\tb")),
        ],
        [remove("p=%C3%BC/%F0%9F%98%80")],
    ],
    "absolute paths": [
        [add("s3a://b/x%20y"), add("s3://b/z"), add("file:/d/e"), add("file:///d/f"), add("/d/g"), add("hdfs:/h/i")],
        [remove("s3://b/x%20y"), remove("file:///d/e"), remove("/d/g")],
    ],
    "one file in two spellings": [[add("a+b"), add("a%2Bb"), add("/d/a")], [remove("a+b")]],
    "applications, tags and what nobody knows": [
        [{"txn": {"appId": "x", "version": 1}}, add("a", tags={"t": "1", "u": None}, ofTomorrow={"x": [1]})],
        [{"txn": {"appId": "x", "version": 2, "lastUpdated": 5}}, {"domainMetadata": {"domain": "d"}}, {"cdc": {}}],
        [{"txn": {"appId": "y", "version": 2**62}}, {"metaData": {**METADATA["metaData"], "name": "n"}}, {}],
    ],
    "no statistics": [[add("a", stats=None), add("b", stats="{}"), add("c", stats='{"numRecords":null}')]],
    # Not as the protocol says, and read by Spark all the same.
    "numbers for texts": [[add("a", partitionValues={"p": 1}), add("b", tags={"t": True})]],
}
READ_BY_SPARK = {"numbers for texts"}


@pytest.fixture
def write_log(tmp_path: Path) -> Callable[[list[list[dict[str, Any]]]], Path]:
    def write(entries: list[list[dict[str, Any]]]) -> Path:
        root = tmp_path / "t 1%"
        (root / "_delta_log").mkdir(parents=True)
        for version, actions in enumerate(entries):
            first = [PROTOCOL, METADATA] if version == 0 else []
            info = {"commitInfo": {"operation": "WRITE", "isBlindAppend": False, "size": 1.5, "of": {"ü": [None]}}}
            lines = [info, *first, *actions]
            text = "".join(json.dumps(line, ensure_ascii=bool(version % 2)) + "\n" for line in lines)
            (root / "_delta_log" / f"{version:020d}.json").write_text(text + ("\n" if version else ""))
        return root

    return write


def snapshot_at(spark: SparkSession, root: Path) -> Snapshot:
    location = parse_location(str(root))
    return snapshot_of(spark, storage_for(location, spark, ConversionOptions()), location)


def describe(snapshot: Snapshot) -> dict[str, Any]:
    """Everything that a snapshot has, as plain values."""
    frames = {
        "files": snapshot.files,
        "removed": snapshot.removed,
        "actions": snapshot.read_commits(sorted(snapshot.segment.times)),
        "ledger": read_ledger(snapshot).files(),
    }
    rows = {name: [row.asDict(recursive=True) for row in frame.collect()] for name, frame in frames.items()}
    for action in rows["actions"]:
        action["commitInfo"] = action["commitInfo"] and json.loads(action["commitInfo"])
    return {
        **{f"schema of {name}": frame.schema.simpleString() for name, frame in frames.items()},
        **{name: sorted(map(repr, found)) for name, found in rows.items()},
        "metadata": snapshot.metadata,
        "protocol": snapshot.protocol,
        "transactions": snapshot.transactions,
        "history": snapshot.history,
        "entries": read_ledger(snapshot).entries,
    }


@pytest.mark.parametrize("entries", LOGS.values(), ids=LOGS)
def test_the_driver_and_spark_read_a_log_alike(
    spark: SparkSession, write_log: Callable[[list[list[dict[str, Any]]]], Path], entries: list[list[dict[str, Any]]],
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    root = write_log(entries)
    snapshot = snapshot_at(spark, root)
    by_driver = describe(snapshot)
    read = [entry.actions is not None for entry in snapshot._entries.values()]
    assert read == [request.node.callspec.id not in READ_BY_SPARK] * len(entries)
    with no_small_logs():
        on_spark = snapshot_at(spark, root)
        assert describe(on_spark) == by_driver
        assert on_spark._entries == {}


def test_a_small_log_needs_no_spark_job(
    spark: SparkSession, write_log: Callable[[list[list[dict[str, Any]]]], Path]
) -> None:
    root = write_log(LOGS["deletion vectors"])

    def use(snapshot: Snapshot) -> list[int]:
        assert len(snapshot.history) == 3
        assert (snapshot.metadata.partition_columns, snapshot.protocol.reader) == (["p"], 3)
        read_ledger(snapshot)
        actions = snapshot.read_commits(sorted(snapshot.segment.times)).where("add IS NOT NULL")
        return [len(frame.collect()) for frame in (snapshot.files, snapshot.removed, actions)]

    with count_jobs(spark) as jobs:
        found = use(snapshot_at(spark, root))
    assert jobs() == 0
    with no_small_logs(), count_jobs(spark) as jobs:
        assert use(snapshot_at(spark, root)) == found
    assert jobs() > 0


def test_entries_are_small_by_their_bytes_and_their_number() -> None:
    assert driver_reader.is_small([])
    assert driver_reader.is_small([driver_reader.MOST_BYTES - 1, 1])
    assert not driver_reader.is_small([driver_reader.MOST_BYTES, 1])
    assert driver_reader.is_small([1] * driver_reader.MOST_ENTRIES)
    assert not driver_reader.is_small([1] * (driver_reader.MOST_ENTRIES + 1))


@pytest.mark.parametrize(
    "line",
    [
        *("{", '"add"', "[]", "null", "{} {}", '{"add":7}', '{"add":[]}', '{"add":{}}', '{"add":{"path":null}}'),
        *('{"add":{"path":"a","size":"7"}}', '{"add":{"path":"a","size":7.0}}', '{"add":{"path":"a","size":true}}'),
        f'{{"add":{{"path":"a","size":{2**63}}}}}',
        *('{"add":{"path":"a","dataChange":1}}', '{"add":{"path":"a","partitionValues":{"p":1}}}'),
        *('{"add":{"path":"a","stats":{}}}', '{"add":{"path":"a%"}}', '{"add":{"path":"a%2"}}'),
        '{"add":{"path":"%FF"}}',
        *('{"add":{"path":"a","path":"b"}}', '{"add":{"path":"a","partitionValues":{"p":"1","p":"2"}}}'),
        *('{"add":{"path":"a"},"remove":{"path":"a"}}', '{"commitInfo":"x"}', '{"commitInfo":NaN}'),
        *('{"protocol":{"minReaderVersion":2147483648}}', '{"metaData":{"partitionColumns":"p"}}'),
        *('{"add":{"path":"\\ud800"}}', "[" * 100_000),
    ],
    ids=lambda line: line[:60],
)  # fmt: skip
def test_the_driver_leaves_to_spark_what_it_does_not_understand(line: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        driver_reader.parse_entry(line.encode(), 0)


def test_an_entry_that_is_not_utf8_is_left_to_spark() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        driver_reader.parse_entry(b'{"add":{"path":"\xff"}}', 0)


def test_a_local_frame_of_no_rows_is_empty(spark: SparkSession) -> None:
    schema = "a string, m map<string,string>, s struct<x:array<string>,y:bigint>"
    with count_jobs(spark) as jobs:
        assert local_frame(spark, [], schema).collect() == []
        row = {"m": {"k": None}, "s": {"x": ["1", None]}}
        assert [row.asDict(recursive=True) for row in local_frame(spark, [row], schema).collect()] == [
            {"a": None, "m": {"k": None}, "s": {"x": ["1", None], "y": None}}
        ]
    assert jobs() == 0


def test_a_checkpoint_with_statistics_as_values_is_left_to_spark_unless_they_are_texts_too() -> None:
    far = pa.array([2_932_897], pa.int32()).cast(pa.date32())  # 10000-01-01, which Python has not
    parsed = pa.StructArray.from_arrays([pa.StructArray.from_arrays([far], ["d"])], ["minValues"])

    def checkpoint(stats: str | None) -> bytes:
        columns = {"path": pa.array(["a"]), "size": pa.array([1], pa.int64()), "stats": pa.array([stats], pa.string())}
        add = pa.StructArray.from_arrays([*columns.values(), parsed], [*columns, "stats_parsed"])
        content = io.BytesIO()
        pq.write_table(pa.table({"add": add}), content)
        return content.getvalue()

    (action,) = parse_checkpoint(checkpoint('{"numRecords":1}'), 7)
    assert (action["add"]["path"], action["add"]["stats"], action["version"]) == ("a", '{"numRecords":1}', 7)
    with pytest.raises(ValueError, match="elsewhere"):
        parse_checkpoint(checkpoint(None), 7)
    with pytest.raises(ValueError):
        parse_checkpoint(b"no Parquet", 7)


#: Logs of which only Spark can tell the live files: an entry names a file that has a deletion vector, or names one in
#: another spelling.
LEFT_TO_SPARK = {("deletion vectors", 1), ("absolute paths", 0)}


@pytest.mark.parametrize("name", [name for name in LOGS if name not in READ_BY_SPARK])
def test_a_checkpoint_that_is_read_in_part_gives_the_same_live_files(
    spark: SparkSession, write_log: Callable[[list[list[dict[str, Any]]]], Path], name: str
) -> None:
    root = write_log(LOGS[name])
    whole = snapshot_at(spark, root)
    expected = {"metadata": whole.metadata, "protocol": whole.protocol, "transactions": whole.transactions}
    for version in range(len(LOGS[name])):
        write_checkpoint(root, version)
        with large_checkpoints():
            snapshot = snapshot_at(spark, root)
            live = snapshot.read_live_files(with_rows=True)
            assert {each: getattr(snapshot, each) for each in expected} == expected
        if live is None:
            assert (name, version) in LEFT_TO_SPARK
        else:
            assert sorted(map(repr, live.to_pylist())) == live_files(whole)
            assert snapshot.is_small is False


def checkpoint_of(stats: pa.Array, *, with_protocol: bool = True) -> bytes:
    """A checkpoint of two files, without metadata."""
    fields = {"path": pa.array(["a", "b"]), "partitionValues": pa.nulls(2, pa.map_(pa.string(), pa.string()))}
    fields |= {name: pa.array([1, 2], pa.int64()) for name in ("size", "modificationTime")} | {"stats": stats}
    protocol = pa.array([{"minReaderVersion": 1}, None], pa.struct([("minReaderVersion", pa.int32())]))
    content = io.BytesIO()
    add = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    pq.write_table(pa.table({"add": add} | ({"protocol": protocol} if with_protocol else {})), content)
    return content.getvalue()


@pytest.mark.parametrize(
    ("stats", "rows"),
    [
        (pa.array(['{"numRecords":7}', '{"numRecords":8,"x":1}']), [7, 8]),
        (pa.array(['{"numRecords":7}', None]).cast(pa.large_string()), [7, None]),
        (pa.array(['{"numRecords":7}'] * 2).dictionary_encode(), [7, 7]),
        (pa.array(['{"x":{"numRecords":7}}', '{"numRecords":1e2}']), [None, None]),
        (pa.nulls(2), [None, None]),
    ],
    ids=str,
)
def test_rows_are_counted_by_statistics_of_any_writer(stats: pa.Array, rows: list[int | None]) -> None:
    assert driver_reader.parse_large_checkpoint(checkpoint_of(stats), 7).count_rows().to_pylist() == rows


def test_a_large_checkpoint_without_state_or_with_very_many_files_is_left_to_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stats = pa.array(['{"numRecords":7}'] * 2)
    with pytest.raises(ValueError, match="no protocol"):
        driver_reader.parse_large_checkpoint(checkpoint_of(stats, with_protocol=False), 7)
    monkeypatch.setattr(arrow_columns, "MOST_FILES", 1)
    with pytest.raises(ValueError, match="2 rows"):
        driver_reader.parse_large_checkpoint(checkpoint_of(stats), 7)


def live_files(snapshot: Snapshot) -> list[str]:
    rows = snapshot.live_files
    assert rows is not None
    return sorted(map(repr, live_files_of(rows).to_pylist()))


def write_checkpoint(root: Path, version: int) -> None:
    """Write the checkpoint of a version as other writers do, from the entries up to it."""
    actions: dict[str, dict[str, Any]] = {}
    for entry in range(version + 1):
        for action in parse_entry((root / "_delta_log" / f"{entry:020d}.json").read_bytes(), entry):
            for kind in ("add", "remove", "txn", "protocol", "metaData"):
                if (found := action[kind]) is not None:
                    vector = found.get("deletionVector") or {}
                    named = decoded_path(found.get("path", "")), found.get("appId"), sorted(map(str, vector.items()))
                    actions[repr(named) if kind in ("add", "remove", "txn") else kind] = {kind: found}
    table = arrow_table(list(actions.values()), READ_ACTIONS_SCHEMA)
    file = root / "_delta_log" / f"{version:020d}.checkpoint.parquet"
    pq.write_table(table.drop_columns(["commitInfo", "sidecar"]), file)
