"""Small tables, which the driver deals with itself: how many Spark jobs they take, and how to have Spark do it all."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta.core.delta import local_frames, small_log


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


@contextmanager
def no_small_logs() -> Iterator[None]:
    """Have Spark read every log, as it does with large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_log, "MOST_BYTES", -1)
        yield


@contextmanager
def no_small_frames() -> Iterator[None]:
    """Collect no rows of a DataFrame, as if it had many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_frames, "MOST_ROWS", -1)
        yield
