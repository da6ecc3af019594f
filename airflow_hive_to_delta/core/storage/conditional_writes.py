"""A check that a store refuses to overwrite an object, as ``If-None-Match: *`` demands (rule 2).

Some stores with the API of S3, and some proxies, accept the header and ignore it. Then two writers could both commit
one version of a log, and both would take it for a success. So before the first write to a bucket a small object is
written twice. The check does not find a store that first looks for an object and then writes it in a second step.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from threading import Lock

from botocore.exceptions import BotoCoreError, ClientError

from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.storage.base import RECORDS_FOLDER
from airflow_hive_to_delta.core.storage.uri import Location

#: Does something to the object at a location.
Request = Callable[[Location], object]
#: Folders of a table's log and of the records in it, which readers of Delta pass over.
_LOG = "/_delta_log/"


def require_conditional_writes(
    path: Location, endpoint: str, operation: str, *, put: Request, put_again: Request, delete: Request
) -> None:
    """Check, once per process, endpoint, bucket and operation, that a second write of an object is refused.

    :param path: what the caller is going to write. The check writes an object among the records of the same log, and
        deletes it again.
    :param operation: the request by which ``put_again`` completes its write.
    :param put: writes a small object, unless there is one; so does ``put_again``.
    :raises PermanentError: the second write was accepted.
    """
    bucket = (endpoint, path.authority, operation)
    with _lock:
        one_at_a_time = _locks.setdefault(bucket, Lock())
    with one_at_a_time:
        # Failures are not remembered, so that a store that was repaired is checked again.
        if bucket in _honoured:
            return
        probe = _probe_of(path)
        try:
            refused = _refuses_second_write(probe, put, put_again)
        finally:
            left = _delete(probe, delete)
        if not refused:
            raise PermanentError(
                f"The store at {endpoint} ignores If-None-Match on {operation}: it accepted a second write of {probe}, "
                f"so two writers could both write the same version of a table's log. {path} was not written. Use a "
                "version of the store that refuses the second write, as S3 does, take a proxy that drops the header "
                f"out of the way, or give the table a location on another store. {left}".rstrip()
            )
        if left:
            logger.warning(left)
        _honoured.add(bucket)


logger = logging.getLogger(__name__)

_lock = Lock()
_locks: dict[tuple[str, str, str], Lock] = {}
_honoured: set[tuple[str, str, str]] = set()


def _probe_of(path: Location) -> Location:
    """A new object, among the records of the log that the path lies in, or beside a path that lies in no log."""
    before, log, _ = path.path.rpartition(_LOG)
    folder = f"{before}{log}{RECORDS_FOLDER}" if log else path.path.rpartition("/")[0]
    return Location(path.scheme, path.authority, folder).child(f"conditional-write-{uuid.uuid4().hex}")


def _refuses_second_write(probe: Location, put: Request, put_again: Request) -> bool:
    _is_refused(probe, put)  # refused only if the client repeated the request after a lost answer
    return _is_refused(probe, put_again)


def _is_refused(probe: Location, write: Request) -> bool:
    try:
        write(probe)
    except ClientError as error:
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 412:
            return True
        raise
    return False


def _delete(probe: Location, delete: Request) -> str:
    """Delete the object, and return what to say if that fails. It is not an error: the identity may only write."""
    try:
        delete(probe)
    except (ClientError, BotoCoreError) as error:
        return (
            f"{probe}, written to see whether the store honours If-None-Match, could not be deleted ({error}). It is "
            "of no use: delete it, or give this identity the right to (s3:DeleteObject)"
        )
    return ""
