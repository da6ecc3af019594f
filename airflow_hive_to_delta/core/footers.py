"""Parquet footers, read on the executors: one read per file gives its schema, row count and statistics.

The Thrift footer is parsed by pyarrow. What pyarrow hides is taken from the raw bytes: whether the bounds are in the
fields whose order is defined.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from airflow_hive_to_delta.core import aws
from airflow_hive_to_delta.core.adds import DESCRIBED_ARROW, Placer, check_folder_keys, error_row
from airflow_hive_to_delta.core.errors import (
    HiveToDeltaError,
    MissingError,
    PermanentError,
    SchemaError,
    aws_call,
)
from airflow_hive_to_delta.core.paths import S3_SCHEMES, Location, parse_location
from airflow_hive_to_delta.core.statistics import (
    LeafStatistics,
    date_bound,
    decimal_bound,
    float_bound,
    integer_bound,
    string_bound,
    timestamp_bound,
)

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.models import ConversionOptions

_OUTPUT_ROWS = 1_000
#: Layouts that one task remembers; a table has a few.
_MOST_LAYOUTS = 64


@dataclass
class FooterReader:
    """The function for ``mapInArrow``: a DataFrame in FILES_SCHEMA becomes one in DESCRIBED_SCHEMA."""

    root: str
    #: Delta type of every partition column, in order.
    partition_types: dict[str, str]
    options: ConversionOptions
    _layouts: dict[str, Layout] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        root = parse_location(self.root)
        placer = Placer(root, self.partition_types, self.options)
        remote = root.scheme != "file"
        told: set[str] = set()
        with ThreadPoolExecutor(self.options.footer_threads if remote else 1) as pool:
            run: Callable[..., Iterator[dict[str, Any] | None]] = pool.map if remote else map
            for batch in batches:
                for start in range(0, batch.num_rows, _OUTPUT_ROWS):
                    files = batch.slice(start, _OUTPUT_ROWS).to_pylist(maps_as_pydicts="strict")
                    rows = [row for row in run(lambda file: self._read(file, placer), files) if row is not None]
                    _tell_each_schema_once(rows, told)
                    yield pa.RecordBatch.from_pylist(rows, schema=DESCRIBED_ARROW)

    def _read(self, file: dict[str, Any], placer: Placer) -> dict[str, Any] | None:
        row = {"path": file["path"], "size": file["size"], "modification_time": file["modification_time"]}
        try:
            placed = placer.place(file)
            if placed is None:
                return None
            tail, modification_time = read_tail(placed.location, file["size"], self.options)
            metadata = parse_footer(tail, file["path"])
            layout = self._layout(metadata.schema, file["path"])
            check_folder_keys(placed.folder_keys, layout.column_names, f"The file {file['path']}", self.options)
            if row["modification_time"] is None:
                row["modification_time"] = modification_time
            row["add_path"] = placed.add_path
            row["partition_values"] = json.dumps(placed.partition_values or {})
            row["rows"] = metadata.num_rows
            row["layout"] = layout.name
            row["file_schema"] = layout.schema
            if self.options.stats == "footer":
                row["leaf_statistics"] = json.dumps(leaf_statistics(metadata, layout, tail))
        except HiveToDeltaError as error:
            row |= error_row(error)
        except UnicodeDecodeError as error:
            row |= error_row(SchemaError(f"The footer of {row['path']} has a name that is not UTF-8: {error}"))
        return row

    def _layout(self, schema: pq.ParquetSchema, path: str) -> Layout:
        # Not by ParquetSchema.equals, which compares the leaves only: to it `tags: list` and `labels: list` are equal.
        printed = repr(schema).partition("\n")[2]  # the first line is the object's address
        layout = self._layouts.get(printed)
        if layout is None:
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[printed] = layout_of(schema, path)
        return layout


def _tell_each_schema_once(rows: list[dict[str, Any]], told: set[str]) -> None:
    """Most files of a table have one schema, and its text is longer than all else that is known of a file."""
    for row in rows:
        layout = row.get("layout")
        if layout in told:
            row["file_schema"] = None
        elif layout is not None:
            told.add(layout)


def read_tail(location: Location, size: int, options: ConversionOptions) -> tuple[bytes, int]:
    """The end of a file with its whole footer in it, and when the file was modified. One read where that is enough."""
    read = _s3_tail if location.scheme in S3_SCHEMES else _local_tail if location.scheme == "file" else _arrow_tail
    tail, actual_size, modification_time = read(location, min(size, max(options.footer_tail_bytes, 8)), options)
    if actual_size != size:
        raise PermanentError(
            f"The file {location} has {actual_size} bytes, but {size} were listed: it was rewritten since, or the list "
            "is of another table. List the files again"
        )
    # The last 8 bytes are the footer's length and the magic bytes.
    needed = int.from_bytes(tail[-8:-4], "little") + 8
    if needed > len(tail) and tail.endswith(b"PAR1") and needed <= size:
        tail, _, _ = read(location, needed, options)
    return tail, modification_time


def parse_footer(tail: bytes, path: str) -> pq.FileMetaData:
    if tail.endswith(b"PARE"):
        raise PermanentError(
            f"The file {path} has an encrypted footer, so neither its schema nor its rows can be known"
        )
    if not tail.endswith(b"PAR1"):
        raise PermanentError(f"The file {path} is not a Parquet file: it ends in {tail[-4:]!r}, expected b'PAR1'")
    reader = pq.ParquetReader()  # half the time of pq.read_metadata, which also prepares reading the data
    try:
        reader.open(pa.BufferReader(tail))
    except (pa.ArrowException, OSError) as error:
        raise PermanentError(f"The footer of {path} cannot be read: {error}") from error
    return reader.metadata


@dataclass(frozen=True)
class Leaf:
    """A leaf column of a file: its Delta type, and how its bounds are told, if they can be trusted."""

    delta_type: str
    #: Name of the rule for bounds; None: no bounds (rules 32 and 36).
    bound: str | None = None
    scale: int = 0


@dataclass(frozen=True)
class Layout:
    """The columns of a file in Delta's terms."""

    #: Equal for equal schemas.
    name: str
    #: The file's schema as JSON text, in Delta's form.
    schema: str
    column_names: frozenset[str]
    #: None for leaves of lists and maps.
    leaves: tuple[Leaf | None, ...]


