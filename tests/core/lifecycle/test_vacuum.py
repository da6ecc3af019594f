"""Vacuum outside the root: what is certainly nobody's goes, and everything else stays (rule 50)."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from pyspark.sql import SparkSession

from airflow_hive_to_delta import ConversionOptions, GlueDiscovery, S3Listing, UCDiscovery, convert
from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    HiveToDeltaError,
    MissingError,
    PermanentError,
)
from airflow_hive_to_delta.core.lifecycle.cut_over import cut_over_table
from airflow_hive_to_delta.core.lifecycle.sync.sync import sync_table
from airflow_hive_to_delta.core.lifecycle.vacuum import orphans
from airflow_hive_to_delta.core.lifecycle.vacuum.vacuum import vacuum_external_files
from airflow_hive_to_delta.core.listing.spark import DatabricksListing
from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.base import Storage
from airflow_hive_to_delta.core.storage.existence import look_up_files
from airflow_hive_to_delta.core.storage.hadoop import HadoopStorage
from airflow_hive_to_delta.core.storage.local import LocalStorage
from airflow_hive_to_delta.core.storage.s3 import S3Storage
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.aws import REGION
from tests.support.crashes import at_every_step
from tests.support.lake import PARQUET, Lake
from tests.support.oracle import delta_at
from tests.support.s3_servers import answer_with
from tests.support.tables import convert_folder, write_parquet
from tests.support.vacuumed_table import HOUR, VacuumedTable, added, removed

pytestmark = pytest.mark.slow

VECTOR = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40,
          "cardinality": 6}  # fmt: skip


# --- what goes ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_delta_removed_long_ago_goes_when_hive_has_dropped_it(lake: Lake) -> None:
    """A real DELETE removes the files, and its entry is made old."""
    table = VacuumedTable(lake, "a", "b")
    lake.spark.sql(f"DELETE FROM delta.`{lake.location()}` WHERE id IN (1, 10)")
    key = f"t/_delta_log/{1:020d}.json"
    entry = lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read().decode()
    actions = [json.loads(line) for line in entry.splitlines()]
    rows = sorted(delta_at(lake.spark, lake.location()).collect())
    before = table.there()

    young = table.vacuum(dry_run=False)
    assert (young.orphaned_files, young.deleted_files) == ([], [])
    assert "more recently than the retention" in young.notes[0]
    for action in actions:
        if "remove" in action:
            action["remove"]["deletionTimestamp"] -= 169 * HOUR
    lake.put(key, "\n".join(map(json.dumps, actions)).encode())

    claimed = table.vacuum(dry_run=False)
    assert claimed.orphaned_files == []
    assert "1 removed files outside the root were kept: they lie under a location that the catalog" in claimed.notes[0]
    table.drop_partition()
    dry = table.vacuum()
    assert (dry.dry_run, dry.orphaned_files, dry.deleted_files) == (True, [table.uri("a")], [])
    assert table.there() == before
    size = lake.s3.head_object(Bucket=table.other, Key="a")["ContentLength"]
    done = table.vacuum(dry_run=False)
    assert (done.deleted_files, done.orphaned_bytes, done.deleted_bytes) == ([table.uri("a")], size, size)
    assert table.there() == before - {f"{table.other}/a"}
    assert sorted(delta_at(lake.spark, lake.location()).collect()) == rows
    again = table.vacuum(dry_run=False)
    assert (again.success, again.orphaned_files) == (True, [])


def test_what_a_sync_removed_because_hive_dropped_it_stays_for_hive(lake: Lake) -> None:
    table = VacuumedTable(lake, "f")
    table.drop_partition()
    (hive,) = GlueDiscovery(lake.database).discover()
    assert sync_table(lake.spark, hive, S3Listing(), output_mode="complete").num_removed_files == 1
    result = table.vacuum(0, dry_run=False, allow_short_retention=True)
    assert (result.orphaned_files, result.deleted_files) == ([], [])
    assert any("dropped in Hive" in note for note in result.notes)
    assert f"{table.other}/f" in table.there()


@pytest.mark.slow
def test_what_delta_put_into_the_table_may_be_another_tables(lake: Lake) -> None:
    table = VacuumedTable(lake, "f")
    other = lake.add_bucket()
    source, delta = f"s3://{other}/src", f"delta.`{lake.location()}`"
    rows = lake.spark.createDataFrame([(77, 1)], "id bigint, p int")
    rows.write.format("delta").partitionBy("p").save(source)
    lake.spark.sql(f"DELETE FROM {delta}")
    lake.spark.sql(f"CREATE OR REPLACE TABLE {delta} SHALLOW CLONE delta.`{source}`")
    lake.spark.sql(f"DELETE FROM {delta}")
    result = table.vacuum(0, dry_run=False, allow_short_retention=True)
    assert not [file for file in result.deleted_files if other in file]
    assert [row.id for row in delta_at(lake.spark, source).collect()] == [77]


def test_a_partition_of_another_table_stays(lake: Lake) -> None:
    table = VacuumedTable(lake, "a", "b")
    lake.glue_table({"id": "bigint"}, {"p": "int"}, [(["2"], f"s3://{table.other}/")], name="u")
    table.remove(table.uri("a"))
    table.drop_partition()
    assert table.vacuum(dry_run=False).deleted_files == []


@pytest.mark.slow
def test_what_the_log_has_forgotten_is_found_by_the_ledger(lake: Lake) -> None:
    """Delta forgets a removal as soon as it is as old as a vacuum waits for."""
    table = VacuumedTable(lake, "a", "b")
    delta = f"delta.`{lake.location()}`"
    lake.spark.sql(f"DELETE FROM {delta} WHERE id = 10")
    (hive,) = GlueDiscovery(lake.database).discover()
    assert sync_table(lake.spark, hive, S3Listing()).status == "unchanged"  # keeps the ledger
    table.drop_partition()
    lake.spark.sql(
        f"ALTER TABLE {delta} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours', "
        "'delta.checkpointInterval' = '1')"
    )
    lake.spark.sql(f"INSERT INTO {delta} VALUES (7, 1)")
    log = f"{lake.bucket}/t/_delta_log/"
    for name in [name for name in lake.objects() if name.startswith(log) and name.endswith(".json")]:
        version = name.removeprefix(log).removesuffix(".json")
        if version.isdecimal() and int(version) < 2:
            lake.s3.delete_object(Bucket=lake.bucket, Key=name.removeprefix(f"{lake.bucket}/"))
    found = table.vacuum(0, allow_short_retention=True)
    assert found.orphaned_files == [table.uri("a")]


def test_names_with_every_character(lake: Lake) -> None:
    names = ["x y%20/a+b", "x y /a", "é=ü/%", "x%20y/a"]
    table = VacuumedTable(lake, *names)
    table.drop_partition()
    entry = lake.s3.get_object(Bucket=lake.bucket, Key=f"t/_delta_log/{0:020d}.json")["Body"].read().decode()
    paths = [json.loads(line)["add"]["path"] for line in entry.splitlines() if line.startswith('{"add"')]
    (kept,) = [path for path in paths if path.endswith("x%2520y/a")]
    table.remove(*(path for path in paths if "://" in path and path != kept))
    result = table.vacuum(dry_run=False)
    assert set(result.deleted_files) == {table.uri(name) for name in names[:3]}
    assert table.there() == {f"{lake.bucket}/t/p=1/f", f"{table.other}/x%20y/a"}


def test_files_under_the_root_are_never_touched(lake: Lake) -> None:
    """Neither by a relative path, nor by an absolute one, nor by one that leads out and in again."""
    table = VacuumedTable(lake, "a")
    table.drop_partition()
    root = lake.location()
    lake.put("t2/f", b"of another table")
    table.remove(
        "p=1/f", f"{root}/p=1/f", f"s3a://{lake.bucket}/t//p=1/f", f"s3://{lake.bucket}/t2/../t/p=1/f", "../t2/f"
    )
    assert table.vacuum(dry_run=False).deleted_files == []
    assert f"{lake.bucket}/t/p=1/f" in table.there()


# --- how long ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_retention(lake: Lake) -> None:
    table = VacuumedTable(lake, "a")
    table.drop_partition()
    table.remove(table.uri("a"), hours=100)
    assert table.vacuum().orphaned_files == []
    with pytest.raises(PermanentError, match=r"retention_hours is 99, .* keeps removed files for 168 hours"):
        table.vacuum(99)
    with pytest.raises(PermanentError, match="expected 0 or more"):
        table.vacuum(-1, allow_short_retention=True)
    assert table.vacuum(101, allow_short_retention=True).orphaned_files == []
    assert table.vacuum(99, allow_short_retention=True).orphaned_files == [table.uri("a")]


@pytest.mark.parametrize(
    ("interval", "hours", "found"),
    [("interval 4 days", 96.5, True), ("interval 30 days 2 hours", 168, False)],
)
def test_the_tables_own_retention(lake: Lake, interval: str, hours: float, found: bool) -> None:
    table = VacuumedTable(lake, "a")
    table.drop_partition()
    entry = lake.s3.get_object(Bucket=lake.bucket, Key=f"t/_delta_log/{0:020d}.json")["Body"].read().decode()
    metadata = next(json.loads(line) for line in entry.splitlines() if line.startswith('{"metaData"'))
    metadata["metaData"]["configuration"] = {"delta.deletedFileRetentionDuration": interval}
    table.commit(metadata, removed(table.uri("a"), 100))
    result = table.vacuum(hours)
    assert bool(result.orphaned_files) is found
    assert any("keeps removed files for 722 hours" in note for note in result.notes) is ("30 days" in interval)
    if "30 days" in interval:
        with pytest.raises(PermanentError, match="keeps removed files for 722 hours"):
            table.vacuum(721)


def test_a_removal_without_a_time_keeps_the_file(lake: Lake) -> None:
    table = VacuumedTable(lake, "a")
    table.drop_partition()
    table.commit({"remove": {"path": table.uri("a"), "dataChange": True}})
    result = table.vacuum(dry_run=False)
    assert (result.deleted_files, "no time of removal" in result.notes[0]) == ([], True)


# --- what is live, or somebody's ---------------------------------------------------------------------------------


def test_a_file_that_is_live_in_any_form_stays(lake: Lake) -> None:
    table = VacuumedTable(lake, "with vector", "spelt", "slashes", "gone")
    table.drop_partition()
    table.remove(f"S3A://{table.other}/spelt", f"s3://{table.other}//slashes")
    table.commit(removed(table.uri("with%20vector")), removed(table.uri("gone")))
    table.commit(added(table.uri("with%20vector"), deletionVector=VECTOR))
    result = table.vacuum(dry_run=False)
    assert result.deleted_files == [table.uri("gone")]
    assert "3 removed files outside the root were kept: they are live" in result.notes[0]


def test_a_file_that_was_written_again_stays(lake: Lake) -> None:
    table = VacuumedTable(lake, "a", "b")
    table.drop_partition()
    table.commit(*(removed(table.uri(name), size=lake.s3.head_object(Bucket=table.other, Key=name)["ContentLength"])
                   for name in ("a", "b")))  # fmt: skip
    lake.put("a", {"id": list(range(1000))}, table.other)
    result = table.vacuum(dry_run=False)
    assert result.deleted_files == [table.uri("b")]
    assert "written again" in result.notes[0]


def test_only_under_the_allowed_roots(lake: Lake) -> None:
    table = VacuumedTable(lake, "in/a", "out/a")
    table.drop_partition()
    table.remove(table.uri("in/a"), table.uri("out/a"))
    result = table.vacuum(dry_run=False, options=ConversionOptions(allowed_roots=[f"s3a://{table.other}/in"]))
    assert result.deleted_files == [table.uri("in/a")]
    assert "outside the allowed roots" in result.notes[0]


def test_a_location_of_another_table_stays_and_a_source_that_glue_does_not_find_has_none(lake: Lake) -> None:
    table = VacuumedTable(lake, "a", "theirs/a", "theirs2/a")
    table.remove(*map(table.uri, ("a", "theirs/a", "theirs2/a")))
    lake.glue_table({"id": "bigint"}, name="u", location=f"s3a://{table.other}/theirs/")
    assert table.vacuum().orphaned_files == []
    lake.glue.delete_table(DatabaseName=lake.database, Name="t")
    assert table.vacuum(dry_run=False).deleted_files == [table.uri("a"), table.uri("theirs2/a")]


@contextmanager
def answering(service: str, operation: str, answer: Callable[..., Any], *, when: str = "before-send") -> Iterator[None]:
    """While it is entered, requests of this process get another answer than moto's. Of S3, in REGION only."""
    clients = {id(client): client for client in (aws._client(service, REGION), aws._client(service, None))}
    for client in clients.values():
        client.meta.events.register(f"{when}.{service}.{operation}", answer)
    try:
        yield
    finally:
        for client in clients.values():
            client.meta.events.unregister(f"{when}.{service}.{operation}", answer)


