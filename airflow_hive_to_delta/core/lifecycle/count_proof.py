"""The proof that a small table has the files, bytes and rows of its original, by the driver alone.

Only that they are equal is found here. What differs is found on Spark (:mod:`comparison`), which says what it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from airflow_hive_to_delta.core.schema.types import PHYSICAL_NAME
from airflow_hive_to_delta.core.storage.uri import canonical_uri, parse_location

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

    from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
    from airflow_hive_to_delta.core.lifecycle.preflight import PreparedTable
    from airflow_hive_to_delta.core.models import TableInfo
    from airflow_hive_to_delta.core.results import VerifyResult


class _CountedFile(NamedTuple):
    """A data file with rows."""

    #: The values of its partition, in the order of the partition columns.
    values: tuple[str | None, ...]
    size: int
    rows: int
    #: When it was written; None when it is not known.
    seconds: int | None


def prove_counts(result: VerifyResult, table: TableInfo, view: DeltaTableView, original: PreparedTable) -> bool:
    """Count the files of both sides if the driver holds them, and return whether they are equal, file by file.

    Where they are, the counts of the result are filled in.
    """
    listed, logged = _read_original(table, view, original), _read_log(view)
    if not listed or logged is None or listed.keys() != logged.keys():
        return False
    for key, here in listed.items():
        there = logged[key]
        times = (here.seconds, there.seconds)
        if here[:3] != there[:3] or (None not in times and times[0] != times[1]):
            return False
    result.file_count = len(listed)
    result.byte_count = sum(file.size for file in listed.values())
    result.row_count = sum(file.rows for file in listed.values())
    result.partition_count = len({file.values for file in listed.values()}) if view.partitioning else 0
    return True


def _read_original(table: TableInfo, view: DeltaTableView, original: PreparedTable) -> dict[str, _CountedFile] | None:
    """The files of the original that have rows, by their keys; None if the driver does not hold them."""
    rows = original.files.rows
    # A zero of a float has two texts.
    if rows is None or any(field.dataType.typeName() in ("float", "double") for field in _partition_fields(view)):
        return None
    found = {}
    for row in rows:
        if row["rows"]:
            given = json.loads(row["partition_values"])
            values = tuple(given.get(key) for key in table.partition_keys)
            file = _CountedFile(values, row["size"], row["rows"], _seconds(row["modification_time"]))
            found[canonical_uri(parse_location(row["path"]))] = file
    return found if len(found) == sum(bool(row["rows"]) for row in rows) else None


def _read_log(view: DeltaTableView) -> dict[str, _CountedFile] | None:
    """The live files of the log that have rows, by their keys.

    None if the driver does not hold them, if the rows of one are not known, and if a deletion vector hides some.
    """
    live = view.snapshot.live_files
    if live is None or any(file["deletion_vector"] is not None for file in live):
        return None
    physical = [field.metadata.get(PHYSICAL_NAME, field.name) for field in _partition_fields(view)]
    found = {}
    for file in live:
        rows = _count_rows(file["stats"])
        if rows is None or file["key"] in found:
            return None
        values = file["partition_values"] or {}
        seconds = _seconds(file["modification_time"])
        found[file["key"]] = _CountedFile(tuple(map(values.get, physical)), file["size"], rows, seconds)
    return {key: file for key, file in found.items() if file.rows}


def _partition_fields(view: DeltaTableView) -> list[StructField]:
    return [view.schema[column] for column in view.partitioning]


def _seconds(milliseconds: int | None) -> int | None:
    return milliseconds // 1000 if milliseconds else None


def _count_rows(stats: str | None) -> int | None:
    """The rows of a file by its statistics; None when they do not say."""
    try:
        rows = json.loads(stats or "null")["numRecords"]
    except (ValueError, LookupError, TypeError):
        return None
    return rows if type(rows) is int else None
