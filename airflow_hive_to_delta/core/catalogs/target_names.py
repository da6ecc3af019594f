"""Which name each table of a run gets, so that no two tables claim the same one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from airflow_hive_to_delta.core.models import TableInfo

#: The schema that a table goes into; names count as the same only within one.
SchemaOf = Callable[[TableInfo], str | None]


def with_target_names(tables: Sequence[TableInfo], schema_of: SchemaOf = lambda _: None) -> list[TableInfo]:
    """Give every table a target name; those of one name are told apart by their databases, then by their catalogs."""
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
    """The tables that claim each target."""
    found: dict[tuple[str, str], list[str]] = {}
    for table in tables:
        found.setdefault(target_key(table, schema_of), []).append(table.qualified_name)
    return found


def target_key(table: TableInfo, schema_of: SchemaOf = lambda _: None) -> tuple[str, str]:
    """Equal for names that a catalog cannot tell apart."""
    return (schema_of(table) or "").lower(), (table.target_table_name or table.name).lower()


def same_target(tables: Sequence[str], target: str) -> str:
    """The message for tables that all claim one name."""
    return f"{' and '.join(tables)} would all be registered as {target}. Give each a target_table_name of its own"
