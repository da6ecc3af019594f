"""The plan: what it says of every kind of table, that the conversion bears it out, and that it only reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from botocore.awsrequest import AWSResponse
from pyspark.sql import SparkSession

from airflow_hive_to_delta import (
    ConversionOptions,
    DatabricksListing,
    GlueDiscovery,
    Listing,
    ParquetFileInfo,
    S3Listing,
    TableInfo,
    UCDiscovery,
    convert,
)
from airflow_hive_to_delta.core import readers
from airflow_hive_to_delta.core.lifecycle import plan as plan_module
from airflow_hive_to_delta.core.lifecycle.plan import plan_migration
from airflow_hive_to_delta.core.parquet.describe import describe_files
from airflow_hive_to_delta.core.results import TablePlan
from airflow_hive_to_delta.core.storage import aws
from tests.support.aws import REGION
from tests.support.discoveries import KnownTables
from tests.support.lake import Lake
from tests.support.s3_servers import answer_with
from tests.support.tables import convert_folder, snapshot, write_parquet

READS = {"ListObjectsV2", "GetObject", "HeadObject", "HeadBucket", "GetTables", "GetPartitions"}


def table_at(root: Path, columns: dict[str, str] | None = None, **more: Any) -> TableInfo:
    declared = None if columns is None else [{"Name": name, "Type": kind} for name, kind in columns.items()]
    return TableInfo(root.name, str(root), columns=declared, database="d", **more)


def plan_of(spark: SparkSession, *tables: TableInfo, listing: Listing | None = None, **options: Any) -> list[TablePlan]:
    return plan_migration(
        spark,
        KnownTables(*tables),
        listing or DatabricksListing(),
        options=ConversionOptions(**options),
        progress=False,
    )


def glue_plan(lake: Lake, **options: Any) -> dict[str, TablePlan]:
    plans = plan_migration(
        lake.spark, GlueDiscovery(lake.database), S3Listing(), options=ConversionOptions(**options), progress=False
    )
    return {plan.source_table.rpartition(".")[2]: plan for plan in plans}


@contextmanager
def sending(client: Any, service: str, handler: Callable[..., AWSResponse | None]) -> Iterator[None]:
    """A handler on what a client of this process sends: it sees the request, and may answer it."""
    client.meta.events.register(f"before-send.{service}", handler)
    try:
        yield
    finally:
        client.meta.events.unregister(f"before-send.{service}", handler)


def answering(status: int, code: str, where: str) -> Callable[..., AWSResponse | None]:
    def answer(request: Any, **_: Any) -> AWSResponse | None:
        if where not in request.url:
            return None
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        return answer_with(request, status, body)

    return answer


def two_buckets(lake: Lake, name: str = "t") -> str:
    """A table with two partitions under its root and one in another bucket."""
    other = lake.add_bucket()
    for key, bucket in ((f"{name}/p=1/f", None), (f"{name}/p=2/f", None), (f"{name}/p=2/g", None), ("far/f", other)):
        lake.put(key, {"id": pa.array([1, 2], pa.int64())}, bucket)
    locations = [f"{lake.location(name)}/p=1", f"{lake.location(name)}/p=2", f"s3://{other}/far"]
    partitions = list(zip((["1"], ["2"], ["3"]), locations, strict=True))
    lake.glue_table({"id": "bigint"}, {"p": "int"}, partitions, name=name)
    return other


# What it says, and whether it is so


def test_a_plan_has_the_numbers_and_the_features_of_the_conversion(lake: Lake) -> None:
    two_buckets(lake)
    plan = glue_plan(lake)["t"]
    assert (plan.status, plan.error, plan.schema_conflicts) == ("convertible", None, [])
    assert (plan.partition_count, plan.external_partition_count, plan.file_count) == (3, 1, 4)
    assert [reader.partition(":")[0] for reader in plan.unreadable_by] == [readers.failing("outside on S3")]
    result = lake.convert()
    assert (plan.file_count, plan.byte_count, plan.features, plan.notes, plan.location) == (
        result.file_count, result.byte_count, result.features, result.notes, result.location,
    )  # fmt: skip
    again = glue_plan(lake)["t"]
    assert (again.status, again.version, again.file_count, again.error) == ("converted", 0, 4, None)


@pytest.mark.slow
def test_features_and_the_readers_without_them_are_foretold(spark: SparkSession, tmp_path: Path) -> None:
    narrow, spaced, local = tmp_path / "narrow", tmp_path / "spaced", tmp_path / "local"
    write_parquet(narrow / "f", {"id": pa.array([1], pa.int32())})
    write_parquet(spaced / "f", {"a b": [1]})
    write_parquet(local / "f", {"at": pa.array([datetime(2024, 1, 1)], pa.timestamp("us"))})
    tables = [table_at(narrow, {"id": "bigint"}), table_at(spaced), table_at(local)]
    plans = plan_of(spark, *tables)
    assert [plan.features for plan in plans] == [["typeWidening"], ["columnMapping"], ["timestampNtz"]]
    assert [plan.status for plan in plans] == ["convertible"] * 3
    (widened,), (mapped,), (without_zone,) = (plan.unreadable_by for plan in plans)
    assert widened.startswith(f"{readers.failing('typeWidening')}: the feature typeWidening")
    assert mapped.startswith(f"{readers.POLARS}, Delta Lake before 1.2")
    assert without_zone.startswith("Delta Lake before 2.4")
    assert [plan.partition_count for plan in plans] == [0, 0, 0]
    (off,) = plan_of(spark, tables[0], type_widening=False)
    assert (off.status, off.features) == ("convertible", [])
    (reason,) = off.unreadable_by
    assert reason.startswith(f"{readers.failing('narrower files')}: files narrower than the table")
    (plain,) = plan_of(spark, table_at(narrow, {"id": "int"}), type_widening=False)
    assert plain.unreadable_by == []


@pytest.mark.slow
def test_every_column_that_does_not_fit_is_named_with_its_file_and_the_files_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    write_parquet(root / "p=1" / "f", {"id": ["x"], "price": [1.5], "fine": [1]})
    write_parquet(root / "p=2" / "g", {"id": ["y"], "price": [2.5], "fine": [2]})
    columns = {"id": "bigint", "price": "decimal(10,2)", "fine": "bigint"}
    (plan,) = plan_of(spark, table_at(root, columns, partition_keys=["p"], partition_types={"p": "int"}))
    assert (plan.status, plan.retryable, plan.file_count, plan.partition_count) == ("refused", False, 2, 2)
    assert [re.findall(r"column (\w+) is .* in the file .*(p=1/f)", text) for text in plan.schema_conflicts] == [
        [("id", "p=1/f")],
        [("price", "p=1/f")],
    ]
    assert plan.error in plan.schema_conflicts
    by_itself = convert_folder(spark, root, partition_columns={"p": "int"})
    assert by_itself.status == "converted", "the files alone fit"


def test_files_that_disagree_are_a_conflict_without_a_catalog_too(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_parquet(root / "f", {"id": ["x"]})
    write_parquet(root / "g", {"id": [1]})
    (plan,) = plan_of(spark, table_at(root))
    (conflict,) = plan.schema_conflicts
    assert plan.status == "refused"
    assert re.search(r"column id is string in the file .*/f and bigint in the file .*/g", conflict)


def test_what_only_the_whole_schema_shows_is_a_conflict(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "t" / "p=1" / "f", {"p": [1]})
    (plan,) = plan_of(spark, table_at(tmp_path / "t", partition_keys=["p"]))
    assert plan.status == "refused"
    assert plan.schema_conflicts == [plan.error]
    assert "no columns beside its partition columns" in (plan.error or "")


def test_a_type_that_spark_cannot_read_is_a_conflict_that_names_the_file(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "t" / "odd", {"at": pa.array([1], pa.time64("us"))})
    (plan,) = plan_of(spark, table_at(tmp_path / "t"))
    assert (plan.status, plan.retryable) == ("refused", False)
    assert plan.schema_conflicts == [plan.error]
    assert "t/odd" in (plan.error or "")


def test_a_declared_type_that_nobody_knows_is_a_conflict(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "t" / "f", {"id": [1]})
    (plan,) = plan_of(spark, table_at(tmp_path / "t", {"id": "geometry"}))
    assert (plan.status, plan.schema_conflicts) == ("refused", [plan.error])


@pytest.mark.parametrize(
    ("name", "contents", "says"),
    [("broken", b"not parquet at all", "is not a Parquet file"), ("p=x/f", None, "p=x/f")],
    ids=["no Parquet", "a value that is no int"],
)
def test_a_file_that_cannot_be_part_of_the_table_is_named(
    spark: SparkSession, tmp_path: Path, name: str, contents: bytes | None, says: str
) -> None:
    root = tmp_path / "t"
    write_parquet(root / "p=1" / "f", {"id": [1]})
    bad = write_parquet(root / "p=1" / name if contents else root / name, {"id": [1]})
    if contents:
        bad.write_bytes(contents)
    (plan,) = plan_of(spark, table_at(root, partition_keys=["p"], partition_types={"p": "int"}))
    assert (plan.status, plan.retryable, plan.schema_conflicts) == ("refused", False, [])
    assert name in (plan.error or "")
    assert says in (plan.error or "")


def test_a_file_that_is_listed_twice_is_refused_as_the_conversion_refuses_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = write_parquet(tmp_path / "t" / "f", {"id": [1]})

    class Twice:
        def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
            return [ParquetFileInfo(str(file), file.stat().st_size)] * 2

    (plan,) = plan_of(spark, table_at(tmp_path / "t"), listing=Twice())
    (result,) = convert(spark, KnownTables(table_at(tmp_path / "t")), Twice(), None, None, progress=False)
    assert plan.status == "refused"
    assert "more than once: f" in (plan.error or "")
    assert plan.error == result.error


def test_an_empty_table_is_convertible_and_stands_out(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    table = table_at(tmp_path / "t", {"id": "bigint"})
    (plan,) = plan_of(spark, table)
    assert (plan.status, plan.file_count, plan.byte_count, plan.partition_count) == ("convertible", 0, 0, 0)
    assert plan.is_empty
    assert plan.notes == [
        f"Nothing is at the location of {table.qualified_name}: it is an empty table, or the location is wrong"
    ]
    (refused,) = plan_of(spark, table, refuse_empty=True)
    assert (refused.status, refused.retryable) == ("refused", False)
    assert f"has no data file at {tmp_path / 't'}, and refuse_empty is set" in (refused.error or "")


def test_options_decide_as_they_do_in_the_conversion(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "t" / "f", {"id": [1]})
    table = table_at(tmp_path / "t", bucket_columns=["id"])
    (kept,) = plan_of(spark, table)
    assert (kept.status, kept.file_count) == ("refused", 0)
    assert "allow_bucketed=True" in (kept.error or "")
    (lost,) = plan_of(spark, table, allow_bucketed=True)
    assert (lost.status, lost.notes) == ("convertible", ["The bucketing by id is lost"])
    (outside,) = plan_of(spark, table_at(tmp_path / "t"), allowed_roots=["s3://elsewhere"])
    assert (outside.status, outside.retryable) == ("refused", False)
    (property_,) = plan_of(spark, table_at(tmp_path / "t"), properties={"delta.enableChangeDataFeed": "true"})
    assert (property_.status, property_.file_count) == ("refused", 1)
    assert "delta.enableChangeDataFeed needs a table feature" in (property_.error or "")


def test_tables_at_one_location_name_each_other(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "t" / "f", {"id": [1]})
    one, other = table_at(tmp_path / "t"), TableInfo("copy", f"file://{tmp_path}/t/", database="d")
    plans = plan_of(spark, one, other)
    assert [(plan.status, *plan.notes) for plan in plans] == [
        ("convertible", "Lies at the same location as d.copy: the first of them to be converted has the log"),
        ("convertible", "Lies at the same location as d.t: the first of them to be converted has the log"),
    ]


@pytest.mark.slow
def test_a_delta_table_of_somebody_else_and_one_without_its_log(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "theirs"))
    write_parquet(tmp_path / "lost" / "f", {"id": [1]})
    write_parquet(tmp_path / "ours" / "f", {"id": [1]})
    ours = table_at(tmp_path / "ours", source="spark")
    assert convert(spark, KnownTables(ours), InFolder(), None, None, progress=False)[0].success
    plans = plan_of(
        spark,
        table_at(tmp_path / "theirs", format="delta"),
        table_at(tmp_path / "lost", format="delta"),
        ours,
        TableInfo("other", ours.location, database="d"),
    )
    assert [(plan.status, plan.version) for plan in plans] == [
        ("already_delta", 0), ("refused", None), ("converted", 0), ("converted", 0),
    ]  # fmt: skip
    assert "holds no Delta log" in (plans[1].error or "")
    assert plans[2].notes == []
    assert plans[3].notes == ["The log was made as d.ours, at the same location"]


class InFolder:
    """Everything under a local table's root."""

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
        files = [path for path in Path(table.location).rglob("*") if path.is_file()]
        return [ParquetFileInfo(str(path), path.stat().st_size) for path in files]


