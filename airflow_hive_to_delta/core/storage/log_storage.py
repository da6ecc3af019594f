"""The storage of a table's log: put-if-absent, read, list; on S3, on local disk and on Hadoop file systems.

Nothing here overwrites anything (rule 2). Data files pass through here only to be deleted by a vacuum, or moved out of
Hive's sight by a rollback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.base import Storage as Storage
from airflow_hive_to_delta.core.storage.base import StoredFile as StoredFile
from airflow_hive_to_delta.core.storage.local import LocalStorage as LocalStorage
from airflow_hive_to_delta.core.storage.s3 import S3Storage as S3Storage
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def storage_for(location: Location, spark: SparkSession | None, options: ConversionOptions) -> Storage:
    """The storage that a location lies on. Only a Hadoop file system (HDFS, ABFS, GCS) needs the Spark session."""
    if location.scheme in S3_SCHEMES:
        return S3Storage(options)
    if location.scheme == "file":
        return LocalStorage()
    from airflow_hive_to_delta.core.storage.hadoop import HadoopStorage

    return HadoopStorage(spark)
