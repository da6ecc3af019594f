"""The checkpoint of a converted table: the actions of the first log entry as Parquet, which readers need not parse.

The first entry of a large table is hundreds of megabytes of JSON. The checkpoint is made from the committed entry, line
by line. It can be made at any time, and an existing one is not overwritten (rule 39).
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_hive_to_delta.core.delta.action_schemas import WRITTEN_ACTIONS_SCHEMA
from airflow_hive_to_delta.core.delta.actions import action_line
from airflow_hive_to_delta.core.delta.log_files import commit_path, log_folder
from airflow_hive_to_delta.core.errors import PermanentError, TransientError
from airflow_hive_to_delta.core.schema.arrow import arrow_schema

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.storage.base import Storage
    from airflow_hive_to_delta.core.storage.uri import Location

_ROWS_PER_BATCH = 20_000
_SCHEMA = arrow_schema(WRITTEN_ACTIONS_SCHEMA)
_KEPT = {"txn", "add", "metaData", "protocol"}
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
    with tempfile.TemporaryFile() as file:
        rows, adds = _write_parquet(_actions(storage, commit_path(root, version)), file)
        storage.put_if_absent(path, file)
    size = _check(storage, path, rows, adds)
    pointer = {"version": version, "size": rows, "sizeInBytes": size, "numOfAddFiles": adds}
    storage.put_if_absent(log_folder(root).child("_last_checkpoint"), io.BytesIO(action_line(pointer).encode()))


def _actions(storage: Storage, entry: Location) -> Iterator[dict[str, Any]]:
    """The rows of the checkpoint: every action of the entry except its ``commitInfo``."""
    with storage.open(entry) as lines:
        for line in lines:
            if not line.strip():
                continue
            ((kind, action),) = json.loads(line).items()
            if kind == "commitInfo":
                continue
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


def _write_parquet(actions: Iterator[dict[str, Any]], file: BinaryIO) -> tuple[int, int]:
    """Write the actions in batches. Returns how many rows there are, and how many of them are adds."""
    rows = adds = 0
    with pq.ParquetWriter(file, _SCHEMA, compression="snappy") as writer:
        batch: list[dict[str, Any]] = []
        for action in actions:
            batch.append(action)
            rows += 1
            adds += "add" in action
            if len(batch) == _ROWS_PER_BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=_SCHEMA))
                batch = []
        if batch:
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=_SCHEMA))
    return rows, adds


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
                found_adds += batch.num_rows - batch.column("add").field("path").null_count
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
