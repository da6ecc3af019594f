"""The storage of a log on Databricks, where Unity Catalog gives access to Spark and to dbutils, but not to Python."""

from __future__ import annotations

import os
import random
import re
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, BinaryIO

from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    HiveToDeltaError,
    MissingError,
    PermanentError,
    TransientError,
)
from airflow_hive_to_delta.core.storage.base import MEBIBYTE, RECORDS_FOLDER, StoredFile, buffered_stream, delete_each
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What results say of a table that was worked on in this way.
NO_CREDENTIALS_NOTE = (
    "Python has no AWS credentials on this compute: Spark reads the files (stats='scan'), and the log is reached "
    "through dbutils, whose writes are not conditional. Keep other writers away from the table while it is converted "
    "or synced"
)
_CLAIM_MILLISECONDS = 10 * 60 * 1000
#: The most seconds before an entry is claimed again that another writer had a claim to.
_PAUSES = (0.5, 1.0, 2.0, 4.0)
#: The longest text that is written by one call, where there is another way.
_LONGEST_TEXT = 16 * MEBIBYTE
_HEAD_BYTES = 65536
_MISSING = re.compile(r"FileNotFound|NoSuchFile|No such file|NoSuchKey|PATH_NOT_FOUND", re.IGNORECASE)
_EXISTS = re.compile(r"FileAlreadyExists|already exists", re.IGNORECASE)
_DENIED = re.compile(
    r"AccessDenied|AccessControl|PERMISSION_DENIED|INSUFFICIENT_PERMISSIONS|Forbidden|UnauthorizedAccess|"
    r"LocalFilesystemAccessDenied|NO_PARENT_EXTERNAL_LOCATION",
    re.IGNORECASE,
)


