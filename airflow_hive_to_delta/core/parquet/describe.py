"""Describing the data files of a table: their columns, rows and statistics.

They are read from the Parquet footers (:mod:`footers`), or by Spark's own reader (:mod:`scan`) where Python workers
cannot reach the storage, which :mod:`access` finds out. The executors read them; the footers of a few files the driver
itself, which has read them before a job of Spark has begun.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_hive_to_delta.core.catalogs.nested_tables import check_no_delta_table_within
from airflow_hive_to_delta.core.delta.local_frames import arrow_table, local_frame
from airflow_hive_to_delta.core.errors import KINDS, PermanentError, SchemaError, UnreachableStorageError
from airflow_hive_to_delta.core.models import FILES_SCHEMA
from airflow_hive_to_delta.core.parquet import scan
from airflow_hive_to_delta.core.parquet.access import FileAccess, choose_access, read_by_spark
from airflow_hive_to_delta.core.parquet.add_actions import DESCRIBED_SCHEMA, check_folder_keys, error_row
from airflow_hive_to_delta.core.parquet.footers import FooterReader
from airflow_hive_to_delta.core.progress import count_work
from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.schema.evidence import Evidence
from airflow_hive_to_delta.core.schema.merge import TableSchema
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.persistence import persisted
from airflow_hive_to_delta.core.spark.session import has_driver
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from airflow_hive_to_delta.core.files import ListedFiles
    from airflow_hive_to_delta.core.options import ConversionOptions
    from airflow_hive_to_delta.core.parquet.statistics import TableLeaf
    from airflow_hive_to_delta.core.storage.uri import Location

#: Settings of CONVERT TO DELTA for the number of files in a batch.
STATS_BATCH_SIZE = "spark.databricks.delta.import.batchSize.statsCollection"
SCHEMA_BATCH_SIZE = "spark.databricks.delta.import.batchSize.schemaInference"
_FILES_PER_TASK = 2_500
_FILES_PER_SCAN = 10_000
#: The most files whose footers the driver reads.
FEW_FILES = 500
_REACHED_BY_PYTHON = frozenset({"file", *S3_SCHEMES})

_TOTALS_SCHEMA = (
    "files bigint, bytes bigint, absolute bigint, layout string, file_schema string, evidence string, "
    "errors bigint, error string, error_kind string, retryable boolean"
)
_TOTALS_ARROW_SCHEMA = arrow_schema(_TOTALS_SCHEMA)


@dataclass
class DescribedFiles:
    """The data files of a table, counted and checked, and the evidence of its columns that they give."""

    #: Makes the DataFrame of the files: one that the driver has described may never be asked for.
    _make_frame: Callable[[], DataFrame] = field(repr=False)
    file_count: int
    byte_count: int
    #: Files outside the table's location, which have absolute paths in the log.
    absolute_count: int
    #: None when there is no file.
    evidence: Evidence | None
    #: The JSON text of each schema that files have, by the name of the layout.
    layouts: dict[str, str]
    #: Whether the files were described by Spark's own reader instead of from their footers.
    scanned: bool
    #: The rows of the frame, where the driver has described the files.
    rows: list[dict[str, Any]] | None = None
    #: How the files were read, where it is not as the options say.
    notes: list[str] = field(default_factory=list)

    @classmethod
    def none(cls, spark: SparkSession) -> DescribedFiles:
        """The description of a table without files."""
        return cls(lambda: local_frame(spark, [], DESCRIBED_SCHEMA), 0, 0, 0, None, {}, scanned=False, rows=[])

    @cached_property
    def frame(self) -> DataFrame:
        """The files, in DESCRIBED_SCHEMA."""
        return self._make_frame()

    def with_statistics(
        self, spark: SparkSession, schema: TableSchema, leaves: Sequence[TableLeaf], options: ConversionOptions
    ) -> tuple[DataFrame, dict[str, str]]:
        """The files with all that their add actions need (DESCRIBED_SCHEMA), and the layouts that they name.

        :param leaves: the columns that get statistics.
        """
        if not self.scanned:
            return self.frame, self.layouts
        batch_size = _batch_size(spark, options.stats_batch_size, STATS_BATCH_SIZE, _FILES_PER_SCAN)
        if options.stats != "none":
            return scan.with_statistics(spark, self.frame, schema.schema, leaves, batch_size)
        from pyspark.sql import functions as F  # noqa: N812

        # Without columns Spark only counts rows, which footers tell it.
        counted, layouts = scan.with_statistics(spark, self.frame, schema.schema, (), batch_size)
        return counted.withColumn("leaf_statistics", F.lit(None).cast("string")), layouts

    def read(self, spark: SparkSession, schema: StructType, options: ConversionOptions) -> Iterator[DataFrame]:
        """The rows of the files, which Spark reads with the given schema: a DataFrame for each batch of files."""
        batch_size = _batch_size(spark, options.stats_batch_size, STATS_BATCH_SIZE, _FILES_PER_SCAN)
        return scan.read_batches(spark, self.frame, schema, batch_size)

    def refuse_duplicates(self) -> None:
        """Raise a :class:`PermanentError` that names files which were listed twice (rule 4)."""
        twice = self.frame.groupBy("add_path").count().where("count > 1").limit(3).collect()
        names = ", ".join(row.add_path for row in twice)
        raise PermanentError(f"The list of files has the same file more than once: {names}. List each file once")


@contextmanager
def describe_files(
    spark: SparkSession,
    files: ListedFiles,
    root: Location,
    partition_types: dict[str, str],
    options: ConversionOptions,
) -> Iterator[DescribedFiles]:
    """Describe the files of a table. The result is kept in Spark while the block runs.

    :param partition_types: Delta type of every partition column, in order.
    :raises HiveToDeltaError: a file cannot be part of the table. The message names the first such file.
    :raises UnsupportedTableError: another Delta table lies inside the table.
    """
    batch_size = (
        _batch_size(spark, options.schema_batch_size, SCHEMA_BATCH_SIZE, _FILES_PER_TASK)
        if options.stats == "none"
        else _batch_size(spark, options.stats_batch_size, STATS_BATCH_SIZE, _FILES_PER_TASK)
    )
    with files.kept() as listed, ExitStack() as kept:
        few = None if options.stats == "scan" else _collect_few(spark, listed, root)
        with spark_call(f"Counting the files of {root}"):
            folders = _count_by_folder(listed, few)
        check_no_delta_table_within(root, folders, spark, options, files.seen.may_have_delta_log)
        file_count = sum(folders.values())
        tasks = max(-(-file_count // batch_size), 1)
        if files.table is None:
            count_work("files_listed", file_count)
        try:
            if few is not None:
                described = _describe_few(spark, few, root, partition_types, options)
            else:
                access = choose_access(spark, listed.frame, folders, options)
                described = kept.enter_context(
                    _describe_many(spark, listed.frame, tasks, root, partition_types, access, options)
                )
        except UnreachableStorageError as error:
            access = read_by_spark(f"{root.scheme}://{root.authority}", str(error).partition("\n")[0], options)
            described = kept.enter_context(
                _describe_many(spark, listed.frame, tasks, root, partition_types, access, options)
            )
        if not described.scanned:
            count_work("footers_read", described.file_count)
        yield described


@contextmanager
def _describe_many(
    spark: SparkSession,
    listed: DataFrame,
    tasks: int,
    root: Location,
    partition_types: dict[str, str],
    access: FileAccess,
    options: ConversionOptions,
) -> Iterator[DescribedFiles]:
    """Describe files on the executors, in the way that was chosen.

    :param tasks: how many read them.
    """
    describe: scan.PathReader | FooterReader = (
        scan.PathReader(str(root), partition_types, options)
        if access.by_spark
        else FooterReader(str(root), partition_types, options, access.web_hdfs)
    )
    rows = listed.repartition(tasks).mapInArrow(describe, DESCRIBED_SCHEMA)
    with persisted(rows) as frame:
        with spark_call(f"Describing the files of {root}"):
            totals = _total_by_layout(frame).mapInArrow(EvidenceMerger(), _TOTALS_SCHEMA).collect()
        described = _add_up_totals(lambda: frame, (row.asDict() for row in totals), scanned=access.by_spark)
        described.notes = list(access.notes)
        if access.by_spark and described.file_count:
            size = _batch_size(spark, options.schema_batch_size, SCHEMA_BATCH_SIZE, _FILES_PER_SCAN)
            described.evidence = scan.merged_evidence(spark, frame, size)
            _check_scanned_folders(described, options)
        yield described


class EvidenceMerger:
    """The function for ``mapInArrow`` that merges the evidence of the columns of files with many layouts.

    Its input has a row for each layout. Its output has the same rows, and one more for the merged evidence.
    """

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        evidence: Evidence | None = None
        for batch in batches:
            rows = batch.to_pylist()
            evidence = _merge_evidence(rows, evidence)
            yield pa.RecordBatch.from_pylist(rows, schema=_TOTALS_ARROW_SCHEMA)
        if evidence is not None:
            last = {"files": 0, "bytes": 0, "absolute": 0, "errors": 0, "evidence": evidence.to_json()}
            yield pa.RecordBatch.from_pylist([last], schema=_TOTALS_ARROW_SCHEMA)


def _merge_evidence(layouts: Sequence[dict[str, Any]], evidence: Evidence | None = None) -> Evidence | None:
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


def _count_by_folder(files: ListedFiles, few: Sequence[Mapping[str, Any]] | None) -> dict[str, int]:
    """The number of files directly in each folder.

    :param few: the rows of the files, where they were collected.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if few is not None:
        return Counter(file["path"].rpartition("/")[0] for file in few)
    if files.table is not None:
        return Counter(path.rpartition("/")[0] for path in files.table["path"].to_pylist())
    counted = files.frame.groupBy(F.regexp_replace("path", "/[^/]*$", "").alias("folder")).count()
    return {row.folder: row["count"] for row in counted.collect()}


