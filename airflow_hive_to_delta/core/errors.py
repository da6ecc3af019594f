"""What can go wrong, and whether trying again can help.

Every message names what was found, what was expected, and what to do about it. ``PermanentError`` fails a
table for good; ``TransientError`` may pass at the next try, so an orchestrator retries it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
)

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.models import VerifyResult


class HiveToDeltaError(Exception):
    """Base of every error this package raises on purpose."""


class PermanentError(HiveToDeltaError):
    """Trying again cannot help."""


class TransientError(HiveToDeltaError):
    """Trying again may help: throttling, a lost connection, a lost race."""


class UnsupportedTableError(PermanentError):
    """The table is not one that can become a Delta table in place (rule 45)."""


class SchemaError(PermanentError):
    """The columns of the catalog and of the files do not fit together, or are of a type nobody knows."""


class PartitionError(PermanentError):
    """A partition's value, folder or location is not what the table's partition columns say."""


class AccessDeniedError(PermanentError):
    """The storage or the catalog refused the identity. Denied is never taken for absent (rule 54)."""


class MissingError(PermanentError):
    """Something that must be there is not: a file, a bucket, a database."""


class VerificationError(PermanentError):
    """A Delta table is not its original. ``result`` has the numbers."""

    def __init__(self, message: str, result: VerifyResult) -> None:
        super().__init__(message)
        self.result = result


def is_refusal(error: Exception) -> bool:
    """Whether a table was looked at and cannot be converted as it is, in a plan and in a conversion alike.

    All else is a failure: trying again may help, or the identity could not look.
    """
    return isinstance(error, PermanentError) and not isinstance(error, AccessDeniedError)


#: By the name that an error found on an executor carries to the driver.
KINDS: dict[str, type[HiveToDeltaError]] = {
    kind.__name__: kind
    for kind in (
        *(PermanentError, UnsupportedTableError, SchemaError, PartitionError, AccessDeniedError, MissingError),
        TransientError,
    )
}

_DENIED = {"AccessDenied", "AccessDeniedException", "403", "Forbidden", "InvalidAccessKeyId",
           "SignatureDoesNotMatch", "UnrecognizedClientException",
           "AllAccessDisabled", "KMS.DisabledException"}  # fmt: skip
#: The credentials were good until a moment ago: a try with new ones may pass.
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired", "RequestTimeTooSkewed",
            "ExpiredAuthenticationToken"}  # fmt: skip
_MISSING = {"NoSuchKey", "NoSuchBucket", "404", "NotFound", "EntityNotFoundException"}
_TRANSIENT = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "InternalError",
              "InternalServiceException", "ServiceUnavailable", "OperationTimeoutException", "RequestTimeout",
              "500", "502", "503", "504", "409", "ConditionalRequestConflict", "OperationAborted",
              "ConcurrentModificationException"}  # fmt: skip

_DENIED_BY_SPARK = ("AccessDenied", "AccessControlException", "Permission denied", "Status Code: 403",
                    "AuthorizationPermissionMismatch", "PERMISSION_DENIED", "INSUFFICIENT_PERMISSIONS")  # fmt: skip


_RENEW = (
    "The credentials have expired. The next try takes them anew from where this process finds them; where they are "
    "fixed copies, in environment variables or a file, put new ones there first"
)


def is_expired(code: str) -> bool:
    """Whether an error code of AWS says that the credentials have expired.

    A HEAD request's answer has no body, and so no code but its status: of expired credentials that is 400.
    """
    return code in _EXPIRED or code == "400"


def of_aws(error: ClientError | BotoCoreError, doing: str) -> HiveToDeltaError:
    """The error of an AWS call in this package's terms. ``doing`` says what was tried, and on what."""
    if isinstance(error, ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        message = f"{doing}: {code}: {error.response.get('Error', {}).get('Message', '')}".rstrip(": ")
        if is_expired(code):
            maybe = "S3 gives no reason here, but most often it is this: " if code == "400" else ""
            return TransientError(f"{message}. {maybe}{_RENEW}")
        if code in _DENIED or status == 403:
            return AccessDeniedError(f"{message}. Grant this identity access, or run with another one")
        if code in _MISSING or status == 404:
            return MissingError(message)
        if code in _TRANSIENT or status >= 500:
            return TransientError(message)
        return PermanentError(message)
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return AccessDeniedError(
            f"{doing}: {error}. Give the process AWS credentials (a role, a profile or environment)"
        )
    if isinstance(error, NoRegionError):
        return PermanentError(
            f"{doing}: {error} Name it as the region of the call or the connection, or set AWS_DEFAULT_REGION"
        )
    if isinstance(error, ParamValidationError):
        return PermanentError(f"{doing}: {error}")
    return TransientError(f"{doing}: {error}")


@contextmanager
def aws_call(doing: str) -> Iterator[None]:
    """Turn what boto3 raises inside the block into this package's errors."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise of_aws(error, doing) from error


@contextmanager
def spark_call(doing: str) -> Iterator[None]:
    """Turn what Spark raises inside the block into this package's errors."""
    try:
        yield
    except Exception as error:
        if not is_sparks(error):
            raise
        raise of_spark(error, doing) from error


def is_sparks(error: Exception) -> bool:
    """Whether Spark raised it. Java's own exceptions come as Py4J's, which a Spark Connect client cannot import."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) or type(error).__name__ in {"Py4JError", "Py4JJavaError"}


def of_spark(error: Exception, doing: str) -> HiveToDeltaError:
    """The error of a Spark call in this package's terms. What the storage said is only in its text."""
    from pyspark.errors import AnalysisException

    text = str(error)
    lines = [line.strip(" :") for line in text.splitlines() if not line.startswith(("\tat ", "An error occurred"))]
    # Of a Python worker's traceback the last error counts, of all else the first line.
    raised = [line for line in lines if re.match(r"[\w.]+Error: ", line)] if "Traceback (most" in text else []
    message = f"{doing}: {next(filter(None, raised[-1:] + lines), type(error).__name__)[:500]}"
    if re.search(rf"\b({'|'.join(_EXPIRED)})\b", text):
        return TransientError(f"{message}. {_RENEW}")
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
    from airflow_hive_to_delta.core.session import python_of_workers

    python = python_of_workers()
    package = name.replace("_", "-")
    return (
        f"The Python of Spark's workers, {python}, has no module {name}. Install it there with "
        f"`{python} -m pip install {package}`, or set PYSPARK_PYTHON, before the session starts, to a Python on the "
        "workers that has airflow-hive-to-delta and pyarrow"
    )
