"""Bad input on S3: an error that says what was found and what to do, and nothing in the bucket is touched."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from pyspark.sql import SparkSession

from airflow_hive_to_delta import convert_table
from airflow_hive_to_delta.core.errors import AccessDeniedError, HiveToDeltaError, MissingError, PermanentError
from airflow_hive_to_delta.core.storage import aws
from tests.support.s3_servers import answer_with
from tests.support.tables import write_parquet

_SCHEMA = "file_path string, size long"


class OnS3:
    def __init__(self, spark: SparkSession, s3: Any, bucket: str) -> None:
        self.spark, self.s3, self.bucket = spark, s3, bucket

    def put(self, key: str, data: dict[str, Any] | bytes, tmp_path: Path) -> int:
        body = data if isinstance(data, bytes) else write_parquet(tmp_path / "written", data).read_bytes()
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)
        return len(body)

    def objects(self) -> dict[str, tuple[str, Any]]:
        listed = self.s3.list_object_versions(Bucket=self.bucket)
        assert not listed.get("DeleteMarkers")
        return {found["Key"]: (found["ETag"], found["LastModified"]) for found in listed.get("Versions", [])}

    def refused(self, error: type[HiveToDeltaError], reason: str, *files: tuple[str, int], **arguments: Any) -> None:
        before = self.objects()
        listed = self.spark.createDataFrame([(f.format(self.bucket), size) for f, size in files], _SCHEMA)
        location = arguments.pop("location", "s3://{}/t").format(self.bucket)
        with pytest.raises(error) as caught:
            convert_table(self.spark, listed, location, None, None, None, **arguments)
        assert re.search(reason, str(caught.value)), str(caught.value)
        assert self.objects() == before


@pytest.fixture
def on_s3(spark, s3, bucket) -> OnS3:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return OnS3(spark, s3, bucket)


def test_files_of_s3_that_are_not_what_was_listed(on_s3, tmp_path):
    size = on_s3.put("t/f", {"id": [1]}, tmp_path)
    on_s3.put("t/empty", b"", tmp_path)
    for file, reason in (
        (("s3://{}/t/gone", 10), r"Reading the footer of s3://.*/t/gone: NoSuchKey: .* List the files again"),
        (("s3://{}/t/f", size + 1), rf"s3://.*/t/f has {size} bytes, but {size + 1} were listed"),
        (("s3://{}/t/empty", 10), r"s3://.*/t/empty has 0 bytes, but 10 were listed"),
        (("s3://{}-gone/f", 10), r"There is no bucket .*-gone: it was deleted"),
    ):
        on_s3.refused(PermanentError, reason, file)


def test_rules_4_and_16_one_file_of_s3_in_two_spellings(on_s3, tmp_path):
    size = on_s3.put("t/f", {"id": [1]}, tmp_path)
    twice = r"same file more than once: .*f\. List each file once"
    on_s3.refused(PermanentError, twice, ("s3://{}/t/f", size), ("s3a://{}/t/f", size))
    on_s3.refused(PermanentError, twice, ("s3n://{}/t/f", size), ("s3a://{}/t/f", size), location="s3://{}/elsewhere")
    on_s3.refused(PermanentError, twice, ("s3://{}/t/f", size), ("s3a://{}/t/f", size), location=f"{tmp_path}/local")
    assert not (tmp_path / "local").exists()


def test_a_table_location_in_no_bucket(on_s3, tmp_path):
    size = on_s3.put("t/f", {"id": [1]}, tmp_path)
    on_s3.refused(
        MissingError, r"There is no bucket .*-gone: it was deleted", ("s3://{}/t/f", size), location="s3://{}-gone/t"
    )


def test_rule_54_a_file_that_may_not_be_read(on_s3, tmp_path):
    size = on_s3.put("t/f", {"id": [1]}, tmp_path)
    resource = f"arn:aws:s3:::{on_s3.bucket}/t/*"
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "Resource": resource}
    policy = {"Version": "2012-10-17", "Statement": [deny]}
    on_s3.s3.put_bucket_policy(Bucket=on_s3.bucket, Policy=json.dumps(policy))
    on_s3.refused(PermanentError, r"footer of s3://.*/t/f: 403.* Grant this identity access", ("s3://{}/t/f", size))


def test_rule_54_a_log_that_may_not_be_listed_is_not_an_absent_one(on_s3, tmp_path):
    size = on_s3.put("t/f", {"id": [1]}, tmp_path)
    events: Any = aws.s3_client(on_s3.bucket).meta.events

    def deny(request: Any, **_: Any) -> AWSResponse | None:
        if "_delta_log" not in request.url:
            return None
        body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
        return answer_with(request, 403, body)

    events.register("before-send.s3.ListObjectsV2", deny)
    try:
        on_s3.refused(AccessDeniedError, r"Listing s3://.*/t/_delta_log.*: AccessDenied", ("s3://{}/t/f", size))
    finally:
        events.unregister("before-send.s3.ListObjectsV2", deny)
