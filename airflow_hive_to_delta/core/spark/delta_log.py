"""What only Delta Lake's own classes in the JVM can do with a log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.spark.session import has_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


def write_latest_checkpoint(spark: SparkSession, root: str, table_id: str) -> None:
    """Have Delta Lake write a checkpoint of the latest version of a table, as its writers do after some commits.

    A checkpoint only makes readers faster, so one that cannot be written is logged and is no error: over Spark Connect,
    on a Databricks runtime, whose classes have other names, or without the right to write.

    :param table_id: the id in the table's metadata. A checkpoint of another table is not written.
    """
    if not has_driver(spark):
        return
    try:
        jvm = spark._jvm
        assert jvm is not None
        delta = jvm.org.apache.spark.sql.delta.DeltaLog
        # Delta keeps the state of tables that this session has read, and would write that: an older version, or the
        # state of a table that was rolled back since.
        delta.invalidateCache(spark._jsparkSession, jvm.org.apache.hadoop.fs.Path(root))
        log = delta.forTable(spark._jsparkSession, root)
        if log.unsafeVolatileSnapshot().metadata().id() == table_id:
            log.checkpoint()
    except Exception as error:  # of py4j, or a TypeError where there is no such class
        logger.warning("No checkpoint was written at %s: %s", root, str(error).partition("\n")[0])
