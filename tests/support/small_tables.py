"""Small tables, which the driver deals with itself: how many Spark jobs they take, and how to have Spark do it all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta.core import arrow_columns
from airflow_hive_to_delta.core.delta import local_frames
from airflow_hive_to_delta.core.delta.log import driver_reader
from airflow_hive_to_delta.core.parquet import describe
from tests.support.spark_versions import IS_SPARK_4

#: Set in the environment of ``make soak``: Spark does everything, as it does with large tables.
ALL_ON_SPARK = "HIVE_TO_DELTA_ALL_ON_SPARK"


def leave_nothing_to_the_driver() -> None:
    """Have Spark do in this process what the driver does for small tables."""
    driver_reader.MOST_BYTES = local_frames.MOST_ROWS = describe.FEW_FILES = arrow_columns.MOST_FILES = -1


@contextmanager
def count_jobs(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """Count the jobs that this thread starts in the block. The answer is for after the block."""
    if os.environ.get(ALL_ON_SPARK):
        pytest.skip("Spark does everything")
    if not IS_SPARK_4:
        pytest.skip("only Spark 4 has this: a local relation of an Arrow table, which needs no job")
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
        patch.setattr(driver_reader, "MOST_BYTES", -1)
        yield


@contextmanager
def no_small_frames() -> Iterator[None]:
    """Collect no rows of a DataFrame, as if it had many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_frames, "MOST_ROWS", -1)
        patch.setattr(arrow_columns, "MOST_FILES", -1)
        yield


@contextmanager
def large_checkpoints() -> Iterator[None]:
    """Have the driver read every checkpoint in part, as it does with large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver_reader, "MOST_CHECKPOINT_BYTES", 0)
        yield


@contextmanager
def described_on_executors() -> Iterator[None]:
    """Have the executors read all footers, as those of many files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(describe, "FEW_FILES", -1)
        yield
