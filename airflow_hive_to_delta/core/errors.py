"""What can go wrong, and whether trying again can help.

Every message names what was found, what was expected, and what to do about it. ``PermanentError`` fails a
table for good; ``TransientError`` may pass at the next try, so an orchestrator retries it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.results import VerifyResult


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


class MissingDependencyError(PermanentError):
    """A library that an extra of this package brings is not installed. The message names the ``pip install``."""


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

#: Error codes of AWS for credentials that were good until a moment ago: a try with new ones may pass.
EXPIRED_CODES = {
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "ExpiredAuthenticationToken",
}

RENEW_CREDENTIALS = (
    "The credentials have expired. The next try takes them anew from where this process finds them; where they are "
    "fixed copies, in environment variables or a file, put new ones there first"
)
