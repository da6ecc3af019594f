"""The last bytes of many objects: by requests like the first one, which botocore has made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session

from airflow_hive_to_delta.core.errors import AccessDeniedError, StaleFileListError
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.file_tails import read_tail
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.aws import REGION
from tests.support.s3_servers import KEY, SentRequest, sent_requests

OWNER = "123456789012"
NAMES = ("plain", "day=2024-01-01 00%3A00", "a+b&c?d#e", "~tilde'(quote)!*", "größe/雪/🦆", "semi;colon:,$@[x]")


class Requests:
    """What was sent to an S3 server, and what operations botocore was asked for."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.sent: list[SentRequest] = []
        self.operations: Counter[str] = Counter()

    def paths(self) -> Counter[str]:
        return Counter(request.path for request in self.sent)


@pytest.fixture
def requests(s3proxy_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Requests]:
    """A bucket ``tails`` on a server that checks signatures."""

    def make(service: str, region: str | None, config: Any) -> Any:
        session = boto3.session.Session(aws_access_key_id=KEY, aws_secret_access_key=KEY)
        return session.client(service, region_name=region, config=config, endpoint_url=s3proxy_endpoint)  # type: ignore[call-overload]

    monkeypatch.setitem(aws._regions, "tails", REGION)
    with aws.clients_from(make):
        found = Requests(aws.s3_client("tails"))
        found.client.create_bucket(Bucket="tails")
        for name in NAMES:
            found.client.put_object(Bucket="tails", Key=f"t/{name}", Body=_content(name))
        found.client.meta.events.register(
            "provide-client-params.s3", lambda model, **_: found.operations.update([model.name])
        )
        with sent_requests() as found.sent:
            yield found
        for name in NAMES:
            found.client.delete_object(Bucket="tails", Key=f"t/{name}")
        found.client.delete_bucket(Bucket="tails")


def _content(name: str) -> bytes:
    return name.encode().ljust(100, b".") + (0).to_bytes(4, "little") + b"PAR1"


def _read(name: str, size: int | None = None, **options: Any) -> bytes:
    location = parse_location(f"s3://tails/t/{name}")
    return read_tail(location, size or len(_content(name)), ConversionOptions(**options))[0]


def test_botocore_makes_one_request_to_a_bucket_and_the_others_are_like_it(requests: Requests) -> None:
    tails = [_read(name) for name in (*NAMES, *NAMES)]
    assert tails == [_content(name) for name in (*NAMES, *NAMES)]
    assert requests.operations == {"GetObject": 1}
    assert set(requests.paths().values()) == {2}
    assert all("airflow-hive-to-delta" in request.headers["user-agent"] for request in requests.sent)


def test_rule_54_every_request_names_the_owner_of_the_bucket(s3: Any, bucket: str) -> None:
    aws.bucket_region(bucket, REGION)
    s3.put_object(Bucket=bucket, Key="t/plain", Body=_content("plain"))
    location = parse_location(f"s3://{bucket}/t/plain")
    with sent_requests() as sent:
        for _ in range(3):
            read_tail(location, 108, ConversionOptions(expected_bucket_owner=OWNER, region=REGION))
    assert [request.headers["x-amz-expected-bucket-owner"] for request in sent] == [OWNER] * 3


def test_times_and_sizes_are_those_that_botocore_gives(requests: Requests) -> None:
    location = parse_location("s3://tails/t/plain")
    first, second = (read_tail(location, len(_content("plain")), ConversionOptions()) for _ in range(2))
    assert first == second
    with pytest.raises(StaleFileListError, match="has 108 bytes, but 107 were listed"):
        _read("plain", size=107)
    assert requests.operations == {"GetObject": 1}


def test_an_object_that_is_not_there_is_missing_and_the_others_are_read(requests: Requests) -> None:
    assert _read("plain") == _content("plain")
    with pytest.raises(StaleFileListError, match=r"t/gone.*List the files again"):
        _read("gone", size=100)
    assert [_read(name) for name in NAMES] == [_content(name) for name in NAMES]


def test_an_identity_that_is_denied_later_gets_the_error_that_botocore_gives(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _read("plain") == _content("plain")
    with monkeypatch.context() as patch:
        patch.setattr(requests.client._request_signer._credentials, "secret_key", "another")
        with pytest.raises(AccessDeniedError, match="Reading the footer of s3://tails/t/plain"):
            _read("plain")


def test_a_connection_that_breaks_is_left_to_botocore(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _read("plain") == _content("plain")
    send = URLLib3Session.send
    broken: list[AWSPreparedRequest] = []

    def breaking(session: URLLib3Session, request: AWSPreparedRequest) -> Any:
        if not broken:
            broken.append(request)
            raise ConnectionClosedError(endpoint_url=request.url)
        return send(session, request)

    monkeypatch.setattr(URLLib3Session, "send", breaking)
    assert _read("plain") == _content("plain")
    assert requests.operations == {"GetObject": 2}
    assert _read("plain") == _content("plain")
    assert requests.operations == {"GetObject": 2}
