"""What a storage of log entries can do, and what the storages share."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol

from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.storage.uri import Location

MEBIBYTE = 1024 * 1024


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


def copy_to(source: BinaryIO, write: Callable[[bytes], object]) -> None:
    source.seek(0)
    while chunk := source.read(MEBIBYTE):
        write(chunk)
