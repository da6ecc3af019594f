"""The storage of a table's log: S3, the local disk, or a Hadoop file system.

No storage overwrites a file (rule 2). Data files are only deleted through it, by a vacuum, or moved to a hidden folder,
by a rollback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.base import Storage
from airflow_hive_to_delta.core.storage.local import LocalStorage
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def storage_for(location: Location, spark: SparkSession | None, options: ConversionOptions) -> Storage:
    """The storage that a location lies on.

    :param spark: needed for Hadoop file systems only (HDFS, ABFS, GCS).
    :raises PermanentError: the location is on a Hadoop file system, and the session has no JVM to reach it by.
    """
    if location.scheme in S3_SCHEMES:
        from airflow_hive_to_delta.core.storage.s3 import S3Storage

        return S3Storage(options)
    if location.scheme == "file":
        return LocalStorage()
    from airflow_hive_to_delta.core.storage.hadoop import HadoopStorage

    return HadoopStorage(spark)
