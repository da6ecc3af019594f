"""Checks that this package may write to a Delta table (rule 13), and the protocol that a change needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.errors import UnsupportedTableError
from airflow_hive_to_delta.core.schema.types import walk_fields

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.delta.protocol import Protocol
    from airflow_hive_to_delta.core.delta.snapshot import Snapshot

#: Features that demand nothing of a writer which only adds and removes whole files. Of some that is true only while no
#: column or property uses them, which :func:`check_writable` checks.
_UNDERSTOOD = frozenset(
    {
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"),
        *("identityColumns", "allowColumnDefaults", "deletionVectors", "domainMetadata", "inCommitTimestamp"),
        *("timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck"),
    }
)
#: The features that each writer version implies, up to 6. From 7 on the protocol names its features.
_BY_WRITER_VERSION = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
#: Metadata of a column that every written row must obey. Rows in files of Hive were not checked for it.
_MARKS = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "CURRENT_DEFAULT": "a default value",
}


def check_writable(snapshot: Snapshot, *, removes: bool) -> None:
    """Refuse a table that demands more of its writers than this package does.

    :param removes: whether files are to be removed.
    :raises UnsupportedTableError: the message names the feature, the property or the column.
    """
    metadata = snapshot.metadata
    where = f"{snapshot.root} at version {snapshot.version}"
    if unknown := _unknown(snapshot.protocol):
        _refuse(where, unknown)
    if constraints := [name for name in metadata.configuration if name.startswith("delta.constraints.")]:
        _refuse(where, f"has CHECK constraints ({', '.join(sorted(constraints))}), which files of Hive may not hold")
    for path, column in walk_fields(metadata.schema):
        if not column["nullable"]:
            _refuse(where, f"takes no nulls in the column {'.'.join(path)}, and files of Hive may have some")
        for mark, what in _MARKS.items():
            if mark in column["metadata"]:
                _refuse(where, f"has {what} on the column {'.'.join(path)}, which files of Hive may not hold")
    if metadata.configuration.get("delta.columnMapping.mode", "none") == "id":
        _refuse(where, "finds its columns by id (delta.columnMapping.mode=id), and files of Hive have none")
    if removes and metadata.configuration.get("delta.appendOnly", "false").lower() == "true":
        _refuse(where, "is append-only (delta.appendOnly=true), and files are to be removed")


def check_vacuum(snapshot: Snapshot) -> None:
    """Refuse to delete files of a table with ``vacuumProtocolCheck`` and a feature that this package does not know.

    :raises UnsupportedTableError: the message names the features.
    """
    if "vacuumProtocolCheck" in snapshot.protocol.writer_features and (unknown := _unknown(snapshot.protocol)):
        raise UnsupportedTableError(
            f"{snapshot.root} at version {snapshot.version} {unknown}, and asks those who delete files to know all its "
            "features (vacuumProtocolCheck). Nothing was deleted; vacuum it with a writer that knows them"
        )


def _unknown(protocol: Protocol) -> str | None:
    """The version or the features that this package does not know, for a message; None when it knows them all."""
    if protocol.writer > 7 or protocol.reader > 3:
        return f"asks for protocol {protocol.reader}/{protocol.writer}, expected at most 3/7"
    unknown = sorted((protocol.writer_features | protocol.reader_features) - _UNDERSTOOD)
    return f"has the table feature(s) {', '.join(unknown)}" if unknown else None


def protocol_with(current: Protocol, features: Collection[str]) -> dict[str, Any] | None:
    """The ``protocol`` action that adds these features; None when the table has them all."""
    implied = {name for version, names in _BY_WRITER_VERSION.items() if version <= current.writer for name in names}
    written = current.writer_features if current.writer >= 7 else implied
    read = current.reader_features if current.reader >= 3 else ({"columnMapping"} if current.reader >= 2 else set())
    if set(features) <= written and set(features) <= set(read):
        return None
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": sorted({*read, *features}),
            "writerFeatures": sorted({*written, *features}),
        }
    }


def in_commit_timestamp(snapshot: Snapshot, now: int, step: int) -> Mapping[str, int]:
    """The fields that a ``commitInfo`` must begin with when the table has in-commit timestamps; none otherwise.

    :param now: the time in milliseconds since the epoch. The timestamp is later than that of the entry before it.
    :param step: how many entries of the same sync come before this one.
    """
    if snapshot.metadata.configuration.get("delta.enableInCommitTimestamps", "false").lower() != "true":
        return {}
    return {"inCommitTimestamp": max(now, snapshot.history[0].timestamp + 1) + step}


def _refuse(where: str, found: str) -> None:
    raise UnsupportedTableError(
        f"{where} {found}. This package adds and removes whole files and would break that promise, so nothing was "
        "written. Take it off the table, or load the new Hive files with Delta's own writers"
    )
