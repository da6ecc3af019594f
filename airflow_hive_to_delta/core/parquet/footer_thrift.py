"""A parser of Parquet footers that is safe for malformed ones.

A footer is a struct in Thrift's compact protocol. pyarrow crashes the whole process on some malformed footers (an
encrypted column, a bound of the wrong length), and allocates a list of a billion elements before it reads them. This
parser allocates only what the bytes hold, and raises a :class:`MalformedThriftError` for every malformed footer. It
keeps only what the log needs: rows, and the statistics of each column chunk as they were written.

The numbers of fields are those of ``parquet.thrift``. A field of another type than it has there counts as absent, as in
every generated reader.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_hive_to_delta.core.parquet.thrift_compact import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    MalformedThriftError,
    binary,
    field_header,
    field_number,
    integer,
    list_header,
    skip,
    skip_elements,
    skip_rest,
    varint,
)

#: The required fields of each struct, as bits of their numbers.
_FILE_REQUIRED = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4
_GROUP_REQUIRED = 1 << 1 | 1 << 2 | 1 << 3
_CHUNK_REQUIRED = 1 << 2 | 1 << 3
_COLUMN_INTEGERS = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 9
_COLUMN_LISTS = 1 << 2 | 1 << 3

_SHORT_INTEGER_HEADERS = re.escape(bytes(step << 4 | kind for step in range(1, 16) for kind in (4, 5, 6)))
#: The most groups inside of each other in a schema.
_DEEPEST_SCHEMA = 100


# A column chunk as nearly all writers write it, up to its path, and from there to its statistics. Two matches are
# faster than reading a dozen fields one by one, as it is done for any other chunk.
_V = rb"[\x80-\xff]*+[\x00-\x7f]"
_ENCODINGS = b"|".join(re.escape(bytes([size << 4 | I32])) + _V * size for size in range(1, 6))
_USUAL_START = re.compile(rb"\x26%b\x1c\x15%b\x19(?:%b)\x19" % (_V, _V, _ENCODINGS), re.DOTALL)
_USUAL_MIDDLE = re.compile(
    rb"\x15%b\x16(%b)\x16%b\x16%b\x26%b(?:\x26%b\x1c|\x3c)" % (_V, _V, _V, _V, _V, _V), re.DOTALL
)
# The rest of the column after its statistics: lists of encodings, and sizes with their histograms.
_STRUCT_OF_INTEGERS = rb"(?:[%b]%b)*+\x00" % (_SHORT_INTEGER_HEADERS, _V)
_PAGES = b"|".join(re.escape(bytes([size << 4 | STRUCT])) + _STRUCT_OF_INTEGERS * size for size in range(1, 6))
_HISTOGRAM = b"|".join(re.escape(bytes([size << 4 | I64])) + _V * size for size in range(6))
_USUAL_END = re.compile(
    rb"(?:\x19(?:%b))?+(?:\x3c(?:\x16%b)?+(?:[\x19\x29\x39](?:%b))*+\x00)?+\x00" % (_PAGES, _V, _HISTOGRAM)
)


class MalformedFooterError(MalformedThriftError):
    """The bytes are a struct, but not a valid footer."""


class EncryptedColumnError(ValueError):
    """The file has encrypted columns."""


@dataclass(slots=True)
class ChunkStatistics:
    """The statistics of one column chunk. A field that is absent is None."""

    values: int
    null_count: int | None = None
    nan_count: int | None = None
    #: ``min_value`` and ``max_value``. The deprecated ``min`` and ``max``, whose order is not defined, are not read.
    low: bytes | None = None
    high: bytes | None = None


@dataclass(slots=True)
class RowGroup:
    """The rows of a row group, and the statistics of its column chunks."""

    rows: int
    #: One for each leaf of the schema, in order; None if it has no statistics or the path of another column.
    chunks: list[ChunkStatistics | None]


@dataclass(slots=True)
class Footer:
    """The parts of a footer that the log needs."""

    row_groups: list[RowGroup]
    created_by: str = ""
    #: For each leaf whether its bounds have the order that its type defines; empty if the footer does not say.
    type_ordered: list[bool] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SchemaPart:
    """The beginning of a footer, up to the end of its schema. It is equal for files of one schema and writer."""

    prefix: bytes
    #: The path of every leaf, as the column chunks write it.
    leaf_paths: tuple[bytes, ...]

    def footer_without_rows(self) -> bytes:
        """The bytes of a Parquet file with this schema and without a row group."""
        # num_rows (3, i64) is 0, row_groups (4) an empty list of structs.
        footer = self.prefix + b"\x16\x00\x19\x0c\x00"
        return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def read_schema_part(data: bytes) -> SchemaPart:
    """The beginning of a footer, with its version and its schema, which come first in the files of every writer.

    :raises MalformedThriftError: the bytes are not a valid footer.
    """
    try:
        last, kind, at = field_header(data, 0, 0)
        if (last, kind) == (1, I32):
            at = skip(data, at, kind, 0)
            last, kind, at = field_header(data, at, last)
        if (last, kind) != (2, LIST):
            raise MalformedFooterError("it does not begin with a version and a schema")
        elements, end = _schema_elements(data, at)
    except IndexError:
        raise MalformedFooterError("it ends within its schema") from None
    return SchemaPart(data[:end], tuple(_leaf_paths(elements)))


def read_footer(data: bytes, schema: SchemaPart) -> Footer:
    """A footer that begins with this schema.

    :raises MalformedThriftError: the bytes are not a valid footer.
    :raises EncryptedColumnError: the file has encrypted columns.
    """
    try:
        return _read_footer(data, schema)
    except IndexError:
        raise MalformedFooterError("it ends in the middle of a field") from None


def _read_footer(data: bytes, schema: SchemaPart) -> Footer:
    footer: Footer | None = None
    created_by = ""
    type_ordered: list[bool] = []
    last, at, seen = 2, len(schema.prefix), 1 << 1 | 1 << 2
    while True:
        last, kind, at = field_header(data, at, last)
        if kind == 0:
            break
        seen |= 1 << last
        if last == 4 and kind == LIST:
            groups, at = _row_groups(data, at, schema.leaf_paths)
            footer = Footer(groups)
        elif last == 6 and kind == BINARY:
            text, at = binary(data, at)
            created_by = text.decode(errors="replace")
        elif last == 7 and kind == LIST:
            type_ordered, at = _column_orders(data, at)
        elif last in (8, 9):
            raise EncryptedColumnError
        else:
            at = skip(data, at, kind, 0)
    if seen & _FILE_REQUIRED != _FILE_REQUIRED or footer is None:
        raise MalformedFooterError("it lacks a field that every footer has")
    footer.created_by, footer.type_ordered = created_by, type_ordered
    return footer


def _row_groups(data: bytes, at: int, paths: Sequence[bytes]) -> tuple[list[RowGroup], int]:
    size, kind, at = list_header(data, at)
    if size and kind != STRUCT:
        raise MalformedFooterError("its row groups are no structs")
    groups = []
    for _ in range(size):
        group, at = _row_group(data, at, paths)
        groups.append(group)
    return groups, at


def _row_group(data: bytes, at: int, paths: Sequence[bytes]) -> tuple[RowGroup, int]:
    chunks: list[ChunkStatistics | None] = []
    rows = last = seen = 0
    while True:
        last, kind, at = field_header(data, at, last)
        if kind == 0:
            break
        if last == 1 and kind == LIST:
            size, inner, at = list_header(data, at)
            if size != len(paths) or (size and inner != STRUCT):
                raise MalformedFooterError(f"a row group has {size} columns, and the schema {len(paths)}")
            for path in paths:
                chunk, at = _column_chunk(data, at, path)
                chunks.append(chunk)
        elif last == 3 and kind == I64:
            rows, at = integer(data, at)
        else:
            at = skip(data, at, kind, 0)
            if last in (1, 3):
                continue
        seen |= 1 << last
    if seen & _GROUP_REQUIRED != _GROUP_REQUIRED:
        raise MalformedFooterError("a row group lacks its columns, its size or its rows")
    if rows < 0:
        raise MalformedFooterError(f"a row group has {rows} rows")
    return RowGroup(rows, chunks), at


def _column_chunk(data: bytes, at: int, path: bytes) -> tuple[ChunkStatistics | None, int]:
    found: ChunkStatistics | None = None
    last = seen = 0
    start = _USUAL_START.match(data, at)
    if start and data.startswith(path, start.end()):
        middle = _USUAL_MIDDLE.match(data, start.end() + len(path))
        if middle:
            found, at = _statistics(data, middle.end())
            found.values = integer(data, middle.start(1))[0]
            end = _USUAL_END.match(data, at)
            at = end.end() if end else skip_rest(data, at, 12)
            last, seen = 3, _CHUNK_REQUIRED
    while True:
        last, kind, at = field_header(data, at, last)
        if kind == 0:
            break
        if last == 3 and kind == STRUCT:
            found, at = _column(data, at, path)
            seen |= 1 << last
        elif last in (8, 9):
            raise EncryptedColumnError
        else:
            at = skip(data, at, kind, 0)
            if last == 2 and kind == I64:
                seen |= 1 << last
    if seen & _CHUNK_REQUIRED != _CHUNK_REQUIRED:
        raise MalformedFooterError("a column chunk lacks its metadata or its offset")
    return found, at


def _column(data: bytes, at: int, path: bytes) -> tuple[ChunkStatistics | None, int]:
    found: ChunkStatistics | None = None
    own = False
    values = last = integers = lists = 0
    while True:
        last, kind, at = field_header(data, at, last)
        if kind == 0:
            break
        if 3 < kind < 7:  # an integer
            integers |= 1 << last
            if last == 5:
                values, at = integer(data, at)
            else:
                while data[at] > 127:
                    at += 1
                at += 1
        elif last == 12 and kind == STRUCT:
            found, at = _statistics(data, at)
        elif kind == LIST:
            lists |= 1 << last
            if last == 3:
                own = data.startswith(path, at)
            at = skip(data, at, kind, 0)
        else:
            at = skip(data, at, kind, 0)
    if integers & _COLUMN_INTEGERS != _COLUMN_INTEGERS or lists & _COLUMN_LISTS != _COLUMN_LISTS:
        raise MalformedFooterError("a column chunk lacks its type, its path, its values or its offset")
    if found is not None:
        found.values = values
    # Some readers find a column's chunk by its position and others by its path. Where the two differ, so do the rows
    # that they read, and no statistics are right for both.
    return found if own else None, at


def _statistics(data: bytes, at: int) -> tuple[ChunkStatistics, int]:
    found = ChunkStatistics(0)
    last = 0
    while True:
        header = data[at]
        at += 1
        if header == 0:
            return found, at
        kind = header & 15
        if header > 15:
            last += header >> 4
        else:
            last, at = field_number(data, at, last)
        if kind == BINARY:
            # Most bounds are short, and a length under 128 is one byte.
            length = data[at]
            at += 1
            if length > 127:
                length, at = varint(data, at - 1)
            end = at + length
            if end > len(data):
                raise MalformedFooterError("a bound is longer than the footer")
            if last == 5:
                found.high = data[at:end]
            elif last == 6:
                found.low = data[at:end]
            at = end
        elif kind == I64 and last in (3, 9):
            count, at = integer(data, at)
            if last == 3:
                found.null_count = count
            else:
                found.nan_count = count
        else:
            at = skip(data, at, kind, 0)


def _column_orders(data: bytes, at: int) -> tuple[list[bool], int]:
    size, kind, at = list_header(data, at)
    if kind != STRUCT:
        return [], skip_elements(data, at, kind, size, 0)
    orders = []
    for _ in range(size):
        # A union: a struct whose only field says which order it is. TYPE_ORDER is the first, an empty struct.
        if data.startswith(b"\x1c\x00\x00", at):
            orders.append(True)
            at += 3
        else:
            orders.append(False)
            at = skip(data, at, STRUCT, 0)
    return orders, at


# --- Schemas --------------------------------------------------------------------------------------------------------


def _schema_elements(data: bytes, at: int) -> tuple[list[tuple[bytes, int]], int]:
    """The name and the number of children of every element."""
    size, kind, at = list_header(data, at)
    if kind != STRUCT or size == 0:
        raise MalformedFooterError("its schema is no list of elements")
    elements = []
    for _ in range(size):
        name, children, last = None, 0, 0
        while True:
            last, kind, at = field_header(data, at, last)
            if kind == 0:
                break
            if last == 4 and kind == BINARY:
                name, at = binary(data, at)
            elif last == 5 and kind == I32:
                children, at = integer(data, at)
            else:
                at = skip(data, at, kind, 0)
        if name is None or children < 0:
            raise MalformedFooterError("an element of its schema has no name, or less than no children")
        elements.append((name, children))
    return elements, at


def _leaf_paths(elements: list[tuple[bytes, int]]) -> list[bytes]:
    paths: list[bytes] = []
    #: The names of the groups around an element, and the number of children that each still lacks.
    above: list[list[bytes]] = [[]]
    waiting = [elements[0][1]]
    for name, children in elements[1:]:
        while waiting and waiting[-1] == 0:
            waiting.pop()
            above.pop()
        if not waiting:
            raise MalformedFooterError("its schema has elements that belong to no group")
        waiting[-1] -= 1
        path = [*above[-1], name]
        if children:
            if len(path) > _DEEPEST_SCHEMA:
                raise MalformedFooterError(f"its schema has groups more than {_DEEPEST_SCHEMA} levels deep")
            above.append(path)
            waiting.append(children)
        else:
            paths.append(_encoded_path(path))
    if any(waiting):
        raise MalformedFooterError("its schema ends before all children of a group are there")
    return paths


def _encoded_path(names: list[bytes]) -> bytes:
    header = bytes([len(names) << 4 | BINARY]) if len(names) < 15 else b"\xf8" + _encoded_varint(len(names))
    return header + b"".join(_encoded_varint(len(name)) + name for name in names)


def _encoded_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])
