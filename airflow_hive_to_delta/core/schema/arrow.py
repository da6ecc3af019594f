"""Arrow schemas of what passes between Spark and its Python workers.

Each schema is written once, as the DDL text that Spark takes (``"path string, size bigint"``), and the Arrow form is
derived from it. The text is parsed here because Spark's own parser needs a session, which workers do not have.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

_PRIMITIVES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
}


def arrow_schema(ddl: str) -> pa.Schema:
    """The Arrow schema of a schema in DDL, in which each column is a name, one space and a type.

    :raises ValueError: a column has a type that no schema of this package has needed so far.
    """
    return pa.schema([(name, _arrow_type(kind)) for name, kind in _fields(ddl, " ")])


def _arrow_type(ddl: str) -> pa.DataType:
    kind, bracket, rest = ddl.partition("<")
    if not bracket and kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    inner = rest.removesuffix(">")
    match kind:
        case "struct":
            return pa.struct([(name, _arrow_type(field)) for name, field in _fields(inner, ":")])
        case "array":
            return pa.list_(_arrow_type(inner))
        case "map":
            key, value = map(_arrow_type, _split(inner))
            return pa.map_(key, value)
    raise ValueError(f"{ddl!r} is not a type with a known Arrow type")


def _fields(ddl: str, separator: str) -> Iterator[tuple[str, str]]:
    for field in _split(ddl):
        name, _, kind = field.partition(separator)
        yield name, kind


def _split(ddl: str) -> Iterator[str]:
    """The parts between the commas that are not inside of angle brackets."""
    depth = start = 0
    for position, character in enumerate(ddl):
        depth += (character == "<") - (character == ">")
        if character == "," and depth == 0:
            yield ddl[start:position].strip()
            start = position + 1
    yield ddl[start:].strip()