def _collect_few(spark: SparkSession, files: ListedFiles, root: Location) -> list[dict[str, Any]] | None:
    """The files, if there are few and all on a storage that Python reaches by itself; else None."""
    if not has_driver(spark) or root.scheme not in _REACHED_BY_PYTHON:
        return None
    with spark_call(f"Counting the files of {root}"):
        rows = files.collect_few(FEW_FILES)
    if rows is None:
        return None
    schemes = {row["path"].partition("://")[0] for row in rows if "://" in row["path"]}
    return rows if schemes <= _REACHED_BY_PYTHON else None


def _describe_few(
    spark: SparkSession,
    files: list[dict[str, Any]],
    root: Location,
    partition_types: dict[str, str],
    options: ConversionOptions,
) -> DescribedFiles:
    """What :func:`describe_files` gives, by the driver alone.

    :param files: rows of FILES_SCHEMA.
    """
    batches = arrow_table(files, FILES_SCHEMA).to_batches()
    reader = FooterReader(str(root), partition_types, options)
    rows = [row for batch in reader(iter(batches)) for row in batch.to_pylist()]
    totals = _total_rows_by_layout(rows)
    evidence = _merge_evidence(totals)
    described = _add_up_totals(lambda: local_frame(spark, rows, DESCRIBED_SCHEMA), totals, scanned=False)
    return replace(described, evidence=evidence, rows=rows)


