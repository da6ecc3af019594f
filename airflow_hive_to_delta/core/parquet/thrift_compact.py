"""Thrift's compact protocol, read from bytes that may be damaged: nothing is allocated that they do not hold.

Every function takes the bytes and where to begin, and returns where the value ends. Past the end of the bytes they
raise an ``IndexError``; whatever else is wrong is a :class:`MalformedThriftError`.
"""

from __future__ import annotations

# Types of the compact protocol.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
#: Structs inside structs that a reader follows; deeper ones exhaust a stack somewhere.
_MOST_NESTED = 64


class MalformedThriftError(ValueError):
    """The bytes are no struct that a reader could use."""


def field_header(data: bytes, at: int, last: int) -> tuple[int, int, int]:
    """Number and type of the next field, 0 at the end of a struct, and where its value begins."""
    header = data[at]
    if header == 0:
        return last, 0, at + 1
    if header & 15 == 0:
        raise MalformedThriftError("it has a field of the unknown type 0")
    if header > 15:
        return last + (header >> 4), header & 15, at + 1
    number, at = field_number(data, at + 1, last)
    return number, header & 15, at


def field_number(data: bytes, at: int, last: int) -> tuple[int, int]:
    """A number that is written out. Writers go upwards; a field that comes twice means different things to readers."""
    number, at = integer(data, at)
    if not last < number < 32_768:
        raise MalformedThriftError(f"the field {number} comes after the field {last}")
    return number, at


def varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise MalformedThriftError("a number has more than 64 bits")


def integer(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    at += 1
    if number > 127:
        number, at = varint(data, at - 1)
        if number >> 64:
            raise MalformedThriftError("a number has more than 64 bits")
    return number >> 1 ^ -(number & 1), at


def binary(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = varint(data, at)
    end = at + length
    if end > len(data):
        raise MalformedThriftError("a text is longer than the footer")
    return data[at:end], end


def list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """How many elements a list declares, of which type, and where they begin. Each takes at least one byte."""
    header = data[at]
    size, at = (header >> 4, at + 1) if header < 0xF0 else varint(data, at + 1)
    if size > len(data) - at:
        raise MalformedThriftError(f"a list declares {size} elements in {len(data) - at} bytes")
    return size, header & 15, at


def skip_rest(data: bytes, at: int, last: int) -> int:
    """Where a struct ends of which the fields up to this one are read."""
    while True:
        header = data[at]
        at += 1
        if header == 0:
            return at
        if header > 15:
            last += header >> 4
        else:
            last, at = field_number(data, at, last)
        at = skip(data, at, header & 15, 0)


def skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where the value that begins here ends."""
    if 3 < kind < 7:  # I16, I32 and I64; the numbers themselves are compared faster than their names
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == BINARY:
        length, at = varint(data, at)
        if length > len(data) - at:
            raise MalformedThriftError("a text is longer than the footer")
        return at + length
    if kind in (LIST, SET):
        size, inner, at = list_header(data, at)
        return skip_elements(data, at, inner, size, depth)
    if kind == STRUCT:
        if depth >= _MOST_NESTED:
            raise MalformedThriftError(f"it has structs more than {_MOST_NESTED} levels deep")
        while True:
            header = data[at]
            at += 1
            if header == 0:
                return at
            if header < 16:
                while data[at] > 127:
                    at += 1
                at += 1
            at = skip(data, at, header & 15, depth + 1)
    if 0 < kind < 3:
        return at  # a boolean is its type
    if kind == BYTE:
        return at + 1
    if kind == DOUBLE:
        return at + 8
    if kind == MAP:
        size, at = varint(data, at)
        if size > len(data) - at:
            raise MalformedThriftError(f"a map declares {size} entries in {len(data) - at} bytes")
        if size == 0:
            return at
        kinds = data[at]
        at += 1
        for _ in range(size):
            at = skip_elements(data, at, kinds >> 4, 1, depth)
            at = skip_elements(data, at, kinds & 15, 1, depth)
        return at
    raise MalformedThriftError(f"it has a field of the unknown type {kind}")


def skip_elements(data: bytes, at: int, kind: int, size: int, depth: int) -> int:
    if 0 < kind < 4:
        return at + size  # in a list a boolean takes a byte
    if depth >= _MOST_NESTED:
        raise MalformedThriftError(f"it has lists more than {_MOST_NESTED} levels deep")
    for _ in range(size):
        at = skip(data, at, kind, depth + 1)
    return at
