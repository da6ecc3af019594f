"""The log replayed on Spark, against what Delta itself sees: entries, checkpoints of every kind, logs with holes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta import ConversionOptions
from airflow_hive_to_delta.core.delta.actions import metadata_action
from airflow_hive_to_delta.core.delta.snapshot import Snapshot, snapshot_of
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
from airflow_hive_to_delta.core.errors import (
    HiveToDeltaError,
    MissingError,
    PermanentError,
    UnsupportedTableError,
)
from airflow_hive_to_delta.core.lifecycle.rollback.rollback import rollback_table
from airflow_hive_to_delta.core.lifecycle.sync.sync import sync_table
from airflow_hive_to_delta.core.lifecycle.vacuum.vacuum import vacuum_external_files
from airflow_hive_to_delta.core.lifecycle.verify import verify_table
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import canonical_uri, parse_location
from tests.support.lake import Lake
from tests.support.small_tables import no_small_logs
from tests.support.spark_versions import needs_spark_4
from tests.support.tables import convert_folder, write_parquet

pytestmark = pytest.mark.slow

ODD = "a/b c%d=e+ü:#?"


@contextmanager
def settings(spark: SparkSession, **conf: str) -> Iterator[None]:
    """Settings of Delta for a while; ``__`` stands for a dot."""
    names = {f"spark.databricks.delta.{name.replace('__', '.')}": value for name, value in conf.items()}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


def write_table(spark: SparkSession, root: Path, files: int = 2, **properties: str) -> None:
    """A partition with an odd value and a null one, a file each time; the last entry removes the odd one's files."""
    options = {f"delta.{name.replace('__', '.')}": value for name, value in properties.items()}
    for number in range(files):
        data = spark.createDataFrame([(number, ODD), (number, None)], "id int, p string").coalesce(1)
        writer = data.write.format("delta").mode("append").partitionBy("p")
        (writer.options(**options) if number == 0 else writer).save(str(root))
    spark.sql(f"DELETE FROM delta.`{root}` WHERE p IS NOT NULL")
    spark.createDataFrame([(9, ODD)], "id int, p string").write.format("delta").mode("append").save(str(root))


def snapshot_at(spark: SparkSession, root: Path | str, version: int | None = None) -> Snapshot:
    location = parse_location(str(root))
    return snapshot_of(spark, storage_for(location, spark, ConversionOptions()), location, version)


def assert_as_delta_sees_it(spark: SparkSession, root: Path | str, version: int | None = None) -> Snapshot:
    """Files, their number, sizes and rows, the protocol and the metadata, by Delta's own reader."""
    snapshot = snapshot_at(spark, root, version)
    delta = spark.read.format("delta").option("versionAsOf", snapshot.version).load(str(root))
    files = snapshot.files.collect()
    seen = {canonical_uri(parse_location(path)) for path in delta.inputFiles()}
    assert {file.key for file in files} == seen
    assert len(files) == len(seen)
    hidden = sum(file.deletion_vector.cardinality for file in files if file.deletion_vector)
    assert sum(file.rows for file in files) - hidden == len(delta.collect())
    for file in files:
        assert (file.size, file.modification_time > 0) == (size_of(file.key), True) if "file:" in file.key else True
    assert json.loads(delta.schema.json()) == snapshot.metadata.schema
    if version is None:
        detail = spark.sql(f"DESCRIBE DETAIL delta.`{root}`").collect()[0]
        assert (detail.numFiles, detail.sizeInBytes) == (len(files), sum(file.size for file in files))
        assert (detail.id, detail.partitionColumns) == (snapshot.metadata.id, snapshot.metadata.partition_columns)
        assert detail.properties == snapshot.metadata.configuration
        protocol = snapshot.protocol
        assert (detail.minReaderVersion, detail.minWriterVersion) == (protocol.reader, protocol.writer)
        if protocol.writer_features:
            assert set(detail.tableFeatures) == protocol.reader_features | protocol.writer_features
    with no_small_logs():  # the driver reads this one, but Spark a large one
        on_spark = snapshot_at(spark, root, version)
        assert sorted(map(repr, on_spark.files.collect())) == sorted(map(repr, files))
        assert on_spark.metadata == snapshot.metadata
    return snapshot


