"""How many Spark jobs something starts."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def count_jobs(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """Count the jobs that this thread starts in the block. The answer is for after the block."""
    context = spark.sparkContext
    group = uuid.uuid4().hex
    context.setJobGroup(group, "counted")
    try:
        yield lambda: len(context.statusTracker().getJobIdsForGroup(group))
    finally:
        context.setJobGroup("", "")