def is_databricks() -> bool:
    """Whether this process runs on compute of Databricks."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


@lru_cache(maxsize=1)
def needs_dbutils() -> bool:
    """Whether S3 is out of reach for Python here, and has to be read and written through the session.

    Boto3 is asked for credentials once per process. An instance profile gives some, Unity Catalog none.
    """
    if not is_databricks():
        return False
    import boto3

    return boto3.session.Session().get_credentials() is None


class DatabricksStorage:
    """Cloud storage through ``dbutils.fs``, which works with the rights that Unity Catalog gives to the session's user.

    ``dbutils`` has no conditional write: it looks for a file, and then writes it. So before a log entry is written, a
    claim to it is, under a name of its own, and the claims to the entry are listed. S3, ABFS and Google's storage list
    what was written, so of several writers that claim an entry at most one finds no claim but its own, and only that
    one writes. A writer that finds another takes its claim back and tries again, a few times. The claim of a writer
    that was killed counts for ten minutes. Writers that know nothing of claims can still overwrite an entry, or be
    overwritten (rule 5).

    :param spark: any session, also one of Spark Connect.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._files = _find_dbutils(spark).fs

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        if self._find(path) is not None:
            return False
        if "/_delta_log/" not in path.path:
            return self._write(path, source)
        for pause in (*_PAUSES, None):
            try:
                with self._holding_claim(path):
                    # A writer that had the claim before may have written the entry in the meantime.
                    return self._find(path) is None and self._write(path, source)
            except _EntryClaimedError:
                if pause is None:
                    raise
            # A random time, so that writers that found each other's claims do not do so again.
            sleep(random.uniform(0, pause))  # noqa: S311
        raise AssertionError("the last attempt returns or raises")

    def open(self, path: Location) -> BinaryIO:
        size = self.size(path)
        name = path.path.rpartition("/")[2]
        # Spark passes over hidden files: those that this package reads are texts.
        hidden = name.startswith(("_", "."))
        begun = self._read_beginning(path, size, whole=hidden) if hidden or name.endswith(".json") else b""
        position, rest = 0, b"" if len(begun) == size else None

        def read(count: int) -> bytes:
            nonlocal position, rest
            if position < len(begun):
                found = begun[position : position + count]
            else:
                if rest is None:
                    rest = self._read_whole(path)[len(begun) :]
                found = rest[position - len(begun) :][:count]
            position += len(found)
            return found

        return buffered_stream(read, lambda: None)

    def size(self, path: Location) -> int:
        found = self._find(path)
        if found is None:
            raise MissingError(f"Looking for {path}: there is no such file")
        return found.size

    def list_names(self, folder: Location) -> list[str]:
        return [f"{_name(info)}{'/' if _is_folder(info) else ''}" for info in self._list(folder)]

    def list_files(self, folder: Location) -> list[StoredFile]:
        return [_stored_file(info) for info in self._list(folder) if not _is_folder(info)]

    def delete(self, path: Location) -> None:
        with suppress(MissingError), _dbutils_call(f"Deleting {path}"):
            self._files.rm(str(path))

    def delete_files(self, paths: Sequence[Location]) -> dict[Location, HiveToDeltaError]:
        return delete_each(self, paths)

    def remove_folder(self, folder: Location) -> None:
        if not self._list(folder):
            self.delete(folder)

    def move(self, source: Location, target: Location) -> None:
        try:
            with _dbutils_call(f"Moving {source} to {target}"):
                self._files.mv(str(source), str(target))
        except MissingError:
            self.size(target)  # an earlier call moved it

    @contextmanager
    def _holding_claim(self, entry: Location) -> Iterator[None]:
        """Hold the only claim to an entry while the block runs.

        :raises _EntryClaimedError: another writer has a claim to it.
        """
        before, log, name = entry.path.rpartition("/_delta_log/")
        folder = Location(entry.scheme, entry.authority, f"{before}{log}{RECORDS_FOLDER}")
        prefix = f"claim-{name.replace('/', '-')}-"
        own = folder.child(f"{prefix}{uuid.uuid4().hex}")
        with _dbutils_call(f"Writing {own}"):
            self._files.put(str(own), "", False)
        try:
            claims = {file.name: file for file in self.list_files(folder) if file.name.startswith(prefix)}
            mine = claims.pop(own.path.rpartition("/")[2], None)
            if mine is None:
                raise TransientError(f"The claim {own} was removed by another writer; try again")
            # By the clock of the storage, which wrote them both.
            old = {each for each, file in claims.items() if file.modified < mine.modified - _CLAIM_MILLISECONDS}
            if claims.keys() - old:
                raise _EntryClaimedError(
                    f"Another writer is about to write {entry}: it has the claim {folder.child(min(claims))}. Try "
                    "again; the claim of a writer that was killed counts for ten minutes"
                )
            for each in old:
                self.delete(folder.child(each))
            yield
        finally:
            with suppress(HiveToDeltaError):  # what was done counts more; the claim ends by itself
                self.delete(own)

    def _write(self, path: Location, source: BinaryIO) -> bool:
        source.seek(0)
        content = source.read()
        try:
            with _dbutils_call(f"Writing {path}"):
                text = _as_text(content)
                if text is None:
                    self._copy(path, content)
                elif len(content) <= _LONGEST_TEXT or not self._can_copy():
                    self._files.put(str(path), text, False)
                else:
                    self._copy(path, content)
        except _AlreadyThereError:
            return False
        return True

    def _can_copy(self) -> bool:
        """Whether ``dbutils`` reads the driver's disk, which it is denied on compute that users share."""
        try:
            self._files.ls(f"file:{_scratch_folder() or tempfile.gettempdir()}")
        except Exception:
            return False
        return True

    def _copy(self, path: Location, content: bytes) -> None:
        """Write what is no text, or a long one, by way of a file on the driver's disk."""
        with tempfile.NamedTemporaryFile(prefix="hive-to-delta-", dir=_scratch_folder()) as file:
            file.write(content)
            file.flush()
            self._files.cp(f"file:{file.name}", str(path))

    def _find(self, path: Location) -> StoredFile | None:
        """A file, if it is there."""
        try:
            with _dbutils_call(f"Looking for {path}"):
                found = self._files.ls(str(path))
        except MissingError:
            return None
        name = path.path.rpartition("/")[2]
        # Of a folder its contents are listed.
        whole = [info for info in found if _name(info) == name and _path_of(info) == path.path]
        return _stored_file(whole[0]) if whole else None

    def _list(self, folder: Location) -> list[Any]:
        try:
            with _dbutils_call(f"Listing {folder}"):
                # Hadoop's client writes an empty file for a folder, under the folder's own name.
                return [info for info in self._files.ls(str(folder)) if _path_of(info) != folder.path]
        except MissingError:
            return []

    def _read_beginning(self, path: Location, size: int, *, whole: bool) -> bytes:
        """The first lines of a text; all of it, if it is short or ``whole`` is given."""
        with _dbutils_call(f"Reading {path}"):
            begun = str(self._files.head(str(path), size if whole else min(size, _HEAD_BYTES))).encode()
        if whole or size <= _HEAD_BYTES:
            if len(begun) != size:
                raise TransientError(f"Reading {path} gave {len(begun)} bytes, expected {size}; try again")
            return begun
        return begun[: begun.rfind(b"\n") + 1]  # the last character may be cut in two

    def _read_whole(self, path: Location) -> bytes:
        with _dbutils_call(f"Reading {path}"):
            found = self._spark.read.format("binaryFile").option("__globPaths__", "false").load(str(path))
            rows = found.select("content").collect()
        if not rows:
            raise MissingError(f"Reading {path}: there is no such file")
        return bytes(rows[0].content)


class _AlreadyThereError(HiveToDeltaError):
    pass


class _EntryClaimedError(TransientError):
    pass


@contextmanager
def _dbutils_call(doing: str) -> Iterator[None]:
    """Translate what ``dbutils`` raises: another class on each kind of compute, but all name Java's in their text."""
    try:
        yield
    except HiveToDeltaError:
        raise
    except Exception as error:
        text = str(error)
        first = next((line.strip() for line in text.splitlines() if "Exception" in line), text.partition("\n")[0])
        message = f"{doing}: {first}"
        if _EXISTS.search(text):
            raise _AlreadyThereError(message) from error
        if _MISSING.search(text):
            raise MissingError(message) from error
        if _DENIED.search(text):
            raise AccessDeniedError(
                f"{message}. Grant the run's identity READ FILES and WRITE FILES on the external location"
            ) from error
        raise TransientError(message) from error


def _find_dbutils(spark: SparkSession) -> Any:
    try:
        from pyspark.dbutils import DBUtils
    except ImportError as error:
        raise PermanentError(
            f"This compute has neither AWS credentials for Python nor dbutils ({error}). Give the cluster an instance "
            "profile, or run on compute of Databricks that has dbutils"
        ) from error
    return DBUtils(spark)


def _scratch_folder() -> str | None:
    """A folder on the driver's disk that the JVM can read too; None: the default."""
    disk = Path("/local_disk0/tmp")
    return str(disk) if disk.is_dir() and os.access(disk, os.W_OK) else None


def _as_text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _is_folder(info: Any) -> bool:
    return str(info.name).endswith("/") or str(info.path).endswith("/")


def _name(info: Any) -> str:
    return str(info.name).rstrip("/")


def _path_of(info: Any) -> str:
    """The path of a listed file without scheme and bucket."""
    text = str(info.path).rstrip("/")
    scheme, separator, rest = text.partition("://")
    if separator:
        return f"/{rest.partition('/')[2]}"
    return text.partition(":")[2] if ":" in scheme else text


def _stored_file(info: Any) -> StoredFile:
    return StoredFile(_name(info), int(info.size), int(info.modificationTime))
