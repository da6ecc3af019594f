"""The storage of a log on S3, and on stores that speak its protocol."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

from botocore.exceptions import BotoCoreError, ClientError

from airflow_hive_to_delta.core.errors import (
    HiveToDeltaError,
    MissingError,
    PermanentError,
    TransientError,
)
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.aws_errors import aws_call, translate_aws_error
from airflow_hive_to_delta.core.storage.base import MEBIBYTE, StoredFile, buffered_stream
from airflow_hive_to_delta.core.storage.conditional_writes import require_conditional_writes
from airflow_hive_to_delta.core.storage.uri import Location

#: Entries up to this size go to S3 in one request, held in memory so that it can be sent again.
MULTIPART_OVER = 64 * MEBIBYTE

#: Writes an object unless there is one, from a client, a location, a source and its size.
Upload = Callable[[Any, Location, BinaryIO, int], None]
_CONFLICT_TRIES = 5
#: The most files that S3 deletes in one request.
_DELETES_PER_REQUEST = 1_000
_PART_SIZE = 16 * MEBIBYTE
_MAX_PARTS = 10_000
_CHECKSUMS = ("ChecksumCRC32", "ChecksumCRC32C", "ChecksumCRC64NVME", "ChecksumSHA1", "ChecksumSHA256")


class S3Storage:
    """S3 through boto3, with conditional writes (rule 2), the bucket's owner and the KMS key (rule 54).

    :param client: makes all requests; the client for the region of each bucket when not given.
    """

    def __init__(self, options: ConversionOptions, *, multipart_over: int = MULTIPART_OVER, client: Any = None) -> None:
        self._own_client = client
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
        in_parts = size > self._multipart_over
        upload = self._put_in_parts if in_parts else self._put
        try:
            self._require_conditional_writes(path, upload, "CompleteMultipartUpload" if in_parts else "PutObject")
        except (ClientError, BotoCoreError) as error:
            raise self._error(error, doing) from error
        for attempt in range(_CONFLICT_TRIES):
            source.seek(0)
            try:
                upload(self._client(path), path, source, size)
            except ClientError as error:
                status = _status(error)
                if status == 412:
                    return False
                if status != 409:
                    raise self._error(error, doing) from error
                # Another request writes the same key at this moment. Nothing was written, so upload it again (rule 2).
                time.sleep(0.05 * 2**attempt)
            except BotoCoreError as error:
                raise translate_aws_error(error, doing) from error
            else:
                return True
        raise TransientError(
            f"{doing}: others were writing the same entry in each of {_CONFLICT_TRIES} tries; try again later"
        )

    def replace(self, path: Location, content: bytes) -> None:
        """Write an object in the place of the one that is there, if there is one."""
        with aws_call(f"Writing {path}"):
            self._client(path).put_object(
                Bucket=path.authority, Key=path.key, Body=content, **self._owner, **self._encryption
            )

    def open(self, path: Location) -> BinaryIO:
        doing = f"Reading {path}"
        with aws_call(doing):
            body = self._client(path).get_object(Bucket=path.authority, Key=path.key, **self._owner)["Body"]

        def read(count: int) -> bytes:
            with aws_call(doing):
                return bytes(body.read(count))

        return buffered_stream(read, body.close)

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

    def list_files(self, folder: Location) -> list[StoredFile]:
        start = len(_prefix(folder))
        found = []
        for page in self._pages(folder):
            for entry in page.get("Contents", []):
                modified = round(entry["LastModified"].timestamp() * 1000)
                found.append(StoredFile(entry["Key"][start:], entry["Size"], modified, entry.get("ETag", "")))
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
                for failure in answer.get("Errors", []):
                    path = by_key[failure["Key"]]
                    failed[path] = translate_aws_error(
                        ClientError({"Error": failure}, "DeleteObjects"), f"Deleting {path}"
                    )
        return failed

    def remove_folder(self, folder: Location) -> None:
        # S3 has no folders, but Hadoop's client writes an empty object for each, and takes it for the folder.
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
            self.size(target)  # an earlier call copied it
        self.delete(source)

    def _pages(self, folder: Location) -> Iterator[dict[str, Any]]:
        """The answers to the LIST requests for a folder, without what lies in folders below it."""
        with aws_call(f"Listing {folder}"):
            pages = self._client(folder).get_paginator("list_objects_v2")
            yield from pages.paginate(Bucket=folder.authority, Prefix=_prefix(folder), Delimiter="/", **self._owner)

    def _client(self, path: Location) -> Any:
        if self._own_client is not None:
            return self._own_client
        return aws.s3_client(path.authority, self._region, self._expected_owner)

    def _require_conditional_writes(self, path: Location, upload: Upload, operation: str) -> None:
        client = self._client(path)
        content = b"written twice, to see whether the second is refused"

        def write_with(upload: Upload) -> Callable[[Location], None]:
            return lambda probe: upload(client, probe, io.BytesIO(content), len(content))

        require_conditional_writes(
            path,
            client.meta.endpoint_url,
            operation,
            put=write_with(self._put),
            put_again=write_with(upload),
            delete=lambda probe: client.delete_object(Bucket=probe.authority, Key=probe.key, **self._owner),
        )

    def _error(self, error: ClientError | BotoCoreError, doing: str) -> HiveToDeltaError:
        """The error of this package for one of a conditional write."""
        found = translate_aws_error(error, doing)
        if not isinstance(error, ClientError):
            return found
        if error.response["Error"].get("Code") == "NoSuchUpload":
            # The upload was completed by a request whose answer was lost, or aborted by another process.
            return TransientError(f"{doing}: the multipart upload is gone; it may have succeeded")
        if _status(error) == 501:
            owner = ", or the check of its bucket's owner (expected_bucket_owner)" if self._owner else ""
            return PermanentError(
                f"{found}: this S3 endpoint does not know conditional writes (If-None-Match){owner}. Without them a "
                "log entry could be overwritten. Use a storage that has them"
            )
        return found

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
        checksum = _part_checksum(client)
        where["UploadId"] = client.create_multipart_upload(**where, **self._encryption, **checksum)["UploadId"]
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
            # The caller gets the first error, whether or not the upload can be aborted.
            with suppress(ClientError, BotoCoreError):
                client.abort_multipart_upload(**where)
            raise


def _prefix(folder: Location) -> str:
    """The beginning of the keys in a folder; empty for the root of a bucket."""
    return f"{folder.key}/" if folder.key else ""


def _size_of(source: BinaryIO) -> int:
    return source.seek(0, os.SEEK_END)


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _part_checksum(client: Any) -> dict[str, str]:
    """The checksum that the client adds to each part by itself, which some stores want named when an upload begins."""
    return {"ChecksumAlgorithm": "CRC32"} if client.meta.config.request_checksum_calculation == "when_supported" else {}
