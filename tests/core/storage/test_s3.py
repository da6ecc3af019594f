"""Put-if-absent on S3: on two servers, and whatever they answer."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from urllib.parse import unquote

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError
from pyspark.errors import AnalysisException, PySparkException

from airflow_hive_to_delta.core.delta.log.files import commit_path, records_folder
from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    MissingError,
    PermanentError,
    TransientError,
)
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import translate_spark_error
from airflow_hive_to_delta.core.storage import aws, conditional_writes
from airflow_hive_to_delta.core.storage import s3 as s3_storage
from airflow_hive_to_delta.core.storage.aws_errors import translate_aws_error
from airflow_hive_to_delta.core.storage.s3 import S3Storage
from airflow_hive_to_delta.core.storage.uri import Location, parse_location
from tests.support.s3_servers import answer, answer_with, clients_of, s3_server, without_header
from tests.support.storages import read

MEBIBYTE = 1024 * 1024
#: In the name of the object that is written to find out whether a store knows conditional writes.
PROBE = "conditional-write-"


@pytest.fixture(params=["moto", "s3proxy"])
def s3(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of an S3 server, which the package's own clients use, too. The fixture ``bucket`` is there."""
    with s3_server(request, request.param) as client:
        yield client


#: For what only moto has (settings of its own, keys of KMS, owners of buckets), and for answers that no server gives.
only_moto = pytest.mark.parametrize("s3", ["moto"], indirect=True)
only_s3proxy = pytest.mark.parametrize("s3", ["s3proxy"], indirect=True)


@pytest.fixture
def on_send(bucket: str) -> Iterator[Callable[..., None]]:
    """Register a handler on what the client of the bucket sends: it sees the request, and may answer it.

    It does not see the object that is written to find out whether the store knows conditional writes.
    """
    registered: list[tuple[Any, str, Any]] = []

    def register(operation: str, handler: Any) -> None:
        def handle(request: Any, **named: Any) -> Any:
            return None if PROBE in request.url else handler(request=request, **named)

        events: Any = aws.s3_client(bucket).meta.events
        name = f"before-send.s3.{operation}" if operation else "before-send.s3"
        events.register(name, handle)
        registered.append((events, name, handle))

    yield register
    for events, name, handler in registered:
        events.unregister(name, handler)


def test_a_move_that_ended_between_copy_and_delete_is_finished(bucket: str) -> None:
    where = S3Storage(ConversionOptions())
    folder = parse_location(f"s3://{bucket}/t")
    source, target = folder.child("a"), folder.child("b")
    for path in (source, target):
        where.put_if_absent(path, io.BytesIO(b"x"))
    where.move(source, target)
    assert where.list_names(folder) == ["b"]


@only_moto
def test_a_listing_goes_over_all_pages(bucket: str, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    for number in range(5):
        s3.put_object(Bucket=bucket, Key=f"t/_delta_log/{number}.json", Body=b"")
    assert len(s3.list_objects_v2(Bucket=bucket)["Contents"]) == 2
    folder = parse_location(f"s3://{bucket}/t/_delta_log")
    assert len(S3Storage(ConversionOptions()).list_names(folder)) == 5
    assert len(S3Storage(ConversionOptions()).list_files(folder)) == 5


@only_s3proxy
@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "in parts"])
def test_rule_2_s3_lets_one_of_many_writers_win(bucket: str, in_parts: bool) -> None:
    barrier = Barrier(8)
    path = parse_location(f"s3://{bucket}/t/_delta_log/0.json")

    def write(number: int) -> bool:
        barrier.wait()
        where = S3Storage(ConversionOptions(), multipart_over=0 if in_parts else MEBIBYTE)
        return where.put_if_absent(path, io.BytesIO(b"%d" % number))

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert won.count(True) == 1
    assert read(S3Storage(ConversionOptions()), path) == b"%d" % won.index(True)


@only_moto
def test_rule_54_the_bucket_owner_and_the_key_are_sent(bucket: str, on_send: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(s3_storage, "_PART_SIZE", 5 * MEBIBYTE)
    sent: dict[str, dict[str, str]] = {}

    def record(request: Any, event_name: str, **_: Any) -> None:
        sent[event_name.rpartition(".")[2]] = {
            k.lower(): v if isinstance(v, str) else v.decode() for k, v in request.headers.items()
        }

    on_send("", record)
    options = ConversionOptions(expected_bucket_owner="123456789012", sse_kms_key_id="alias/logs")
    where = S3Storage(options, multipart_over=MEBIBYTE)
    folder = parse_location(f"s3://{bucket}/t/_delta_log")
    assert where.put_if_absent(folder.child("small"), io.BytesIO(b"x"))
    assert where.put_if_absent(folder.child("large"), io.BytesIO(b"x" * 6 * MEBIBYTE))
    assert where.size(folder.child("small")) == 1
    assert read(where, folder.child("small")) == b"x"
    assert len(where.list_names(folder)) == 2
    assert {"PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"} <= sent.keys()
    assert {"HeadObject", "GetObject", "ListObjectsV2"} <= sent.keys()
    for operation, headers in sent.items():
        assert headers.get("x-amz-expected-bucket-owner") == "123456789012", operation
    for operation in ("PutObject", "CompleteMultipartUpload"):
        assert sent[operation]["if-none-match"] == "*", operation
    for operation in ("PutObject", "CreateMultipartUpload"):
        assert sent[operation]["x-amz-server-side-encryption"] == "aws:kms"
        assert sent[operation]["x-amz-server-side-encryption-aws-kms-key-id"] == "alias/logs"


@only_moto
@pytest.mark.parametrize("size", [1, 9 * MEBIBYTE], ids=["whole", "in parts"])
def test_rule_54_a_move_names_the_owner_of_the_bucket_it_reads_and_of_the_one_it_writes(
    bucket: str, s3: Any, on_send: Any, size: int
) -> None:
    sent: dict[str, dict[str, bytes]] = {}

    def record(request: Any, event_name: str, **_: Any) -> None:
        sent[event_name.rpartition(".")[2]] = {k.lower(): v for k, v in request.headers.items()}

    on_send("", record)
    where = S3Storage(ConversionOptions(expected_bucket_owner="123456789012"))
    folder = parse_location(f"s3://{bucket}/t")
    content = os.urandom(size)
    s3.put_object(Bucket=bucket, Key="t/a", Body=content)
    where.move(folder.child("a"), folder.child("aside").child("a"))
    assert read(where, folder.child("aside").child("a")) == content
    assert where.list_names(folder) == ["aside/"]
    copies = {"CopyObject"} if size == 1 else {"UploadPartCopy"}
    multipart = set() if size == 1 else {"CreateMultipartUpload", "CompleteMultipartUpload"}
    assert {"HeadObject", "DeleteObject", *copies, *multipart} <= sent.keys()
    owners = {name: headers.get("x-amz-expected-bucket-owner") for name, headers in sent.items()}
    assert owners == dict.fromkeys(sent, b"123456789012")
    assert [sent[name].get("x-amz-source-expected-bucket-owner") for name in copies] == [b"123456789012"]


def test_an_entry_over_the_threshold_goes_in_parts_and_is_conditional_too(
    bucket: str, s3: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(s3_storage, "_PART_SIZE", 5 * MEBIBYTE)
    where = S3Storage(ConversionOptions(), multipart_over=MEBIBYTE)
    path = parse_location(f"s3://{bucket}/t/_delta_log/0.json")
    content = os.urandom(11 * MEBIBYTE)
    assert where.put_if_absent(path, io.BytesIO(content))
    assert read(where, path) == content
    assert s3.head_object(Bucket=bucket, Key=path.key)["ETag"].endswith('-3"')
    assert not where.put_if_absent(path, io.BytesIO(b"y" * 2 * MEBIBYTE))
    assert read(where, path) == content
    assert not s3.list_multipart_uploads(Bucket=bucket).get("Uploads"), "an upload that lost is given up"


def test_the_checksums_of_the_parts_are_announced_and_named_again_when_completing(bucket: str, on_send: Any) -> None:
    announced: list[Any] = []
    bodies: list[bytes] = []
    on_send("CreateMultipartUpload", lambda request, **_: announced.append(request.headers["x-amz-checksum-algorithm"]))
    on_send("CompleteMultipartUpload", lambda request, **_: bodies.append(request.body))
    where = S3Storage(ConversionOptions(), multipart_over=10)
    assert where.put_if_absent(parse_location(f"s3://{bucket}/x"), io.BytesIO(b"x" * 20))
    assert announced == [b"CRC32"], "versitygw finds no part that has a checksum which was not announced"
    assert b"<ChecksumCRC32>" in bodies[0]


@only_moto
def test_rule_2_a_conflict_uploads_again(bucket: str, on_send: Any) -> None:
    conflicts = iter([True, True, False])

    def conflict(request: Any, **_: Any) -> AWSResponse | None:
        return answer(request, 409, "ConditionalRequestConflict") if next(conflicts) else None

    on_send("PutObject", conflict)
    where = S3Storage(ConversionOptions())
    path = parse_location(f"s3://{bucket}/t/0.json")
    assert where.put_if_absent(path, io.BytesIO(b"entry"))
    assert read(where, path) == b"entry"


@only_moto
@pytest.mark.parametrize(("operation", "size"), [("PutObject", 1), ("CompleteMultipartUpload", 100)])
def test_rule_2_conflicts_without_end_may_pass_later(
    bucket: str, s3: Any, on_send: Any, operation: str, size: int
) -> None:
    on_send(operation, lambda request, **_: answer(request, 409, "ConditionalRequestConflict"))
    where = S3Storage(ConversionOptions(), multipart_over=10)
    with pytest.raises(TransientError, match=r"0\.json"):
        where.put_if_absent(parse_location(f"s3://{bucket}/t/0.json"), io.BytesIO(b"x" * size))
    assert not s3.list_objects_v2(Bucket=bucket).get("Contents")
    assert not s3.list_multipart_uploads(Bucket=bucket).get("Uploads")


@only_moto
def test_a_multipart_upload_that_is_gone_leaves_the_outcome_open(bucket: str, on_send: Any) -> None:
    on_send("CompleteMultipartUpload", lambda request, **_: answer(request, 404, "NoSuchUpload"))
    where = S3Storage(ConversionOptions(), multipart_over=10)
    with pytest.raises(TransientError, match="may have succeeded"):
        where.put_if_absent(parse_location(f"s3://{bucket}/t/0.json"), io.BytesIO(b"x" * 20))


@only_moto
def test_rule_54_denied_is_not_absent(bucket: str, on_send: Any) -> None:
    on_send("", lambda request, **_: answer(request, 403, "AccessDenied"))
    where = S3Storage(ConversionOptions())
    folder = parse_location(f"s3://{bucket}/t")
    for denied in (
        *(where.size, where.open, where.list_names, where.list_files, where.delete),
        lambda path: where.put_if_absent(path, io.BytesIO(b"x")),
        lambda path: where.move(path, path.child("aside")),
    ):
        with pytest.raises(AccessDeniedError):
            denied(folder)


@pytest.mark.parametrize(
    "code", ["ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired", "RequestTimeTooSkewed"]
)
def test_credentials_that_have_expired_may_be_good_at_the_next_try(code: str) -> None:
    for status in (400, 403):
        said: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        error = translate_aws_error(ClientError(said, "GetObject"), "Reading s3://b/t")
        assert isinstance(error, TransientError)
        assert re.search(f"Reading s3://b/t: {code}: no.*take.* anew", str(error))
        text = f"java.nio.file.AccessDeniedException: s3://b/t: no (Service: S3, Status Code: {status}): {code}"
        for raised in (PySparkException(text), AnalysisException(text)):
            assert isinstance(translate_spark_error(raised, "Listing s3://b/t"), TransientError)


@only_moto
def test_after_credentials_have_expired_the_next_try_takes_new_ones(
    bucket: str, s3: Any, on_send: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expired(request: Any, **_: Any) -> AWSResponse:
        reason = b"" if request.method == "HEAD" else b"<Error><Code>ExpiredToken</Code></Error>"
        return answer_with(request, 400, reason)

    s3.put_object(Bucket=bucket, Key="x", Body=b"x")
    where, path = S3Storage(ConversionOptions()), parse_location(f"s3://{bucket}/x")
    for look, key in ((where.size, "second"), (where.open, "third")):
        on_send("", expired)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        with pytest.raises(TransientError, match=r"expired.*put new ones there"):
            look(path)
        look(path)
        sent: list[str] = []
        on_send("", lambda request, sent=sent, **_: sent.append(str(request.headers["Authorization"])))
        look(path)
        assert f"Credential={key}/" in sent[0]


@only_moto
def test_an_endpoint_without_conditional_writes_is_refused(bucket: str, on_send: Any) -> None:
    on_send("PutObject", lambda request, **_: answer(request, 501, "NotImplemented"))
    with pytest.raises(PermanentError, match="If-None-Match"):
        S3Storage(ConversionOptions()).put_if_absent(parse_location(f"s3://{bucket}/x"), io.BytesIO(b"x"))


def test_a_bucket_that_is_not_there_is_missing(s3: Any) -> None:
    with pytest.raises(MissingError, match="no-such-bucket-at-all"):
        S3Storage(ConversionOptions()).list_names(parse_location("s3://no-such-bucket-at-all/t"))


# --- stores that ignore If-None-Match ----------------------------------------------------------------------------


@pytest.fixture
def probes(bucket: str) -> Iterator[list[tuple[str, str]]]:
    """The operations on objects that are written to find out whether a store knows conditional writes, with keys."""
    sent: list[tuple[str, str]] = []

    def record(request: Any, event_name: str, **_: Any) -> None:
        if PROBE in request.url:
            sent.append((event_name.rpartition(".")[2], request.url.partition("?")[0].partition(f"/{bucket}/")[2]))

    events: Any = aws.s3_client(bucket).meta.events
    events.register("before-send.s3", record)
    yield sent
    events.unregister("before-send.s3", record)


PUTS = ["PutObject", "PutObject", "DeleteObject"]
PARTS = ["PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "AbortMultipartUpload"]


def test_rule_2_each_bucket_is_tried_once_among_the_records_of_the_first_log(
    bucket: str, s3: Any, probes: list[tuple[str, str]]
) -> None:
    roots = [parse_location(f"s3://{bucket}/a b/{number}") for number in range(8)]
    barrier = Barrier(8)

    def commit(root: Location) -> bool:
        barrier.wait()
        where = S3Storage(ConversionOptions(), multipart_over=10)
        first = where.put_if_absent(commit_path(root, 0), io.BytesIO(b"x"))
        return first and where.put_if_absent(commit_path(root, 1), io.BytesIO(b"x" * 20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(commit, roots))
    assert sorted(name for name, _ in probes) == sorted([*PUTS, *PARTS, "DeleteObject"])
    folders = {unquote(key).rpartition("/")[0] for _, key in probes}
    assert folders <= {records_folder(root).key for root in roots}
    assert not [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"] if PROBE in found["Key"]]
    assert not s3.list_multipart_uploads(Bucket=bucket).get("Uploads")


@only_moto
@pytest.mark.parametrize(("operation", "size"), [("PutObject", 1), ("CompleteMultipartUpload", 20)])
def test_rule_2_a_store_that_ignores_the_condition_is_refused_and_left_as_it_was(
    bucket: str, s3: Any, aws_endpoint: str, operation: str, size: int
) -> None:
    path = parse_location(f"s3://{bucket}/t/_delta_log/0.json")
    s3.put_object(Bucket=bucket, Key="t/f.parquet", Body=b"data")
    with without_header("If-None-Match", aws_endpoint) as endpoint, clients_of(endpoint):
        where = S3Storage(ConversionOptions(), multipart_over=10)
        for _ in range(2):
            with pytest.raises(
                PermanentError, match=rf"ignores If-None-Match on {operation}: .*0\.json was not written"
            ):
                where.put_if_absent(path, io.BytesIO(b"x" * size))
    assert [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["t/f.parquet"]
    assert not s3.list_multipart_uploads(Bucket=bucket).get("Uploads")
    # The same bucket by another way is another store.
    assert S3Storage(ConversionOptions()).put_if_absent(path, io.BytesIO(b"x"))


@only_moto
def test_an_identity_that_may_not_delete_gets_an_error_that_names_what_it_leaves_behind(
    bucket: str, s3: Any, caplog: pytest.LogCaptureFixture
) -> None:
    events: Any = aws.s3_client(bucket).meta.events
    events.register("before-send.s3.DeleteObject", lambda request, **_: answer(request, 403, "AccessDenied"))
    where, root = S3Storage(ConversionOptions()), parse_location(f"s3://{bucket}/t")
    for version in range(2):
        assert where.put_if_absent(commit_path(root, version), io.BytesIO(b"x"))
    found = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    (left,) = (key for key in found if key not in {commit_path(root, version).key for version in range(2)})
    (said,) = (record.getMessage() for record in caplog.records if record.name == conditional_writes.__name__)
    assert f"s3://{bucket}/{left}, " in said
    assert "s3:DeleteObject" in said


@only_moto
@pytest.mark.parametrize("failing", ["first", "second"])
def test_a_failure_while_trying_may_pass_and_leaves_nothing(bucket: str, s3: Any, failing: str) -> None:
    conflicts = iter([True] if failing == "first" else [False, True])
    events: Any = aws.s3_client(bucket).meta.events

    def fail(request: Any, **_: Any) -> AWSResponse | None:
        return answer(request, 409, "OperationAborted") if next(conflicts, False) else None

    events.register("before-send.s3.PutObject", fail)
    where, path = S3Storage(ConversionOptions()), parse_location(f"s3://{bucket}/t/_delta_log/0.json")
    with pytest.raises(TransientError, match=r"0\.json: OperationAborted"):
        where.put_if_absent(path, io.BytesIO(b"x"))
    assert not s3.list_objects_v2(Bucket=bucket).get("Contents")
    assert where.put_if_absent(path, io.BytesIO(b"x"))
