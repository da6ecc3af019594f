"""Many tables in one run: found in catalogs, listed in every way, each with a result of its own."""

from __future__ import annotations

import io
import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_hive_to_delta import (
    ConversionOptions,
    ConversionResult,
    DatabricksListing,
    GlueDiscovery,
    InventoryListing,
    ParquetFileInfo,
    PermanentError,
    S3Listing,
    TableInfo,
    UCDiscovery,
    convert,
    create_summary,
)
from airflow_hive_to_delta.core.files import ListedFiles
from airflow_hive_to_delta.core.listing.inventory import check_files_df
from airflow_hive_to_delta.core.models import ALREADY_DELTA
from airflow_hive_to_delta.core.parquet.describe import SCHEMA_BATCH_SIZE, STATS_BATCH_SIZE, describe_files
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.discoveries import KnownTables
from tests.support.lake import Lake
from tests.support.oracle import assert_same, delta_at
from tests.support.small_tables import described_on_executors
from tests.support.tables import files_of, snapshot, write_parquet

pytestmark = pytest.mark.slow

ODD = "a/b c%d=e"


class FolderListing:
    """A listing that a user has written: what os.walk finds."""

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
        return [
            ParquetFileInfo(os.path.join(folder, name), os.path.getsize(os.path.join(folder, name)))
            for folder, _, names in os.walk(table.location)
            for name in names
        ]


# --- a metastore of many kinds of tables, converted once for the tests below ---------------------------------------


@dataclass
class Run:
    source: str
    target: str
    root: Path
    before: dict[str, tuple[int, int]]
    results: list[ConversionResult]
    stderr: str

    def result(self, name: str) -> ConversionResult:
        (found,) = (r for r in self.results if r.source_table == f"spark_catalog.{self.source}.{name}")
        return found

    def changed(self) -> set[str]:
        """What the run made or changed under the root, files only."""
        return {
            path
            for path, state in snapshot(self.root).items()
            if state[0] >= 0 and self.before.get(path) != state and not path.endswith(".crc")
        }


NAMES = ["a_parts", "b_broken", "c_view", "d_delta", "e_mixed", "f_orc", "g_plain"]


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    root = tmp_path_factory.mktemp("many")
    source, target = (f"{name}_{uuid.uuid4().hex[:12]}" for name in ("old", "new"))
    spark.sql(f"CREATE DATABASE {source} LOCATION '{root}/warehouse'")
    _make_tables(spark, source, root)
    before, stderr = snapshot(root), io.StringIO()
    with redirect_stderr(stderr):
        results = convert(
            spark, UCDiscovery([f"spark_catalog.{source}.*"]), DatabricksListing(), "spark_catalog", target
        )
    yield Run(source, target, root, before, results, stderr.getvalue())
    spark.sql(f"DROP DATABASE {source} CASCADE")
    spark.sql(f"DROP DATABASE {target} CASCADE")


def _make_tables(spark: SparkSession, source: str, root: Path) -> None:
    spark.sql(f"CREATE TABLE {source}.a_parts (id INT) PARTITIONED BY (s STRING, d DATE) STORED AS PARQUET")
    spark.sql(f"ALTER TABLE {source}.a_parts ADD PARTITION (s='out', d=DATE'2024-01-02') LOCATION '{root}/else where'")
    spark.sql("SET hive.exec.dynamic.partition.mode=nonstrict")
    spark.sql(f"INSERT INTO {source}.a_parts VALUES (1, '{ODD}', DATE'2024-01-01'), (2, NULL, NULL)")
    spark.sql(f"INSERT INTO {source}.a_parts PARTITION (s='out', d=DATE'2024-01-02') VALUES (2), (NULL)")
    write_parquet(
        root / "warehouse" / "a_parts" / "s=orphan" / "d=2024-01-01" / "f", {"id": pa.array([-1], pa.int32())}
    )

    spark.sql(f"CREATE TABLE {source}.b_broken (id INT) STORED AS PARQUET LOCATION '{root}/broken'")
    (root / "broken" / "000000_0").write_bytes(b"id\n1\n")
    spark.sql(f"CREATE VIEW {source}.c_view AS SELECT 1 AS id")
    spark.sql(f"CREATE TABLE {source}.d_delta USING delta LOCATION '{root}/delta' AS SELECT 1 AS id")
    spark.sql(
        f"CREATE TABLE {source}.e_mixed USING parquet PARTITIONED BY (DayOf) LOCATION '{root}/mixed' "
        "AS SELECT CAST(id AS INT) AS CustomerId, IF(id = 1, 'x', NULL) AS eMail, DATE'2024-02-29' AS DayOf "
        "FROM RANGE(2)"
    )
    spark.sql(f"CREATE TABLE {source}.f_orc (id INT) STORED AS ORC")
    spark.sql(f"CREATE TABLE {source}.g_plain STORED AS PARQUET LOCATION '{root}/plain' AS SELECT 1 AS Id, 'x' AS Name")


