"""The embedded Spark: a session on this machine with Delta Lake and S3, for users without a cluster.

A real cluster has its own jars and settings; nothing else in the core asks for these. And what only a session with a
JVM can tell: the streaming query that is running.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HADOOP_VERSION = "3.5.0"
AWS_SDK_VERSION = "2.35.4"

#: Delta Lake, and S3A with the three parts of the AWS SDK it uses instead of the 655 MB bundle.
PACKAGES = (
    "io.delta:delta-spark_4.2_2.13:4.4.0",
    f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
    f"software.amazon.awssdk:s3:{AWS_SDK_VERSION}",
    f"software.amazon.awssdk:s3-transfer-manager:{AWS_SDK_VERSION}",
    f"software.amazon.awssdk:sts:{AWS_SDK_VERSION}",
)
EXCLUDED_PACKAGES = (
    "software.amazon.awssdk:bundle",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
)


def local_session_conf(*, memory: str = "2g") -> dict[str, str]:
    """The settings of an embedded session: jars, Delta, ``s3://`` paths as Glue writes them, time in UTC."""
    return {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.jars.excludes": ",".join(EXCLUDED_PACKAGES),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": memory,
        # One machine: nothing listens beyond it.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Fewer, larger partitions than a cluster's defaults.
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "2",
        **_s3a_from_environment(),
    }


def local_session(
    app_name: str = "airflow-hive-to-delta",
    *,
    master: str = "local[*]",
    memory: str = "2g",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session on this machine, ready for Delta Lake and S3. ``conf`` adds to the settings and overrides."""
    from pyspark.sql import SparkSession

    # The workers are this Python, with this package and pyarrow in it, not the first one on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in {**local_session_conf(memory=memory), **(conf or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def streaming_query_id(spark: SparkSession) -> str | None:
    """The id of the streaming query whose batch this thread is writing, the same after a restart from its checkpoint.

    None outside of ``foreachBatch``, and where the session does not tell: Spark Connect and Databricks serverless.
    """
    from pyspark.errors import PySparkException

    try:
        found: str | None = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    except (AttributeError, PySparkException):
        return None
    return found


def _s3a_from_environment() -> dict[str, str]:
    """What boto3 takes from the environment and S3A does not: another endpoint than AWS's own, and the region."""
    settings = {}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        settings = {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings
