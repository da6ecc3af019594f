"""Whether this package may write to a Delta table as it is now (rule 13), and the protocol that a change asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.errors import UnsupportedTableError
from airflow_hive_to_delta.core.schema.types import walk_fields

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.delta.snapshot import Protocol, Snapshot

#: Features that ask nothing of a writer which adds and removes whole files and leaves all else as it is; some only
#: while no column or property makes use of them, which :func:`check_writable` looks at.
_UNDERSTOOD = frozenset(
    {
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"),
        *("identityColumns", "allowColumnDefaults", "deletionVectors", "domainMetadata", "inCommitTimestamp"),
        *("timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck"),
    }
)
#: What each writer version stands for, up to 6; from 7 on features are named one by one.
_BY_WRITER_VERSION = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
#: Marks on a column that every row written must obey; files of Hive have not been checked for them.
_MARKS = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "CURRENT_DEFAULT": "a default value",
}


def check_writable(snapshot: Snapshot, *, removes: bool) -> None:
    """Refuse a table that asks more of its writers than this package does."""
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
    """Refuse a table that lets only writers which know all its features delete files (``vacuumProtocolCheck``)."""
    if "vacuumProtocolCheck" in snapshot.protocol.writer_features and (unknown := _unknown(snapshot.protocol)):
        raise UnsupportedTableError(
            f"{snapshot.root} at version {snapshot.version} {unknown}, and asks those who delete files to know all its "
            "features (vacuumProtocolCheck). Nothing was deleted; vacuum it with a writer that knows them"
        )


def _unknown(protocol: Protocol) -> str | None:
    """What a table asks of its writers that this package does not know."""
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
    """What ``commitInfo`` must say first when the table keeps its times in the log: later than the entry before it.

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
