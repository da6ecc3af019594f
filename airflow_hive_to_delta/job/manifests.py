"""Which files a table has, on the way from one task to the next.

A short list travels as it is. A long one is a *manifest*: a Parquet file, or a folder of them, on object storage, of
which only the address, the number of files and their bytes travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

from airflow_hive_to_delta.core.errors import describe_error
from airflow_hive_to_delta.core.models import Document
from airflow_hive_to_delta.core.redaction import redact_credentials

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from airflow_hive_to_delta.core.files import ListedFiles

#: More than this many files do not travel inline.
INLINE_LIMIT = 100


@dataclass
class FileList(Document):
    """The files of one table: inline, or where their manifest is."""

    #: Qualified name of the table.
    table: str
    file_count: int
    byte_count: int
    #: As :class:`ParquetFileInfo` dicts; None: they are in the manifest.
    files: list[dict[str, Any]] | None = None
    manifest: str | None = None
    #: The version of the Delta log at the table's location before the files were listed, -1 for none; None: not known,
    #: as for an S3 Inventory report.
    log_version: int | None = None
    #: When the files were listed, in milliseconds since the epoch: that moment or one before it; of an S3 Inventory
    #: report, when S3 began to scan the bucket. None: not known.
    listed_at: int | None = None
    #: How they were listed, as a job takes it, for a later try that lists them again.
    listing: dict[str, Any] | None = None
    #: The digest of the table's location and partition columns as they were then.
    listed_for: str | None = None


def too_many(table: str, limit: int) -> str:
    """The message for a list that is too long to travel inline and has nowhere else to go."""
    return (
        f"{table} has more than {limit} files, too many to travel as they are. Pass staging='s3://bucket/staging' or "
        "another storage for manifests, or a larger inline_limit"
    )


def list_error(table: str, error: Exception, listing: dict[str, Any] | None = None) -> dict[str, Any]:
    """What travels instead of a list that could not be made, without the credentials that its error may carry."""
    described = describe_error(error).to_fields()
    return {"table": table, **described, "error": redact_credentials(described["error"]), "listing": listing}


def write_manifest(batches: Iterable[pa.RecordBatch], destination: BinaryIO) -> None:
    """Write file batches (``FILES_ARROW_SCHEMA``) as they come; one row group is in memory at a time."""
    import pyarrow.parquet as pq

    from airflow_hive_to_delta.core.files import FILES_ARROW_SCHEMA

    with pq.ParquetWriter(destination, FILES_ARROW_SCHEMA, compression="zstd") as writer:
        for group in _in_groups(batches):
            writer.write_table(group)


def read_list(spark: SparkSession, files: FileList) -> ListedFiles:
    """The files of a list, which Spark reads if it is a manifest."""

    from airflow_hive_to_delta.core.files import ListedFiles, files_table
    from airflow_hive_to_delta.core.models import FILES_SCHEMA

    if files.manifest is not None:
        return ListedFiles(spark, spark.read.schema(FILES_SCHEMA).parquet(files.manifest))
    return ListedFiles(spark, files_table(files.files or []))


def first_of(batches: Iterator[pa.RecordBatch], limit: int) -> tuple[list[dict[str, Any]], Iterator[pa.RecordBatch]]:
    """At least ``limit + 1`` files if there are so many, else all of them; and an iterator over all batches."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count > limit:
            break
    files = [file for batch in held for file in batch.to_pylist(maps_as_pydicts="strict")]
    return files, chain(held, batches)


def _in_groups(batches: Iterable[pa.RecordBatch], rows: int = 50_000) -> Iterator[pa.Table]:
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(held)
            held, count = [], 0
    if held:
        yield pa.Table.from_batches(held)
