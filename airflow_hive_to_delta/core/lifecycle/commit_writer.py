"""Writes a log entry to a local file: actions from the driver, and add actions streamed from the executors."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from airflow_hive_to_delta.core.delta.actions import action_line
from airflow_hive_to_delta.core.errors import StaleFileListError, TransientError
from airflow_hive_to_delta.core.parquet.add_actions import BLOCKS_SCHEMA, AddWriter
from airflow_hive_to_delta.core.parquet.describe import FILES_AT_ONCE
from airflow_hive_to_delta.core.parquet.statistics import TableLeaf, indexed_leaves
from airflow_hive_to_delta.core.spark.errors import spark_call

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from airflow_hive_to_delta.core.options import ConversionOptions
    from airflow_hive_to_delta.core.parquet.describe import DescribedFiles
    from airflow_hive_to_delta.core.schema.merge import TableSchema


def write_actions(entry: IO[bytes], actions: Iterable[Mapping[str, object]]) -> None:
    """Write actions to the entry, one a line."""
    for action in actions:
        entry.write(action_line(action).encode() + b"\n")


def write_adds(
    spark: SparkSession,
    entry: IO[bytes],
    described: DescribedFiles,
    schema: TableSchema,
    partition_columns: Sequence[str],
    configuration: Mapping[str, str],
    options: ConversionOptions,
    *,
    doing: str = "Collecting the add actions",
) -> int | None:
    """Stream the add actions into the entry. Returns the rows, None if not all are known.

    They are made where the files were described: on the executors, those of a few files by the driver.

    :param configuration: the table's properties, which say of what columns there are statistics (rule 32).
    :param doing: what is being done, for the message of an error of Spark.
    :raises PermanentError: a file is there twice (rule 4).
    :raises StaleFileListError: a file is not what was listed.
    :raises TransientError: the list of files changed meanwhile.
    """
    if not described.file_count:
        return 0
    with spark_call(doing):
        leaves = indexed_leaves(schema.schema, list(partition_columns), configuration)
        blocks = _read_blocks(spark, described, schema, leaves, options)
        rows: int | None = 0
        hashes = array("q")
        for block in blocks:
            if block["error"] is not None:
                raise StaleFileListError(block["error"])
            entry.write(block["lines"].encode() + b"\n")
            rows = None if rows is None or block["rows"] is None else rows + block["rows"]
            hashes.frombytes(block["hashes"])
        if len(pa.array(hashes).unique()) != len(hashes):
            described.refuse_duplicates()
        if len(hashes) != described.file_count:
            raise TransientError(
                f"{len(hashes)} add actions were made for {described.file_count} files: the list of files changed "
                "meanwhile"
            )
    return rows


def _read_blocks(
    spark: SparkSession,
    described: DescribedFiles,
    schema: TableSchema,
    leaves: Sequence[TableLeaf],
    options: ConversionOptions,
) -> Iterable[Mapping[str, Any]]:
    """The add actions, as rows of BLOCKS_SCHEMA."""
    if described.adds is not None:
        if described.adds.leaves != leaves:
            raise ValueError(f"The add actions have statistics of {described.adds.leaves}, expected {leaves}")
        return described.adds.read_blocks()
    files, layouts = described.with_statistics(spark, schema, leaves, options)
    writer = AddWriter(leaves, layouts)
    if described.rows is not None:
        return writer.write_rows(described.rows)
    if described.file_count <= FILES_AT_ONCE:
        return _as_dicts(files.mapInArrow(writer, BLOCKS_SCHEMA).collect())
    parts = files.coalesce(-(-described.file_count // FILES_AT_ONCE))
    return _as_dicts(parts.mapInArrow(writer, BLOCKS_SCHEMA).toLocalIterator(prefetchPartitions=True))


def _as_dicts(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    return (row.asDict() for row in rows)
