"""One table, end to end, on local disk: what comes out cannot be told from what went in."""

from __future__ import annotations

import datetime as dt
import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from airflow_hive_to_delta import (
    ConversionOptions,
    DatabricksListing,
    UCDiscovery,
    convert,
    convert_table,
    plan_migration,
)
from airflow_hive_to_delta.core.models import ALREADY_DELTA
from tests.support.oracle import assert_same, delta_at
from tests.support.spark_versions import needs_spark_4
from tests.support.tables import convert_folder, files_of, snapshot, write_parquet

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def adds(root: Path) -> list[dict]:
    lines = (root / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    return [action["add"] for action in map(json.loads, lines) if "add" in action]


def stats(root: Path) -> list[dict]:
    return [json.loads(add["stats"]) for add in adds(root)]


def test_an_unpartitioned_table(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a.parquet", {"id": [1, 2, None], "name": ["x", None, "y" * 50]})
    write_parquet(root / "b.parquet", {"id": [3], "name": ["z"]})
    original = spark.read.parquet(str(root))
    data = snapshot(root)
    result = convert_folder(spark, root)
    assert (result.success, result.status, result.file_count, result.row_count) == (True, "converted", 2, 4)
    assert result.byte_count == sum(size for size, _ in data.values())
    assert snapshot(root).items() >= data.items(), "no data file is touched"
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_every_primitive_type_written_by_spark(spark, tmp_path):
    root = tmp_path / "t"
    spark.sql("""
        SELECT CAST(x AS TINYINT) b, CAST(x * 100 AS SMALLINT) s, x i, x * 10000000000 l, CAST(x / 3 AS FLOAT) f,
               x / 3 d, CAST(x / 7 AS DECIMAL(9, 2)) dec9, CAST(x / 7 AS DECIMAL(18, 4)) dec18,
               CAST(x / 7 AS DECIMAL(38, 10)) dec38, x % 2 = 0 bool, CONCAT('värde ', x) str,
               CAST(CAST(x AS STRING) AS BINARY) bin,
               DATE_ADD(DATE'2024-02-28', x) day, TIMESTAMP'1969-12-31 23:59:59.999999' + MAKE_INTERVAL(0, 0, 0, x) ts
        FROM (SELECT CAST(id AS INT) - 2 AS x FROM RANGE(5)) UNION ALL
        SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    """).repartition(3).write.parquet(str(root))
    original = spark.read.parquet(str(root))
    convert_folder(spark, root)
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_rule_10_timestamp_ntz_needs_protocol_3_7(spark, tmp_path):
    root = tmp_path / "t"
    moments = [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2024, 1, 1, 0, 0, 0, 1), None]
    write_parquet(root / "a.parquet", {"at": pa.array(moments, pa.timestamp("us"))})
    write_parquet(
        root / "b.parquet",
        {"at": pa.array(moments[1:], pa.timestamp("ms"))},
        coerce_timestamps="ms",
        allow_truncated_timestamps=True,
    )
    original = spark.read.parquet(str(root))
    assert convert_folder(spark, root).features == ["timestampNtz"]
    assert not any(bound.endswith("Z") for stat in stats(root) for bound in stat["minValues"].values())
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_rule_11_names_that_need_column_mapping(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a.parquet", {"a b": [1, 2], "c,d": ["x", None], "s": [{"in ner": 1.5}, None]})
    write_parquet(root / "b.parquet", {"a b": [3], "c,d": ["y"], "s": [{"in ner": 2.5}]})
    original = spark.read.parquet(str(root))
    assert convert_folder(spark, root).features == ["columnMapping"]
    assert_same(spark, original, delta_at(spark, root))


def test_rule_12_mixed_case_columns_are_read_by_spark_and_by_delta_rs(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a.parquet", {"CustomerId": [1, 2], "eMail": ["x", None]})
    original = spark.read.parquet(str(root))
    convert_folder(spark, root)
    assert_same(spark, original, delta_at(spark, root))
    assert deltalake.DeltaTable(str(root)).to_pyarrow_table().to_pydict() == {
        "CustomerId": [1, 2],
        "eMail": ["x", None],
    }


def test_rule_12_files_that_disagree_about_case_with_the_option_that_accepts_it(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a.parquet", {"Id": [1]})
    write_parquet(root / "b.parquet", {"ID": [2]})
    original = spark.read.schema("Id long").parquet(str(root))
    convert_folder(spark, root, options=ConversionOptions(allow_name_case_conflict=True))
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.parametrize(
    ("hive_type", "values"), [("string", ["x", "null"]), ("int", ["7", "-1"]), ("date", ["2024-02-29"])]
)
def test_rule_19_null_partitions(spark, tmp_path, hive_type, values):
    root = tmp_path / "t"
    for number, value in enumerate([*values, HIVE_NULL]):
        write_parquet(root / f"p={value}" / "f.parquet", {"id": [number]})
    original = spark.read.schema(f"id long, p {hive_type}").parquet(str(root))
    assert original.where("p is null").count() == 1
    convert_folder(spark, root, partition_columns={"p": hive_type})
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_rule_21_every_partition_type(spark, tmp_path):
    root = tmp_path / "t"
    data = spark.sql("""
        SELECT id, CAST(id AS TINYINT) b, CAST(id AS BIGINT) l, id % 2 = 0 bool, CAST(id / 4 AS DECIMAL(10, 3)) dec,
               CAST(id / 4 AS DOUBLE) d, TIMESTAMP'2024-01-01 01:02:03.5' + MAKE_INTERVAL(0, 0, 0, id) ts,
               DATE_ADD(DATE'1999-12-31', id) day
        FROM (SELECT CAST(id AS INT) id FROM RANGE(3))
    """)
    keys = {
        "b": "tinyint",
        "l": "bigint",
        "bool": "boolean",
        "dec": "decimal(10,3)",
        "d": "double",
        "ts": "timestamp",
        "day": "date",
    }
    data.write.partitionBy(*keys).parquet(str(root))
    original = spark.read.schema(f"id int, {', '.join(f'{k} {t}' for k, t in keys.items())}").parquet(str(root))
    result = convert_folder(spark, root, partition_columns=keys)
    assert any("read in UTC" in note for note in result.notes)
    assert_same(spark, original, delta_at(spark, root))


def test_rule_21_a_timestamp_partition_in_another_zone(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "at=2024-07-01 12%3A00%3A00" / "f", {"id": [1]})
    convert_folder(
        spark,
        root,
        partition_columns={"at": "timestamp"},
        options=ConversionOptions(partition_timezone="Europe/Berlin"),
    )
    (row,) = delta_at(spark, root).collect()
    assert row.at == dt.datetime(2024, 7, 1, 10)


def test_rule_23_a_partition_column_that_is_also_in_the_file_has_the_catalogs_type_and_value(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "p=7" / "f", {"id": [1, 2], "P": ["inside", "the file"]})
    convert_folder(spark, root, partition_columns={"p": "int"})
    assert [tuple(row) for row in delta_at(spark, root).orderBy("id").collect()] == [(1, 7), (2, 7)]


@pytest.mark.slow
def test_rules_14_and_24_odd_characters_in_partition_values_and_file_names(spark, tmp_path):
    root = tmp_path / "t"
    values = [
        "a/b c%d=e",
        "x:y",
        "ü€😀",
        "{[*?]}",
        "#frag?query",
        "+plus&amp",
        "'quote\"",
        "back\\slash",
        " space ",
        "%2F",
    ]
    spark.createDataFrame([(i, v) for i, v in enumerate(values)], "id int, p string").write.partitionBy("p").parquet(
        str(root)
    )
    write_parquet(root / "p=a%2Fb c%25d%3De" / "f %20é+x.parquet", {"id": pa.array([99], pa.int32())})
    original = spark.read.schema("id int, p string").parquet(str(root))
    assert {row.p for row in original.collect()} == set(values)
    convert_folder(spark, root, partition_columns=["p"])
    assert_same(spark, original, delta_at(spark, root))


def test_rules_16_and_18_files_outside_the_root_have_absolute_paths_and_the_result_says_so(spark, tmp_path):
    root, elsewhere = tmp_path / "t", tmp_path / "t_archive %41"
    write_parquet(root / "p=1" / "f.parquet", {"id": [1]})
    write_parquet(elsewhere / "p=2" / "f.parquet", {"id": [2]})
    original = (
        spark.read.schema("id long, p int")
        .parquet(str(root))
        .unionAll(spark.read.option("__globPaths__", "false").schema("id long, p int").parquet(str(elsewhere)))
    )
    result = convert_folder(spark, root, elsewhere, partition_columns={"p": "int"})
    assert any("1 of 2 files lie outside" in note and "DuckDB" in note for note in result.notes)
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_rules_26_to_28_nested_types(spark, tmp_path):
    root = tmp_path / "t"
    spark.sql("""
        SELECT NAMED_STRUCT('A', CAST(1.25 AS DECIMAL(10, 2)), 'B', 1) s, ARRAY(1, NULL, 3) a,
               MAP('k', NAMED_STRUCT('v', 1.5D)) m,
               ARRAY(NAMED_STRUCT('x', 1, 'y', MAP(1, 'z'))) deep UNION ALL
        SELECT NAMED_STRUCT('A', NULL, 'B', 2), NULL, NULL, NULL UNION ALL SELECT NULL, ARRAY(), MAP(), ARRAY(NULL)
    """).write.parquet(str(root))
    original = spark.read.parquet(str(root))
    convert_folder(spark, root)
    assert delta_at(spark, root).schema.simpleString().startswith("struct<s:struct<A:decimal(10,2),B:int>")
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
@needs_spark_4("reading files whose types are narrower than the table's")
def test_rule_29_int32_and_int64_files_in_one_table(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"n": pa.array([1, 2], pa.int32()), "f": pa.array([1.5, 2.5], pa.float32())})
    write_parquet(root / "b", {"n": pa.array([2**40, None], pa.int64()), "f": pa.array([0.1, None], pa.float64())})
    original = spark.read.schema("n long, f double").parquet(str(root))
    result = convert_folder(spark, root)
    assert result.features == ["typeWidening"]
    assert any("n" in note for note in result.notes)
    assert_same(spark, original, delta_at(spark, root))


@needs_spark_4("reading files whose types are narrower than the table's")
def test_rule_29_the_option_leaves_the_feature_off_and_the_result_says_so(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"n": pa.array([1, 2], pa.int32())})
    write_parquet(root / "b", {"n": pa.array([2**40, None], pa.int64())})
    original = spark.read.schema("n long").parquet(str(root))
    result = convert_folder(spark, root, options=ConversionOptions(type_widening=False))
    assert result.features == []
    assert any("3.5" in note for note in result.notes)
    assert_same(spark, original, delta_at(spark, root))


@needs_spark_4("reading files whose types are narrower than the table's")
def test_rule_29_decimals_widen_when_they_keep_their_digits(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"d": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2))})
    write_parquet(root / "b", {"d": pa.array([Decimal("-123456789.1234")], pa.decimal128(20, 4))})
    original = spark.read.schema("d decimal(20,4)").parquet(str(root))
    convert_folder(spark, root)
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_rule_29_times_without_a_zone_are_a_timestamp_only_by_option(spark, tmp_path, database):
    root = tmp_path / "t"
    moments = [dt.datetime(2024, 1, 1, 12, 30, 0, 5), dt.datetime(1969, 12, 31, 23, 59), None]
    write_parquet(root / "a", {"at": pa.array(moments, pa.timestamp("us"))})
    spark.sql(f"CREATE TABLE {database}.t (at TIMESTAMP) STORED AS PARQUET LOCATION '{root}'")
    arguments = (spark, UCDiscovery([f"spark_catalog.{database}.*"]), DatabricksListing(), None, None)
    (refused,) = convert(*arguments)
    assert "ntz_as_timestamp=True" in refused.error
    (result,) = convert(*arguments, options=ConversionOptions(ntz_as_timestamp=True))
    assert (result.status, result.features) == ("converted", [])
    assert any("timestamp_ntz as timestamp" in note for note in result.notes)
    assert_same(spark, spark.table(f"{database}.t"), delta_at(spark, root))