def _total_by_layout(frame: DataFrame) -> DataFrame:
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


def _total_rows_by_layout(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that :func:`_total_by_layout` gives for these."""
    groups: dict[str | None, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["layout"], []).append(row)
    totals = []
    for layout, files in groups.items():
        failed = [(file["retryable"], file["path"], file["error"], file) for file in files if file["error"] is not None]
        first = min(failed, key=lambda each: each[:3])[3] if failed else {}
        totals.append(
            {
                "layout": layout,
                "file_schema": next((file["file_schema"] for file in files if file["file_schema"] is not None), None),
                "files": len(files),
                "bytes": sum(file["size"] for file in files),
                "absolute": sum("://" in (file["add_path"] or "") for file in files),
                "path": min(file["path"] for file in files),
                "errors": len(failed),
                **{name: first.get(name) for name in ("error", "error_kind", "retryable")},
            }
        )
    return totals


def _add_up_totals(
    make_frame: Callable[[], DataFrame], totals: Iterable[Mapping[str, Any]], *, scanned: bool
) -> DescribedFiles:
    """Add up the totals of all layouts.

    :param make_frame: makes the DataFrame of the files.
    :param totals: rows of _TOTALS_SCHEMA.
    :raises HiveToDeltaError: the first error among them.
    """
    layouts: dict[str, str] = {}
    evidence: Evidence | None = None
    files = size = absolute = errors = 0
    failures = []
    for row in totals:
        files, size, absolute = files + row["files"], size + row["bytes"], absolute + (row["absolute"] or 0)
        errors += row["errors"]
        if row["file_schema"] is not None:
            layouts[row["layout"]] = row["file_schema"]
        if row["error"] is not None:
            failures.append((row["retryable"], row["error"], row["error_kind"]))
        if row.get("evidence") is not None:
            mine = Evidence.from_json(row["evidence"])
            evidence = mine if evidence is None else evidence.merge(mine)
    if failures:
        _, first, kind = min(failures)
        raise KINDS[kind](first if errors == 1 else f"{first} ({errors} of {files} files cannot be part of the table)")
    return DescribedFiles(make_frame, files, size, absolute, evidence, layouts, scanned)


def _check_scanned_folders(described: DescribedFiles, options: ConversionOptions) -> None:
    columns = described.evidence.fields if described.evidence else ()
    for row in described.frame.where("folder_keys is not null").select("folder_keys").distinct().collect():
        check_folder_keys(json.loads(row.folder_keys), columns, "A file of the table", options)


def _batch_size(spark: SparkSession, chosen: int | None, setting: str, otherwise: int) -> int:
    if chosen:
        return chosen
    found = spark.conf.get(setting, None) or str(otherwise)
    if not found.isdecimal() or int(found) < 1:
        raise PermanentError(f"{setting} is {found!r}, expected a number of files, at least 1")
    return int(found)
