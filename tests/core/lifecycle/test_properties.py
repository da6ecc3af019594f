"""What holds for every table, whatever its schema, values and layout: hypothesis makes them, Spark judges.

``HYPOTHESIS_PROFILE=long`` searches for hours where the suite searches for seconds, from a fresh seed each time.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_hive_to_delta import ConversionOptions
from airflow_hive_to_delta.core.errors import PartitionError
from airflow_hive_to_delta.core.parquet.footers import count_rows, leaf_statistics, parse_footer
from airflow_hive_to_delta.core.schema.partition_values import HIVE_NULL, normalise
from tests.support.oracle import assert_same, delta_at
from tests.support.property_settings import examples
from tests.support.session_settings import session_conf
from tests.support.tables import convert_folder, hive_escape

# Values. Each type has its edges, and what lies between them.

EXACT = Context(prec=50)
CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXT = st.one_of(
    st.text(CHARACTERS, max_size=5),
    st.text(st.sampled_from("ab\x7fÿ\U0001f600\U0010ffff"), max_size=40),
    st.builds(lambda start, end: "x" * start + end, st.integers(28, 36), st.text(CHARACTERS, max_size=3)),
)
DAYS = st.one_of(
    st.sampled_from([dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(9999, 12, 31)]), st.dates()
)
MOMENTS = st.one_of(
    st.sampled_from(
        [
            dt.datetime(1, 1, 2),
            dt.datetime(1582, 10, 14, 23, 59, 59, 999_999),
            dt.datetime(1899, 12, 31, 23, 59, 59, 999_999),
            dt.datetime(1900, 1, 1),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
            dt.datetime(2024, 3, 10, 2, 30, 0, 1),
            dt.datetime(9999, 12, 30, 23, 59, 59, 999_999),
        ]
    ),
    st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)),
)


def whole_numbers(bits: int) -> st.SearchStrategy[int]:
    lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1
    return st.one_of(st.sampled_from([lowest, -1, 0, 1, highest]), st.integers(lowest, highest))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    unscaled = st.one_of(st.sampled_from([-most, -1, 0, 1, most]), st.integers(-most, most))
    return unscaled.map(lambda number: EXACT.scaleb(Decimal(number), -scale))


def floats(width: Literal[32, 64]) -> st.SearchStrategy[float]:
    edges = [math.nan, math.inf, -math.inf, -0.0, 0.0]
    return st.one_of(st.sampled_from(edges), st.floats(width=width, allow_subnormal=True))


@dataclass(frozen=True)
class Kind:
    """A type, as Spark SQL and as Arrow have it, with its values."""

    sql: str
    arrow: pa.DataType
    values: st.SearchStrategy[Any] = field(repr=False)
    #: A narrower Arrow type that some files may have instead, and whether a value fits into it.
    narrow: tuple[pa.DataType, Callable[[Any], bool]] | None = field(default=None, repr=False)


def decimal_kind(digits: tuple[int, int]) -> Kind:
    precision, scale = digits
    return Kind(f"decimal({precision},{scale})", pa.decimal128(precision, scale), decimals(precision, scale))


LONG_KIND = Kind(
    "bigint",
    pa.int64(),
    st.one_of(whole_numbers(64), whole_numbers(16)),
    (pa.int32(), lambda v: -(2**31) <= v < 2**31),
)
SIMPLE = [
    Kind("boolean", pa.bool_(), st.booleans()),
    Kind("tinyint", pa.int8(), whole_numbers(8)),
    Kind("smallint", pa.int16(), whole_numbers(16)),
    Kind("int", pa.int32(), whole_numbers(32), (pa.int16(), lambda v: -(2**15) <= v < 2**15)),
    LONG_KIND,
    Kind("float", pa.float32(), floats(32)),
    Kind("double", pa.float64(), floats(64)),
    Kind("string", pa.string(), TEXT),
    Kind("string", pa.large_string(), TEXT),
    Kind("binary", pa.binary(), st.binary(max_size=40)),
    Kind("date", pa.date32(), DAYS),
    Kind("timestamp", pa.timestamp("us", tz="UTC"), MOMENTS),
    Kind("timestamp", pa.timestamp("ms", tz="UTC"), MOMENTS.map(lambda m: m.replace(microsecond=0))),
    Kind("timestamp_ntz", pa.timestamp("us"), MOMENTS),
]
DIGITS = [(1, 0), (9, 2), (10, 10), (18, 0), (18, 6), (19, 4), (38, 0), (38, 18), (38, 37)]
LEAF_KINDS = st.sampled_from([*SIMPLE, *map(decimal_kind, DIGITS)])

# Names that need backticks, column mapping, or care.
NAMES = [
    "id",
    "CamelCase",
    "a.b",
    "sp ace",
    "back`tick",
    "c,d;e",
    "é😀",
    "_metadata",
    "key",
    "path",
    "{x}=(y)",
    "1",
    "%41",
]


def struct_kind(kinds: Sequence[Kind]) -> Kind:
    names = NAMES[: len(kinds)]
    return Kind(
        f"struct<{', '.join(f'{quoted(n)}: {k.sql}' for n, k in zip(names, kinds, strict=True))}>",
        pa.struct([(n, k.arrow) for n, k in zip(names, kinds, strict=True)]),
        st.fixed_dictionaries({n: st.none() | k.values for n, k in zip(names, kinds, strict=True)}),
    )


def list_kind(kind: Kind) -> Kind:
    return Kind(f"array<{kind.sql}>", pa.list_(kind.arrow), st.lists(st.none() | kind.values, max_size=2))


def map_kind(kind: Kind) -> Kind:
    pairs = st.dictionaries(st.sampled_from(["k", "l"]), st.none() | kind.values, max_size=2)
    return Kind(f"map<string, {kind.sql}>", pa.map_(pa.string(), kind.arrow), pairs.map(lambda d: list(d.items())))


NESTED_KINDS = st.recursive(
    LEAF_KINDS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=2).map(struct_kind), inner.map(list_kind), inner.map(map_kind)
    ),
    max_leaves=3,
)
SOMETIMES = st.sampled_from([False, False, True, False])


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


WRITER_OPTIONS = st.fixed_dictionaries(
    {
        "row_group_size": st.sampled_from([1, 2, 100]),
        "use_dictionary": st.booleans(),
        "write_statistics": st.sampled_from([True, True, True, False]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "version": st.sampled_from(["1.0", "2.4", "2.6"]),
        "store_decimal_as_integer": st.booleans(),
        "store_schema": st.booleans(),
        "use_compliant_nested_type": st.booleans(),
        "coerce_timestamps": st.sampled_from([None, "ms", "us"]),
        "allow_truncated_timestamps": st.just(True),
        "write_page_index": st.booleans(),
    }
)


# One table and how it lies on the storage.


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind


@dataclass
class DataFile:
    #: From the partition's folder.
    path: str
    columns: list[Column]
    rows: list[dict[str, Any]]
    #: Names of the columns that this file has in a narrower type.
    narrow: set[str]
    writer: dict[str, Any]
    by_spark: bool

    def table(self) -> pa.Table:
        arrays = [pa.array([row[c.name] for row in self.rows], self._type(c)) for c in self.columns]
        return pa.Table.from_arrays(arrays, [c.name for c in self.columns])

    def _type(self, column: Column) -> pa.DataType:
        if column.name not in self.narrow or column.kind.narrow is None:
            return column.kind.arrow
        narrow, fits = column.kind.narrow
        return (
            narrow
            if all(row[column.name] is None or fits(row[column.name]) for row in self.rows)
            else column.kind.arrow
        )


@dataclass
class Partition:
    values: dict[str, str]
    outside: bool
    files: list[DataFile]

    @property
    def folder(self) -> str:
        return "".join(f"{key}={hive_escape(value)}/" for key, value in self.values.items())


@dataclass
class MadeTable:
    columns: list[Column]
    partition_types: dict[str, str]
    partitions: list[Partition]
    stats: str
    batch_size: int


PARTITION_VALUES: dict[str, st.SearchStrategy[str]] = {
    "string": st.one_of(
        st.sampled_from(["a/b c%d=e", "{[*?]}", "null", " ", "%2F", "x:y#z?q", "é😀", "..", "01"]),
        st.text(CHARACTERS, min_size=1, max_size=10),
    ),
    "int": whole_numbers(32).map(str) | st.just("007"),
    "bigint": whole_numbers(64).map(str),
    "boolean": st.sampled_from(["true", "false", "TRUE"]),
    "date": DAYS.map(str),
    "decimal(10,2)": decimals(10, 2).map(lambda value: f"{value:f}"),
    "double": st.sampled_from(["0.1", "-1.5E10", "NaN", "Infinity", "-0.0", "1e-300"]),
    "timestamp": MOMENTS.map(str),
}


@st.composite
def data_files(draw: st.DrawFn, columns: list[Column], pools: dict[str, list[Any]], path: str, whole: bool) -> DataFile:
    present = columns if whole else draw(st.lists(st.sampled_from(columns), min_size=len(columns) - 2, unique=True))
    row = st.fixed_dictionaries({c.name: st.sampled_from(pools[c.name]) for c in present})
    writer = draw(WRITER_OPTIONS)
    if not any("timestamp_ntz" in c.kind.sql for c in columns) and draw(SOMETIMES):
        writer |= {"use_deprecated_int96_timestamps": True, "coerce_timestamps": None}
    return DataFile(
        path=path,
        columns=present,
        rows=[] if draw(SOMETIMES) and draw(SOMETIMES) else draw(st.lists(row, min_size=2, max_size=5)),
        narrow=draw(st.sets(st.sampled_from([c.name for c in present]))),
        writer=writer,
        by_spark=draw(SOMETIMES),
    )


@st.composite
def tables(draw: st.DrawFn) -> MadeTable:
    simple = draw(st.permutations([*SIMPLE, *map(decimal_kind, DIGITS)]))[:6]
    kinds = [*simple, *draw(st.lists(NESTED_KINDS, max_size=1))]
    columns = [Column(name, kind) for name, kind in zip(draw(st.permutations(NAMES)), kinds, strict=False)]
    # Few values per column, for each is a filter of the oracle.
    pools = {c.name: [*draw(st.lists(c.kind.values, min_size=1, max_size=3)), None] for c in columns}
    keys = draw(st.sampled_from([["p"], ["p", "Q"], []]))
    types = {key: draw(st.sampled_from(sorted(PARTITION_VALUES))) for key in keys}
    partition = st.fixed_dictionaries({key: PARTITION_VALUES[kind] | st.just(HIVE_NULL) for key, kind in types.items()})
    several = st.lists(partition, min_size=2, max_size=3, unique_by=lambda values: tuple(values.values()))
    found: list[dict[str, str]] = draw(several) if types else [{}]
    partitions = []
    for number, values in enumerate(found):
        files = []
        for index in range(draw(st.sampled_from([1, 2] if types else [2, 4]))):
            name = draw(
                st.sampled_from([f"{index:06d}_0", f"part {index}%20é.parquet", f"SUB_{index}/x{{{index}}}.parquet"])
            )
            files.append(draw(data_files(columns, pools, name, whole=number == index == 0)))
        partitions.append(Partition(values, bool(types) and draw(st.booleans()), files))
    return MadeTable(
        columns, types, partitions, draw(st.sampled_from(["footer", "footer", "scan", "none"])), draw(st.integers(1, 3))
    )


def write(spark: SparkSession, table: MadeTable, root: Path, elsewhere: Path) -> DataFrame:
    """Lay the table out, with what is no data beside it, and read the original by its files."""
    schema = ", ".join(f"{quoted(c.name)} {c.kind.sql}" for c in table.columns)
    read = []
    for partition in table.partitions:
        folder = (elsewhere if partition.outside else root) / partition.folder
        paths = []
        for file in partition.files:
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(file.table(), path, **file.writer)
            if file.by_spark:
                _rewrite(spark, path)
            paths.append(str(path))
        for hidden in ("_SUCCESS", "_temporary/0/f.parquet", ".hive-staging_1/000000_0"):
            (folder / hidden).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(paths[0], folder / hidden)
        (folder / "empty").touch()
        files = spark.read.schema(schema).option("__globPaths__", "false").option("recursiveFileLookup", "true")
        values = [
            F.lit(None if partition.values[name] == HIVE_NULL else partition.values[name]).cast(kind).alias(name)
            for name, kind in table.partition_types.items()
        ]
        read.append(files.parquet(*paths).select("*", *values))
    return reduce(DataFrame.unionAll, read)


def _rewrite(spark: SparkSession, path: Path) -> None:
    """Write the rows of a file again, by Spark's own writer."""
    with tempfile.TemporaryDirectory() as folder:
        spark.read.option("__globPaths__", "false").option("recursiveFileLookup", "true").parquet(str(path)).coalesce(
            1
        ).write.parquet(f"{folder}/t")
        (written,) = Path(folder, "t").glob("*.parquet")
        shutil.copy(written, path)


