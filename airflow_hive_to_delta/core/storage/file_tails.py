"""Reading the end of a Parquet file, where its footer is, from any storage.

One request is enough for most files. A read that breaks off is tried again a few times, because among a million answers
some are always cut short.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from time import sleep
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs

from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    MissingError,
    PermanentError,
    StaleFileListError,
    TransientError,
    UnreachableStorageError,
)
from airflow_hive_to_delta.core.storage.s3_tails import tail_reader
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.options import ConversionOptions
    from airflow_hive_to_delta.core.storage.web_hdfs import WebHdfs


#: The most seconds to wait before the second, third and last attempt to read a file. A random time between half of it
#: and all of it is waited, so that the threads of a worker do not try again all at once.
PAUSES = (0.5, 2.0, 8.0)
#: In the errors of pyarrow's clients: an identity that is known may not read this file. All else before a file is
#: opened is taken for a worker without an identity.
_DENIED_BY_ARROW = ("PERMISSION_DENIED", "AuthorizationPermissionMismatch", "Permission denied")


@dataclass(frozen=True)
class Tail:
    """The last bytes of a file, and by what a file that replaces it is recognised."""

    data: bytes
    file_size: int
    #: Milliseconds since 1970.
    modification_time: int
    #: The ETag, or the modification time on storages that have none.
    version: str


#: Reads this many of a file's last bytes; of this version of the file, if one is given.
_Read = Callable[[Location, int, str | None, "ConversionOptions"], Tail]


def read_tail(
    location: Location, size: int, options: ConversionOptions, web_hdfs: Mapping[str, WebHdfs] | None = None
) -> tuple[bytes, int]:
    """The end of a file, with its whole footer in it, and the file's modification time in milliseconds since the epoch.

    :param size: the size of the file by its listing.
    :param web_hdfs: by the authority of an HDFS: the service over which its files are read.
    :raises StaleFileListError: the file does not exist, has another size, or was rewritten between two reads.
    :raises UnreachableStorageError: this process has no access of its own to the storage.
    :raises PermanentError: the file cannot be read.
    :raises TransientError: the storage failed in every attempt.
    """
    read = _reader(location, web_hdfs or {})
    tail = _retried(read, location, min(size, max(options.footer_tail_bytes, 8)), None, options)
    if tail.file_size != size:
        raise StaleFileListError(
            f"The file {location} has {tail.file_size} bytes, but {size} were listed: it was rewritten since, or the "
            "list is of another table. List the files again"
        )
    # The last 8 bytes are the footer's length and the magic bytes.
    needed = int.from_bytes(tail.data[-8:-4], "little") + 8
    if needed > len(tail.data) and tail.data.endswith(b"PAR1") and needed <= size:
        first = tail
        tail = _retried(read, location, needed, first.version, options)
        if (tail.version, tail.file_size) != (first.version, size):
            raise _rewritten(location)
    return tail.data, tail.modification_time


def _reader(location: Location, web_hdfs: Mapping[str, WebHdfs]) -> _Read:
    if location.scheme == "file":
        return _read_local
    if location.scheme in S3_SCHEMES:
        return _read_s3
    if location.scheme == "hdfs" and (service := web_hdfs.get(location.authority)) is not None:
        return lambda path, length, _version, _options: _read_web_hdfs(path, length, service)
    return _read_arrow


def _retried(read: _Read, location: Location, length: int, version: str | None, options: ConversionOptions) -> Tail:
    for pause in (*PAUSES, None):
        try:
            return _read_whole(read, location, length, version, options)
        except TransientError as error:
            if pause is None:
                raise TransientError(f"{error} (tried {len(PAUSES) + 1} times)") from error
        sleep(random.uniform(pause / 2, pause))  # noqa: S311
    raise AssertionError("the last attempt returns or raises")


def _read_whole(read: _Read, location: Location, length: int, version: str | None, options: ConversionOptions) -> Tail:
    tail = read(location, length, version, options)
    expected = min(length, tail.file_size)
    if len(tail.data) != expected:
        raise TransientError(f"Reading the footer of {location} gave {len(tail.data)} bytes, expected {expected}")
    return tail


def _rewritten(location: Location) -> StaleFileListError:
    return StaleFileListError(
        f"The file {location} was rewritten while its footer was read, so it is not the file that was listed. "
        "List the files again, in a window without other writers"
    )


def _read_local(location: Location, length: int, _version: str | None, _options: ConversionOptions) -> Tail:
    try:
        descriptor = os.open(location.path, os.O_RDONLY)
    except FileNotFoundError:
        raise StaleFileListError(f"The file {location} does not exist. List the files again") from None
    except OSError as error:
        raise PermanentError(f"The file {location} cannot be opened: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        data = os.pread(descriptor, length, max(status.st_size - length, 0))
    except OSError as error:
        raise PermanentError(f"The file {location} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    version = f"{status.st_ino} {status.st_mtime_ns}"
    return Tail(data, status.st_size, status.st_mtime_ns // 1_000_000, version)


def _read_s3(location: Location, length: int, version: str | None, options: ConversionOptions) -> Tail:
    try:
        from botocore.exceptions import ClientError, NoCredentialsError
        from urllib3.exceptions import HTTPError
    except ImportError as error:
        raise UnreachableStorageError(
            f"The footer of {location} cannot be read by a Python worker without boto3: {error}"
        ) from error

    from airflow_hive_to_delta.core.storage import aws
    from airflow_hive_to_delta.core.storage.aws_errors import aws_call

    doing = f"Reading the footer of {location}"
    arguments = {"IfMatch": version} if version else {}
    try:
        client = aws.s3_client(location.authority, options.region, options.expected_bucket_owner)
        tails = tail_reader(client) if version is None else None
        if tails and (found := tails.read(location.authority, location.key, length, options.expected_bucket_owner)):
            data, headers = found
            return _tail_of(data, headers, parsedate_to_datetime(headers["Last-Modified"]))
        with aws_call(doing):
            try:
                answer = client.get_object(
                    Bucket=location.authority,
                    Key=location.key,
                    Range=f"bytes=-{length}",
                    **arguments,  # type: ignore[arg-type]
                    **aws.owner(options.expected_bucket_owner),  # type: ignore[arg-type]
                )
            except ClientError as error:
                code = str(error.response.get("Error", {}).get("Code", ""))
                if code == "InvalidRange":  # an empty object has no last bytes
                    return Tail(b"", 0, 0, "")
                if code in ("PreconditionFailed", "412"):
                    raise _rewritten(location) from error
                raise
            # botocore does not try again once the answer has begun.
            data = answer["Body"].read()
            if tails:
                tails.learn(location.authority, location.key)
    except MissingError as error:
        raise StaleFileListError(f"{error}. List the files again") from error
    except AccessDeniedError as error:
        if isinstance(error.__cause__, NoCredentialsError):
            raise UnreachableStorageError(str(error)) from error
        raise
    except (HTTPError, OSError) as error:
        raise TransientError(f"{doing}: {error}") from error
    return _tail_of(data, answer["ResponseMetadata"]["HTTPHeaders"], answer["LastModified"])


def _tail_of(data: bytes, headers: Mapping[str, str], modified: datetime) -> Tail:
    """What a GET of an object gave.

    :param headers: of the answer. Those of botocore have lower-case names, or ignore case.
    """
    total = headers.get("content-range", "").rpartition("/")[2]
    return Tail(data, int(total or len(data)), int(modified.timestamp() * 1000), headers.get("etag", ""))


def _read_web_hdfs(location: Location, length: int, service: WebHdfs) -> Tail:
    try:
        before = service.status(location.path)
        data = service.read(location.path, max(before.size - length, 0), min(length, before.size))
    except MissingError as error:
        raise StaleFileListError(f"The file {location} does not exist. List the files again") from error
    version = f"{before.file_id} {before.modification_time}"
    return Tail(data, before.size, before.modification_time, version)


def _read_arrow(location: Location, length: int, _version: str | None, _options: ConversionOptions) -> Tail:
    try:
        # Google's client would ask for a token for a quarter of an hour.
        limit = "?retry_limit_seconds=20" if location.scheme == "gs" else ""
        storage, path = pyarrow.fs.FileSystem.from_uri(f"{location.scheme}://{location.authority}/{limit}")
        path = f"{path.rstrip('/')}{location.path}"
        info = storage.get_file_info(path)
    except (pa.ArrowException, OSError, ImportError) as error:
        if any(text in str(error) for text in _DENIED_BY_ARROW):
            raise AccessDeniedError(
                f"Reading the footer of {location}: {error}. Grant this identity access, or run with another one"
            ) from error
        raise UnreachableStorageError(
            f"The footer of {location} cannot be read by a Python worker: {error}. "
            'Pass ConversionOptions(stats="scan"), so that Spark itself reads the files'
        ) from error
    if info.type == pyarrow.fs.FileType.NotFound:
        raise StaleFileListError(f"The file {location} does not exist. List the files again")
    try:
        with storage.open_input_file(path) as file:
            data = file.read_at(length, max(info.size - length, 0))
    except (pa.ArrowException, OSError) as error:
        raise PermanentError(f"The footer of {location} cannot be read: {error}") from error
    return Tail(data, info.size, (info.mtime_ns or 0) // 1_000_000, str(info.mtime_ns))
