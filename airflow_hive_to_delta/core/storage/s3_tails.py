"""The last bytes of many objects in a bucket, each by one GET.

botocore takes over a millisecond of a processor's time for a request, most of it for what is equal for all objects of a
bucket: the rules for its endpoint, and the model of the operation. Where a table has thousands of files, that is what
its conversion waits for. So botocore makes the first request to a bucket itself, and further ones are made like it and
signed and sent by botocore's own signer and connections. Whatever is not a plain success is left to botocore, which
tries again and knows all errors.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_OWNER = "x-amz-expected-bucket-owner"
_ALGORITHM = "AWS4-HMAC-SHA256"
_readers: WeakKeyDictionary[Any, TailReader] = WeakKeyDictionary()
_lock = threading.Lock()


@dataclass(frozen=True)
class _Example:
    """What requests to a bucket have in common, after one that botocore has made."""

    #: The address of an object before its key.
    prefix: str
    region: str
    user_agent: str


@dataclass
class TailReader:
    """Reads the last bytes of objects with the identity, the settings and the connections of a client."""

    credentials: Any
    session: Any
    #: By bucket; None: its requests are left to botocore.
    _examples: dict[str, _Example | None] = field(default_factory=dict)
    _made: threading.local = field(default_factory=threading.local)

    def read(self, bucket: str, key: str, length: int, owner: str | None) -> tuple[bytes, Mapping[str, str]] | None:
        """The last bytes of an object, and the headers of the answer; None: ask by ``get_object``.

        :param length: how many.
        :param owner: the account that the bucket must belong to.
        """
        example = self._examples.get(bucket)
        if example is None:
            return None
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        headers = {"Range": f"bytes=-{length}", "User-Agent": example.user_agent}
        if owner:
            headers[_OWNER] = owner
        request = AWSRequest("GET", example.prefix + _quoted(key), headers=headers)
        try:
            S3SigV4Auth(self.credentials.get_frozen_credentials(), "s3", example.region).add_auth(request)
            answer = self.session.send(request.prepare())
        except (BotoCoreError, OSError):
            return None
        if answer.status_code in (200, 206):
            return answer.content, answer.headers
        if 300 <= answer.status_code < 500:
            # If it is not the object's own fault, it would come again with every object.
            self._examples[bucket] = None
        return None

    def learn(self, bucket: str, key: str) -> None:
        """Make further requests to a bucket like the one by which botocore has just read an object, in this thread."""
        request = getattr(self._made, "request", None)
        if request is not None and bucket not in self._examples:
            self._examples[bucket] = _example_of(request, _quoted(key))

    def note(self, request: Any, **_: Any) -> None:
        """Remember a request that botocore sends in this thread."""
        self._made.request = request


def tail_reader(client: S3Client) -> TailReader | None:
    """The reader for a client; None where its botocore does not give what is needed."""
    with _lock:
        found = _readers.get(client)
        if found is None:
            with suppress(AttributeError):
                any_client: Any = client
                found = TailReader(any_client._request_signer._credentials, any_client._endpoint.http_session)
                client.meta.events.register("before-send.s3.GetObject", found.note)
                _readers[client] = found
    return found


def _example_of(request: Any, key: str) -> _Example | None:
    """What a request to an object has in common with others; None where it is not signed in the usual way."""

    def text(value: str | bytes) -> str:
        return value if isinstance(value, str) else value.decode()

    signed = text(request.headers.get("Authorization", ""))
    algorithm, _, fields = signed.partition(" Credential=")
    scope = fields.partition(",")[0].split("/")[-4:]
    if algorithm != _ALGORITHM or scope[2:] != ["s3", "aws4_request"] or not request.url.endswith(f"/{key}"):
        return None
    return _Example(request.url.removesuffix(key), scope[1], text(request.headers.get("User-Agent", "")))


def _quoted(key: str) -> str:
    return quote(key, safe="/~")
