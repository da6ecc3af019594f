"""What can go wrong, and whether trying again can help.

Every message names what was found, what was expected, and what to do about it. ``PermanentError`` fails a
table for good; ``TransientError`` may pass at the next try, so an orchestrator retries it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class HiveToDeltaError(Exception):
    """Base of every error this package raises on purpose."""


class PermanentError(HiveToDeltaError):
    """Trying again cannot help."""


class TransientError(HiveToDeltaError):
    """Trying again may help: throttling, a lost connection, a lost race."""


class WindowClosedError(TransientError):
    """The time in which tables may be worked on has ended before the work on this one began."""


class UnsupportedTableError(PermanentError):
    """The table is not one that can become a Delta table in place (rule 45)."""


class SchemaError(PermanentError):
    """The columns of the catalog and of the files do not fit together, or are of an unknown type."""


class PartitionError(PermanentError):
    """A partition's value, folder or location is not what the table's partition columns say."""


class AccessDeniedError(PermanentError):
    """The storage or the catalog refused the identity. Denied is never taken for absent (rule 54)."""


class UnreachableStorageError(AccessDeniedError):
    """This process has no access of its own to a storage: it has no client for it, or finds no credentials at all.

    It says nothing of a single file. Where a Python worker raises it, Spark's own reader may still read the files.
    """


class MissingError(PermanentError):
    """Something that must be there is not: a file, a bucket, a database."""


class MissingDependencyError(PermanentError):
    """A library that an extra of this package brings is not installed. The message names the ``pip install``."""


class StaleFileListError(PermanentError):
    """A list of files is too old, or the files are no longer what was listed. Listing them again helps."""


@dataclass(frozen=True)
class ErrorDescription:
    """An exception as plain data, for results that travel as JSON."""

    #: Name of the exception's class, such as ``StaleFileListError``.
    kind: str
    text: str
    #: Whether trying again may help.
    retryable: bool

    def to_fields(self) -> dict[str, Any]:
        """The fields by which every result says that it has failed: ``error``, ``retryable`` and ``error_kind``."""
        return {"error": self.text, "retryable": self.retryable, "error_kind": self.kind}


def describe_error(error: BaseException, *, permanent: tuple[type[BaseException], ...] = ()) -> ErrorDescription:
    """Describe an exception by its kind, its text, and whether trying again may help.

    :param permanent: classes of exceptions that trying again cannot help, besides :class:`PermanentError`.
    :return: the text is the name of the class where the exception has none.
    """
    kind = type(error).__name__
    return ErrorDescription(kind, str(error) or kind, retryable=not isinstance(error, (PermanentError, *permanent)))


def name_error(text: str, kind: str | None) -> str:
    """The text of an error, with the name of its class before it unless that is one of this package's.

    A message of this package says all. That of another error may be no more than ``'day'``, of a ``KeyError``.

    :param kind: the name of the class; None: it is not known.
    """
    return text if kind is None or kind == text or kind in _own_kinds(HiveToDeltaError) else f"{kind}: {text}"


def _own_kinds(base: type[HiveToDeltaError]) -> set[str]:
    return {base.__name__}.union(*map(_own_kinds, base.__subclasses__()))


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
        *(StaleFileListError, UnreachableStorageError, TransientError),
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
