"""Errors of Spark, translated into those of this package."""

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
#: What comes before the message of an error of Java that ended a job, where Spark does not take it away.
_JOB_ABORTED = re.compile(
    r"^(org\.apache\.spark\.SparkException: )?Job aborted due to stage failure: Task .*\(TID \d+\) \([^)]*\): "
    r"(java\.lang\.RuntimeException: )?"
)
#: In an error of raise_error() in a query of this package, which checks its input: in Spark 4, and in Spark 3.5.
_RAISED_BY_QUERY = ("USER_RAISED_EXCEPTION", "org.apache.spark.sql.catalyst.expressions.RaiseError")
#: In an error of Python, or in one of PySpark for packages that it needs itself.
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w]+)|PACKAGE_NOT_INSTALLED\] (\w+)")


@contextmanager
def spark_call(doing: str) -> Iterator[None]:
    """Translate what Spark raises inside the block, as :func:`translate_spark_error` does. Other errors stay.

    :param doing: what the block does, as the beginning of messages.
    """
    try:
        yield
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise translate_spark_error(error, doing) from error


def is_spark_error(error: Exception) -> bool:
    """Whether Spark raised the error.

    Exceptions of Java are errors of Py4J, which is not installed with a client of Spark Connect.
    """
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) or type(error).__name__ in {"Py4JError", "Py4JJavaError"}


def translate_spark_error(error: Exception, doing: str) -> HiveToDeltaError:
    """The error of this package for one that Spark raised. Errors of a storage are recognised by Spark's text only.

    :param doing: what Spark was called for, as the beginning of the message.
    """
    from pyspark.errors import AnalysisException

    text = str(error)
    lines = [
        _JOB_ABORTED.sub("", line.strip(" :"))
        for line in text.splitlines()
        if not line.startswith(("\tat ", "An error occurred"))
    ]
    # The message of a Python worker's traceback is its last error, that of any other error its first line.
    raised = [line for line in lines if re.match(r"[\w.]+Error: ", line)] if "Traceback (most" in text else []
    message = f"{doing}: {next(filter(None, raised[-1:] + lines), type(error).__name__)[:500]}"
    if re.search(rf"\b({'|'.join(EXPIRED_CODES)})\b", text):
        return TransientError(f"{message}. {RENEW_CREDENTIALS}")
    if missing := _MISSING_MODULE.search(text):
        return PermanentError(f"{doing}: {_without_module(missing[1] or missing[2].lower())}")
    if any(denied in text for denied in _DENIED_BY_SPARK):
        return AccessDeniedError(f"{message}. Grant the session's identity access, or run with another one")
    if "NoSuchBucket" in text or "UnknownStoreException" in text:
        return MissingError(message)
    permanent = isinstance(error, AnalysisException) or any(raised in text for raised in _RAISED_BY_QUERY)
    return PermanentError(message) if permanent else TransientError(message)


def _without_module(name: str) -> str:
    """The message for a module that is not installed for Spark's Python workers."""
    python = python_of_workers()
    package = name.replace("_", "-")
    return (
        f"The Python of Spark's workers, {python}, has no module {name}. Install it there with "
        f"`{python} -m pip install {package}`, or set PYSPARK_PYTHON, before the session starts, to a Python on the "
        "workers that has airflow-hive-to-delta and pyarrow"
    )
