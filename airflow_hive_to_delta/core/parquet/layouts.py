"""The layout of a Parquet file: its schema as a Delta schema, as Spark reads it, and its leaf columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_hive_to_delta.core.errors import PermanentError, SchemaError
from airflow_hive_to_delta.core.parquet.footer_thrift import SchemaPart
from airflow_hive_to_delta.core.parquet.writers import Statistic, trusted_statistics

#: Writers that a layout remembers.
_MOST_WRITERS = 64


@dataclass(frozen=True)
class Leaf:
    """A leaf column of a file: its Delta type, how its values are stored, and how its bounds are written."""

    delta_type: str
    #: The kind of its bounds; None if it gets no bounds (rules 32 and 36).
    bound: str | None = None
    precision: int = 0
    scale: int = 0
    physical_type: str = ""
    #: Bytes of a FIXED_LEN_BYTE_ARRAY.
    length: int = 0

    @property
    def bounds_statistic(self) -> Statistic:
        """The kind of statistics that the bounds belong to, for :func:`~.writers.trusted_statistics`."""
        match self.bound, self.physical_type:
            case "float", _:
                return Statistic.FLOAT_BOUNDS
            case "string", _:
                return Statistic.STRING_BOUNDS
            case "decimal", "FIXED_LEN_BYTE_ARRAY":
                return Statistic.FIXED_DECIMAL_BOUNDS
            case "decimal", "BYTE_ARRAY":
                return Statistic.VARIABLE_DECIMAL_BOUNDS
            case "decimal", _:
                return Statistic.INTEGER_DECIMAL_BOUNDS
        return Statistic.INTEGER_BOUNDS

    @property
    def nulls_statistic(self) -> Statistic:
        """The kind of statistics that the null count belongs to."""
        return Statistic.BYTE_ARRAY_NULLS if self.physical_type == "BYTE_ARRAY" else Statistic.OTHER_NULLS


class LeafTrust(NamedTuple):
    """A leaf column, and what of its statistics is trusted. None: it is one of a list or a map."""

    leaf: Leaf | None
    #: Whether its bounds are.
    bounded: bool = False
    #: Whether its null counts are.
    counted: bool = False


@dataclass(frozen=True)
class Layout:
    """The columns of a file."""

    #: A hash of the schema.
    name: str
    #: The JSON text of the file's schema as a Delta schema.
    schema: str
    #: The names of the top-level columns, in lower case.
    column_names: frozenset[str]
    #: The leaf columns in order; None for those in lists and maps.
    leaves: tuple[Leaf | None, ...]
    _trust: dict[tuple[str, tuple[bool, ...]], tuple[LeafTrust, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def trusted_leaves(self, created_by: str, type_ordered: Sequence[bool]) -> tuple[LeafTrust, ...]:
        """What of the statistics of each leaf is trusted, in a file of this writer.

        :param type_ordered: for each leaf whether its bounds have the order that its type defines.
        """
        key = (created_by, tuple(type_ordered))
        known = self._trust.get(key)
        if known is None:
            if len(self._trust) >= _MOST_WRITERS:
                self._trust.clear()
            known = self._trust[key] = tuple(self._find_trust(*key))
        return known

    def _find_trust(self, created_by: str, type_ordered: Sequence[bool]) -> Iterator[LeafTrust]:
        trusted = trusted_statistics(created_by)
        if len(type_ordered) != len(self.leaves):
            type_ordered = [False] * len(self.leaves)  # its bounds are in the deprecated fields (rule 36)
        for leaf, ordered in zip(self.leaves, type_ordered, strict=True):
            if leaf is None:
                yield LeafTrust(None)
                continue
            bounded = ordered and leaf.bound is not None and leaf.bounds_statistic in trusted
            yield LeafTrust(leaf, bounded, leaf.nulls_statistic in trusted)


def layout_of(part: SchemaPart, path: str) -> Layout:
    """The layout of a file whose footer begins with this schema.

    pyarrow gets a file with the schema and no rows, because the rest of a malformed footer can crash its process. The
    types of the leaves are made from the types of Parquet: those of pyarrow follow the ``ARROW:schema`` in the file.

    :param path: the file, for messages.
    :raises SchemaError: a column has a type that Spark cannot read into a Delta table.
    :raises PermanentError: the schema is malformed.
    """
    reader = pq.ParquetReader()
    try:
        reader.open(pa.BufferReader(part.footer_without_rows()))
        return _layout_of(reader.metadata.schema, path)
    except UnicodeDecodeError as error:
        raise SchemaError(f"The footer of {path} has a name that is not UTF-8: {error}") from error
    except (pa.ArrowException, OSError) as error:
        raise PermanentError(f"The schema in the footer of {path} cannot be read: {error}") from error


def _layout_of(schema: pq.ParquetSchema, path: str) -> Layout:
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
    leaf = _typed_leaf(column, path)
    return replace(leaf, physical_type=column.physical_type, length=column.length or 0)


def _typed_leaf(column: Any, path: str) -> Leaf:
    """The leaf with the type that Spark reads it as.

    :raises SchemaError: Spark cannot read it.
    """
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
            return Leaf(f"decimal({column.precision},{column.scale})", "decimal", column.precision, column.scale)
    described = physical if kind == "None" else f"{physical} ({column.logical_type})"
    raise SchemaError(
        f"The column {column.path} of {path} is of the Parquet type {described}, which Spark cannot read into a Delta "
        "table. Rewrite the files with a type it can, such as a timestamp in microseconds"
    )