def test_results_are_in_the_order_of_discovery(run: Run) -> None:
    assert [result.source_table for result in run.results] == [f"spark_catalog.{run.source}.{name}" for name in NAMES]


def test_a_failing_a_refused_and_a_delta_table_in_the_middle_touch_no_other(run: Run) -> None:
    assert {name: run.result(name).status for name in NAMES} == {
        "a_parts": "converted",
        "b_broken": "refused",
        "c_view": "refused",
        "d_delta": "already_delta",
        "e_mixed": "converted",
        "f_orc": "refused",
        "g_plain": "converted",
    }
    entry = f"_delta_log/{0:020d}.json"
    source = "_delta_log/_hive_to_delta/source.json"
    changed = {path for path in run.changed() if "/registrations/" not in path}
    assert changed == {f"{root}/{file}" for root in ("warehouse/a_parts", "mixed", "plain") for file in (entry, source)}
    summary = create_summary(run.results)
    assert (summary.total, summary.succeeded, summary.failed, summary.retryable) == (7, 4, 3, [])


def test_rule_45_refused_tables_say_why(run: Run) -> None:
    assert "is a view" in (run.result("c_view").error or "")
    assert run.result("f_orc").error == (
        "CONVERT TO DELTA only supports parquet tables, but you are trying to convert "
        f"a orc source: spark_catalog.{run.source}.f_orc"
    )
    assert f"{run.root}/broken/000000_0 is not a Parquet file" in (run.result("b_broken").error or "")
    assert {run.result(name).retryable for name in ("b_broken", "c_view", "f_orc")} == {False}


def test_a_delta_table_is_a_success_that_changes_nothing(run: Run, spark: SparkSession) -> None:
    result = run.result("d_delta")
    assert (result.success, result.message, result.target_table, result.version) == (True, ALREADY_DELTA, "", 0)
    assert not spark.catalog.tableExists(f"{run.target}.d_delta")


@pytest.mark.parametrize("name", ["a_parts", "e_mixed", "g_plain"])
def test_converted_tables_read_the_same_under_their_new_name(run: Run, spark: SparkSession, name: str) -> None:
    assert run.result(name).target_table == f"spark_catalog.{run.target}.{name}"
    assert_same(spark, spark.table(f"{run.source}.{name}"), spark.table(f"{run.target}.{name}"))


def test_rules_19_and_43_custom_locations_and_null_partitions_of_the_metastore(run: Run, spark: SparkSession) -> None:
    found = spark.table(f"{run.target}.a_parts")
    assert found.where("s is null and d is null").count() == 1
    assert found.where(f"s = '{ODD}'").count() == 1
    assert found.where("s = 'out'").count() == 2
    assert found.where("s = 'orphan'").count() == 0
    assert any("outside the table's location" in note for note in run.result("a_parts").notes)


def test_rule_12_tables_of_spark_keep_the_case_of_their_columns(run: Run, spark: SparkSession) -> None:
    assert spark.table(f"{run.target}.e_mixed").columns == ["CustomerId", "eMail", "DayOf"]


