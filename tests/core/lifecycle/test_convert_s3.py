"""Tables of Glue on S3, end to end: moto's server in the place of both, and real Spark for every read."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Barrier
from typing import Any

import boto3
import deltalake
import pyarrow as pa
import pytest
from botocore.awsrequest import AWSResponse

from airflow_hive_to_delta import DatabricksListing, Listing, S3Listing, create_summary
from airflow_hive_to_delta.core.models import ALREADY_DELTA
from airflow_hive_to_delta.core.storage import aws
from tests.support.aws import REGION
from tests.support.lake import Lake
from tests.support.oracle import assert_same, delta_at
from tests.support.s3_servers import answer_with, put_in_one_step, without_header
from tests.support.spark_versions import needs_spark_4

pytestmark = pytest.mark.slow

ODD = "a/b c%d=e"
ODD_FOLDER = "a%2Fb c%25d%3De"
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def read_by_delta_rs(location: str, endpoint: str) -> dict[str, list[Any]]:
    table = deltalake.DeltaTable(
        location,
        storage_options={
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
        },
    )
    return table.to_pyarrow_table().to_pydict()


def rows_of(columns: dict[str, list[Any]]) -> list[tuple[str, ...]]:
    return sorted(tuple(map(repr, row)) for row in zip(*columns.values(), strict=True))


def commit_of(lake: Lake, key: str = "t") -> list[dict[str, Any]]:
    entry = lake.s3.get_object(Bucket=lake.bucket, Key=f"{key}/_delta_log/{0:020d}.json")["Body"].read()
    return [json.loads(line) for line in entry.splitlines()]


# --- partitions --------------------------------------------------------------------------------------------------


def test_rule_16_partitions_outside_the_root_in_another_bucket_and_in_another_region(lake: Lake) -> None:
    other, far = lake.add_bucket(), lake.add_bucket("eu-west-1")
    lake.put("t/p=1/f.parquet", {"id": [1, 2]})
    lake.put("_old/.x y%20/f.parquet", {"id": [2, None]})
    lake.put("f.parquet", {"id": [1]}, other)
    lake.put("deep/p=not 4/f.parquet", {"id": [2]}, far)
    original = lake.table(
        {"id": "bigint"},
        {"p": "int"},
        [
            (["1"], f"s3://{lake.bucket}/t/p=1"),
            (["2"], f"s3a://{lake.bucket}/_old/.x y%20"),
            (["3"], f"s3://{other}/"),
            (["4"], f"s3://{far}/deep/p=not 4/"),
        ],
    )
    result = lake.convert()
    assert (result.status, result.file_count, result.row_count) == ("converted", 4, 6), result.error
    assert any("3 of 4 files lie outside" in note and "DuckDB" in note for note in result.notes)
    paths = sorted(action["add"]["path"] for action in commit_of(lake) if "add" in action)
    assert paths == sorted(
        [
            "p=1/f.parquet",
            f"s3://{lake.bucket}/_old/.x%20y%2520/f.parquet",
            f"s3://{other}/f.parquet",
            f"s3://{far}/deep/p=not%204/f.parquet",
        ]
    )
    assert aws.bucket_region(far) == "eu-west-1"
    assert_same(lake.spark, original, delta_at(lake.spark, lake.location()))


@pytest.mark.parametrize(
    ("listing", "stats"), [(S3Listing(), "footer"), (DatabricksListing(), "scan")], ids=["footer", "scan"]
)
def test_rules_19_and_24_null_partitions_and_odd_values(lake: Lake, listing: Listing, stats: str) -> None:
    """The table is read through a checkpoint, too."""
    odd, null = f"s={ODD_FOLDER}/n=-7", f"s={NULL_FOLDER}/n={NULL_FOLDER}"
    lake.put(f"t/{odd}/000000_0", {"id": [1]})
    lake.put(f"else where/{null}/f %20+é", {"id": [1]})
    original = lake.table(
        {"id": "bigint"},
        {"s": "string", "n": "int"},
        [([ODD, "-7"], f"{lake.location()}/{odd}"), ([None, None], f"s3://{lake.bucket}/else where/{null}")],
    )
    result = lake.convert(listing=listing, stats=stats, checkpoint_over_files=1)
    assert (result.file_count, result.row_count) == (2, 2), result.error
    assert f"{lake.bucket}/t/_delta_log/_last_checkpoint" in lake.objects()
    found = delta_at(lake.spark, lake.location())
    assert found.where("s is null and n is null").count() == 1
    assert found.where(f"s = '{ODD}'").count() == 1
    assert_same(lake.spark, original, found)


def test_a_location_with_odd_characters_and_a_slash_at_its_end(lake: Lake) -> None:
    root = "a b%20c+d/o'neil#t"
    lake.put(f"{root}/p=x y/f", {"id": [1]})
    partition = f"s3://{lake.bucket}/{root}/p=x y/"
    original = lake.table(
        {"id": "bigint"}, {"p": "string"}, [(["x y"], partition)], location=f"s3://{lake.bucket}/{root}/"
    )
    target = ("spark_catalog", f"{lake.database}_new")
    result = lake.convert(target)
    assert (result.status, result.location) == ("converted", f"s3://{lake.bucket}/{root}"), result.error
    assert [action["add"]["path"] for action in commit_of(lake, root) if "add" in action] == ["p=x%20y/f"]
    try:
        assert_same(lake.spark, original, lake.spark.table(result.target_table))
        assert lake.convert(target).target_table == result.target_table
    finally:
        lake.spark.sql(f"DROP SCHEMA {target[1]} CASCADE")
    in_glue = lake.convert((None, f"{lake.database}_new"), register_in="glue")
    assert in_glue.status == "registered"
    assert lake.convert((None, f"{lake.database}_new"), register_in="glue").status == "already_delta"


def test_rules_40_to_43_only_data_files_of_known_partitions_count(lake: Lake) -> None:
    lake.put("t/p=1/000000_0", {"id": [1]})
    lake.put("t/p=1/HIVE_UNION_SUBDIR_1/000000_0", {"id": [2]})
    for hidden in (
        "t/p=1/_temporary/0/f",
        "t/p=1/.hive-staging_hive_1/-ext-10000/000000_0",
        "t/_temporary/p=1/f",
        "t/p=orphan/f",
        "t/f",
        "t_v2/p=1/f",
    ):
        lake.put(hidden, {"id": [-1]})
    for empty in ("t/p=1/_SUCCESS", "t/p=1/empty.parquet", "t/p=1/", "t/p=1_$folder$", "t/p=2/"):
        lake.put(empty, b"")
    original = lake.table({"id": "bigint"}, {"p": "string"}, [([p], f"{lake.location()}/p={p}") for p in ("1", "2")])
    before = lake.objects()
    assert lake.convert().file_count == 2
    log = f"{lake.bucket}/t/_delta_log"
    assert set(lake.objects()) - set(before) == {f"{log}/{0:020d}.json", f"{log}/_hive_to_delta/source.json"}
    assert lake.objects().items() >= before.items(), "no data file is touched"
    assert sorted(map(tuple, delta_at(lake.spark, lake.location()).collect())) == [(1, "1"), (2, "1")]
    assert_same(lake.spark, original.where("id = 1"), delta_at(lake.spark, lake.location()).where("id = 1"))


# --- columns -----------------------------------------------------------------------------------------------------


def test_rule_12_names_have_the_case_of_the_files_for_spark_and_for_delta_rs(lake: Lake, aws_endpoint: str) -> None:
    lake.put("t/day=2024-01-01/f", {"CustomerId": [1, 2], "eMail": ["x", None]})
    original = lake.table(
        {"customerid": "bigint", "email": "string"},
        {"day": "date"},
        [(["2024-01-01"], f"{lake.location()}/day=2024-01-01")],
    )
    assert lake.convert().success
    delta = delta_at(lake.spark, lake.location())
    assert delta.columns == ["CustomerId", "eMail", "day"]
    assert_same(lake.spark, original, delta)
    assert rows_of(read_by_delta_rs(lake.location(), aws_endpoint)) == rows_of(
        {"CustomerId": [1, 2], "eMail": ["x", None], "day": [dt.date(2024, 1, 1)] * 2}
    )


@pytest.mark.parametrize("kind", ["struct<A:decimal(10,2),B:int>", "struct<a:decimal(10,2),b:int>"])
def test_rules_12_and_28_a_struct_of_glue_keeps_its_decimal_and_both_fields(
    lake: Lake, aws_endpoint: str, kind: str
) -> None:
    rows = [{"A": Decimal("12345678.25"), "B": 1}, {"A": None, "B": None}, None]
    in_file = pa.struct([("A", pa.decimal128(10, 2)), ("B", pa.int32())])
    lake.put("t/f", pa.table({"price": pa.array(rows, in_file)}))
    original = lake.table({"price": kind})
    assert lake.convert(footer_tail_bytes=16).features == [], "a footer longer than the tail is read again"
    delta = delta_at(lake.spark, lake.location())
    assert delta.schema.simpleString() == "struct<price:struct<A:decimal(10,2),B:int>>"
    assert_same(lake.spark, original, delta)
    assert rows_of(read_by_delta_rs(lake.location(), aws_endpoint)) == rows_of({"price": rows})


@needs_spark_4("reading files whose types are narrower than the table's")
@pytest.mark.parametrize("type_widening", [True, False])
def test_rule_29_int32_files_under_a_bigint_of_glue(lake: Lake, aws_endpoint: str, type_widening: bool) -> None:
    lake.put("t/a", {"N": pa.array([1, None], pa.int32())})
    lake.put("t/b", {"N": pa.array([2**40], pa.int64())})
    original = lake.table({"n": "bigint"})
    result = lake.convert(type_widening=type_widening)
    assert result.features == (["typeWidening"] if type_widening else [])
    assert any("narrower" in note and "N" in note for note in result.notes)
    assert_same(lake.spark, original, delta_at(lake.spark, lake.location()))
    if not type_widening:
        assert rows_of(read_by_delta_rs(lake.location(), aws_endpoint)) == rows_of({"N": [1, None, 2**40]})


def test_rule_44_an_empty_table_has_its_schema_and_no_files(lake: Lake) -> None:
    columns = {"id": "bigint", "s": "struct<A:decimal(10,2),B:array<map<string,int>>>", "c": "char(3)"}
    original = lake.table(columns, {"day": "date"}, comment="nothing yet", comments={"day": "of the sale"})
    lake.s3.put_object(Bucket=lake.bucket, Key="t/day=2020-01-01/orphan", Body=b"not even Parquet")
    refused = lake.convert(refuse_empty=True)
    assert (refused.success, refused.retryable) == (False, False)
    assert "has no data file at" in (refused.error or "")
    result = lake.convert()
    assert (result.status, result.file_count, result.row_count) == ("converted", 0, 0)
    assert result.is_empty
    assert "the catalog lacks its partitions" in result.notes[0], "something is at the location, in no partition"
    again = lake.convert()
    assert again.is_empty, "also when it was converted before"
    assert "sync it" in again.notes[0]
    assert "No data file in" in str(create_summary([result]))
    assert [next(iter(action)) for action in commit_of(lake)] == ["commitInfo", "protocol", "metaData"]
    delta = delta_at(lake.spark, lake.location())
    assert delta.schema.simpleString() == original.schema.simpleString()
    assert delta.schema["day"].metadata["comment"] == "of the sale"
    assert_same(lake.spark, original, delta)


def test_rules_26_and_27_char_varchar_and_every_comment_are_kept_in_both_catalogs(lake: Lake) -> None:
    lake.put("t/p=ab/f", {"c": ["a", None], "v": ["a ", "bc"]})
    original = lake.table(
        {"c": "char(3)", "v": "varchar(4)"},
        {"p": "char(4)"},
        [(["ab"], f"{lake.location()}/p=ab")],
        comment="l'été — all of it",
        comments={"c": "'always' three", "p": "the part"},
    )
    result = lake.convert(("spark_catalog", f"{lake.database}_new"))
    try:
        assert result.target_table == f"spark_catalog.{lake.database}_new.t", result.error
        described = lake.spark.sql(f"DESCRIBE EXTENDED {result.target_table}").collect()
        comments = {row[0]: row[2] for row in described}
        assert [comments[name] for name in ("c", "v", "p")] == ["'always' three", None, "the part"]
        assert ("Comment", "l'été — all of it") in [row[:2] for row in described]
        delta = lake.spark.table(result.target_table)
        assert delta.where("c = 'a'").count() == 1, "a char is padded, in the table and in the literal"
        assert_same(lake.spark, original, delta)
        with pytest.raises(Exception, match="EXCEED_CHAR_VARCHAR_LIMIT"):
            lake.spark.sql(f"INSERT INTO {result.target_table} VALUES ('abcd', 'x', 'p')")
    finally:
        lake.spark.sql(f"DROP SCHEMA {lake.database}_new CASCADE")

    in_glue = lake.convert((None, f"{lake.database}_new"), register_in="glue")
    assert (in_glue.status, in_glue.target_table) == ("registered", f"{lake.database}_new.t")
    table = lake.glue.get_table(DatabaseName=f"{lake.database}_new", Name="t")["Table"]
    assert table["Description"] == "l'été — all of it"
    comments = {c["Name"]: c.get("Comment") for c in table["StorageDescriptor"]["Columns"] + table["PartitionKeys"]}
    assert comments == {"c": "'always' three", "v": None, "p": "the part"}


# --- registration ------------------------------------------------------------------------------------------------


def test_registered_in_glue_as_athena_and_spark_expect_it_and_a_second_run_changes_nothing(lake: Lake) -> None:
    lake.put("t/day=2024-01-01/f", {"Id": [1], "price": pa.array([Decimal("1.5")], pa.decimal128(10, 2))})
    lake.table(
        {"id": "bigint", "price": "decimal(10,2)"},
        {"day": "date"},
        [(["2024-01-01"], f"{lake.location()}/day=2024-01-01")],
    )
    target = (None, f"{lake.database}_delta")
    first = lake.convert(target, register_in="glue")
    assert (first.status, first.target_table) == ("converted", f"{lake.database}_delta.t"), first.error
    registered = lake.glue.get_table(DatabaseName=target[1], Name="t")["Table"]
    storage = registered["StorageDescriptor"]
    assert [(c["Name"].lower(), c["Type"]) for c in storage["Columns"]] == [
        ("id", "bigint"),
        ("price", "decimal(10,2)"),
    ]
    assert [(c["Name"], c["Type"]) for c in registered["PartitionKeys"]] == [("day", "date")]
    assert storage["Location"] == storage["SerdeInfo"]["Parameters"]["path"] == lake.location()
    assert registered["TableType"] == "EXTERNAL_TABLE"
    assert (
        registered["Parameters"].items()
        >= {
            "table_type": "DELTA",
            "classification": "delta",
            "spark.sql.sources.provider": "delta",
            "EXTERNAL": "TRUE",
        }.items()
    )

    source, objects = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"], lake.objects()
    second = lake.convert(target, register_in="glue")
    assert (second.success, second.status, second.message) == (True, "already_delta", ALREADY_DELTA)
    assert second.target_table == first.target_table
    assert lake.objects() == objects
    assert lake.glue.get_table(DatabaseName=target[1], Name="t")["Table"] == registered
    assert lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"] == source


def test_a_target_of_glue_that_points_elsewhere_is_refused_before_anything_is_written(lake: Lake) -> None:
    lake.put("t/f", {"id": [1]})
    lake.glue_table({"id": "bigint"})
    before = lake.objects()
    result = lake.convert((None, lake.database), register_in="glue")
    assert (result.success, result.retryable) == (False, False)
    assert f"{lake.database}.t exists" in (result.error or "")
    assert lake.objects() == before


# --- the commit --------------------------------------------------------------------------------------------------


@pytest.fixture
def on_send(lake: Lake) -> Iterator[Callable[[str, Any], None]]:
    """Register a handler on what the client of the lake's bucket sends: it sees the request, and may answer it."""
    events = aws.s3_client(lake.bucket).meta.events
    registered: list[tuple[str, Any]] = []

    def register(operation: str, handler: Any) -> None:
        registered.append((f"before-send.s3.{operation}".rstrip("."), handler))
        events.register(*registered[-1])

    yield register
    for name, handler in registered:
        events.unregister(name, handler)


