"""The storage of a table's log: put-if-absent, read, list; on S3, on local disk and on Hadoop file systems.

Nothing here overwrites anything (rule 2). Data files pass through here only to be deleted by a vacuum, or moved out of
Hive's sight by a rollback.
"""

from __future__ import annotations

import errno
import io
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from airflow_hive_to_delta.core import aws
from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    HiveToDeltaError,
    MissingError,
    PermanentError,
    TransientError,
    aws_call,
    of_aws,
)
from airflow_hive_to_delta.core.models import ConversionOptions
from airflow_hive_to_delta.core.paths import S3_SCHEMES, Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEBIBYTE = 1024 * 1024
#: Entries up to this size go to S3 in one request, held in memory so that it can be sent again.
MULTIPART_OVER = 64 * MEBIBYTE


class StoredFile(NamedTuple):
    """A file in a folder."""

    name: str
    size: int
    #: Milliseconds since the epoch.
    modified: int


class Storage(Protocol):
    """Where log entries are kept."""

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        """Write all of ``source``, a seekable local file. False: something is there already, and is left as it is.

        Readers see the whole entry or none. ``TransientError``: whether it was written is not known.
        """

    def open(self, path: Location) -> BinaryIO:
        """Read an entry from its beginning, as a stream. ``MissingError``: there is none."""

    def size(self, path: Location) -> int:
        """The size of an entry in bytes. ``MissingError``: there is none."""

    def list_names(self, folder: Location) -> list[str]:
        """The names directly in a folder, folders with a trailing ``/``. Empty when the folder is absent."""

    def entries(self, folder: Location) -> list[StoredFile]:
        """The files directly in a folder, without the folders in it. Empty when the folder is absent."""

    def delete(self, path: Location) -> None:
        """Delete a file. One that is not there is as good as deleted."""

    def delete_files(self, paths: Sequence[Location]) -> dict[Location, HiveToDeltaError]:
        """Delete many files, as few requests as the storage allows. Which of them could not be deleted, and why."""

    def remove_folder(self, folder: Location) -> None:
        """Take away an empty folder, or the marker of one. It stays as it is when there is anything in it."""

    def move(self, source: Location, target: Location) -> None:
        """Move a file to a place that nobody else writes to. Safe to call again after a crash in the middle.

        ``MissingError``: it is at neither place.
        """


def storage_for(location: Location, spark: SparkSession | None, options: ConversionOptions) -> Storage:
    """The storage that a location lies on. Only a Hadoop file system (HDFS, ABFS, GCS) needs the Spark session."""
    if location.scheme in S3_SCHEMES:
        return S3Storage(options)
    if location.scheme == "file":
        return LocalStorage()
    from airflow_hive_to_delta.core.hadoop_storage import HadoopStorage

    return HadoopStorage(spark)


