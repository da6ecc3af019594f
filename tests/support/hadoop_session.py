"""A process with a Spark session on a Hadoop cluster, for functions of tests: theirs has another metastore."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from airflow_hive_to_delta.core.spark.session import local_session
from tests.support.jvm_options import FAST_START

T = TypeVar("T")
#: Who works on the lake: an account of HDFS that is not its superuser.
USER = "etl"


@contextmanager
def hadoop_session(metastore: str, conf_dir: Path, folder: Path) -> Iterator[Callable[..., Any]]:
    """A function that calls another one with arguments where the session is, and returns what that returns.

    :param metastore: the address of the Hive metastore.
    :param conf_dir: the settings of Hadoop's clients.
    :param folder: for the session's own files.
    """
    # A process of its own kind, for a forked one would have the sockets and the JVM of this one.
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _open, (metastore, str(conf_dir), str(folder)))
    with pool:
        pool.submit(os.getpid).result()  # which starts it now, and not in the middle of a test
        yield lambda function, *arguments: pool.submit(_call, function, arguments).result()
        pool.submit(_stop).result()


def _open(metastore: str, conf_dir: str, folder: str) -> None:
    os.environ.update(HADOOP_CONF_DIR=conf_dir, HADOOP_USER_NAME=USER)
    session = local_session(
        "on-premises",
        master="local[2]",
        memory="1g",
        conf={
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": metastore,
            "spark.sql.warehouse.dir": "/warehouse",
            "spark.local.dir": folder,
            "spark.driver.extraJavaOptions": f"{FAST_START} -XX:ReservedCodeCacheSize=256m",
            "spark.sql.shuffle.partitions": "1",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
        },
    )
    session.sparkContext.setLogLevel("ERROR")


def _call(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    assert session is not None
    return function(session, *arguments)


def _stop() -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    assert session is not None
    session.stop()
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # its JVM ends with its input
    gateway.proc.wait()
