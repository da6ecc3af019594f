"""Schemas as Delta writes them, in short, and random ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from airflow_hive_to_delta.core.schema.evidence import Evidence
from airflow_hive_to_delta.core.schema.types import DeltaType, field_of, nested_of, struct_of, walk_fields

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


def array(element: DeltaType) -> dict[str, Any]:
    return nested_of("array", {"element": element})


def mapping(key: DeltaType, value: DeltaType) -> dict[str, Any]:
    return nested_of("map", {"key": key, "value": value})


def struct(**fields: DeltaType) -> dict[str, Any]:
    return struct_of([field_of(name, delta_type) for name, delta_type in fields.items()])


def files(*schemas: dict[str, Any]) -> Evidence:
    """The evidence of files a.parquet, b.parquet, … with these schemas."""
    evidence = Evidence()
    for letter, schema in zip("abcdefgh", schemas, strict=False):
        evidence = evidence.merge(Evidence.of_file(schema, f"{letter}.parquet"))
    return evidence


def types_of(schema: dict[str, Any]) -> dict[str, DeltaType]:
    """By name, the type of each column."""
    return {column["name"]: column["type"] for column in schema["fields"]}


def metadata_of(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By path, the metadata of each field at every level."""
    return {".".join(path): column["metadata"] for path, column in walk_fields(schema)}


def structs_of(
    inner: st.SearchStrategy[DeltaType], names: st.SearchStrategy[str] = NAMES
) -> st.SearchStrategy[dict[str, Any]]:
    """Structs of a few fields of these types, whose names differ by more than case."""
    fields = st.lists(st.tuples(names, inner), min_size=1, max_size=4, unique_by=lambda pair: pair[0].lower())
    return fields.map(lambda pairs: struct_of([field_of(*pair) for pair in pairs]))
