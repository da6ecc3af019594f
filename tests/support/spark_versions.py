"""The version of Spark that the tests run on, and the environment of Spark 3.5."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
import pytest

from airflow_hive_to_delta.core.spark.jars import JARS_VARIABLE
from tests.support.project import PROJECT

IS_SPARK_4 = int(pyspark.__version__.split(".")[0]) >= 4
_SPARK_35 = PROJECT / ".venv-spark35"
SPARK_35_PYTHON = _SPARK_35 / "bin" / "python"
#: The folder of Spark's jars.
JARS = PROJECT / ".jars" / "spark" if IS_SPARK_4 else Path(sys.prefix) / "jars"

#: Warnings of PySpark 3.5 about itself.
SPARK_35_WARNINGS = (
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
    "ignore:unclosed <socket:ResourceWarning",
)


def spark_35_variables() -> dict[str, str]:
    """The environment variables for SPARK_35_PYTHON: none of those by which this process finds its own Spark."""
    assert SPARK_35_PYTHON.exists(), f"{SPARK_35_PYTHON} is not there: `make {_SPARK_35.name}/.installed` sets it up"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTEST_"))}
    return {**kept, JARS_VARIABLE: str(_SPARK_35 / "jars"), "PYTHONPATH": str(PROJECT)}


def needs_spark_4(reason: str) -> pytest.MarkDecorator:
    """Skips a test on Spark 3.5.

    :param reason: what the test needs that only Spark 4 has.
    """
    return pytest.mark.skipif(not IS_SPARK_4, reason=f"only Spark 4 has this: {reason}")
