"""S3 servers for tests and clients of them: moto's, S3Proxy, and a proxy that drops a header on the way to another."""

from __future__ import annotations

import http.client
import io
import logging
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.httpsession import URLLib3Session
from moto.s3.responses import S3Response

from airflow_hive_to_delta.core.storage import aws
from tests.support.aws import REGION
from tests.support.jvm_options import FAST_START_OPTIONS

#: What S3Proxy's clients sign with; it refuses others.
KEY = "testing"


@contextmanager
def s3proxy(jar: Path, folder: Path) -> Iterator[str]:
    """S3Proxy on loopback, over files in a folder; its address."""
    assert jar.is_file(), f"{jar} is missing: `make {jar.relative_to(Path(__file__).parents[2])}` downloads it"
    data, settings = folder / "data", folder / "s3proxy.conf"
    data.mkdir()
    settings.write_text(
        "s3proxy.endpoint=http://127.0.0.1:0\n"
        "s3proxy.authorization=aws-v4\n"
        f"s3proxy.identity={KEY}\n"
        f"s3proxy.credential={KEY}\n"
        "jclouds.provider=filesystem-nio2\n"
        f"jclouds.filesystem.basedir={data}\n"
    )
    java = Path(os.environ["JAVA_HOME"], "bin/java")
    flags = [*FAST_START_OPTIONS, "-Xmx256m"]
    command: list[str | Path] = [java, *flags, "-jar", jar, "--properties", settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            said = []
            for line in server.stdout:
                said.append(line)
                if found := re.search(r"Started .*\{(127\.0\.0\.1:\d+)\}", line):
                    break
            else:
                raise AssertionError("S3Proxy did not start:\n" + "".join(said))
            Thread(target=server.stdout.read, daemon=True).start()  # or it would wait for somebody to read what it says
            yield f"http://{found[1]}"
        finally:
            server.kill()  # it would take seconds to say goodbye, and has nothing to keep


@contextmanager
def without_header(name: str, endpoint: str) -> Iterator[str]:
    """A proxy on loopback that passes requests on to an endpoint without a header; its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {key: value for key, value in self.headers.items() if key.lower() != name.lower()}
            connection = http.client.HTTPConnection(endpoint.removeprefix("http://"))
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            self.send_response_only(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(key, value)
            length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(content)
            connection.close()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class SentRequest(NamedTuple):
    """A request that botocore's connections in this process send."""

    method: str
    path: str
    #: By names in lower case.
    headers: dict[str, str]


@contextmanager
def sent_requests() -> Iterator[list[SentRequest]]:
    """What this process sends to AWS in the block, by clients of boto3 or through their connections."""
    send = URLLib3Session.send
    sent: list[SentRequest] = []

    def note_and_send(session: URLLib3Session, request: AWSPreparedRequest) -> Any:
        given: Iterable[tuple[str, Any]] = request.headers.items()  # bytes among them
        headers = {name.lower(): value.decode() if isinstance(value, bytes) else value for name, value in given}
        sent.append(SentRequest(request.method, urlsplit(request.url).path, headers))
        return send(session, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(URLLib3Session, "send", note_and_send)
        yield sent


class ServedRequest(NamedTuple):
    """A request to a bucket of moto's server."""

    method: str
    #: Empty for a request about the bucket itself.
    key: str
    #: Parameters of the query, of which a LIST has its prefix.
    query: dict[str, str]

    @property
    def is_list(self) -> bool:
        return "list-type" in self.query


@contextmanager
def served_requests(bucket: str) -> Iterator[list[ServedRequest]]:
    """What moto's server is asked about a bucket in the block, by any client: boto3, PyArrow or Spark."""
    served: list[ServedRequest] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = re.sub(r"\x1b\[[0-9;]*m", "", record.getMessage())  # colours, but for the status 200
            if found := re.search(r'"([A-Z]+) /([^/? ]+)/?([^? ]*)\??(\S*) HTTP/', line):
                method, asked, key, query = found.groups()
                if asked == bucket:
                    served.append(ServedRequest(method, unquote(key), dict(parse_qsl(query))))

    log, handler = logging.getLogger("werkzeug"), Handler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield served
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


def put_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let moto decide between writers of one key in one step, as S3 does. It looks first, and stores afterwards."""
    put, one_at_a_time = S3Response.put_object, Lock()

    def put_alone(response: S3Response) -> Any:
        with one_at_a_time:
            return put(response)

    monkeypatch.setattr(S3Response, "put_object", put_alone)


@contextmanager
def s3_server(request: pytest.FixtureRequest, name: str) -> Iterator[Any]:
    fixture = "aws_endpoint" if name == "moto" else "s3proxy_endpoint"
    with clients_of(request.getfixturevalue(fixture)) as client:
        yield client


@cache
def session_of(key: str) -> boto3.Session:
    """Shared, for it takes most of the time that making a client takes."""
    return boto3.Session(aws_access_key_id=key, aws_secret_access_key=KEY)


@contextmanager
def clients_of(endpoint: str) -> Iterator[Any]:
    def client(service: Any, region: str | None, config: Any) -> Any:
        session = session_of(os.environ.get("AWS_ACCESS_KEY_ID", KEY))
        return session.client(service, region or REGION, config=config, endpoint_url=endpoint)

    with aws.clients_from(client):
        yield client("s3", None, None)


def answer(request: Any, status: int, code: str) -> AWSResponse:
    return answer_with(request, status, f"<Error><Code>{code}</Code><Message>made up</Message></Error>".encode())


def answer_with(request: Any, status: int, body: bytes) -> AWSResponse:
    raw = io.BytesIO(body)
    raw.stream = lambda **_: iter([body])  # type: ignore[attr-defined]
    return AWSResponse(request.url, status, HTTPHeaders(), raw)
