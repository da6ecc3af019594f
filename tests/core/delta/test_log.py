"""Actions, entries and commits: what is written is what Spark and delta-rs read, and nobody's entry is overwritten."""

from __future__ import annotations

import io
import json
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any, BinaryIO

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from airflow_hive_to_delta.core.delta.actions import (
    ENGINE_INFO,
    action_line,
    commit_info,
    metadata_action,
    protocol_action,
)
from airflow_hive_to_delta.core.delta.log.commits import (
    LogState,
    build_add_action,
    commit,
    generate_delta_log,
    log_state,
    read_metadata,
    write_delta_log,
)
from airflow_hive_to_delta.core.delta.log.files import commit_path, log_files, log_folder, records_folder
from airflow_hive_to_delta.core.delta.log.segment import log_segment
from airflow_hive_to_delta.core.errors import (
    MissingError,
    PartitionError,
    PermanentError,
    SchemaError,
    TransientError,
    UnsupportedTableError,
)
from airflow_hive_to_delta.core.models import ALREADY_DELTA, ParquetFileInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.local import LocalStorage
from airflow_hive_to_delta.core.storage.s3 import S3Storage
from airflow_hive_to_delta.core.storage.uri import Location, parse_location
from tests.support.files import tree
from tests.support.s3_servers import put_in_one_step
from tests.support.spark_versions import needs_spark_4


def schema_of(**columns: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return {"type": "struct", "fields": fields}


def data_file(path: Path, **columns: Any) -> ParquetFileInfo:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return ParquetFileInfo(str(path), path.stat().st_size, modification_time=1_700_000_000_000)


def entry_of(txn_id: str, files: int = 0) -> io.BytesIO:
    """A whole first entry, of a table without files."""
    actions = (
        commit_info(number_of_files=files, partition_columns=[], collect_stats=False, txn_id=txn_id),
        protocol_action([]),
        metadata_action(schema_of(a="long"), []),
    )
    return io.BytesIO("".join(action_line(action) + "\n" for action in actions).encode())


def rows(spark: SparkSession, location: object) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in spark.read.format("delta").load(str(location)).collect()), key=repr)


# --- actions -----------------------------------------------------------------------------------------------------


def test_rule_1_entries_are_numbered_with_twenty_digits() -> None:
    root = parse_location("s3://b/t")
    assert str(log_folder(root)) == "s3://b/t/_delta_log"
    assert str(commit_path(root, 12)) == "s3://b/t/_delta_log/00000000000000000012.json"


def test_a_line_is_ascii_so_that_no_reader_splits_it() -> None:
    line = action_line({"add": {"path": "a\u2028b\u0085\né"}})
    assert line.isascii()
    assert "\n" not in line
    assert " " not in line
    assert json.loads(line) == {"add": {"path": "a\u2028b\u0085\né"}}


@pytest.mark.parametrize(
    ("features", "reader", "writer"), [([], 1, 2), (["columnMapping"], 2, 5), (["timestampNtz"], 3, 7)]
)
def test_rule_10_the_lowest_protocol_is_taken(features: list[str], reader: int, writer: int) -> None:
    protocol = protocol_action(features)["protocol"]
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (reader, writer)
    assert ("readerFeatures" in protocol) == ("writerFeatures" in protocol) == (reader == 3)


def test_rule_29_features_are_in_both_lists() -> None:
    protocol = protocol_action(["typeWidening", "columnMapping"])["protocol"]
    assert protocol["readerFeatures"] == ["columnMapping", "typeWidening"]
    assert protocol["writerFeatures"] == ["appendOnly", "columnMapping", "invariants", "typeWidening"]


def test_a_feature_that_nobody_writes_is_refused() -> None:
    with pytest.raises(PermanentError, match="deletionVectors"):
        protocol_action(["deletionVectors"])


def test_rule_9_and_25_the_metadata_has_an_id_and_a_schema_in_json() -> None:
    schema = schema_of(s={"type": "array", "elementType": "long", "containsNull": True}, p="string")
    made = metadata_action(schema, ["p"], configuration={"delta.appendOnly": "true", "owner": "me"}, created_time=5)
    metadata = made["metaData"]
    assert json.loads(metadata["schemaString"]) == schema
    assert uuid.UUID(metadata["id"])
    assert metadata["partitionColumns"] == ["p"]
    assert metadata["configuration"] == {"delta.appendOnly": "true", "owner": "me"}
    assert metadata["createdTime"] == 5
    assert "description" not in metadata
    assert metadata_action(schema, [], description="d", table_id="x")["metaData"]["description"] == "d"