def two_partitions(lake: Lake, *locations: str) -> None:
    lake.put("t/p=1/f", {"id": [1]})
    locations = locations or (f"{lake.location()}/p=1", f"{lake.location()}/p=2")
    lake.glue_table({"id": "bigint"}, {"p": "int"}, list(zip((["1"], ["2"]), locations, strict=True)))


def a_missing_partition(lake: Lake) -> None:
    two_partitions(lake)


def a_missing_bucket(lake: Lake) -> None:
    two_partitions(lake, f"{lake.location()}/p=1", f"s3://{lake.bucket}-gone/p=2")


def two_partitions_on_one_location(lake: Lake) -> None:
    two_partitions(lake, f"{lake.location()}/p=1", f"s3a://{lake.bucket}/t/p=1/")


def a_partition_inside_another(lake: Lake) -> None:
    lake.put("t/p=1/deeper/f", {"id": [2]})
    two_partitions(lake, f"{lake.location()}/p=1", f"{lake.location()}/p=1/deeper")


def a_file_that_is_not_parquet(lake: Lake) -> None:
    lake.put("t/p=2/f", b"id,name\n1,x\n")
    two_partitions(lake)


def a_type_that_does_not_fit(lake: Lake) -> None:
    lake.put("t/p=2/f", {"id": ["one"]})
    two_partitions(lake)


