"""The AWS that the tests simulate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.request import Request, urlopen

from botocore.loaders import JSONFileLoader

REGION = "us-east-1"
#: The role that jobs run with.
ROLE = "arn:aws:iam::123456789012:role/hive-to-delta"


def read_service_models_once() -> None:
    """Keep what botocore reads of each service for all clients of this process, which it does for those of a session.

    Every task of a DAG has a session of its own, and reading the description of S3 or Glue takes longer than the task.
    """
    read = JSONFileLoader.load_file
    loader = JSONFileLoader()

    @cache
    def load(path: str) -> Any:
        return read(loader, path)

    JSONFileLoader.load_file = lambda _, path: load(path)  # type: ignore[method-assign,assignment]


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