@pytest.mark.parametrize(
    "key",
    [
        "delta.columnMapping.mode",
        "delta.constraints.c",
        "delta.enableChangeDataFeed",
        "delta.enableDeletionVectors",
        "delta.feature.v2Checkpoint",
        "delta.minWriterVersion",
    ],
)
def test_a_property_that_needs_a_feature_is_refused(key: str) -> None:
    with pytest.raises(PermanentError, match=key):
        metadata_action(schema_of(a="long"), [], configuration={key: "true"})


def test_rule_7_the_commit_info_is_that_of_a_real_conversion(spark: SparkSession, tmp_path: Path) -> None:
    file = data_file(tmp_path / "ours" / "p=1" / "f.parquet", a=[1, 2])
    data_file(tmp_path / "theirs" / "p=1" / "f.parquet", a=[1, 2])
    spark.sql(f"CONVERT TO DELTA parquet.`{tmp_path}/theirs` PARTITIONED BY (p INT)")
    text = generate_delta_log([file], schema_of(a="long", p="integer"), ["p"], str(tmp_path / "ours"))
    write_delta_log(text, str(tmp_path / "ours"))

    def history(folder: str) -> Any:
        return spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/{folder}`").first()

    ours, theirs = history("ours"), history("theirs")
    assert (ours.operation, ours.isolationLevel) == (theirs.operation, theirs.isolationLevel)
    assert ours.operationMetrics == theirs.operationMetrics == {"numConvertedFiles": "1"}
    assert ours.operationParameters == {**theirs.operationParameters, "collectStats": "false"} | {
        key: ours.operationParameters[key]
        for key in ours.operationParameters.keys() - theirs.operationParameters.keys()
    }
    assert ours.operationParameters["partitionedBy"] == '["p"]'
    assert ours.engineInfo == ENGINE_INFO
    parameters = json.loads(text.partition("\n")[0])["commitInfo"]["operationParameters"]
    assert all(isinstance(value, str) for value in parameters.values())


def test_rules_14_to_24_paths_and_partition_values_are_written_as_readers_take_them(tmp_path: Path) -> None:
    root = str(tmp_path / "t")
    types = {"p": "string", "n": "integer"}
    inside = ParquetFileInfo(f"{root}/p=a%2Fb c%25d%3De/n=007/f", 1)
    add = build_add_action(inside, root, types)["add"]
    assert add["path"] == "p=a%252Fb%20c%2525d%253De/n=007/f"
    assert add["partitionValues"] == {"p": "a/b c%d=e", "n": "7"}
    outside = ParquetFileInfo("s3a://other/p=__HIVE_DEFAULT_PARTITION__/n=1/f", 1)
    add = build_add_action(outside, "s3://b/t", types, stats='{"numRecords":1}')["add"]
    assert add["path"] == "s3://other/p=__HIVE_DEFAULT_PARTITION__/n=1/f"
    assert add["partitionValues"] == {"p": None, "n": "1"}
    assert add["stats"] == '{"numRecords":1}'
    given = ParquetFileInfo(f"{root}/x/f", 1, {"p": "", "n": "+3"})
    assert build_add_action(given, root, types)["add"]["partitionValues"] == {"p": None, "n": "3"}
    assert build_add_action(given, root)["add"]["partitionValues"] == {"p": None, "n": "+3"}
    with pytest.raises(PartitionError, match="Expecting 2 partition column"):
        build_add_action(ParquetFileInfo(f"{root}/p=1/f", 1), root, types)


def test_rule_19_and_16_partitions_outside_the_root_and_null_ones_are_read(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t 1"
    files = [
        data_file(root / "p=a%2Fb c%25d%3De" / "000000_0", a=[1]),
        data_file(root / "p=__HIVE_DEFAULT_PARTITION__" / "000000_0", a=[2]),
        data_file(tmp_path / "t 10" / "p=x:y" / "f.parquet", a=[3]),
    ]
    write_delta_log(generate_delta_log(files, schema_of(a="long", p="string"), ["p"], str(root)), str(root))
    assert rows(spark, root) == [(1, "a/b c%d=e"), (2, None), (3, "x:y")]


def test_rule_4_a_file_in_two_spellings_is_refused() -> None:
    for one, other in [("s3://b/t/f", "s3a://b/t/f"), ("/t/f", "file:/t/f"), ("/t/f", "file:///t/f")]:
        with pytest.raises(PermanentError, match="listed twice"):
            generate_delta_log([ParquetFileInfo(one, 1), ParquetFileInfo(other, 1)], schema_of(a="long"), [], "/t")


def test_rule_41_and_44_empty_files_are_left_out_and_an_empty_table_is_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = generate_delta_log([ParquetFileInfo(f"{tmp_path}/f", 0)], schema_of(a="long"), [], str(tmp_path))
    write_delta_log(text, str(tmp_path))
    assert rows(spark, tmp_path) == []
    assert log_state(LocalStorage(), parse_location(str(tmp_path))).file_count == 0


def test_a_partition_column_must_be_in_the_schema() -> None:
    with pytest.raises(SchemaError, match="not in the schema"):
        generate_delta_log([], schema_of(a="long"), ["p"], "/t")


def test_rule_10_and_11_features_that_the_schema_shows_are_turned_on(spark: SparkSession, tmp_path: Path) -> None:
    moment = pa.array([0, None], pa.timestamp("us"))
    file = data_file(tmp_path / "f.parquet", **{"a b": [1, 2], "at": moment})
    schema = schema_of(**{"a b": "long", "at": "timestamp_ntz"})
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
    configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    write_delta_log(
        generate_delta_log([file], schema, [], str(tmp_path), configuration=configuration, description="d"),
        str(tmp_path),
    )
    assert sorted(row[0] for row in spark.read.format("delta").load(str(tmp_path)).collect()) == [1, 2]
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{tmp_path}`").first()
    assert detail is not None
    assert (detail.minReaderVersion, detail.minWriterVersion, detail.description) == (3, 7, "d")
    assert {"columnMapping", "timestampNtz"} <= set(detail.tableFeatures)