def a_file_wider_than_glue_says(lake: Lake) -> None:
    lake.put("t/f", {"id": [2**40]})
    lake.glue_table({"id": "int"})


def a_value_that_is_not_of_its_type(lake: Lake) -> None:
    lake.put("t/p=x/f", {"id": [1]})
    lake.glue_table({"id": "bigint"}, {"p": "int"}, [(["x"], f"{lake.location()}/p=x")])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (a_missing_partition, r"partition p=2 of .* at s3://.*/t/p=2"),
        (a_missing_bucket, r"partition p=2 of .*-gone"),
        (two_partitions_on_one_location, "at the same place"),
        (a_partition_inside_another, "inside it"),
        (a_file_that_is_not_parquet, r"t/p=2/f is not a Parquet file"),
        (a_type_that_does_not_fit, r"id is bigint in the catalog and string in the file .*t/p=2/f"),
        (a_file_wider_than_glue_says, r"id is int in the catalog and bigint in the file"),
        (a_value_that_is_not_of_its_type, r"'x' of the column p is not of its type integer"),
    ],
)
def test_a_bad_table_fails_with_its_reason_and_nothing_is_written(
    lake: Lake, make: Callable[[Lake], None], reason: str
) -> None:
    make(lake)
    before = lake.objects()
    result = lake.convert((None, f"{lake.database}_new"), register_in="glue")
    assert (result.success, result.retryable) == (False, False)
    assert re.search(reason, result.error or "")
    assert lake.objects() == before
    assert f"{lake.database}_new" not in {d["Name"] for d in lake.glue.get_databases()["DatabaseList"]}


