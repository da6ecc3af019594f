"""Checksums of rows that do not depend on their order: one for every column, and one for whole rows.

Two tables whose checksums agree hold the same rows, wherever their files lie and however they are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

#: What the checksum of whole rows is called. Without it two values of a column could have changed places in a group.
WHOLE_ROWS = "whole rows"


def compute_checksums(data: DataFrame, group: Column, columns: Sequence[str]) -> DataFrame:
    """For each ``group`` its ``rows``, and the sums ``sum_0`` … of every column, in order, and of whole rows last.

    One aggregation: of the rows themselves nothing is shuffled.

    :param columns: names as the DataFrame has them.
    """
    from pyspark.sql import functions as F  # noqa: N812

    types = {field.name: field.dataType for field in data.schema}
    hashes = [_hash(F.col(_quoted(name)), types[name]).alias(f"hash_{n}") for n, name in enumerate(columns)]
    hashed = data.select(group.alias("group"), *hashes)
    each = [F.col(f"hash_{number}") for number in range(len(columns))]
    # A hash has up to 19 digits, so a sum with 30 of them has room for a hundred billion rows of one value.
    sums = [F.sum(value.cast("decimal(20,0)")) for value in (*each, F.xxhash64(*each))]
    return _grouped(hashed, F.count(F.lit(1)), sums)


def add_up_checksums(parts: DataFrame) -> DataFrame:
    """Add up the checksums of parts of a group, as of its files, to those that :func:`compute_checksums` has of it.

    :param parts: a DataFrame as :func:`compute_checksums` returns it, with several rows for a group.
    """
    from pyspark.sql import functions as F  # noqa: N812

    names = [name for name in parts.columns if name.startswith("sum_")]
    return _grouped(parts, F.sum("rows"), [F.sum(name) for name in names])


def _grouped(data: DataFrame, rows: Column, sums: Sequence[Column]) -> DataFrame:
    totals = [total.cast("decimal(38,0)").alias(f"sum_{number}") for number, total in enumerate(sums)]
    return data.groupBy("group").agg(rows.alias("rows"), *totals)


def _hash(value: Column, kind: DataType) -> Column:
    """A hash that is never null, and tells nulls apart wherever they are.

    Spark's own passes over a null: to it ``{1, null}`` and ``{null, 1}`` are equal, and so are null and ``[]``. Nor
    does it take maps, whose entries have no order.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import ArrayType, MapType, StructType

    absent = value.isNull()
    if isinstance(kind, StructType):
        fields = [_hash(value.getField(field.name), field.dataType) for field in kind]
        return F.xxhash64(absent, *fields)
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.xxhash64(absent, F.size(value), F.transform(value, lambda each: _hash(each, element)))
    if isinstance(kind, MapType):
        key, held = kind.keyType, kind.valueType
        entries = F.transform(
            F.map_entries(value),
            lambda entry: F.xxhash64(_hash(entry.getField("key"), key), _hash(entry.getField("value"), held)),
        )
        return F.xxhash64(absent, F.size(value), F.array_sort(entries))
    return F.xxhash64(absent, value)


def unite(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all DataFrames, which have the same columns, in one."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