def layout_of(schema: Any, path: str) -> Layout:
    """Structure from pyarrow's reading of the groups, types from the leaves themselves.

    pyarrow's own types follow the ``ARROW:schema`` that its writer leaves in a file; Spark's do not, and ours must not.
    """
    columns = [schema.column(i) for i in range(len(schema))]
    leaves = [_leaf(column, path) for column in columns]
    remaining = iter(leaves)
    fields = [_field(f.name, f.type, remaining, path) for f in schema.to_arrow_schema()]
    text = json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))
    return Layout(
        name=hashlib.blake2b(text.encode(), digest_size=16).hexdigest(),
        schema=text,
        column_names=frozenset(f["name"].lower() for f in fields),
        leaves=tuple(None if c.max_repetition_level else leaf for c, leaf in zip(columns, leaves, strict=True)),
    )


def leaf_statistics(metadata: pq.FileMetaData, layout: Layout, tail: bytes) -> list[LeafStatistics | None]:
    """Minimum, maximum and null count of every leaf over all row groups, where the footer can be trusted in them."""
    groups = [group for group in map(metadata.row_group, range(metadata.num_row_groups)) if group.num_rows]
    ordered = _has_column_orders(tail, metadata.num_columns)
    from_parquet_mr = (metadata.created_by or "").startswith("parquet-mr")
    found: list[LeafStatistics | None] = []
    for position, leaf in enumerate(layout.leaves):
        if leaf is None:
            found.append(None)
            continue
        trusted = ordered and leaf.bound is not None and (leaf.bound != "float" or from_parquet_mr)
        nulls: int | None = 0
        lowest = highest = None
        for group in groups:
            statistics = group.column(position).statistics
            if statistics is None:
                trusted, nulls = False, None
                break
            group_nulls = statistics.null_count if statistics.has_null_count else None
            nulls = None if nulls is None or group_nulls is None else nulls + group_nulls
            if not trusted:
                continue
            if statistics.has_min_max:
                low, high = _comparable(leaf, statistics.min_raw), _comparable(leaf, statistics.max_raw)
                # A NaN compares as false with everything: it must not be passed over.
                if low != low or high != high:
                    trusted = False
                    continue
                lowest = low if lowest is None or low < lowest else lowest
                highest = high if highest is None or high > highest else highest
            elif group_nulls != group.num_rows:
                trusted = False
        if trusted and lowest is not None:
            found.append((_bound(leaf, lowest, upper=False), _bound(leaf, highest, upper=True), nulls))
        else:
            found.append((None, None, nulls))
    return found


