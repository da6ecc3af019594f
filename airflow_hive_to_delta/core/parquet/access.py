"""How the files of a table are read: their footers by Python workers, or all of them by Spark's own reader.

Spark reads a storage with the session's credentials and the JVM's clients. Its Python workers often have neither: on
HDFS without Hadoop's native library, on ABFS and GCS, and on S3 where a catalog lends its credentials to Spark alone.
One file of each storage is tried before the run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from airflow_hive_to_delta.core.errors import HiveToDeltaError, TransientError, UnreachableStorageError
from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.file_tails import read_tail
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_hive_to_delta.core.files import ListedFiles
    from airflow_hive_to_delta.core.options import ConversionOptions
    from airflow_hive_to_delta.core.storage.uri import Location
    from airflow_hive_to_delta.core.storage.web_hdfs import WebHdfs

logger = logging.getLogger(__name__)

_PROBE_SCHEMA = "reader string, reason string"
_PROBE_ARROW_SCHEMA = arrow_schema(_PROBE_SCHEMA)
_Reader = Literal["worker", "webhdfs", "spark"]


@dataclass(frozen=True)
class FileAccess:
    """How the files of a table are read."""

    #: By Spark's own reader, which needs no access of the Python workers.
    by_spark: bool = False
    #: By the authority of an HDFS: the service over which workers read its footers.
    web_hdfs: Mapping[str, WebHdfs] = field(default_factory=dict)
    #: What was chosen, and why, where it is not what the options say.
    notes: tuple[str, ...] = ()


def choose_access(
    spark: SparkSession, files: ListedFiles, folders: Iterable[str], options: ConversionOptions
) -> FileAccess:
    """Choose how the files of a table are read, by one file of each storage that workers may have no access to.

    Local files and S3 cost nothing here. A worker without any credentials for S3 raises
    :class:`UnreachableStorageError` when it reads; then take :func:`read_by_spark`.

    :param folders: the folders of all files.
    """
    if options.stats == "scan":
        return FileAccess(by_spark=True)
    web_hdfs: dict[str, WebHdfs] = {}
    notes = []
    for prefix in sorted({"/".join(folder.split("/", 3)[:3]) for folder in folders}):
        storage = _parse_storage(prefix)
        if storage is None or storage.scheme in ("file", *S3_SCHEMES):
            continue
        service = _web_hdfs(spark, storage)
        reader, reason = _probe(files.frame, prefix, service, options)
        if reader == "spark":
            return read_by_spark(prefix, reason, options)
        if reader == "webhdfs" and service is not None:
            web_hdfs[storage.authority] = service
            notes.append(f"The footers of {prefix} were read over WebHDFS, because Python workers have no libhdfs")
            logger.info("%s", notes[-1])
    return FileAccess(web_hdfs=web_hdfs, notes=tuple(notes))


def read_by_spark(where: str, reason: str, options: ConversionOptions) -> FileAccess:
    """The access by Spark's own reader, instead of footers that Python workers cannot read.

    :param where: what the workers cannot reach, as the note names it.
    :param reason: why they cannot.
    """
    reads = "the schemas and rows" if options.stats == "none" else "all data, for schemas and statistics"
    note = f"Spark itself has read {reads} of the files, because Python workers cannot reach {where}: {reason}"
    logger.info("%s", note)
    return FileAccess(by_spark=True, notes=(note,))


@dataclass
class AccessProbe:
    """The function for ``mapInArrow`` that says who can read a file.

    It is a worker by itself, a worker over WebHDFS, or Spark's own reader, the first of them that can.

    A file that is missing, damaged or denied to an identity that the worker has is not looked into any further: the
    run will say what is wrong with it.
    """

    web_hdfs: WebHdfs | None
    options: ConversionOptions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [self._try(file["path"], file["size"]) for file in batch.to_pylist(maps_as_pydicts="strict")]
            yield pa.RecordBatch.from_pylist(
                [{"reader": reader, "reason": reason} for reader, reason in rows], schema=_PROBE_ARROW_SCHEMA
            )

    def _try(self, path: str, size: int) -> tuple[_Reader, str]:
        try:
            location = parse_location(path, "file path")
            read_tail(location, size, self.options)
        except UnreachableStorageError as error:
            reason = str(error.__cause__ or error).partition("\n")[0]
        except HiveToDeltaError:
            return "worker", ""
        else:
            return "worker", ""
        if self.web_hdfs is None:
            return "spark", reason
        try:
            self.web_hdfs.read(location.path, 0, 1)
        except (UnreachableStorageError, TransientError) as error:
            return "spark", f"{reason}; {error}"
        except HiveToDeltaError:
            pass
        return "webhdfs", reason


def _probe(files: DataFrame, prefix: str, web_hdfs: WebHdfs | None, options: ConversionOptions) -> tuple[_Reader, str]:
    from pyspark.sql import functions as F  # noqa: N812

    one = files.where(F.col("path").startswith(f"{prefix}/") & (F.col("size") > 0)).limit(1)
    with spark_call(f"Trying whether Python workers can read {prefix}"):
        found = one.mapInArrow(AccessProbe(web_hdfs, options), _PROBE_SCHEMA).collect()
    return (found[0].reader, found[0].reason) if found else ("worker", "")


def _parse_storage(prefix: str) -> Location | None:
    """The root of a storage; None where paths have none that can be read. Their own errors say so (rule 40)."""
    try:
        return parse_location(f"{prefix}/x")
    except HiveToDeltaError:
        return None


def _web_hdfs(spark: SparkSession, storage: Location) -> WebHdfs | None:
    if storage.scheme != "hdfs":
        return None
    from airflow_hive_to_delta.core.storage.hadoop import web_hdfs_of

    return web_hdfs_of(spark, storage)
