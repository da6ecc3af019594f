"""Counting footers while executors read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.progress import counting
from airflow_hive_to_delta.core.spark.session import task_counter

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession


@contextmanager
def counting_footers(spark: SparkSession, files: int) -> Iterator[Accumulator[int] | None]:
    """An accumulator for tasks of Spark, whose value is part of the footers read while the block runs.

    Spark adds what a task has counted when the task ends. Over Spark Connect there are no accumulators, and None is
    given: the footers of a table are then counted when all of them have been read.

    :param files: of the table. No more are counted, though a task that Spark runs again counts again.
    """
    counter = task_counter(spark)
    if counter is None:
        yield None
        return
    with counting("footers_read", lambda: min(counter.value, files)):
        yield counter