# One table and the others


def test_one_tables_trouble_touches_no_other_and_the_order_is_that_of_discovery(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Flaky(InFolder):
        def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
            if table.name == "b":
                raise RuntimeError("a bug in a listing")
            return super().list_files(spark, table)

    for name in "dbca":
        write_parquet(tmp_path / name / "f", {"id": [1]})
    (tmp_path / "c" / "f").write_bytes(b"broken")
    tables = [table_at(tmp_path / name) for name in "dbca"]
    plans = plan_migration(spark, KnownTables(*tables), Flaky(), max_workers=3)
    assert [(plan.source_table, plan.status, plan.retryable) for plan in plans] == [
        ("d.d", "convertible", None), ("d.b", "failed", True), ("d.c", "refused", False), ("d.a", "convertible", None),
    ]  # fmt: skip
    assert plans[1].error == "a bug in a listing"
    shown = capsys.readouterr().err
    assert len(re.findall(r"^\[\d/4\] d\.\w: .*\(\d+\.\d s\)$", shown, re.MULTILINE)) == 4
    assert "d.d: convertible, 1 files" in shown


@pytest.mark.parametrize(
    # The second is one that the client leaves to us: it does not try again by itself.
    ("status", "code", "retryable"),
    [(403, "AccessDenied", False), (409, "OperationAborted", True)],
    ids=["denied", "not now"],
)
def test_a_table_that_could_not_be_looked_at_has_failed(lake: Lake, status: int, code: str, retryable: bool) -> None:
    for name in ("t", "u"):
        lake.put(f"{name}/f", {"id": [1]})
        lake.glue_table({"id": "bigint"}, name=name)
    with sending(aws.s3_client(lake.bucket), "s3.ListObjectsV2", answering(status, code, "prefix=t%2F&")):
        plans = glue_plan(lake)
    assert (plans["t"].status, plans["t"].retryable) == ("failed", retryable)
    assert code in (plans["t"].error or "")
    assert plans["t"].location == lake.location("t")
    assert plans["u"].status == "convertible"


def test_a_table_whose_bucket_is_gone_is_refused(lake: Lake) -> None:
    lake.glue_table({"id": "bigint"}, location="s3://b-that-never-was/t")
    plan = glue_plan(lake)["t"]
    assert (plan.status, plan.retryable) == ("refused", False)
    assert "b-that-never-was" in (plan.error or "")


# It only reads


def test_a_plan_changes_nothing_and_asks_nothing_of_tables_that_discovery_refused(lake: Lake) -> None:
    other = two_buckets(lake)
    lake.put("orc/f", b"ORC")
    lake.glue_table({"id": "bigint"}, {"p": "int"}, [(["1"], f"{lake.location('orc')}/p=1")], name="orc")
    definition = lake.glue.get_table(DatabaseName=lake.database, Name="orc")["Table"]["StorageDescriptor"]
    definition["SerdeInfo"] = {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.orc.OrcSerde"}
    definition["InputFormat"] = "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"
    changed = {"Name": "orc", "StorageDescriptor": definition, "PartitionKeys": [{"Name": "p", "Type": "int"}]}
    lake.glue.update_table(DatabaseName=lake.database, TableInput=changed)
    sent: list[tuple[str, str]] = []

    def remember(request: Any, event_name: str, **_: Any) -> None:
        sent.append((event_name.rpartition(".")[2], f"{request.url} {request.body!r}"))

    def glue_state() -> list[Any]:
        tables = lake.glue.get_tables(DatabaseName=lake.database)["TableList"]
        names = [table["Name"] for table in tables]
        return [tables] + [
            lake.glue.get_partitions(DatabaseName=lake.database, TableName=name)["Partitions"] for name in names
        ]

    before = lake.objects(), glue_state()
    # Tables are asked of the caller's region, partitions of the one that their table came from.
    clients: list[tuple[Any, str]] = [(aws.s3_client(name), "s3") for name in (lake.bucket, other)]
    clients += [(aws.glue_client(region), "glue") for region in (None, REGION)]
    with ExitStack() as watched:
        for client, service in clients:
            watched.enter_context(sending(client, service, remember))
        plans = glue_plan(lake)
    assert (lake.objects(), glue_state()) == before
    assert {name: plan.status for name, plan in plans.items()} == {"t": "convertible", "orc": "refused"}
    assert "ORC" in (plans["orc"].error or "").upper()
    assert {operation for operation, _ in sent} <= READS
    assert {"ListObjectsV2", "GetTables", "GetPartitions"} <= {operation for operation, _ in sent}
    assert [call for call in sent if "orc" in call[1] and call[0] != "GetTables"] == []


@pytest.mark.slow
def test_nothing_changes_in_local_folders_or_in_the_sessions_catalog(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    for name in ("good", "bad"):
        write_parquet(tmp_path / name / "p=1" / "f", {"id": [1]})
        spark.sql(
            f"CREATE TABLE {database}.{name} (id {'bigint' if name == 'good' else 'date'}) PARTITIONED BY (p int) "
            f"STORED AS PARQUET LOCATION '{tmp_path}/{name}'"
        )
        spark.sql(f"ALTER TABLE {database}.{name} ADD PARTITION (p = 1)")

    def catalog_state() -> list[Any]:
        names = [row.tableName for row in spark.sql(f"SHOW TABLES IN {database}").collect()]
        described = [spark.sql(f"DESCRIBE TABLE EXTENDED {database}.{name}").collect() for name in names]
        partitions = [spark.sql(f"SHOW PARTITIONS {database}.{name}").collect() for name in names]
        return [names, described, partitions]

    before = snapshot(tmp_path), catalog_state()
    plans = plan_migration(
        spark, UCDiscovery([f"spark_catalog.{database}.*"]), DatabricksListing(), progress=False, max_workers=1
    )
    assert (snapshot(tmp_path), catalog_state()) == before
    assert sorted((plan.source_table.rpartition(".")[2], plan.status, plan.partition_count) for plan in plans) == [
        ("bad", "refused", 1), ("good", "convertible", 1),
    ]  # fmt: skip


def test_no_statistics_are_collected(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "t" / "f", {"id": [1], "price": [Decimal("1.5")]})
    collected: list[int] = []

    @contextmanager
    def watched(*arguments: Any) -> Iterator[Any]:
        with describe_files(*arguments) as described:
            collected.append(described.frame.where("leaf_statistics is not null").count())
            yield described

    monkeypatch.setattr(plan_module, "describe_files", watched)
    (plan,) = plan_of(spark, table_at(tmp_path / "t"))
    assert (plan.status, collected) == ("convertible", [0])


def test_a_plan_for_a_conversion_that_scans_reads_no_data(spark: SparkSession, tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "t" / "f", {"id": pa.array(range(1_000), pa.int64())}, compression="none")
    contents = bytearray(file.read_bytes())
    contents[4:1_000] = bytes(996)
    file.write_bytes(contents)
    table = table_at(tmp_path / "t", {"id": "bigint"})
    (plan,) = plan_of(spark, table, stats="scan")
    assert (plan.status, plan.file_count) == ("convertible", 1)
    (result,) = convert(
        spark, KnownTables(table), InFolder(), None, None, options=ConversionOptions(stats="scan"), progress=False
    )
    assert result.status == "failed", "the data cannot be read"
