"""InventoryListing: each table takes its own files from one DataFrame, or from real S3 Inventory reports."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import uuid
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from airflow_hive_to_delta.core.errors import PartitionError, PermanentError
from airflow_hive_to_delta.core.listing.inventory import InventoryListing, check_files_df
from airflow_hive_to_delta.core.listing.inventory_reports import read_manifest
from airflow_hive_to_delta.core.listing.inventory_sizes import SizeIndex, count_files
from airflow_hive_to_delta.core.models import FILES_SCHEMA, ParquetFileInfo, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.s3 import S3Storage
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.spark_versions import needs_spark_4

ODD_FOLDER = "a%2Fb c%25d%3De"
MODIFIED = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
MODIFIED_MS = 1_714_979_289_000


@pytest.fixture
def inventory(spark):
    def make(*files: str | tuple[str, int]):
        rows = [(file, 4) if isinstance(file, str) else file for file in files]
        return spark.createDataFrame(rows, "file_path string, size long")

    return make


def listed(spark, listing, table, **options) -> dict[str, dict | None]:
    files = listing.list_files_df(spark, table, ConversionOptions(**options))
    assert files.schema == spark.createDataFrame([], FILES_SCHEMA).schema
    return {row.path: row.partition_values for row in files.collect()}


def test_each_table_takes_its_own_files_whatever_the_spelling_of_s3(spark, inventory):
    listing = InventoryListing(
        inventory(
            "s3://b/orders/f",
            "s3a://b/orders/y=1/g",
            "s3n://b/orders/sub/h",
            "s3://b/orders_v2/f",
            "s3://c/orders/f",
            "file:/data/t/a",
            "/data/t/b",
            "file:///data/t/c",
            "hdfs://nn/t/f",
        )
    )
    assert listed(spark, listing, TableInfo("o", "s3a://b/orders")) == {
        "s3://b/orders/f": None,
        "s3a://b/orders/y=1/g": None,
        "s3n://b/orders/sub/h": None,
    }
    assert set(listed(spark, listing, TableInfo("o", "s3://b/orders_v2/"))) == {"s3://b/orders_v2/f"}
    assert set(listed(spark, listing, TableInfo("t", "/data/t"))) == {f"file:///data/t/{n}" for n in "abc"}
    assert set(listed(spark, listing, TableInfo("t", "hdfs://nn/t"))) == {"hdfs://nn/t/f"}
    assert InventoryListing(inventory("/t/f")).list_files(spark, TableInfo("t", "/t")) == [
        ParquetFileInfo("file:///t/f", 4)
    ]


def test_rules_40_41_42_hidden_and_empty_files_go_and_subfolders_stay(spark, inventory):
    kept = ["000000_0", "_col=1/f", "HIVE_UNION_SUBDIR_1/f", "a b%20{c}[*?"]
    gone = ["_SUCCESS", "_temporary/0/f", ".hive-staging_x/f", "x_$folder$", "_delta_log/0.json", "_temporary//f"]
    empty = [("s3://b/_t/empty", 0), ("s3://b/_t/folder/", 0), ("s3://b/_t/", 0)]
    listing = InventoryListing(inventory(*(f"s3://b/_t/{name}" for name in [*kept, *gone]), *empty))
    assert set(listed(spark, listing, TableInfo("t", "s3://b/_t"))) == {f"s3://b/_t/{name}" for name in kept}


@pytest.fixture
def glue_table(glue):
    name = f"g_{uuid.uuid4().hex[:12]}"
    glue.create_database(DatabaseInput={"Name": name})
    keys = [{"Name": "p", "Type": "string"}]
    table = {"Name": "t", "PartitionKeys": keys, "StorageDescriptor": {"Location": "s3://b/t"}}
    glue.create_table(DatabaseName=name, TableInput=table)
    locations = {"in": "s3://b/t/p=in", "out": "s3a://c/far/out", "__HIVE_DEFAULT_PARTITION__": "s3://b/other"}
    inputs = [{"Values": [v], "StorageDescriptor": {"Location": location}} for v, location in locations.items()]
    glue.batch_create_partition(DatabaseName=name, TableName="t", PartitionInputList=inputs)
    return TableInfo("t", "s3://b/t", database=name, partition_keys=["p"], source="glue")


FILES = ["s3://b/t/p=in/f", "s3://b/t/p=orphan/f", "s3://c/far/out/sub/f", "s3://c/far/out2/f", "s3://b/other/f"]


def test_rule_43_partitions_outside_the_root_are_taken_and_orphan_folders_not(spark, inventory, glue_table):
    expected = {"s3://b/t/p=in/f": {"p": "in"}, "s3://c/far/out/sub/f": {"p": "out"}, "s3://b/other/f": {"p": None}}
    assert listed(spark, InventoryListing(inventory(*FILES)), glue_table) == expected

    plain = TableInfo("t", "s3://b/t", partition_keys=["p"])
    assert listed(spark, InventoryListing(inventory(*FILES), glue_database=glue_table.database), plain) == expected
    assert set(listed(spark, InventoryListing(inventory(*FILES)), plain)) == set(FILES[:2])


def test_rule_43_a_partition_that_the_inventory_does_not_have_is_refused_unless_allowed(spark, inventory, glue_table):
    listing = InventoryListing(inventory(FILES[0], ("s3://b/other/_SUCCESS", 0)))
    with pytest.raises(PartitionError, match=r"1 partition\(s\).*p=out of .*s3a://c/far/out"):
        listed(spark, listing, glue_table)
    assert listed(spark, listing, glue_table, allow_missing_partitions=True) == {FILES[0]: {"p": "in"}}


def test_partitions_of_the_sessions_catalog_are_taken(spark, inventory, database, tmp_path):
    spark.sql(f"""CREATE EXTERNAL TABLE {database}.t (v int) PARTITIONED BY (p string) STORED AS PARQUET
                  LOCATION '{tmp_path}/t'""")
    spark.sql(f"ALTER TABLE {database}.t ADD PARTITION (p='a/b c%d=e') LOCATION '{tmp_path}/away'")
    table = TableInfo("t", f"{tmp_path}/t", database=database, partition_keys=["p"], source="spark")
    listing = InventoryListing(inventory(f"{tmp_path}/away/f", f"{tmp_path}/t/p=1/f"))
    assert listed(spark, listing, table) == {f"file://{tmp_path}/away/f": {"p": "a/b c%d=e"}}


def test_a_table_that_the_inventory_does_not_cover_is_not_taken_for_an_empty_one(spark, inventory):
    listing = InventoryListing(inventory("s3://b/t_other/f"))
    with pytest.raises(PartitionError, match="no file under s3://b/t, the root of t"):
        listed(spark, listing, TableInfo("t", "s3://b/t"))
    assert listed(spark, listing, TableInfo("t", "s3://b/t"), allow_missing_partitions=True) == {}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("path string, size long", "file_path is missing in the file list, which has path, size"),
        ("file_path string", "size is missing"),
        ("file_path binary, size long", "file_path is of the type binary"),
        ("file_path string, size string", "size is of the type string"),
        ("file_path string, size double", "size is of the type double"),
        ("file_path string, size long, last_modified date", "last_modified is of the type date"),
    ],
)
def test_a_file_list_of_the_wrong_shape_is_refused_on_construction(spark, schema, message):
    with pytest.raises(PermanentError, match=message):
        InventoryListing(spark.createDataFrame([], schema))


@pytest.mark.parametrize("size", ["tinyint", "smallint", "int", "bigint"])
@pytest.mark.parametrize(
    "modified",
    [f"{MODIFIED_MS}", "timestamp'2024-05-06 07:08:09Z'", "timestamp_ntz'2024-05-06 07:08:09'"],
)
def test_sizes_of_any_integer_type_and_times_of_any_kind_are_taken(spark, size, modified):
    files = spark.range(1).selectExpr("'s3://b/f' file_path", f"cast(7 as {size}) size", f"{modified} last_modified")
    assert check_files_df(files).collect() == [("s3://b/f", 7, MODIFIED_MS, None)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("relative/f", 1), "file_path is relative/f, expected an absolute path"),
        ((None, 1), "file_path is null"),
        (("s3://b/f", None), "The size of s3://b/f is null"),
    ],
)
def test_a_row_without_a_path_or_a_size_is_an_error(spark, row, message):
    with pytest.raises(PermanentError, match=f"^Listing: .*{message}"), spark_call("Listing"):
        check_files_df(spark.createDataFrame([row], "file_path string, size long")).collect()


# Key, is latest, is delete marker, size
VERSIONS = [
    ("t/plain.parquet", True, False, 10),
    ("t/rewritten", False, False, 1),
    ("t/rewritten", True, False, 2),
    ("t/deleted", False, False, 3),
    ("t/deleted", True, True, None),
    (f"t/s={ODD_FOLDER}/x+y", True, False, 4),
    ('t/q"uote,comma é', True, False, 5),
    ("t/new\nline", True, False, 6),
    ("t/_SUCCESS", True, False, 7),
    ("t/_p=1/_temporary/f", True, False, 9),
    ("t/sub_$folder$", True, False, 9),
    ("t/empty", True, False, 0),
    ("t/_p=1/_q=2", True, False, 11),
    ("elsewhere/f", True, False, 8),
]
CURRENT = {
    **{"t/plain.parquet": 10, "t/rewritten": 2, f"t/s={ODD_FOLDER}/x+y": 4, 't/q"uote,comma é': 5, "t/new\nline": 6},
    "t/_p=1/_q=2": 11,
}


def csv_report(rows: list[list[str]]) -> bytes:
    lines = [",".join('"' + value.replace('"', '""') + '"' for value in row) for row in rows]
    return gzip.compress(("\n".join(lines) + "\n").encode())


@pytest.fixture
def put_report(s3, bucket):
    """An inventory report of the bucket ``source`` in the test's bucket, and its manifest's address."""

    def put(file_format: str, file_schema: str, *reports: bytes, source="source", created=str(MODIFIED_MS)) -> str:
        folder = f"inv=1/{source}/daily"
        names = [f"{folder}/data/{uuid.uuid4()}.{file_format.lower()}" for _ in reports]
        if file_format == "CSV":
            names = [f"{name}.gz" for name in names]
        for name, body in zip(names, reports, strict=True):
            s3.put_object(Bucket=bucket, Key=name, Body=body)
        manifest = {
            "sourceBucket": source,
            "destinationBucket": f"arn:aws:s3:::{bucket}",
            "version": "2016-11-30",
            "creationTimestamp": created,
            "fileFormat": file_format,
            "fileSchema": file_schema,
            "files": [{"key": name, "size": 1, "MD5checksum": "0" * 32} for name in names],
        }
        key = f"{folder}/2024-05-06T07-08Z/manifest.json"
        s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(manifest, indent=2).encode())
        return f"s3://{bucket}/{key}"

    return put


def csv_of_versions(source="source") -> list[bytes]:
    rows = [
        [source, quote_plus(key, safe="/"), "v1", str(latest).lower(), str(marker).lower(),
         "" if size is None else str(size), "2024-05-06T07:08:09.000Z", "etag"]
        for key, latest, marker, size in VERSIONS
    ]  # fmt: skip
    return [csv_report(rows[:4]), csv_report(rows[4:])]


CSV_SCHEMA = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag"


def arrow_of_versions() -> pa.Table:
    key, latest, marker, size = zip(*VERSIONS, strict=True)
    return pa.table(
        {
            "bucket": ["source"] * len(VERSIONS),
            "key": key,
            "version_id": ["v1"] * len(VERSIONS),
            "is_latest": latest,
            "is_delete_marker": marker,
            "size": pa.array(size, pa.int64()),
            "last_modified_date": pa.array([MODIFIED] * len(VERSIONS), pa.timestamp("ms", "UTC")),
        }
    )


def check_current(spark, uri: str) -> None:
    listing, table = InventoryListing.from_manifest(spark, uri), TableInfo("t", "s3a://source/t")
    assert listing.listed_at_time(table) == MODIFIED_MS
    files = listing.list_files(spark, table)
    assert {file.path: file.size for file in files} == {f"s3://source/{key}": size for key, size in CURRENT.items()}
    assert {file.modification_time for file in files} == {MODIFIED_MS}
    assert counted(uri, "s3a://source/t") == (len(files), sum(file.size for file in files)), "as Spark reads it"


def counted(uri: str, *locations: str) -> tuple[int, int]:
    """The files and bytes in locations, counted without Spark."""
    storage, index = S3Storage(ConversionOptions()), SizeIndex()
    index.add("t", map(parse_location, locations))
    manifest = read_manifest(storage, uri)
    counts = [count_files(storage, manifest, file, index).get("t", (0, 0)) for file in manifest.files]
    return sum(files for files, _ in counts), sum(size for _, size in counts)


def test_a_csv_report_gives_the_current_versions_with_decoded_keys(spark, put_report):
    check_current(spark, put_report("CSV", CSV_SCHEMA, *csv_of_versions()))


def test_a_parquet_report_gives_the_current_versions(spark, put_report):
    out = io.BytesIO()
    pq.write_table(arrow_of_versions(), out)
    check_current(spark, put_report("Parquet", "message s3.inventory { }", out.getvalue()))


@pytest.mark.parametrize(
    "zone",
    [
        pytest.param(None, id="timestamp"),
        pytest.param("UTC", id="timestamp with local time zone", marks=needs_spark_4("this type in ORC files")),
    ],
)
def test_an_orc_report_gives_the_current_versions(spark, put_report, zone):
    report = arrow_of_versions()
    times = report["last_modified_date"].cast(pa.timestamp("ms", zone))
    out = io.BytesIO()
    pyarrow.orc.write_table(report.set_column(report.num_columns - 1, "last_modified_date", times), out)
    check_current(spark, put_report("ORC", "struct<bucket:string,key:string>", out.getvalue()))


def test_a_report_of_current_versions_only_needs_no_more_than_key_and_size(spark, put_report):
    uri = put_report("CSV", "Bucket, Key, Size", csv_report([["source", "t/f", "3"]]))
    files = InventoryListing.from_manifest(spark, uri).list_files(spark, TableInfo("t", "s3://source/t"))
    assert files == [ParquetFileInfo("s3://source/t/f", 3)]


def test_reports_of_several_buckets_are_one_inventory(spark, put_report):
    uris = [
        put_report("CSV", "Bucket, Key, Size", csv_report([[source, "t/f", "3"]]), source=source, created=created)
        for source, created in (("one", str(MODIFIED_MS)), ("two", "1714979288000"))
    ]
    uris.append(put_report("CSV", "Bucket, Key, Size", source="nothing"))
    listing = InventoryListing.from_manifest(spark, uris)
    assert {row.path for row in listing.files.collect()} == {"s3://one/t/f", "s3://two/t/f"}
    assert listing.listed_at_time(TableInfo("t", "s3://one/t")) == 1_714_979_288_000, "as old as the oldest"
    uris.append(put_report("CSV", "Bucket, Key, Size", source="undated", created=None))
    assert InventoryListing.from_manifest(spark, uris).listed_at_time(TableInfo("t", "s3://one/t")) is None


def test_a_report_that_cannot_serve_is_refused_with_the_reason(spark, put_report, s3, bucket):
    for read in (lambda uri: InventoryListing.from_manifest(spark, uri), lambda uri: counted(uri, "s3://source/t")):
        with pytest.raises(PermanentError, match=r"no Size, only Bucket, Key\. Add the field Size"):
            read(put_report("CSV", "Bucket, Key", csv_report([["source", "t/f"]])))
        with pytest.raises(PermanentError, match="fileFormat 'XML', expected CSV, Parquet, ORC"):
            read(put_report("XML", "Bucket, Key, Size", b""))
        with pytest.raises(PermanentError, match="expected an address on S3"):
            read("/tmp/manifest.json")
    with pytest.raises(PermanentError, match=r"of the inventory report .* cannot be read"):
        counted(put_report("Parquet", "message s3.inventory { }", b"nonsense"), "s3://source/t")
    for body, message in ((b"[1]", "no valid sourceBucket"), (b"nonsense", "not JSON"), (b"", "not JSON")):
        s3.put_object(Bucket=bucket, Key="manifest.json", Body=body)
        with pytest.raises(PermanentError, match=message):
            InventoryListing.from_manifest(spark, f"s3://{bucket}/manifest.json")
    with pytest.raises(PermanentError, match=r"Reading the inventory manifest .*PATH_NOT_FOUND"):
        InventoryListing.from_manifest(spark, f"s3://{bucket}/nothing.json")
    with pytest.raises(PermanentError, match="manifest_uri is empty"):
        InventoryListing.from_manifest(spark, [])