@pytest.mark.slow
@given(tables())
@examples(usual=3, long=150)
def test_a_converted_table_cannot_be_told_from_the_original(spark, table):
    with tempfile.TemporaryDirectory() as folder:
        root, elsewhere = Path(folder, "t"), Path(folder, "t_elsewhere")
        root.mkdir()
        elsewhere.mkdir()
        original = write(spark, table, root, elsewhere)
        # A narrower file is widened by its footer; Spark's own schema merge refuses it.
        widened = {
            c.name
            for c in table.columns
            for p in table.partitions
            for f in p.files
            if c in f.columns and f._type(c) != c.kind.arrow
        }
        stats = "footer" if table.stats == "scan" and widened else table.stats
        options = ConversionOptions(stats=stats, stats_batch_size=table.batch_size, schema_batch_size=table.batch_size)
        result = convert_folder(spark, root, elsewhere, partition_columns=table.partition_types, options=options)
        note(str(result))
        assert result.file_count == sum(len(p.files) for p in table.partitions)
        delta = delta_at(spark, root).select([F.col(quoted(name)) for name in original.columns])
        assert_same(spark, original, delta)


# Statistics, without Spark: every value must lie within the bounds, as readers compare it.


@st.composite
def columns_with_values(draw: st.DrawFn) -> tuple[list[Column], list[dict[str, Any]]]:
    kinds = draw(
        st.lists(
            st.one_of(LEAF_KINDS, LEAF_KINDS, st.lists(LEAF_KINDS, min_size=1, max_size=3).map(struct_kind)),
            min_size=1,
            max_size=6,
        )
    )
    columns = [Column(f"c{number}", kind) for number, kind in enumerate(kinds)]
    row = st.fixed_dictionaries({c.name: st.none() | c.kind.values for c in columns})
    return columns, draw(st.lists(row, min_size=1, max_size=12))


