"""A reader of Thrift's compact protocol that is safe for damaged bytes: it allocates only what they hold.

Every function takes the bytes and the position of a value, and returns the position after it. Functions raise an
``IndexError`` when the bytes end too early, and a :class:`MalformedThriftError` for everything else that is wrong.
"""

from __future__ import annotations

# Types of the compact protocol.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
#: The most structs inside of each other, because deeper ones could exhaust the stack.
_MOST_NESTED = 64


class MalformedThriftError(ValueError):
    """The bytes are not a valid struct."""


def field_header(data: bytes, at: int, last: int) -> tuple[int, int, int]:
    """The number, the type and the position of the next field. The type is 0 at the end of a struct."""
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
    """The number of a field that is written in full.

    Fields must come in ascending order: readers disagree about a field that comes twice.
    """
    number, at = integer(data, at)
    if not last < number < 32_768:
        raise MalformedThriftError(f"the field {number} comes after the field {last}")
    return number, at


def varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of variable length."""
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
    """A signed number of variable length, in zigzag encoding."""
    number = data[at]
    at += 1
    if number > 127:
        number, at = varint(data, at - 1)
        if number >> 64:
            raise MalformedThriftError("a number has more than 64 bits")
    return number >> 1 ^ -(number & 1), at


def binary(data: bytes, at: int) -> tuple[bytes, int]:
    """A string of bytes."""
    length, at = varint(data, at)
    end = at + length
    if end > len(data):
        raise MalformedThriftError("a text is longer than the footer")
    return data[at:end], end


def list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """The declared number of elements of a list, their type, and the position of the first.

    Every element takes at least one byte, so a list that declares more than there are bytes is malformed.
    """
    header = data[at]
    size, at = (header >> 4, at + 1) if header < 0xF0 else varint(data, at + 1)
    if size > len(data) - at:
        raise MalformedThriftError(f"a list declares {size} elements in {len(data) - at} bytes")
    return size, header & 15, at


def skip_rest(data: bytes, at: int, last: int) -> int:
    """The position after a struct whose fields up to ``last`` have been read."""
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
    """The position after a value of this type."""
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
    """The position after so many elements of a list."""
    if 0 < kind < 4:
        return at + size  # in a list a boolean takes a byte
    if depth >= _MOST_NESTED:
        raise MalformedThriftError(f"it has lists more than {_MOST_NESTED} levels deep")
    for _ in range(size):
        at = skip(data, at, kind, depth + 1)
    return at
