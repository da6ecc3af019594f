"""Footers of real Parquet files, taken apart and written anew: for footers that no writer at hand makes any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BOOLEANS, BYTE, INTEGERS, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = {1, 2}, 3, {4, 5, 6}, 7, 8, 9, 10, 11, 12
Fields = dict[int, tuple[int, Any]]


def decode(data: bytes) -> Fields:
    """A struct in Thrift's compact form: the type and value of each field, by its number."""
    rest = iter(data)

    def varint() -> int:
        byte = next(rest)
        return byte if byte < 0x80 else (byte & 0x7F) | varint() << 7

    def value(kind: int) -> Any:
        if kind in BOOLEANS:
            return None
        if kind == BYTE:
            return next(rest)
        if kind in INTEGERS:
            number = varint()
            return number >> 1 ^ -(number & 1)
        if kind == BINARY:
            return bytes(next(rest) for _ in range(varint()))
        if kind == DOUBLE:
            return bytes(next(rest) for _ in range(8))
        if kind in (LIST, SET):
            header = next(rest)
            length = varint() if header >> 4 == 15 else header >> 4
            return header & 15, [element(header & 15) for _ in range(length)]
        if kind == MAP:
            length = varint()
            kinds = next(rest) if length else 0
            return kinds, [(element(kinds >> 4), element(kinds & 15)) for _ in range(length)]
        assert kind == STRUCT
        fields, number = {}, 0
        while header := next(rest):
            number = number + (header >> 4) if header > 15 else value(5)
            fields[number] = header & 15, value(header & 15)
        return fields

    def element(kind: int) -> Any:
        return next(rest) if kind in BOOLEANS else value(kind)

    return value(STRUCT)


def encode(fields: Fields) -> bytes:
    written = bytearray()

    def varint(number: int) -> None:
        while number > 0x7F:
            written.append(number & 0x7F | 0x80)
            number >>= 7
        written.append(number)

    def write(kind: int, value: Any) -> None:
        if kind == BYTE:
            written.append(value)
        elif kind in INTEGERS:
            varint(value << 1 if value >= 0 else (-value << 1) - 1)
        elif kind == BINARY:
            varint(len(value))
            written.extend(value)
        elif kind == LIST:
            inner, items = value
            written.append(min(len(items), 15) << 4 | inner)
            if len(items) >= 15:
                varint(len(items))
            for item in items:
                write(inner, item)
        elif kind == STRUCT:
            last = 0
            for number, (inner, item) in sorted(value.items()):
                if 0 < number - last < 16:
                    written.append((number - last) << 4 | inner)
                else:
                    written.append(inner)
                    write(5, number)
                write(inner, item)
                last = number
            written.append(0)

    write(STRUCT, fields)
    return bytes(written)


def footer_of(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


def with_footer(data: bytes, footer: bytes) -> bytes:
    """The file with another footer."""
    return data[: -8 - len(footer_of(data))] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def rewrite_footer(path: Path, *changes: Callable[[Fields], None]) -> Path:
    data = path.read_bytes()
    footer = decode(footer_of(data))
    # After an encrypted file's own footer comes its signature.
    assert footer_of(data).startswith(encode(footer)), "nothing is lost on the way"
    for change in changes:
        change(footer)
    path.write_bytes(with_footer(data, encode(footer)))
    return path


# Numbers of the fields that parquet.thrift gives them.
SCHEMA, NUM_ROWS, ROW_GROUPS, CREATED_BY, COLUMN_ORDERS = 2, 3, 4, 6, 7
GROUP_ROWS, NUM_VALUES = 3, 5
REPETITION, NAME, CHILDREN, CONVERTED, LOGICAL = 3, 4, 5, 6, 10
PATH, STATISTICS = 3, 12
OLD_MAX, OLD_MIN, NULL_COUNT, MAX, MIN, NAN_COUNT = 1, 2, 3, 5, 6, 9


def chunks_of(footer: Fields) -> Iterator[Fields]:
    for group in footer[ROW_GROUPS][1][1]:
        for chunk in group[1][1][1]:
            yield chunk[3][1]


def statistics_of(footer: Fields) -> Iterator[Fields]:
    for chunk in chunks_of(footer):
        if STATISTICS in chunk:
            yield chunk[STATISTICS][1]


def only_deprecated(footer: Fields) -> None:
    """Leave only the deprecated statistics in a footer, which parquet-mr before 1.10 wrote."""
    del footer[COLUMN_ORDERS]
    for found in statistics_of(footer):
        if MAX in found:
            found[OLD_MAX], found[OLD_MIN] = found.pop(MAX), found.pop(MIN)


def without(*fields: int) -> Callable[[Fields], None]:
    def change(footer: Fields) -> None:
        for found in statistics_of(footer):
            for field in fields:
                found.pop(field, None)

    return change


def with_schema(*elements: tuple[str, dict[int, int | None]] | None) -> Callable[[Fields], None]:
    """A new name and new fields for each element of the schema, in order; None takes an element out."""

    def change(footer: Fields) -> None:
        found = footer[SCHEMA][1][1]
        assert len(found) == len(elements) + 1
        for element, changed in zip(found[1:], elements, strict=True):
            if changed is None:
                continue
            element[NAME] = (BINARY, changed[0].encode())
            for field, value in changed[1].items():
                element.pop(field, None)
                if value is not None:
                    element[field] = (5, value)
        kept = [found[0], *(element for element, changed in zip(found[1:], elements, strict=True) if changed)]
        footer[SCHEMA] = (LIST, (STRUCT, kept))
        for chunk, path in zip(chunks_of(footer), leaf_paths(iter(kept)), strict=True):
            chunk[PATH] = (LIST, (BINARY, path[1:]))

    return change


def leaf_paths(elements: Iterator[Fields]) -> list[list[bytes]]:
    element = next(elements)
    if CHILDREN not in element:
        return [[element[NAME][1]]]
    below = [path for _ in range(element[CHILDREN][1]) for path in leaf_paths(elements)]
    return [[element[NAME][1], *path] for path in below]


def created_by(writer: str) -> Callable[[Fields], None]:
    def change(footer: Fields) -> None:
        footer[CREATED_BY] = (BINARY, writer.encode())

    return change


def in_statistics(column: int, **fields: int | bytes) -> Callable[[Fields], None]:
    """Other bounds or counts for one leaf, in every row group: ``MIN=b"..."``, ``NULL_COUNT=0``."""
    numbers = {"MAX": MAX, "MIN": MIN, "NULL_COUNT": NULL_COUNT, "NAN_COUNT": NAN_COUNT}

    def change(footer: Fields) -> None:
        for group in footer[ROW_GROUPS][1][1]:
            found = group[1][1][1][column][3][1][STATISTICS][1]
            for name, value in fields.items():
                found[numbers[name]] = (BINARY, value) if isinstance(value, bytes) else (6, value)

    return change