@pytest.mark.slow
def test_rule_30_a_column_that_only_some_files_have_is_null_in_the_others(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"id": [1], "s": [{"x": 1}]})
    write_parquet(root / "b", {"id": [2], "new": ["n"], "s": [{"x": 2, "y": "deep"}]})
    original = spark.read.option("mergeSchema", "true").parquet(str(root))
    convert_folder(spark, root)
    assert_same(spark, original, delta_at(spark, root).select(original.columns))


@pytest.mark.slow
def test_rule_36_nan_in_files_of_pyarrow_hides_from_bounds(spark, tmp_path):
    root = tmp_path / "t"
    values = [1.0, float("nan"), 3.0, None, float("inf"), -0.0]
    write_parquet(root / "a", {"d": values, "f": pa.array(values, pa.float32())})
    write_parquet(root / "b", {"d": [5.0], "f": pa.array([5.0], pa.float32())})
    original = spark.read.parquet(str(root))
    convert_folder(spark, root)
    assert all(stat["minValues"] == {} for stat in stats(root))
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_rule_36_nan_in_files_of_spark(spark, tmp_path):
    root = tmp_path / "t"
    spark.sql("SELECT 1 k, 1.5D d UNION ALL SELECT 1, DOUBLE('NaN')").coalesce(1).write.parquet(str(root))
    spark.sql("SELECT 2 k, 0.0D d UNION ALL SELECT 2, 2.5D").coalesce(1).write.mode("append").parquet(str(root))
    original = spark.read.parquet(str(root))
    convert_folder(spark, root)
    bounds = sorted((stat["minValues"]["k"], stat["minValues"].get("d")) for stat in stats(root))
    assert bounds == [(1, None), (2, -0.0)]
    assert_same(spark, original, delta_at(spark, root))


