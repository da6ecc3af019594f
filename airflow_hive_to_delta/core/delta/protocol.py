"""The protocol of a Delta table: the features that it demands, and whether this package can read the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_hive_to_delta.core.errors import UnsupportedTableError

#: Reader features that do not change what the log says of files, or whose actions the replay knows. Not among them are
#: catalogManaged (the entries are elsewhere), redirectReaderWriter (the table is elsewhere), and features with types of
#: columns that this package has never compared.
_READ = frozenset(
    {
        *("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint"),
        *("vacuumProtocolCheck", "variantType", "variantType-preview", "variantShredding", "variantShredding-preview"),
    }
)
_MOST_READER_VERSION = 3


@dataclass(frozen=True)
class Protocol:
    """The versions and features that a table demands of its readers and writers."""

    reader: int
    writer: int
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> Protocol:
        """The contents of a ``protocol`` action."""
        return cls(
            action["minReaderVersion"],
            action["minWriterVersion"],
            frozenset(action["readerFeatures"] or ()),
            frozenset(action["writerFeatures"] or ()),
        )


def check_readable(protocol: Protocol, table: str) -> None:
    """Refuse a table with a reader version or feature that this package does not know.

    :param table: the table and its version, for the message.
    :raises UnsupportedTableError: the message names the version or the features.
    """
    if protocol.reader > _MOST_READER_VERSION:
        raise UnsupportedTableError(
            f"{table} asks for reader version {protocol.reader}, expected at most {_MOST_READER_VERSION}: this package "
            "cannot know what its log means. Take a newer version of this package that knows it"
        )
    # Up to version 2 a table names no features, and 2 stands for columnMapping.
    if unknown := sorted(protocol.reader_features - _READ):
        raise UnsupportedTableError(
            f"{table} has the reader feature(s) {', '.join(unknown)}, which this package does not know, so it cannot "
            "know which files and rows the table has. Take the feature off with ALTER TABLE … DROP FEATURE, or take a "
            "newer version of this package that knows it"
        )
