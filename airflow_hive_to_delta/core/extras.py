"""The libraries that only some uses of this package need, which its extras bring."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_hive_to_delta.core.errors import MissingDependencyError

_DISTRIBUTION = "airflow-hive-to-delta"


@contextmanager
def needs_extra(extra: str, purpose: str) -> Iterator[None]:
    """Say how to install what is missing when an import inside the block fails.

    :param extra: the extra of this package that brings the libraries, such as ``local``.
    :param purpose: what needs them; the message begins with it.
    :raises MissingDependencyError: an import failed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingDependencyError(
            f"{purpose} needs libraries that are not installed here ({error}). "
            f"Install them: pip install '{_DISTRIBUTION}[{extra}]'"
        ) from error
