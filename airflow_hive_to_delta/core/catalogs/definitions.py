"""Reading the definition of a table again, some time after it was discovered.

Between discovery and a later step people correct a type or a location that an error has named. A table that discovery
has passed on is marked with a digest of its definition (``TableInfo.discovered``), and its catalog is asked again. A
table without the mark, or with another digest, was made or changed by hand, and is used as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.catalogs.nested_tables import mark_nested_tables
from airflow_hive_to_delta.core.errors import HiveToDeltaError, MissingError
from airflow_hive_to_delta.core.models import TableInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IDENTITY = {"name", "database", "catalog", "source", "region"}
#: Fields that are not part of the catalog's definition of a table, or are not passed on to later steps.
_NOT_DEFINED = {"target_table_name", "discovered", "refusal", "properties", "nested_tables"}


def mark_discovered(table: TableInfo, found: TableInfo | None = None) -> TableInfo:
    """The table with a mark, by which later steps read its definition from the catalog again.

    :param found: the table as its catalog described it, if the user has changed it since. The fields that were changed
        keep the user's values.
    """
    chosen = [name for name in _defined() if found is not None and getattr(found, name) != getattr(table, name)]
    if not _IDENTITY.isdisjoint(chosen):  # a table of another name, which may not be in the catalog
        return table
    return replace(table, discovered={"digest": _digest(table), "chosen": chosen})


def is_read_again(table: TableInfo) -> bool:
    """Whether the table is as discovery has passed it on, so that its definition can be read again."""
    return table.source != "none" and table.discovered.get("digest") == _digest(table)


def current_definition(table: TableInfo, spark: SparkSession | None = None) -> TableInfo:
    """The table as its catalog describes it now, with the values that the user chose.

    A table that was made or changed by hand is returned as it is.

    :param spark: needed for a table of the session's catalog, which is otherwise returned as it is.
    :raises MissingError: the table does not exist in its catalog any more.
    """
    from airflow_hive_to_delta.core.catalogs.discovery import describe_in_glue, describe_in_spark

    if not is_read_again(table):
        return table
    if table.source == "glue":
        found = describe_in_glue(table)
    elif spark is not None:
        found = describe_in_spark(spark, table)
    else:
        return table
    kept: dict[str, Any] = {name: getattr(table, name) for name in ("target_table_name", *table.discovered["chosen"])}
    current = replace(found.without_other_properties(), **kept)
    # Discovery compared all tables of the database to find the nested ones. Only those are looked up again.
    mark_nested_tables([current], _current_locations(table, spark))
    return replace(current, discovered={"digest": _digest(current), "chosen": list(table.discovered["chosen"])})


def location_digest(table: TableInfo) -> str:
    """A digest of what a list of the table's files depends on: its location and its partition columns."""
    return _hash([table.location, table.partition_keys])


def _current_locations(table: TableInfo, spark: SparkSession | None) -> Iterator[tuple[str, str]]:
    """The name and the current location of each table that lay inside this one when it was discovered.

    A table that does not exist any more is left out. One that cannot be described keeps its location.
    """
    from airflow_hive_to_delta.core.catalogs.discovery import describe_in_glue, describe_in_spark

    for name, location in table.nested_tables.items():
        *catalog, database, inner = name.split(".") if "." in name else ("", name)
        if len(catalog) != (table.catalog is not None):  # a part of the name has a dot, so it cannot be split
            yield name, location
            continue
        known = replace(table, name=inner, database=database, catalog=next(iter(catalog), None))
        try:
            found = describe_in_spark(spark, known) if spark is not None else describe_in_glue(known)
        except MissingError:
            continue
        except HiveToDeltaError:
            yield name, location
        else:
            # Spark reports a table that it cannot describe by a refusal, whatever the reason.
            if not (found.refusal and "TABLE_OR_VIEW_NOT_FOUND" in found.refusal):
                yield name, found.location or location


def _defined() -> list[str]:
    return [field.name for field in fields(TableInfo) if field.name not in _NOT_DEFINED]


def _digest(table: TableInfo) -> str:
    return _hash({name: getattr(table, name) for name in _defined()})


def _hash(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()
