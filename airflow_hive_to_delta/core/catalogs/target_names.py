"""The names that the tables of a run are registered under, each of which must be unique."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from airflow_hive_to_delta.core.models import TableInfo

#: The schema that a table is registered in. Names must be unique within a schema.
SchemaOf = Callable[[TableInfo], str | None]


def with_target_names(tables: Sequence[TableInfo], schema_of: SchemaOf = lambda _: None) -> list[TableInfo]:
    """Give every table a target name.

    A target name that a table already has is kept. Otherwise it is the table's own name. Where several tables have that
    name, those of the database and of the catalog are put before it, as far as needed.
    """
    named = [replace(table, target_table_name=table.target_table_name or table.name) for table in tables]
    for parts in (("database", "name"), ("catalog", "database", "name")):
        taken = tables_by_target(named, schema_of)
        for table, found in zip(named, tables, strict=True):
            if found.target_table_name is None and len(taken[target_key(table, schema_of)]) > 1:
                table.target_table_name = "_".join(filter(None, (getattr(table, part) for part in parts)))
    return named


def tables_by_target(
    tables: Sequence[TableInfo], schema_of: SchemaOf = lambda _: None
) -> dict[tuple[str, str], list[str]]:
    """The full names of the tables for each target, by :func:`target_key`."""
    found: dict[tuple[str, str], list[str]] = {}
    for table in tables:
        found.setdefault(target_key(table, schema_of), []).append(table.qualified_name)
    return found


def target_key(table: TableInfo, schema_of: SchemaOf = lambda _: None) -> tuple[str, str]:
    """The target of a table, as a key that is equal for names that are one name to a catalog."""
    return (schema_of(table) or "").lower(), (table.target_table_name or table.name).lower()


def same_target(tables: Sequence[str], target: str) -> str:
    """The message for tables that have one target."""
    return f"{' and '.join(tables)} would all be registered as {target}. Give each a target_table_name of its own"