def test_delta_rs_reads_what_was_written(tmp_path: Path) -> None:
    files = [data_file(tmp_path / f"p={p}" / "f.parquet", a=[1, 2]) for p in ("x y", "z")]
    write_delta_log(generate_delta_log(files, schema_of(a="long", p="string"), ["p"], str(tmp_path)), str(tmp_path))
    table = pa.table(DeltaTable(tmp_path).to_pyarrow_table())
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == [(1, "x y"), (1, "z"), (2, "x y"), (2, "z")]


def test_spark_can_write_to_the_table_afterwards(spark: SparkSession, tmp_path: Path) -> None:
    file = data_file(tmp_path / "f.parquet", a=[1])
    write_delta_log(generate_delta_log([file], schema_of(a="long"), [], str(tmp_path)), str(tmp_path))
    spark.range(5, 6).toDF("a").write.format("delta").mode("append").save(str(tmp_path))
    assert rows(spark, tmp_path) == [(1,), (5,)]
    state = log_state(LocalStorage(), parse_location(str(tmp_path)))
    assert (state.version, state.ours, state.file_count) == (1, True, 1)


# --- write_delta_log ---------------------------------------------------------------------------------------------


def test_a_table_that_is_delta_already_is_refused_and_left_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path))
    before = tree(tmp_path)
    with pytest.raises(PermanentError, match=ALREADY_DELTA):
        write_delta_log(generate_delta_log([], schema_of(a="long"), [], str(tmp_path)), str(tmp_path))
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no json\n",
        '{"protocol":{}}\n{"metaData":{}}\n',
        '{"commitInfo":{"txnId":"x"}}\n{"protocol":{}}\n',
        '{"commitInfo":{"txnId":"x"}}\n{"protocol":{}}\n{"metaData":{}}\n{"metaData":{}}\n',
        '{"commitInfo":{"txnId":"x"}}\n{"protocol":{}}\n{"metaData":{}}\n' + '{"add":{"path":"f"}}\n' * 2,
    ],
)
def test_rule_4_content_that_would_break_the_table_is_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="generate_delta_log"):
        write_delta_log(content, str(tmp_path))
    assert tree(tmp_path) == {}


