"""WebHDFS by its protocol: which name node is asked, what answers mean, and connections that end."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    HiveToDeltaError,
    MissingError,
    TransientError,
    UnreachableStorageError,
)
from airflow_hive_to_delta.core.storage.web_hdfs import FileStatus, WebHdfs, name_node_addresses

CONTENT = bytes(range(100))
#: The status, the headers and the body of an answer.
Answer = tuple[int, dict[str, str], bytes]


def remote_error(status: int, name: str) -> Answer:
    return status, {}, json.dumps({"RemoteException": {"exception": name, "message": "as it says\nat x.Y"}}).encode()


class Node(ThreadingHTTPServer):
    """A name node that answers as a test says, and the data node that it sends readers to."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str, dict[str, str]], Answer | None]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.connections = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Node
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        answer = self.server.answer(unquote(parts.path), query)
        if answer is None:
            self.close_connection = True
            return
        status, headers, body = answer
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(answer: Callable[[str, dict[str, str]], Answer | None]) -> Iterator[Node]:
    node = Node(answer)
    thread = Thread(target=node.serve_forever)
    thread.start()
    try:
        yield node
    finally:
        node.shutdown()
        thread.join()
        node.server_close()


def file_of(user: str) -> Callable[[str, dict[str, str]], Answer]:
    """The answers for one file, which a data node gives to the user."""

    def answer(path: str, query: dict[str, str]) -> Answer:
        if path == "/webhdfs/v1/data/a b#?%20/f" and query["op"] == "GETFILESTATUS":
            status = {"length": len(CONTENT), "modificationTime": 7, "fileId": 16_386}
            return 200, {}, json.dumps({"FileStatus": status}).encode()
        if path.startswith("/webhdfs"):
            assert query["user.name"] == user
            return 307, {"Location": f"/datanode?offset={query['offset']}&length={query['length']}"}, b""
        start = int(query["offset"])
        return 200, {}, CONTENT[start : start + int(query["length"])]

    return answer


def test_a_part_of_a_file_comes_from_a_data_node_and_connections_are_kept() -> None:
    with serving(file_of("hive")) as node:
        service = pickle.loads(pickle.dumps(WebHdfs((node.address,), "hive")))
        assert service.status("/data/a b#?%20/f") == FileStatus(100, 7, 16_386)
        for start in (0, 90):
            assert service.read("/data/a b#?%20/f", start, 10) == CONTENT[start : start + 10]
        assert node.connections == 1


def test_a_standby_and_a_name_node_that_is_down_are_passed_over() -> None:
    with serving(lambda *_: remote_error(403, "StandbyException")) as standby, serving(file_of("x")) as active:
        service = WebHdfs(("http://127.0.0.1:9", standby.address, active.address), "x")
        assert service.status("/data/a b#?%20/f").size == 100
        with pytest.raises(TransientError, match=r"StandbyException: as it says$"):
            WebHdfs(("http://127.0.0.1:9", standby.address), "x").status("/f")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (remote_error(404, "FileNotFoundException"), MissingError),
        (remote_error(403, "AccessControlException"), AccessDeniedError),
        (remote_error(401, "AuthenticationException"), UnreachableStorageError),
        ((401, {"WWW-Authenticate": "Negotiate"}, b"<html>"), UnreachableStorageError),
        ((403, {}, b"<html>a proxy</html>"), UnreachableStorageError),
        ((404, {}, b"<html>WebHDFS is turned off</html>"), UnreachableStorageError),
        ((200, {"Connection": "close"}, b"<html>log in</html>"), UnreachableStorageError),
        ((502, {}, b""), TransientError),
        (remote_error(500, "IOException"), TransientError),
        (None, TransientError),
    ],
)
def test_what_an_answer_means(answer: Answer | None, kind: type[HiveToDeltaError]) -> None:
    with serving(lambda *_: answer) as node, pytest.raises(HiveToDeltaError) as caught:
        WebHdfs((node.address,), "x").status("/t/f")
    assert type(caught.value) is kind


def test_a_connection_that_the_server_has_closed_meanwhile_is_made_anew() -> None:
    asked: list[str] = []

    def answer(path: str, query: dict[str, str]) -> Answer | None:
        asked.append(path)
        return None if len(asked) == 2 else file_of("x")(path, query)

    with serving(answer) as node:
        service = WebHdfs((node.address,), "x")
        assert [service.status("/data/a b#?%20/f").size for _ in range(2)] == [100, 100]
        assert node.connections == 2


@pytest.mark.parametrize(
    ("authority", "conf", "expected"),
    [
        ("nn:8020", {}, ["http://nn:9870"]),
        ("nn:8020", {"dfs.namenode.http-address": "0.0.0.0:50070"}, ["http://nn:50070"]),
        ("nn:8020", {"dfs.namenode.http-address": "web:9870"}, ["http://web:9870"]),
        ("nn", {"dfs.http.policy": "HTTPS_ONLY"}, ["https://nn:9871"]),
        (
            "lake",
            {
                "dfs.ha.namenodes.lake": "nn1, nn2",
                "dfs.namenode.http-address.lake.nn1": "a:9870",
                "dfs.namenode.http-address.lake.nn2": "b:9870",
            },
            ["http://a:9870", "http://b:9870"],
        ),
        ("lake", {"dfs.ha.namenodes.lake": "nn1"}, []),
    ],
)
def test_the_addresses_of_name_nodes_are_those_of_the_configuration(
    authority: str, conf: dict[str, str], expected: list[str]
) -> None:
    assert list(name_node_addresses(authority, conf.get)) == expected