def size_of(key: str) -> int:
    return Path(key.removeprefix("file://")).stat().st_size


def log(root: Path) -> Path:
    return root / "_delta_log"


def jvm_of(spark: SparkSession) -> Any:
    """The JVM of a session, in which Delta can be asked for what it has no SQL for."""
    return spark._jvm


def checkpoint(spark: SparkSession, root: Path, **conf: str) -> list[str]:
    """Have Delta write a checkpoint of the latest version; the names of its files."""
    with settings(spark, **conf):
        jvm_of(spark).org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(root)).checkpoint()
    names = [str(path.relative_to(log(root))) for path in log(root).rglob("*") if path.is_file()]
    return sorted(name for name in names if ".checkpoint." in name or "_sidecars/" in name if not name.endswith(".crc"))


def cleaned_up(root: Path, below: int) -> None:
    """Old entries go, as Delta deletes them when they have expired."""
    for version in range(below):
        (log(root) / f"{version:020d}.json").unlink()
        (log(root) / f".{version:020d}.json.crc").unlink(missing_ok=True)


# --- entries -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_version_is_as_delta_sees_it(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "a b%20c"
    write_table(spark, root)
    for version in range(3):
        assert_as_delta_sees_it(spark, root, version)
    snapshot = assert_as_delta_sees_it(spark, root)
    assert snapshot.version == 3
    (odd,) = [file for file in snapshot.files.collect() if file.partition_values["p"] == ODD]
    assert (odd.rows, json.loads(odd.stats)["minValues"]) == (1, {"id": 9})
    removed = snapshot.removed.collect()
    assert {Path(file.key).parent.name for file in removed} == {Path(odd.key).parent.name}
    assert len(removed) == 2
    assert all(file.deletion_timestamp > 0 and file.size == size_of(file.key) for file in removed)


@pytest.mark.slow
def test_the_history_is_deltas_own(spark: SparkSession, tmp_path: Path) -> None:
    write_table(spark, tmp_path / "t")
    known = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/t`").collect()
    history = snapshot_at(spark, tmp_path / "t").history
    assert [(commit.version, commit.operation) for commit in history] == [(row.version, row.operation) for row in known]
    assert [commit.timestamp for commit in history] == [round(row.timestamp.timestamp() * 1000) for row in known]
    assert not any(commit.ours for commit in history)
    assert [commit.version for commit in snapshot_at(spark, tmp_path / "t", 1).history] == [1, 0]


@pytest.mark.slow
def test_times_of_entries_never_go_back_and_those_in_the_entries_win(spark: SparkSession, tmp_path: Path) -> None:
    properties = {"enableInCommitTimestamps": "true"}
    for name, more in (("plain", {}), ("within", properties)):
        write_table(spark, tmp_path / name, files=1, **more)
        for path in log(tmp_path / name).glob("*.json"):
            os_time = 1_700_000_000 - int(path.name[:20])
            os.utime(path, (os_time, os_time))
        known = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / name}`").collect()
        times = [commit.timestamp for commit in snapshot_at(spark, tmp_path / name).history]
        assert times == [round(row.timestamp.timestamp() * 1000) for row in known]
        assert sorted(set(times), reverse=True) == times
        assert (times[-1] == 1_700_000_000_000) == (name == "plain")


@pytest.mark.slow
def test_transactions_are_the_latest_of_each_application(spark: SparkSession, tmp_path: Path) -> None:
    data = spark.createDataFrame([(1,)], "id int").write.format("delta").mode("append")
    for app, version in (("a", 1), ("b", 7), ("a", 2)):
        data.option("txnAppId", app).option("txnVersion", version).save(str(tmp_path / "t"))
    assert snapshot_at(spark, tmp_path / "t").transactions == {"a": 2, "b": 7}
    assert snapshot_at(spark, tmp_path / "t", 0).transactions == {"a": 1}
    checkpoint(spark, tmp_path / "t")
    assert snapshot_at(spark, tmp_path / "t").transactions == {"a": 2, "b": 7}


