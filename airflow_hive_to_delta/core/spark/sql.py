"""Spark SQL, spoken safely: quoted names and escaped literals (rule 51), and what ``DESCRIBE`` answers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.errors import PermanentError

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import Row

TABLE_DETAILS = "# Detailed Table Information"
PARTITION_DETAILS = "# Detailed Partition Information"
STORAGE_DETAILS = "# Storage Information"


def sql_identifier(*parts: str) -> str:
    """A name in backticks, whatever it holds."""
    if any("${" in part for part in parts):
        # Spark replaces ${…} in the text of a statement before it parses it, and no quoting keeps it from that.
        raise PermanentError(
            f"The name {'.'.join(parts)!r} holds '${{', which Spark SQL takes for a variable; rename it"
        )
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def sql_literal(text: str) -> str:
    """A string literal that reads as ``text``, whatever it holds."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{escaped}'"


def details(rows: Iterable[Row], header: str = TABLE_DETAILS) -> dict[str, str]:
    """The answer of ``DESCRIBE … EXTENDED`` under a header, up to the next one.

    A column can be called like a header or a detail, but it has a type; a header has none.
    """
    under = islice(dropwhile(lambda row: (row[0], row[1]) != (header, ""), rows), 1, None)
    return {
        row[0]: row[1] or "" for row in takewhile(lambda row: row[1] or not row[0].startswith("# "), under) if row[0]
    }


def error_condition(error: PySparkException) -> str:
    """The name of what went wrong. Spark 3.5, which Databricks still runs, calls it an error class."""
    ask = getattr(error, "getCondition", None) or error.getErrorClass
    return ask() or ""