def denied(body: bytes, status: int) -> Callable[..., AWSResponse]:
    def answer(request: Any, **_: Any) -> AWSResponse:
        return answer_with(request, status, body)

    return answer


#: As Lake Formation words it.
glue_denies = denied(
    b'{"__type":"AccessDeniedException","Message":"Insufficient Lake Formation permission(s) on t"}', 400
)
s3_denies = denied(b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>", 403)


def without_t(parsed: dict[str, Any], **_: Any) -> None:
    """A list of tables that does not show the one, as of a caller who may not see it."""
    parsed["TableList"] = [table for table in parsed["TableList"] if table["Name"] != "t"]


def test_a_source_that_the_caller_may_not_see_is_not_gone(lake: Lake) -> None:
    """Lake Formation lists what the caller may see, and denies the rest, existing or not."""
    table = VacuumedTable(lake, "a")
    table.remove(table.uri("a"))
    name, before = f"{lake.database}.t", table.there()
    with answering("glue", "GetTables", without_t, when="after-call"):
        assert table.vacuum(dry_run=False).orphaned_files == [], "asked for by its name, it is there"
        with answering("glue", "GetTable", glue_denies):
            with pytest.raises(AccessDeniedError, match=f"Grant the identity .* pass dropped=\\['{name}'\\]"):
                table.vacuum(dry_run=False)
            assert table.vacuum(dropped=[name.upper()]).orphaned_files == [table.uri("a")]
    assert table.vacuum(dropped=[name]).orphaned_files == [], "what the catalog shows is there, whatever people say"
    with answering("glue", "GetPartitions", glue_denies), pytest.raises(AccessDeniedError, match=r"partitions of .*t"):
        table.vacuum(dry_run=False)
    with pytest.raises(PermanentError, match="expected a list of names"):
        table.vacuum(dropped=name)
    assert table.there() == before


def test_tables_beside_the_registered_one_are_asked_for(lake: Lake) -> None:
    table = VacuumedTable(lake, "theirs/a", "a", target="registered", register_in="glue")
    target = f"{lake.database}_registered"
    table.drop_partition()
    table.remove(table.uri("theirs/a"), table.uri("a"))
    assert table.vacuum().orphaned_files == [table.uri("a"), table.uri("theirs/a")]
    storage = {"StorageDescriptor": {**PARQUET, "Location": f"s3://{table.other}/theirs", "Columns": []}}
    lake.glue.create_table(DatabaseName=target, TableInput={"Name": "u", **storage})
    assert table.vacuum().orphaned_files == [table.uri("a")]
    lake.glue.delete_database(Name=target)
    with pytest.raises(MissingError, match=f"If the database was dropped, pass dropped=\\['{target}'\\]"):
        table.vacuum()
    assert len(table.vacuum(dropped=[target]).orphaned_files) == 2


def test_a_source_that_a_catalog_may_hide_is_gone_only_when_the_caller_says_so(lake: Lake) -> None:
    """Unity Catalog and others may say "not found" of a table that they hide."""
    table = VacuumedTable(lake, "a")
    table.remove(table.uri("a"))
    catalog = f"c{uuid.uuid4().hex[:8]}"
    settings = f"spark.sql.catalog.{catalog}"
    lake.spark.conf.set(settings, "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog")
    lake.spark.conf.set(f"{settings}.url", f"jdbc:derby:memory:{catalog};create=true")
    lake.spark.conf.set(f"{settings}.driver", "org.apache.derby.jdbc.EmbeddedDriver")
    hive = GlueDiscovery(lake.database).discover()[0]
    source = replace(hive, source="spark", catalog=catalog, database="APP")
    with pytest.raises(PermanentError, match=f"may say that of a table which it hides.*\\['{catalog}.APP.t'\\]"):
        vacuum_external_files(lake.spark, source, dry_run=False)
    found = vacuum_external_files(lake.spark, source, dropped=[f"{catalog}.APP.t"])
    assert found.orphaned_files == [table.uri("a")]
    elsewhere = replace(source, catalog="not_there")
    with pytest.raises(PermanentError, match=r"no schema not_there.APP.*pass dropped=\['not_there.APP'\]"):
        vacuum_external_files(lake.spark, elsewhere)
    # Of a Hive metastore "not found" is enough.
    in_hive = replace(source, catalog="spark_catalog", database=lake.database)
    assert vacuum_external_files(lake.spark, in_hive).orphaned_files == [table.uri("a")]


def test_a_file_under_the_root_of_another_delta_table_stays(lake: Lake) -> None:
    many = [f"mine/p=1/{number}" for number in range(30)]
    table = VacuumedTable(lake, "theirs/deep/a", *many)
    table.drop_partition()
    table.remove(*map(table.uri, ("theirs/deep/a", *many)))
    lake.put(f"theirs/_delta_log/{0:020d}.json", b"{}", table.other)
    asked = []

    def count(request: Any, **_: Any) -> None:
        if f"/{table.other}?" in request.url and "_delta_log" in request.url:
            asked.append(request.url)

    with answering("s3", "ListObjectsV2", count):
        result = table.vacuum()
    assert result.orphaned_files == sorted(map(table.uri, many))
    assert any("under the root of another Delta table" in note for note in result.notes)
    assert len(asked) == 5, "the bucket, theirs, theirs/deep, mine, mine/p=1"


def test_a_folder_above_that_may_not_be_listed(lake: Lake) -> None:
    table = VacuumedTable(lake, "in/a")
    table.drop_partition()
    table.remove(table.uri("in/a"))

    def deny_the_bucket(request: Any, **_: Any) -> AWSResponse | None:
        return s3_denies(request) if f"/{table.other}?" in request.url and "prefix=_delta_log" in request.url else None

    with answering("s3", "ListObjectsV2", deny_the_bucket):
        with pytest.raises(AccessDeniedError, match=r"another Delta table cannot be told.*Nothing was deleted"):
            table.vacuum(dry_run=False)
        options = ConversionOptions(allowed_roots=[table.uri("in")])
        assert table.vacuum(options=options).orphaned_files == [table.uri("in/a")]


def test_partitions_outlast_a_cut_over(lake: Lake) -> None:
    """They are kept, because a rollback would bring their table back."""
    table = VacuumedTable(lake, "a")
    cut_over_table(lake.spark, GlueDiscovery(lake.database).discover()[0])
    table.remove(table.uri("a"))
    assert table.vacuum().orphaned_files == []
    table.drop_partition()
    assert table.vacuum().orphaned_files == [table.uri("a")]


def test_a_metastore_that_cannot_be_asked(lake: Lake) -> None:
    table = VacuumedTable(lake, "a")
    table.remove(table.uri("a"))
    source = replace(GlueDiscovery(lake.database).discover()[0], database="not_there")
    before = table.there()
    with pytest.raises(HiveToDeltaError, match="not_there"):
        vacuum_external_files(lake.spark, source, dry_run=False)
    with pytest.raises(PermanentError, match=r"knows no schema spark_catalog.not_there.*\['spark_catalog.not_there'\]"):
        vacuum_external_files(lake.spark, replace(source, source="spark", catalog="spark_catalog"), dry_run=False)
    assert table.there() == before


@pytest.mark.slow
def test_a_table_without_a_record_of_its_source(lake: Lake) -> None:
    table = VacuumedTable(lake, "a")
    table.drop_partition()
    lake.s3.delete_object(Bucket=lake.bucket, Key="t/_delta_log/_hive_to_delta/source.json")
    assert table.vacuum().orphaned_files == [], "nothing to delete, nothing to ask"
    table.remove(table.uri("a"))
    with pytest.raises(PermanentError, match="No record of the Hive table"):
        table.vacuum()
    result = vacuum_external_files(lake.spark, GlueDiscovery(lake.database).discover()[0])
    assert result.orphaned_files == [table.uri("a")]


def test_a_table_of_no_metastore_needs_allowed_roots(spark: SparkSession, tmp_path: Path) -> None:
    root, outside = tmp_path / "t", tmp_path / "outside"
    write_parquet(root / "f", {"id": [1]})
    file = write_parquet(outside / "a b", {"id": [2]})
    convert_folder(spark, root, outside)
    entry = {"commitInfo": {"engineInfo": "another"}}
    lines = [entry, removed(f"file://{outside}/a%20b")]
    (root / "_delta_log" / f"{1:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(PermanentError, match="converted from a list of files"):
        vacuum_external_files(spark, str(root))
    options = ConversionOptions(allowed_roots=[str(outside)])
    assert vacuum_external_files(spark, str(root), dry_run=False, options=options).deleted_files == [f"file://{file}"]
    assert not file.exists()


@pytest.mark.slow
def test_a_table_of_the_sessions_catalog(spark: SparkSession, database: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "t", tmp_path / "outside"
    write_parquet(root / "p=1" / "f", {"id": [1]})
    file = write_parquet(outside / "f", {"id": [2]})
    spark.sql(f"CREATE TABLE {database}.t (id BIGINT) PARTITIONED BY (p INT) STORED AS PARQUET LOCATION '{root}'")
    for value, location in ((1, root / "p=1"), (2, outside)):
        spark.sql(f"ALTER TABLE {database}.t ADD PARTITION (p = {value}) LOCATION '{location}'")
    discovery = UCDiscovery([f"spark_catalog.{database}.t"])
    (result,) = convert(spark, discovery, DatabricksListing(), None, None, progress=False)
    assert result.success, result.error
    lines = [{"commitInfo": {"engineInfo": "another"}}, removed(f"file://{file}")]
    (root / "_delta_log" / f"{1:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    assert vacuum_external_files(spark, str(root)).orphaned_files == []
    spark.sql(f"ALTER TABLE {database}.t DROP PARTITION (p = 2)")
    assert vacuum_external_files(spark, str(root)).orphaned_files == [f"file://{file}"]
    spark.sql(f"CREATE TABLE {database}.u (id BIGINT) STORED AS PARQUET LOCATION '{outside}'")
    assert vacuum_external_files(spark, str(root)).orphaned_files == []
    spark.sql(f"DROP TABLE {database}.u")
    spark.sql(f"DROP TABLE {database}.t")
    assert vacuum_external_files(spark, str(root), dry_run=False).deleted_files == [f"file://{file}"]


# --- logs that are not whole -------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b'{"remove": {"path": "x"', b"not JSON at all", b'{"add": 7}'])
def test_an_entry_that_cannot_be_read_keeps_everything(lake: Lake, body: bytes) -> None:
    table = VacuumedTable(lake, "a")
    table.drop_partition()
    table.remove(table.uri("a"))
    lake.put(f"t/_delta_log/{2:020d}.json", b'{"commitInfo":{}}\n' + body)
    with pytest.raises(HiveToDeltaError):
        table.vacuum(dry_run=False)
    assert f"{table.other}/a" in table.there()


def test_a_hole_in_the_log_keeps_everything(lake: Lake) -> None:
    table = VacuumedTable(lake, "a")
    table.drop_partition()
    table.remove(table.uri("a"))
    table.commit()
    table.commit()
    lake.s3.delete_object(Bucket=lake.bucket, Key=f"t/_delta_log/{2:020d}.json")
    with pytest.raises(HiveToDeltaError, match="is broken: it holds"):
        table.vacuum(dry_run=False)
    assert f"{table.other}/a" in table.there()


def test_a_hole_that_a_checkpoint_covers_is_a_hole(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "f", {"id": [1]})
    convert_folder(spark, tmp_path, options=ConversionOptions(properties={"delta.checkpointInterval": "2"}))
    for number in (2, 3):
        spark.sql(f"INSERT INTO delta.`{tmp_path}` VALUES ({number})")
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(PermanentError, match="has no entry 1, but entries before and after"):
        vacuum_external_files(spark, str(tmp_path))


# --- while it deletes --------------------------------------------------------------------------------------------


def test_a_file_that_is_brought_back_before_it_is_deleted_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A RESTORE is committed between finding the file and deleting it."""
    table = VacuumedTable(lake, "a", "b")
    table.drop_partition()
    table.remove(table.uri("a"), table.uri("b"))
    look = look_up_files

    def look_and_restore(*arguments: Any) -> Iterator[Any]:
        yield from look(*arguments)
        if table.versions == 1:
            table.commit(added(table.uri("a")))

    monkeypatch.setattr(orphans, "look_up_files", look_and_restore)
    result = table.vacuum(dry_run=False)
    assert (result.orphaned_files, result.deleted_files) == ([table.uri("b")], [table.uri("b")])
    assert f"{table.other}/a" in table.there()


def test_files_that_cannot_be_deleted_are_named_and_the_next_call_goes_on(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = VacuumedTable(lake, "a", "b")
    table.drop_partition()
    table.remove(table.uri("a"), table.uri("b"))
    client_of = S3Storage._client

    class Denying:
        def __init__(self, client: Any) -> None:
            self.client = client

        def __getattr__(self, name: str) -> Any:
            return getattr(self.client, name)

        def delete_objects(self, *, Delete: Any, **request: Any) -> Any:
            objects = [found for found in Delete["Objects"] if found["Key"] != "a"]
            answer = self.client.delete_objects(Delete={**Delete, "Objects": objects}, **request)
            return {**answer, "Errors": [{"Key": "a", "Code": "AccessDenied", "Message": "locked"}]}

    with monkeypatch.context() as patch:
        patch.setattr(S3Storage, "_client", lambda self, path: Denying(client_of(self, path)))
        result = table.vacuum(dry_run=False)
    assert (result.success, result.retryable) == (False, False)
    assert (len(result.orphaned_files), result.deleted_files) == (2, [table.uri("b")])
    assert "1 of 2 files could not be deleted" in str(result.error)
    assert "AccessDenied: locked" in str(result.error)
    again = table.vacuum(dry_run=False)
    assert (again.error, again.deleted_files) == (None, [table.uri("a")])


@pytest.mark.slow
def test_ended_at_every_step(lake: Lake) -> None:
    table = VacuumedTable(lake, "a", "b")
    table.drop_partition()
    body = lake.s3.get_object(Bucket=table.other, Key="a")["Body"].read()

    def fresh() -> VacuumedTable:
        lake.put("a", body, table.other)
        table.remove(table.uri("a"), hours=0)
        return table

    def check(table: VacuumedTable) -> None:
        assert table.there() == {f"{lake.bucket}/t/p=1/f", f"{table.other}/b"}

    # Hive's time of the file is another each time; the size alone tells that it is the same one.
    lake.put(
        f"t/_delta_log/{0:020d}.json",
        lake.s3.get_object(Bucket=lake.bucket, Key=f"t/_delta_log/{0:020d}.json")["Body"]
        .read()
        .replace(b'"modificationTime":', b'"modificationTime":0,"was":'),
    )
    steps = at_every_step(fresh, lambda table: table.vacuum(0, False, allow_short_retention=True), check)
    assert steps == ["delete_files on S3Storage"]


@pytest.mark.parametrize("kind", ["s3", "local", "hadoop"])
def test_many_files_are_deleted_and_only_empty_folders_are_taken_away(
    kind: str, spark: SparkSession, bucket: str, tmp_path: Path
) -> None:
    storages: dict[str, Storage]
    storages = {"s3": S3Storage(ConversionOptions()), "local": LocalStorage(), "hadoop": HadoopStorage(spark)}
    storage = storages[kind]
    root = parse_location(f"s3://{bucket}/t" if kind == "s3" else str(tmp_path / "t"))
    paths = [root.child("a b%20"), root.child("c"), root.child("sub").child("d")]
    for path in paths:
        storage.put_if_absent(path, io.BytesIO(b"x"))
    assert storage.delete_files([*paths[1:], root.child("never there")]) == {}
    assert "c" not in storage.list_names(root)
    for folder in (root.child("sub"), root.child("never there"), root):
        storage.remove_folder(folder)
    assert storage.list_names(root) == ["a b%20"], "a folder that holds a file stays"
