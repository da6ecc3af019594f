"""Credentials that are renewed while a job runs, served to it on this machine's loopback address.

The AWS SDKs ask the address in ``AWS_CONTAINER_CREDENTIALS_FULL_URI``, as they would ask the agent of a container, and
ask again before the credentials expire.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.credentials import Credentials

#: The lifetime given for credentials of which none is known: they are asked for again after this time.
_UNKNOWN_EXPIRY = timedelta(hours=1)

log = logging.getLogger(__name__)


@contextmanager
def serve_credentials(credentials: Credentials) -> Iterator[dict[str, str]]:
    """Serve the credentials inside the block. Yields the environment variables by which a process finds them.

    Only who sends the token gets an answer, and the token is different for every block.
    """
    server = _Server(credentials)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="aws-credentials", daemon=True)
    thread.start()
    try:
        yield {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{server.server_port}/",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": server.token,
        }
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token = secrets.token_urlsafe(32)
        self._credentials = credentials
        self._lock = threading.Lock()

    def current(self) -> dict[str, str]:
        """The credentials as an SDK reads them, renewed when their end is near."""
        with self._lock:  # the keys and the time of their end must belong together
            keys: Any = self._credentials.get_frozen_credentials()
            ends = getattr(self._credentials, "_expiry_time", None) or datetime.now(UTC) + _UNKNOWN_EXPIRY
        return {
            "AccessKeyId": keys.access_key,
            "SecretAccessKey": keys.secret_key,
            "Token": keys.token,
            "Expiration": ends.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            self._answer(HTTPStatus.FORBIDDEN, {"code": "Forbidden", "message": "The token is missing or wrong"})
            return
        try:
            found = self.server.current()
        except Exception as error:
            log.warning("The credentials of the job could not be renewed: %s", error)
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"code": type(error).__name__, "message": str(error)})
            return
        self._answer(HTTPStatus.OK, found)

    def _answer(self, status: HTTPStatus, document: dict[str, str]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: a job makes many requests."""
