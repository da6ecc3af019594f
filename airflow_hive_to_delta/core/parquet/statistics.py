"""Statistics for data skipping (rules 31 to 38).

A *bound* is a minimum or maximum as JSON text. Bounds are made for each leaf column of a file, and put together to its
``add.stats`` once the table's schema is known. Where a bound is not certain there is none: without it readers only skip
fewer files, with a wrong one they lose rows.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from json.encoder import encode_basestring_ascii as json_text
from typing import Any, NamedTuple

from airflow_hive_to_delta.core.errors import PermanentError

#: Leaf columns that get statistics unless the table's properties say otherwise (rule 32).
INDEXED_COLUMNS = 32
STRING_PREFIX = 32

# For earlier values writers disagree about the calendar and about time zones, which had local mean time. Readers may
# read another day or minute than was written, so there are no bounds (rule 36).
_GREGORIAN = dt.date(1582, 10, 15)
_STANDARD_TIME = dt.datetime(1900, 1, 1)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1)
_DOUBLE_DIGITS = 15
_EXACT = Context(prec=80)

#: Minimum, maximum and null count of a leaf; each None when it is not known.
LeafStatistics = tuple[str | None, str | None, int | None]


def integer_bound(value: int) -> str:
    """The bound of an integer."""
    return str(value)


def decimal_bound(unscaled: int, scale: int) -> str:
    """The exact bound of a decimal, from its unscaled value (rule 35)."""
    sign, digits = ("-" if unscaled < 0 else ""), str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def loosened_decimal(bound: str, *, upper: bool) -> str:
    """The bound of a decimal, rounded outwards to at most 15 significant digits.

    Trino reads bounds as doubles, which are exact to 15 digits, and would skip files by the inexact value.
    """
    if len(bound) <= _DOUBLE_DIGITS and "e" not in bound.lower():
        return bound
    value = Decimal(bound)
    if len(value.as_tuple().digits) <= _DOUBLE_DIGITS:
        return bound
    step = Decimal((0, (1,), value.adjusted() - _DOUBLE_DIGITS + 1))
    rounded = value.quantize(step, ROUND_CEILING if upper else ROUND_FLOOR, _EXACT)
    return format(rounded.quantize(value, context=_EXACT), "f")


def _decimal_bounds(minimum: str, maximum: str, whole_digits: int) -> tuple[str, str] | None:
    """Bounds of decimals that every reader reads rightly; None where they do not fit into the column's type.

    :param whole_digits: the digits that the type has before the point.
    """
    low, high = loosened_decimal(minimum, upper=False), loosened_decimal(maximum, upper=True)
    fits = max(_count_whole_digits(low), _count_whole_digits(high)) <= whole_digits
    return (low, high) if fits else None


def _count_whole_digits(bound: str) -> int:
    if "e" in bound.lower():
        return Decimal(bound).adjusted() + 1
    return len(bound.lstrip("-").partition(".")[0].lstrip("0"))


def _whole_digits(delta_type: str) -> int:
    """The digits before the point that a decimal type has."""
    precision, scale = map(int, delta_type.removeprefix("decimal(").removesuffix(")").split(","))
    return precision - scale


def float_bound(value: float, *, upper: bool) -> str | None:
    """The bound of a float; None for NaN and infinities, which JSON does not have.

    Both zeros are equal, so a lower bound of zero is -0.0 and an upper one 0.0.
    """
    if value == 0:
        return "0.0" if upper else "-0.0"
    return None if value != value or value in (float("inf"), float("-inf")) else repr(value)


def date_bound(days: int) -> str | None:
    """The bound of a date, from its days since the epoch; None before the Gregorian calendar (rule 36)."""
    try:
        day = dt.date.fromordinal(_EPOCH_DAY + days)
    except (ValueError, OverflowError):
        return None
    return None if day < _GREGORIAN else f'"{day.isoformat()}"'


def timestamp_bound(millis: int, *, utc: bool) -> str | None:
    """The bound of a timestamp, from its milliseconds since the epoch, rounded down; None for early ones (rule 36).

    Readers add a millisecond to a maximum (rule 34).

    :param utc: whether the column is a ``timestamp``; otherwise it is a ``timestamp_ntz``.
    """
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=millis)
    except OverflowError:
        return None
    if moment < _STANDARD_TIME if utc else moment.date() < _GREGORIAN:
        return None
    return f'"{moment.isoformat(timespec="milliseconds")}{"Z" if utc else ""}"'


def string_bound(value: bytes | str, *, upper: bool) -> str | None:
    """The bound of a string: a prefix of 32 UTF-16 units (rule 33).

    A maximum that is cut gets a character at its end that sorts after all that was cut off. None where no such
    character exists, and for bytes that are not UTF-8.
    """
    try:
        text = value if isinstance(value, str) else value.decode()
    except UnicodeDecodeError:
        return None
    cut = _cut(text)
    if cut == len(text):
        return json_text(text)
    if not upper:
        return json_text(text[:cut])
    hidden = ord(text[cut])
    if hidden == 0x10FFFF:
        return None
    return json_text(text[:cut] + ("\x7f" if hidden < 0x7F else "\U0010ffff"))


def _cut(text: str) -> int:
    """The number of characters that fit into 32 UTF-16 units. A surrogate pair is not split."""
    if len(text) <= STRING_PREFIX // 2:
        return len(text)
    if text.isascii():
        return min(len(text), STRING_PREFIX)
    units = 0
    for position, character in enumerate(text[: STRING_PREFIX + 1]):
        units += 2 if ord(character) > 0xFFFF else 1
        if units > STRING_PREFIX:
            return position
    return len(text)


@dataclass(frozen=True)
class TableLeaf:
    """A leaf column of the table that gets statistics, by its path of names."""

    path: tuple[str, ...]
    delta_type: str
    #: False for ``char(n)``: readers pad its values, which are not padded in the file.
    bounds: bool


def indexed_leaves(
    schema: Mapping[str, Any], partition_columns: Sequence[str], properties: Mapping[str, str]
) -> list[TableLeaf]:
    """The leaf columns that get statistics: the first 32, or those that the table's properties name (rule 32).

    :raises PermanentError: ``delta.dataSkippingNumIndexedCols`` is not a number.
    """
    partitions = {name.lower() for name in partition_columns}
    fields = [field for field in schema["fields"] if field["name"].lower() not in partitions]
    leaves = list(_leaves(fields, ()))
    wanted = properties.get("delta.dataSkippingStatsColumns")
    if wanted is not None:
        chosen = [tuple(part.lower() for part in name) for name in _column_names(wanted)]
        leaves = [x for x in leaves if any(tuple(p.lower() for p in x[0].path[: len(c)]) == c for c in chosen)]
    else:
        most = _number("delta.dataSkippingNumIndexedCols", properties, INDEXED_COLUMNS)
        leaves = leaves if most < 0 else leaves[:most]
    # An array or a map counts as one column, though it gets no statistics.
    return [leaf for leaf, simple in leaves if simple]


class _WrittenLeaf(NamedTuple):
    """How the statistics of a leaf are written for the files of one layout."""

    #: The names of its columns, each as JSON text.
    path: tuple[str, ...]
    #: Its position in the files; None where they have no such column.
    position: int | None
    #: Whether the bounds of the files are valid for the table's type.
    bounds: bool
    #: The digits that its type has before the point; None for a type that is not a decimal.
    whole_digits: int | None


class StatisticsWriter:
    """Makes the ``add.stats`` of each file from the statistics of its leaves."""

    def __init__(self, leaves: Sequence[TableLeaf]) -> None:
        self._leaves = leaves
        self._plans: dict[str, list[_WrittenLeaf]] = {}

    def write(self, file_schema: str, leaf_statistics: Sequence[LeafStatistics | None], rows: int) -> str:
        """The ``add.stats`` of a file.

        :param file_schema: the JSON text of the file's schema. Its leaves have the order of ``leaf_statistics`` (rule
            38).
        :param rows: the number of rows in the file.
        """
        lower: dict[str, Any] = {}
        upper: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for path, position, bounds, whole_digits in self._plan(file_schema):
            if position is None:
                # The file has no such column, so it reads as null in every row (rule 30).
                _put(nulls, path, str(rows))
                continue
            found = leaf_statistics[position]
            if found is None:
                continue
            minimum, maximum, null_count = found
            if null_count is not None:
                _put(nulls, path, str(null_count))
            if not bounds or minimum is None or maximum is None:
                continue
            written: tuple[str, str] | None = (minimum, maximum)
            if whole_digits is not None:
                written = _decimal_bounds(minimum, maximum, whole_digits)
            if written:
                _put(lower, path, written[0])
                _put(upper, path, written[1])
        return (
            f'{{"numRecords":{rows},"minValues":{_object(lower)},"maxValues":{_object(upper)},'
            f'"nullCount":{_object(nulls)}}}'
        )

    def _plan(self, file_schema: str) -> list[_WrittenLeaf]:
        plan = self._plans.get(file_schema)
        if plan is None:
            positions = _positions(json.loads(file_schema)["fields"], (), [0])
            found = {path: (position, kind) for path, position, kind in positions}
            plan = self._plans[file_schema] = []
            for leaf in self._leaves:
                position, file_type = found.get(tuple(name.lower() for name in leaf.path), (None, None))
                same = file_type == leaf.delta_type or (_is_number(file_type) and _is_number(leaf.delta_type))
                plan.append(
                    _WrittenLeaf(
                        tuple(map(json_text, leaf.path)),
                        position,
                        leaf.bounds and same,
                        _whole_digits(leaf.delta_type) if leaf.delta_type.startswith("decimal") else None,
                    )
                )
        return plan


def _leaves(
    fields: Sequence[Mapping[str, Any]], above: tuple[str, ...], *, char: bool = False
) -> Iterator[tuple[TableLeaf, bool]]:
    for field in fields:
        path = (*above, field["name"])
        is_char = char or "char" in field.get("metadata", {}).get("__CHAR_VARCHAR_TYPE_STRING", "").replace(
            "varchar", ""
        )
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            yield from _leaves(kind["fields"], path, char=is_char)
        else:
            yield TableLeaf(path, str(kind), bounds=not is_char), isinstance(kind, str)


def _positions(
    fields: Sequence[Mapping[str, Any]], above: tuple[str, ...], counter: list[int]
) -> Iterator[tuple[tuple[str, ...], int, Any]]:
    """Path in lower case, position and type of every leaf. A list or a map is one leaf, at its first position."""
    for field in fields:
        path = (*above, field["name"].lower())
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            yield from _positions(kind["fields"], path, counter)
        else:
            yield path, counter[0], kind
            counter[0] += _width(kind)


def _is_number(kind: Any) -> bool:
    return isinstance(kind, str) and kind.startswith(("byte", "short", "integer", "long", "float", "double", "decimal"))


def _width(kind: Any) -> int:
    if isinstance(kind, str):
        return 1
    if kind["type"] == "array":
        return _width(kind["elementType"])
    if kind["type"] == "map":
        return _width(kind["keyType"]) + _width(kind["valueType"])
    return sum(_width(field["type"]) for field in kind["fields"])


def _number(name: str, properties: Mapping[str, str], otherwise: int) -> int:
    try:
        return int(properties.get(name, otherwise))
    except ValueError:
        raise PermanentError(f"The table property {name} is {properties[name]!r}, expected a whole number") from None


def _put(tree: dict[str, Any], path: tuple[str, ...], value: str) -> None:
    if len(path) == 1:
        tree[path[0]] = value
        return
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _object(tree: Mapping[str, Any]) -> str:
    """The JSON text of an object whose names and values are JSON texts, or objects of that kind."""
    members = [f"{name}:{value if isinstance(value, str) else _object(value)}" for name, value in tree.items()]
    return "{" + ",".join(members) + "}"


def _column_names(text: str) -> Iterator[tuple[str, ...]]:
    """The names in ``delta.dataSkippingStatsColumns``: separated by commas, dotted, with or without backticks."""
    name: list[str] = []
    part, quoted, i = "", False, 0
    while i < len(text):
        character = text[i]
        if character == "`" and quoted and text[i + 1 : i + 2] == "`":
            part, i = part + "`", i + 1
        elif character == "`":
            quoted = not quoted
        elif character in ".," and not quoted:
            name.append(part.strip())
            part = ""
            if character == ",":
                yield tuple(name)
                name = []
        else:
            part += character
        i += 1
    if part.strip() or name:
        yield (*name, part.strip())
