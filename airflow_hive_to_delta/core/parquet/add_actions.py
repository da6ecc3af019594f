"""From a listed file to its add action.

The location of a file says whether it is part of the table, which ``add.path`` it has, and which partition it belongs
to (:class:`FileLocator`). Once the file was described too, its add action is written (:class:`AddWriter`).
"""

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
    describe_error,
)
from airflow_hive_to_delta.core.parquet.statistics import StatisticsWriter, TableLeaf
from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.schema.partition_values import partition_folders, stored_values
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

#: What is known of a file once it was described. ``error`` is null unless the file cannot be part of the table, and
#: ``error_kind`` names its class. ``layout`` names the file's own schema; its text, ``file_schema``, is given with at
#: least one file of each layout and task. ``key``, the file's canonical URI, and ``folder_keys`` are given where files
#: are described by their paths only.
DESCRIBED_SCHEMA = (
    "path string, size bigint, modification_time bigint, add_path string, partition_values string, rows bigint, "
    "layout string, file_schema string, leaf_statistics string, key string, folder_keys string, "
    "error string, error_kind string, retryable boolean"
)
DESCRIBED_ARROW_SCHEMA = arrow_schema(DESCRIBED_SCHEMA)
#: Many add actions in each row, because every row costs time on its way to the driver: their lines, the hashes of their
#: paths, by which a file that is listed twice is found, and the sum of their rows, null if those of one are not known.
BLOCKS_SCHEMA = "lines string, hashes binary, rows bigint, error string"
_BLOCKS_ARROW_SCHEMA = arrow_schema(BLOCKS_SCHEMA)
#: Columns of DESCRIBED_SCHEMA that hold JSON: what is written in one process is not encoded.
_JSON_COLUMNS = ("partition_values", "leaf_statistics")
_LINES_PER_BLOCK = 1_000
_HASH_BYTES = 8
#: Folders whose partition values one task remembers.
_MOST_FOLDERS = 10_000


@dataclass(frozen=True)
class FilePlacement:
    """Where a file belongs in the table."""

    location: Location
    add_path: str
    #: None: the table has no partition columns and the listing gave no values.
    partition_values: dict[str, str | None] | None
    #: Keys of the ``key=value`` folders of a file in a table without partition columns.
    folder_keys: list[str]


def error_row(error: HiveToDeltaError) -> dict[str, Any]:
    """The columns of DESCRIBED_SCHEMA for a file that cannot be part of the table because of this error."""
    return describe_error(error).to_fields()


def placement_row(placement: FilePlacement) -> dict[str, Any]:
    """The columns of DESCRIBED_SCHEMA that say where a file belongs."""
    return {"add_path": placement.add_path, "partition_values": placement.partition_values or {}}