@pytest.mark.slow
@given(columns_with_values(), WRITER_OPTIONS)
@examples(usual=300, long=20_000)
def test_rules_31_to_37_the_bounds_of_a_footer_hold_every_value(made, writer):
    columns, rows = made
    written = io.BytesIO()
    table = DataFile("", columns, rows, set(), writer, by_spark=False).table()
    pq.write_table(table, written, **writer)
    tail = written.getvalue()
    _, layout, footer = parse_footer(tail, "f")
    assert count_rows(footer, "f") == len(rows)
    statistics = leaf_statistics(footer, layout)
    values = list(_leaf_values(pq.read_table(io.BytesIO(tail), coerce_int96_timestamp_unit="us")))
    for leaf, found, (kind, held) in zip(layout.leaves, statistics, values, strict=True):
        assert leaf is not None
        assert found is not None
        low, high, nulls = found
        present = [value for value in held if value is not None]
        if writer["write_statistics"]:
            assert nulls == len(held) - len(present)
            assert (low is not None and high is not None) == (bool(present) and _has_bounds(kind, present))
        else:
            assert found == (None, None, None)
        if low is not None and high is not None:
            _assert_within(kind, json.loads(low, parse_float=Decimal), json.loads(high, parse_float=Decimal), present)


def _leaf_values(table: pa.Table) -> Iterator[tuple[pa.DataType, list[Any]]]:
    for column in table.flatten().columns if _has_struct(table) else table.columns:
        yield column.type, column.to_pylist()