def test_rule_54_one_partition_that_may_not_be_listed_fails_the_table(lake: Lake, on_send: Any) -> None:
    lake.put("t/p=2/f", {"id": [2]})
    two_partitions(lake)

    def deny(request: Any, **_: Any) -> AWSResponse | None:
        if "prefix=t%2Fp%3D" not in request.url or "prefix=t%2Fp%3D1" in request.url:
            return None
        body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
        return answer_with(request, 403, body)

    on_send("ListObjectsV2", deny)
    before = lake.objects()
    result = lake.convert(allow_missing_partitions=True)
    assert (result.status, result.retryable) == ("failed", False)
    assert "partition p=2" in (result.error or "")
    assert "AccessDenied" in (result.error or "")
    assert lake.objects() == before


def test_rule_2_the_only_writes_are_conditional_puts_after_all_checks(lake: Lake, on_send: Any) -> None:
    sent: list[tuple[str, str, Any]] = []

    def remember(request: Any, event_name: str, **_: Any) -> None:
        sent.append((event_name.rpartition(".")[2], request.url, request.headers.get("If-None-Match")))

    on_send("", remember)
    lake.put("t/f", {"id": [1]})
    lake.glue_table({"id": "bigint"})
    assert lake.convert().success
    writes = [
        call for call in sent if call[1] and call[0] not in ("ListObjectsV2", "GetObject", "HeadObject", "HeadBucket")
    ]
    names = [(operation, re.sub("-[0-9a-f]{32}$", "", url.rpartition("/")[2]), sent) for operation, url, sent in writes]
    assert names == [
        # A look at whether the bucket's store honours the condition.
        ("PutObject", "conditional-write", b"*"),
        ("PutObject", "conditional-write", b"*"),
        ("DeleteObject", "conditional-write", None),
        ("PutObject", f"{0:020d}.json", b"*"),
        ("PutObject", "source.json", b"*"),
    ]


