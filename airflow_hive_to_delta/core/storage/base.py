"""The interface of a storage for Delta logs, and what its implementations share."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol

from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.storage.uri import Location

#: The folder of a Delta log, at the root of its table.
DELTA_LOG = "_delta_log"
#: The folder in a log where this package keeps what is its own, which readers of Delta pass over.
RECORDS_FOLDER = "_hive_to_delta"
MEBIBYTE = 1024 * 1024


class StoredFile(NamedTuple):
    """A file in a folder."""

    name: str
    size: int
    #: Milliseconds since the epoch.
    modified: int
    #: What another version of the file has another one of: the ETag on S3, the inode on a disk; empty: not known.
    tag: str = ""

    @property
    def version(self) -> str:
        """A text that differs for two versions of the file; empty where the storage does not tell them apart."""
        return file_version(self.size, self.modified, self.tag)


def file_version(size: int, modified: int, tag: str) -> str:
    """A text that differs for two versions of a file; empty where nothing tells them apart.

    :param modified: milliseconds since the epoch, which some storages round to seconds.
    :param tag: an ETag or an inode.
    """
    tag = tag.strip('"')
    return f"{tag}-{size}-{modified}" if tag else ""


class Storage(Protocol):
    """A storage for the files of Delta logs. Every method raises a :class:`HiveToDeltaError` when the storage fails."""

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        """Write a file, unless there is one already. Readers see the whole file or none.

        :param source: a seekable local file, which is written from its beginning.
        :returns: False when a file is there already. It is left as it is.
        :raises TransientError: it is not known whether the file was written.
        """

    def open(self, path: Location) -> BinaryIO:
        """A file as a stream, from its beginning.

        :raises MissingError: there is no such file.
        """

    def size(self, path: Location) -> int:
        """The size of a file in bytes.

        :raises MissingError: there is no such file.
        """

    def list_names(self, folder: Location) -> list[str]:
        """The names in a folder, those of folders with a trailing ``/``; none when the folder is absent."""

    def list_files(self, folder: Location) -> list[StoredFile]:
        """The files directly in a folder, without the folders in it; none when the folder is absent."""

    def delete(self, path: Location) -> None:
        """Delete a file, if it exists."""

    def delete_files(self, paths: Sequence[Location]) -> dict[Location, HiveToDeltaError]:
        """Delete files in as few requests as the storage allows. Returns those that could not be deleted, and why."""

    def remove_folder(self, folder: Location) -> None:
        """Remove a folder, or its marker on an object store, if it is empty. A folder with anything in it stays."""

    def move(self, source: Location, target: Location) -> None:
        """Move a file to a location that nothing else writes to. It can be called again after it was interrupted.

        :raises MissingError: the file is at neither location.
        """


class ReplacingStorage(Storage, Protocol):
    """A storage that can replace a file, too: for documents of state, which change. A Delta log never does."""

    def replace(self, path: Location, content: bytes) -> None:
        """Write a file in the place of the one that is there, if there is one. Readers see the whole old or new file.

        After a power cut the old one may be there.
        """


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


def buffered_stream(read: Callable[[int], bytes], close: Callable[[], None]) -> BinaryIO:
    """A stream over a function that reads at most so many bytes, none at the end."""
    return io.BufferedReader(_Stream(read, close), MEBIBYTE)


def delete_each(storage: Storage, paths: Sequence[Location]) -> dict[Location, HiveToDeltaError]:
    """``Storage.delete_files`` for a storage that deletes one file with each request."""
    failed: dict[Location, HiveToDeltaError] = {}
    for path in paths:
        try:
            storage.delete(path)
        except HiveToDeltaError as error:
            failed[path] = error
    return failed


def copy_to(source: BinaryIO, write: Callable[[bytes], object]) -> None:
    """Hand all of a seekable file to a function, piece by piece."""
    source.seek(0)
    while chunk := source.read(MEBIBYTE):
        write(chunk)