def test_rule_36_int96_has_no_bounds_and_old_dates_neither(spark, tmp_path):
    root = tmp_path / "t"
    moments = [dt.datetime(2024, 1, 1, 12, 0, 0, 123_456), None]
    write_parquet(
        root / "a",
        {
            "at": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "day": pa.array([dt.date(1200, 1, 1), dt.date(2024, 1, 1)]),
        },
        use_deprecated_int96_timestamps=True,
    )
    original = spark.read.parquet(str(root))
    assert original.schema["at"].dataType.typeName() == "timestamp"
    convert_folder(spark, root)
    assert stats(root)[0]["minValues"] == {}
    assert stats(root)[0]["nullCount"] == {"day": 0}, "the writer left no count for INT96"
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_rule_36_unsigned_integers(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(
        root / "a",
        {f"u{bits}": pa.array([0, 2**bits - 1, None], pa.from_numpy_dtype(f"uint{bits}")) for bits in (8, 16, 32, 64)},
    )
    original = spark.read.parquet(str(root))
    convert_folder(spark, root)
    assert stats(root)[0]["minValues"] == {}
    assert_same(spark, original, delta_at(spark, root))


def test_rule_40_to_42_what_is_a_data_file(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "p=1" / "000000_0", {"id": [1]})
    write_parquet(root / "p=1" / "HIVE_UNION_SUBDIR_1" / "000000_0", {"id": [2]})
    write_parquet(root / "p=1" / "_temporary" / "0" / "f.parquet", {"id": [-1]})
    write_parquet(root / "p=1" / ".hive-staging_hive_1" / "000000_0", {"id": [-2]})
    write_parquet(root / "p=1" / "_spark_metadata", {"id": [-3]})
    (root / "p=1" / "_SUCCESS").touch()
    (root / "p=1" / "empty.parquet").touch()
    (root / "p=2_$folder$").touch()
    convert_folder(spark, root, partition_columns={"p": "int"})
    assert sorted(map(tuple, delta_at(spark, root).collect())) == [(1, 1), (2, 1)]


def test_rule_41_files_without_rows_keep_their_columns(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"id": pa.array([], pa.int64()), "only_here": pa.array([], pa.string())})
    write_parquet(root / "b", {"id": [1]})
    original = spark.read.option("mergeSchema", "true").parquet(str(root))
    convert_folder(spark, root)
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_several_row_groups(spark, tmp_path):
    root = tmp_path / "t"
    names = [None] * 4 + [f"n{i:02d}" for i in range(5)]
    write_parquet(root / "a", {"id": list(range(9)), "name": names, "none": pa.nulls(9, pa.int64())}, row_group_size=2)
    original = spark.read.parquet(str(root))
    convert_folder(spark, root)
    assert stats(root) == [
        {
            "numRecords": 9,
            "minValues": {"id": 0, "name": "n00"},
            "maxValues": {"id": 8, "name": "n04"},
            "nullCount": {"id": 0, "name": 4, "none": 9},
        }
    ]
    assert_same(spark, original, delta_at(spark, root))


