"""Listing the files of tables on the local disk, or on one that is mounted, by the driver itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa

from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.files import SeenFolders, files_batch
from airflow_hive_to_delta.core.listing.locations import (
    TableLocation,
    check_missing,
    is_data_file,
)
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.base import DELTA_LOG
from airflow_hive_to_delta.core.storage.local import os_call

#: Files of one partition that are given together, because every batch costs time.
_FILES_PER_BATCH = 10_000


class _Folder(NamedTuple):
    """A folder to list: that of a table's location, or one below it."""

    listed: TableLocation
    #: The path from the location, with a slash at its end; empty for the location itself.
    below: str


class _Content(NamedTuple):
    """What a folder holds."""

    #: Path, size and modification time of each data file.
    files: list[tuple[str, int, int]]
    folders: list[_Folder]
    #: Paths of the folders of Delta logs, from the location.
    delta_logs: list[str]


def list_local_files(
    table: TableInfo,
    locations: Sequence[TableLocation],
    options: ConversionOptions,
    max_workers: int,
    seen: SeenFolders,
) -> Iterator[pa.RecordBatch]:
    """The data files at locations on the local disk in FILES_ARROW_SCHEMA, in no order.

    Links are followed, as Spark follows them.

    :param max_workers: how many folders are read in parallel, which helps on a disk that is mounted over a network.
    :param seen: gets what else is there.
    :raises PartitionError: a partition has nothing at its location, and the options do not allow that.
    :raises PermanentError: a location is not a folder, or the name of a file is not UTF-8.
    :raises AccessDeniedError: a folder cannot be read.
    """
    folders = [_Folder(location, "") for location in locations]
    missing: list[TableLocation] = []
    held: list[tuple[str, int, int]] = []
    last = locations[0] if locations else None
    with ThreadPoolExecutor(max_workers) as pool:
        while folders:
            below: list[_Folder] = []
            for folder, content in zip(folders, pool.map(_list_folder, folders), strict=True):
                if content is None:
                    missing.append(folder.listed)
                    continue
                below += content.folders
                seen.add_all(folder.listed.location, content.delta_logs)
                if held and last is not None and (len(held) >= _FILES_PER_BATCH or folder.listed is not last):
                    yield files_batch(held, last.values)
                    held = []
                held += content.files
                last = folder.listed
            folders = below
    if held and last is not None:
        yield files_batch(held, last.values)
    check_missing(table, missing, options)
    seen.whole.update(location.location.canonical for location in locations)


def _list_folder(folder: _Folder) -> _Content | None:
    """What a folder holds; None for a location that does not exist."""
    location = folder.listed.location
    path = f"{location.path}/{folder.below}"
    prefix = f"{location.scheme}://{location.authority}{path}"
    content = _Content([], [], [])
    with os_call(f"Listing {folder.listed.description} at {location}"):
        try:
            scanned = os.scandir(path)
        except FileNotFoundError:
            return content if folder.below else None
        with scanned as entries:
            for entry in entries:
                # A file that another writer removes meanwhile, or a link to nothing, is not there.
                with suppress(FileNotFoundError):
                    _add_entry(content, entry, folder, prefix)
    return content


def _add_entry(content: _Content, entry: os.DirEntry[str], folder: _Folder, prefix: str) -> None:
    below = folder.below + entry.name
    if entry.is_dir():
        if is_data_file(entry.name, size=1):
            _check_utf8(below, folder)
            content.folders.append(_Folder(folder.listed, f"{below}/"))
        elif entry.name == DELTA_LOG:
            content.delta_logs.append(below)
        return
    found = entry.stat()
    if not is_data_file(entry.name, found.st_size):  # the folders above it are not hidden
        return
    _check_utf8(below, folder)
    content.files.append((prefix + entry.name, found.st_size, found.st_mtime_ns // 1_000_000))


def _check_utf8(below: str, folder: _Folder) -> None:
    try:
        below.encode()
    except UnicodeEncodeError:
        raise PermanentError(
            f"{below!r} in {folder.listed.description} has a name that is not UTF-8, which no Delta log can hold. "
            "Rename it"
        ) from None
