"""Locations on a storage: how they are parsed, compared, and written into a Delta log (rules 14 to 16, 40, 52).

A path here is always as the storage has it, never URL-encoded, until :func:`add_path` writes it into the log.

One location can be spelt in several ways (``s3://``, ``s3a://``, ``file:/``), and this is the only module that says
which spellings are equal. It does so at two strengths, each for Python and as a column of Spark:

- *Canonical*: equal for spellings that certainly name one location. By it files of a listing are found in a log.
- *Loose*: equal for all spellings that may name one location. By it files are kept from being deleted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from airflow_hive_to_delta.core.errors import PermanentError

if TYPE_CHECKING:
    from pyspark.sql import Column

S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
KNOWN_SCHEMES = S3_SCHEMES | {"file", "hdfs", "viewfs", "abfs", "abfss", "wasb", "wasbs", "gs", "dbfs"}

# Left as they are in a URI path; everything else, `%` and `:` too, is escaped once (rules 14 and 15).
_SAFE = "/!$&'()*+,;=@"
# A colon before an @. A secret key may hold a slash; a path that holds an @ has no colon before it on S3.
_USER_INFO = re.compile(r"^(s3[an]?)://[^/@]*:[^@]*@|://[^/@]*:[^/@]*@")
_URI = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(//([^/]*))?(/.*)?$", re.DOTALL)
_NOT_NAMES = frozenset({"", ".", ".."})
#: A name that begins or ends so may be that of a hidden file or folder (rule 40); no other name is.
HIDDEN_PREFIXES = ("_", ".")
HIDDEN_SUFFIXES = ("_$folder$", "._COPYING_")
_DELETION_VECTOR = re.compile(r"deletion_vector_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin")
_STAGING = re.compile(r"^(_temporary|_delta_log|_spark_metadata|\.hive-staging.*|\.spark-staging.*)$")

# Patterns and their replacements, one after the other. Python and Java take them alike, but for the reference `$1`.
_ABSOLUTE = (
    (r"^(?:file:(?://(?:localhost)?)?)?/", "file:///"),
    # Hadoop leaves an authority that is empty out.
    (r"^([A-Za-z][A-Za-z0-9+.-]*):/(?!/)", "$1:///"),
)
_CANONICAL = (*_ABSOLUTE, (r"^s3[an]://", "s3://"), (r"^file:/+", "file:///"))
_LOOSE = (
    *_CANONICAL,
    (r"(?i)^s3[an]?://", "s3://"),
    (r"(?i)^(hdfs|viewfs)://[^/]*", "hdfs://"),
    (r"(?i)^abfss?://", "abfs://"),
    (r"(?i)^wasbs?://", "wasb://"),
    (r"(?i)^gs://", "gs://"),
    (r"(?i)^dbfs:/+", "dbfs:///"),
    (r"(?i)^file:/+", "file:///"),
    (r"(?<!:)/{2,}", "/"),
)
_HAS_SCHEME = "^[A-Za-z][A-Za-z0-9+.-]*:"
_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Location:
    """A file or folder on a storage: scheme, bucket or host, and an absolute path without a trailing slash."""

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
    def store(self) -> tuple[str, str]:
        """The canonical scheme and the authority: equal for locations in one bucket or on one file system."""
        return _store(self.scheme, self.authority)

    @property
    def canonical(self) -> Location:
        """This location in canonical spelling (rule 16)."""
        return Location(*self.store, self.path)

    def child(self, name: str) -> Location:
        """The file or folder of a name in this folder."""
        return Location(self.scheme, self.authority, f"{self.path}/{name}")

    @property
    def parent(self) -> Location:
        """The folder that holds this location. The root of a storage is its own parent."""
        return Location(self.scheme, self.authority, self.path.rpartition("/")[0])

    def holds(self, other: Location) -> bool:
        """Whether ``other`` lies below this location. ``orders_v2`` is not below ``orders``."""
        return self.store == other.store and other.path.startswith(self.path + "/")

    def relative(self, other: Location) -> str:
        """The path from this location to ``other``, which must lie below it."""
        return other.path[len(self.path) + 1 :]


def parse_location(text: str, what: str = "location") -> Location:
    """Parse a location that a user or a metastore gave, as a URI or as an absolute local path.

    :param what: what the location is, for the message of an error.
    :raises PermanentError: it is not an absolute path, has an unknown scheme, carries credentials, or has a segment
        that no Hadoop file system can address (rule 52).
    """
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
    """The text of a location, with ``***`` instead of a user name and password in it."""
    return _USER_INFO.sub(r"\1://***@", text) if "@" in text else text


def canonical_uri(location: Location) -> str:
    """The canonical URI of a location, not URL-encoded: equal for every spelling of it (rule 16)."""
    scheme, authority = location.store
    return f"{scheme}://{authority}{location.path}"


def canonical_uri_column(column: str) -> Column:
    """The canonical URI of each file in a column, as :func:`canonical_uri` gives it for one.

    A URI that is spelt in an unusual way, such as with a scheme in capitals or a trailing slash, is left as it is. It
    is then not equal to the canonical URI of the location that :func:`parse_location` makes of it.

    :param column: the name of a column of URIs and absolute local paths, not URL-encoded.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return _rewritten_column(F.col(column), _CANONICAL)