def test_a_table_on_s3_is_written_and_read(spark: SparkSession, bucket: str, s3: Any, tmp_path: Path) -> None:
    file = data_file(tmp_path / "f.parquet", a=[1, 2])
    s3.upload_file(file.path, bucket, "t/p=a%2Fb c/f.parquet")
    listed = ParquetFileInfo(f"s3://{bucket}/t/p=a%2Fb c/f.parquet", file.size)
    text = generate_delta_log([listed], schema_of(a="long", p="string"), ["p"], f"s3://{bucket}/t")
    written = write_delta_log(text, f"s3://{bucket}/t", "us-east-1")
    assert written == f"s3://{bucket}/t/_delta_log/00000000000000000000.json"
    assert rows(spark, f"s3://{bucket}/t") == [(1, "a/b c"), (2, "a/b c")]


# --- commits -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["local", "s3"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Location]:
    if request.param == "s3":
        return S3Storage(ConversionOptions()), parse_location(f"s3://{request.getfixturevalue('bucket')}/t")
    return LocalStorage(), parse_location(str(tmp_path / "t"))


def test_one_of_many_converters_commits(table: tuple[Any, Location], monkeypatch: pytest.MonkeyPatch) -> None:
    storage, root = table
    put_in_one_step(monkeypatch)
    barrier = Barrier(6)

    def convert(number: int) -> bool:
        barrier.wait()
        return commit(storage, root, 0, entry_of(f"txn-{number}"), f"txn-{number}")

    with ThreadPoolExecutor(6) as pool:
        won = list(pool.map(convert, range(6)))
    assert won.count(True) == 1
    with storage.open(commit_path(root, 0)) as lines:
        assert json.loads(lines.readline())["commitInfo"]["txnId"] == f"txn-{won.index(True)}"


def test_rule_2_an_entry_of_somebody_else_is_a_lost_race(table: tuple[Any, Location]) -> None:
    storage, root = table
    storage.put_if_absent(commit_path(root, 0), io.BytesIO(b'{"metaData":{}}\n'))
    assert not commit(storage, root, 0, entry_of("mine"), "mine")
    with storage.open(commit_path(root, 0)) as stream:
        assert stream.read() == b'{"metaData":{}}\n'


def losing(client: Any, answers: int) -> Any:
    """Make a client lose the answers to this many PutObject requests that S3 has served."""
    left = [answers]

    def serve_and_lose(request: Any, **_: Any) -> None:
        # Not to the requests that find out whether the store knows conditional writes.
        if left[0] > 0 and "conditional-write" not in request.url:
            left[0] -= 1
            URLLib3Session().send(request)
            raise ConnectionClosedError(endpoint_url=request.url)

    client.meta.events.register("before-send.s3.PutObject", serve_and_lose)
    return client