class S3Storage:
    """S3 through boto3, with conditional writes (rule 2), the bucket's owner and the KMS key (rule 54)."""

    def __init__(self, options: ConversionOptions, *, multipart_over: int = MULTIPART_OVER) -> None:
        self._region = options.region
        self._expected_owner = options.expected_bucket_owner
        self._owner = aws.owner(options.expected_bucket_owner)
        self._encryption = (
            {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": options.sse_kms_key_id} if options.sse_kms_key_id else {}
        )
        self._multipart_over = multipart_over

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        doing = f"Writing {path}"
        size = _size_of(source)
        upload = self._put if size <= self._multipart_over else self._put_in_parts
        for attempt in range(_CONFLICT_TRIES):
            source.seek(0)
            try:
                upload(self._client(path), path, source, size)
            except ClientError as error:
                code, status = _answer(error)
                if status == 412:
                    return False
                if code == "NoSuchUpload":
                    # The upload was completed by a request whose answer was lost, or aborted by somebody else.
                    raise TransientError(f"{doing}: the multipart upload is gone; it may have succeeded") from error
                if status == 501:
                    raise PermanentError(
                        f"{doing}: {code}: this S3 endpoint does not know conditional writes (If-None-Match), and "
                        "without them a log entry could be overwritten. Use a storage that has them"
                    ) from error
                if status != 409:
                    raise of_aws(error, doing) from error
                # Somebody writes the same key at this moment: nothing of ours landed, so upload it again (rule 2).
                time.sleep(0.05 * 2**attempt)
            except BotoCoreError as error:
                raise of_aws(error, doing) from error
            else:
                return True
        raise TransientError(
            f"{doing}: others were writing the same entry in each of {_CONFLICT_TRIES} tries; try again later"
        )

    def open(self, path: Location) -> BinaryIO:
        doing = f"Reading {path}"
        with aws_call(doing):
            body = self._client(path).get_object(Bucket=path.authority, Key=path.key, **self._owner)["Body"]

        def read(count: int) -> bytes:
            with aws_call(doing):
                return bytes(body.read(count))

        return stream_of(read, body.close)

    def size(self, path: Location) -> int:
        with aws_call(f"Looking for {path}"):
            head = self._client(path).head_object(Bucket=path.authority, Key=path.key, **self._owner)
        return int(head["ContentLength"])

    def list_names(self, folder: Location) -> list[str]:
        prefix = _prefix(folder)
        names = []
        for page in self._pages(folder):
            names += [entry["Key"][len(prefix) :] for entry in page.get("Contents", [])]
            names += [entry["Prefix"][len(prefix) :] for entry in page.get("CommonPrefixes", [])]
        return [name for name in names if name]  # the folder's own marker has no name

    def entries(self, folder: Location) -> list[StoredFile]:
        start = len(_prefix(folder))
        found = []
        for page in self._pages(folder):
            for entry in page.get("Contents", []):
                modified = round(entry["LastModified"].timestamp() * 1000)
                found.append(StoredFile(entry["Key"][start:], entry["Size"], modified))
        return [file for file in found if file.name]  # the folder's own marker has no name

    def delete(self, path: Location) -> None:
        with aws_call(f"Deleting {path}"):
            self._client(path).delete_object(Bucket=path.authority, Key=path.key, **self._owner)

    def delete_files(self, paths: Sequence[Location]) -> dict[Location, HiveToDeltaError]:
        failed: dict[Location, HiveToDeltaError] = {}
        buckets: dict[str, list[Location]] = {}
        for path in paths:
            buckets.setdefault(path.authority, []).append(path)
        for bucket, found in buckets.items():
            for start in range(0, len(found), _DELETES_PER_REQUEST):
                by_key = {path.key: path for path in found[start : start + _DELETES_PER_REQUEST]}
                doing = f"Deleting {len(by_key)} files of the bucket {bucket}"
                request = {"Objects": [{"Key": key} for key in by_key], "Quiet": True}
                try:
                    with aws_call(doing):
                        client = self._client(found[start])
                        answer = client.delete_objects(Bucket=bucket, Delete=request, **self._owner)
                except HiveToDeltaError as error:
                    failed |= dict.fromkeys(by_key.values(), error)
                    continue
                for said in answer.get("Errors", []):
                    path = by_key[said["Key"]]
                    failed[path] = of_aws(ClientError({"Error": said}, "DeleteObjects"), f"Deleting {path}")
        return failed

    def remove_folder(self, folder: Location) -> None:
        # S3 has no folders, but Hadoop's client writes an empty object in the place of each, and believes in it.
        with aws_call(f"Deleting the marker of {folder}"):
            self._client(folder).delete_object(Bucket=folder.authority, Key=f"{folder.key}/", **self._owner)

    def move(self, source: Location, target: Location) -> None:
        doing = f"Moving {source} to {target}"
        try:
            with aws_call(doing):
                # In parts where one request cannot copy it.
                self._client(target).copy(
                    {"Bucket": source.authority, "Key": source.key},
                    target.authority,
                    target.key,
                    ExtraArgs={**self._owner, **self._encryption},
                    SourceClient=self._client(source),
                )
        except MissingError:
            self.size(target)  # an earlier call got as far as this
        self.delete(source)

    def _pages(self, folder: Location) -> Iterator[dict[str, Any]]:
        """What lies directly in a folder, in the pages of a LIST request."""
        with aws_call(f"Listing {folder}"):
            pages = self._client(folder).get_paginator("list_objects_v2")
            yield from pages.paginate(Bucket=folder.authority, Prefix=_prefix(folder), Delimiter="/", **self._owner)

    def _client(self, path: Location) -> Any:
        return aws.s3_client(path.authority, self._region, self._expected_owner)

    def _put(self, client: Any, path: Location, source: BinaryIO, _size: int) -> None:
        # Bytes, not the file: the client sends them again by itself when a connection breaks.
        client.put_object(
            Bucket=path.authority,
            Key=path.key,
            Body=source.read(),
            IfNoneMatch="*",
            **self._owner,
            **self._encryption,
        )

    def _put_in_parts(self, client: Any, path: Location, source: BinaryIO, size: int) -> None:
        where = {"Bucket": path.authority, "Key": path.key, **self._owner}
        where["UploadId"] = client.create_multipart_upload(**where, **self._encryption)["UploadId"]
        try:
            parts: list[dict[str, Any]] = []
            part_size = max(_PART_SIZE, -(-size // _MAX_PARTS))
            while part := source.read(part_size):
                number = len(parts) + 1
                answer = client.upload_part(**where, PartNumber=number, Body=part)
                # The checksums that the client added by default have to be named again when completing.
                checksums = {name: answer[name] for name in _CHECKSUMS if name in answer}
                parts.append({"PartNumber": number, "ETag": answer["ETag"], **checksums})
            client.complete_multipart_upload(**where, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
        except BaseException:
            # What failed first is what the caller must hear of, whether or not the parts can be given up.
            with suppress(ClientError, BotoCoreError):
                client.abort_multipart_upload(**where)
            raise


class LocalStorage:
    """Files on this machine. An entry appears whole, by a hard link, and survives a power cut (rule 3)."""

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        target = Path(path.path)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        with _os_call(f"Writing {path}", missing=TransientError):  # another writer took the empty folder away
            made = _make_folders(target.parent)
            try:
                # Not tempfile: its files can be read by their owner only, and so could the entry.
                with os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), "wb") as file:
                    copy_to(source, file.write)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    os.link(temporary, target)
                except FileExistsError:
                    return False
                for folder in (target.parent, *(folder.parent for folder in made)):
                    _sync_folder(folder)
                return True
            finally:
                temporary.unlink(missing_ok=True)
                for folder in made:
                    with suppress(OSError):  # not empty: an entry is in it, ours or that of another writer
                        folder.rmdir()

    def open(self, path: Location) -> BinaryIO:
        with _os_call(f"Reading {path}"):
            return Path(path.path).open("rb")

    def size(self, path: Location) -> int:
        with _os_call(f"Looking for {path}"):
            return Path(path.path).stat().st_size

    def list_names(self, folder: Location) -> list[str]:
        with _os_call(f"Listing {folder}"):
            try:
                with os.scandir(folder.path) as entries:
                    return [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]
            except FileNotFoundError:
                return []

    def entries(self, folder: Location) -> list[StoredFile]:
        with _os_call(f"Listing {folder}"):
            try:
                with os.scandir(folder.path) as entries:
                    return [
                        StoredFile(entry.name, entry.stat().st_size, entry.stat().st_mtime_ns // 1_000_000)
                        for entry in entries
                        if not entry.is_dir()
                    ]
            except FileNotFoundError:
                return []

    def delete(self, path: Location) -> None:
        with _os_call(f"Deleting {path}"):
            Path(path.path).unlink(missing_ok=True)

    def delete_files(self, paths: Sequence[Location]) -> dict[Location, HiveToDeltaError]:
        return delete_each(self, paths)

    def remove_folder(self, folder: Location) -> None:
        with suppress(OSError):  # not empty, or not there
            Path(folder.path).rmdir()

    def move(self, source: Location, target: Location) -> None:
        with _os_call(f"Moving {source} to {target}"):
            Path(target.path).parent.mkdir(parents=True, exist_ok=True)
            try:
                Path(source.path).replace(target.path)
            except FileNotFoundError:
                Path(target.path).stat()  # an earlier call got as far as this


_CONFLICT_TRIES = 5
#: What S3 takes.
_DELETES_PER_REQUEST = 1_000
_PART_SIZE = 16 * MEBIBYTE
_MAX_PARTS = 10_000
_CHECKSUMS = ("ChecksumCRC32", "ChecksumCRC32C", "ChecksumCRC64NVME", "ChecksumSHA1", "ChecksumSHA256")


class _Stream(io.RawIOBase):
    def __init__(self, read: Callable[[int], bytes], close: Callable[[], None]) -> None:
        self._read, self._close = read, close

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self._read(MEBIBYTE), b""))  # the inherited one reads 8 KiB at a time

    def close(self) -> None:
        if not self.closed:
            self._close()
        super().close()


def stream_of(read: Callable[[int], bytes], close: Callable[[], None]) -> BinaryIO:
    return io.BufferedReader(_Stream(read, close), MEBIBYTE)


def delete_each(storage: Storage, paths: Sequence[Location]) -> dict[Location, HiveToDeltaError]:
    failed: dict[Location, HiveToDeltaError] = {}
    for path in paths:
        try:
            storage.delete(path)
        except HiveToDeltaError as error:
            failed[path] = error
    return failed


def _prefix(folder: Location) -> str:
    """What the keys in a folder begin with; nothing for the root of a bucket."""
    return f"{folder.key}/" if folder.key else ""


def _size_of(source: BinaryIO) -> int:
    return source.seek(0, os.SEEK_END)


def copy_to(source: BinaryIO, write: Callable[[bytes], object]) -> None:
    source.seek(0)
    while chunk := source.read(MEBIBYTE):
        write(chunk)


def _answer(error: ClientError) -> tuple[str, int]:
    response: Any = error.response
    return str(response["Error"].get("Code", "")), int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder and those above it; which ones were made, the deepest first."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    made: list[Path] = []
    for each in reversed(missing):
        with suppress(FileExistsError):  # another writer was faster, so it is not ours to take away again
            each.mkdir()
            made.insert(0, each)
    return made


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _os_call(doing: str, missing: type[HiveToDeltaError] = MissingError) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise missing(f"{doing}: {error.strerror}") from error
    except OSError as error:
        message = f"{doing}: {error.strerror or error}"
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise AccessDeniedError(f"{message}. Give this user access to a file system that has hard links") from error
        if error.errno in {errno.ENOTDIR, errno.EISDIR, errno.ENOTSUP, errno.ENAMETOOLONG, errno.ELOOP}:
            raise PermanentError(message) from error
        raise TransientError(message) from error
