"""From a listed file to its add action: is it part of the table, under which path, in which partition."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_hive_to_delta.core.delta.actions import action_line, add_action
from airflow_hive_to_delta.core.errors import (
    HiveToDeltaError,
    PartitionError,
    StaleFileListError,
    TransientError,
)
from airflow_hive_to_delta.core.parquet.statistics import StatisticsWriter, TableLeaf
from airflow_hive_to_delta.core.schema.partition_values import normalise, partition_folders, values_from_path
from airflow_hive_to_delta.core.storage.uri import (
    Location,
    add_path,
    check_allowed,
    is_deletion_vector,
    is_hidden,
    is_hidden_outside,
    is_staged,
    parse_location,
)

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.options import ConversionOptions

#: What is known of a file once it was described. ``error`` is null unless the file cannot be part of the table,
#: and ``error_kind`` names its class.
#: ``layout`` names the file's own schema, whose text ``file_schema`` at least one file of each layout and task has.
#: ``key`` and ``folder_keys`` are filled where Spark's own reader describes the files.
DESCRIBED_SCHEMA = (
    "path string, size bigint, modification_time bigint, add_path string, partition_values string, rows bigint, "
    "layout string, file_schema string, leaf_statistics string, key string, folder_keys string, "
    "error string, error_kind string, retryable boolean"
)
DESCRIBED_ARROW = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("add_path", pa.string()),
        ("partition_values", pa.string()),
        ("rows", pa.int64()),
        ("layout", pa.string()),
        ("file_schema", pa.string()),
        ("leaf_statistics", pa.string()),
        ("key", pa.string()),
        ("folder_keys", pa.string()),
        ("error", pa.string()),
        ("error_kind", pa.string()),
        ("retryable", pa.bool_()),
    ]
)
#: Add actions in blocks of lines, so that a row is worth its way to the driver: with the hash of every path, by which a
#: file listed twice is found, and the rows of all of them, null if those of one are not known.
BLOCKS_SCHEMA = "lines string, hashes binary, rows bigint, error string"
_ARROW_BLOCKS = pa.schema(
    [("lines", pa.string()), ("hashes", pa.binary()), ("rows", pa.int64()), ("error", pa.string())]
)
_LINES_PER_BLOCK = 1_000
_HASH_BYTES = 8
#: Folders that one task remembers; its files come folder by folder, or from few of them.
_MOST_FOLDERS = 10_000


@dataclass(frozen=True)
class Placed:
    """A file's place in the table."""

    location: Location
    add_path: str
    #: None: the table has no partition columns and the listing gave no values.
    partition_values: dict[str, str | None] | None
    #: Keys of the ``key=value`` folders of a file in a table without partition columns.
    folder_keys: list[str]


def error_row(error: HiveToDeltaError) -> dict[str, Any]:
    """What a described file says of the error that keeps it out of the table."""
    return {
        "error": str(error),
        "error_kind": type(error).__name__,
        "retryable": isinstance(error, TransientError),
    }


class Placer:
    """Finds the place of every file in one table. Files of one folder share what the folder says."""

    def __init__(self, root: Location, partition_types: dict[str, str], options: ConversionOptions) -> None:
        self._root = root
        self._types = partition_types
        self._options = options
        self._values_by_folder: dict[str, dict[str, str | None]] = {}

    def place(self, file: dict[str, Any]) -> Placed | None:
        """Where a file of FILES_SCHEMA belongs; None when it is no data file (rules 40 and 41).

        A listing that gives partition values knows the partition's own location, which may lie in a hidden folder.
        """
        path, size, given = file["path"], file["size"], file["partition_values"]
        location = parse_location(path, "file path")
        check_allowed(location, self._options.allowed_roots)
        if size < 0:
            raise StaleFileListError(f"The size of {path} is {size}, expected its bytes. List the files again")
        inside = self._root.holds(location)
        below = self._root.relative(location) if inside else location.path
        if given is not None:
            hidden = is_staged(location)
        else:
            hidden = is_hidden(below) if inside else is_hidden_outside(location)
        if size == 0 or hidden or is_deletion_vector(location):
            return None
        written = add_path(location, self._root)
        if given is not None:
            return Placed(location, written, self._normalised(given, path), [])
        if not self._types:
            return Placed(location, written, None, [key for key, _ in partition_folders(below)])
        return Placed(location, written, self._values_in_path(path, below), [])

    def _values_in_path(self, path: str, below: str) -> dict[str, str | None]:
        folder = below.rpartition("/")[0]
        values = self._values_by_folder.get(folder)
        if values is None:
            values = self._normalised(values_from_path(path, below, list(self._types)), path)
            if len(self._values_by_folder) >= _MOST_FOLDERS:
                self._values_by_folder.clear()
            self._values_by_folder[folder] = values
        return values

    def _normalised(self, raw: Mapping[str, str | None], path: str) -> dict[str, str | None]:
        return normalise(raw, self._types, self._options.partition_timezone, path)


def check_folder_keys(keys: Iterable[str], columns: Iterable[str], where: str, options: ConversionOptions) -> None:
    """Refuse ``key=value`` folders of a table without partition columns when the key is no column of the files."""
    known = {column.lower() for column in columns}
    lost = [key for key in keys if key.lower() not in known]
    if lost and not options.allow_undeclared_partitions:
        types = ", ".join(f"{key!r}: 'string'" for key in lost)
        raise PartitionError(
            f"{where} lies in folders for {', '.join(lost)}, which the table does not have as partition column(s) and "
            f"its files not as column(s), so their values would be lost. Pass partition_columns={{{types}}} with the "
            "right types, or ConversionOptions(allow_undeclared_partitions=True) to leave them out"
        )


@dataclass
class AddWriter:
    """The function for ``mapInArrow`` that writes the add action of every described file (DESCRIBED_SCHEMA)."""

    leaves: Sequence[TableLeaf]
    #: Text of each schema that files have, by its name.
    layouts: Mapping[str, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = StatisticsWriter(self.leaves)
        for batch in batches:
            blocks = [
                self._block(batch.slice(start, _LINES_PER_BLOCK).to_pylist(), writer)
                for start in range(0, batch.num_rows, _LINES_PER_BLOCK)
            ]
            yield pa.RecordBatch.from_pylist(blocks, schema=_ARROW_BLOCKS)

    def _block(self, files: list[dict[str, Any]], writer: StatisticsWriter) -> dict[str, Any]:
        rows = [file["rows"] for file in files]
        return {
            "lines": "\n".join(self._line(file, writer) for file in files),
            "hashes": b"".join(blake2b(file["add_path"].encode(), digest_size=_HASH_BYTES).digest() for file in files),
            "rows": None if None in rows else sum(rows),
            "error": next((file["error"] for file in files if file["error"] is not None), None),
        }

    def _line(self, file: dict[str, Any], writer: StatisticsWriter) -> str:
        leaf_statistics = file["leaf_statistics"]
        stats = (
            None
            if leaf_statistics is None
            else writer.write(self.layouts[file["layout"]], json.loads(leaf_statistics), file["rows"])
        )
        return action_line(
            add_action(
                file["add_path"], json.loads(file["partition_values"]), file["size"], file["modification_time"], stats
            )
        )
