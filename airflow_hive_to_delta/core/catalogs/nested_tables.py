"""Tables that lie inside another one: whoever lists the outer table's files finds those of the inner one, too.

The catalog may know the inner table (:func:`mark_nested_tables`, :func:`check_nested_tables`); a Delta table is known
by its log (:func:`check_no_delta_table_within`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.delta.roots import delta_roots
from airflow_hive_to_delta.core.errors import PermanentError, UnsupportedTableError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.uri import Location, is_hidden, parse_location, without_default_host

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Nested tables that one table carries the names of; of more it is known only that there are that many.
_MOST_NESTED = 100


def mark_nested_tables(tables: Sequence[TableInfo], others: Iterable[tuple[str, str]] = ()) -> None:
    """Set ``nested_tables`` of each table, to what lies below its location among these tables and others.

    :param others: the full name and the location of each further table.
    """
    outer = {table.qualified_name: table for table in tables}
    named = {**dict(others), **{name: table.location for name, table in outer.items()}}
    names_at: dict[Location, list[str]] = {}
    for name, text in named.items():
        try:
            names_at.setdefault(parse_location(text).canonical, []).append(name)
        except PermanentError:
            continue  # a view, or a table that is refused for its location
    above: list[Location] = []
    # What lies in a folder comes directly after it, when all end in a slash.
    for location in sorted(names_at, key=lambda found: (*found.store, f"{found.path}/")):
        while above and not above[-1].holds(location):
            above.pop()
        for folder in above:
            if is_hidden(folder.relative(location)):
                continue
            for table in filter(None, map(outer.get, names_at[folder])):
                room = _MOST_NESTED - len(table.nested_tables)
                table.nested_tables |= {name: named[name] for name in names_at[location][: max(room, 0)]}
        above.append(location)


def check_nested_tables(table: TableInfo, partitions: Sequence[Location] | None, options: ConversionOptions) -> None:
    """Refuse a table when the catalog has another one where its files are looked for.

    A table at the very location of a partition is a second name for the partition's files, which stay its own.

    :param partitions: the locations of its partitions; None: all that lies below its root is listed.
    """
    if not table.nested_tables or options.allow_nested_tables:
        return
    root = parse_location(table.location, f"The location of {table.qualified_name}")
    listed = None if partitions is None else {partition.canonical for partition in partitions}
    inside = []
    for name, text in table.nested_tables.items():
        location = parse_location(text, f"The location of {name}")
        if listed is None:
            is_inside = not _is_partition_folder(root.relative(location), table.partition_keys)
        else:
            is_inside = location.canonical not in listed and not listed.isdisjoint(_folders_above(location))
        inside += [name] if is_inside else []
    if inside:
        raise UnsupportedTableError(table.nested_refusal(inside))


def check_no_delta_table_within(
    root: Location, folders: Iterable[str], spark: SparkSession | None, options: ConversionOptions
) -> None:
    """Refuse a table with files in a folder that belongs to another Delta table, by its log.

    Below the root every folder above a file counts, outside only the file's own: what lies above that is no part of the
    table. One request for each folder.

    :param folders: the folders of the table's files, as URIs.
    """
    found: dict[Location, Location] = {}
    for uri in folders:
        try:
            folder = without_default_host(parse_location(uri), root)
        except PermanentError:
            continue  # refused where the file itself is looked at
        if not root.holds(folder):
            if folder.canonical != root.canonical and not folder.holds(root):
                found[folder.canonical] = folder
            continue
        if is_hidden(root.relative(folder)):
            continue
        while root.holds(folder) and folder.canonical not in found:
            found[folder.canonical] = folder
            folder = folder.parent

    def lies_outside(folder: Location) -> bool:
        return not root.holds(folder)

    inner = next(delta_roots(found.values(), spark, options, may_be_unknown=lies_outside), None)
    if inner is not None:
        raise UnsupportedTableError(
            f"The table at {root} has files inside another Delta table, at {inner}, which has a _delta_log there. Only "
            "that log knows which of them count. Give each table a location of its own, or drop the partition that "
            f"lies there from the metastore. If {inner} is no Delta table any more, move its _delta_log away"
        )


def _is_partition_folder(below: str, keys: Sequence[str]) -> bool:
    """Whether a path from the root is that of a partition, such as ``year=2024/month=01``."""
    names = below.lower().split("/")
    expected = [f"{key.lower()}=" for key in keys[: len(names)]]
    return len(names) == len(expected) and all(map(str.startswith, names, expected))


def _folders_above(location: Location) -> Iterable[Location]:
    while location.path:
        location = location.parent
        yield location.canonical