def canonical_log_uri(path: str, root: Location) -> str:
    """The canonical URI of the file that an ``add.path`` or ``remove.path`` names (rules 14 and 16).

    :param path: URL-encoded: relative to the table's root, or absolute.
    :param root: the root of the table whose log has the path.
    :raises ValueError: the path is not URL-encoded.
    """
    decoded = decoded_path(path)
    if re.match(_HAS_SCHEME, path):
        return _rewritten(decoded, _CANONICAL)
    scheme, authority = root.store
    return f"{scheme}://{authority}{decoded}" if path.startswith("/") else f"{canonical_uri(root)}/{decoded}"


def canonical_log_uri_column(column: str, root: Location) -> Column:
    """The canonical URI of each file in a column of paths of a log, as :func:`canonical_log_uri` gives it for one.

    :param column: the name of a column of URL-encoded paths: relative to the table's root, or absolute.
    :param root: the root of the table whose log has the paths.
    """
    from pyspark.sql import functions as F  # noqa: N812

    decoded = decoded_path_column(column)
    scheme, authority = root.store
    return (
        F.when(F.col(column).rlike(_HAS_SCHEME), _rewritten_column(decoded, _CANONICAL))
        .when(F.col(column).startswith("/"), F.concat(F.lit(f"{scheme}://{authority}"), decoded))
        .otherwise(F.concat(F.lit(f"{canonical_uri(root)}/"), decoded))
    )


def decoded_path(path: str) -> str:
    """A path of a Delta log, URL-decoded once. It is a URI and not a form: a plus stays a plus.

    :raises ValueError: it has a per cent sign that begins no escape, or its escapes are not UTF-8.
    """
    if _NO_ESCAPE.search(path):
        raise ValueError(f"{path!r} has a per cent sign that is not followed by two hexadecimal digits")
    return unquote(path, errors="strict")


