"""The version of Spark that the tests run on."""

from __future__ import annotations

import pyspark
import pytest

IS_SPARK_4 = int(pyspark.__version__.split(".")[0]) >= 4

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