def test_results_pass_through_json(run: Run) -> None:
    for result in run.results:
        assert ConversionResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_progress_is_a_line_for_each_table_with_counts_and_time(run: Run) -> None:
    lines = [line for line in run.stderr.splitlines() if line.startswith("[")]
    assert len(lines) == len(NAMES)
    assert [line.partition("]")[0] for line in lines] == [f"[{number}/7" for number in range(1, 8)]
    assert any("g_plain: converted, 1 files" in line and line.endswith(" s)") for line in lines)
    assert any("c_view: refused: " in line for line in lines)


def test_a_second_run_of_everything_changes_nothing(run: Run, spark: SparkSession, capfd) -> None:
    before = snapshot(run.root)
    found = UCDiscovery([f"spark_catalog.{run.source}.*"])
    results = convert(spark, found, DatabricksListing(), "spark_catalog", run.target, max_workers=1, progress=False)
    assert [result.source_table for result in results] == [result.source_table for result in run.results]
    for first, second in zip(run.results, results, strict=True):
        if first.success:
            assert (second.status, second.message, second.target_table) == (
                "already_delta",
                ALREADY_DELTA,
                first.target_table,
            )
        else:
            assert (second.status, second.error) == (first.status, first.error)
    assert snapshot(run.root) == before
    assert "[1/7]" not in capfd.readouterr().err


# --- the ways to list, and tables from elsewhere -----------------------------------------------------------------


def test_glue_and_s3(lake: Lake) -> None:
    for name in ("a", "b", "d"):
        lake.put(f"{name}/p=1/f", {"Id": [1]})
        lake.glue_table({"id": "bigint"}, {"p": "int"}, [(["1"], f"{lake.location(name)}/p=1")], name=name)
    lake.glue.create_table(
        DatabaseName=lake.database,
        TableInput={"Name": "c", "TableType": "VIRTUAL_VIEW", "ViewOriginalText": "SELECT 1"},
    )
    lake.put("b/p=1/g", b"not Parquet")
    before = lake.objects()
    results = convert(
        lake.spark,
        GlueDiscovery(lake.database, "[a-d]"),
        S3Listing(),
        None,
        f"{lake.database}_new",
        options=ConversionOptions(register_in="glue", create_schema=True),
        progress=False,
    )
    assert [(result.source_table, result.status) for result in results] == [
        (f"{lake.database}.a", "converted"),
        (f"{lake.database}.b", "refused"),
        (f"{lake.database}.c", "refused"),
        (f"{lake.database}.d", "converted"),
    ]
    files = (f"{0:020d}.json", "_hive_to_delta/source.json")
    made = {f"{lake.bucket}/{name}/_delta_log/{file}" for name in ("a", "d") for file in files}
    new = lake.objects().keys() - before.keys()
    assert {key for key in new if "/registrations/" not in key} == made
    registered = lake.glue.get_tables(DatabaseName=f"{lake.database}_new")["TableList"]
    assert {table["Name"] for table in registered} == {"a", "d"}
    for name in ("a", "d"):
        assert [tuple(row) for row in delta_at(lake.spark, lake.location(name)).collect()] == [(1, 1)]


