"""Footers over a network that cuts answers short, and of objects that are replaced while they are read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest

from airflow_hive_to_delta.core.storage import aws, file_tails
from tests.support.aws import REGION
from tests.support.footers import described
from tests.support.tables import write_parquet


class Proxy(ThreadingHTTPServer):
    """Passes requests on to moto's server. ``cut`` says whether a GET's answer breaks off, by path and attempt."""

    daemon_threads = True

    def __init__(self, endpoint: str, cut: Callable[[str, int], bool], before: Callable[[int], None]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.endpoint, self.cut, self.before = endpoint, cut, before
        self.gets: Counter[str] = Counter()
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.gets[self.path] += 1
            attempt = self.server.gets[self.path]
        self.server.before(attempt)
        request = Request(self.server.endpoint + self.path, headers=dict(self.headers))
        try:
            answer = urlopen(request)
        except OSError as error:
            answer = error  # an HTTPError is an answer too
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "server", "date"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.server.cut(self.path, attempt) else body)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def through_a_proxy(
    endpoint: str,
    cut: Callable[[str, int], bool] = lambda _path, _attempt: False,
    before: Callable[[int], None] = lambda _attempt: None,
) -> Iterator[Proxy]:
    proxy = Proxy(endpoint, cut, before)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{proxy.server_port}"

    def client(service: str, region: str | None, config: Any) -> Any:
        return boto3.client(service, region_name=region, config=config, endpoint_url=address)  # type: ignore[call-overload]

    try:
        with aws.clients_from(client):
            yield proxy
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()


@pytest.fixture
def pauses(monkeypatch):
    """How long the reader would have waited."""
    waited: list[float] = []
    monkeypatch.setattr(file_tails, "sleep", waited.append)
    return waited


@pytest.fixture
def files(s3, bucket, tmp_path):
    aws.bucket_region(bucket, REGION)
    found = []
    for number in range(12):
        body = write_parquet(tmp_path / f"f{number}", {f"column_{i}": [number] for i in range(20)}).read_bytes()
        s3.put_object(Bucket=bucket, Key=f"t/f{number}", Body=body)
        found.append((f"s3://{bucket}/t/f{number}", len(body)))
    return found


@pytest.mark.parametrize("tail", [65_536, 200], ids=["one-get", "two-gets"])
def test_an_answer_that_breaks_off_is_asked_for_again(aws_endpoint, bucket, files, pauses, tail):
    with through_a_proxy(aws_endpoint, cut=lambda path, attempt: int(path[-1]) % 3 == 0 and attempt < 3) as proxy:
        rows = described(*files, root=f"s3://{bucket}/t", region=REGION, footer_tail_bytes=tail)
    assert [row["error"] for row in rows] == [None] * len(files)
    assert max(proxy.gets.values()) >= 3
    broken = sum(int(path[-1]) % 3 == 0 for path, _ in files)
    assert len(pauses) == broken * 2
    assert min(pauses) > 0
    assert max(pauses) <= file_tails.PAUSES[1]


def test_a_file_whose_answers_always_break_off_is_an_error_that_a_retry_may_help(aws_endpoint, bucket, files, pauses):
    with through_a_proxy(aws_endpoint, cut=lambda path, _: path.endswith("/f3")) as proxy:
        rows = described(*files, root=f"s3://{bucket}/t", region=REGION)
    (failed,) = [row for row in rows if row["error"]]
    assert failed["path"] == files[3][0]
    assert files[3][0] in failed["error"]
    assert "tried 4 times" in failed["error"]
    assert failed["retryable"] is True
    assert proxy.gets[f"/{bucket}/t/f3"] == 4
    assert len(pauses) == 3


def test_an_object_replaced_between_two_reads_is_not_what_was_listed(aws_endpoint, s3, bucket, files, pauses):
    path, size = files[0]

    def replace(attempt: int) -> None:
        if attempt == 2:
            s3.put_object(Bucket=bucket, Key="t/f0", Body=b"\0" * (size - 4) + b"PAR1")

    with through_a_proxy(aws_endpoint, before=replace) as proxy:
        (row,) = described((path, size), root=f"s3://{bucket}/t", region=REGION, footer_tail_bytes=200)
    assert f"The file {path} was rewritten while its footer was read" in row["error"]
    assert row["retryable"] is False
    assert proxy.gets[f"/{bucket}/t/f0"] == 2
    assert pauses == []


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"aws_access_key_id": "", "aws_secret_access_key": ""}, "UnreachableStorageError"),
        ({"aws_access_key_id": "another", "aws_secret_access_key": "another"}, "AccessDeniedError"),
    ],
    ids=["none", "others"],
)
def test_credentials_that_s3_denies_differ_from_none_at_all(s3proxy_endpoint, monkeypatch, keys, kind):
    """What is denied to a known identity may be a single file: that is an error, whoever else can read the table."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)

    def client(service: str, region: str | None, config: Any) -> Any:
        session = boto3.session.Session(**{name: value or None for name, value in keys.items()})
        return session.client(service, region_name=region, config=config, endpoint_url=s3proxy_endpoint)  # type: ignore[call-overload]

    monkeypatch.setitem(aws._regions, "b", REGION)
    with aws.clients_from(client):
        (row,) = described(("s3://b/t/f", 100), root="s3://b/t", region=REGION)
    assert (row["error_kind"], row["retryable"]) == (kind, False)
