"""Entries of a log that the driver reads itself, because they are small: for those a Spark job costs more than reading.

The driver takes only what it understands without doubt. An entry with a line that is malformed, or that has a value of
another type than the protocol says, is left to Spark, which reads it or says what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_hive_to_delta.core import arrow_columns
from airflow_hive_to_delta.core.delta.action_schemas import READ_ACTIONS_SCHEMA
from airflow_hive_to_delta.core.delta.log.files import commit_path
from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.storage.uri import Location, canonical_log_uri, decoded_path

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.storage.base import Storage

#: Entries that have more bytes than this together are left to Spark. An add action has some 600.
MOST_BYTES = 4 * 1024 * 1024
#: More entries than this are left to Spark.
MOST_ENTRIES = 500
#: The actions of a checkpoint of more bytes are left to Spark. A file takes some 50 in it.
MOST_CHECKPOINT_BYTES = 256 * 1024
#: A checkpoint of more bytes, or with more files than ``arrow_columns.MOST_FILES``, is left to Spark altogether.
MOST_LARGE_CHECKPOINT_BYTES = 64 * 1024 * 1024
#: Entries that are read side by side.
READERS = 32

#: The columns of a checkpoint that are read, without those that have statistics and partition values as values.
_CHECKPOINT_COLUMNS = [
    f"{action.name}.{field.name}"
    for action in arrow_schema(READ_ACTIONS_SCHEMA)
    if pa.types.is_struct(action.type)
    for field in action.type
]

#: One line of an entry, or one row of a checkpoint, in the columns of READ_ACTIONS_SCHEMA and with its ``version``. The
#: ``commitInfo`` of a line is a dict; a row has none.
Action = dict[str, Any]


#: What the driver reads of each live file of a large checkpoint; ``has_vector`` is whether rows of it are deleted by a
#: deletion vector.
LARGE_CHECKPOINT_SCHEMA = (
    "path string, partition_values map<string,string>, size bigint, modification_time bigint, has_vector boolean"
)


@dataclass(frozen=True)
class LargeCheckpoint:
    """What the driver reads of a checkpoint that has too many files for a dict each."""

    #: The rows that say more than which files there are.
    state: list[Action]
    #: Its live files, in LARGE_CHECKPOINT_SCHEMA.
    files: pa.Table
    #: The checkpoint itself.
    file: pq.ParquetFile

    def count_rows(self) -> pa.Array:
        """The rows of each live file by its statistics; null where they do not begin with a number of rows.

        :raises ValueError: the statistics cannot be read.
        """
        counted = []
        try:
            for batch in self.file.iter_batches(columns=["add.path", "add.stats"]):
                adds = batch.column("add")
                adds = adds.filter(pc.is_valid(adds))
                names = [field.name for field in adds.type]
                stats = adds.field(names.index("stats")) if "stats" in names else pa.nulls(len(adds))
                counted.append(count_rows(stats.cast(pa.string())))
        except (pa.ArrowException, OSError) as error:
            raise ValueError(str(error)) from error
        return pa.chunked_array(counted, pa.int64()).combine_chunks()


@dataclass(frozen=True)
class LogEntry:
    """An entry of a log, as the driver has read it."""

    content: bytes
    #: None when the driver does not understand all of it.
    actions: Sequence[Action] | None


def is_small(sizes: Iterable[int]) -> bool:
    """Whether entries of these sizes are for the driver to read."""
    known = list(sizes)
    return len(known) <= MOST_ENTRIES and sum(known) <= MOST_BYTES


def read_entries(storage: Storage, root: Location, versions: Sequence[int]) -> dict[int, LogEntry]:
    """Read entries of a log, each by its version.

    :raises MissingError: one does not exist.
    """

    def read(version: int) -> LogEntry:
        with storage.open(commit_path(root, version)) as stream:
            content = stream.read()
        try:
            return LogEntry(content, parse_entry(content, version))
        except (ValueError, RecursionError):
            return LogEntry(content, None)

    if len(versions) < 2:
        return {version: read(version) for version in versions}
    with ThreadPoolExecutor(min(READERS, len(versions))) as pool:
        return dict(zip(versions, pool.map(read, versions), strict=True))


def parse_entry(content: bytes, version: int) -> list[Action]:
    """The actions of an entry, a dict for each line.

    :raises ValueError: a line is not one action of the types of READ_ACTIONS_SCHEMA.
    """
    return [_parse_line(line, version) for line in content.splitlines() if line.strip()]


def parse_checkpoint(content: bytes, version: int) -> list[Action]:
    """The actions of a classic checkpoint in one file, a dict for each row.

    :raises ValueError: it is not one that can be read without doubt: a row is not of the types of READ_ACTIONS_SCHEMA,
        names a sidecar, or has statistics as columns only.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        rows = file.read(columns=_CHECKPOINT_COLUMNS).to_pylist(maps_as_pydicts="strict")
    except (pa.ArrowException, OSError, KeyError, OverflowError) as error:
        raise ValueError(str(error)) from error
    has_parsed = any(column.path.startswith("add.stats_parsed.") for column in file.schema)
    actions = []
    for row in rows:
        add = row.get("add")
        if row.get("sidecar") is not None or (has_parsed and add is not None and add.get("stats") is None):
            raise ValueError("its files or statistics are elsewhere")
        action = {name: read(row.get(name)) for name, read in _COLUMNS.items()}
        check_file(action)
        actions.append(action | {"version": version})
    return actions


