"""Tables that lie inside the location of another, so that a listing of the outer table finds their files too.

An inner table is found in the catalog (:func:`mark_nested_tables`, :func:`check_nested_tables`), or, if it is a Delta
table, by its log (:func:`check_no_delta_table_within`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.delta.roots import delta_roots
from airflow_hive_to_delta.core.errors import PermanentError, UnsupportedTableError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.uri import Location, is_hidden, parse_location, without_default_host

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The most nested tables that are kept with one table.
_MOST_NESTED = 100


def mark_nested_tables(tables: Sequence[TableInfo], others: Iterable[tuple[str, str]] = ()) -> None:
    """Set ``nested_tables`` of each table to those of these tables and others that lie inside its location.

    :param others: the full name and the location of each other table.
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
    """Refuse a table if another table of the catalog lies in a folder that is listed for it.

    A table at the location of a partition is allowed: it is a second name for the files of the partition.

    :param partitions: the locations of the table's partitions; None: everything under its root is listed.
    :raises UnsupportedTableError: the message names the nested tables.
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
    root: Location,
    folders: Iterable[str],
    spark: SparkSession | None,
    options: ConversionOptions,
    may_have_log: Callable[[Location], bool] = lambda _: True,
) -> None:
    """Refuse a table with files in the folder of another Delta table, which is recognised by its log.

    Below the root every folder above a file is checked, outside only the file's own, because those above it do not
    belong to the table. There is one request for each folder that may have a log.

    :param folders: the folders of the table's files, as URIs.
    :param may_have_log: whether a folder has to be looked into; False for those that the listing has seen without one.
    :raises UnsupportedTableError: the message names the folder.
    """
    found: dict[Location, Location] = {}
    for uri in folders:
        try:
            folder = without_default_host(parse_location(uri), root)
        except PermanentError:
            continue  # its files are refused when they are described
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

    candidates = filter(may_have_log, found.values())
    inner = next(delta_roots(candidates, spark, options, may_be_unknown=lies_outside), None)
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
