"""The readers of Delta that fail on some tables, for plans and for the notes of results.

The tests of the readers try each of them, compare the outcome with this module, and write ``docs/readers.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

SPARK_4 = "Spark 4"
SPARK_35 = "Spark 3.5"
TRINO = "Trino"
KERNEL = "Delta kernel"
DUCKDB = "DuckDB"
QUERY_BUILDER = "deltalake's QueryBuilder"
PYARROW = "PyArrow through deltalake"
POLARS = "Polars"
READERS = (SPARK_4, SPARK_35, TRINO, KERNEL, DUCKDB, QUERY_BUILDER, PYARROW, POLARS)

#: A trait of a table that some readers fail on.
Trait = Literal[
    "outside",
    "outside on S3",
    "escaped on S3",
    "typeWidening",
    "narrower files",
    "columnMapping",
    "timestampNtz",
    "filters without bounds",
    "negative decimal partitions",
]
#: The tested readers that refuse a table with the trait, or read wrong rows from it.
FAILING: dict[Trait, tuple[str, ...]] = {
    "outside": (DUCKDB, PYARROW, POLARS),
    "outside on S3": (DUCKDB, QUERY_BUILDER, PYARROW, POLARS),
    "escaped on S3": (POLARS,),
    "typeWidening": (SPARK_35, TRINO, QUERY_BUILDER, PYARROW, POLARS),
    "narrower files": (SPARK_35, TRINO, POLARS),
    "columnMapping": (POLARS,),
    "timestampNtz": (),
    "filters without bounds": (PYARROW,),
    "negative decimal partitions": (PYARROW,),
}


@dataclass(frozen=True)
class TableTraits:
    """The traits of a table that readers can fail on."""

    #: Whether the table lies on S3.
    on_s3: bool = False
    #: Whether files lie outside the table's location.
    outside: bool = False
    #: Whether a path under the location has characters that a URI escapes.
    escaped: bool = False
    #: Table features of its log, in addition to the default protocol.
    features: Sequence[str] = ()
    #: Whether files are narrower than the table.
    narrower_files: bool = False
    #: Columns without bounds in the statistics of a table that has some.
    without_bounds: Sequence[str] = ()
    #: Partition columns of a decimal type.
    decimal_partitions: Sequence[str] = ()


def failing(trait: Trait) -> str:
    """The names of the readers that fail on a trait, for a message."""
    return join_names(FAILING[trait])


def reading(trait: Trait) -> str:
    """The names of the readers that read a table with a trait rightly, for a message."""
    return join_names(reader for reader in READERS if reader not in FAILING[trait])


def join_names(names: Iterable[str]) -> str:
    """Names as a message lists them: ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def unreadable_by(table: TableTraits) -> list[str]:
    """A text for each trait of a table that some readers fail on, with their names (rules 10, 11, 18 and 29)."""
    found = []
    if table.outside:
        readers = failing("outside on S3" if table.on_s3 else "outside")
        where = ", deltalake's QueryBuilder only where they are in another bucket" if table.on_s3 else ""
        found.append(f"{readers}: files outside the table's location have absolute paths in the log{where}")
    if table.escaped and table.on_s3:
        found.append(f"{failing('escaped on S3')}: paths with a space or another escaped character on S3")
    if "typeWidening" in table.features:
        found.append(
            f"{failing('typeWidening')}: the feature typeWidening, for files narrower than the table; Trino leaves the "
            "widened columns out"
        )
    elif table.narrower_files:
        found.append(
            f"{failing('narrower files')}: files narrower than the table, without the feature typeWidening; Trino "
            "loses rows to filters on decimals"
        )
    if "timestampNtz" in table.features:
        found.append("Delta Lake before 2.4, and other readers without the feature timestampNtz")
    if "columnMapping" in table.features:
        found.append(f"{failing('columnMapping')}, Delta Lake before 1.2, and others without the feature columnMapping")
    if table.without_bounds:
        found.append(
            f"{failing('filters without bounds')} (to_pyarrow_table, to_pyarrow_dataset, to_pandas): loses rows to "
            f"filters on columns without bounds in the statistics: {', '.join(table.without_bounds)}"
        )
    if table.decimal_partitions:
        found.append(
            f"{failing('negative decimal partitions')}: negative values of {', '.join(table.decimal_partitions)}"
        )
    return found


def outside_note(count: int, of: int, *, on_s3: bool) -> str:
    """The note of a result about files outside the table's location."""
    trait: Trait = "outside on S3" if on_s3 else "outside"
    return (
        f"{count} of {of} files lie outside the table's location, so the log has absolute paths: {reading(trait)} read "
        f"them, {failing(trait)} do not"
    )
