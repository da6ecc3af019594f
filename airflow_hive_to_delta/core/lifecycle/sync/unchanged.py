"""Finding out without Spark that nothing has changed in a table whose log and files are small enough for the driver.

Most syncs of most tables find nothing new. Only that is found out here; :mod:`changes` finds what has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.delta import local_frames
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.parquet.add_actions import FileLocator
from airflow_hive_to_delta.core.storage.uri import canonical_uri

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.delta.snapshot import Snapshot
    from airflow_hive_to_delta.core.files import ListedFiles
    from airflow_hive_to_delta.core.lifecycle.ledger import Ledger
    from airflow_hive_to_delta.core.options import ConversionOptions


def find_unchanged_files(
    snapshot: Snapshot,
    ledger: Ledger,
    files: ListedFiles,
    partition_types: dict[str, str],
    options: ConversionOptions,
) -> list[dict[str, Any]] | None:
    """The files of a table that is as Hive has it, file by file, and that nobody but this package has ever written to.

    None where a file differs or cannot be part of the table, where others have written or may have, and where there are
    too many files to look at.
    """
    live = snapshot.live_files
    if live is None or not ledger.is_all_ours:
        return None
    listed = files.collect_few(local_frames.MOST_ROWS)
    if listed is None:
        return None
    locator = FileLocator(snapshot.root, partition_types, options)
    logged = {file["key"]: file for file in live}
    found: dict[str, dict[str, Any]] = {}
    for file in listed:
        try:
            placement = locator.locate(file)
        except HiveToDeltaError:
            return None
        if placement is None:
            continue
        key = canonical_uri(placement.location)
        here = logged.get(key)
        values = placement.partition_values or {}
        if here is None or key in found or not _is_same(file, values, here, partition_types):
            return None
        found[key] = {
            "key": key,
            "hive": True,
            "h_path": file["path"],
            "h_size": file["size"],
            "h_time": file["modification_time"],
            "l_path": here["path"],
            "l_values": here["partition_values"],
            "l_size": here["size"],
            "l_vector": here["deletion_vector"],
            "kind": "same",
            "partition": "/".join(f"{name}={_text(values.get(name), here, name)}" for name in partition_types)
            or "the table",
            "folder": key.rpartition("/")[0],
        }
    return list(found.values()) if len(found) == len(live) else None


def _is_same(
    file: dict[str, Any], values: dict[str, str | None], logged: dict[str, Any], partition_types: dict[str, str]
) -> bool:
    """Whether Hive's file is the one in the log, as the comparison on Spark has it."""
    in_log = logged["partition_values"] or {}
    return (
        file["size"] == logged["size"]
        and _is_same_time(file["modification_time"], logged["modification_time"])
        and all(values.get(name) == (in_log.get(name) or None) for name in partition_types)
    )


def _is_same_time(listed: int | None, logged: int | None) -> bool:
    # A storage may know a time to the second only, or not at all.
    if listed is None or not logged or listed == logged:
        return True
    return (listed % 1000 == 0 or logged % 1000 == 0) and listed // 1000 == logged // 1000


def _text(value: str | None, logged: dict[str, Any], name: str) -> str:
    return next((text for text in (value, (logged["partition_values"] or {}).get(name)) if text is not None), "null")
