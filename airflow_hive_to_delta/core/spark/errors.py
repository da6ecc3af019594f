"""Errors of Spark in this package's terms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_hive_to_delta.core.errors import (
    EXPIRED_CODES,
    RENEW_CREDENTIALS,
    AccessDeniedError,
    HiveToDeltaError,
    MissingError,
    PermanentError,
    TransientError,
)
from airflow_hive_to_delta.core.spark.session import python_of_workers

_DENIED_BY_SPARK = ("AccessDenied", "AccessControlException", "Permission denied", "Status Code: 403",
                    "AuthorizationPermissionMismatch", "PERMISSION_DENIED", "INSUFFICIENT_PERMISSIONS")  # fmt: skip


@contextmanager
def spark_call(doing: str) -> Iterator[None]:
    """Turn what Spark raises inside the block into this package's errors."""
    try:
        yield
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise translate_spark_error(error, doing) from error


def is_spark_error(error: Exception) -> bool:
    """Whether Spark raised it. Java's own exceptions come as Py4J's, which a Spark Connect client cannot import."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) or type(error).__name__ in {"Py4JError", "Py4JJavaError"}


def translate_spark_error(error: Exception, doing: str) -> HiveToDeltaError:
    """The error of a Spark call in this package's terms. What the storage said is only in its text."""
    from pyspark.errors import AnalysisException

    text = str(error)
    lines = [line.strip(" :") for line in text.splitlines() if not line.startswith(("\tat ", "An error occurred"))]
    # Of a Python worker's traceback the last error counts, of all else the first line.
    raised = [line for line in lines if re.match(r"[\w.]+Error: ", line)] if "Traceback (most" in text else []
    message = f"{doing}: {next(filter(None, raised[-1:] + lines), type(error).__name__)[:500]}"
    if re.search(rf"\b({'|'.join(EXPIRED_CODES)})\b", text):
        return TransientError(f"{message}. {RENEW_CREDENTIALS}")
    if missing := _MISSING_MODULE.search(text):
        return PermanentError(f"{doing}: {_without_module(missing[1] or missing[2].lower())}")
    if any(words in text for words in _DENIED_BY_SPARK):
        return AccessDeniedError(f"{message}. Grant the session's identity access, or run with another one")
    if "NoSuchBucket" in text or "UnknownStoreException" in text:
        return MissingError(message)
    # The second is raise_error() in a query of ours, about its input.
    permanent = isinstance(error, AnalysisException) or "USER_RAISED_EXCEPTION" in text
    return PermanentError(message) if permanent else TransientError(message)


#: As Python says it, or PySpark where it needs the package itself.
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w]+)|PACKAGE_NOT_INSTALLED\] (\w+)")


def _without_module(name: str) -> str:
    """What to do about a module that Spark's Python workers lack."""
    python = python_of_workers()
    package = name.replace("_", "-")
    return (
        f"The Python of Spark's workers, {python}, has no module {name}. Install it there with "
        f"`{python} -m pip install {package}`, or set PYSPARK_PYTHON, before the session starts, to a Python on the "
        "workers that has airflow-hive-to-delta and pyarrow"
    )