def test_an_inventory_of_many_tables_each_takes_its_own_files(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE {database}.t (id INT) PARTITIONED BY (p INT) STORED AS PARQUET LOCATION '{tmp_path}/t'")
    spark.sql(f"ALTER TABLE {database}.t ADD PARTITION (p=2) LOCATION '{tmp_path}/t_old/two'")
    spark.sql(f"INSERT INTO {database}.t PARTITION (p=1) VALUES (1)")
    spark.sql(f"INSERT INTO {database}.t PARTITION (p=2) VALUES (1)")
    spark.sql(f"CREATE TABLE {database}.u STORED AS PARQUET LOCATION '{tmp_path}/t_old/u' AS SELECT 3 AS id")
    write_parquet(tmp_path / "t" / "p=9" / "orphan", {"id": pa.array([9], pa.int32())})
    inventory = InventoryListing(files_of(spark, tmp_path))
    results = convert(
        spark, UCDiscovery([f"spark_catalog.{database}.*"]), inventory, None, None, max_workers=2, progress=False
    )
    assert [(result.status, result.file_count) for result in results] == [("converted", 2), ("converted", 1)]
    assert_same(spark, spark.table(f"{database}.t"), delta_at(spark, tmp_path / "t"))
    assert delta_at(spark, tmp_path / "t_old" / "u").collect() == spark.table(f"{database}.u").collect()


@pytest.mark.parametrize("max_workers", [1, 4])
def test_a_discovery_and_a_listing_of_ones_own(spark: SparkSession, tmp_path: Path, max_workers: int) -> None:
    names = ["z", "y", "x"]
    for number, name in enumerate(names):
        write_parquet(tmp_path / name / "p=1" / "f", {"id": [number]})
    tables = [
        TableInfo(name, str(tmp_path / name), partition_keys=["p"], partition_types={"p": "int"}) for name in names
    ]
    results = convert(spark, KnownTables(*tables), FolderListing(), None, None, max_workers=max_workers, progress=False)
    assert [(result.source_table, result.status, result.row_count) for result in results] == [
        (name, "converted", 1) for name in names
    ]
    assert [tuple(delta_at(spark, tmp_path / name).first() or ()) for name in names] == [(0, 1), (1, 1), (2, 1)]


def test_a_listing_of_ones_own_may_know_the_partition_values(spark: SparkSession, tmp_path: Path) -> None:
    first = write_parquet(tmp_path / "t" / "one", {"id": [1]})
    second = write_parquet(tmp_path / "elsewhere" / "_two", {"id": [2]})

    class KnownFiles:
        def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
            return [
                ParquetFileInfo(str(first), first.stat().st_size, {"P": ODD}),
                ParquetFileInfo(f"file:{second}", second.stat().st_size, {"P": None}, modification_time=1),
            ]

    table = TableInfo("t", str(tmp_path / "t"), partition_keys=["p"])
    (result,) = convert(spark, KnownTables(table), KnownFiles(), None, None, progress=False)
    assert (result.error, result.file_count) == (None, 2)
    expected = spark.createDataFrame([(1, ODD), (2, None)], "id long, p string")
    assert_same(spark, expected, delta_at(spark, tmp_path / "t"))


def test_an_error_that_is_not_ours_fails_its_table_and_may_be_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "good" / "f", {"id": [1]})
    write_parquet(tmp_path / "bad" / "f", {"id": [1]})
    before = snapshot(tmp_path / "bad")

    class Failing(FolderListing):
        def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
            if table.name == "bad":
                raise ValueError("the listing service\nis down")
            return super().list_files(spark, table)

    tables = [TableInfo(name, str(tmp_path / name)) for name in ("bad", "good")]
    bad, good = convert(spark, KnownTables(*tables), Failing(), None, None, progress=False)
    assert (bad.success, bad.status, bad.retryable) == (False, "failed", True)
    assert bad.error == "the listing service\nis down"
    assert good.status == "converted"
    assert snapshot(tmp_path / "bad") == before


