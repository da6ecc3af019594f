"""Which of the tables that a discovery found go on, and under which names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow.sdk.exceptions import AirflowFailException

from airflow_hive_to_delta.core.catalogs.target_names import (
    same_target,
    tables_by_target,
    target_key,
    with_target_names,
)
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.operators.tables.batches import Table
from airflow_hive_to_delta.report.outcomes import TableOutcome

#: Takes a discovered table and returns it, changed or not; None leaves it out.
Choose = Callable[[Table], Table | None]
#: One target schema for all, or one for each database.
TargetSchema = str | Mapping[str, str] | None


def schema_for(table: TableInfo, target_schema: TargetSchema) -> str | None:
    """The schema that a table goes into. A mapping without one for the table's database fails the task."""
    if isinstance(target_schema, Mapping):
        if table.database is None or table.database not in target_schema:
            raise AirflowFailException(
                f"target_schema has no schema for the database {table.database} of {table.qualified_name}, only for "
                f"{', '.join(target_schema)}"
            )
        return target_schema[table.database]
    return target_schema


@dataclass
class TableSelection:
    """The tables that go on, with their target names, and the outcomes of those that are left out."""

    tables: list[TableInfo] = field(default_factory=list)
    left_out: list[TableOutcome] = field(default_factory=list)


def select_tables(
    found: Sequence[TableInfo],
    *,
    choose: Choose | None,
    leave_out_delta: bool,
    target_schema: TargetSchema,
    options: ConversionOptions,
) -> TableSelection:
    """Select, from the tables that were found, those that can be converted.

    :param choose: leaves tables out, or changes them.
    :param leave_out_delta: leave out what is a Delta table in its catalog.
    :param target_schema: where the tables will go: two that would get one name there are refused.
    :param options: say what can be converted.
    """
    selection = TableSelection()
    chosen = _choose_tables(found, choose, selection.left_out)
    if leave_out_delta:
        chosen = _leave_out_delta(chosen, selection.left_out)
    for table in _with_target_names(chosen, target_schema):
        if reason := table.why_refused(options):
            selection.left_out.append(TableOutcome(table.qualified_name, "refused", error=reason))
        else:
            selection.tables.append(table)
    return selection


def _choose_tables(found: Sequence[TableInfo], choose: Choose | None, left_out: list[TableOutcome]) -> list[TableInfo]:
    from airflow_hive_to_delta.core.catalogs.definitions import mark_discovered  # which brings boto3

    if choose is None:
        return [mark_discovered(table) for table in found]
    chosen = []
    for table in found:
        answer = choose(table.to_dict())
        if answer is None:
            left_out.append(TableOutcome(table.qualified_name, "skipped", error="Left out by choose"))
        elif isinstance(answer, Mapping):
            chosen.append(mark_discovered(TableInfo.from_dict(dict(answer)), table))
        else:
            raise AirflowFailException(
                f"choose returned {answer!r:.200} for {table.qualified_name}, expected the table as a dict, or None"
            )
    return chosen


def _leave_out_delta(tables: Sequence[TableInfo], left_out: list[TableOutcome]) -> list[TableInfo]:
    for table in tables:
        if table.format == "delta":
            reason = "It is a Delta table in its catalog: cut over, or never a Hive table"
            left_out.append(TableOutcome(table.qualified_name, "skipped", error=reason))
    return [table for table in tables if table.format != "delta"]


def _with_target_names(tables: Sequence[TableInfo], target_schema: TargetSchema) -> list[TableInfo]:
    schemas = {table.qualified_name: schema_for(table, target_schema) for table in tables}

    def schema_of(table: TableInfo) -> str | None:
        return schemas[table.qualified_name]

    named = with_target_names(tables, schema_of)
    by_target = tables_by_target(named, schema_of)
    for table in named:
        same = by_target[target_key(table, schema_of)]
        if len(same) > 1 and not table.refusal:
            target = ".".join(filter(None, (schema_of(table), table.target_table_name)))
            table.refusal = same_target(same, target)
    return named