def _comparable(leaf: Leaf, raw: Any) -> Any:
    return int.from_bytes(raw, "big", signed=True) if leaf.bound == "decimal" and isinstance(raw, bytes) else raw


def _bound(leaf: Leaf, value: Any, *, upper: bool) -> str | None:
    match leaf.bound:
        case "integer":
            return integer_bound(value)
        case "decimal":
            return decimal_bound(value, leaf.scale)
        case "float":
            return float_bound(value, upper=upper)
        case "string":
            return string_bound(value, upper=upper)
        case "date":
            return date_bound(value)
        case "millis" | "micros":
            millis = value if leaf.bound == "millis" else value // 1000
            return timestamp_bound(millis, utc=leaf.delta_type == "timestamp")
    return None


def _has_column_orders(tail: bytes, leaves: int) -> bool:
    """Whether the footer says that bounds are in the fields with a defined order, not in the deprecated ones (rule 36).

    ``column_orders`` is the last field that writers set: a Thrift list of one ``TypeDefinedOrder`` per leaf. pyarrow
    reads the deprecated fields when it is absent and does not tell. A footer that ends otherwise gives no bounds.
    """
    return tail.endswith(_column_orders(leaves), 0, len(tail) - 8)


@lru_cache
def _column_orders(leaves: int) -> bytes:
    header = bytes([leaves << 4 | 0xC]) if leaves < 15 else b"\xfc" + _varint(leaves)
    return b"\x19" + header + b"\x1c\x00\x00" * leaves + b"\x00"


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _field(name: str, kind: pa.DataType, leaves: Iterator[Leaf], path: str) -> dict[str, Any]:
    return {"name": name, "type": _type(name, kind, leaves, path), "nullable": True, "metadata": {}}


def _type(name: str, kind: pa.DataType, leaves: Iterator[Leaf], path: str) -> str | dict[str, Any]:
    if isinstance(kind, pa.BaseExtensionType) and pa.types.is_nested(kind.storage_type):
        raise SchemaError(
            f"The column {name} of {path} is of the type {kind}, which Delta tables made in place cannot have"
        )
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(f.name, f.type, leaves, path) for f in kind.fields]}
    if pa.types.is_map(kind):
        key, value = (_type(name, t, leaves, path) for t in (kind.key_type, kind.item_type))
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pa.types.is_nested(kind):
        return {
            "type": "array",
            "elementType": _type(name, kind.value_type, leaves, path),
            "containsNull": True,
        }
    return next(leaves).delta_type


