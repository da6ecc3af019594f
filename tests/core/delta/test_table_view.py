"""A Delta table at one version, against Delta's own answers."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta.core.delta import table_view
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView, view_of
from airflow_hive_to_delta.core.errors import MissingError, PermanentError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.local import LocalStorage
from tests.support.tables import convert_folder, write_parquet

pytestmark = pytest.mark.slow

DAY = 86_400
#: When version 0 of the table was written; each other one a day after the one before.
FIRST = 1_704_067_200
#: Delta travels no further back than this.
KEPT = {
    "delta.deletedFileRetentionDuration": "interval 99999 days",
    "delta.logRetentionDuration": "interval 99999 days",
}
ZONE = "spark.sql.session.timeZone"


@pytest.fixture(scope="module")
def root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four versions, each with one row more, of 2024-01-01 to 2024-01-04 at midnight in UTC."""
    root = tmp_path_factory.mktemp("lake") / "orders"
    write_parquet(root / "p=0" / "f", {"id": [0]})
    convert_folder(spark, root, partition_columns={"p": "int"}, options=ConversionOptions(properties=KEPT))
    for number in range(1, 4):
        data = spark.createDataFrame([(number, number)], "id bigint, p int")
        data.write.format("delta").mode("append").save(str(root))
    for number in range(4):
        time = FIRST + number * DAY
        os.utime(root / "_delta_log" / f"{number:020d}.json", (time, time))
    return root


@pytest.fixture
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = str(spark.conf.get(ZONE))
    spark.conf.set(ZONE, request.param)
    yield request.param
    spark.conf.set(ZONE, before)


def rows(view: DeltaTableView) -> list[int]:
    return sorted(row.id for row in view.to_df().collect())


