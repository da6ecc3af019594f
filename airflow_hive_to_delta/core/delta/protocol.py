"""What a Delta table asks of its readers and writers, and whether this package can read it at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_hive_to_delta.core.errors import UnsupportedTableError

#: Reader features with which the log says the same of files as without them, or whose actions the replay knows. Not
#: among them: catalogManaged (entries are elsewhere), redirectReaderWriter (so is the table), and types of columns that
#: this package has never compared.
_READ = frozenset(
    {
        *("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint"),
        *("vacuumProtocolCheck", "variantType", "variantType-preview", "variantShredding", "variantShredding-preview"),
    }
)
_MOST_READER_VERSION = 3


@dataclass(frozen=True)
class Protocol:
    """What the table asks of its readers and writers."""

    reader: int
    writer: int
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> Protocol:
        return cls(
            action["minReaderVersion"],
            action["minWriterVersion"],
            frozenset(action["readerFeatures"] or ()),
            frozenset(action["writerFeatures"] or ()),
        )


def check_readable(protocol: Protocol, table: str) -> None:
    """Refuse a table that asks for more of its readers than this package knows, as Delta does."""
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
