"""What only Delta Lake's own classes in the JVM can do with a log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.spark.session import has_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


def write_latest_checkpoint(spark: SparkSession, root: str) -> bool:
    """Have Delta Lake write a checkpoint of the latest version of a table, as its writers do after some commits.

    It only makes readers faster, so that nothing is lost if it cannot be written: over Spark Connect, on a Databricks
    runtime, whose classes have other names, or without the right to. The log then says why.

    :returns: whether it was written.
    """
    if not has_driver(spark):
        return False
    try:
        delta = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
        delta.forTable(spark._jsparkSession, root).checkpoint()
    except Exception as error:  # of py4j, or a TypeError where there is no such class
        logger.warning("No checkpoint was written at %s: %s", root, str(error).partition("\n")[0])
        return False
    return True
