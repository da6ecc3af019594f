"""The live files of a table as columns, which the driver holds: some 300 bytes for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_to_delta.core.arrow_columns import in_one_chunk
from airflow_hive_to_delta.core.delta.local_frames import arrow_table
from airflow_hive_to_delta.core.delta.log.driver_reader import (
    LARGE_CHECKPOINT_SCHEMA,
    Action,
    LargeCheckpoint,
    count_rows,
    latest_file_actions,
)
from airflow_hive_to_delta.core.storage.uri import Location, canonical_log_uri, canonical_uri, decoded_path

#: The live files: ``key`` is the canonical URI, ``path`` is as the log has it, ``rows`` are those of the statistics.
LIVE_FILES_SCHEMA = f"key string, {LARGE_CHECKPOINT_SCHEMA}, rows bigint"
_WITHOUT_ROWS = f"key string, {LARGE_CHECKPOINT_SCHEMA}"
#: A relative path that is the same before and after it is decoded.
_SIMPLE_PATH = "^[A-Za-z0-9_=.-][A-Za-z0-9_=./-]*$"


def live_files_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Live files as columns, in LIVE_FILES_SCHEMA.

    :param rows: in LATEST_ACTIONS_SCHEMA.
    """
    files = list(rows)
    table = arrow_table([{**file, "has_vector": file["deletion_vector"] is not None} for file in files], _WITHOUT_ROWS)
    return table.append_column("rows", count_rows(pa.array([file["stats"] for file in files], pa.string())))


def replay_live_files(
    checkpoint: LargeCheckpoint, later: Sequence[Action], root: Location, *, with_rows: bool
) -> pa.Table | None:
    """The live files of a checkpoint and the entries after it, in LIVE_FILES_SCHEMA. None when only Spark can tell.

    As in Delta, a file is identified by its path, as it is decoded, and its deletion vector. What the vectors of the
    checkpoint are is not known here.

    :param with_rows: whether the rows of the checkpoint's files are read; else they are null.
    """
    try:
        files = checkpoint.files.add_column(0, "key", _keys(in_one_chunk(checkpoint.files["path"]), root))
        counted = checkpoint.count_rows() if with_rows else pa.nulls(files.num_rows, pa.int64())
        files = files.append_column("rows", counted)
        latest = latest_file_actions(later, root)
    except ValueError:  # a path cannot be decoded
        return None
    named = pc.is_in(files["key"], pa.array([row["key"] for row in latest], pa.string()))
    known = {(row["key"], decoded_path(row["path"])) for row in latest if row["deletion_vector"] is None}
    for file in files.filter(named).select(["key", "path", "has_vector"]).to_pylist():
        if file["has_vector"] or (file["key"], decoded_path(file["path"])) not in known:
            return None
    return pa.concat_tables([files.filter(pc.invert(named)), live_files_of(row for row in latest if row["is_add"])])


def _keys(paths: pa.Array, root: Location) -> pa.Array:
    """The canonical URI of each path of a log.

    :raises ValueError: a path is not URL-encoded.
    """
    is_odd = pc.invert(pc.match_substring_regex(paths, _SIMPLE_PATH))
    keys = pc.binary_join_element_wise(f"{canonical_uri(root)}/", paths, "")
    odd = [canonical_log_uri(path, root) for path in paths.filter(is_odd).to_pylist()]
    return pc.replace_with_mask(keys, is_odd, pa.array(odd, pa.string()))