def test_without_statistics(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"id": [1, 2]})
    original = spark.read.parquet(str(root))
    result = convert_folder(spark, root, options=ConversionOptions(stats="none"))
    assert "stats" not in adds(root)[0]
    assert result.row_count == 2
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_rule_39_a_checkpoint_over_an_adjustable_number_of_files(spark, tmp_path):
    root = tmp_path / "t"
    for number in range(5):
        write_parquet(root / f"p={number % 2}" / f"f{number}", {"id": [number]})
    original = spark.read.schema("id long, p int").parquet(str(root))
    convert_folder(spark, root, partition_columns={"p": "int"}, options=ConversionOptions(checkpoint_over_files=4))
    assert (root / "_delta_log" / "_last_checkpoint").exists()
    assert_same(spark, original, delta_at(spark, root))


def test_already_delta_is_a_success_that_changes_nothing(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"id": [1]})
    convert_folder(spark, root)
    before = snapshot(root)
    write_parquet(tmp_path / "more" / "b", {"id": [2]})
    result = convert_folder(spark, root, tmp_path / "more")
    assert (result.success, result.status, result.message, result.version) == (True, "already_delta", ALREADY_DELTA, 0)
    assert snapshot(root) == before


def test_somebody_elses_delta_table_is_left_alone(spark, tmp_path, database):
    root = tmp_path / "t"
    spark.range(3).write.format("delta").save(str(root))
    before = snapshot(root)
    result = convert_table(spark, files_of(spark, root), str(root), "spark_catalog", database, "t")
    assert (result.success, result.status, result.message, result.target_table) == (
        True,
        "already_delta",
        ALREADY_DELTA,
        "",
    )
    assert any("another writer" in note for note in result.notes)
    assert snapshot(root) == before
    assert not spark.catalog.tableExists(f"{database}.t")


