"""Tables inside the location of another one: their files are not the outer table's, so it is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta import (
    ConversionOptions,
    DatabricksListing,
    GlueDiscovery,
    InventoryListing,
    S3Listing,
    TableInfo,
    UCDiscovery,
    convert,
    convert_table,
    plan_migration,
    sync_table,
)
from airflow_hive_to_delta.core.catalogs.nested_tables import check_nested_tables, mark_nested_tables
from airflow_hive_to_delta.core.errors import UnsupportedTableError
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.lake import Lake
from tests.support.oracle import delta_at
from tests.support.tables import convert_folder, files_of, snapshot, write_parquet

pytestmark = pytest.mark.slow

# --- What the catalog knows -------------------------------------------------------------------------------------


def nested(*locations: str, others: dict[str, str] | None = None) -> list[set[str]]:
    tables = [TableInfo(f"t{number}", location) for number, location in enumerate(locations)]
    mark_nested_tables(tables, (others or {}).items())
    return [set(table.nested_tables) for table in tables]


def test_nested_tables_are_found_by_their_locations() -> None:
    assert nested("s3://b/a", "s3a://b/a/x/", "s3://b/a/x/y", "s3://b/a2", "s3://c/a/x") == [
        {"t1", "t2"}, {"t2"}, set(), set(), set()]  # fmt: skip
    assert nested("s3://b/", "/b/x", "file:///b/x/y", "s3://b/x") == [{"t3"}, {"t2"}, set(), set()]
    assert nested("/a/b", "/a/b", "/a/b/c", "/a/b-c", "/a/b/c") == [{"t2", "t4"}, {"t2", "t4"}, set(), set(), set()]
    assert nested("/a", "/a/_backup/x", "/a/.x", "/a/_k=1/x", "", "ftp://x/y") == [{"t3"}, *[set()] * 5]
    assert nested("/a", others={"v": "", "u": "/a/u", "w": "/w"}) == [{"u"}]


def test_of_many_tables_inside_one_the_first_are_named() -> None:
    found = nested("s3://b", *(f"s3://b/{number:05d}" for number in range(10_000)))
    assert (len(found[0]), set(map(len, found[1:]))) == (100, {0})


@pytest.mark.parametrize(
    ("inner", "partitions", "refused"),
    [
        ("s3://b/t/x", None, True),
        ("s3://b/t/p=1", None, False),  # a second name for the partition
        ("s3://b/t/p=1/q=2", None, True),
        ("s3://b/t/q=1", None, True),
        ("s3a://b/t/p=1/x", ["s3://b/t/p=1"], True),
        ("s3a://b/t/p=1", ["s3://b/t/p=1"], False),
        ("s3://b/t/p=2", ["s3://b/t/p=1"], False),  # not listed: the metastore does not know that folder
        ("s3://b/t/x", ["s3://b/t/x/p=1"], False),
        ("s3://b/t/x", ["s3://b/"], True),
        ("s3://b/t/x", [], False),
    ],
)
def test_a_table_inside_one_that_is_partitioned(inner: str, partitions: list[str] | None, refused: bool) -> None:
    table = TableInfo("t", "s3://b/t", partition_keys=["p"], nested_tables={"d.inner": inner})
    listed = None if partitions is None else list(map(parse_location, partitions))
    check_nested_tables(table, listed, ConversionOptions(allow_nested_tables=True))
    assert table.why_refused(ConversionOptions()) is None, "not known before the partitions are"
    if refused:
        with pytest.raises(UnsupportedTableError, match=f"t has other tables .*: d.inner at {inner}. Their files"):
            check_nested_tables(table, listed, ConversionOptions())
    else:
        check_nested_tables(table, listed, ConversionOptions())


@pytest.mark.parametrize("kind", ["glue", "spark"])
def test_a_table_inside_an_unpartitioned_one_is_refused_by_the_catalog(kind: str, lake: Lake) -> None:
    lake.put("t/f", {"id": [1]})
    lake.put("t/inner/f", {"id": [2]})
    for name, folder in (("t", "t"), ("u", "t/inner")):
        (lake.glue_table if kind == "glue" else lake.hive_table)(
            {"id": "bigint"}, name=name, location=lake.location(folder)
        )
    discovery: Any = GlueDiscovery(lake.database, "t")
    if kind == "spark":
        discovery = UCDiscovery([f"spark_catalog.{lake.database}.*"])
    before = lake.objects()
    reason = f"{lake.database}.t has other tables of its catalog inside its location: .*{lake.database}.u at .*/t/inner"
    (plan, *_) = plan_migration(lake.spark, discovery, S3Listing(), progress=False)
    assert plan.status == "refused"
    assert re.search(reason, str(plan.error)), plan.error
    refused = convert_all(lake, discovery)["t"]
    assert (refused.status, refused.error) == ("refused", plan.error)
    inside = {name for name in lake.objects() if name not in before}
    assert all(name.startswith(f"{lake.bucket}/t/inner/_delta_log/") for name in inside)
    if kind == "glue":
        accepted = convert_all(lake, discovery, allow_nested_tables=True)["t"]
        assert (accepted.status, accepted.file_count) == ("converted", 2), "the advice works"


def convert_all(lake: Lake, discovery: Any, listing: Any = None, **options: Any) -> dict[str, Any]:
    chosen = ConversionOptions(**options)
    results = convert(lake.spark, discovery, listing or S3Listing(), None, None, options=chosen, progress=False)
    return {result.source_table.rpartition(".")[2]: result for result in results}


# --- What a Delta log says --------------------------------------------------------------------------------------


def test_a_delta_table_below_the_root_is_refused_by_every_listing(lake: Lake) -> None:
    lake.put("t/f", {"id": [1]})
    lake.put("t/deep/inner/q=1/f", {"id": [2]})
    lake.put(f"t/deep/inner/_delta_log/{0:020d}.json", b"{}")
    lake.put("t/_backup/x/f", {"id": [3]})
    lake.put(f"t/_backup/x/_delta_log/{0:020d}.json", b"{}")
    lake.glue_table({"id": "bigint"})
    before = lake.objects()
    paths = [(f"s3://{name}", 1) for name in before if "_delta_log" not in name]
    inventory = lake.spark.createDataFrame(paths, "file_path string, size long")
    reason = f"files inside another Delta table, at s3://{lake.bucket}/t/deep/inner, which has a _delta_log there"
    for listing in (S3Listing(), DatabricksListing(), InventoryListing(inventory)):
        result = convert_all(lake, GlueDiscovery(lake.database), listing, allow_undeclared_partitions=True)["t"]
        assert result.status == "refused"
        assert reason in str(result.error)
    (plan,) = plan_migration(lake.spark, GlueDiscovery(lake.database), S3Listing(), progress=False)
    assert (plan.status, reason in str(plan.error)) == ("refused", True)
    assert lake.objects() == before
    lake.s3.delete_object(Bucket=lake.bucket, Key=f"t/deep/inner/_delta_log/{0:020d}.json")
    result = convert_all(lake, GlueDiscovery(lake.database), allow_undeclared_partitions=True)["t"]
    assert (result.status, result.file_count) == ("converted", 2), "what lies in hidden folders is nobody's"


def test_a_delta_table_in_a_partition_is_refused_and_one_beside_them_is_not(lake: Lake) -> None:
    other = lake.add_bucket()
    lake.put("t/p=1/f", {"id": [1]})
    lake.put("p/f", {"id": [2]}, other)
    lake.put("t/orphan/f", {"id": [3]})
    lake.put(f"t/orphan/_delta_log/{0:020d}.json", b"{}")
    locations = [(["1"], f"{lake.location()}/p=1"), (["2"], f"s3://{other}/p")]
    lake.glue_table({"id": "bigint"}, {"p": "int"}, locations)
    for bucket, folder in ((lake.bucket, "t/p=1"), (other, "p")):
        lake.put(f"{folder}/_delta_log/{0:020d}.json", b"{}", bucket)
        refused = lake.convert()
        assert (refused.status, f"at s3://{bucket}/{folder}, which" in str(refused.error)) == ("refused", True)
        lake.s3.delete_object(Bucket=bucket, Key=f"{folder}/_delta_log/{0:020d}.json")
    assert lake.convert().status == "converted"


def test_a_delta_table_written_below_a_converted_one_is_not_synced(spark: SparkSession, tmp_path: Path) -> None:
    """The table's own log is no reason to refuse it."""
    root = tmp_path / "t"
    write_parquet(root / "f", {"id": [1]})
    convert_folder(spark, root)
    table = TableInfo("t", str(root), columns=[{"Name": "id", "Type": "bigint"}])
    write_parquet(root / "g", {"id": [2]})
    assert sync_table(spark, table, DatabricksListing()).num_added_files == 1
    spark.createDataFrame([(3,)], "id long").write.format("delta").save(str(root / "inner"))
    before = snapshot(tmp_path)
    with pytest.raises(UnsupportedTableError, match=r"inside another Delta table, at file://.*/t/inner, which"):
        sync_table(spark, table, DatabricksListing())
    outer = tmp_path / "u"
    write_parquet(outer / "f", {"id": [1]})
    (root / "inner").rename(outer / "inner")
    with pytest.raises(UnsupportedTableError, match="/u/inner, which has a _delta_log"):
        convert_table(spark, files_of(spark, outer), str(outer), None, None, None)
    (outer / "inner").rename(root / "inner")
    assert snapshot(root) == {name[2:]: found for name, found in before.items() if name.startswith("t/")}
    assert sorted(row.id for row in delta_at(spark, str(root)).collect()) == [1, 2]


# --- Two tables at one location ---------------------------------------------------------------------------------


def test_of_two_tables_at_one_location_the_second_says_whose_the_log_is(lake: Lake) -> None:
    lake.put("t/f", {"id": [1]})
    for name in ("t", "u"):
        lake.glue_table({"id": "bigint"}, name=name, location=lake.location())
    first = convert_all(lake, GlueDiscovery(lake.database, "t"))["t"]
    second = convert_all(lake, GlueDiscovery(lake.database, "u"))["u"]
    assert (first.status, first.notes, second.status) == ("converted", [], "already_delta")
    assert f"was made as {lake.database}.t" in str(second.notes)