def test_nothing_is_read_before_it_is_asked_for_and_then_once(
    spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class Counting(LocalStorage):
        def __getattribute__(self, name: str) -> Any:
            calls.append(name)
            return super().__getattribute__(name)

    monkeypatch.setattr(table_view, "storage_for", lambda *_: Counting())
    views = [DeltaTableView.for_path(spark, f"{root}{travel}") for travel in ("", "@v1", "@20240102000000000")]
    views.append(DeltaTableView.for_path(spark, str(root), timestamp="2024-01-01"))
    assert repr(views[0])
    assert calls == []
    assert [view.version for view in views] == [3, 1, 1, 0]
    assert "list_files" in calls
    assert views[0].schema.names == ["id", "p"]
    del calls[:]
    assert [view.version for view in views] == [3, 1, 1, 0]
    assert (views[0].partitioning, views[0].properties["provider"]) == (["p"], "delta")
    assert calls == []


def test_a_view_stays_at_its_version_while_others_write(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame([(1,)], "id int").write.format("delta").save(str(tmp_path / "t"))
    view = DeltaTableView.for_path(spark, str(tmp_path / "t"))
    assert view.version == 0
    wider = spark.createDataFrame([(2, "x")], "id int, s string").write.format("delta").mode("append")
    wider.option("mergeSchema", "true").save(str(tmp_path / "t"))
    assert (view.version, view.schema.names, view.files.count(), len(view.history)) == (0, ["id"], 1, 1)
    assert view.to_df().columns == ["id"]
    assert rows(view) == [1]
    later = DeltaTableView.for_path(spark, str(tmp_path / "t"))
    assert (later.version, later.schema.names, rows(later)) == (1, ["id", "s"], [1, 2])


def test_a_table_by_path_is_as_delta_describes_it(spark: SparkSession, root: Path) -> None:
    view = DeltaTableView.for_path(spark, str(root))
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{root}`").collect()[0]
    files = view.files.collect()
    assert (len(files), sum(file.size for file in files)) == (detail.numFiles, detail.sizeInBytes)
    assert [file.rows for file in files] == [1, 1, 1, 1]
    assert view.schema == view.to_df().schema
    assert view.partitioning == detail.partitionColumns == ["p"]
    assert view.name == f"delta.`file://{root}`"
    assert view.properties == {
        **KEPT,
        "delta.minReaderVersion": str(detail.minReaderVersion),
        "delta.minWriterVersion": str(detail.minWriterVersion),
        "provider": "delta",
        "location": f"file://{root}",
    }
    assert view.capabilities == {"ACCEPT_ANY_SCHEMA", "BATCH_READ", "V1_BATCH_WRITE", "OVERWRITE_BY_FILTER", "TRUNCATE"}
    assert [(commit.version, commit.operation, commit.ours) for commit in view.history] == [
        (3, "WRITE", False),
        (2, "WRITE", False),
        (1, "WRITE", False),
        (0, "CONVERT", True),
    ]


def test_a_table_by_name_has_what_its_catalog_says(spark: SparkSession, database: str, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE {database}.t (id int) USING delta LOCATION '{tmp_path}/t@v1' COMMENT 'all orders' "
        "TBLPROPERTIES ('delta.appendOnly' = 'true', 'team' = 'us')"
    )
    spark.sql(f"CREATE TABLE {database}.managed (id int) USING delta")
    view = DeltaTableView.for_name(spark, ["spark_catalog", database, "t"])
    properties = view.properties
    assert (properties["Type"], properties["comment"], properties["team"]) == ("EXTERNAL", "all orders", "us")
    assert (properties["delta.appendOnly"], properties["provider"]) == ("true", "delta")
    assert (view.name, view.version) == (f"spark_catalog.{database}.t", 0)
    known = view.catalog_table
    assert (known.table_type, known.comment) == ("EXTERNAL", "all orders")
    assert (known.location, view.root.path) == (f"file:{tmp_path}/t@v1", f"{tmp_path}/t@v1")
    managed = DeltaTableView.for_name(spark, f"{database}.managed")
    assert managed.properties["Type"] == "MANAGED"
    assert "comment" not in managed.properties
    assert DeltaTableView.for_name(spark, f"{database}.managed", version=0).version == 0


def test_a_name_that_is_no_delta_table_is_refused(spark: SparkSession, database: str) -> None:
    spark.sql(f"CREATE TABLE {database}.plain (id int) USING parquet")
    spark.sql(f"CREATE VIEW {database}.seen AS SELECT 1 AS id")
    with pytest.raises(PermanentError, match=r"plain is parquet in its catalog, expected a Delta table"):
        DeltaTableView.for_name(spark, f"{database}.plain")
    with pytest.raises(PermanentError, match=r"seen is a view or a Hive table in its catalog"):
        DeltaTableView.for_name(spark, f"{database}.seen")
    with pytest.raises(MissingError, match=r"There is no table .*\.nothing"):
        DeltaTableView.for_name(spark, f"{database}.nothing")


def test_the_catalogs_table_is_only_of_a_table_by_name(spark: SparkSession, root: Path) -> None:
    with pytest.raises(PermanentError) as error:
        _ = DeltaTableView.for_path(spark, str(root)).catalog_table
    assert str(error.value) == "v1Table call is not expected with path based DeltaTableV2"


@pytest.mark.parametrize(
    ("path", "arguments", "version"),
    [
        ("", {"version": 0}, 0),
        ("@v2", {}, 2),
        ("@V02", {}, 2),
        ("@20240102235959999", {}, 1),
        ("", {"timestamp": "2024-01-03 00:00:00"}, 2),
        ("", {"timestamp": "2024-01-02 23:59:59.999"}, 1),
        ("", {"timestamp": "2024-01-04 01:00:00+01:00"}, 3),
        ("", {"timestamp": dt.datetime(2024, 1, 3, 12)}, 2),
        ("", {"timestamp": dt.datetime(2024, 1, 3, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))}, 1),
        ("", {"timestamp": "2024-01-01"}, 0),
    ],
)
def test_time_travel(spark: SparkSession, root: Path, path: str, arguments: dict[str, Any], version: int) -> None:
    view = DeltaTableView.for_path(spark, f"{root}{path}", **arguments)
    assert (view.version, str(view.root), view.files.count()) == (version, f"file://{root}", version + 1)
    reader = spark.read.format("delta")
    options = {"version": "versionAsOf", "timestamp": "timestampAsOf"}
    for name, value in arguments.items():
        reader = reader.option(options[name], str(value))
    assert sorted(row.id for row in reader.load(f"{root}{path}").collect()) == rows(view) == list(range(version + 1))


@pytest.mark.parametrize("zone", ["Asia/Tokyo"], indirect=True)
@pytest.mark.parametrize("travel", ["@20240102085959999", "2024-01-02 08:59:59.999"])
def test_a_time_without_a_zone_is_in_the_sessions(spark: SparkSession, root: Path, zone: str, travel: str) -> None:
    def view(time: str) -> DeltaTableView:
        if time.startswith("@"):
            return DeltaTableView.for_path(spark, f"{root}{time}")
        return DeltaTableView.for_path(spark, str(root), timestamp=time)

    assert view(travel).version == 0
    assert view(travel.replace("085959999", "090000000").replace("08:59:59.999", "09:00:00")).version == 1


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("@v1", {"version": 1}),
        ("@v1", {"timestamp": "2024-01-02"}),
        ("@20240102000000000", {"version": 1}),
        ("", {"version": 1, "timestamp": "2024-01-02"}),
    ],
)
def test_time_travel_in_two_formats_is_refused(
    spark: SparkSession, root: Path, path: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(PermanentError) as error:
        _ = DeltaTableView.for_path(spark, f"{root}{path}", **arguments).version
    assert str(error.value) == "Cannot specify time travel in multiple formats."


def test_times_outside_the_history_say_what_there_is(spark: SparkSession, root: Path) -> None:
    with pytest.raises(MissingError, match=r"2023-12-31T23:59:59.* is before version 0 .* 2024-01-01T00:00:00\.000"):
        _ = DeltaTableView.for_path(spark, str(root), timestamp="2023-12-31 23:59:59").version
    with pytest.raises(
        MissingError, match=r"2024-01-04T00:00:00\.001.* is after the latest version 3 of .* 2024-01-04"
    ):
        _ = DeltaTableView.for_path(spark, str(root), timestamp="2024-01-04 00:00:00.001").version
    with pytest.raises(MissingError, match="no version 4"):
        _ = DeltaTableView.for_path(spark, f"{root}@v4").version


def test_words_that_are_no_time_are_refused(spark: SparkSession, root: Path) -> None:
    with pytest.raises(PermanentError, match="timestamp is 'yesterday', expected a time such as"):
        _ = DeltaTableView.for_path(spark, str(root), timestamp="yesterday").version
    with pytest.raises(PermanentError, match="ends in @ and digits that are no time; expected yyyyMMddHHmmssSSS"):
        _ = DeltaTableView.for_path(spark, f"{root}@20241301000000000").version


def test_a_folder_that_is_called_like_a_version_is_that_folder(spark: SparkSession, tmp_path: Path) -> None:
    for name, rows_there in (("x", 1), ("x@v3", 2)):
        spark.range(rows_there).write.format("delta").save(str(tmp_path / name))
    view = DeltaTableView.for_path(spark, f"{tmp_path}/x@v3")
    assert (view.version, view.root.path, rows(view)) == (0, f"{tmp_path}/x@v3", [0, 1])
    within = DeltaTableView.for_path(spark, f"{tmp_path}/x@v3@v0")
    assert (within.version, within.root.path) == (0, f"{tmp_path}/x@v3")


def test_a_view_is_found_by_whatever_means_the_table(spark: SparkSession, database: str, root: Path) -> None:
    spark.sql(f"CREATE TABLE {database}.t USING delta LOCATION '{root}'")
    view = DeltaTableView.for_path(spark, str(root), version=1)
    table = TableInfo("orders", str(root))
    found = [view_of(spark, meant, ConversionOptions()) for meant in (view, table, str(root), f"{database}.t")]
    assert [(each.version, each.root.path) for each in found] == [(1, str(root)), *[(3, str(root))] * 3]
    assert [each.travels for each in found] == [True, False, False, False]