def test_a_table_whose_first_entry_delta_has_removed_is_still_known_as_converted(spark, tmp_path, database):
    root = tmp_path / "t"
    write_parquet(root / "a", {"id": [1, 2]})
    files = files_of(spark, root)
    convert_folder(spark, root, options=ConversionOptions(properties={"delta.checkpointInterval": "1"}))
    spark.createDataFrame([(3,)], "id long").write.format("delta").mode("append").save(str(root))
    (root / "_delta_log" / f"{0:020d}.json").unlink()

    found = convert_table(spark, files, str(root), "spark_catalog", database, "t")

    assert (found.status, found.ours, found.origin, found.version) == ("registered", True, None, 1)
    assert found.target_table == f"spark_catalog.{database}.t"
    assert spark.table(f"{database}.t").count() == 3, "its columns come from the checkpoint"
    (root / "_delta_log" / "_hive_to_delta" / "source.json").unlink()
    found = convert_folder(spark, root)
    assert (found.status, found.ours) == ("already_delta", False)
    assert "is not known: its first entry is gone" in (found.origin or "")
    assert "another writer" not in str(found)


@pytest.mark.slow
def test_many_converters_at_once_one_commits_and_the_others_report_the_same_table(spark, tmp_path, database):
    root = tmp_path / "t"
    write_parquet(root / "a", {"id": [1, 2]})
    original = spark.read.parquet(str(root))
    files = files_of(spark, root)
    with ThreadPoolExecutor(4) as pool:
        results = list(
            pool.map(lambda _: convert_table(spark, files, str(root), "spark_catalog", database, "t"), range(4))
        )
    assert [result.success for result in results] == [True] * 4
    assert sum(result.status == "converted" for result in results) == 1
    assert {result.target_table for result in results} == {f"spark_catalog.{database}.t"}
    names = sorted(p.name for p in (root / "_delta_log").iterdir() if not p.name.startswith("."))
    assert names == [f"{0:020d}.json", "_hive_to_delta"]
    assert_same(spark, original, spark.table(f"{database}.t"))


