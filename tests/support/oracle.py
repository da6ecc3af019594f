"""The oracle: a Delta table is right when nothing that is asked of it has another answer than the original.

The original is read by Spark. Rows are compared as they are, in every field. Then the table is filtered by every value
that it holds, nulls and NaN too, so that Delta may skip files: in a query for each row, by all of the row's values
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


def assert_same(spark: SparkSession, original: DataFrame, delta: DataFrame) -> None:
    """Raise an AssertionError that names the filter, if any answer of the Delta table differs from the original's."""
    assert [f.name.lower() for f in delta.schema] == [f.name.lower() for f in original.schema]
    rows = _collect(original)
    assert Counter(map(_shown, _collect(delta))) == Counter(map(_shown, rows))
    assert delta.count() == len(rows), "count(*) is answered from statistics"
    if conditions := _conditions(original.schema, rows):
        _assert_same_filtered(original, delta, conditions)


def delta_at(spark: SparkSession, location: object) -> DataFrame:
    return spark.read.format("delta").load(str(location))


_COMPARE = {"=": operator.eq, ">=": operator.ge, "<=": operator.le}
#: Conditions by what they are called.
Conditions = dict[str, Column]


def _assert_same_filtered(original: DataFrame, delta: DataFrame, rows: list[Conditions]) -> None:
    """Compare the answers to the conditions of every row."""
    fingerprint = F.xxhash64(*[F.col(_quoted(f.name)) for f in original.schema if not _has_map(f.dataType)]) % 1_000_003

    def compute(conditions: list[Column]) -> list[tuple[int, int | None]]:
        """The original's answers, all in one query."""
        sums = [F.count(F.when(c, 1)) for c in conditions] + [F.sum(F.when(c, fingerprint)) for c in conditions]
        answer = original.agg(*[total.alias(f"x{i}") for i, total in enumerate(sums)]).first()
        assert answer is not None
        return [(answer[i], answer[len(conditions) + i]) for i in range(len(conditions))]

    def filter_by(conditions: list[Column]) -> list[tuple[int, int | None]]:
        """The Delta table's answers, each condition as a query of its own, so that Delta may skip files for it."""
        asked = [
            delta.where(condition).agg(
                F.lit(number).alias("number"), F.count("*").alias("rows"), F.sum(fingerprint).alias("print")
            )
            for number, condition in enumerate(conditions)
        ]
        return [(row.rows, row.print) for row in sorted(reduce(DataFrame.unionAll, asked).collect())]

    together = [reduce(Column.__and__, conditions.values()) for conditions in rows]
    for conditions, want, found in zip(rows, compute(together), filter_by(together), strict=True):
        if found != want:
            each = list(conditions.values())
            for name, alone, wanted in zip(conditions, filter_by(each), compute(each), strict=True):
                assert alone == wanted, f"{name}, with data skipping"
        assert found == want, f"{' and '.join(conditions)}, with data skipping"


#: A row: its columns, the leaves of its columns, and those leaves as text that Python shows in another way than Spark.
Row = tuple[list[object], list[object], list[str | None]]


def _collect(data: DataFrame) -> list[Row]:
    leaves = list(_leaves(data.schema, ()))
    columns = [F.col(".".join(map(_quoted, path))) for path, _ in leaves]
    # Not as Python has it: on the way to the JVM a day before 1582 changes its calendar, a decimal its digits.
    as_text = [isinstance(kind, (DateType, TimestampType, TimestampNTZType, DecimalType)) for _, kind in leaves]
    texts = [
        (column.cast("string") if is_text else F.lit(None)).alias(f"text{number}")
        for number, (column, is_text) in enumerate(zip(columns, as_text, strict=True))
    ]
    whole = [F.col(_quoted(field.name)) for field in data.schema]
    ends = len(whole), len(whole) + len(leaves)
    return [
        (list(row[: ends[0]]), list(row[slice(*ends)]), list(row[ends[1] :]))
        for row in data.select(*whole, *columns, *texts).collect()
    ]


def _shown(row: Row) -> tuple[str, ...]:
    columns, _, texts = row
    return tuple(map(_plain, (*columns, *texts)))


def _conditions(schema: StructType, rows: list[Row]) -> list[Conditions]:
    """The conditions that each row meets, one for each of its leaves. The first row meets ranges, too."""
    leaves = [(path, kind, F.col(".".join(map(_quoted, path)))) for path, kind in _leaves(schema, ())]
    different = list({_shown(row): row for row in rows}.values())
    met = [
        dict(_condition(*leaf, value, text, sign) for leaf, value, text in zip(leaves, values, texts, strict=True))
        for number, (_, values, texts) in enumerate(different)
        for sign in (("=", ">=", "<=") if number == 0 else ("=",))
    ]
    return list({tuple(conditions): conditions for conditions in met if conditions}.values())


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
