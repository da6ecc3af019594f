"""Databases in the Hive metastore of the tests' session."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def new_database(spark: SparkSession, prefix: str = "db") -> Iterator[str]:
    """The name of a new database, which is dropped with all its tables when the block ends."""
    name = f"{prefix}_{uuid.uuid4().hex[:12]}"
    spark.sql(f"CREATE DATABASE {name}")
    yield name
    spark.sql(f"DROP DATABASE {name} CASCADE")