@pytest.mark.slow
def test_deletion_vectors_make_another_file_of_the_same_path(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    data = spark.range(10).coalesce(1).write.format("delta")
    data.option("delta.enableDeletionVectors", "true").save(str(root))
    for number in (1, 2):
        spark.sql(f"DELETE FROM delta.`{root}` WHERE id = {number}")
        snapshot = assert_as_delta_sees_it(spark, root)
        (file,) = snapshot.files.collect()
        assert (file.rows, file.deletion_vector.cardinality) == (10, number)
    assert {row.key for row in snapshot.removed.collect()} == {file.key}, "with its earlier vectors"
    checkpoint(spark, root)
    assert_as_delta_sees_it(spark, root)


@pytest.mark.slow
def test_partitions_in_another_bucket_have_keys_of_one_spelling(lake: Lake) -> None:
    other = lake.add_bucket()
    lake.put("t/p=1/f", {"id": [1]})
    lake.put("x y%20/f+é", {"id": [2, 3]}, other)
    lake.glue_table(
        {"id": "bigint"}, {"p": "int"}, [(["1"], f"s3://{lake.bucket}/t/p=1"), (["2"], f"s3a://{other}/x y%20")]
    )
    assert lake.convert().success
    for spelling in ("s3", "s3a"):
        snapshot = assert_as_delta_sees_it(lake.spark, f"{spelling}://{lake.bucket}/t")
        assert {file.key for file in snapshot.files.collect()} == {
            f"s3://{lake.bucket}/t/p=1/f",
            f"s3://{other}/x y%20/f+é",
        }
        (commit,) = snapshot.history
        assert (commit.ours, commit.operation) == (True, "CONVERT")


# --- checkpoints -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("files", [1, 3], ids=["one file", "in parts"])
def test_a_classic_checkpoint(spark: SparkSession, tmp_path: Path, files: int) -> None:
    root = tmp_path / "t"
    write_table(spark, root)
    names = checkpoint(spark, root, **({"checkpoint__partSize": "2"} if files > 1 else {}))
    assert len(names) >= min(files, 2)
    assert (len(names) == 1) == (files == 1)
    assert_alone(spark, root, 3)


@pytest.mark.slow
@pytest.mark.parametrize("top", ["json", "parquet"])
def test_a_checkpoint_of_the_second_kind_with_sidecars(spark: SparkSession, tmp_path: Path, top: str) -> None:
    root = tmp_path / "t"
    write_table(spark, root, checkpointPolicy="v2")
    conf = {"checkpointV2__topLevelFileFormat": top, "checkpoint__partSize": "2"}
    names = checkpoint(spark, root, **conf)
    assert sum("_sidecars/" in name for name in names) > 1
    assert any(name.endswith(f".{top}") and "_sidecars" not in name for name in names)
    assert_alone(spark, root, 3)


def assert_alone(spark: SparkSession, root: Path, version: int) -> None:
    """The checkpoint says what the entries said; then it goes on with the next entry."""
    expected = {file.key: file.asDict(recursive=True) for file in entries_only(spark, root)}
    cleaned_up(root, version)
    snapshot = assert_as_delta_sees_it(spark, root)
    assert (snapshot.segment.checkpoint_version, snapshot.segment.commits) == (version, ())
    found = {file.key: file.asDict(recursive=True) for file in snapshot.files.collect()}
    for file in (*expected.values(), *found.values()):
        file["stats"] = json.loads(file["stats"])
        del file["version"]  # of the entry, or of the checkpoint
    assert found.keys() == expected.keys()
    assert [
        (n, v, expected[key][n]) for key, file in found.items() for n, v in file.items() if v != expected[key][n]
    ] == []
    assert len(snapshot.removed.collect()) == 2
    assert [commit.version for commit in snapshot.history] == [version]
    spark.sql(f"DELETE FROM delta.`{root}` WHERE id = 9")
    assert_as_delta_sees_it(spark, root)
    assert_as_delta_sees_it(spark, root, version)
    with pytest.raises(MissingError, match=rf"Version {version - 1} of .* no entry 0, and no whole checkpoint"):
        snapshot_at(spark, root, version - 1)


def entries_only(spark: SparkSession, root: Path) -> list[Any]:
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    for path in log(copy).iterdir():
        if "checkpoint" in path.name:
            path.unlink()
    files = snapshot_at(spark, copy).files.collect()
    shutil.rmtree(copy)
    named = [file.asDict() | {"key": file.key.replace("/copy/", f"/{root.name}/")} for file in files]
    return [type(files[0])(**file) for file in named]


@needs_spark_4("Delta 3.3 writes no statistics into such a checkpoint")
@pytest.mark.slow
def test_statistics_that_a_checkpoint_has_as_columns_only(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_table(spark, root, checkpoint__writeStatsAsJson="false", checkpoint__writeStatsAsStruct="true")
    before = {file.key: json.loads(file.stats) for file in snapshot_at(spark, root).files.collect()}
    checkpoint(spark, root)
    snapshot = assert_as_delta_sees_it(spark, root)
    assert snapshot.segment.checkpoint_version == 3
    after = {file.key: json.loads(file.stats) for file in snapshot.files.collect()}
    assert {key: (s["numRecords"], s["minValues"]) for key, s in after.items()} == {
        key: (s["numRecords"], s["minValues"]) for key, s in before.items()
    }


@pytest.mark.slow
def test_a_checkpoint_of_which_a_part_is_missing_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_table(spark, root)
    names = checkpoint(spark, root, checkpoint__partSize="2")
    (log(root) / names[1]).unlink()
    snapshot = snapshot_at(spark, root)
    assert (snapshot.segment.checkpoint_version, snapshot.segment.commits) == (None, (0, 1, 2, 3))
    cleaned_up(root, 1)
    with pytest.raises(MissingError, match="no entry 0, and no whole checkpoint"):
        snapshot_at(spark, root)


# --- checkpoints that cannot be read -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpointed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tables of six versions, a file more in each, with checkpoints of versions 2 and 4; without their data files."""
    made = {}
    kinds = {"classic": {}, "parts": {"checkpoint__partSize": "2"}, "sidecars": {"checkpoint__partSize": "2"}}
    for kind, conf in kinds.items():
        root = made[kind] = tmp_path_factory.mktemp("checkpointed") / kind
        for version in range(6):
            add = {"path": f"f{version}", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
            lines = [{"add": {**add, "stats": '{"numRecords":1}'}}]
            if version == 0:
                features = ["v2Checkpoint"] if kind == "sidecars" else None
                protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
                if features:
                    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
                    protocol |= {"readerFeatures": features, "writerFeatures": features}
                schema = {"type": "struct", "fields": [FIELD]}
                configuration = {"delta.checkpointPolicy": "v2"} if features else {}
                lines += [{"protocol": protocol}, metadata_action(schema, [])]
                lines[-1]["metaData"]["configuration"] = configuration
            log(root).mkdir(parents=True, exist_ok=True)
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (log(root) / f"{version:020d}.json").write_text(text)
            if version in (2, 4):
                # Delta believes that only it writes entries.
                jvm_of(spark).org.apache.spark.sql.delta.DeltaLog.clearCache()
                checkpoint(spark, root, **conf)
        for path in log(root).rglob("*.crc"):
            path.unlink()  # Hadoop's, of what a test damages; and Delta's, with which Delta does not fall back
    return made


FIELD = {"name": "id", "type": "integer", "nullable": True, "metadata": {}}


def damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: {"cut": 100, "empty": 0}[how]])


def live_files(snapshot: Snapshot) -> list[str]:
    return sorted(row.path for row in snapshot.files.collect())


@pytest.mark.parametrize(
    ("kind", "damaged", "how", "without", "found"),
    [
        ("classic", ["4.checkpoint"], "cut", [], 2),
        ("classic", ["4.checkpoint"], "empty", [], 2),
        ("classic", ["4.checkpoint"], "missing", [], 2),
        ("classic", ["4.checkpoint", "2.checkpoint"], "cut", [], None),
        ("classic", ["4.checkpoint"], "cut", [0, 1, 2], 2),
        ("parts", ["4.checkpoint.0000000002"], "cut", [], 2),
        ("sidecars", ["4.checkpoint"], "cut", [], 2),
        ("sidecars", ["_sidecars/*4.checkpoint"], "missing", [], 2),
        ("sidecars", ["_sidecars/*4.checkpoint"], "cut", [], 2),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_passed_over_where_the_entries_are_there(
    spark: SparkSession, checkpointed: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture,
    kind: str, damaged: list[str], how: str, without: list[int], found: int | None,
) -> None:  # fmt: skip
    root = Path(shutil.copytree(checkpointed[kind], tmp_path / "t"))
    names = [path for name in damaged for path in log(root).glob(f"*{name}*" if "/" not in name else f"{name}*")]
    assert names
    for path in names:
        damage(path, how)
    for version in without:
        (log(root) / f"{version:020d}.json").unlink()
    snapshot = snapshot_at(spark, root)
    assert live_files(snapshot) == [f"f{version}" for version in range(6)]
    assert snapshot.segment.checkpoint_version == found
    if kind != "sidecars" or "_sidecars" not in damaged[0]:  # of which Delta itself cannot do without
        delta = spark.read.format("delta").load(str(root)).inputFiles()
        assert sorted(Path(path).name for path in delta) == live_files(snapshot)
    # Delta passes over an empty or a missing one without a word.
    warnings = [text for text in (record.getMessage() for record in caplog.records) if "cannot be read" in text]
    assert len(warnings) == (len(damaged) if how == "cut" or kind == "sidecars" else 0)


def test_a_checkpoint_that_cannot_be_read_and_that_nothing_replaces_is_named(
    spark: SparkSession, checkpointed: dict[str, Path], tmp_path: Path
) -> None:
    root = Path(shutil.copytree(checkpointed["classic"], tmp_path / "t"))
    damage(log(root) / f"{4:020d}.checkpoint.parquet", "cut")
    (log(root) / f"{3:020d}.json").unlink()
    with pytest.raises(
        PermanentError, match=rf"The checkpoint {4:020d}.checkpoint.parquet of .* cannot be read .*there is no entry 3"
    ):
        _ = snapshot_at(spark, root).files
    assert live_files(snapshot_at(spark, root, 2)) == ["f0", "f1", "f2"]
    # What is wrong with an entry is not blamed on the checkpoint.
    root = Path(shutil.copytree(checkpointed["classic"], tmp_path / "u"))
    (log(root) / f"{5:020d}.json").write_text("{")
    with pytest.raises(HiveToDeltaError, match="Reading version 5 of") as error:
        _ = snapshot_at(spark, root).files
    assert "The checkpoint" not in str(error.value)


# --- what a table asks of its readers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reader", "features", "said"),
    [
        (4, [], "asks for reader version 4, expected at most 3"),
        (3, ["columnMapping", "ofTomorrow"], r"has the reader feature\(s\) ofTomorrow, which"),
        (3, ["catalogManaged"], r"has the reader feature\(s\) catalogManaged, which"),
        (3, ["redirectReaderWriter-preview"], "redirectReaderWriter-preview"),
    ],
)
def test_a_table_that_asks_its_readers_for_what_nobody_here_knows_is_refused(
    spark: SparkSession, tmp_path: Path, reader: int, features: list[str], said: str
) -> None:
    root = tmp_path / "t"
    write_parquet(root / "f", {"id": [1]})
    convert_folder(spark, root)
    protocol = {"minReaderVersion": reader, "minWriterVersion": 7, "readerFeatures": features}
    lines = [{"commitInfo": {}}, {"protocol": {**protocol, "writerFeatures": features}}]
    (log(root) / f"{1:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(Exception, match=r"DELTA_\w+"):
        spark.read.format("delta").load(str(root)).collect()
    table = TableInfo("t", str(root))
    view = DeltaTableView.for_path(spark, str(root))
    for use in (
        lambda: view.files,
        lambda: view.schema,
        lambda: view.properties,
        lambda: snapshot_at(spark, root).removed,
        lambda: verify_table(spark, table, Nothing()),
        lambda: sync_table(spark, table, Nothing()),
        lambda: vacuum_external_files(spark, str(root)),
        lambda: rollback_table(spark, str(root), lose_versions=[1]),
    ):
        with pytest.raises(UnsupportedTableError, match=said):
            use()
    assert live_files(snapshot_at(spark, root, 0)) == ["f"]


def test_features_of_writers_only_are_nothing_to_a_reader_but_may_forbid_to_delete_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    write_parquet(root / "f", {"id": [1]})
    convert_folder(spark, root)
    features = ["vacuumProtocolCheck"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features}
    line = {"protocol": {**protocol, "writerFeatures": [*features, "ofTomorrow"]}}
    (log(root) / f"{1:020d}.json").write_text(json.dumps(line) + "\n")
    assert live_files(snapshot_at(spark, root)) == ["f"]
    with pytest.raises(UnsupportedTableError, match=r"ofTomorrow, and asks those who delete files to know all"):
        vacuum_external_files(spark, str(root))


class Nothing:
    """A listing of no files."""

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[Any]:
        return []


@needs_spark_4("the type VARIANT")
def test_a_table_with_variants_is_as_delta_sees_it(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    spark.sql("""SELECT 1 AS id, parse_json('{"a": 1}') AS v""").write.format("delta").save(str(root))
    spark.sql(f"""INSERT INTO delta.`{root}` SELECT 2, parse_json('[2]')""")
    assert "variantType" in assert_as_delta_sees_it(spark, root).protocol.reader_features
    checkpoint(spark, root)
    assert assert_as_delta_sees_it(spark, root).segment.checkpoint_version == 1


# --- logs that are not whole -------------------------------------------------------------------------------------


def test_a_gap_is_never_taken_for_a_whole_log(spark: SparkSession, tmp_path: Path) -> None:
    write_table(spark, tmp_path / "t")
    (log(tmp_path / "t") / f"{1:020d}.json").unlink()
    with pytest.raises(MissingError, match=r"/t/_delta_log is broken: .* but there is no entry 1"):
        snapshot_at(spark, tmp_path / "t")
    with pytest.raises(MissingError, match=r"Version 2 of .*/t cannot be put together: there is no entry 1"):
        snapshot_at(spark, tmp_path / "t", 2)
    assert snapshot_at(spark, tmp_path / "t", 0).files.count() == 2


@pytest.mark.parametrize("line", ["{", '{"add":{"path":"x"', '{"add":{"path":"x","size":"many"}}', '"add"'])
def test_a_line_that_is_no_action_is_an_error(spark: SparkSession, tmp_path: Path, line: str) -> None:
    spark.range(1).write.format("delta").save(str(tmp_path / "t"))
    entry = log(tmp_path / "t") / f"{0:020d}.json"
    entry.write_text(f"{entry.read_text()}{line}\n")
    (log(tmp_path / "t") / f".{0:020d}.json.crc").unlink()
    snapshot = snapshot_at(spark, tmp_path / "t")
    with pytest.raises(Exception, match=r"MALFORMED_RECORD|FAILFAST|Reading version 0 of"):
        snapshot.files.collect()
    if "size" not in line:
        with pytest.raises(HiveToDeltaError, match="Reading version 0 of"):
            _ = snapshot.metadata


def test_a_log_without_metadata_is_not_whole(spark: SparkSession, tmp_path: Path) -> None:
    log(tmp_path).mkdir()
    (log(tmp_path) / f"{0:020d}.json").write_text('{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n')
    with pytest.raises(PermanentError, match=r"Version 0 of .* has no metaData"):
        _ = snapshot_at(spark, tmp_path).metadata


def test_versions_that_are_not_there_are_missing(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).write.format("delta").save(str(tmp_path / "t"))
    for version in (1, -1):
        with pytest.raises(MissingError, match=f"has no version {version}; its latest is 0"):
            snapshot_at(spark, tmp_path / "t", version)
    with pytest.raises(MissingError, match=r"holds no Delta log\. Convert the table first"):
        snapshot_at(spark, tmp_path / "nothing")
