"""The AWS that the tests simulate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

REGION = "us-east-1"
#: The role that jobs run with.
ROLE = "arn:aws:iam::123456789012:role/hive-to-delta"


@contextmanager
def checked_identities(endpoint: str) -> Iterator[None]:
    """Let moto's server check who asks, and what he may do, while the block runs."""
    _check_identities(endpoint, after_requests="0")
    try:
        yield
    finally:
        _check_identities(endpoint, after_requests="Infinity")


def _check_identities(endpoint: str, *, after_requests: str) -> None:
    headers = {"Content-Type": "text/plain"}
    urlopen(Request(f"{endpoint}/moto-api/reset-auth", after_requests.encode(), headers)).close()
