"""Where the deletion vectors of a table lie: files that Delta writes among the data files, and that are none."""

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


def vector_files(snapshot: Snapshot) -> Iterator[Location]:
    """Every file of deletion vectors that the log names, in its state or in the entries that are left."""
    state = snapshot.files.select("deletion_vector").unionByName(snapshot.removed.select("deletion_vector"))
    named = state.select("deletion_vector.*")
    if snapshot.segment.times:
        entries = snapshot.entries(sorted(snapshot.segment.times))
        for action in ("add", "remove"):
            named = named.unionByName(entries.select(f"{action}.deletionVector.*"))
    files = named.where("storageType IN ('u', 'p')").select("storageType", "pathOrInlineDv").distinct()
    for row in files.toLocalIterator():
        yield vector_file(snapshot.root, row.storageType, row.pathOrInlineDv)


def vector_file(root: Location, storage_type: str, path: str) -> Location:
    """The file that a descriptor names: by a UUID under the root (``u``), or by its whole path (``p``)."""
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


#: Delta writes base 85 in the letters of ZeroMQ, Python in those of Git.
_Z85_TO_B85 = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
