"""The storage of a log on the local disk."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    HiveToDeltaError,
    MissingError,
    PermanentError,
    TransientError,
)
from airflow_hive_to_delta.core.storage.base import StoredFile, copy_to, delete_each
from airflow_hive_to_delta.core.storage.uri import Location


class LocalStorage:
    """Files on the local disk. A file appears as a whole, by a hard link, and survives a power cut (rule 3)."""

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        target = Path(path.path)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        with os_call(f"Writing {path}", missing=TransientError):  # another writer removed the empty folder
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
                    with suppress(OSError):  # not empty: it has a file of ours or of another writer
                        folder.rmdir()

    def replace(self, path: Location, content: bytes) -> None:
        """Write a file in the place of the one that is there, if there is one. Readers see the whole old or new file.

        After a power cut the old one may be there.
        """
        target = Path(path.path)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        with os_call(f"Writing {path}", missing=TransientError):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(content)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)

    def open(self, path: Location) -> BinaryIO:
        with os_call(f"Reading {path}"):
            return Path(path.path).open("rb")

    def size(self, path: Location) -> int:
        with os_call(f"Looking for {path}"):
            return Path(path.path).stat().st_size

    def list_names(self, folder: Location) -> list[str]:
        with os_call(f"Listing {folder}"):
            try:
                with os.scandir(folder.path) as entries:
                    return [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]
            except FileNotFoundError:
                return []

    def list_files(self, folder: Location) -> list[StoredFile]:
        with os_call(f"Listing {folder}"):
            try:
                scanned = os.scandir(folder.path)
            except FileNotFoundError:
                return []
            found = []
            with scanned as entries:
                for entry in entries:
                    # A temporary file of another writer may be gone by now, and says nothing of the others.
                    with suppress(FileNotFoundError):
                        if not entry.is_dir():
                            stat = entry.stat()
                            modified = stat.st_mtime_ns // 1_000_000
                            found.append(StoredFile(entry.name, stat.st_size, modified, str(stat.st_ino)))
            return found

    def delete(self, path: Location) -> None:
        with os_call(f"Deleting {path}"):
            Path(path.path).unlink(missing_ok=True)

    def delete_files(self, paths: Sequence[Location]) -> dict[Location, HiveToDeltaError]:
        return delete_each(self, paths)

    def remove_folder(self, folder: Location) -> None:
        with suppress(OSError):  # not empty, or not there
            Path(folder.path).rmdir()

    def move(self, source: Location, target: Location) -> None:
        with os_call(f"Moving {source} to {target}"):
            Path(target.path).parent.mkdir(parents=True, exist_ok=True)
            try:
                Path(source.path).replace(target.path)
            except FileNotFoundError:
                Path(target.path).stat()  # an earlier call moved it


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder and those above it, and return those that did not exist before, the deepest first."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    made: list[Path] = []
    for each in reversed(missing):
        with suppress(FileExistsError):  # another writer made it first, so it is not ours to remove
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
def os_call(doing: str, missing: type[HiveToDeltaError] = MissingError) -> Iterator[None]:
    """Raise errors of this package for those of the operating system inside the block.

    :param doing: what is being done, for the message.
    :param missing: the error for a file that does not exist.
    """
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