def decoded_path_column(column: str) -> Column:
    """The paths in a column of a Delta log, URL-decoded once, as :func:`decoded_path` does it with one."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.url_decode(F.replace(F.col(column), F.lit("+"), F.lit("%2B")))


def absolute_uri_column(column: Column) -> Column:
    """Each path in a column in the form ``scheme://authority/path``, where it is a URI or an absolute local path.

    The scheme stays as it is spelt; anything else than a URI or an absolute local path does too.
    """
    return _rewritten_column(column, _ABSOLUTE)


def loose_uri(uri: str) -> str:
    """A URI that is equal for all spellings that may name one location, as catalogs and logs of any writer have them.

    Different locations can have one loose URI, such as one path on two HDFS clusters. So it tells which files have to
    be kept, and never which files may be deleted.

    :param uri: a URI, canonical or not, or an absolute local path; not URL-encoded.
    """
    return _rewritten(uri, _LOOSE)


def loose_uri_column(column: str) -> Column:
    """The loose URI of each URI in a column, as :func:`loose_uri` gives it for one."""
    from pyspark.sql import functions as F  # noqa: N812

    return _rewritten_column(F.col(column), _LOOSE)


class LocationIndex:
    """Finds the innermost of some locations that holds a file."""

    def __init__(self, locations: Sequence[Location]) -> None:
        self._indexes = {(*location.store, location.path): index for index, location in enumerate(locations)}

    def find(self, uri: str) -> tuple[int, str] | None:
        """The index of the location that holds a file, and the file's path from there; None when no location does.

        :param uri: the file, in the form ``scheme://authority/path``. It is not checked as by :func:`parse_location`.
        """
        scheme, _, rest = uri.partition("://")
        authority, _, path = rest.partition("/")
        store = _store(scheme, authority)
        path = f"/{path}"
        cut = len(path)
        while (cut := path.rfind("/", 0, cut)) >= 0:
            folder = path[:cut]
            index = self._indexes.get((*store, folder))
            if index is None:  # a location without a host is on the session's own, which Spark fills in
                index = self._indexes.get((store[0], "", folder))
            if index is not None:
                return index, path[cut + 1 :]
        return None


def without_default_host(location: Location, root: Location) -> Location:
    """A location that Spark gave, without its host where ``root`` has the same scheme and names none.

    ``hdfs:///x`` is on the session's own host, which Spark fills in when it lists the files there.
    """
    is_default = location.scheme == root.scheme and not root.authority
    return replace(location, authority="") if is_default else location


def check_allowed(location: Location, allowed_roots: Sequence[str]) -> None:
    """Refuse a location outside the allowed roots (rule 52). Without any roots every location is allowed."""
    if not allowed_roots:
        return
    roots = [parse_location(root, "allowed root") for root in allowed_roots]
    if not any(root.canonical == location.canonical or root.holds(location) for root in roots):
        raise PermanentError(f"{location} lies outside the allowed roots {', '.join(map(str, roots))}")


def add_path(file: Location, root: Location) -> str:
    """The ``add.path`` of a file: relative below the table's root, absolute elsewhere, URL-encoded (rules 14 to 16).

    :raises PermanentError: the file's name is not UTF-8.
    """
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
    """Whether readers ignore a file, by its path from the table or partition that it was listed in (rule 40)."""
    return any(_is_hidden_name(name) for name in relative_path.split("/"))


def is_hidden_outside(file: Location) -> bool:
    """Whether readers ignore a file outside the table's root, whose partition's location is not known (rule 40).

    The first ``key=value`` folder is taken for the beginning of the partition. Above it a folder counts as hidden only
    if writers stage their files in it.
    """
    names = file.path.split("/")[1:]
    first = next((i for i, name in enumerate(names[:-1]) if "=" in name), len(names) - 1)
    return any(_is_hidden_name(name) for name in names[first:]) or any(map(_STAGING.match, names))


def is_deletion_vector(file: Location) -> bool:
    """Whether a file is one of Delta's deletion vectors, which lie among the data files, by its name."""
    return _DELETION_VECTOR.fullmatch(file.path.rpartition("/")[2]) is not None


def is_staged(file: Location) -> bool:
    """Whether a file lies in a folder in which writers stage their files."""
    return any(map(_STAGING.match, file.path.split("/")[1:-1]))


def _is_hidden_name(name: str) -> bool:
    # A folder such as _year=2024 is that of a partition column with such a name.
    is_partition = name.startswith("_") and "=" in name
    return (name.startswith(HIDDEN_PREFIXES) and not is_partition) or name.endswith(HIDDEN_SUFFIXES)


def _store(scheme: str, authority: str) -> tuple[str, str]:
    return "s3" if scheme in S3_SCHEMES else scheme, authority


def _rewritten(uri: str, rewrites: Sequence[tuple[str, str]]) -> str:
    for pattern, replacement in rewrites:
        uri = re.sub(pattern, replacement.replace("$1", r"\1"), uri)
    return uri


def _rewritten_column(uris: Column, rewrites: Sequence[tuple[str, str]]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return reduce(lambda text, rewrite: F.regexp_replace(text, *rewrite), rewrites, uris)
