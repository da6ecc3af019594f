"""Describing the data files of a table: their columns, rows and statistics.

They are read from the Parquet footers (:mod:`footers`), or by Spark's own reader (:mod:`scan`) where Python workers
cannot reach the storage, which :mod:`access` finds out. The executors read them; the footers of a few files the driver
itself, which has read them before a job of Spark has begun.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core import arrow_columns
from airflow_hive_to_delta.core.catalogs.nested_tables import check_no_delta_table_within
from airflow_hive_to_delta.core.delta.local_frames import arrow_table, local_frame
from airflow_hive_to_delta.core.errors import HiveToDeltaError, PermanentError, UnreachableStorageError
from airflow_hive_to_delta.core.files import files_table
from airflow_hive_to_delta.core.parquet import scan
from airflow_hive_to_delta.core.parquet.access import FileAccess, choose_access, read_by_spark
from airflow_hive_to_delta.core.parquet.add_actions import DESCRIBED_SCHEMA, AddWriter, check_folder_keys
from airflow_hive_to_delta.core.parquet.footer_count import counting_footers
from airflow_hive_to_delta.core.parquet.footers import FooterReader
from airflow_hive_to_delta.core.parquet.one_pass import ONE_PASS_SCHEMA, OnePassWriter, WrittenAdds, split_sample
from airflow_hive_to_delta.core.parquet.statistics import TableLeaf
from airflow_hive_to_delta.core.parquet.totals import (
    TOTALS_SCHEMA,
    EvidenceMerger,
    FileTotals,
    add_up_totals,
    merge_evidence,
    total_by_layout,
    total_rows_by_layout,
)
from airflow_hive_to_delta.core.progress import count_work
from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.schema.evidence import Evidence
from airflow_hive_to_delta.core.schema.merge import TableSchema
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.persistence import persisted
from airflow_hive_to_delta.core.spark.session import has_driver
from airflow_hive_to_delta.core.spark.versions import collect_arrow, packed_df
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from airflow_hive_to_delta.core.files import ListedFiles
    from airflow_hive_to_delta.core.options import ConversionOptions
    from airflow_hive_to_delta.core.storage.uri import Location

logger = logging.getLogger(__name__)

#: What of described files is enough to count them.
COUNTS_SCHEMA = "path string, size bigint, modification_time bigint, partition_values string, rows bigint"

#: Settings of CONVERT TO DELTA for the number of files in a batch.
STATS_BATCH_SIZE = "spark.databricks.delta.import.batchSize.statsCollection"
SCHEMA_BATCH_SIZE = "spark.databricks.delta.import.batchSize.schemaInference"
_FILES_PER_TASK = 2_500
_FILES_PER_SCAN = 10_000
#: The most files that are one row in Spark on their way to the executors.
_FILES_PER_BLOCK = 500
#: The most files whose footers the driver reads.
FEW_FILES = 500
#: Up to so many files the driver gets all add actions at once.
FILES_AT_ONCE = 20_000
_REACHED_BY_PYTHON = frozenset({"file", *S3_SCHEMES})


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
    #: The add actions, where they were written while the files were described.
    adds: WrittenAdds | None = None

    @classmethod
    def none(cls, spark: SparkSession) -> DescribedFiles:
        """The description of a table without files."""
        return cls(lambda: local_frame(spark, [], DESCRIBED_SCHEMA), 0, 0, 0, None, {}, scanned=False, rows=[])

    @classmethod
    def of_totals(cls, make_frame: Callable[[], DataFrame], totals: FileTotals, *, scanned: bool) -> DescribedFiles:
        """The description of files with these totals."""
        return cls(
            make_frame, totals.files, totals.bytes, totals.absolute, totals.evidence, totals.layouts, scanned=scanned
        )

    @cached_property
    def frame(self) -> DataFrame:
        """The files, in DESCRIBED_SCHEMA."""
        return self._make_frame()

    def collect_counts(self) -> pa.Table | None:
        """The files in COUNTS_SCHEMA, ``rows`` null where they are not counted.

        None when there are too many, when Spark scanned them, and when they would have to be described again.
        """
        if self.rows is not None:
            return arrow_table(self.rows, COUNTS_SCHEMA)
        if self.scanned or self.adds is not None or self.file_count > arrow_columns.MOST_FILES:
            return None
        schema = arrow_schema(COUNTS_SCHEMA)
        return collect_arrow(self.frame.select(schema.names), schema)

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


#: Resolves which columns get statistics, by a description of the files. It raises what keeps them from being a table.
ResolveLeaves = Callable[[DescribedFiles], Sequence[TableLeaf]]


@contextmanager
def describe_files(
    spark: SparkSession,
    files: ListedFiles,
    root: Location,
    partition_types: dict[str, str],
    options: ConversionOptions,
    resolve_leaves: ResolveLeaves | None = None,
) -> Iterator[DescribedFiles]:
    """Describe the files of a table. The result is kept in Spark while the block runs.

    :param partition_types: Delta type of every partition column, in order.
    :param resolve_leaves: write the add actions, too, where that can be done in one pass.
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
        with counting_footers(spark, file_count) as counter:
            try:
                if few is not None:
                    described = _describe_few(spark, few, root, partition_types, options)
                else:
                    access = choose_access(spark, listed, folders, options)
                    reader = FooterReader(str(root), partition_types, options, access.web_hdfs, counter)
                    in_one_pass = None
                    by_driver = listed.table is not None and has_driver(spark) and not access.by_spark
                    if resolve_leaves is not None and by_driver:
                        in_one_pass = kept.enter_context(
                            _describe_in_one_pass(spark, listed, tasks, root, access, reader, resolve_leaves)
                        )
                    described = in_one_pass or kept.enter_context(
                        _describe_many(spark, listed.frame, tasks, root, access, reader)
                    )
            except UnreachableStorageError as error:
                access = read_by_spark(f"{root.scheme}://{root.authority}", str(error).partition("\n")[0], options)
                reader = FooterReader(str(root), partition_types, options, access.web_hdfs)
                described = kept.enter_context(_describe_many(spark, listed.frame, tasks, root, access, reader))
        if not described.scanned:
            count_work("footers_read", described.file_count)
        yield described


