"""DataFrames of rows that the driver holds: local relations, to select from which Spark runs no job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.spark.versions import df_from_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: A frame of more rows than this is not collected.
MOST_ROWS = 5_000


def local_frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: str) -> DataFrame:
    """A DataFrame of a few rows.

    :param schema: in DDL. A column that a row does not have is null in it; a map is a dict.
    """
    # PySpark accepts no Arrow table without a chunk.
    table = arrow_table(rows or [{}], schema)
    frame = df_from_arrow(spark, table, schema)
    return frame if rows else frame.where("false")


def arrow_table(rows: Sequence[Mapping[str, Any]], schema: str) -> pa.Table:
    """Rows as an Arrow table, as :func:`local_frame` takes them."""
    fields = arrow_schema(schema)
    columns = [pa.array([_as_arrow(row.get(field.name), field.type) for row in rows], field.type) for field in fields]
    return pa.table(columns, schema=fields)


def collect_small(frame: DataFrame) -> list[dict[str, Any]] | None:
    """The rows of a DataFrame, maps and structs as dicts; None when there are more than MOST_ROWS."""
    rows = frame.limit(MOST_ROWS + 1).collect()
    return [row.asDict(recursive=True) for row in rows] if len(rows) <= MOST_ROWS else None


def _as_arrow(value: Any, kind: pa.DataType) -> Any:
    """A value in the form in which every pyarrow takes it: a map as a list of pairs."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        return [(name, _as_arrow(item, kind.item_type)) for name, item in value.items()]
    if pa.types.is_struct(kind):
        return {field.name: _as_arrow(value.get(field.name), field.type) for field in kind}
    return [_as_arrow(item, kind.value_type) for item in value]
