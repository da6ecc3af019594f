"""An entry of a log without its files: who wrote it, and what identifies it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from airflow_hive_to_delta.core.delta.actions import DISTRIBUTION

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.storage.base import Storage
    from airflow_hive_to_delta.core.storage.uri import Location

#: The first line of an entry of ours, which may carry a text of the user's own, is read up to this length.
_LONGEST_LINE = 4 * 1024 * 1024
_BYTES_AFTER = 4096


@dataclass(frozen=True)
class Commit:
    """One entry of the log."""

    version: int
    #: The time that Delta uses for time travel, in milliseconds since the epoch.
    timestamp: int
    #: The entry's ``commitInfo``; empty when it has none.
    info: dict[str, Any]

    @property
    def ours(self) -> bool:
        """Whether this package wrote the entry, in a conversion or a sync."""
        return is_ours(self.info)

    @property
    def operation(self) -> str:
        """The name of the operation, such as ``WRITE`` or ``CONVERT``."""
        return str(self.info.get("operation", "an unnamed operation"))


@dataclass(frozen=True)
class EntryHead:
    """The beginning of an entry of the log."""

    #: Its first line; of a very long one the beginning.
    line: bytes
    #: What comes after it, up to some length: for entries that do not begin with a ``commitInfo``.
    rest: bytes

    @classmethod
    def read(cls, stream: BinaryIO) -> Self:
        """Read the beginning of an entry from a stream of it."""
        return cls(stream.readline(_LONGEST_LINE), stream.read(_BYTES_AFTER))

    @cached_property
    def commit_info(self) -> dict[str, Any] | None:
        """The ``commitInfo``; None when the first line is none."""
        try:
            info = json.loads(self.line)["commitInfo"]
        except (ValueError, LookupError, TypeError):
            return None
        return info if isinstance(info, dict) else None


def commit_info_of(storage: Storage, path: Location) -> dict[str, Any]:
    """The ``commitInfo`` at the beginning of an entry; empty when the entry begins with another action."""
    with storage.open(path) as stream:
        return EntryHead.read(stream).commit_info or {}


def is_ours(info: dict[str, Any]) -> bool:
    """Whether an entry with this ``commitInfo`` was written by this package, in a conversion or a sync."""
    return str(info.get("engineInfo", "")).startswith(f"{DISTRIBUTION}/")


def is_conversion(info: dict[str, Any]) -> bool:
    """Whether an entry with this ``commitInfo`` is a conversion by this package."""
    return info.get("operation") == "CONVERT" and is_ours(info)
