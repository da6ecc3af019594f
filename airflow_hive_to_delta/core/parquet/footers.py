"""Schema, row count and statistics of Parquet files from their footers, which executors read once per file.

The bytes of a footer are parsed by :mod:`footer_thrift`. pyarrow only interprets schemas, each of them once. It does
not get the rest of a footer, because some malformed footers crash its process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_hive_to_delta.core.errors import HiveToDeltaError, PermanentError
from airflow_hive_to_delta.core.parquet.add_actions import (
    FileLocator,
    check_folder_keys,
    encode_rows,
    error_row,
    placement_row,
)
from airflow_hive_to_delta.core.parquet.footer_thrift import (
    ChunkStatistics,
    EncryptedColumnError,
    Footer,
    SchemaPart,
    read_footer,
    read_schema_part,
)
from airflow_hive_to_delta.core.parquet.layouts import Layout, Leaf, layout_of
from airflow_hive_to_delta.core.parquet.statistics import (
    LeafStatistics,
    date_bound,
    decimal_bound,
    float_bound,
    integer_bound,
    string_bound,
    timestamp_bound,
)
from airflow_hive_to_delta.core.parquet.thrift_compact import MalformedThriftError
from airflow_hive_to_delta.core.storage.file_tails import read_tail
from airflow_hive_to_delta.core.storage.uri import parse_location

if TYPE_CHECKING:
    from pyspark import Accumulator

    from airflow_hive_to_delta.core.options import ConversionOptions
    from airflow_hive_to_delta.core.storage.web_hdfs import WebHdfs

_OUTPUT_ROWS = 1_000
#: Layouts that one task remembers. Most tables have a few.
_MOST_LAYOUTS = 64
_MOST_ROWS = 2**63 - 1
#: How bounds of types with a fixed width are stored.
_STORED = {"INT32": Struct("<i"), "INT64": Struct("<q"), "FLOAT": Struct("<f"), "DOUBLE": Struct("<d")}
_NO_STATISTICS: LeafStatistics = (None, None, None)


@dataclass
class FooterReader:
    """The function for ``mapInArrow`` that describes files (FILES_SCHEMA) from their footers (DESCRIBED_SCHEMA).

    A file that cannot be part of the table gets a row with its error.
    """

    root: str
    #: Delta type of every partition column, in order.
    partition_types: dict[str, str]
    options: ConversionOptions
    #: By the authority of an HDFS: the service over which its files are read.
    web_hdfs: Mapping[str, WebHdfs] = field(default_factory=dict)
    #: Counts the files that tasks of Spark have read, for those who wait; None: they are counted in the end.
    counter: Accumulator[int] | None = None
    #: The layouts that were found last, the latest first. It is replaced and never changed, as threads share it.
    _layouts: tuple[tuple[SchemaPart, Layout], ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layouts_sent: set[str] = set()
        for rows in self.read(batches):
            _send_each_schema_once(rows, layouts_sent)
            yield encode_rows(rows)

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[dict[str, Any]]]:
        """Describe files, some at a time, as rows that :func:`encode_rows` takes. Files that are no data have none."""
        root = parse_location(self.root)
        locator = FileLocator(root, self.partition_types, self.options)
        remote = root.scheme != "file"
        with ThreadPoolExecutor(self.options.footer_threads if remote else 1) as pool:
            run: Callable[..., Iterator[dict[str, Any] | None]] = pool.map if remote else map
            for batch in batches:
                for start in range(0, batch.num_rows, _OUTPUT_ROWS):
                    files = batch.slice(start, _OUTPUT_ROWS).to_pylist(maps_as_pydicts="strict")
                    yield [row for row in run(lambda file: self._read(file, locator), files) if row is not None]
                    if self.counter is not None:
                        self.counter.add(len(files))

    def _read(self, file: dict[str, Any], locator: FileLocator) -> dict[str, Any] | None:
        path = file["path"]
        row = {"path": path, "size": file["size"], "modification_time": file["modification_time"]}
        try:
            placement = locator.locate(file)
            if placement is None:
                return None
            tail, modification_time = read_tail(placement.location, file["size"], self.options, self.web_hdfs)
            part, layout, footer = parse_footer(tail, path, self._layouts)
            if not any(part is known for known, _ in self._layouts):
                self._layouts = ((part, layout), *self._layouts[: _MOST_LAYOUTS - 1])
            check_folder_keys(placement.folder_keys, layout.column_names, f"The file {path}", self.options)
            if row["modification_time"] is None:
                row["modification_time"] = modification_time
            row |= placement_row(placement)
            row["rows"] = count_rows(footer, path)
            row["layout"] = layout.name
            row["file_schema"] = layout.schema
            if self.options.stats == "footer":
                row["leaf_statistics"] = leaf_statistics(footer, layout)
        except HiveToDeltaError as error:
            row |= error_row(error)
        except (pa.ArrowException, ValueError, LookupError, RecursionError) as error:
            # An error of the Python worker would not name the file, so every error of a footer is caught here.
            row |= error_row(PermanentError(f"The footer of {path} cannot be read: {type(error).__name__}: {error}"))
        return row


def _send_each_schema_once(rows: list[dict[str, Any]], layouts_sent: set[str]) -> None:
    """Leave out the text of every schema that an earlier row has; it is longer than all else that is known of a file.

    :param layouts_sent: the layouts of the rows before these. Those of these rows are added.
    """
    for row in rows:
        layout = row.get("layout")
        if layout in layouts_sent:
            row["file_schema"] = None
        elif layout is not None:
            layouts_sent.add(layout)


def parse_footer(
    tail: bytes, path: str, known: Iterable[tuple[SchemaPart, Layout]] = ()
) -> tuple[SchemaPart, Layout, Footer]:
    """The layout and the row groups of a file.

    :param tail: the last bytes of the file, with the whole footer in them.
    :param path: the file, for messages.
    :param known: layouts that were found before, which are not made again.
    :raises PermanentError: it is not a Parquet file, is encrypted, or its footer is malformed.
    :raises SchemaError: it has a column of a type that a Delta table cannot have.
    """
    data = _footer_in(tail, path)
    try:
        for part, layout in known:
            if data.startswith(part.prefix):
                return part, layout, read_footer(data, part)
        part = read_schema_part(data)
        footer = read_footer(data, part)
    except MalformedThriftError as error:
        raise PermanentError(
            f"The footer of {path} cannot be read: {error}. Restore the file, or take it out of the table"
        ) from error
    except EncryptedColumnError as error:
        raise PermanentError(
            f"The file {path} has encrypted columns, which readers without its keys cannot read. Write it anew "
            "without encryption, or take it out of the table"
        ) from error
    return part, layout_of(part, path), footer


def _footer_in(tail: bytes, path: str) -> bytes:
    """The footer at the end of a file, between its data and the last 8 bytes."""
    if tail.endswith(b"PARE"):
        raise PermanentError(
            f"The file {path} has an encrypted footer, so neither its schema nor its rows can be known. Write it anew "
            "without encryption, or take it out of the table"
        )
    if not tail.endswith(b"PAR1"):
        raise PermanentError(
            f"The file {path} is not a Parquet file: it ends in {tail[-4:]!r}, expected b'PAR1'. Restore the file, or "
            "take it out of the table"
        )
    length = int.from_bytes(tail[-8:-4], "little")
    if length + 8 > len(tail):
        raise PermanentError(
            f"The footer of {path} cannot be read: its length is given as {length} bytes, and the file has "
            f"{max(len(tail) - 8, 0)} before it. Restore the file, or take it out of the table"
        )
    return tail[-8 - length : -8]


def count_rows(footer: Footer, path: str) -> int:
    """The rows of all row groups, which is what readers read. Some writers leave ``num_rows`` of the file at 0."""
    rows = sum(group.rows for group in footer.row_groups)
    if rows > _MOST_ROWS:
        raise PermanentError(f"The footer of {path} cannot be read: its row groups have {rows} rows together")
    return rows


def leaf_statistics(footer: Footer, layout: Layout) -> list[LeafStatistics | None]:
    """Minimum, maximum and null count of every leaf over all row groups, as far as the writer of the file is trusted.

    None for a leaf of a list or a map.
    """
    groups = [group for group in footer.row_groups if group.rows]
    return [
        None
        if leaf is None
        else _over_groups(
            leaf,
            [(group.rows, group.chunks[position]) for group in groups],
            bounded=bounded,
            counted=counted,
        )
        for position, (leaf, bounded, counted) in enumerate(
            layout.trusted_leaves(footer.created_by, footer.type_ordered)
        )
    ]


def _over_groups(
    leaf: Leaf, chunks: list[tuple[int, ChunkStatistics | None]], *, bounded: bool, counted: bool
) -> LeafStatistics:
    nulls: int | None = 0
    lowest = highest = None
    for rows, chunk in chunks:
        if chunk is None or chunk.values != rows:
            return _NO_STATISTICS
        has_bounds = chunk.low is not None and chunk.high is not None
        found = chunk.null_count
        if found is not None and (found == rows and has_bounds):
            return _NO_STATISTICS  # a contradiction: all values are null, but there are bounds
        if not counted or found is None or not 0 <= found <= rows:
            found = None
        nulls = None if nulls is None or found is None else nulls + found
        if not bounded:
            continue
        if has_bounds:
            low, high = _value(leaf, chunk.low), _value(leaf, chunk.high)
            # A NaN in the bounds makes the comparison false. One that is only counted is not in the bounds, though
            # Spark sorts it above them.
            if low is None or high is None or not low <= high or chunk.nan_count:
                bounded = False
                continue
            lowest = low if lowest is None or low < lowest else lowest
            highest = high if highest is None or high > highest else highest
        elif found != rows:
            bounded = False
    if bounded and lowest is not None:
        return _bound(leaf, lowest, upper=False), _bound(leaf, highest, upper=True), nulls
    return None, None, nulls


def _value(leaf: Leaf, raw: bytes | None) -> Any:
    """The value of a bound; None if the bytes are not a value of the column's type."""
    if raw is None:
        return None
    stored = _STORED.get(leaf.physical_type)
    if stored is not None:
        return stored.unpack(raw)[0] if len(raw) == stored.size else None
    if leaf.bound != "decimal":
        return raw
    if not raw or (leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" and len(raw) != leaf.length):
        return None
    return int.from_bytes(raw, "big", signed=True)


def _bound(leaf: Leaf, value: Any, *, upper: bool) -> str | None:
    match leaf.bound:
        # Readers do not get a value from the data that the column's type cannot hold, so it is not a bound.
        case "integer":
            narrow = {"byte": 2**7, "short": 2**15}.get(leaf.delta_type)
            return integer_bound(value) if narrow is None or -narrow <= value < narrow else None
        case "decimal":
            return decimal_bound(value, leaf.scale) if abs(value) < 10**leaf.precision else None
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
