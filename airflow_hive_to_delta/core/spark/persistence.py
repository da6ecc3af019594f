"""Keeping DataFrames in Spark while they are used more than once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Persist a DataFrame while the block runs, so that no file is read twice.

    Serverless platforms cannot persist, and compute it again.
    """
    from pyspark.errors import PySparkException

    try:
        kept = frame.persist()
    except PySparkException as error:
        # The condition, which errors of this kind have in their text alone.
        if "NOT_SUPPORTED_WITH_SERVERLESS" not in str(error):
            raise
        yield frame
        return
    try:
        yield kept
    finally:
        kept.unpersist()
