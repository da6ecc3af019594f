"""Clients of AWS, each made once per process and identity, and the regions of buckets.

boto3 is imported where it is used: a cluster on premises need not have it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.errors import MissingError
from airflow_hive_to_delta.core.storage.aws_errors import is_expired, translate_aws_error

if TYPE_CHECKING:
    from botocore.config import Config
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_s3 import S3Client

#: Connections that one client keeps open; no pool of threads in this package is larger.
MAX_CONNECTIONS = 64

_region_lock = threading.Lock()
_regions: dict[str, str] = {}


#: Makes a client from a service, a region and boto3's settings for it.
ClientFactory = Callable[[str, str | None, "Config"], Any]


@contextmanager
def clients_from(factory: ClientFactory) -> Iterator[None]:
    """Inside the block all clients are made by ``factory``, and so have its identity instead of the environment's."""
    global _make_client
    before = _make_client
    _make_client = factory
    _client.cache_clear()
    try:
        yield
    finally:
        _make_client = before
        _client.cache_clear()


def glue_client(region: str | None = None) -> GlueClient:
    """A client for Glue in a region; in that of the environment when none is given."""
    return _client("glue", region)  # type: ignore[no-any-return]


def s3_client(bucket: str, region: str | None = None, expected_bucket_owner: str | None = None) -> S3Client:
    """A client in the bucket's own region.

    :param region: where to ask for the bucket's region.
    :raises MissingError: there is no such bucket.
    """
    return _client("s3", bucket_region(bucket, region, expected_bucket_owner))  # type: ignore[no-any-return]


def bucket_region(bucket: str, region: str | None = None, expected_bucket_owner: str | None = None) -> str | None:
    """The region of a bucket, which is asked for once per bucket and process."""
    with _region_lock:
        if bucket not in _regions:
            _regions[bucket] = _find_region(bucket, region, expected_bucket_owner)
        return _regions[bucket] or region


def owner(expected_bucket_owner: str | None) -> dict[str, str]:
    """The argument of a request by which S3 refuses a bucket of another account (rule 54); none without an account."""
    return {"ExpectedBucketOwner": expected_bucket_owner} if expected_bucket_owner else {}


def _find_region(bucket: str, region: str | None, expected_bucket_owner: str | None) -> str:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer: Any = _client("s3", region).head_bucket(Bucket=bucket, **owner(expected_bucket_owner))
    except ClientError as error:
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        # S3 gives the region even when it denies access to the bucket; rights to list and to read are separate.
        if found := headers.get("x-amz-bucket-region"):
            return str(found)
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404:
            raise MissingError(
                f"There is no bucket {bucket}: it was deleted, or its name is wrong. Restore it, or correct the "
                "location that names it"
            ) from error
        raise translate_aws_error(error, f"Finding the region of the bucket {bucket}") from error
    except BotoCoreError as error:
        raise translate_aws_error(error, f"Finding the region of the bucket {bucket}") from error
    return str(answer.get("BucketRegion") or answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", ""))


@lru_cache(maxsize=32)
def _client(service: Any, region: str | None) -> Any:
    from botocore.config import Config

    config = Config(
        max_pool_connections=MAX_CONNECTIONS,
        retries={"mode": "standard", "max_attempts": 8},
        user_agent_extra="airflow-hive-to-delta",
    )
    client = _make_client(service, region, config)
    client.meta.events.register("after-call", _forget_expired_clients)
    for operation in ("CopyObject", "UploadPartCopy"):
        client.meta.events.register(f"provide-client-params.s3.{operation}", _expect_owner_of_source)
    return client


def _forget_expired_clients(parsed: Any, **_: Any) -> None:
    """Drop the clients when credentials have expired: a client reads environment variables and files only once."""
    if isinstance(parsed, dict) and is_expired(str(parsed.get("Error", {}).get("Code", ""))):
        _client.cache_clear()


def _expect_owner_of_source(params: dict[str, Any], **_: Any) -> None:
    """Make S3 check the owner of the source of a copy too, for which boto3's ``copy`` has no argument."""
    if expected := params.get("ExpectedBucketOwner"):
        params["ExpectedSourceBucketOwner"] = expected


def _from_environment(service: Any, region: str | None, config: Config) -> Any:
    import boto3

    return boto3.session.Session().client(service, region_name=region, config=config)


_make_client: ClientFactory = _from_environment
