"""How a place on a storage is spelt, and how Delta wants it written (rules 14 to 16, 40, 52).

A path here is always as the storage has it, never URL-encoded, until :func:`add_path` writes it into the log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from airflow_hive_to_delta.core.errors import PermanentError

S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
KNOWN_SCHEMES = S3_SCHEMES | {"file", "hdfs", "viewfs", "abfs", "abfss", "wasb", "wasbs", "gs", "dbfs"}

# Left as they are in a URI path; everything else, `%` and `:` too, is escaped once (rules 14 and 15).
_SAFE = "/!$&'()*+,;=@"
# A colon before an @. A secret key may hold a slash; a path that holds an @ has no colon before it on S3.
_USER_INFO = re.compile(r"^(s3[an]?)://[^/@]*:[^@]*@|://[^/@]*:[^/@]*@")
_URI = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(//([^/]*))?(/.*)?$", re.DOTALL)
_NOT_NAMES = frozenset({"", ".", ".."})
_DELETION_VECTOR = re.compile(r"deletion_vector_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin")
_STAGING = re.compile(r"^(_temporary|_delta_log|_spark_metadata|\.hive-staging.*|\.spark-staging.*)$")


@dataclass(frozen=True)
class Location:
    """A place: scheme, bucket or host, and an absolute path without a trailing slash."""

    scheme: str
    authority: str
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path or '/'}"

    @property
    def key(self) -> str:
        """The object key on an object store."""
        return self.path.lstrip("/")

    @property
    def place(self) -> tuple[str, str, str]:
        """Equal for every spelling of one place (rule 16)."""
        return ("s3" if self.scheme in S3_SCHEMES else self.scheme, self.authority, self.path)

    def child(self, name: str) -> Location:
        return Location(self.scheme, self.authority, f"{self.path}/{name}")

    @property
    def parent(self) -> Location:
        """The folder that this lies in; the root of a storage is its own."""
        return Location(self.scheme, self.authority, self.path.rpartition("/")[0])

    def holds(self, other: Location) -> bool:
        """Whether ``other`` lies under this place. ``orders_v2`` is not under ``orders``."""
        return self.place[:2] == other.place[:2] and other.path.startswith(self.path + "/")

    def relative(self, other: Location) -> str:
        """The path of ``other``, which this place holds, from here."""
        return other.path[len(self.path) + 1 :]


def parse_location(text: str, what: str = "location") -> Location:
    """Read a location that a user or a metastore gave. It is not trusted (rule 52)."""
    if not isinstance(text, str):
        raise PermanentError(f"{what} is {text!r}, expected a path or a URI such as s3://bucket/folder")
    if redacted(text) != text:
        raise PermanentError(f"{what} {redacted(text)!r} carries user information; take it out")
    found = _URI.match(text)
    if found:
        scheme, authority, path = found[1].lower(), found[3] or "", found[4] or ""
    elif text.startswith("/"):
        scheme, authority, path = "file", "", text
    else:
        raise PermanentError(f"{what} is {text!r}, expected an absolute path or a URI such as s3://bucket/folder")
    if scheme not in KNOWN_SCHEMES:
        raise PermanentError(
            f"{what} {text!r} has the scheme {scheme!r}, expected one of {', '.join(sorted(KNOWN_SCHEMES))}"
        )
    if "@" in authority and scheme not in {"abfs", "abfss", "wasb", "wasbs"}:
        raise PermanentError(
            f"{what} in {scheme}://{authority.rpartition('@')[2]} carries user information; take it out"
        )
    if scheme == "file" and authority not in {"", "localhost"}:
        raise PermanentError(f"{what} {text!r} names the host {authority!r}, expected file:///path")
    if scheme in S3_SCHEMES and not authority:
        raise PermanentError(f"{what} {text!r} names no bucket")
    if scheme in S3_SCHEMES and ":" in authority:
        raise PermanentError(f"{what} has a colon in its bucket, as if it were user information; take it out")
    path = path.rstrip("/")
    if not _NOT_NAMES.isdisjoint(path.split("/")[1:]):
        raise PermanentError(
            f"{what} {text!r} has an empty, '.' or '..' segment, which no Hadoop file system can address"
        )
    if "\0" in path:
        raise PermanentError(f"{what} {text!r} has a NUL character")
    return Location(scheme, "" if scheme == "file" else authority, path)


def redacted(text: str) -> str:
    """A location without the user and password that somebody may have put into it."""
    return _USER_INFO.sub(r"\1://***@", text) if "@" in text else text


def check_allowed(location: Location, allowed_roots: Sequence[str]) -> None:
    """Refuse a place outside the allowed roots, when there are any (rule 52)."""
    if not allowed_roots:
        return
    roots = [parse_location(root, "allowed root") for root in allowed_roots]
    if not any(root.place == location.place or root.holds(location) for root in roots):
        raise PermanentError(f"{location} lies outside the allowed roots {', '.join(map(str, roots))}")


def add_path(file: Location, root: Location) -> str:
    """``add.path``: relative under the root, absolute elsewhere, a URI that readers decode once (rules 14 to 16)."""
    try:
        if root.holds(file):
            return quote(root.relative(file), safe=_SAFE)
        # One spelling per table: the root's own, or the one that every Spark knows.
        spelling = root.scheme if root.scheme in S3_SCHEMES else "s3a"
        scheme = spelling if file.scheme in S3_SCHEMES else file.scheme
        return f"{scheme}://{file.authority}{quote(file.path, safe=_SAFE)}"
    except UnicodeEncodeError:
        raise PermanentError(
            f"The name of {file.path!r} is not UTF-8, so no Delta log can hold it; rename the file"
        ) from None


def is_hidden(relative_path: str) -> bool:
    """Whether readers pass over this file, by its path from the table or partition it was listed in (rule 40)."""
    return any(_is_hidden_name(name) for name in relative_path.split("/"))


def is_hidden_outside(file: Location) -> bool:
    """The same for a file outside the table's root, where the folders above the partition are not ours to judge."""
    names = file.path.split("/")[1:]
    first = next((i for i, name in enumerate(names[:-1]) if "=" in name), len(names) - 1)
    return any(_is_hidden_name(name) for name in names[first:]) or any(map(_STAGING.match, names))


def is_deletion_vector(file: Location) -> bool:
    """Whether a file is one of those in which Delta marks rows as deleted. They lie among the data files."""
    return _DELETION_VECTOR.fullmatch(file.path.rpartition("/")[2]) is not None


def is_staged(file: Location) -> bool:
    """Whether a file lies in a folder that writers stage in, which no listing should have given."""
    return any(map(_STAGING.match, file.path.split("/")[1:-1]))


def _is_hidden_name(name: str) -> bool:
    return (
        (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith(("_$folder$", "._COPYING_"))
    )