@contextmanager
def _describe_many(
    spark: SparkSession,
    listed: DataFrame,
    tasks: int,
    root: Location,
    access: FileAccess,
    reader: FooterReader,
) -> Iterator[DescribedFiles]:
    """Describe files on the executors, in the way that was chosen.

    :param tasks: how many read them.
    :param reader: of their footers, where those are read.
    """
    options = reader.options
    describe: scan.PathReader | FooterReader = (
        scan.PathReader(reader.root, reader.partition_types, options) if access.by_spark else reader
    )
    rows = listed.repartition(tasks).mapInArrow(describe, DESCRIBED_SCHEMA)
    with persisted(rows) as frame:
        with spark_call(f"Describing the files of {root}"):
            totals = total_by_layout(frame).mapInArrow(EvidenceMerger(), TOTALS_SCHEMA).collect()
        described = DescribedFiles.of_totals(
            lambda: frame, add_up_totals(row.asDict() for row in totals), scanned=access.by_spark
        )
        described.notes = list(access.notes)
        if access.by_spark and described.file_count:
            size = _batch_size(spark, options.schema_batch_size, SCHEMA_BATCH_SIZE, _FILES_PER_SCAN)
            described.evidence = scan.merged_evidence(spark, frame, size)
            _check_scanned_folders(described, options)
        yield described


@contextmanager
def _describe_in_one_pass(
    spark: SparkSession,
    listed: ListedFiles,
    tasks: int,
    root: Location,
    access: FileAccess,
    reader: FooterReader,
    resolve_leaves: ResolveLeaves,
) -> Iterator[DescribedFiles | None]:
    """Describe files on the executors, and write their add actions in the same pass.

    :returns: None where a few of the files do not give the columns of all of them, or cannot be read by the driver.
    """
    assert listed.table is not None
    sample, others = split_sample(listed.table)
    leaves = None
    try:
        rows_of_sample = sample.to_pylist(maps_as_pydicts="strict")
        first = _describe_few(spark, rows_of_sample, root, reader.partition_types, reader.options)
        leaves = resolve_leaves(first)
    except HiveToDeltaError as error:
        logger.debug("The files of %s are not described in one pass: %s", root, error)
    if leaves is None:
        yield None
        return
    at_once = listed.table.num_rows <= FILES_AT_ONCE
    packed = packed_df(spark, others, min(-(-listed.table.num_rows // tasks), _FILES_PER_BLOCK))
    if not at_once:  # a few are spread over the executors as they are
        packed = packed.repartition(tasks)
    written = packed.mapInArrow(OnePassWriter(reader, leaves), ONE_PASS_SCHEMA)
    with nullcontext(written) if at_once else persisted(written) as frame:
        rows: list[dict[str, Any]] = []
        with spark_call(f"Describing the files of {root}"):
            if at_once:
                rows = [row.asDict() for row in frame.collect()]
                totals = [row["totals"] for row in rows]
            else:
                totals = [row.totals for row in frame.select("totals").collect()]

        def read_blocks() -> Iterator[Mapping[str, Any]]:
            yield from AddWriter(leaves, first.layouts).write_rows(first.rows or [])
            if not at_once:
                lines = frame.where("lines <> ''").drop("totals").toLocalIterator(prefetchPartitions=True)
                yield from (row.asDict() for row in lines)
            yield from (row for row in rows if row["lines"])

        described = DescribedFiles.of_totals(
            lambda: listed.frame.repartition(tasks).mapInArrow(reader, DESCRIBED_SCHEMA),
            add_up_totals([*_totals_of(first), *(total for text in totals for total in json.loads(text))]),
            scanned=False,
        )
        described.notes = list(access.notes)
        described.adds = WrittenAdds(leaves, read_blocks)
        if resolve_leaves(described) == leaves:
            yield described
            return
    logger.info("The files of %s have columns that a few of them do not have: they are read once more", root)
    yield None


def _totals_of(described: DescribedFiles) -> list[dict[str, Any]]:
    """What is known of described files, as a row of TOTALS_SCHEMA."""
    evidence = None if described.evidence is None else described.evidence.to_json()
    counts = {"files": described.file_count, "bytes": described.byte_count, "absolute": described.absolute_count}
    return [{**counts, "errors": 0, "evidence": evidence}]


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
    batches = files_table(files).to_batches()
    reader = FooterReader(str(root), partition_types, options)
    rows = [row for batch in reader(iter(batches)) for row in batch.to_pylist()]
    by_layout = total_rows_by_layout(rows)
    evidence = merge_evidence(by_layout)
    totals = add_up_totals(by_layout)
    described = DescribedFiles.of_totals(lambda: local_frame(spark, rows, DESCRIBED_SCHEMA), totals, scanned=False)
    return replace(described, evidence=evidence, rows=rows)


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
