"""From a listed file to its add action: is it part of the table, under which path, in which partition."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_hive_to_delta.core.delta_log import action_line, add_action
from airflow_hive_to_delta.core.errors import PartitionError, PermanentError
from airflow_hive_to_delta.core.partitions import normalise, partition_folders, values_from_path
from airflow_hive_to_delta.core.paths import (
    Location,
    add_path,
    check_allowed,
    is_hidden,
    is_hidden_outside,
    is_staged,
    parse_location,
)
from airflow_hive_to_delta.core.statistics import StatisticsWriter, TableLeaf

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.models import ConversionOptions

#: What is known of a file once it was described. ``error`` is null unless the file cannot be part of the table.
#: ``layout`` names the file's own schema, whose text ``file_schema`` at least one file of each layout and task has.
#: ``key`` and ``folder_keys`` are filled where Spark's own reader describes the files.
DESCRIBED_SCHEMA = (
    "path string, size bigint, modification_time bigint, add_path string, partition_values string, rows bigint, "
    "layout string, file_schema string, leaf_statistics string, key string, folder_keys string, "
    "error string, retryable boolean"
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
        ("retryable", pa.bool_()),
    ]
)
LINES_SCHEMA = "line string, add_path string, rows bigint, error string"
_ARROW_LINES = pa.schema(
    [("line", pa.string()), ("add_path", pa.string()), ("rows", pa.int64()), ("error", pa.string())]
)


@dataclass(frozen=True)
class Placed:
    """A file's place in the table."""

    location: Location
    add_path: str
    #: None: the table has no partition columns and the listing gave no values.
    partition_values: dict[str, str | None] | None
    #: Keys of the ``key=value`` folders of a file in a table without partition columns.
    folder_keys: list[str]


def place(
    file: dict[str, Any], root: Location, partition_types: dict[str, str], options: ConversionOptions
) -> Placed | None:
    """Where a file of FILES_SCHEMA belongs; None when it is no data file (rules 40 and 41).

    A listing that gives partition values knows the partition's own location, which may lie in a hidden folder.
    """
    location = parse_location(file["path"], "file path")
    check_allowed(location, options.allowed_roots)
    if file["size"] < 0:
        raise PermanentError(f"The size of {file['path']} is {file['size']}, expected its bytes. List the files again")
    inside = root.holds(location)
    folders = root.relative(location) if inside else location.path
    given = file["partition_values"]
    hidden = is_staged(location) if given is not None else is_hidden(folders) if inside else is_hidden_outside(location)
    if file["size"] == 0 or hidden:
        return None
    path = add_path(location, root)
    if given is None and not partition_types:
        return Placed(location, path, None, [key for key, _ in partition_folders(folders)])
    raw = values_from_path(file["path"], folders, list(partition_types)) if given is None else given
    return Placed(location, path, normalise(raw, partition_types, options.partition_timezone, file["path"]), [])


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
            rows = [self._add(file, writer) for file in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_LINES)

    def _add(self, file: dict[str, Any], writer: StatisticsWriter) -> dict[str, Any]:
        leaf_statistics = file["leaf_statistics"]
        stats = (
            None
            if leaf_statistics is None
            else writer.write(self.layouts[file["layout"]], json.loads(leaf_statistics), file["rows"])
        )
        action = add_action(
            file["add_path"], json.loads(file["partition_values"]), file["size"], file["modification_time"], stats
        )
        return {"line": action_line(action), "add_path": file["add_path"], "rows": file["rows"], "error": file["error"]}
