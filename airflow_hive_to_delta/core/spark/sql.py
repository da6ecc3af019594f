"""Quoting names and literals for Spark SQL (rule 51), and parsing the answers of ``DESCRIBE``."""

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
#: Conditions under the names that Delta Lake 3.3 has for them.
_EARLIER_CONDITIONS = {"_LEGACY_ERROR_TEMP_DELTA_0007": "DELTA_METADATA_MISMATCH"}


def sql_identifier(*parts: str) -> str:
    """A name of one or more parts, in backticks.

    :raises PermanentError: a part has ``${`` in it, which cannot be quoted.
    """
    if any("${" in part for part in parts):
        # Spark replaces ${…} in the text of a statement before it parses it, and no quoting keeps it from that.
        raise PermanentError(
            f"The name {'.'.join(parts)!r} holds '${{', which Spark SQL takes for a variable; rename it"
        )
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def sql_literal(text: str) -> str:
    """A string literal for any text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{escaped}'"


def details(rows: Iterable[Row], header: str = TABLE_DETAILS) -> dict[str, str]:
    """The names and values in the answer of ``DESCRIBE … EXTENDED`` from a header to the next.

    A row is a header only if it has no type, because a column can have the name of a header.
    """
    under = islice(dropwhile(lambda row: (row[0], row[1]) != (header, ""), rows), 1, None)
    return {
        row[0]: row[1] or "" for row in takewhile(lambda row: row[1] or not row[0].startswith("# "), under) if row[0]
    }


def error_condition(error: PySparkException) -> str:
    """The error condition of an error of Spark, which Spark 3.5 calls its error class; empty if it has none."""
    get_condition = getattr(error, "getCondition", None) or error.getErrorClass
    condition = get_condition() or ""
    return _EARLIER_CONDITIONS.get(condition, condition)