def parse_large_checkpoint(content: bytes, version: int) -> LargeCheckpoint:
    """The state and the live files of a classic checkpoint in one file.

    :raises ValueError: it is not one that can be read without doubt, names a sidecar, or has very many files.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        if file.metadata.num_rows > arrow_columns.MOST_FILES:
            raise ValueError(f"it has {file.metadata.num_rows} rows")
        state = file.read(columns=[name for name in _CHECKPOINT_COLUMNS if name.startswith(_STATE_COLUMNS)])
        if not state.num_columns:
            raise ValueError("it has no protocol and no metadata")
        says_more = reduce(pc.or_, (pc.is_valid(state[name]) for name in state.column_names))
        rows = state.filter(says_more).to_pylist(maps_as_pydicts="strict")
        adds = file.read(columns=_FILE_COLUMNS).column("add").combine_chunks()
        adds = adds.filter(pc.is_valid(adds))
        fields = {field.name: adds.field(number) for number, field in enumerate(adds.type)}
        vector = fields.get("deletionVector")
        columns = [fields[name] for name in ("path", "partitionValues", "size", "modificationTime")]
        columns.append(pa.repeat(False, len(adds)) if vector is None else pc.is_valid(vector))
        schema = arrow_schema(LARGE_CHECKPOINT_SCHEMA)
        files = pa.table([column.cast(kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema)
    except (pa.ArrowException, OSError, KeyError, OverflowError) as error:
        raise ValueError(str(error)) from error
    if any(row.get("sidecar") is not None for row in rows) or files["path"].null_count:
        raise ValueError("its files are elsewhere, or one has no path")
    actions = [{name: read(row.get(name)) for name, read in _COLUMNS.items()} | {"version": version} for row in rows]
    return LargeCheckpoint(actions, files, file)


def count_rows(stats: pa.Array) -> pa.Array:
    """The rows that statistics begin with; null where they do not begin so."""
    found = pc.extract_regex(stats, r'^\{"numRecords":(?P<rows>[0-9]{1,18})[,}]')
    return pc.struct_field(found, "rows").cast(pa.int64())


def check_file(action: Action) -> None:
    """Check that the path of the file of an action, if it has one, can be decoded.

    :raises ValueError: it cannot, or the action has two files.
    """
    files = [file for file in (action["add"], action["remove"]) if file is not None]
    if len(files) > 1 or any(file["path"] is None for file in files):
        raise ValueError("a line names two files, or none")
    for file in files:
        decoded_path(file["path"])


def latest_file_actions(actions: Iterable[Action], root: Location) -> list[dict[str, Any]]:
    """The latest action of each file, in LATEST_ACTIONS_SCHEMA.

    A file is identified by its path and its deletion vector. As in Delta, a file whose path the log spells in two ways
    is there twice.
    """
    latest: dict[tuple[str, str, str], dict[str, Any]] = {}
    for action in sorted(actions, key=lambda action: int(action["version"])):
        add, remove = action["add"], action["remove"]
        file = add or remove
        if file is None:
            continue
        key, vector = canonical_log_uri(file["path"], root), file["deletionVector"] or {}
        named_by = (vector.get("storageType"), vector.get("pathOrInlineDv"), vector.get("offset"))
        identity = (key, decoded_path(file["path"]), "|".join(str(part) for part in named_by if part is not None))
        latest[identity] = {
            "key": key,
            "version": action["version"],
            "is_add": add is not None,
            "path": file["path"],
            "partition_values": file["partitionValues"],
            "size": file["size"],
            "modification_time": add and add["modificationTime"],
            "stats": add and add["stats"],
            "tags": file["tags"] if add else None,
            "deletion_vector": file["deletionVector"],
            "deletion_timestamp": remove and remove["deletionTimestamp"],
            "extended_file_metadata": remove and remove["extendedFileMetadata"],
        }
    return list(latest.values())


_STATE_COLUMNS = ("protocol.", "metaData.", "txn.", "sidecar.")
#: The columns of a large checkpoint that are read of its files.
_FILE_COLUMNS = [
    *(f"add.{name}" for name in ("path", "partitionValues", "size", "modificationTime")),
    "add.deletionVector.storageType",
]
_Reader = Callable[[Any], Any]


def _parse_line(line: bytes, version: int) -> Action:
    text = line.decode()
    found = _checked(json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant), dict)
    action = {name: read(found.get(name)) for name, read in _COLUMNS.items()}
    info = found.get("commitInfo")
    if info is not None:
        _checked(info, dict)
    check_file(action)
    return action | {"commitInfo": info, "version": version}


def _without_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a name twice")
    return found


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no value of JSON")


def _reader(kind: pa.DataType) -> _Reader:
    """The function that checks and returns a value of JSON for a column of a type; null is of every type."""
    if pa.types.is_struct(kind):
        fields = {field.name: _reader(field.type) for field in kind}

        def read_struct(value: Any) -> Any:
            if value is None:
                return None
            given = _checked(value, dict)
            return {name: read(given.get(name)) for name, read in fields.items()}

        return read_struct
    if pa.types.is_map(kind):
        read_value = _reader(kind.item_type)

        def read_map(value: Any) -> Any:
            if value is None:
                return None
            return {_string(name): read_value(item) for name, item in _checked(value, dict).items()}

        return read_map
    if pa.types.is_list(kind):
        read_item = _reader(kind.value_type)
        return lambda value: None if value is None else [read_item(item) for item in _checked(value, list)]
    if pa.types.is_string(kind):
        return _string
    if pa.types.is_boolean(kind):
        return lambda value: None if value is None else _checked(value, bool)
    most = 2 ** (kind.bit_width - 1)

    def read_integer(value: Any) -> Any:
        if value is not None and not -most <= _checked(value, int) < most:
            raise ValueError(f"{value} does not fit into {kind}")
        return value

    return read_integer


def _string(value: Any) -> Any:
    if value is not None:
        _checked(value, str).encode()  # half of a surrogate pair is no character
    return value


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"a value is {type(value).__name__}, expected {kind.__name__}")
    return value


_COLUMNS: Mapping[str, _Reader] = {
    field.name: _reader(field.type) for field in arrow_schema(READ_ACTIONS_SCHEMA) if field.name != "commitInfo"
}