def test_registration_and_its_repair_after_a_crash(spark, tmp_path, database):
    root = tmp_path / "t"
    write_parquet(root / "a", {"id": [1, 2]})
    convert_folder(spark, root)
    result = convert_table(spark, files_of(spark, root), str(root), "spark_catalog", database, "t")
    assert (result.status, result.target_table) == ("registered", f"spark_catalog.{database}.t")
    assert spark.table(f"{database}.t").count() == 2
    again = convert_table(spark, files_of(spark, root), str(root), "spark_catalog", database, "t")
    assert again.status == "already_delta"


def test_a_checkpoint_lost_in_a_crash_is_made_by_the_next_run(spark, tmp_path):
    root = tmp_path / "t"
    for number in range(3):
        write_parquet(root / f"f{number}", {"id": [number]})
    convert_folder(spark, root)
    convert_folder(spark, root, options=ConversionOptions(checkpoint_over_files=2))
    assert (root / "_delta_log" / "_last_checkpoint").exists()
    assert delta_at(spark, root).count() == 3


def test_rule_32_table_properties_are_kept_and_decide_on_statistics(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "a", {"a": [1], "b": [2]})
    convert_folder(
        spark, root, options=ConversionOptions(properties={"delta.dataSkippingNumIndexedCols": "1", "team": "o'neil"})
    )
    assert stats(root)[0]["minValues"] == {"a": 1}
    properties = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES delta.`{root}`").collect()}
    assert properties["team"] == "o'neil"


def test_the_history_says_who_converted_it(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "p=1" / "a", {"id": [1]})
    ours = ConversionOptions(user_metadata="theirs", run_id="dag/run")
    convert_folder(spark, root, partition_columns=["p"], options=ours)
    (row,) = spark.sql(f"DESCRIBE HISTORY delta.`{root}`").collect()
    assert row.operation == "CONVERT"
    assert row.userMetadata == "theirs", "a field that Delta does not know disturbs no reader"
    (known,) = deltalake.DeltaTable(str(root)).history()
    assert known["hiveToDelta"]["runId"] == "dag/run"
    assert row.operationParameters["partitionedBy"] == '["p"]'
    assert row.operationMetrics["numConvertedFiles"] == "1"
    assert row.engineInfo.startswith("airflow-hive-to-delta/")


def test_a_converted_table_takes_writes(spark, tmp_path):
    root = tmp_path / "t"
    write_parquet(root / "p=1" / "a", {"id": [1, 2]})
    convert_folder(spark, root, partition_columns={"p": "int"})
    spark.createDataFrame([(3, 2)], "id long, p int").write.format("delta").mode("append").save(str(root))
    spark.sql(f"DELETE FROM delta.`{root}` WHERE id = 1")
    assert sorted(map(tuple, delta_at(spark, root).collect())) == [(2, 1), (3, 2)]


def test_a_managed_table_says_what_dropping_it_does_and_what_to_do(spark, database):
    spark.sql(f"CREATE TABLE {database}.t (id INT) STORED AS PARQUET")
    spark.sql(f"INSERT INTO {database}.t VALUES (1), (2)")
    discovery = UCDiscovery(allow=[f"spark_catalog.{database}.*"])
    notes = [convert(spark, discovery, DatabricksListing(), None, None, progress=False)[0].notes for _ in range(2)]
    (plan,) = plan_migration(spark, discovery, DatabricksListing(), progress=False)
    assert plan.notes == notes[0] == notes[1]
    (note,) = plan.notes
    assert note.startswith(f"spark_catalog.{database}.t is a managed table: Hive and Spark delete its files")
    assert note.endswith(f"in Hive run ALTER TABLE `{database}`.`t` SET TBLPROPERTIES ('EXTERNAL'='TRUE')")