def encode_rows(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    """Described files in DESCRIBED_ARROW_SCHEMA. Partition values and statistics become JSON texts in ``rows``."""
    encoded = list(rows)
    for row in encoded:
        for name in _JSON_COLUMNS:
            if row.get(name) is not None:
                row[name] = json.dumps(row[name])
    return pa.RecordBatch.from_pylist(encoded, schema=DESCRIBED_ARROW_SCHEMA)


def _decode_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows that :func:`encode_rows` was given."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        for name in _JSON_COLUMNS:
            if row[name] is not None:
                row[name] = json.loads(row[name])
    return rows


class FileLocator:
    """Finds out by its location where each file belongs in a table.

    :param partition_types: Delta type of every partition column, in order.
    """

    def __init__(self, root: Location, partition_types: dict[str, str], options: ConversionOptions) -> None:
        self._root = root
        self._types = partition_types
        self._options = options
        self._values_by_folder: dict[str, dict[str, str | None]] = {}
        self._folders: dict[str, Location] = {}

    def locate(self, file: dict[str, Any]) -> FilePlacement | None:
        """Where a file belongs; None when it is not a data file (rules 40 and 41).

        A listing that gives partition values has found the file at a partition's own location, which may lie in a
        hidden folder.

        :param file: a row of FILES_SCHEMA.
        :raises PermanentError: the file lies outside the allowed roots, or has an impossible path or size.
        :raises PartitionError: its partition values do not fit the partition columns.
        """
        path, size, given = file["path"], file["size"], file["partition_values"]
        location = self._parse(path)
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
        if given is None and not self._types:
            return FilePlacement(location, written, None, [key for key, _ in partition_folders(below)])
        return FilePlacement(location, written, self._partition_values(given, path, below), [])

    def _parse(self, path: str) -> Location:
        """Parse the path of a file. What is known of its folder is not found out again."""
        folder, slash, name = path.rpartition("/")
        known = self._folders.get(folder + slash)
        if known is not None and name not in ("", ".", "..") and "\0" not in name:
            return known.child(name)
        location = parse_location(path, "file path")
        if location.parent.child(name) == location:  # not so for a bucket
            if len(self._folders) >= _MOST_FOLDERS:
                self._folders.clear()
            self._folders[folder + slash] = location.parent
        return location

    def _partition_values(self, given: Mapping[str, str | None] | None, path: str, below: str) -> dict[str, str | None]:
        folder = below.rpartition("/")[0]
        values = self._values_by_folder.get(folder) if given is None else None
        if values is None:
            values = stored_values(given, below, self._types, self._options.partition_timezone, path)
            if given is None:
                if len(self._values_by_folder) >= _MOST_FOLDERS:
                    self._values_by_folder.clear()
                self._values_by_folder[folder] = values
        return values


def check_folder_keys(keys: Iterable[str], columns: Iterable[str], where: str, options: ConversionOptions) -> None:
    """Refuse ``key=value`` folders of a table without partition columns, unless the files have the keys as columns.

    :param where: the file, or the table, as the message names it.
    :raises PartitionError: the values of a key would be lost.
    """
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
    """The function for ``mapInArrow`` that turns files (DESCRIBED_SCHEMA) into add actions (BLOCKS_SCHEMA)."""

    leaves: Sequence[TableLeaf]
    #: Text of each schema that files have, by its name.
    layouts: Mapping[str, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = StatisticsWriter(self.leaves)
        for batch in batches:
            blocks = [
                write_block(_decode_rows(batch.slice(start, _LINES_PER_BLOCK)), writer, self.layouts)
                for start in range(0, batch.num_rows, _LINES_PER_BLOCK)
            ]
            yield pa.RecordBatch.from_pylist(blocks, schema=_BLOCKS_ARROW_SCHEMA)

    def write_rows(self, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The add actions of files that the driver has described, as rows of BLOCKS_SCHEMA."""
        batch = pa.RecordBatch.from_pylist(rows, schema=DESCRIBED_ARROW_SCHEMA)
        return (block for blocks in self(iter([batch])) for block in blocks.to_pylist())


def write_block(
    files: Sequence[dict[str, Any]], writer: StatisticsWriter, layouts: Mapping[str, str]
) -> dict[str, Any]:
    """The add actions of described files, as a row of BLOCKS_SCHEMA.

    :param files: as :func:`encode_rows` takes them.
    :param layouts: the text of each schema that files have, by its name.
    """
    rows = [file["rows"] for file in files]
    return {
        "lines": "\n".join(_add_line(file, writer, layouts) for file in files),
        "hashes": b"".join(blake2b(file["add_path"].encode(), digest_size=_HASH_BYTES).digest() for file in files),
        "rows": None if None in rows else sum(rows),
        "error": next((file["error"] for file in files if file.get("error") is not None), None),
    }


def _add_line(file: dict[str, Any], writer: StatisticsWriter, layouts: Mapping[str, str]) -> str:
    leaf_statistics = file.get("leaf_statistics")
    stats = None if leaf_statistics is None else writer.write(layouts[file["layout"]], leaf_statistics, file["rows"])
    return action_line(
        add_action(file["add_path"], file["partition_values"], file["size"], file["modification_time"], stats)
    )
