"""DatabricksListing: partitions from a real Hive metastore, files listed by Spark, or by the driver on a local disk."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta.core.catalogs.partitions import catalog_partitions
from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    MissingError,
    PartitionError,
    PermanentError,
    UnsupportedTableError,
)
from airflow_hive_to_delta.core.listing import spark as spark_listing
from airflow_hive_to_delta.core.listing.locations import TableLocation, assign_locations
from airflow_hive_to_delta.core.listing.s3 import S3Listing
from airflow_hive_to_delta.core.listing.spark import DatabricksListing
from airflow_hive_to_delta.core.models import FILES_SCHEMA, ParquetFileInfo, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.aws import checked_identities
from tests.support.files import write_files

ODD = "a/b c%d=e"
ODD_FOLDER = "a%2Fb c%25d%3De"
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def listed(spark, table, **options) -> dict[str, Any]:
    files = DatabricksListing().list_files_df(spark, table, ConversionOptions(**options))
    return {row.path: row.partition_values for row in files.collect()}


@pytest.fixture(params=["driver", "Spark"])
def local_lister(request, monkeypatch):
    """Who lists the files of the local disk."""
    if request.param == "Spark":
        monkeypatch.setattr(spark_listing, "has_driver", lambda _: False)
    return request.param


@pytest.fixture
def hive_table(spark, database, tmp_path):
    """An external Hive table at ``tmp_path/t`` with partitions ``[(spec, location), …]``, and its TableInfo."""

    def make(keys: str, partitions=(), location=None, name="t") -> TableInfo:
        location = location or f"{tmp_path}/t"
        sql_name = f"{database}.`{name}`"
        spark.sql(
            f"CREATE EXTERNAL TABLE {sql_name} (v int) PARTITIONED BY ({keys}) STORED AS PARQUET LOCATION '{location}'"
        )
        for spec, partition_location in partitions:
            spark.sql(f"ALTER TABLE {sql_name} ADD PARTITION ({spec}) LOCATION '{partition_location}'")
        columns = [key.split()[0] for key in keys.split(",")]
        return TableInfo(name, location, database=database, partition_keys=columns, source="spark")

    return make


@pytest.mark.usefixtures("local_lister")
def test_files_have_paths_sizes_times_and_the_common_schema(spark, tmp_path):
    write_files(tmp_path / "t" / "a.parquet", body=b"12345")
    table = TableInfo("t", str(tmp_path / "t"))
    modified = int((tmp_path / "t" / "a.parquet").stat().st_mtime * 1000)

    files = DatabricksListing().list_files_df(spark, table, ConversionOptions())
    assert files.schema == spark.createDataFrame([], FILES_SCHEMA).schema
    assert DatabricksListing().list_files(spark, table) == [
        ParquetFileInfo(f"file://{tmp_path}/t/a.parquet", 5, None, modified)
    ]


@pytest.mark.usefixtures("local_lister")
def test_rules_19_24_null_partitions_and_odd_values_keep_values_and_locations(spark, database):
    spark.sql(f"CREATE TABLE {database}.t (v int) PARTITIONED BY (s string, i int, d date) STORED AS PARQUET")
    values = [
        (ODD, "1", "2024-01-02"),
        (None, "2", "2024-01-02"),
        ("x", None, "2024-01-02"),
        ("y", "4", None),
        ('it\'s `q` \\ "dq"', "5", "2024-01-02"),
        ("été 東{[*?:", "6", "2024-01-02"),
        ("null", "7", "2024-01-02"),
        ("+&#;--", "8", "2024-01-02"),
    ]
    rows = spark.createDataFrame([(1, *v) for v in values], "v int, s string, i string, d string")
    previous = spark.conf.get("hive.exec.dynamic.partition.mode", "strict")
    spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
    rows.selectExpr("v", "s", "cast(i as int)", "cast(d as date)").write.insertInto(f"{database}.t")
    spark.conf.set("hive.exec.dynamic.partition.mode", previous)
    location = spark.sql(f"DESCRIBE TABLE EXTENDED {database}.t").where("col_name = 'Location'").head()[1]
    table = TableInfo("t", location, database=database, partition_keys=["s", "i", "d"], source="spark")

    found = listed(spark, table)
    assert {tuple(v[key] for key in "sid") for v in found.values()} == set(values)
    for path in found:
        assert Path(path.removeprefix("file://")).is_file()
    assert any(f"/s={ODD_FOLDER}/i=1/d=2024-01-02/" in path for path in found)


def test_rule_43_partitions_outside_the_root_and_in_another_bucket_are_listed_and_orphans_not(
    spark, tmp_path, bucket, s3, hive_table
):
    write_files(tmp_path / "t/p=1/000000_0", tmp_path / "t/p=9/orphan", tmp_path / "a b%20{c}/f")
    s3.put_object(Bucket=bucket, Key="far/sub dir/f", Body=b"data")
    locations = [("p=1", tmp_path / "t/p=1"), ("p=2", tmp_path / "a b%20{c}"), ("p=3", f"s3://{bucket}/far")]
    table = hive_table("p int", locations)

    assert listed(spark, table) == {
        f"file://{tmp_path}/t/p=1/000000_0": {"p": "1"},
        f"file://{tmp_path}/a b%20{{c}}/f": {"p": "2"},
        f"s3://{bucket}/far/sub dir/f": {"p": "3"},
    }


def test_s3_listing_asks_the_session_for_the_partitions_of_its_tables(spark, bucket, s3, hive_table):
    s3.put_object(Bucket=bucket, Key="far/f", Body=b"data")
    table = hive_table("p int", [("p=3", f"s3://{bucket}/far")], location=f"s3://{bucket}/t")
    (file,) = S3Listing().list_files(spark, table)
    assert (file.path, file.partition_values) == (f"s3://{bucket}/far/f", {"p": "3"})


def test_rule_20_values_keep_the_text_of_the_metastore(spark, tmp_path, hive_table):
    """MSCK REPAIR takes ``m=01`` of an int column as it is, and Spark then looks for the partition 1."""
    write_files(tmp_path / "t/m=01/f", tmp_path / "t/m=1/f", tmp_path / "t/m=02/f")
    table = hive_table("m int")
    spark.sql(f"MSCK REPAIR TABLE {table.database}.t")

    setting = "spark.sql.legacy.skipTypeValidationOnAlterPartition"
    before = spark.conf.get(setting)
    assert listed(spark, table) == {f"file://{tmp_path}/t/m={m}/f": {"m": m} for m in ("01", "1", "02")}
    assert spark.conf.get(setting) == before


def test_spark_tables_are_listed_by_their_catalog_or_by_their_folders(spark, tmp_path, database):
    for name, managed in (("tracked", "true"), ("untracked", "false")):
        location = tmp_path / name
        write_files(location / "P=1/f", location / "P=2/f", tmp_path / f"{name}-away/f")
        spark.conf.set("spark.sql.hive.manageFilesourcePartitions", managed)
        # timestamp_ntz is nothing Hive knows: Spark stores such a table as if it were text.
        spark.sql(f"""CREATE TABLE {database}.{name} (v timestamp_ntz, P int) USING parquet PARTITIONED BY (P)
                      LOCATION '{location}'""")
    spark.conf.unset("spark.sql.hive.manageFilesourcePartitions")
    spark.sql(f"ALTER TABLE {database}.tracked ADD PARTITION (P=1)")
    spark.sql(f"ALTER TABLE {database}.tracked ADD PARTITION (P=3) LOCATION '{tmp_path}/tracked-away'")

    def table(name):
        return TableInfo(name, f"{tmp_path}/{name}", database=database, partition_keys=["P"], source="spark")

    assert listed(spark, table("tracked")) == {
        f"file://{tmp_path}/tracked/P=1/f": {"P": "1"},
        f"file://{tmp_path}/tracked-away/f": {"P": "3"},
    }
    assert listed(spark, table("untracked")) == {f"file://{tmp_path}/untracked/P={n}/f": None for n in (1, 2)}


@pytest.mark.usefixtures("local_lister")
def test_rules_40_41_42_hidden_and_empty_files_go_and_subfolders_stay(spark, tmp_path):
    kept = ["000000_0", "_col=1/f", "HIVE_UNION_SUBDIR_1/000000_0", "a b", "p{x,y}", "b[ab]", "s*", "q?", "pc%20x"]
    kept += ["c:d", "h#", "u+é", "new\nline"]
    gone = ["_SUCCESS", "_temporary/0/f", ".hive-staging_x/f", "_spark_metadata/0", "x_$folder$", "_delta_log/0.json"]
    write_files(*(tmp_path / "_t{x}" / name for name in [*kept, *gone, "_metadata"]))
    write_files(tmp_path / "_t{x}/empty.parquet", body=b"")
    write_files(tmp_path / "_tx/f", tmp_path / "_t{x}2/f")
    table = TableInfo("t", f"{tmp_path}/_t{{x}}")
    assert set(listed(spark, table)) == {f"file://{tmp_path}/_t{{x}}/{name}" for name in kept}


def test_s3_names_come_back_as_they_are_on_the_storage(spark, bucket, s3):
    names = ["a b", "p%20q", "x+y", "{z}", "[q]*?", "é東", "c:d", "h#i", f"s={ODD_FOLDER}/000000_0"]
    for name in names:
        s3.put_object(Bucket=bucket, Key=f"t {{x}}/{name}", Body=b"data")
    for scheme in ("s3", "s3a"):
        root = f"{scheme}://{bucket}/t {{x}}"
        assert set(listed(spark, TableInfo("t", root))) == {f"{root}/{name}" for name in names}


@pytest.mark.usefixtures("local_lister")
def test_rule_43_a_partition_with_nothing_at_its_location_is_refused_unless_allowed(
    spark, tmp_path, bucket, hive_table
):
    write_files(tmp_path / "t/p=1/f")
    (tmp_path / "t/p=2").mkdir()
    locations = [(f"p={n}", tmp_path / f"t/p={n}") for n in (1, 2)]
    table = hive_table("p int", [*locations, ("p=3", tmp_path / "gone"), ("p=4", f"s3://{bucket}/gone")])
    # Spark makes the folder of a partition that it adds.
    (tmp_path / "gone").rmdir()
    missing = {row[0] for row in spark.sql(f"SHOW PARTITIONS {table.database}.t").collect()} - {"p=1", "p=2"}
    assert missing == {"p=3", "p=4"}

    with pytest.raises(
        PartitionError, match=r"partition\(s\) of .*the partition p=3.*allow_missing_partitions"
    ) as refused:
        listed(spark, table)
    assert "p=1" not in str(refused.value)
    assert "p=2" not in str(refused.value)
    assert listed(spark, table, allow_missing_partitions=True) == {f"file://{tmp_path}/t/p=1/f": {"p": "1"}}


@pytest.mark.usefixtures("local_lister")
def test_rule_44_an_empty_root_and_a_table_without_partitions_have_no_files(spark, tmp_path, bucket, hive_table):
    (tmp_path / "empty").mkdir()
    for location in (f"{tmp_path}/nothing", f"{tmp_path}/empty", f"s3://{bucket}/nothing"):
        assert listed(spark, TableInfo("u", location)) == {}
    assert listed(spark, hive_table("p int")) == {}


def test_rule_54_a_bucket_that_is_not_there_is_an_error(spark, tmp_path):
    gone = f"gone-{uuid.uuid4().hex}"
    with pytest.raises(MissingError, match=f"Listing the table t at s3://{gone}/t"):
        listed(spark, TableInfo("t", f"s3://{gone}/t"), allow_missing_partitions=True)


def test_rule_54_a_denied_partition_is_not_an_absent_one(spark, tmp_path, bucket, s3, hive_table, aws_endpoint):
    write_files(tmp_path / "t/p=1/f")
    s3.put_object(Bucket=bucket, Key="far/f", Body=b"data")
    table = hive_table("p int", [("p=1", tmp_path / "t/p=1"), ("p=2", f"s3://{bucket}/far")])

    # The session's keys belong to nobody that moto knows.
    denied = pytest.raises(AccessDeniedError, match=f"the partition p=2 of .*t at s3://{bucket}/far")
    with checked_identities(aws_endpoint), denied:
        listed(spark, table, allow_missing_partitions=True)


def test_rule_43_partitions_that_share_files_are_refused(spark, tmp_path, hive_table):
    write_files(tmp_path / "a/f", tmp_path / "b/c/f")
    same = hive_table("p int", [("p=1", tmp_path / "a"), ("p=2", f"file:{tmp_path}/a")], name="same")
    with pytest.raises(PartitionError, match=r"p=1.*p=2 at the same place"):
        listed(spark, same)
    nested = hive_table("p int", [("p=2", tmp_path / "b"), ("p=1", tmp_path / "b/c")], name="nested")
    with pytest.raises(PartitionError, match=r"p=2.*p=1 inside it"):
        listed(spark, nested)


def test_a_partition_that_is_no_parquet_is_refused_by_name(spark, tmp_path, hive_table):
    table = hive_table("p int", [("p=1", tmp_path / "a"), ("p=2", tmp_path / "b")])
    client = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
    spark.sql(f"ALTER TABLE {table.database}.t PARTITION (p=2) SET SERDE '{client}'")
    with pytest.raises(UnsupportedTableError, match=r"partition p=2 of .*LazySimpleSerDe"):
        catalog_partitions(spark, table)


def test_rule_51_odd_table_names_are_quoted_and_unknown_tables_are_named(spark, tmp_path, database):
    bad = TableInfo("a`; DROP TABLE x", f"{tmp_path}/t", database=database, partition_keys=["p"], source="spark")
    with pytest.raises(PermanentError, match=r"Describing db_.*a`; DROP TABLE x.*TABLE_OR_VIEW_NOT_FOUND"):
        listed(spark, bad)


@pytest.mark.usefixtures("local_lister")
@pytest.mark.parametrize("name", ["gone[1]", "gone{a,b}", "gone*", "gone"])
def test_rule_43_a_missing_location_whose_name_looks_like_a_pattern_is_refused_too(spark, tmp_path, hive_table, name):
    write_files(tmp_path / "t" / "p=1" / "f")
    table = hive_table("p int", [("p=1", f"{tmp_path}/t/p=1"), ("p=2", f"{tmp_path}/{name}/x")])
    (tmp_path / name / "x").rmdir()  # Hive made it
    with pytest.raises(PartitionError, match="nothing at their location"):
        listed(spark, table)
    assert list(listed(spark, table, allow_missing_partitions=True).values()) == [{"p": "1"}]


def test_a_location_that_names_no_host_is_on_the_sessions_own(spark):
    files = spark.createDataFrame([("hdfs://nn:8020/t/p=1/f", 1, 0, None)], FILES_SCHEMA)
    location = TableLocation(parse_location("hdfs:///t"), None, "the table t")
    assert [row.path for row in assign_locations(files, [location]).collect()] == ["hdfs://nn:8020/t/p=1/f"]


@pytest.mark.usefixtures("local_lister")
def test_links_are_followed_and_those_to_nothing_are_no_files(spark, tmp_path):
    write_files(tmp_path / "elsewhere" / "day=1" / "a.parquet", tmp_path / "t" / "day=2" / "b.parquet")
    (tmp_path / "t" / "day=1").symlink_to(tmp_path / "elsewhere" / "day=1")
    (tmp_path / "t" / "day=2" / "c.parquet").symlink_to(tmp_path / "elsewhere" / "day=1" / "a.parquet")
    (tmp_path / "t" / "day=2" / "d.parquet").symlink_to(tmp_path / "nowhere")
    found = listed(spark, TableInfo("t", str(tmp_path / "t"), partition_keys=["day"]))
    assert sorted(path.removeprefix(f"file://{tmp_path}/t/") for path in found) == [
        "day=1/a.parquet", "day=2/b.parquet", "day=2/c.parquet",
    ]  # fmt: skip
