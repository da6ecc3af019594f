"""The version of Spark that the tests run on."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
import pytest

from tests.support.project import PROJECT

IS_SPARK_4 = int(pyspark.__version__.split(".")[0]) >= 4
#: Where Spark finds its jars. Those of Spark 3.5 are in its environment.
IVY = PROJECT / ".ivy" if IS_SPARK_4 else Path(sys.prefix) / "ivy"

#: Warnings of PySpark 3.5 about itself.
SPARK_35_WARNINGS = (
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
    "ignore:unclosed <socket:ResourceWarning",
)


def needs_spark_4(reason: str) -> pytest.MarkDecorator:
    """Skips a test on Spark 3.5.

    :param reason: what the test needs that only Spark 4 has.
    """
    return pytest.mark.skipif(not IS_SPARK_4, reason=f"only Spark 4 has this: {reason}")
