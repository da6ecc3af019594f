"""The files of a table's deletion vectors, which Delta writes among the data files."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.storage.uri import Location, parse_location

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.delta.snapshot import Snapshot

#: Delta writes base 85 in the alphabet of ZeroMQ, Python in that of Git.
_Z85_TO_B85 = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)


def vector_files(snapshot: Snapshot) -> Iterator[Location]:
    """Every file with deletion vectors that the log names, in its state or in an entry that still exists."""
    state = snapshot.files.select("deletion_vector").unionByName(snapshot.removed.select("deletion_vector"))
    named = state.select("deletion_vector.*")
    if snapshot.segment.times:
        actions = snapshot.read_commits(sorted(snapshot.segment.times))
        for action in ("add", "remove"):
            named = named.unionByName(actions.select(f"{action}.deletionVector.*"))
    files = named.where("storageType IN ('u', 'p')").select("storageType", "pathOrInlineDv").distinct()
    for row in files.toLocalIterator():
        yield vector_file(snapshot.root, row.storageType, row.pathOrInlineDv)


def vector_file(root: Location, storage_type: str, path: str) -> Location:
    """The file that the descriptor of a deletion vector names.

    :param storage_type: ``u`` for a UUID that names a file under the root, ``p`` for an absolute path.
    :param path: the UUID in base 85, after the name of a folder if it lies in one; or the path.
    :raises PermanentError: the UUID is malformed.
    """
    if storage_type == "p":
        return parse_location(unquote(path), "path of a deletion vector")
    try:
        name = uuid.UUID(bytes=base64.b85decode(path[-20:].translate(_Z85_TO_B85)))
    except ValueError as error:
        raise PermanentError(
            f"The deletion vector {path!r} of {root} is not named by 20 characters of base 85; the log is not whole"
        ) from error
    folder = root.child(path[:-20]) if path[:-20] else root
    return folder.child(f"deletion_vector_{name}.bin")
