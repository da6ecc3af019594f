"""A server on loopback that speaks an API of AWS, and holds every request and answer against botocore's model of it."""

from __future__ import annotations

import json
import os
import re
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StringShape, StructureShape
from botocore.session import get_session
from botocore.validate import ParamValidator

from airflow_hive_to_delta.engines import JobSpec
from tests.support.platforms import Platform, PlatformJob
from tests.support.spark_submit_runs import write_spark_defaults

#: A job that engines on AWS can run.
SPEC = JobSpec(
    "Convert sales.orders",
    "s3://lake/staging/job/_request.json",
    "s3://lake/staging/job",
    "dag-1-2-abc",
    package_uri="s3://lake/staging/packages/core.zip",
    main_uri="s3://lake/staging/packages/run_job.py",
    timeout=90,
)
#: An operation, and the arguments that it was called with.
Operation = tuple[OperationModel, dict[str, Any]]
#: By HTTP status, an error code that the platforms give with it.
_CODES = {
    403: "AccessDeniedException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}


class ApiError(Exception):
    """An error that the API answers with."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass
class JobRun:
    """A run of a job on a platform of AWS."""

    job: PlatformJob
    #: The arguments of StartJobRun.
    asked: dict[str, Any]
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    #: What the platform calls its state, where that does not follow from the state of the job.
    state: str | None = None


class AwsPlatform(Platform):
    """A stand-in for a platform of AWS.

    :param folder: a folder of its own.
    :param staging: a staging root that its jobs can read.
    """

    #: The name of the API in botocore.
    service: str
    #: How many runs one answer lists.
    page: int

    def __init__(self, folder: Path, *, staging: str) -> None:
        super().__init__(folder)
        self.staging = staging
        #: The runs of jobs by their ids, the oldest first.
        self.runs: dict[str, JobRun] = {}
        #: How the next submissions are refused.
        self.refusals: list[ApiError] = []
        #: Every operation that was called, in order.
        self.called: list[str] = []
        #: Each action that this takes, and the ARN of what it is for.
        self.asked: set[tuple[str, str]] = set()
        self.lock = threading.RLock()
        self.model: ServiceModel = get_session().get_service_model(self.service)
        write_spark_defaults(folder)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"platform": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name=self.service, daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        #: The variable in which clients find the stand-in.
        self.endpoint_variable = f"AWS_ENDPOINT_URL_{self.service.upper().replace('-', '_')}"
        os.environ[self.endpoint_variable] = self.endpoint

    def stop_server(self) -> None:
        os.environ.pop(self.endpoint_variable, None)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def operate(self, operation: OperationModel, arguments: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """Carry out an operation. Returns its answer, and whether the answer gets lost."""
        with self.lock:
            self.called.append(operation.name)
            self.asked |= self.actions(operation.name, arguments)
            if self.expired:
                raise ApiError(403, "ExpiredTokenException", "The security token included in the request is expired")
            lost = False
            if operation.name == "StartJobRun":
                if self.refusals:
                    raise self.refusals.pop(0)
                lost = self._fail(self.submit_failures)
            elif operation.name == "GetJobRun":
                lost = self._fail(self.failures)
            _check(arguments, operation.input_shape)
            method = getattr(self, re.sub(r"(?<!^)(?=[A-Z])", "_", operation.name).lower())
            answer: dict[str, Any] = method(arguments)
            assert operation.output_shape is not None
            report = ParamValidator().validate(answer, operation.output_shape)
            assert not report.has_errors(), report.generate_report()
            return answer, lost

    def _fail(self, failures: list[int | None]) -> bool:
        """Take the next failure. Returns whether the answer is to get lost."""
        if not failures:
            return False
        status = failures.pop(0)
        if status is not None:
            raise ApiError(status, _CODES[status], "as the test says")
        return True

    def start_run(
        self, asked: dict[str, Any], token: str, arguments: Sequence[str], timeout: float | None
    ) -> PlatformJob:
        """Begin the run that StartJobRun asks for.

        :param arguments: of the job's program.
        :param timeout: in seconds.
        """
        job = self.start(token, arguments, timeout)
        self.runs[job.id] = JobRun(job, asked)
        if self.runs_jobs:
            self.run_submitted(job, asked)
        return job

    @abstractmethod
    def actions(self, operation: str, asked: dict[str, Any]) -> set[tuple[str, str]]:
        """The actions that a policy has to allow for an operation, each with the ARN of what it is for."""

    @abstractmethod
    def run_submitted(self, job: PlatformJob, asked: dict[str, Any]) -> None:
        """Run what StartJobRun asks for by ``spark-submit``."""

    def list_runs(self, token: str | None, *, after: datetime | None = None) -> tuple[list[JobRun], str | None]:
        """A page of the runs, the newest first, and the token of the next page.

        :param token: that of the page; None for the first one.
        :param after: when the runs were started at the earliest.
        """
        newest = [run for run in reversed(self.runs.values()) if after is None or run.started > after]
        begin = int(token or 0)
        end = begin + self.page
        return newest[begin:end], str(end) if end < len(newest) else None

    @abstractmethod
    def find_operation(self, method: str, path: str, headers: Any, body: bytes) -> Operation:
        """The operation that a request is for, and its arguments.

        :raises LookupError: it is for none that the platform has.
        """

    def forward(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Answer a request for another part of the API."""
        raise ApiError(404, "UnknownOperationException", path)


P = TypeVar("P", bound=AwsPlatform)


@contextmanager
def open_platform(kind: type[P], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[P]:
    """A stand-in whose jobs run until the test ends them. Engines call it again without a pause."""
    monkeypatch.setattr("airflow_hive_to_delta.engines.aws._PAUSES", (0.0, 0.0, 0.0))
    platform = kind(folder, staging="s3://lake/staging")
    platform.held = None
    yield platform
    platform.close()


def rest_arguments(operation: OperationModel, path: str, body: bytes) -> dict[str, Any] | None:
    """The arguments of a request in the protocol rest-json; None: it is for another operation."""
    template = operation.http["requestUri"].partition("?")[0]
    pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(template))
    address = urlsplit(path)
    found = re.fullmatch(pattern, address.path)
    if found is None or operation.input_shape is None:
        return None
    arguments: dict[str, Any] = json.loads(body) if body else {}
    query = parse_qs(address.query)
    for name, shape in operation.input_shape.members.items():
        written = shape.serialization.get("name", name)
        if shape.serialization.get("location") == "uri":
            arguments[name] = unquote(found[written])
        elif shape.serialization.get("location") == "querystring" and written in query:
            first = query[written][0]
            kinds = {"list": query[written], "integer": int(first) if first.isdigit() else first}
            arguments[name] = kinds.get(shape.type_name, first)
    return arguments


def _check(arguments: dict[str, Any], shape: Shape | None) -> None:
    assert shape is not None
    report = ParamValidator().validate(arguments, shape)
    problems = [report.generate_report()] if report.has_errors() else list(_problems(arguments, shape, ""))
    if problems:
        raise ApiError(400, "ValidationException", "; ".join(problems))


def _problems(value: Any, shape: Shape, path: str) -> Iterator[str]:
    """What the model forbids and botocore itself does not check: lengths, patterns and enumerations."""
    if isinstance(shape, StructureShape):
        for name, member in value.items():
            yield from _problems(member, shape.members[name], f"{path}.{name}")
    elif isinstance(shape, ListShape):
        if len(value) > shape.metadata.get("max", len(value)):
            yield f"{path} has {len(value)} items"
        for member in value:
            yield from _problems(member, shape.member, f"{path}[]")
    elif isinstance(shape, MapShape):
        if len(value) > shape.metadata.get("max", len(value)):
            yield f"{path} has {len(value)} items"
        for name, member in value.items():
            yield from _problems(name, shape.key, f"{path} key")
            yield from _problems(member, shape.value, f"{path}.{name}")
    elif isinstance(shape, StringShape):
        if len(value) > shape.metadata.get("max", len(value)):
            yield f"{path} has {len(value)} characters"
        if shape.enum and value not in shape.enum:
            yield f"{path} is {value!r}"
        with suppress(re.error):  # a few patterns are not Python's
            if "pattern" in shape.metadata and not re.fullmatch(shape.metadata["pattern"], value, re.DOTALL):
                yield f"{path} is {value!r}"


class _Handler(BaseHTTPRequestHandler):
    platform: AwsPlatform
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        assert "AWS4-HMAC-SHA256" in self.headers["Authorization"], "requests are signed"
        try:
            try:
                operation, arguments = self.platform.find_operation(self.command, self.path, self.headers, body)
            except LookupError:
                self._send(*self.platform.forward(self.path, dict(self.headers), body))
                return
            answer, lost = self.platform.operate(operation, arguments)
        except ApiError as error:
            content = {"__type": error.code, "message": str(error)}
            self._send(error.status, json.dumps(content).encode(), {"x-amzn-ErrorType": error.code})
            return
        if lost:
            self.close_connection = True
            return
        self._send(200, json.dumps(answer, default=datetime.timestamp).encode())

    do_GET = do_POST = do_DELETE = _answer

    def _send(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: requests fail on purpose."""