def _has_struct(table: pa.Table) -> bool:
    return any(pa.types.is_struct(field.type) for field in table.schema)


def _has_bounds(kind: pa.DataType, present: Sequence[Any]) -> bool:
    if pa.types.is_boolean(kind) or pa.types.is_binary(kind) or pa.types.is_floating(kind):
        return False
    if pa.types.is_date(kind):
        return min(present) >= dt.date(1582, 10, 15)
    if pa.types.is_timestamp(kind):
        first = dt.datetime(1582, 10, 15) if kind.tz is None else dt.datetime(1900, 1, 1)
        return min(value.replace(tzinfo=None) for value in present) >= first
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        highest = max(present, key=str.encode)
        return not any(highest[cut : cut + 1] == "\U0010ffff" for cut in [_cut(highest)] if cut < len(highest))
    return True


def _cut(text: str) -> int:
    return len(text.encode("utf-16-le")[:64].decode("utf-16-le", errors="ignore"))


def _assert_within(kind: pa.DataType, low: Any, high: Any, present: Sequence[Any]) -> None:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        assert low.encode() <= min(value.encode() for value in present)
        assert high.encode() >= max(value.encode() for value in present)
        assert len(low.encode("utf-16-le")) <= 64
    elif pa.types.is_timestamp(kind):
        assert low.endswith("Z") == high.endswith("Z") == (kind.tz is not None)
        moments = [value.replace(tzinfo=None) for value in present]
        assert dt.datetime.fromisoformat(low.rstrip("Z")) <= min(moments)
        assert dt.datetime.fromisoformat(high.rstrip("Z")) + dt.timedelta(milliseconds=1) > max(moments)
    elif pa.types.is_date(kind):
        assert (low, high) == (min(present).isoformat(), max(present).isoformat())
    else:
        assert (low, high) == (min(present), max(present))


# Partition values: what is stored is what Spark makes of the raw text, or the text is refused.

