"""How many files and bytes many tables have, by one pass over the reports of S3 Inventory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from urllib.parse import quote_plus, unquote_plus

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_to_delta.core.listing.inventory_reports import InventoryManifest, read_objects
from airflow_hive_to_delta.core.listing.locations import is_data_file
from airflow_hive_to_delta.core.storage.base import Storage
from airflow_hive_to_delta.core.storage.uri import HIDDEN_PREFIXES, HIDDEN_SUFFIXES, S3_SCHEMES, Location

#: The ends of hidden names as they are, and in the encoding of CSV. What hidden names begin with is not encoded.
_HIDDEN_SUFFIXES = sorted({*HIDDEN_SUFFIXES, *map(quote_plus, HIDDEN_SUFFIXES)})


class SizeIndex:
    """Finds the tables that a file on S3 belongs to, by the locations of their partitions or by their roots.

    A file belongs to every table that has a location above it, for two tables may have the same files. It takes some
    150 bytes of memory for each location.
    """

    def __init__(self) -> None:
        self.tables: list[str] = []
        self._tables_at: dict[str, tuple[int, ...]] = {}

    def add(self, table: str, locations: Iterable[Location]) -> None:
        """Add the locations of a table. Those that are not on S3 are passed over."""
        own = (len(self.tables),)
        self.tables.append(table)
        for location in locations:
            if location.scheme in S3_SCHEMES:
                place = f"{location.authority}{location.path}"
                others = self._tables_at.get(place)
                self._tables_at[place] = own if others is None else others + own

    def find(self, path: str) -> Iterator[tuple[int, str]]:
        """Each table that has a file, by its number, with the file's path from the innermost location of that table.

        :param path: bucket and key, such as ``bucket/folder/file``.
        """
        seen: set[int] = set()
        cut = len(path)
        while (cut := path.rfind("/", 0, cut)) >= 0:
            for number in self._tables_at.get(path[:cut], ()):
                if number not in seen:
                    seen.add(number)
                    yield number, path[cut + 1 :]


def count_files(
    storage: Storage, manifest: InventoryManifest, file: str, index: SizeIndex
) -> dict[str, tuple[int, int]]:
    """The data files of tables, and their bytes, in one file of a report. Tables without any are left out.

    Objects are added up by folder first, so that Python looks at folders, and at single objects only where a name may
    be hidden.
    """
    bucket, is_encoded = manifest.source_bucket, manifest.format == "csv"
    found: dict[int, list[int]] = {}

    def add(key: str, size: int, files: int, total: int) -> None:
        decoded = unquote_plus(key) if is_encoded else key
        for number, path in index.find(f"{bucket}{decoded}"):
            if is_data_file(path, size):
                counts = found.setdefault(number, [0, 0])
                counts[0] += files
                counts[1] += total

    for batch in read_objects(storage, manifest, file):
        folders, single = _by_folder(batch, is_encoded=is_encoded)
        for folder, files, total in folders:
            add(f"{folder}/file", 1, files, total)
        for key, size in single:
            add(key, size, 1, size)
    return {index.tables[number]: (files, total) for number, (files, total) in found.items()}


def _by_folder(
    objects: pa.RecordBatch, *, is_encoded: bool
) -> tuple[Sequence[tuple[str, int, int]], Sequence[tuple[str, int]]]:
    """Objects that are not empty: folder, number and bytes of those with plain names; key and size of the others.

    Folders and keys begin with a slash.
    """
    objects = objects.filter(pc.greater(objects["size"], 0))
    # A slash before each, so that each has two parts: the folder and the name.
    keys = pc.binary_join_element_wise("/", objects["key"], "")
    if is_encoded:
        keys = pc.replace_substring(keys, "%2F", "/")
    parts = pc.split_pattern(keys, "/", max_splits=1, reverse=True).flatten()
    first = pa.array(range(0, len(parts), 2), pa.int64())
    folders, names = parts.take(first), parts.take(pc.add(first, 1))
    begins = [pc.starts_with(names, text) for text in HIDDEN_PREFIXES]
    is_single = reduce(pc.or_, [*begins, *(pc.ends_with(names, text) for text in _HIDDEN_SUFFIXES)])
    table = pa.table({"folder": folders, "size": objects["size"]}).filter(pc.invert(is_single))
    added = table.group_by("folder").aggregate([("size", "count"), ("size", "sum")])
    columns = (added[name].to_pylist() for name in ("folder", "size_count", "size_sum"))
    single = zip(keys.filter(is_single).to_pylist(), objects["size"].filter(is_single).to_pylist(), strict=True)
    return list(zip(*columns, strict=True)), list(single)
