"""The proof that a table has the files, bytes and rows of its original, by the driver alone.

Only that they are equal is found here. What differs is found on Spark (:mod:`comparison`), which says what it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_to_delta.core.arrow_columns import equal_or_both_null, in_one_chunk, map_values
from airflow_hive_to_delta.core.parquet.located_files import canonical_uris
from airflow_hive_to_delta.core.schema.types import PHYSICAL_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructField

    from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
    from airflow_hive_to_delta.core.lifecycle.preflight import PreparedTable
    from airflow_hive_to_delta.core.models import TableInfo
    from airflow_hive_to_delta.core.results import VerifyResult


def prove_counts(result: VerifyResult, table: TableInfo, view: DeltaTableView, original: PreparedTable) -> bool:
    """Count the files of both sides if the driver holds them, and return whether they are equal, file by file.

    Where they are, the counts of the result are filled in.
    """
    logged = _read_log(view)
    listed = None if logged is None else _read_original(table, view, original)
    if logged is None or listed is None or not listed.num_rows or listed.num_rows != logged.num_rows:
        return False
    here = in_one_chunk(listed["key"])
    found = pc.index_in(here, in_one_chunk(logged["key"]))
    # As many on both sides, and none of them twice: if each is there, they are the same.
    if found.null_count or pc.count_distinct(here).as_py() < len(here) or pc.count_distinct(found).as_py() < len(here):
        return False
    logged = logged.take(found)
    for name in listed.column_names:
        one, other = in_one_chunk(listed[name]), in_one_chunk(logged[name])
        same = pc.fill_null(pc.equal(one, other), True) if name == _SECONDS else equal_or_both_null(one, other)
        if not pc.all(same).as_py():
            return False
    result.file_count = listed.num_rows
    result.byte_count, result.row_count = (pc.sum(listed[name]).as_py() for name in ("size", "rows"))
    result.partition_count = _count_partitions(listed) if view.partitioning else 0
    return True


#: When a file was written; null when it is not known.
_SECONDS = "seconds"


def _read_original(table: TableInfo, view: DeltaTableView, original: PreparedTable) -> pa.Table | None:
    """The files of the original that have rows; None if the driver does not hold them."""
    # A zero of a float has two texts.
    if any(field.dataType.typeName() in ("float", "double") for field in _partition_fields(view)):
        return None
    described = original.files.collect_counts()
    if described is None or described["rows"].null_count:
        return None
    files = described.filter(pc.greater(described["rows"], 0))
    encoded = in_one_chunk(files["partition_values"]).dictionary_encode()
    given = [json.loads(text) for text in encoded.dictionary.to_pylist()]
    values = [
        pa.array([values.get(key) for values in given], pa.string()).take(encoded.indices)
        for key in table.partition_keys
    ]
    return _columns(canonical_uris(in_one_chunk(files["path"])), files, values)


def _read_log(view: DeltaTableView) -> pa.Table | None:
    """The live files of the log that have rows.

    None if the driver does not hold them, if the rows of one are not known, and if a deletion vector hides some.
    """
    live = view.snapshot.read_live_files(with_rows=True)
    if live is None or live["rows"].null_count or pc.any(live["has_vector"]).as_py():
        return None
    files = live.filter(pc.greater(live["rows"], 0))
    maps = in_one_chunk(files["partition_values"])
    physical = [field.metadata.get(PHYSICAL_NAME, field.name) for field in _partition_fields(view)]
    return _columns(in_one_chunk(files["key"]), files, [map_values(maps, name) for name in physical])


def _columns(key: pa.Array, files: pa.Table, values: Sequence[pa.Array]) -> pa.Table:
    times = in_one_chunk(files["modification_time"])
    seconds = pc.divide(pc.if_else(pc.equal(times, 0), None, times), 1000)
    partition = {f"{_VALUE}{number}": each for number, each in enumerate(values)}
    return pa.table({"key": key, "size": files["size"], "rows": files["rows"], _SECONDS: seconds, **partition})


_VALUE = "value_"


def _count_partitions(files: pa.Table) -> int:
    values = [name for name in files.column_names if name.startswith(_VALUE)]
    counted: int = files.group_by(values).aggregate([]).num_rows
    return counted


def _partition_fields(view: DeltaTableView) -> list[StructField]:
    return [view.schema[column] for column in view.partitioning]
