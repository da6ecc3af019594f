"""Totals over described files: how many there are, the evidence of their columns, and the first error among them.

They are added up by layout on the executors, and for the whole table by the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_hive_to_delta.core.errors import KINDS, SchemaError
from airflow_hive_to_delta.core.parquet.add_actions import error_row
from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.schema.evidence import Evidence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOTALS_SCHEMA = (
    "files bigint, bytes bigint, absolute bigint, layout string, file_schema string, evidence string, "
    "errors bigint, error string, error_kind string, retryable boolean"
)
_TOTALS_ARROW_SCHEMA = arrow_schema(TOTALS_SCHEMA)


@dataclass
class FileTotals:
    """What the files of a table are together."""

    files: int = 0
    bytes: int = 0
    #: Files outside the table's location, which have absolute paths in the log.
    absolute: int = 0
    #: None when there is no file.
    evidence: Evidence | None = None
    #: The JSON text of each schema that files have, by the name of the layout.
    layouts: dict[str, str] = field(default_factory=dict)


class EvidenceMerger:
    """The function for ``mapInArrow`` that merges the evidence of the columns of files with many layouts.

    Its input has a row for each layout. Its output has the same rows, and one more for the merged evidence.
    """

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        evidence: Evidence | None = None
        for batch in batches:
            rows = batch.to_pylist()
            evidence = merge_evidence(rows, evidence)
            yield pa.RecordBatch.from_pylist(rows, schema=_TOTALS_ARROW_SCHEMA)
        if evidence is not None:
            last = {"files": 0, "bytes": 0, "absolute": 0, "errors": 0, "evidence": evidence.to_json()}
            yield pa.RecordBatch.from_pylist([last], schema=_TOTALS_ARROW_SCHEMA)


def merge_evidence(layouts: Sequence[dict[str, Any]], evidence: Evidence | None = None) -> Evidence | None:
    """Merge the evidence of files of several layouts. A layout that a table cannot have gets the error in its row.

    :param layouts: a row for each, with ``file_schema`` and the ``path`` of a file.
    :param evidence: of other files.
    """
    for row in layouts:
        if row["file_schema"] is None:
            continue
        try:
            mine = Evidence.of_file(json.loads(row["file_schema"]), row["path"])
        except SchemaError as error:
            row |= {"errors": row["files"], **error_row(error)}
            continue
        evidence = mine if evidence is None else evidence.merge(mine)
    return evidence


def total_by_layout(frame: DataFrame) -> DataFrame:
    """Count the files of each layout, those of no layout too, with the first error among them."""
    from pyspark.sql import functions as F  # noqa: N812

    error = F.struct("retryable", "path", "error", "error_kind")
    groups = frame.groupBy("layout").agg(
        F.max("file_schema").alias("file_schema"),
        F.count("*").alias("files"),
        F.sum("size").alias("bytes"),
        F.sum(F.col("add_path").contains("://").cast("long")).alias("absolute"),
        F.min("path").alias("path"),
        F.count("error").alias("errors"),
        # False sorts first: an error that a retry cannot help is reported rather than one that it may.
        F.min(F.when(F.col("error").isNotNull(), error)).alias("first"),
    )
    return groups.select(*groups.columns[:-1], "first.error", "first.error_kind", "first.retryable")


def total_rows_by_layout(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows that :func:`total_by_layout` gives for these. A column that a row lacks is null."""
    groups: dict[str | None, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row.get("layout"), []).append(row)
    totals = []
    for layout, files in groups.items():
        failed = [
            (file["retryable"], file["path"], file["error"], file) for file in files if file.get("error") is not None
        ]
        first: Mapping[str, Any] = min(failed, key=lambda each: each[:3])[3] if failed else {}
        schemas = (file.get("file_schema") for file in files)
        totals.append(
            {
                "layout": layout,
                "file_schema": next((schema for schema in schemas if schema is not None), None),
                "files": len(files),
                "bytes": sum(file["size"] for file in files),
                "absolute": sum("://" in (file.get("add_path") or "") for file in files),
                "path": min(file["path"] for file in files),
                "errors": len(failed),
                **{name: first.get(name) for name in ("error", "error_kind", "retryable")},
            }
        )
    return totals


def add_up_totals(totals: Iterable[Mapping[str, Any]]) -> FileTotals:
    """Add up the totals of all layouts.

    :param totals: rows of TOTALS_SCHEMA.
    :raises HiveToDeltaError: the first error among them.
    """
    found = FileTotals()
    errors = 0
    failures = []
    for row in totals:
        found.files += row["files"]
        found.bytes += row["bytes"]
        found.absolute += row["absolute"] or 0
        errors += row["errors"]
        if row.get("file_schema") is not None:
            found.layouts[row["layout"]] = row["file_schema"]
        if row.get("error") is not None:
            failures.append((row["retryable"], row["error"], row["error_kind"]))
        if row.get("evidence") is not None:
            mine = Evidence.from_json(row["evidence"])
            found.evidence = mine if found.evidence is None else found.evidence.merge(mine)
    if failures:
        _, first, kind = min(failures)
        some = f"{first} ({errors} of {found.files} files cannot be part of the table)"
        raise KINDS[kind](first if errors == 1 else some)
    return found
