"""A local Spark session with Delta Lake and S3, for users without a cluster, and facts about the current session.

The jars and settings are only used for the local session. A cluster has its own.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.extras import needs_extra
from airflow_hive_to_delta.core.spark.jars import jar_settings
from airflow_hive_to_delta.core.spark.properties import DELTA_SETTINGS, property_lines
from airflow_hive_to_delta.core.spark.versions import local_jars

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession


def local_session_conf(*, memory: str = "2g") -> dict[str, str]:
    """The settings of a local session: jars, Delta, ``s3://`` paths as Glue has them, and times in UTC.

    :param memory: the memory of the JVM.
    """
    jars = local_jars()
    return {
        **jar_settings(jars.packages, jars.excluded),
        **DELTA_SETTINGS,
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.aws.credentials.provider": ",".join(jars.s3a_credentials),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": memory,
        # Delta keeps the state of 10,000 tables for an hour: a job that works on hundreds would run out of memory.
        "spark.databricks.delta.delta.log.cacheSize": "32",
        # No port is open to other machines.
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
    """A Spark session on this machine with Delta Lake and S3.

    :param master: the master of Spark.
    :param memory: the memory of the JVM.
    :param conf: settings that are added to those of :func:`local_session_conf`, or replace them.
    :raises MissingDependencyError: PySpark is not installed.
    """
    with needs_extra("local", "The embedded Spark"):
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

    # The workers need this package and pyarrow, which the first Python on the path may not have.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, Any] = {**local_session_conf(memory=memory), **(conf or {})}
    builder = SparkSession.builder.appName(app_name).master(master)
    if SparkContext._gateway is not None:  # a JVM is running already, whose command line cannot be changed
        return builder.config(map=settings).getOrCreate()
    for_jvm = {name: str(value) for name, value in settings.items() if name.startswith("spark.")}
    with _submit_arguments(for_jvm):
        return builder.config(map={name: settings[name] for name in settings.keys() - for_jvm}).getOrCreate()


def cluster_session(app_name: str | None) -> SparkSession:
    """The session of the cluster that this process was submitted to, or of the Connect server in ``SPARK_REMOTE``.

    :param app_name: the name of the application, if it is to have one. A Connect server is asked as it is set.
    :raises MissingDependencyError: PySpark, or what its Connect client needs, is not installed.
    """
    with needs_extra("local", "A Spark job that no cluster runs"):
        from pyspark.sql import SparkSession
    with needs_extra("connect", "A session over Spark Connect"):
        builder = SparkSession.builder if app_name is None else SparkSession.builder.appName(app_name)
        return builder.getOrCreate()


@contextmanager
def _submit_arguments(settings: Mapping[str, str]) -> Iterator[None]:
    """Pass settings to a JVM that is started inside the block, in a file that only its owner can read.

    PySpark itself would put them on the command line of the JVM, which every user of the machine can read. The file
    begins with those of ``spark-defaults.conf``, because Spark 3.5 reads no other file beside the one that it is given.
    """
    with tempfile.NamedTemporaryFile("w", prefix="spark-", suffix=".properties", encoding="utf-8") as file:
        file.write(_spark_defaults())
        file.write(property_lines(settings))
        file.flush()
        before = os.environ.get("PYSPARK_SUBMIT_ARGS")
        own = f"--properties-file {shlex.quote(file.name)}"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{own} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
            if before is not None:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _spark_defaults() -> str:
    """The text of the ``spark-defaults.conf`` that Spark would read on this machine; empty if there is none."""
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    file = Path(folder, "spark-defaults.conf")
    return f"{file.read_text(encoding='utf-8')}\n" if file.is_file() else ""


def has_driver(spark: SparkSession) -> bool:
    """Whether this process is the driver of the session. A client of Spark Connect is not, and may reach no storage."""
    return hasattr(spark, "_jsparkSession")


def task_counter(spark: SparkSession) -> Accumulator[int] | None:
    """A number to which tasks of Spark add, and which this process reads. None over Spark Connect, which has none."""
    return spark.sparkContext.accumulator(0) if has_driver(spark) else None


def streaming_query_id(spark: SparkSession) -> str | None:
    """The id of the streaming query whose batch this thread writes. It is kept in the query's checkpoint.

    None outside of ``foreachBatch``, and in sessions without a JVM: Spark Connect and Databricks serverless.
    """
    from pyspark.errors import PySparkException

    try:
        found: str | None = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    except (AttributeError, PySparkException):
        return None
    return found


def python_of_workers() -> str:
    """The path of the Python that Spark's workers run, from a worker; its name where no worker can be asked."""
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import udf

    named = os.environ.get("PYSPARK_PYTHON", "python3")
    # A thread that did not make the session may have no active session.
    spark = SparkSession.getActiveSession() or getattr(SparkSession, "_instantiatedSession", None)
    if spark is None:
        return named
    # Without Arrow, because pyarrow may be what is missing.
    executable = udf(lambda _: sys.executable, "string", useArrow=False)
    try:
        found = spark.range(1).select(executable("id")).first()
    except Exception:  # the workers cannot run any Python, or the session has ended
        return named
    return str(found[0]) if found else named


def _s3a_from_environment() -> dict[str, str]:
    """Settings of S3A for the endpoint and the region, which boto3 takes from the environment and S3A does not."""
    settings = {}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        settings = {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings
