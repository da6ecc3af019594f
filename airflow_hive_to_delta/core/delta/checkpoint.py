"""The checkpoint of a converted table: the actions of the first log entry as Parquet, which readers need not parse.

The first entry of a large table is hundreds of megabytes of JSON. The checkpoint is made from the committed entry, line
by line. It can be made at any time, and an existing one is not overwritten (rule 39).
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from airflow_hive_to_delta.core.delta.action_schemas import WRITTEN_ACTIONS_SCHEMA
from airflow_hive_to_delta.core.delta.actions import action_line
from airflow_hive_to_delta.core.delta.log.files import commit_path, log_folder
from airflow_hive_to_delta.core.errors import PermanentError, TransientError
from airflow_hive_to_delta.core.schema.arrow import arrow_schema

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.storage.base import Storage
    from airflow_hive_to_delta.core.storage.uri import Location

_ROWS_PER_BATCH = 20_000
_SCHEMA = arrow_schema(WRITTEN_ACTIONS_SCHEMA)
_KEPT = {"txn", "add", "metaData", "protocol"}
#: How an add action begins, as :func:`action_line` writes it.
_ADD = b'{"add":'
#: What pyarrow reads of the add actions of this package, beside the values of their partitions.
_ADD_TYPES = {
    **dict.fromkeys(("path", "stats"), pa.string()),
    **dict.fromkeys(("size", "modificationTime"), pa.int64()),
    "dataChange": pa.bool_(),
}
_FIELDS = {field.name: {part.name for part in field.type} for field in _SCHEMA}


def write_checkpoint(storage: Storage, root: Location, version: int) -> None:
    """Write the classic checkpoint of version 0, read it back, and point ``_last_checkpoint`` at it.

    It can be called again, and by several processes at once: a checkpoint that exists already is checked and kept.

    :raises PermanentError: a checkpoint exists that does not hold what the entry holds. ``_last_checkpoint`` is then
        not written.
    """
    if version != 0:
        raise PermanentError(
            f"{root}: only version 0 is a table by itself; a checkpoint of {version} needs its snapshot"
        )
    path = log_folder(root).child(f"{version:020d}.checkpoint.parquet")
    entry = commit_path(root, version)
    with tempfile.TemporaryFile() as file:
        with storage.open(entry) as lines:
            rows, adds = _write_parquet(_read_batches(lines, entry), file)
        storage.put_if_absent(path, file)
    size = _check(storage, path, rows, adds)
    pointer = {"version": version, "size": rows, "sizeInBytes": size, "numOfAddFiles": adds}
    storage.put_if_absent(log_folder(root).child("_last_checkpoint"), io.BytesIO(action_line(pointer).encode()))


def _read_batches(lines: Iterable[bytes], entry: Location) -> Iterator[pa.RecordBatch]:
    """The rows of the checkpoint: every action of the entry except its ``commitInfo``."""
    adds: list[bytes] = []
    others: list[dict[str, Any]] = []
    for line in lines:
        if line.startswith(_ADD):
            adds.append(line)
            if len(adds) == _ROWS_PER_BATCH:
                yield _parse_adds(adds, entry)
                adds = []
        elif line.strip():
            others += _parse_line(line, entry)
            if len(others) == _ROWS_PER_BATCH:
                yield pa.RecordBatch.from_pylist(others, schema=_SCHEMA)
                others = []
    if adds:
        yield _parse_adds(adds, entry)
    if others:
        yield pa.RecordBatch.from_pylist(others, schema=_SCHEMA)


def _parse_adds(lines: list[bytes], entry: Location) -> pa.RecordBatch:
    """The rows of add actions. pyarrow parses them many times faster than Python, if all have the same fields."""
    names = list(json.loads(lines[0])["add"].get("partitionValues") or ())
    values = pa.struct([pa.field(name, pa.string()) for name in names])
    types = {**_ADD_TYPES, "partitionValues": values}
    options = pj.ParseOptions(
        explicit_schema=pa.schema([pa.field("add", pa.struct(list(types.items())))]),
        unexpected_field_behavior="error",
    )
    text = b"".join(line.rstrip() + b"\n" for line in lines)
    # One block: the parser takes no line that is longer than a block.
    read = pj.ReadOptions(block_size=len(text))
    try:
        parsed = pj.read_json(pa.BufferReader(text), read_options=read, parse_options=options)["add"].combine_chunks()
    except pa.ArrowInvalid:
        # Other fields, or values of other types: each line by itself is understood or refused.
        rows = [row for line in lines for row in _parse_line(line, entry)]
        return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)
    count = len(lines)
    columns = {
        **{name: parsed.field(name) for name in _ADD_TYPES},
        "partitionValues": _as_maps(names, parsed.field("partitionValues").flatten(), count),
        "dataChange": pa.repeat(pa.scalar(False), count),
    }
    fields = list(_SCHEMA.field("add").type)
    arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in fields]
    add = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.RecordBatch.from_arrays(
        [add if f.name == "add" else pa.nulls(count, f.type) for f in _SCHEMA], schema=_SCHEMA
    )


def _as_maps(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> pa.Array:
    """The values of partitions as maps, one for each row."""
    width = len(names)
    offsets = pa.array(range(0, count * width + 1, width) if width else [0] * (count + 1), pa.int32())
    keys = pa.array([*names] * count, pa.string())
    items = pa.nulls(0, pa.string())
    if width:
        positions = pa.array([column * count + row for row in range(count) for column in range(width)])
        items = pa.concat_arrays(columns).take(positions)
    return pa.MapArray.from_arrays(offsets, keys, items)


def _parse_line(line: bytes, entry: Location) -> Iterator[dict[str, Any]]:
    """The row of an action; none of a ``commitInfo``.

    :raises PermanentError: the action has what a checkpoint of this package would lose.
    """
    ((kind, action),) = json.loads(line).items()
    if kind == "commitInfo":
        return
    # Readers that start at the checkpoint would not see what it leaves out.
    if kind not in _KEPT or not action.keys() <= _FIELDS[kind]:
        unknown = kind if kind not in _KEPT else sorted(action.keys() - _FIELDS[kind])
        raise PermanentError(f"{entry} holds {unknown}, which this package's checkpoints have no place for")
    yield {kind: _row(kind, action)}


def _row(kind: str, action: dict[str, Any]) -> dict[str, Any]:
    if kind == "add":
        maps = {key: list(action[key].items()) for key in action.keys() & {"partitionValues", "tags"}}
        return {**action, **maps, "dataChange": False}
    if kind == "metaData":
        options = list(action["format"].get("options", {}).items())
        configuration = list(action.get("configuration", {}).items())
        return {**action, "format": {**action["format"], "options": options}, "configuration": configuration}
    return action


def _write_parquet(batches: Iterable[pa.RecordBatch], file: BinaryIO) -> tuple[int, int]:
    """Write the rows. Returns how many there are, and how many of them are adds."""
    rows = adds = 0
    with pq.ParquetWriter(file, _SCHEMA, compression="snappy") as writer:
        for batch in batches:
            rows += batch.num_rows
            adds += _count_adds(batch)
            writer.write_batch(batch)
    return rows, adds


def _count_adds(batch: pa.RecordBatch) -> int:
    count: int = batch.num_rows - batch.column("add").null_count
    return count


def _check(storage: Storage, path: Location, rows: int, adds: int) -> int:
    """Read a checkpoint back from the storage and return its size.

    :raises PermanentError: it cannot be read, or has other numbers of rows and adds.
    """
    with tempfile.TemporaryFile() as copy, storage.open(path) as stored:
        while chunk := stored.read(1024 * 1024):
            copy.write(chunk)
        size = copy.tell()
        copy.seek(0)
        found_rows = found_adds = 0
        try:
            for batch in pq.ParquetFile(copy).iter_batches(_ROWS_PER_BATCH):
                found_rows += batch.num_rows
                found_adds += _count_adds(batch)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise PermanentError(_unusable(path, f"cannot be read ({error})")) from error
    if (found_rows, found_adds) != (rows, adds):
        found = f"holds {found_rows} actions and {found_adds} files, expected {rows} and {adds}"
        raise PermanentError(_unusable(path, found))
    if size != storage.size(path):
        raise TransientError(f"{path} came back with {size} of its {storage.size(path)} bytes; try again")
    return size


def _unusable(path: Location, found: str) -> str:
    return (
        f"The checkpoint {path} {found}. _last_checkpoint was not written, but readers that list the log find it: "
        "remove this file, then run the conversion again"
    )
