"""The oracle: a Delta table is right when it cannot be told from the original, whatever is asked of it.

The original is read by Spark. Rows are compared as they are, then every column is filtered by every value it holds,
nulls and NaN too, through Delta with data skipping on and off.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

SKIPPING = "spark.databricks.delta.stats.skipping"


def assert_same(spark: SparkSession, original: DataFrame, delta: DataFrame) -> None:
    assert [f.name.lower() for f in delta.schema] == [f.name.lower() for f in original.schema]
    expected = [tuple(map(_plain, row)) for row in original.collect()]
    found = [tuple(map(_plain, row)) for row in delta.collect()]
    assert Counter(found) == Counter(expected)
    assert delta.count() == len(expected), "count(*) is answered from statistics"
    _assert_same_filtered(spark, original, delta)


def delta_at(spark: SparkSession, location: object) -> DataFrame:
    return spark.read.format("delta").load(str(location))


def _assert_same_filtered(spark: SparkSession, original: DataFrame, delta: DataFrame) -> None:
    filters = list(_filters(original))
    if not filters:
        return
    fingerprint = F.xxhash64(*[F.col(_quoted(f.name)) for f in original.schema if not _has_map(f.dataType)]) % 1_000_003

    def filtered(data: DataFrame) -> list[tuple[int, int | None]]:
        """Each filter as a query of its own, so that Delta may skip files for it."""
        asked = [
            data.where(condition).agg(
                F.lit(number).alias("number"), F.count("*").alias("rows"), F.sum(fingerprint).alias("print")
            )
            for number, (_, condition) in enumerate(filters)
        ]
        return [(row.rows, row.print) for row in sorted(reduce(DataFrame.unionAll, asked).collect())]

    def computed(data: DataFrame) -> list[tuple[int, int | None]]:
        """All filters over all rows in one query: nothing can skip anything."""
        sums = [F.count(F.when(c, 1)) for _, c in filters] + [F.sum(F.when(c, fingerprint)) for _, c in filters]
        answer = data.agg(*[total.alias(f"x{i}") for i, total in enumerate(sums)]).first()
        assert answer is not None
        return [(answer[i], answer[len(filters) + i]) for i in range(len(filters))]

    expected = computed(original)
    spark.conf.set(SKIPPING, "false")
    try:
        without_skipping = computed(delta)
    finally:
        spark.conf.unset(SKIPPING)
    for (name, _), want, plain, skipped in zip(filters, expected, without_skipping, filtered(delta), strict=True):
        assert plain == want, f"{name}, without data skipping"
        assert skipped == want, f"{name}, with data skipping"


def _filters(original: DataFrame) -> Iterator[tuple[str, Column]]:
    for path, kind in _leaves(original.schema, ()):
        column = F.col(".".join(map(_quoted, path)))
        yield f"{path} is null", column.isNull()
        yield f"{path} is not null", column.isNotNull()
        if isinstance(kind, (ArrayType, MapType)):
            continue
        ranged = False
        as_text = isinstance(kind, (DateType, TimestampType, TimestampNTZType, DecimalType))
        text = column.cast("string") if as_text else F.lit(None)
        for value, shown in original.select(column, text).distinct().collect():
            if value is None:
                continue
            if isinstance(value, float) and math.isnan(value):
                yield f"isnan({path})", F.isnan(column)
                continue
            # Not as Python has it: on the way to the JVM a day before 1582 changes its calendar, a decimal its digits.
            literal = F.lit(shown if as_text else bytes(value) if isinstance(value, bytearray) else value).cast(kind)
            yield f"{path} = {value!r}", column == literal
            if not ranged and not isinstance(value, bool):
                yield f"{path} > {value!r}", column > literal
                yield f"{path} <= {value!r}", column <= literal
                ranged = True


def _leaves(schema: StructType, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], DataType]]:
    for field in schema:
        path = (*above, field.name)
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, path)
        else:
            yield path, field.dataType


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and _has_map(kind.elementType))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return repr(sorted((_plain(k), _plain(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return repr([_plain(v) for v in value])
    return repr(value)
