"""What a reader is asked about a table and what it answers, in a form that is equal for every reader.

Only the standard library is used here: readers in environments of their own import it too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

#: A type by Delta's name, or ``("array", element)``, ``("struct", {name: kind})``, ``("map", key, value)``.
Kind = str | Sequence[Any]
#: A column, ``=``, ``>``, ``is null`` or ``is not null``, and the value to compare with.
Filter = tuple[str, str, Any]

#: The column that every table has, by which the rows of a filter are told apart.
ID = "id"


@dataclass
class Sample:
    """A converted table and the rows that it holds."""

    name: str
    location: str
    kinds: dict[str, Kind]
    rows: list[dict[str, Any]]
    #: All that :func:`filters_of` gives, unless these few are enough.
    few_filters: Sequence[Filter] = ()
    filters: list[Filter] = field(init=False)
    #: Columns that have no bounds in the log's statistics. Filters are on these only, or else on all others.
    unbounded: Sequence[str] = ()
    only_unbounded: bool = False

    def __post_init__(self) -> None:
        self.filters = list(self.few_filters) or [
            condition
            for condition in filters_of(self.kinds, self.rows)
            if (condition[0] in self.unbounded) == self.only_unbounded
        ]

    def expected(self) -> dict[str, Any]:
        return answer_of(
            self,
            self.rows,
            len(self.rows),
            [[row[ID] for row in self.rows if _holds(row, condition)] for condition in self.filters],
        )


def answer_of(
    sample: Sample, rows: Iterable[Mapping[str, Any]], count: int | None, filtered: Sequence[Sequence[int]] | None
) -> dict[str, Any]:
    """An answer as JSON. ``count`` and ``filtered`` are None where a reader has no such question."""
    plain = [[canonical(row[name], kind) for name, kind in sample.kinds.items()] for row in rows]
    key = list(sample.kinds).index(ID)
    return {
        "rows": sorted(plain, key=lambda row: int(row[key])),
        "count": count,
        "filtered": None if filtered is None else [sorted(ids) for ids in filtered],
    }


def filters_of(kinds: Mapping[str, Kind], rows: Sequence[Mapping[str, Any]]) -> Iterable[Filter]:
    """Of every column: the rows that have its smallest value, and those that have none. Of the id: those above it.

    Of text every value, for a partition's may be spelt in many ways. Spark plans each of them, so there are no more.
    """
    for name, kind in kinds.items():
        if not isinstance(kind, str) or kind == "binary":
            continue
        values = sorted({row[name] for row in rows if row[name] is not None})
        yield name, "is null", None
        for value in values if kind == "string" else values[:1]:
            yield name, "=", value
        if name == ID or kind in ("timestamp", "decimal(38,10)"):
            yield name, ">", values[0]


def sql_of(condition: Filter, kind: Kind, dialect: str) -> str:
    """A filter in the SQL of ``spark``, ``duckdb``, ``datafusion`` or ``trino``."""
    name, operator, value = condition
    column = quoted(name, dialect)
    return f"{column} {operator}" if value is None else f"{column} {operator} {_literal(value, str(kind), dialect)}"


def quoted(name: str, dialect: str) -> str:
    return f"`{name}`" if dialect == "spark" else f'"{name}"'


def filtered_sql(sample: Sample, table: str, dialect: str) -> str:
    """One query for all filters, each a part of its own so that files may be skipped for it: number and id."""
    return " UNION ALL ".join(
        f"SELECT {number} AS question, {quoted(ID, dialect)} AS answer FROM {table} "
        f"WHERE {sql_of(condition, sample.kinds[condition[0]], dialect)}"
        for number, condition in enumerate(sample.filters)
    )


def by_question(sample: Sample, pairs: Iterable[Sequence[int]]) -> list[list[int]]:
    """What :func:`filtered_sql` found, filter by filter."""
    found: list[list[int]] = [[] for _ in sample.filters]
    for question, answer in pairs:
        found[question].append(answer)
    return found


def canonical(value: Any, kind: Kind) -> Any:
    """A value as text, whatever class a reader has for it. Raises for a class that the kind should not have."""
    if value is None:
        return None
    if not isinstance(kind, str):
        return _canonical_nested(value, kind)
    if kind in ("byte", "short", "integer", "long"):
        return str(_checked(value, int))
    if kind in ("float", "double"):
        return repr(_checked(value, float))
    if kind.startswith("decimal"):
        return format(_checked(value, Decimal), "f")
    if kind == "timestamp":
        if _checked(value, datetime).tzinfo is None:
            raise TypeError(f"A timestamp came back without a zone: {value!r}")
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if kind == "timestamp_ntz":
        if _checked(value, datetime).tzinfo is not None:
            raise TypeError(f"A timestamp_ntz came back with a zone: {value!r}")
        return value.isoformat(timespec="microseconds")
    if kind == "date":
        return _checked(value, date).isoformat()
    if kind == "boolean":
        return str(_checked(value, bool))
    if kind == "binary":
        return base64.b64encode(bytes(value)).decode()
    return _checked(value, str)


def _canonical_nested(value: Any, kind: Sequence[Any]) -> Any:
    what, *parts = kind
    if what == "array":
        return [canonical(item, parts[0]) for item in value]
    if what == "struct":
        values = value.values() if isinstance(value, Mapping) else value
        return [canonical(item, part) for item, part in zip(values, parts[0].values(), strict=True)]
    pairs = value.items() if isinstance(value, Mapping) else (_pair(item) for item in value)
    return sorted([canonical(key, parts[0]), canonical(item, parts[1])] for key, item in pairs)


def _pair(item: Any) -> tuple[Any, Any]:
    key, value = item.values() if isinstance(item, Mapping) else item
    return key, value


def _checked(value: Any, expected: type) -> Any:
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise TypeError(f"{value!r} is of the class {type(value).__name__}, expected {expected.__name__}")
    return value


def _holds(row: Mapping[str, Any], condition: Filter) -> bool:
    name, operator, wanted = condition
    value = row[name]
    if operator == "is null":
        return value is None
    return value is not None and bool(value == wanted if operator == "=" else value > wanted)


def _literal(value: Any, kind: str, dialect: str) -> str:
    if isinstance(value, datetime):
        zone = "" if value.tzinfo is None else " UTC" if dialect == "trino" else "Z"
        word = "TIMESTAMP_NTZ" if dialect == "spark" and not zone else "TIMESTAMP"
        if dialect == "duckdb" and zone:
            word = "TIMESTAMPTZ"
        return f"{word} '{value.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}{zone}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, Decimal):
        return f"CAST('{value}' AS {kind})"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # Spark 3.5 takes two quotes for the end of one literal and the start of another.
        return "'" + value.replace("'", "\\'" if dialect == "spark" else "''") + "'"
    if isinstance(value, float):
        # A float column holds what is exact in both: the comparison is not about rounding.
        return f"CAST({value!r} AS DOUBLE)"
    return str(value)
