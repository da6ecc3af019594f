"""A table's definition read again, when a table that was discovered earlier is worked on at last.

Between discovery and a later step people mend what an error names: a type, a location. What discovery handed on says so
itself (``TableInfo.discovered``), with a digest, by which a table that was made or changed by hand is told: that one is
taken as it is.
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
#: What is no part of the catalog's definition of this table, or is not handed on.
_NOT_DEFINED = {"target_table_name", "discovered", "refusal", "properties", "nested_tables"}


def mark_discovered(table: TableInfo, found: TableInfo | None = None) -> TableInfo:
    """The table, so that a later step reads its definition again.

    :param found: the table as its catalog described it, if somebody has changed it since: what they chose is kept.
    """
    chosen = [name for name in _defined() if found is not None and getattr(found, name) != getattr(table, name)]
    if not _IDENTITY.isdisjoint(chosen):  # a table of another name, which its catalog may not know
        return table
    return replace(table, discovered={"digest": _digest(table), "chosen": chosen})


def is_read_again(table: TableInfo) -> bool:
    """Whether the table is as discovery handed it on, so that its catalog can be asked again."""
    return table.source != "none" and table.discovered.get("digest") == _digest(table)


def current_definition(table: TableInfo, spark: SparkSession | None = None) -> TableInfo:
    """The table as its catalog describes it now, with what was chosen for it. One that was made by hand as it is.

    :param spark: needed for a table of the session's catalog.
    :raises MissingError: it is gone from its catalog.
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
    # Which tables lie inside this one was found out by looking at all of them. Of these, some may be gone from there.
    mark_nested_tables([current], _current_locations(table, spark))
    return replace(current, discovered={"digest": _digest(current), "chosen": list(table.discovered["chosen"])})


def _current_locations(table: TableInfo, spark: SparkSession | None) -> Iterator[tuple[str, str]]:
    """The tables that were inside this one when it was discovered, and where they are now."""
    from airflow_hive_to_delta.core.catalogs.discovery import describe_in_glue, describe_in_spark

    for name, location in table.nested_tables.items():
        *catalog, database, inner = name.split(".") if "." in name else ("", name)
        if len(catalog) != (table.catalog is not None):  # a name with dots in it: which table that is, is not known
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
            # One that Spark cannot describe, for whatever other reason, is where it was.
            if not (found.refusal and "TABLE_OR_VIEW_NOT_FOUND" in found.refusal):
                yield name, found.location or location


def place_digest(table: TableInfo) -> str:
    """A digest of what a list of the table's files depends on."""
    return _hash([table.location, table.partition_keys])


def _defined() -> list[str]:
    return [field.name for field in fields(TableInfo) if field.name not in _NOT_DEFINED]


def _digest(table: TableInfo) -> str:
    return _hash({name: getattr(table, name) for name in _defined()})


def _hash(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()