ODD_TEXT = st.text(st.sampled_from("0123456789-+:. TZeEdfxUCGM_\u00a0\u0661\t\x00\x7fнaéNnIi/"), max_size=20)
NUMBERS = st.from_regex(r"\s?[+-]?[0-9_]{0,12}(\.[0-9]{0,10})?([eE][+-]?[0-9]{1,3})?[dfDF]?\s?", fullmatch=True)
CLOCKS = st.from_regex(
    r"\s?[+-]?[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([ T][0-9]{1,2}(:[0-9]{1,2}(:[0-9]{1,2}(\.[0-9]{0,9})?)?)?)?"
    r"\s?(Z|UTC|GMT|[+-][0-9]{1,2}:?[0-9]{0,2})?\s?",
    fullmatch=True,
)
RAW_VALUES = {
    "boolean": st.sampled_from(["true", "T", "yes", " y ", "1", "0", "FALSE", "no", "on", "2"]) | ODD_TEXT,
    **dict.fromkeys(["byte", "short", "integer", "long"], NUMBERS | ODD_TEXT | whole_numbers(64).map(str)),
    **dict.fromkeys(
        ["float", "double"],
        NUMBERS
        | ODD_TEXT
        | st.sampled_from(["inf", "+Infinity", "-INF", "nan", "-nan", "+NaN"])
        | floats(64).map(repr),
    ),
    **dict.fromkeys(["decimal(10,2)", "decimal(38,18)", "decimal(5,0)"], NUMBERS | ODD_TEXT | decimals(10, 2).map(str)),
    "date": CLOCKS | ODD_TEXT | DAYS.map(str),
    **dict.fromkeys(["timestamp", "timestamp_ntz"], CLOCKS | ODD_TEXT | MOMENTS.map(str)),
    "string": ODD_TEXT | st.text(CHARACTERS),
    "binary": ODD_TEXT | st.text(CHARACTERS),
}
SQL_TYPES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


@pytest.mark.slow
def test_rules_20_and_21_a_partition_value_is_what_spark_casts_it_to_or_refused(spark):
    accepted: set[tuple[str, str, str]] = set()

    def collect(zone: str) -> None:
        @given(st.sampled_from(sorted(RAW_VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), RAW_VALUES[kind])))
        @examples(usual=1_500, long=30_000)
        def gather(made: tuple[str, str]) -> None:
            kind, raw = made
            try:
                stored = normalise({"p": raw}, {"p": kind}, zone, "f")["p"]
            except PartitionError:
                return
            if stored is not None:
                accepted.add((kind, raw, stored))

        gather()

    for zone in ["America/New_York", "Asia/Tokyo"]:
        accepted.clear()
        collect(zone)
        assert {kind for kind, _, _ in accepted} == RAW_VALUES.keys()
        with session_conf(spark, spark__sql__session__timeZone=zone):
            otherwise = _cast_otherwise(spark, accepted)
        assert not otherwise, f"(type, raw, stored, cast) in {zone}: {otherwise}"


def _cast_otherwise(spark: SparkSession, accepted: set[tuple[str, str, str]]) -> list[tuple[str, ...]]:
    """The values that Spark casts to something else than what is stored of them, in the session's zone."""
    data = spark.createDataFrame(sorted(accepted), "kind string, raw string, stored string")
    otherwise = []
    for kind in RAW_VALUES:
        sql = SQL_TYPES.get(kind, kind)
        same = f"try_cast(raw AS {sql}) <=> try_cast(stored AS {sql}) AND try_cast(stored AS {sql}) IS NOT NULL"
        cast = data.where(F.col("kind") == kind).where(f"NOT ({same})")
        otherwise.append(cast.selectExpr("kind", "raw", "stored", f"CAST(try_cast(raw AS {sql}) AS STRING) AS cast"))
    return [tuple(row) for row in reduce(DataFrame.unionAll, otherwise).collect()]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ("1_000", "integer"),
        ("1_000", "double"),
        ("1_000", "decimal(10,2)"),
        ("\u0661", "integer"),
        ("\u0661.5", "double"),
        ("202\u0664-01-01", "date"),
        ("\u00a07", "long"),
        ("-nan", "double"),
        ("2024-01-01 00:00:00+01:75", "timestamp"),
        ("2024-01-01 00:00:00+19:00", "timestamp"),
        ("2024-01-01Z", "timestamp"),
    ],
)
def test_rule_20_what_python_reads_and_spark_does_not_is_refused(raw, kind):
    with pytest.raises(PartitionError, match="is not of its type"):
        normalise({"p": raw}, {"p": kind}, "UTC", "f")
