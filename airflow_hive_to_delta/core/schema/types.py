"""Types and schemas of Delta: what they are made of, and which can be widened to which (rules 12, 25, 27, 29).

A type is a string (``long``, ``decimal(10,2)``) or a dict in Spark's JSON form. A schema is the dict of a struct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.errors import SchemaError

if TYPE_CHECKING:
    pass

DeltaType = str | dict[str, Any]

#: Delta's name for each of Hive's types without arguments. The others are ``decimal``, ``char``, ``varchar`` and the
#: nested ones.
GLUE_TO_DELTA_TYPE_MAP: dict[str, str] = {
    "boolean": "boolean",
    "tinyint": "byte",
    "byte": "byte",
    "smallint": "short",
    "short": "short",
    "int": "integer",
    "integer": "integer",
    "bigint": "long",
    "long": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "double precision": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp with local time zone": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}

#: The metadata of a field that holds the ``char`` or ``varchar`` that a string was declared as (rule 26).
CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
#: The metadata of a column that has its name in data files and partition values.
PHYSICAL_NAME = "delta.columnMapping.physicalName"

#: The types inside an array or a map: their names in Delta's field paths, and their keys in the type's dict.
PARTS: dict[str, dict[str, str]] = {
    "array": {"element": "elementType"},
    "map": {"key": "keyType", "value": "valueType"},
}

#: The most types inside of each other.
MAX_DEPTH = 64
# A type can be widened to each that comes after it without losing a value (rule 29). Decimals are computed.
_FAMILIES = (("byte", "short", "integer", "long"), ("float", "double"))
_PRIMITIVES = frozenset(GLUE_TO_DELTA_TYPE_MAP.values())
_DECIMAL = re.compile(r"decimal\(([0-9]{1,9}),(-?[0-9]{1,9})\)")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_primitive(delta_type: object) -> bool:
    """Whether this is one of Delta's primitive types."""
    if not isinstance(delta_type, str):
        return False
    if delta_type in _PRIMITIVES:
        return True
    found = _decimal_digits(delta_type)
    return found is not None and 1 <= found[0] <= 38 and 0 <= found[1] <= found[0]


def wider_type(one: str, other: str) -> str | None:
    """The narrowest type that both can be widened to; None when there is none (rule 29)."""
    if one == other:
        return one
    for family in _FAMILIES:
        if one in family and other in family:
            return max(one, other, key=family.index)
    digits, other_digits = _decimal_digits(one), _decimal_digits(other)
    if not digits or not other_digits:
        return None
    scale = max(digits[1], other_digits[1])
    precision = max(digits[0] - digits[1], other_digits[0] - other_digits[1]) + scale
    return f"decimal({precision},{scale})" if precision <= 38 else None


def widening_rank(name: str) -> tuple[int, int]:
    """A sort key by which a type comes before those that it can be widened to."""
    return _decimal_digits(name) or next((family.index(name), 0) for family in _FAMILIES if name in family)


def struct_of(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """The struct with these fields."""
    return {"type": "struct", "fields": fields}


def field_of(name: str, delta_type: DeltaType, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A nullable field of a struct."""
    return {"name": name, "type": delta_type, "nullable": True, "metadata": dict(metadata or {})}


def nested_of(kind: str, parts: Mapping[str, DeltaType]) -> dict[str, Any]:
    """The array or map (``kind``) of these types, by their names in :data:`PARTS`. Elements and values are nullable."""
    nulls = "containsNull" if kind == "array" else "valueContainsNull"
    return {"type": kind, **{key: parts[part] for part, key in PARTS[kind].items()}, nulls: True}


def walk_fields(delta_type: DeltaType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every field at every level with its path, a parent before its children, in the order of Delta's column ids."""
    if isinstance(delta_type, str):
        return
    for field in delta_type.get("fields", ()):
        inside = (*path, field["name"])
        yield inside, field
        yield from walk_fields(field["type"], inside)
    for part, key in PARTS.get(delta_type["type"], {}).items():
        yield from walk_fields(delta_type[key], (*path, part))


def check_names(schema: Mapping[str, Any]) -> None:
    """Refuse a schema with an empty name, or with names that differ only by case (rule 12).

    :raises SchemaError: the message names the columns.
    """
    seen: dict[tuple[str, ...], str] = {}
    for path, _ in walk_fields(dict(schema)):
        if not path[-1]:
            raise SchemaError(
                f"A column{' inside ' + dotted(path[:-1]) if path[:-1] else ''} has an empty name; name it"
            )
        key = (*path[:-1], path[-1].lower())
        if key in seen:
            raise SchemaError(
                f"The columns {seen[key]} and {dotted(path)} have the same name but for its case, which Delta does not "
                "allow. Rename one of them"
            )
        seen[key] = dotted(path)


def dotted(path: Sequence[str]) -> str:
    """The path of a column, as messages show it: joined by dots, with backticks where needed."""
    return ".".join(map(quoted_name, path))


def _decimal_digits(delta_type: str) -> tuple[int, int] | None:
    """The precision and the scale of a decimal; None for every other type."""
    found = _DECIMAL.fullmatch(delta_type)
    return (int(found[1]), int(found[2])) if found else None


def quoted_name(name: str) -> str:
    """A name as Spark SQL has it: in backticks where needed."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"
