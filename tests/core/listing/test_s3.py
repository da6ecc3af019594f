"""S3Listing: partitions from Glue, files from S3, with moto's server in the place of both."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import boto3
import pytest

from airflow_hive_to_delta.core.catalogs.partitions import PartitionLocation, check_locations, glue_partitions
from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    MissingError,
    PartitionError,
    PermanentError,
    UnsupportedTableError,
)
from airflow_hive_to_delta.core.listing.base import list_table
from airflow_hive_to_delta.core.listing.locations import is_data_file
from airflow_hive_to_delta.core.listing.s3 import S3Listing
from airflow_hive_to_delta.core.models import FILES_SCHEMA, ParquetFileInfo, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.aws import REGION, checked_identities

PARQUET = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
}
ODD = "a/b c%d=e"
ODD_FOLDER = "a%2Fb c%25d%3De"


@pytest.fixture
def glue_database(glue) -> str:
    name = f"g_{uuid.uuid4().hex[:12]}"
    glue.create_database(DatabaseInput={"Name": name})
    return name


@pytest.fixture
def make_table(glue, glue_database):
    """A table in Glue with partitions ``[(values, location), …]``, and its TableInfo."""

    def make(location, keys=(), partitions=(), properties=None, storage=PARQUET) -> TableInfo:
        table = {
            "Name": "t",
            "Parameters": properties or {},
            "PartitionKeys": [{"Name": key, "Type": "string"} for key in keys],
            "StorageDescriptor": {"Location": location, "Columns": [], **PARQUET},
        }
        glue.create_table(DatabaseName=glue_database, TableInput=table)
        inputs = [{"Values": v, "StorageDescriptor": {"Location": at, **storage}} for v, at in partitions]
        if inputs:
            glue.batch_create_partition(DatabaseName=glue_database, TableName="t", PartitionInputList=inputs)
        return TableInfo(
            "t",
            location,
            database=glue_database,
            partition_keys=list(keys),
            source="glue",
            properties=properties or {},
        )

    return make


@pytest.fixture
def put(s3):
    def put(bucket: str, *keys: str, body: bytes = b"data") -> None:
        for key in keys:
            s3.put_object(Bucket=bucket, Key=key, Body=body)

    return put


def listed(spark, table, listing=None, **options) -> dict[str, dict | None]:
    files = (listing or S3Listing()).list_files_df(spark, table, ConversionOptions(**options))
    return {row.path: row.partition_values for row in files.collect()}


def test_files_have_paths_sizes_times_and_the_common_schema(spark, bucket, put, s3, make_table):
    put(bucket, "t/a.parquet", body=b"12345")
    table = make_table(f"s3://{bucket}/t")
    modified = s3.head_object(Bucket=bucket, Key="t/a.parquet")["LastModified"]

    files = S3Listing().list_files_df(spark, table, ConversionOptions())
    assert files.schema == spark.createDataFrame([], FILES_SCHEMA).schema
    assert S3Listing().list_files(spark, table) == [
        ParquetFileInfo(f"s3://{bucket}/t/a.parquet", 5, None, int(modified.timestamp() * 1000))
    ]


def test_rule_43_values_and_locations_come_from_glue_and_orphan_folders_are_not_listed(
    spark, bucket, put, s3, make_table
):
    other = f"{bucket}-other"
    s3.create_bucket(Bucket=other)
    put(bucket, f"t/s={ODD_FOLDER}/000000_0", "t/s=__HIVE_DEFAULT_PARTITION__/f", "t/s=orphan/f", "elsewhere/x/f")
    put(other, "far/f")
    table = make_table(
        f"s3://{bucket}/t",
        ["s"],
        [
            ([ODD], f"s3://{bucket}/t/s={ODD_FOLDER}"),
            (["__HIVE_DEFAULT_PARTITION__"], f"s3a://{bucket}/t/s=__HIVE_DEFAULT_PARTITION__/"),
            (["x"], f"s3://{bucket}/elsewhere/x"),
            (["far"], f"s3://{other}/far"),
        ],
    )

    assert listed(spark, table) == {
        f"s3://{bucket}/t/s={ODD_FOLDER}/000000_0": {"s": ODD},
        f"s3a://{bucket}/t/s=__HIVE_DEFAULT_PARTITION__/f": {"s": None},
        f"s3://{bucket}/elsewhere/x/f": {"s": "x"},
        f"s3://{other}/far/f": {"s": "far"},
    }


def test_a_glue_database_given_to_the_listing_serves_tables_of_no_catalog(spark, bucket, put, make_table):
    put(bucket, "away/f", "t/p=1/orphan")
    table = make_table(f"s3://{bucket}/t", ["p"], [(["1"], f"s3://{bucket}/away")])
    plain = TableInfo("t", table.location, partition_keys=["p"])

    assert listed(spark, plain, S3Listing(glue_database=table.database)) == {f"s3://{bucket}/away/f": {"p": "1"}}
    assert listed(spark, plain) == {f"s3://{bucket}/t/p=1/orphan": None}


def test_without_a_catalog_the_folders_are_listed_side_by_side_and_parsed_later(spark, bucket, put):
    keys = [f"t/y={y}/m={m}/f" for y in range(3) for m in range(4)]
    put(bucket, *keys, "t/y=1/loose", "t/_temporary/y=9/f", "t/y=1/.hive-staging_1/f", "t_v2/f")
    table = TableInfo("t", f"s3://{bucket}/t", partition_keys=["y", "m"])

    expected = {f"s3://{bucket}/{key}": None for key in [*keys, "t/y=1/loose"]}
    assert listed(spark, table) == expected
    assert listed(spark, table, S3Listing(max_workers=1)) == expected


def test_spark_tables_in_glue_have_their_partitions_in_the_paths_unless_the_catalog_provides_them(
    spark, bucket, put, make_table
):
    put(bucket, "t/p=1/f", "away/f")
    spark_table = {"spark.sql.sources.provider": "parquet"}
    text = {"InputFormat": "org.apache.hadoop.mapred.SequenceFileInputFormat"}
    table = make_table(f"s3://{bucket}/t", ["p"], [(["1"], f"s3://{bucket}/away")], spark_table, storage=text)

    assert listed(spark, table) == {f"s3://{bucket}/t/p=1/f": None}
    plain = TableInfo("t", table.location, partition_keys=["p"])
    assert listed(spark, plain, S3Listing(glue_database=table.database)) == {f"s3://{bucket}/t/p=1/f": None}
    table.properties = {**spark_table, "spark.sql.partitionProvider": "catalog"}
    assert listed(spark, table) == {f"s3://{bucket}/away/f": {"p": "1"}}


def test_rules_40_41_42_hidden_and_empty_files_go_and_subfolders_stay(spark, bucket, put, make_table):
    put(
        bucket,
        "_t/000000_0",
        "_t/_col=1/f",
        "_t/HIVE_UNION_SUBDIR_1/000000_0",
        "_t/_SUCCESS",
        "_t/_temporary/0/f",
        "_t/.hive-staging_x/f",
        "_t/_spark_metadata/0",
        "_t/x_$folder$",
        "_t/_delta_log/00000000000000000000.json",
    )
    put(bucket, "_t/empty.parquet", "_t/folder/", "_t/", body=b"")
    put(bucket, "_t2/f", "_t.parquet")

    assert set(listed(spark, make_table(f"s3://{bucket}/_t"))) == {
        f"s3://{bucket}/_t/{name}" for name in ("000000_0", "_col=1/f", "HIVE_UNION_SUBDIR_1/000000_0")
    }


@pytest.mark.parametrize(
    ("path", "size", "expected"),
    [
        ("f", 1, True),
        ("f", 0, False),
        ("_f", 1, False),
        ("a//b", 1, True),
        ("../b", 1, True),
        ("_temporary//b", 1, False),
    ],
)
def test_rule_40_one_predicate_says_what_a_data_file_is(path, size, expected):
    assert is_data_file(path, size) is expected


def test_odd_names_come_back_as_they_are_on_the_storage(spark, bucket, put, make_table):
    names = ["a b", "p%20q", "x+y", "{z}", "[q]*?", "é東", "c:d", "h#i", "q'\"\\"]
    put(bucket, *(f"t {{x}}/{name}" for name in names))
    assert set(listed(spark, make_table(f"s3://{bucket}/t {{x}}"))) == {f"s3://{bucket}/t {{x}}/{n}" for n in names}


@pytest.mark.parametrize("key", ["t/a//b", "t//b", "t/../b", "t/./b"])
def test_a_key_that_hadoop_cannot_address_is_refused_by_name(spark, bucket, put, make_table, key):
    put(bucket, "t/good", key)
    with pytest.raises(PermanentError, match="Rename or remove") as refused:
        listed(spark, make_table(f"s3://{bucket}/t"))
    assert repr(key) in str(refused.value)
    with pytest.raises(PermanentError, match="Rename or remove"):
        listed(spark, TableInfo("u", f"s3://{bucket}/t", partition_keys=["p"]))


def test_all_pages_are_read_and_whole_buckets_too(spark, bucket, put, make_table, monkeypatch):
    monkeypatch.setattr("airflow_hive_to_delta.core.listing.s3._MAX_KEYS", 25)
    put(bucket, *(f"p={n % 2}/f{n:05}" for n in range(120)))
    table = make_table(f"s3://{bucket}", ["p"], [([str(n)], f"s3://{bucket}/p={n}") for n in range(2)])

    values = listed(spark, table)
    assert values == {f"s3://{bucket}/p={n % 2}/f{n:05}": {"p": str(n % 2)} for n in range(120)}
    assert len(listed(spark, TableInfo("t", f"s3://{bucket}/"))) == 120
    assert len(listed(spark, TableInfo("t", f"s3://{bucket}/", partition_keys=["p"]))) == 120


def test_buckets_of_two_regions_each_found_once_and_their_owner_is_checked(
    spark, bucket, put, make_table, aws_endpoint
):
    """Rule 54: ExpectedBucketOwner goes with every request."""
    far = f"{bucket}-far"
    there = boto3.client("s3", region_name="eu-west-1")
    there.create_bucket(Bucket=far, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    put(bucket, *(f"t/p={n}/f" for n in range(6)))
    for n in range(6, 12):
        there.put_object(Bucket=far, Key=f"t/p={n}/f", Body=b"data")
    locations = [([str(n)], f"s3://{bucket if n < 6 else far}/t/p={n}") for n in range(12)]
    table = make_table(f"s3://{bucket}/t", ["p"], locations)
    requests = []

    def remember(model, params, request_signer, **_):
        region = request_signer.region_name
        owner = params["headers"].get("x-amz-expected-bucket-owner")
        requests.append((model.name, urlsplit(params["url"]).path.strip("/"), region, owner))

    clients = [aws._client("s3", region) for region in (REGION, "eu-west-1")]
    for client in clients:
        client.meta.events.register("before-call.s3", remember, unique_id="test")
    try:
        assert len(listed(spark, table, S3Listing(region=REGION), expected_bucket_owner="123456789012")) == 12
    finally:
        for client in clients:
            client.meta.events.unregister("before-call.s3", unique_id="test")

    heads = [name for operation, name, _, _ in requests if operation == "HeadBucket"]
    lists = {(name, region) for operation, name, region, _ in requests if operation == "ListObjectsV2"}
    assert sorted(heads) == [bucket, far]
    assert lists == {(bucket, REGION), (far, "eu-west-1")}
    assert {owner for *_, owner in requests} == {"123456789012"}


def test_rule_43_a_partition_with_nothing_at_its_location_is_refused_unless_allowed(spark, bucket, put, make_table):
    put(bucket, "t/p=1/f", "t/p=3/_SUCCESS")
    put(bucket, "t/p=2/", body=b"")
    locations = [([str(n)], f"s3://{bucket}/t/p={n}") for n in (1, 2, 3, 4)]
    table = make_table(f"s3://{bucket}/t", ["p"], locations)

    with pytest.raises(PartitionError, match=r"1 partition\(s\).*p=4.*allow_missing_partitions"):
        listed(spark, table)
    assert listed(spark, table, allow_missing_partitions=True) == {f"s3://{bucket}/t/p=1/f": {"p": "1"}}


def test_rule_44_an_empty_root_and_a_table_without_partitions_have_no_files(spark, bucket, make_table):
    table = make_table(f"s3://{bucket}/t", ["p"])
    assert listed(spark, table) == {}
    assert listed(spark, TableInfo("u", f"s3://{bucket}/nothing")) == {}
    assert S3Listing().list_files_df(spark, table, ConversionOptions()).schema.simpleString().startswith("struct<path")


def test_rule_54_a_partition_in_a_bucket_that_is_not_there_fails_the_table(spark, bucket, put, make_table):
    put(bucket, "t/p=1/f")
    locations = [(["1"], f"s3://{bucket}/t/p=1"), (["2"], f"s3://{bucket}-gone/t/p=2")]
    table = make_table(f"s3://{bucket}/t", ["p"], locations)
    with pytest.raises(MissingError, match=f"the partition p=2 of .*t at s3://{bucket}-gone/t/p=2"):
        listed(spark, table, allow_missing_partitions=True)


@pytest.fixture
def deny_listing(aws_endpoint, monkeypatch):
    """While it is entered, moto checks IAM policies, and this process may do everything but list one bucket."""

    @contextmanager
    def deny(bucket: str) -> Iterator[None]:
        iam = boto3.client("iam", region_name=REGION)
        iam.create_user(UserName=bucket)
        key = iam.create_access_key(UserName=bucket)["AccessKey"]
        denied = {"Effect": "Deny", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{bucket}"}
        policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}, denied]}
        iam.put_user_policy(UserName=bucket, PolicyName="p", PolicyDocument=json.dumps(policy))
        with monkeypatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
            patch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
            aws._client.cache_clear()
            try:
                with checked_identities(aws_endpoint):
                    yield
            finally:
                aws._client.cache_clear()

    return deny


def test_rule_54_a_denied_partition_is_not_an_absent_one(spark, bucket, put, s3, make_table, deny_listing):
    other = f"{bucket}-other"
    s3.create_bucket(Bucket=other)
    put(bucket, "t/p=1/f")
    put(other, "t/p=2/f")
    locations = [(["1"], f"s3://{bucket}/t/p=1"), (["2"], f"s3://{other}/t/p=2")]
    table = make_table(f"s3://{bucket}/t", ["p"], locations)

    with deny_listing(other):
        with pytest.raises(AccessDeniedError, match=f"the partition p=2 of .*t at s3://{other}/t/p=2: AccessDenied"):
            listed(spark, table, allow_missing_partitions=True)
        assert len(listed(spark, TableInfo("u", f"s3://{bucket}/t"))) == 1


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("s3://b/t/p=1", "s3a://b/t/p=1/", "at the same place"),
        ("s3://b/t", "s3n://b/t/p=1", "inside it"),
        ("s3://b", "s3://b/t", "inside it"),
    ],
)
def test_rule_43_partitions_that_share_files_are_refused(spark, make_table, first, second, why):
    others = [([f"o{n}"], f"s3://b/t!/{n}") for n in range(3)]
    table = make_table("s3://b/t", ["p"], [(["one"], first), *others, (["two"], second)] if first != "s3://b" else [
        (["one"], first), (["two"], second)])  # fmt: skip
    with pytest.raises(PartitionError, match=rf"p=one.*p=two.*{why}"):
        listed(spark, table)


def test_rule_43_names_that_begin_alike_do_not_overlap():
    uris = ["s3://b/orders", "s3://b/orders_v2", "s3://b/orders!", "s3://c/orders/x", "file:///orders/x", "s3://b/o"]
    partitions = [PartitionLocation({"p": str(n)}, parse_location(uri)) for n, uri in enumerate(uris)]
    check_locations(TableInfo("t", "s3://b/t"), partitions, ConversionOptions())


def test_rule_52_a_partition_outside_the_allowed_roots_is_refused(spark, bucket, put, make_table):
    put(bucket, "t/p=1/f", "away/f")
    table = make_table(f"s3://{bucket}/t", ["p"], [(["1"], f"s3://{bucket}/t/p=1"), (["2"], f"s3://{bucket}/away")])
    with pytest.raises(PermanentError, match="outside the allowed roots"):
        listed(spark, table, allowed_roots=[f"s3a://{bucket}/t"])
    assert len(listed(spark, table, allowed_roots=[f"s3://{bucket}"])) == 2


def test_a_partition_that_is_no_parquet_is_refused_by_name(make_table):
    orc = {"SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.orc.OrcSerde"}}
    table = make_table("s3://b/t", ["p"], [(["1"], "s3://b/t/p=1")], storage=orc)
    with pytest.raises(UnsupportedTableError, match=r"partition p=1 of .*OrcSerde"):
        glue_partitions(table, table.database, REGION)


def test_rule_45_athena_projection_is_refused(spark, make_table):
    table = make_table("s3://b/t", ["p"], properties={"projection.enabled": "true"})
    with pytest.raises(UnsupportedTableError, match="partition projection"):
        listed(spark, TableInfo("t", "s3://b/t", partition_keys=["p"]), S3Listing(glue_database=table.database))


def test_wrong_partitions_in_glue_are_refused_by_name(spark, make_table, glue):
    table = make_table("s3://b/t", ["p"], [(["1"], "s3://b/t/../p=1")])
    with pytest.raises(PermanentError, match=r"The location of the partition p=1 of .*'\.\.' segment"):
        glue_partitions(table, table.database)
    table.partition_keys = ["p", "q"]
    with pytest.raises(PartitionError, match=r"values \['1'\], expected one for each of its 2"):
        glue_partitions(table, table.database)
    with pytest.raises(MissingError, match=r"Reading the partitions of nowhere\.t from Glue"):
        glue_partitions(table, "nowhere")


def test_what_is_not_on_s3_is_refused(spark):
    with pytest.raises(PermanentError, match=r"the table t is at file:///data/t, which is not on S3"):
        listed(spark, TableInfo("t", "/data/t"))


def test_a_listing_of_ones_own_becomes_the_same_dataframe(spark):
    class Mine:
        def list_files(self, spark, table):
            values = {"s": None, "i": "1"}
            return [ParquetFileInfo("s3://b/t/f", 3, values, 17), ParquetFileInfo("s3://b/t/g", 4)]

    files = list_table(spark, Mine(), TableInfo("t", "s3://b/t"), ConversionOptions()).frame
    assert files.schema == spark.createDataFrame([], FILES_SCHEMA).schema
    assert [tuple(row) for row in files.collect()] == [
        ("s3://b/t/f", 3, 17, {"s": None, "i": "1"}),
        ("s3://b/t/g", 4, None, None),
    ]