def test_rule_2_a_repeated_request_that_is_refused_had_landed(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client repeats the request by itself, and its own entry makes S3 answer 412."""
    patient = losing(boto3.client("s3", region_name="us-east-1"), 1)
    monkeypatch.setattr(aws, "s3_client", lambda *_: patient)
    storage, root = S3Storage(ConversionOptions()), parse_location(f"s3://{bucket}/t")
    assert commit(storage, root, 0, entry_of("mine"), "mine")


def test_rule_2_a_lost_answer_is_resolved_by_the_transaction(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    once = Config(retries={"total_max_attempts": 1})
    impatient = losing(boto3.client("s3", region_name="us-east-1", config=once), 3)
    monkeypatch.setattr(aws, "s3_client", lambda *_: impatient)
    storage, root = S3Storage(ConversionOptions()), parse_location(f"s3://{bucket}/t")
    with pytest.raises(TransientError):
        storage.put_if_absent(root.child("x"), io.BytesIO(b"x"))
    assert commit(storage, root, 0, entry_of("mine"), "mine")
    assert not commit(storage, root, 0, entry_of("another's"), "another's")


class Faulty(LocalStorage):
    """A local storage on which something happens right after each write."""

    def __init__(self, then: Any) -> None:
        self._then = then

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        written = super().put_if_absent(path, source)
        self._then(Path(path.path))
        return written


def test_rule_5_an_entry_that_was_overwritten_at_once_is_a_lost_race(tmp_path: Path) -> None:
    faulty = Faulty(lambda path: path.write_bytes(entry_of("spark").getvalue()))
    assert not commit(faulty, parse_location(str(tmp_path)), 0, entry_of("mine"), "mine")


def test_rule_5_an_entry_that_is_not_whole_is_an_alarm(tmp_path: Path) -> None:
    faulty = Faulty(lambda path: os.truncate(path, path.stat().st_size - 1))
    with pytest.raises(PermanentError, match="expected"):
        commit(faulty, parse_location(str(tmp_path)), 0, entry_of("mine"), "mine")


def test_an_entry_that_cannot_be_found_again_may_be_tried_again(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="not there"):
        commit(Faulty(Path.unlink), parse_location(str(tmp_path)), 0, entry_of("mine"), "mine")


def test_rule_6_the_dynamodb_log_store_is_refused_above_version_0(table: tuple[Any, Location]) -> None:
    storage, root = table
    storage.put_if_absent(log_folder(root).child(".tmp").child("x.json"), io.BytesIO(b"x"))
    assert commit(storage, root, 0, entry_of("mine"), "mine")
    with pytest.raises(UnsupportedTableError, match="DynamoDB"):
        commit(storage, root, 1, entry_of("more"), "more")
    assert sorted(storage.list_names(log_folder(root))) == [".tmp/", "00000000000000000000.json"]


def test_rule_6_a_catalog_managed_table_is_refused(table: tuple[Any, Location]) -> None:
    storage, root = table
    storage.put_if_absent(log_folder(root).child("_staged_commits").child("0.u.json"), io.BytesIO(b"x"))
    with pytest.raises(UnsupportedTableError, match="catalog"):
        commit(storage, root, 0, entry_of("mine"), "mine")
    with pytest.raises(UnsupportedTableError, match="catalog"):
        log_state(storage, root)
    assert storage.list_names(log_folder(root)) == ["_staged_commits/"]


def test_rule_56_an_entry_is_written_onto_the_one_before_it_only(table: tuple[Any, Location]) -> None:
    storage, root = table
    with pytest.raises(MissingError, match=r"Version 1 of \S+/t was not written: the entry 0 before it is gone"):
        commit(storage, root, 1, entry_of("mine"), "mine")
    assert storage.list_names(log_folder(root)) == []
    # Some writers clean up the entry of a checkpoint too.
    storage.put_if_absent(log_folder(root).child(f"{4:020d}.checkpoint.parquet"), io.BytesIO(b"x"))
    assert commit(storage, root, 5, entry_of("mine"), "mine", previous="cleaned up")
    assert commit(storage, root, 6, entry_of("more"), "more", previous="mine")
    with pytest.raises(TransientError, match="was not written: the entry 6 before it is not the one that was read"):
        commit(storage, root, 7, entry_of("last"), "last", previous="mine")
    storage.put_if_absent(records_folder(root).child("rollback.json"), io.BytesIO(b"{}"))
    for version in (0, 7):
        with pytest.raises(PermanentError, match=r"was not written: a rollback of the table was begun"):
            commit(storage, root, version, entry_of("last"), "last")
    assert log_files(storage.list_names(log_folder(root))).commits == {5, 6}


class HeldUp(LocalStorage):
    """A storage that lets something else happen right before it writes."""

    def __init__(self, first: Any) -> None:
        self._first = first

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        self._first()
        return super().put_if_absent(path, source)


def test_rule_56_a_writer_that_was_held_up_between_look_and_put_says_what_to_do(tmp_path: Path) -> None:
    storage, root = LocalStorage(), parse_location(str(tmp_path))
    log, aside = tmp_path / "_delta_log", tmp_path / "_delta_log_rolled_back" / "x"
    assert commit(storage, root, 0, entry_of("first"), "first")

    def roll_back() -> None:
        aside.mkdir(parents=True)
        (log / f"{0:020d}.json").rename(aside / f"{0:020d}.json")

    broken = rf"is broken: it holds {1:020d}\.json, but there is no entry 0.* move {1:020d}\.json out of file://{log},"
    with pytest.raises(MissingError, match=broken):
        commit(HeldUp(roll_back), root, 1, entry_of("late"), "late")
    with pytest.raises(MissingError, match=broken):
        log_state(storage, root)
    (log / f"{1:020d}.json").unlink()
    assert log_state(storage, root) == LogState(exists=False)

    assert commit(storage, root, 0, entry_of("again"), "again")
    other = HeldUp(lambda: (log / f"{0:020d}.json").write_bytes(entry_of("another").getvalue()))
    with pytest.raises(PermanentError, match=r"Version 1 of .* was written: the entry 0 before it is not the one"):
        commit(other, root, 1, entry_of("late"), "late", previous="again")


# --- the state of a log ------------------------------------------------------------------------------------------


def test_a_folder_without_entries_is_no_table(tmp_path: Path) -> None:
    storage, root = LocalStorage(), parse_location(str(tmp_path))
    assert log_state(storage, root) == LogState(exists=False)
    (tmp_path / "_delta_log" / "_staged_commits").mkdir(parents=True)
    assert log_state(storage, root) == LogState(exists=False)
    (tmp_path / "_delta_log" / ".00000000000000000000.json.0123.tmp").write_bytes(b"{")
    (tmp_path / "_delta_log" / "00000000000000000000.crc").write_bytes(b"{}")
    assert log_state(storage, root) == LogState(exists=False)


@needs_spark_4("the folder for staged commits, which its Delta Lake makes")
def test_the_table_of_another_writer_is_not_ours(spark: SparkSession, tmp_path: Path) -> None:
    """Spark makes an empty folder for staged commits in every table: that alone is not catalog-managed."""
    for _ in range(2):
        spark.range(3).write.format("delta").mode("append").save(str(tmp_path))
    assert (tmp_path / "_delta_log" / "_staged_commits").is_dir()
    assert log_state(LocalStorage(), parse_location(str(tmp_path))) == LogState(exists=True, version=1)


def test_a_log_of_which_only_a_checkpoint_is_left_is_a_table(tmp_path: Path) -> None:
    names = ["00000000000000000010.checkpoint.parquet", "00000000000000000012.checkpoint.0000000001.0000000002.parquet"]
    (tmp_path / "_delta_log").mkdir()
    for name in names:
        (tmp_path / "_delta_log" / name).write_bytes(b"")
    assert log_state(LocalStorage(), parse_location(str(tmp_path))) == LogState(
        exists=True, version=10, has_first_entry=False
    )


@pytest.mark.parametrize(
    ("versions", "missing"), [([3], 0), ([0, 2], 1), ([], 0)], ids=["no beginning", "a gap", "half a checkpoint"]
)
def test_a_log_of_which_nobody_can_read_the_latest_version_is_broken(
    versions: list[int], missing: int, tmp_path: Path
) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    for version in versions:
        (log / f"{version:020d}.json").write_bytes(entry_of("x").getvalue())
    if not versions:
        (log / f"{5:020d}.checkpoint.0000000001.0000000002.parquet").write_bytes(b"x")
    for look in (log_state, log_segment):
        with pytest.raises(
            MissingError, match=rf"is broken: it holds .*, but there is no entry {missing}, .* from a backup$"
        ) as error:
            look(LocalStorage(), parse_location(str(tmp_path)))
        assert all(path.name in str(error.value) for path in log.iterdir())


@pytest.mark.parametrize(
    "first_line", [b"", b"[]", b"{", b'{"commitInfo":[]}', b'{"commitInfo":{"operation":"CONVERT"}}']
)
def test_an_entry_that_begins_strangely_is_somebody_elses(first_line: bytes, tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_bytes(first_line)
    assert log_state(LocalStorage(), parse_location(str(tmp_path))) == LogState(exists=True, version=0)


def test_our_log_says_what_it_was_made_of(tmp_path: Path) -> None:
    storage, root = LocalStorage(), parse_location(str(tmp_path))
    info = commit_info(
        number_of_files=7, partition_columns=["p"], collect_stats=True, txn_id="t", catalog_table="c.d.t", timestamp=1
    )
    schema = schema_of(a="long", p="string")
    metadata = metadata_action(schema, ["p"], description="d", configuration={"k": "v"})
    lines = "".join(action_line(a) + "\n" for a in (info, protocol_action([]), metadata))
    assert commit(storage, root, 0, io.BytesIO(lines.encode()), "t")
    assert log_state(storage, root) == LogState(True, 0, True, False, "c.d.t", 7)
    found = read_metadata(storage, root)
    assert (found.schema, found.partition_columns) == (schema, ["p"])
    assert (found.description, found.configuration) == ("d", {"k": "v"})


def test_the_latest_metadata_is_read(spark: SparkSession, tmp_path: Path) -> None:
    write_delta_log(generate_delta_log([], schema_of(a="long"), [], str(tmp_path)), str(tmp_path))
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` ADD COLUMNS (b STRING)")
    found = read_metadata(LocalStorage(), parse_location(str(tmp_path)))
    assert [field["name"] for field in found.schema["fields"]] == ["a", "b"]
