"""Errors of AWS, translated into those of this package.

boto3 is imported where it is used: a cluster on premises need not have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.errors import (
    EXPIRED_CODES,
    RENEW_CREDENTIALS,
    AccessDeniedError,
    HiveToDeltaError,
    MissingError,
    PermanentError,
    TransientError,
)

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_DENIED = {"AccessDenied", "AccessDeniedException", "403", "Forbidden", "InvalidAccessKeyId",
           "SignatureDoesNotMatch", "UnrecognizedClientException",
           "AllAccessDisabled", "KMS.DisabledException"}  # fmt: skip
_MISSING = {"NoSuchKey", "NoSuchBucket", "404", "NotFound", "EntityNotFoundException"}
_TRANSIENT = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "InternalError",
              "InternalServiceException", "ServiceUnavailable", "OperationTimeoutException", "RequestTimeout",
              "500", "502", "503", "504", "409", "ConditionalRequestConflict", "OperationAborted",
              "ConcurrentModificationException"}  # fmt: skip


def error_code(error: BaseException) -> str:
    """The error code of AWS in an exception of boto3; empty when it has none."""
    response: Mapping[str, Any] = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def http_status(error: Exception) -> int:
    """The HTTP status in an exception of boto3; 0 when it has none."""
    response: Mapping[str, Any] = getattr(error, "response", None) or {}
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_expired(code: str) -> bool:
    """Whether an error code of AWS says that the credentials have expired.

    The answer to a HEAD request has no body, so its status is taken for the code: 400 for expired credentials.
    """
    return code in EXPIRED_CODES or code == "400"


def translate_aws_error(error: ClientError | BotoCoreError, doing: str) -> HiveToDeltaError:
    """The error of this package for one of an AWS call.

    :param doing: what the call was for, as the beginning of the message.
    """
    from botocore.exceptions import (
        ClientError,
        NoCredentialsError,
        NoRegionError,
        ParamValidationError,
        PartialCredentialsError,
    )

    if isinstance(error, ClientError):
        code, status = error_code(error), http_status(error)
        message = f"{doing}: {code}: {error.response.get('Error', {}).get('Message', '')}".rstrip(": ")
        if is_expired(code):
            maybe = "S3 gives no reason here, but most often it is this: " if code == "400" else ""
            return TransientError(f"{message}. {maybe}{RENEW_CREDENTIALS}")
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
    """Translate what boto3 raises inside the block, as :func:`translate_aws_error` does."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise translate_aws_error(error, doing) from error
