"""The oracle: a Delta table is right when nothing that is asked of it has another answer than the original.

The original is read by Spark. Rows are compared as they are. Then every column is filtered by every value it holds,
nulls and NaN too: without data skipping in one query, and with it in a query for each row, by all of the row's values
together. Delta skips a file when any one of several conditions says that it can: so a statistic that would lose the row
to a filter by one of its values loses it here, too.
"""

from __future__ import annotations

import math
import operator
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
    """Raise an AssertionError that names the filter, if any answer of the Delta table differs from the original's."""
    assert [f.name.lower() for f in delta.schema] == [f.name.lower() for f in original.schema]
    rows = _rows(original)
    expected = Counter(plain for plain, _ in rows)
    assert Counter(tuple(map(_plain, row)) for row in delta.collect()) == expected
    assert delta.count() == len(rows), "count(*) is answered from statistics"
    conditions = {tuple(each): each for _, all_of_row in rows for each in all_of_row if each}
    if conditions:
        _assert_same_filtered(spark, original, delta, list(conditions.values()))


def delta_at(spark: SparkSession, location: object) -> DataFrame:
    return spark.read.format("delta").load(str(location))


_COMPARE = {"=": operator.eq, ">=": operator.ge, "<=": operator.le}
#: Conditions by what they are called.
Conditions = dict[str, Column]


def _assert_same_filtered(spark: SparkSession, original: DataFrame, delta: DataFrame, rows: list[Conditions]) -> None:
    """Compare the answers to the conditions of every row."""
    fingerprint = F.xxhash64(*[F.col(_quoted(f.name)) for f in original.schema if not _has_map(f.dataType)]) % 1_000_003
    each = {name: condition for conditions in rows for name, condition in conditions.items()}
    together = [reduce(Column.__and__, conditions.values()) for conditions in rows]

    def compute(data: DataFrame, conditions: list[Column]) -> list[tuple[int, int | None]]:
        """All conditions over all rows in one query: nothing can skip anything."""
        sums = [F.count(F.when(c, 1)) for c in conditions] + [F.sum(F.when(c, fingerprint)) for c in conditions]
        answer = data.agg(*[total.alias(f"x{i}") for i, total in enumerate(sums)]).first()
        assert answer is not None
        return [(answer[i], answer[len(conditions) + i]) for i in range(len(conditions))]

    def filter_by(data: DataFrame, conditions: list[Column]) -> list[tuple[int, int | None]]:
        """Each condition as a query of its own, so that Delta may skip files for it."""
        asked = [
            data.where(condition).agg(
                F.lit(number).alias("number"), F.count("*").alias("rows"), F.sum(fingerprint).alias("print")
            )
            for number, condition in enumerate(conditions)
        ]
        return [(row.rows, row.print) for row in sorted(reduce(DataFrame.unionAll, asked).collect())]

    expected = compute(original, [*each.values(), *together])
    spark.conf.set(SKIPPING, "false")
    try:
        without_skipping = compute(delta, list(each.values()))
    finally:
        spark.conf.unset(SKIPPING)
    for name, want, found in zip(each, expected, without_skipping, strict=False):
        assert found == want, f"{name}, without data skipping"
    wanted = dict(zip(each, expected, strict=False))
    for conditions, want, found in zip(rows, expected[len(each) :], filter_by(delta, together), strict=True):
        if found != want:
            for name, alone in zip(conditions, filter_by(delta, list(conditions.values())), strict=True):
                assert alone == wanted[name], f"{name}, with data skipping"
        assert found == want, f"{' and '.join(conditions)}, with data skipping"


def _rows(original: DataFrame) -> list[tuple[tuple[str, ...], list[Conditions]]]:
    """Every row, and the conditions that it meets: one for each of its columns, and of the fields of its structs.

    The first row meets ranges, too.
    """
    leaves = list(_leaves(original.schema, ()))
    columns = [F.col(".".join(map(_quoted, path))) for path, _ in leaves]
    # Not as Python has it: on the way to the JVM a day before 1582 changes its calendar, a decimal its digits.
    as_text = [isinstance(kind, (DateType, TimestampType, TimestampNTZType, DecimalType)) for _, kind in leaves]
    texts = [
        (column.cast("string") if is_text else F.lit(None)).alias(f"text{number}")
        for number, (column, is_text) in enumerate(zip(columns, as_text, strict=True))
    ]
    whole = [F.col(_quoted(field.name)) for field in original.schema]
    found = []
    for number, row in enumerate(original.select(*whole, *columns, *texts).collect()):
        values = list(zip(leaves, columns, row[len(whole) :], row[len(whole) + len(leaves) :], strict=False))
        signs = ("=", ">=", "<=") if number == 0 else ("=",)
        met = [
            dict(_condition(*leaf, column, value, text, sign) for leaf, column, value, text in values) for sign in signs
        ]
        found.append((tuple(map(_plain, row[: len(whole)])), met))
    return found


def _condition(
    path: tuple[str, ...], kind: DataType, column: Column, value: object, text: str | None, sign: str
) -> tuple[str, Column]:
    """A condition that a value meets, with its name."""
    if value is None:
        return f"{path} is null", column.isNull()
    if isinstance(kind, (ArrayType, MapType)):
        return f"{path} is not null", column.isNotNull()
    if isinstance(value, float) and math.isnan(value):
        return f"isnan({path})", F.isnan(column)
    shown = text if text is not None else bytes(value) if isinstance(value, bytearray) else value
    return f"{path} {sign} {shown!r}", _COMPARE[sign](column, F.lit(shown).cast(kind))


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