def _leaf(column: Any, path: str) -> Leaf:
    """The type that Spark reads a Parquet leaf as, or an error for those it cannot read."""
    physical = column.physical_type
    logical = json.loads(column.logical_type.to_json())
    kind = logical["Type"]
    match physical, kind:
        case "BOOLEAN", _:
            return Leaf("boolean")
        case "INT32" | "INT64", "None":
            return Leaf("integer" if physical == "INT32" else "long", "integer")
        case "INT32", "Null":
            return Leaf("integer")  # a column of nulls only; Spark reads its physical type
        case "INT32" | "INT64", "Int" if logical["isSigned"]:
            return Leaf({8: "byte", 16: "short", 32: "integer", 64: "long"}[logical["bitWidth"]], "integer")
        case "INT32" | "INT64", "Int":
            return Leaf({8: "short", 16: "integer", 32: "long", 64: "decimal(20,0)"}[logical["bitWidth"]])
        case "INT32", "Date":
            return Leaf("date", "date")
        case "INT64", "Timestamp" if logical["timeUnit"] in ("milliseconds", "microseconds"):
            unit = "millis" if logical["timeUnit"] == "milliseconds" else "micros"
            return Leaf("timestamp" if logical["isAdjustedToUTC"] else "timestamp_ntz", unit)
        case "INT96", _:
            return Leaf("timestamp")
        case "FLOAT" | "DOUBLE", "None":
            return Leaf(physical.lower(), "float")
        case "BYTE_ARRAY", "String" | "Enum" | "JSON":
            return Leaf("string", "string")
        case "BYTE_ARRAY", "None" | "BSON":
            return Leaf("binary")
        case "FIXED_LEN_BYTE_ARRAY", "None":
            return Leaf("binary")
        case _, "Decimal" if column.precision <= 38:
            return Leaf(f"decimal({column.precision},{column.scale})", "decimal", column.scale)
    described = physical if kind == "None" else f"{physical} ({column.logical_type})"
    raise SchemaError(
        f"The column {column.path} of {path} is of the Parquet type {described}, which Spark cannot read into a Delta "
        "table. Rewrite the files with a type it can, such as a timestamp in microseconds"
    )


def _local_tail(location: Location, length: int, _: ConversionOptions) -> tuple[bytes, int, int]:
    try:
        descriptor = os.open(location.path, os.O_RDONLY)
    except FileNotFoundError:
        raise MissingError(f"The file {location} does not exist. List the files again") from None
    except OSError as error:
        raise PermanentError(f"The file {location} cannot be opened: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        tail = os.pread(descriptor, length, max(status.st_size - length, 0))
    except OSError as error:
        raise PermanentError(f"The file {location} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return tail, status.st_size, status.st_mtime_ns // 1_000_000


def _s3_tail(location: Location, length: int, options: ConversionOptions) -> tuple[bytes, int, int]:
    client = aws.s3_client(location.authority, options.region, options.expected_bucket_owner)
    try:
        with aws_call(f"Reading the footer of {location}"):
            answer = client.get_object(
                Bucket=location.authority,
                Key=location.key,
                Range=f"bytes=-{length}",
                **aws.owner(options.expected_bucket_owner),  # type: ignore[arg-type]
            )
            tail = answer["Body"].read()
    except MissingError as error:
        raise MissingError(f"{error}. List the files again") from error
    except PermanentError as error:
        if "InvalidRange" in str(error):  # S3's word for asking an empty object for its last bytes
            return b"", 0, 0
        raise
    total = answer.get("ContentRange", "").rpartition("/")[2]
    return tail, int(total or len(tail)), int(answer["LastModified"].timestamp() * 1000)


def _arrow_tail(location: Location, length: int, _: ConversionOptions) -> tuple[bytes, int, int]:
    try:
        storage, path = pyarrow.fs.FileSystem.from_uri(f"{location.scheme}://{location.authority}/")
        path = f"{path.rstrip('/')}{location.path}"
        info = storage.get_file_info(path)
        with storage.open_input_file(path) as file:
            tail = file.read_at(length, max(info.size - length, 0))
    except (pa.ArrowException, OSError, ImportError) as error:
        raise PermanentError(
            f"The footer of {location} cannot be read by a Python worker: {error}. "
            'Pass ConversionOptions(stats="scan"), so that Spark itself reads the files'
        ) from error
    return tail, info.size, (info.mtime_ns or 0) // 1_000_000
