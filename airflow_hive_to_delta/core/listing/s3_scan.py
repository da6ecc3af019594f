"""Listing folders of one bucket of S3 with few requests: as far as possible one for each 1,000 keys.

S3 gives keys in the order of their UTF-8 bytes, which is Python's order of strings. So folders that follow each other
are listed as one range of keys, however few keys each of them holds. Where a page ends among keys that are not of the
folders, the next request begins at the next folder. So the requests are at most one for each folder, one for each 1,000
keys in them, and one for each worker that takes a share of the folders.
"""

from __future__ import annotations

import os.path
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from airflow_hive_to_delta.core.errors import AccessDeniedError, PermanentError
from airflow_hive_to_delta.core.files import LAST_CHARACTER, partitioned_files_batch
from airflow_hive_to_delta.core.listing.locations import UNREADABLE_NAMES, TableLocation, is_data_file
from airflow_hive_to_delta.core.storage.base import DELTA_LOG
from airflow_hive_to_delta.core.storage.uri import Location

#: How many pages a range of folders should have left for every worker that shares it, for each of them needs a request
#: more than one alone.
PAGES_PER_WORKER = 4


class Folder(NamedTuple):
    """A prefix to list, which is that of a table's location or one below it."""

    listed: TableLocation
    #: With a slash at its end; empty for a whole bucket.
    prefix: str

    @property
    def bucket(self) -> str:
        return self.listed.location.authority

    @property
    def bucket_root(self) -> Location:
        location = self.listed.location
        return Location(location.scheme, location.authority, "")

    @property
    def base(self) -> int:
        """The length of the part of a key that says the table's location."""
        key = self.listed.location.key
        return len(key) + 1 if key else 0


class Span(NamedTuple):
    """Folders of one bucket that one worker lists, in the order of S3. None of them lies in another."""

    folders: Sequence[Folder]
    #: The keys up to here have been listed.
    after: str = ""
    #: False for a bucket that gives keys in no order. The span then has one folder.
    in_order: bool = True


@dataclass
class Page:
    """What the answer to one LIST request says."""

    #: The data files, in FILES_ARROW_SCHEMA.
    batches: list[pa.RecordBatch] = field(default_factory=list)
    #: Bucket and prefix of those folders of the span that have any object, a data file or not.
    present: set[tuple[str, str]] = field(default_factory=set)
    #: Paths of objects and folders of Delta logs, in the folders of the span or between them, each from a location of
    #: the table or from the root of the bucket.
    delta_logs: list[tuple[Location, str]] = field(default_factory=list)
    #: Root of the bucket, and a range of keys that was listed, this page being its end.
    key_range: tuple[Location, str, str] | None = None
    #: The folders below, where only one level was listed.
    folders: list[Folder] = field(default_factory=list)
    #: What other workers should list in place of the one that got this page.
    handed_over: list[Span] = field(default_factory=list)
    #: Whether there is a next page, and begins directly after this one.
    is_followed: bool = False


#: Sends a LIST request with arguments of boto3. The folder is the one that errors name.
SendList = Callable[[Folder, Mapping[str, Any]], Mapping[str, Any]]


def scan(span: Span, send: SendList, count_free_workers: Callable[[], int]) -> Iterator[Page]:
    """List all that lies in folders, page by page.

    :param count_free_workers: how many workers have nothing to do at the moment, and could share the span.
    :raises PermanentError: a key cannot be addressed by a Hadoop file system, or the store gives keys in no order after
        it gave some in order.
    """
    if not span.in_order:
        yield from _list_in_no_order(span.folders[0], send)
        return
    folders = span.folders
    is_begun = span.after > folders[0].prefix
    request = _first_request(folders, span.after)
    after = range_start = request.get("StartAfter", "")
    while True:
        try:
            answer = send(folders[0], request)
        except AccessDeniedError:
            # An identity may be allowed to list each of the folders, but not what they have in common.
            if request["Prefix"] == folders[0].prefix:
                raise
            yield Page(handed_over=[Span([folder], after) for folder in folders])
            return
        objects = answer.get("Contents", [])
        keys = [found["Key"] for found in objects]
        if not _are_in_order(after, keys):
            if is_begun:
                raise PermanentError(
                    f"Listing {folders[0].listed.description}: the store gives keys in another order than S3 does, "
                    f"{keys[0]!r} after {after!r}. List the table with DatabricksListing"
                )
            yield Page(handed_over=[Span([folder], in_order=False) for folder in folders])
            return
        is_begun = True
        page = _read_objects(folders, objects)
        bucket, prefix = folders[0].bucket_root, request["Prefix"]
        last = keys[-1] if keys else after
        passed = _count_passed(folders, last) if answer.get("IsTruncated") else len(folders)
        folders = folders[passed:]
        if folders:
            folders, page.handed_over = _share(folders, passed, count_free_workers())
            after, page.is_followed = _next_start(folders[0], last)
        if not page.is_followed:
            end = last if answer.get("IsTruncated") else f"{prefix}{LAST_CHARACTER}"
            page.key_range = (bucket, max(range_start, prefix), end)
        yield page
        if not folders:
            return
        if page.is_followed:
            # The token goes with the prefix of the request that it continues.
            request = {"Prefix": prefix, "ContinuationToken": answer["NextContinuationToken"]}
        else:
            request = _first_request(folders, after)
            after = range_start = request.get("StartAfter", "")


