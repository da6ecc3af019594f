"""The embedded Spark: a session on this machine with Delta Lake and S3, for users without a cluster.

A real cluster has its own jars and settings; nothing else in the core asks for these. And what only a session with a
JVM can tell: the streaming query that is running.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.extras import needs_extra

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

#: Keys from the session's settings, then the places in which boto3 looks too, such as a web identity or a container,
#: which S3A knows only in part by default.
S3A_CREDENTIALS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
)


def local_session_conf(*, memory: str = "2g") -> dict[str, str]:
    """The settings of an embedded session: jars, Delta, ``s3://`` paths as Glue writes them, time in UTC."""
    return {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.jars.excludes": ",".join(EXCLUDED_PACKAGES),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.aws.credentials.provider": ",".join(S3A_CREDENTIALS),
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
    """A Spark session on this machine, ready for Delta Lake and S3. ``conf`` adds to the settings and overrides.

    :raises MissingDependencyError: PySpark is not installed.
    """
    with needs_extra("local", "The embedded Spark"):
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

    # The workers are this Python, with this package and pyarrow in it, not the first one on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, Any] = {**local_session_conf(memory=memory), **(conf or {})}
    builder = SparkSession.builder.appName(app_name).master(master)
    if SparkContext._gateway is not None:  # a JVM is running already, and has its command line
        return builder.config(map=settings).getOrCreate()
    for_jvm = {name: str(value) for name, value in settings.items() if name.startswith("spark.")}
    with _submit_arguments(for_jvm):
        return builder.config(map={name: settings[name] for name in settings.keys() - for_jvm}).getOrCreate()


def cluster_session(app_name: str) -> SparkSession:
    """The session of the cluster that this process was submitted to, or of the Connect server in ``SPARK_REMOTE``.

    :raises MissingDependencyError: PySpark, or what its Connect client needs, is not installed.
    """
    with needs_extra("local", "A Spark job that no cluster runs"):
        from pyspark.sql import SparkSession
    with needs_extra("connect", "A session over Spark Connect"):
        return SparkSession.builder.appName(app_name).getOrCreate()


@contextmanager
def _submit_arguments(settings: Mapping[str, str]) -> Iterator[None]:
    """Hand the settings to a JVM that is started inside the block, in a file that only its owner can read.

    PySpark would put them on the JVM's command line, where every user of the machine can read them.
    """
    with tempfile.NamedTemporaryFile("w", prefix="spark-", suffix=".properties", encoding="ascii") as file:
        file.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())
        file.flush()
        before = os.environ.get("PYSPARK_SUBMIT_ARGS")
        own = f"--properties-file {shlex.quote(file.name)} --load-spark-defaults"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{own} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
            if before is not None:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _escaped(text: str) -> str:
    """A name or value as Java reads it from a properties file."""
    return "".join(
        # Java's characters are UTF-16 units.
        c if c.isascii() and (c.isalnum() or c in "._-/,") else "".join(f"\\u{unit:04x}" for unit in _utf16(c))
        for c in text
    )


def _utf16(character: str) -> tuple[int, ...]:
    encoded = character.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(encoded[i : i + 2]) for i in range(0, len(encoded), 2))


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


def python_of_workers() -> str:
    """The Python that Spark's workers run. A worker is asked: only there is it known what a name stands for."""
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import udf

    named = os.environ.get("PYSPARK_PYTHON", "python3")
    # Other threads than the one that made the session may have no active one.
    spark = SparkSession.getActiveSession() or getattr(SparkSession, "_instantiatedSession", None)
    if spark is None:
        return named
    # Without Arrow, which may be what they lack.
    executable = udf(lambda _: sys.executable, "string", useArrow=False)
    try:
        found = spark.range(1).select(executable("id")).first()
    except Exception:  # the workers cannot run any Python, or the session has ended
        return named
    return str(found[0]) if found else named


def _s3a_from_environment() -> dict[str, str]:
    """What boto3 takes from the environment and S3A does not: another endpoint than AWS's own, and the region."""
    settings = {}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        settings = {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings
