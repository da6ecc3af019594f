"""Schema and statistics from Spark's own reader, for platforms whose Python workers cannot reach the storage.

The schema comes from Spark's schema merge, the statistics from one aggregation per batch of files. The rules for
statistics are those for footers.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from airflow_hive_to_delta.core.errors import HiveToDeltaError, SchemaError
from airflow_hive_to_delta.core.parquet.add_actions import FileLocator, encode_rows, error_row, placement_row
from airflow_hive_to_delta.core.parquet.statistics import (
    LeafStatistics,
    TableLeaf,
    date_bound,
    decimal_bound,
    float_bound,
    integer_bound,
    string_bound,
    timestamp_bound,
)
from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.schema.evidence import Evidence
from airflow_hive_to_delta.core.schema.translation import (
    build_delta_schema_from_spark,
)
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.versions import file_metadata
from airflow_hive_to_delta.core.storage.uri import canonical_uri, parse_location

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

    from airflow_hive_to_delta.core.options import ConversionOptions

_SCANNED_SCHEMA = "key string, scanned_size bigint, scanned_time bigint, scanned_rows bigint, scanned_statistics string"
_SCANNED_ARROW_SCHEMA = arrow_schema(_SCANNED_SCHEMA)
#: The one layout of all files, because Spark reads every file with the table's schema.
_LAYOUT = "table"


@dataclass
class PathReader:
    """The function for ``mapInArrow`` that describes files (FILES_SCHEMA) by their paths, without opening them.

    What only the files themselves can say is null in its result (DESCRIBED_SCHEMA).
    """

    root: str
    partition_types: dict[str, str]
    options: ConversionOptions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        locator = FileLocator(parse_location(self.root), self.partition_types, self.options)
        for batch in batches:
            files = batch.to_pylist(maps_as_pydicts="strict")
            rows = [row for row in (self._describe(file, locator) for file in files) if row is not None]
            yield encode_rows(rows)

    def _describe(self, file: dict[str, Any], locator: FileLocator) -> dict[str, Any] | None:
        row = {"path": file["path"], "size": file["size"], "modification_time": file["modification_time"]}
        try:
            placement = locator.locate(file)
        except HiveToDeltaError as error:
            return row | error_row(error)
        if placement is None:
            return None
        row |= placement_row(placement)
        row["key"] = canonical_uri(placement.location)
        row["folder_keys"] = json.dumps(placement.folder_keys) if placement.folder_keys else None
        return row


def merged_evidence(spark: SparkSession, frame: DataFrame, batch_size: int) -> Evidence:
    """The evidence of the columns, from Spark's schema merge over every batch of files.

    The merge ignores the case of names, so files of one batch that differ in it are not found (rule 12).

    :raises SchemaError: Spark cannot merge the schemas of a batch.
    """
    merged: Evidence | None = None
    for paths in _batches(frame, batch_size):
        with spark_call(f"Reading the schemas of the files from {paths[0]} on"):
            schema = _merged_schema(spark, paths)
        evidence = Evidence.of_file(build_delta_schema_from_spark(schema), paths[0])
        merged = evidence if merged is None else merged.merge(evidence)
    assert merged is not None, "called with files"
    return merged


def with_statistics(
    spark: SparkSession, frame: DataFrame, schema: Mapping[str, Any], leaves: Sequence[TableLeaf], batch_size: int
) -> tuple[DataFrame, dict[str, str]]:
    """The files with their rows and statistics, from one aggregation per batch of files, and their layouts.

    :param frame: the files, as :class:`PathReader` describes them.
    :param schema: the schema of the table.
    :param leaves: the columns that get statistics.
    :returns: a DataFrame with the columns of DESCRIBED_SCHEMA, and the JSON text of the only layout, by its name.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StructType

    read_schema = {"type": "struct", "fields": _pruned(schema["fields"], {leaf.path for leaf in leaves}, ())}
    types = [_type_at(read_schema, leaf.path) for leaf in leaves]
    spark_schema = StructType.fromJson(read_schema)
    scanned = [_aggregated(data, leaves, types) for data in read_batches(spark, frame, spark_schema, batch_size)]
    summaries = reduce(lambda one, other: one.unionAll(other), scanned).mapInArrow(
        ScanSummariser([delta_type if leaf.bounds else None for leaf, delta_type in zip(leaves, types, strict=True)]),
        _SCANNED_SCHEMA,
    )
    rewritten = F.format_string(
        "The file %s has %d bytes, but %d were listed: it was rewritten since, or the list is of another table. "
        "List the files again",
        *("path", "scanned_size", "size"),
    )
    # A file without rows is not in the summaries, and gets no statistics.
    described = frame.join(summaries, "key", "left").select(
        *("path", "size", "add_path", "partition_values", "key", "folder_keys"),
        F.when(F.col("scanned_size") != F.col("size"), rewritten).alias("error"),
        F.lit(False).alias("retryable"),
        F.coalesce("modification_time", "scanned_time", F.lit(0)).alias("modification_time"),
        F.col("scanned_rows").alias("rows"),
        F.lit(_LAYOUT).alias("layout"),
        F.lit(None).cast("string").alias("file_schema"),
        F.col("scanned_statistics").alias("leaf_statistics"),
    )
    return described, {_LAYOUT: json.dumps(read_schema)}


def read_batches(spark: SparkSession, frame: DataFrame, schema: StructType, batch_size: int) -> Iterator[DataFrame]:
    """The rows of the files, which Spark reads with the given schema: a DataFrame for each batch of files."""
    for paths in _batches(frame, batch_size):
        yield _reader(spark).schema(schema).parquet(*paths)


@dataclass
class ScanSummariser:
    """The function for ``mapInArrow`` that turns the aggregates of a scan into statistics."""

    #: Delta type of every leaf; None for a leaf that gets no bounds.
    types: Sequence[str | None]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [
                {
                    "key": canonical_uri(parse_location(unquote(file["file_path"]))),
                    "scanned_size": file["size"],
                    "scanned_time": file["modified"],
                    "scanned_rows": file["rows"],
                    "scanned_statistics": json.dumps(list(self._leaves(file))),
                }
                for file in batch.to_pylist()
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=_SCANNED_ARROW_SCHEMA)

    def _leaves(self, file: dict[str, Any]) -> Iterator[LeafStatistics]:
        leaves = zip(self.types, file["lowest"], file["highest"], file["nans"], file["nulls"], strict=True)
        for delta_type, lowest, highest, nans, nulls in leaves:
            if delta_type is None or lowest is None or nans:
                yield None, None, nulls
            else:
                yield _bound(delta_type, lowest, upper=False), _bound(delta_type, highest, upper=True), nulls


def _merged_schema(spark: SparkSession, paths: Sequence[str]) -> StructType:
    try:
        return _reader(spark).option("mergeSchema", "true").parquet(*paths).schema
    except Exception as error:
        reason = str(error).partition("\n\tat ")[0]
        if "CANNOT_MERGE_SCHEMAS" not in reason:
            raise
        raise SchemaError(
            f"Spark cannot merge the schemas of the files from {paths[0]} on: {reason}. Rewrite the files that differ, "
            'or pass ConversionOptions(stats="footer"), which widens types, where Python workers reach the storage'
        ) from error


def _aggregated(data: DataFrame, leaves: Sequence[TableLeaf], types: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    columns = [F.col(".".join(f"`{name.replace('`', '``')}`" for name in leaf.path)) for leaf in leaves]
    plain = F.array().cast("array<string>")
    lowest = [_as_text(F.min(c), t) for c, t in zip(columns, types, strict=True)]
    highest = [_as_text(F.max(c), t) for c, t in zip(columns, types, strict=True)]
    nans = [
        F.max(F.isnan(c)) if t in ("float", "double") else F.lit(False) for c, t in zip(columns, types, strict=True)
    ]
    nulls = [F.count(F.when(c.isNull(), 1)) for c in columns]
    metadata = file_metadata(data)
    return data.groupBy(metadata.getField("file_path").alias("file_path")).agg(
        F.max(metadata.getField("file_size")).alias("size"),
        F.max(F.unix_millis(metadata.getField("file_modification_time"))).alias("modified"),
        F.count(F.lit(1)).alias("rows"),
        (F.array(*lowest) if columns else plain).alias("lowest"),
        (F.array(*highest) if columns else plain).alias("highest"),
        (F.array(*nans) if columns else F.array().cast("array<boolean>")).alias("nans"),
        (F.array(*nulls) if columns else F.array().cast("array<bigint>")).alias("nulls"),
    )


def _as_text(value: Column, delta_type: str) -> Column:
    """An aggregate as a text that holds its value exactly; null for types without bounds."""
    from pyspark.sql import functions as F  # noqa: N812

    match delta_type:
        case "string":
            return F.hex(value)
        case "date":
            return F.unix_date(value).cast("string")
        case "timestamp":
            return F.unix_micros(value).cast("string")
        case "float" | "double":
            return value.cast("double").cast("string")
        case "boolean" | "binary":
            return F.lit(None).cast("string")
    # For a timestamp_ntz too: functions for its microseconds use the session's time zone, which can have gaps.
    return value.cast("string")


def _bound(delta_type: str, text: str, *, upper: bool) -> str | None:
    match delta_type:
        case "string":
            return string_bound(bytes.fromhex(text), upper=upper)
        case "date":
            return date_bound(int(text))
        case "timestamp":
            return timestamp_bound(int(text) // 1000, utc=True)
        case "timestamp_ntz":
            millis = _millis(text)
            return None if millis is None else timestamp_bound(millis, utc=False)
        case "float" | "double":
            return float_bound(float(text), upper=upper)
        case "byte" | "short" | "integer" | "long":
            return integer_bound(int(text))
    sign, digits, exponent = Decimal(text).as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    scale = -int(exponent)
    return decimal_bound(unscaled, scale) if scale >= 0 else decimal_bound(unscaled * 10**-scale, 0)


def _millis(text: str) -> int | None:
    """The milliseconds, rounded down, of a timestamp_ntz as Spark prints it; None outside the years 1 to 9999."""
    try:
        return (dt.datetime.fromisoformat(text) - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1)
    except ValueError:
        return None


def _reader(spark: SparkSession) -> DataFrameReader:
    # Paths are not patterns. With a recursive look-up Spark does not make columns of folder names. A file that cannot
    # be read is an error, even if the session is set to ignore it.
    return spark.read.options(
        __globPaths__="false", recursiveFileLookup="true", ignoreCorruptFiles="false", ignoreMissingFiles="false"
    )


def _batches(frame: DataFrame, batch_size: int) -> Iterator[list[str]]:
    paths = (row.path for row in frame.select("path").toLocalIterator())
    while batch := list(islice(paths, batch_size)):
        yield batch


def _pruned(
    fields: Sequence[Mapping[str, Any]], paths: set[tuple[str, ...]], above: tuple[str, ...]
) -> list[dict[str, Any]]:
    """The fields that lead to the given leaves, without their metadata, which Spark would interpret."""
    kept = []
    for field in fields:
        path = (*above, field["name"])
        kind = field["type"]
        if path not in paths and isinstance(kind, dict) and kind["type"] == "struct":
            kind = {"type": "struct", "fields": _pruned(kind["fields"], paths, path)}
            if not kind["fields"]:
                continue
        elif path not in paths:
            continue
        kept.append({"name": field["name"], "type": kind, "nullable": True, "metadata": {}})
    return kept


def _type_at(schema: Mapping[str, Any], path: tuple[str, ...]) -> str:
    field = next(field for field in schema["fields"] if field["name"] == path[0])
    return str(field["type"]) if len(path) == 1 else _type_at(field["type"], path[1:])