def list_level(folder: Folder, send: SendList) -> Iterator[Page]:
    """List the files directly in a folder, and the folders there that may hold data files, page by page."""
    for answer in _all_pages(folder, {"Prefix": folder.prefix, "Delimiter": "/"}, send):
        page = _read_objects([folder], answer.get("Contents", []))
        for prefix in (found["Prefix"] for found in answer.get("CommonPrefixes", [])):
            path = prefix[folder.base :]
            if DELTA_LOG in path:
                page.delta_logs.append((folder.listed.location, path))
            if is_data_file(path, size=1):
                page.folders.append(Folder(folder.listed, prefix))
        yield page


def _list_in_no_order(folder: Folder, send: SendList) -> Iterator[Page]:
    for answer in _all_pages(folder, {"Prefix": folder.prefix}, send):
        yield _read_objects([folder], answer.get("Contents", []))


def _all_pages(folder: Folder, request: Mapping[str, Any], send: SendList) -> Iterator[Mapping[str, Any]]:
    answer = send(folder, request)
    yield answer
    while answer.get("IsTruncated"):
        answer = send(folder, {**request, "ContinuationToken": answer["NextContinuationToken"]})
        yield answer


def _first_request(folders: Sequence[Folder], after: str) -> dict[str, Any]:
    # Of sorted strings, the first and the last have no more in common than all of them.
    ends = [folders[0].prefix, folders[-1].prefix]
    prefix = os.path.commonprefix(ends)  # noqa: RUF071 - not of paths: S3 takes any beginning of a key
    return {"Prefix": prefix, **({"StartAfter": after} if after > prefix else {})}


def _before(prefix: str) -> str:
    """A string that precedes a folder, its marker too, and follows nearly everything that precedes the folder.

    ``v=1.5/x`` precedes ``v=1/``, for a dot is the character before a slash.
    """
    return f"{prefix[:-1]}.{LAST_CHARACTER}"


def _next_start(folder: Folder, last: str) -> tuple[str, bool]:
    """After which string the next page should begin, and whether that is the last key itself.

    :param folder: the folder that holds the last key, or the one that comes next.
    """
    start = last
    if not last.startswith(folder.prefix):
        start = _before(folder.prefix)
    else:
        names = last[folder.base :].split("/")
        for number, name in enumerate(names[:-1], 1):
            if not is_data_file(name, size=1):  # a hidden folder, such as that of a log
                start = f"{last[: folder.base]}{'/'.join(names[:number])}/{LAST_CHARACTER}"
                break
    return (start, False) if start > last else (last, True)


def _are_in_order(after: str, keys: Sequence[str]) -> bool:
    return not keys or (keys[0] > after and all(a < b for a, b in pairwise(keys)))


def _count_passed(folders: Sequence[Folder], key: str) -> int:
    """How many of the folders have no keys after this one."""
    count = bisect_right(folders, key, key=lambda folder: folder.prefix)
    return count - 1 if count and key.startswith(folders[count - 1].prefix) else count


def _share(folders: Sequence[Folder], per_page: int, free: int) -> tuple[Sequence[Folder], list[Span]]:
    """Cut folders into ranges for several workers, if there are many pages of them left.

    :param per_page: how many folders the last page has brought to their end.
    :returns: the folders for this worker, and those for others.
    """
    pages = len(folders) // max(per_page, 1)
    workers = min(free + 1, pages // PAGES_PER_WORKER)
    if workers < 2:
        return folders, []
    size = -(-len(folders) // workers)
    shares = [folders[start : start + size] for start in range(0, len(folders), size)]
    # Each begins where the one before it ends, so that no folder between them goes unseen.
    return shares[0], [Span(share, f"{before[-1].prefix}{LAST_CHARACTER}") for before, share in pairwise(shares)]


def _read_objects(folders: Sequence[Folder], objects: Sequence[Mapping[str, Any]]) -> Page:
    """Assign objects to the folders that they lie in; other objects are ignored.

    :param objects: in the order of S3, unless there is one folder only.
    :raises PermanentError: a key cannot be addressed by a Hadoop file system.
    """
    page = Page()
    files = []
    number = 0
    for found in objects:
        key, size = found["Key"], found["Size"]
        while not key.startswith(folders[number].prefix) and number + 1 < len(folders):
            if folders[number + 1].prefix > key:
                break
            number += 1
        folder = folders[number]
        if DELTA_LOG in key:
            page.delta_logs.append((folder.bucket_root, key))
        if not key.startswith(folder.prefix):
            continue
        page.present.add((folder.bucket, folder.prefix))
        path = key[folder.base :]
        if DELTA_LOG in path:
            page.delta_logs.append((folder.listed.location, path))
        if not is_data_file(path, size):
            continue
        location = folder.listed.location
        if not UNREADABLE_NAMES.isdisjoint(path.split("/")):
            raise PermanentError(
                f"The key {key!r} in the bucket {location.authority}, of {folder.listed.description}, has an "
                "empty, '.' or '..' segment, which no Hadoop file system can address. Rename or remove the "
                "object"
            )
        modified = round(found["LastModified"].timestamp() * 1000)
        files.append((f"{location.scheme}://{location.authority}/{key}", size, modified, folder.listed.values))
    if files:
        page.batches.append(partitioned_files_batch(files))
    return page