def test_rule_2_on_a_store_that_ignores_the_condition_nothing_is_converted(lake: Lake, aws_endpoint: str) -> None:
    lake.put("t/f", {"id": [1]})
    lake.glue_table({"id": "bigint"})
    before = lake.objects()
    with without_header("If-None-Match", aws_endpoint) as endpoint:

        def client(service: Any, region: str | None, config: Any) -> Any:
            return boto3.client(
                service, region, config=config, endpoint_url=endpoint if service == "s3" else aws_endpoint
            )

        with aws.clients_from(client):
            result = lake.convert()
    assert (result.status, result.retryable) == ("refused", False)
    assert f"The store at {endpoint} ignores If-None-Match on PutObject" in (result.error or "")
    assert lake.objects() == before


def test_rule_2_of_many_converters_on_s3_one_commits_and_the_others_report_the_same_table(
    lake: Lake, on_send: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    converters = 4
    put_in_one_step(monkeypatch)
    lake.put("t/f", {"id": [1, 2]})
    original = lake.table({"id": "bigint"})
    all_about_to_commit = Barrier(converters)

    def wait_for_the_others(request: Any, **_: Any) -> None:
        if request.url.endswith(".json"):
            all_about_to_commit.wait(120)

    on_send("PutObject", wait_for_the_others)
    target = ("spark_catalog", lake.database + "_new")
    try:
        with ThreadPoolExecutor(converters) as pool:
            results = list(pool.map(lambda _: lake.convert(target), range(converters)))
        assert [result.error for result in results] == [None] * converters
        assert sorted(result.status == "converted" for result in results) == [False] * (converters - 1) + [True]
        assert {(result.target_table, result.version) for result in results} == {(f"{'.'.join(target)}.t", 0)}
        (won,) = (result for result in results if result.status == "converted")
        written = [key for key in lake.objects() if "_delta_log/" in key and not key.endswith("/")]
        assert [key for key in written if "/registrations/" not in key] == [
            f"{lake.bucket}/t/_delta_log/{0:020d}.json",
            f"{lake.bucket}/t/_delta_log/_hive_to_delta/source.json",
        ]
        assert won.file_count == 1
        assert_same(lake.spark, original, lake.spark.table(won.target_table))
    finally:
        lake.spark.sql(f"DROP SCHEMA IF EXISTS {target[1]} CASCADE")
