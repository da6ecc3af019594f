"""The storage of a table's log: S3, the local disk, a Hadoop file system, or what Databricks gives access to.

No storage overwrites a file (rule 2). Data files are only deleted through it, by a vacuum, or moved to a hidden folder,
by a rollback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.base import Storage
from airflow_hive_to_delta.core.storage.databricks import DatabricksStorage, is_databricks, needs_dbutils
from airflow_hive_to_delta.core.storage.local import LocalStorage
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def storage_for(location: Location, spark: SparkSession | None, options: ConversionOptions) -> Storage:
    """The storage that a location lies on.

    :param spark: needed for Hadoop file systems (HDFS, ABFS, GCS), and on Databricks.
    :raises PermanentError: the location is on a Hadoop file system, and the session has no JVM to reach it by.
    """
    if location.scheme in S3_SCHEMES:
        if spark is not None and needs_dbutils():
            return DatabricksStorage(spark)
        from airflow_hive_to_delta.core.storage.s3 import S3Storage

        return S3Storage(options)
    if location.scheme == "file":
        return LocalStorage()
    if spark is not None and is_databricks() and type(spark).__module__.startswith("pyspark.sql.connect"):
        return DatabricksStorage(spark)
    from airflow_hive_to_delta.core.storage.hadoop import HadoopStorage

    return HadoopStorage(spark)