def test_two_tables_over_one_folder_the_error_of_the_second_names_the_owner_of_the_log(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    write_parquet(tmp_path / "t" / "f", {"id": [1]})
    tables = [TableInfo(name, str(tmp_path / "t"), database="db", source="spark") for name in ("first", "second")]
    first, second = convert(
        spark, KnownTables(*tables), FolderListing(), "spark_catalog", database, max_workers=1, progress=False
    )
    assert (first.status, second.status, second.success) == ("converted", "already_delta", True)
    assert (first.target_table, second.target_table) == (f"spark_catalog.{database}.first", "")
    assert any("made as db.first" in note for note in second.notes)


def test_rule_45_a_bucketed_table_is_refused_unless_allowed(spark: SparkSession, database: str, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE {database}.t USING parquet CLUSTERED BY (id) INTO 2 BUCKETS LOCATION '{tmp_path}/t' "
        "AS SELECT 1 AS id FROM RANGE(2)"
    )
    found = UCDiscovery([f"spark_catalog.{database}.t"])
    before = snapshot(tmp_path)
    (refused,) = convert(spark, found, DatabricksListing(), None, None, progress=False)
    assert (refused.status, refused.retryable) == ("refused", False)
    assert "bucketed by id" in (refused.error or "")
    assert snapshot(tmp_path) == before
    options = ConversionOptions(allow_bucketed=True)
    (converted,) = convert(spark, found, DatabricksListing(), None, None, options=options, progress=False)
    assert converted.status == "converted"
    assert_same(spark, spark.table(f"{database}.t"), delta_at(spark, tmp_path / "t"))


def test_rule_43_partitions_that_the_metastore_does_not_know_yet_are_not_in_the_table(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    write_parquet(tmp_path / "t" / "p=1" / "f", {"id": [1]})
    spark.sql(f"CREATE TABLE {database}.t (id BIGINT, p INT) USING parquet PARTITIONED BY (p) LOCATION '{tmp_path}/t'")
    (result,) = convert(
        spark, UCDiscovery([f"spark_catalog.{database}.t"]), DatabricksListing(), None, None, progress=False
    )
    assert (result.status, result.file_count) == ("converted", 0)
    assert_same(spark, spark.table(f"{database}.t"), delta_at(spark, tmp_path / "t"))


def test_no_tables_are_no_results(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(spark, KnownTables(), FolderListing(), None, None) == []
    assert capsys.readouterr().err == ""


# --- target names ------------------------------------------------------------------------------------------------


def test_tables_of_two_schemas_with_one_name_do_not_collide(spark: SparkSession, database: str, tmp_path: Path) -> None:
    for catalog, schema in (("one", "s"), ("two", "s"), ("one", "r")):
        write_parquet(tmp_path / catalog / schema / "t" / "f", {"who": [f"{catalog}.{schema}"]})
    write_parquet(tmp_path / "u" / "f", {"who": ["u"]})
    write_parquet(tmp_path / "v" / "f", {"who": ["v"]})
    tables = [
        TableInfo("t", str(tmp_path / "one" / "s" / "t"), catalog="one", database="s"),
        TableInfo("T", str(tmp_path / "two" / "s" / "t"), catalog="two", database="s"),
        TableInfo("t", str(tmp_path / "one" / "r" / "t"), catalog="one", database="r"),
        TableInfo("u", str(tmp_path / "u"), catalog="one", database="s"),
        TableInfo("u", str(tmp_path / "v"), catalog="one", database="r", target_table_name="mine"),
    ]
    results = convert(spark, KnownTables(*tables), FolderListing(), "spark_catalog", database, progress=False)
    assert [result.error for result in results] == [None] * 5
    names = [result.target_table.removeprefix(f"spark_catalog.{database}.") for result in results]
    assert names == ["one_s_t", "two_s_T", "r_t", "u", "mine"]
    found = [spark.table(f"{database}.{name}").collect() for name in names]
    assert [row.who for (row,) in found] == ["one.s", "two.s", "one.r", "u", "v"]


def test_two_tables_with_one_target_are_both_refused_before_anything_is_written(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        write_parquet(tmp_path / name / "f", {"id": [1]})
    before = snapshot(tmp_path)
    tables = [
        TableInfo("a", str(tmp_path / "a"), target_table_name="same"),
        TableInfo("b", str(tmp_path / "b"), target_table_name="SAME"),
    ]
    results = convert(spark, KnownTables(*tables), FolderListing(), "spark_catalog", database, progress=False)
    assert [(result.success, result.retryable) for result in results] == [(False, False)] * 2
    assert all("a and b" in (result.error or "") for result in results)
    assert snapshot(tmp_path) == before


# --- how many files a task takes ---------------------------------------------------------------------------------


@pytest.fixture
def five_files(spark: SparkSession, tmp_path: Path) -> DataFrame:
    for number in range(5):
        write_parquet(tmp_path / f"f{number}", {"id": [number]})
    return check_files_df(files_of(spark, tmp_path))


def tasks(spark: SparkSession, files: DataFrame, root: Path, **options: object) -> int:
    arguments: Any = (spark, ListedFiles(spark, files), parse_location(str(root)), {}, ConversionOptions(**options))
    with described_on_executors(), describe_files(*arguments) as described:
        assert described.file_count == 5
        return described.frame.rdd.getNumPartitions()


@pytest.mark.parametrize(
    ("setting", "option", "stats"),
    [(STATS_BATCH_SIZE, "stats_batch_size", "footer"), (SCHEMA_BATCH_SIZE, "schema_batch_size", "none")],
)
def test_the_settings_of_convert_to_delta_decide_how_many_files_a_task_takes(
    spark: SparkSession, five_files: DataFrame, tmp_path: Path, setting: str, option: str, stats: str
) -> None:
    assert tasks(spark, five_files, tmp_path, stats=stats) == 1
    assert tasks(spark, five_files, tmp_path, stats=stats, **{option: 2}) == 3
    spark.conf.set(setting, "3")
    try:
        assert tasks(spark, five_files, tmp_path, stats=stats) == 2
        assert tasks(spark, five_files, tmp_path, stats=stats, **{option: 1}) == 5, "an option comes first"
        spark.conf.set(setting, "0")
        with pytest.raises(PermanentError, match=f"{setting} is '0', expected a number of files"):
            tasks(spark, five_files, tmp_path, stats=stats)
    finally:
        spark.conf.unset(setting)


def test_the_partitions_of_a_table_come_from_the_region_that_it_was_found_in(lake, glue):
    """Another region may have a table of the same name, with other partitions."""
    far = boto3.client("glue", region_name="eu-west-1")
    far.create_database(DatabaseInput={"Name": lake.database})
    lake.put("right/f", {"id": [1]})
    lake.put("wrong/f", {"id": [-1]})
    lake.glue_table({"id": "bigint"}, {"p": "int"}, [(["1"], f"s3://{lake.bucket}/wrong")])
    lake.glue = far
    lake.glue_table({"id": "bigint"}, {"p": "int"}, [(["1"], f"s3://{lake.bucket}/right")])
    discovery = GlueDiscovery(lake.database, region="eu-west-1")
    (result,) = convert(lake.spark, discovery, S3Listing(), None, None, progress=False)
    assert result.success, result
    assert [row.id for row in delta_at(lake.spark, lake.location()).collect()] == [1]


def test_a_listing_of_ones_own_cannot_add_what_writers_stage(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    data = write_parquet(root / "p=1" / "a", {"id": [1, 2]})
    staged = write_parquet(root / "p=1" / "_temporary" / "0" / "a", {"id": [1, 2]})

    class WithValues:
        def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
            return [ParquetFileInfo(str(path), path.stat().st_size, {"p": "1"}) for path in (data, staged)]

    table = TableInfo("t", str(root), partition_keys=["p"])
    (result,) = convert(spark, KnownTables(table), WithValues(), None, None, progress=False)
    assert (result.file_count, result.row_count) == (1, 2)


def test_rule_52_a_secret_in_a_location_is_in_no_result(spark: SparkSession) -> None:
    locations = ["s3://AKIA:SECRET@bucket/x", "s3n://AKIA:SEC/RET@bucket/x", "https://user:SECRET@host/x"]
    tables = [TableInfo(f"t{number}", location) for number, location in enumerate(locations)]
    results = convert(spark, KnownTables(*tables), FolderListing(), None, None, progress=False)
    for result in results:
        assert not result.success
        assert not re.search("AKIA|SEC", json.dumps(result.to_dict()))
