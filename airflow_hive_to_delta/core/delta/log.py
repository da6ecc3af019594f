"""The Delta log of a converted table: its actions, its entries, and how an entry is committed (rules 1 to 10).

An entry is a file of lines, each one action in JSON. The first line of every entry of ours is its ``commitInfo``,
whose ``txnId`` tells our entry from anybody else's.
"""

from __future__ import annotations

import io
import json
import os
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from airflow_hive_to_delta.core.delta.actions import (
    OWN_FIELD,
    Metadata,
    action_line,
    add_action,
    commit_info,
    features_of,
    metadata_action,
    metadata_of,
    protocol_action,
)
from airflow_hive_to_delta.core.delta.log_files import (
    COMMIT,
    commit_info_of,
    is_ours,
    is_rollback_begun,
    log_files,
    refuse_broken,
    refuse_catalog_managed,
    refuse_half_rolled_back,
)
from airflow_hive_to_delta.core.delta.log_files import commit_path as commit_path
from airflow_hive_to_delta.core.delta.log_files import log_folder as log_folder
from airflow_hive_to_delta.core.delta.log_files import records_folder as records_folder
from airflow_hive_to_delta.core.errors import (
    MissingError,
    PermanentError,
    SchemaError,
    TransientError,
    UnsupportedTableError,
)
from airflow_hive_to_delta.core.models import ALREADY_DELTA, ParquetFileInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.schema.partition_values import is_partition_type, stored_values
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location, add_path, parse_location

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.storage.log_storage import Storage


@dataclass(frozen=True)
class LogState:
    """What a table's ``_delta_log`` holds before anything is done to it."""

    exists: bool
    #: The latest version; None when there is no log.
    version: int | None = None
    #: Version 0 is a conversion by this package.
    ours: bool = False
    has_checkpoint: bool = False
    #: The table that was converted and how many files it had, where version 0 is ours and says so.
    catalog_table: str | None = None
    file_count: int | None = None
    #: The text of the user's own that version 0 carries, where it is ours.
    user_metadata: str | None = None
    #: The bytes of its files, and the run that converted it, where version 0 is ours and says so.
    byte_count: int | None = None
    run_id: str | None = None


def build_add_action(
    file_info: ParquetFileInfo,
    table_location: str,
    partition_types: Mapping[str, str] | None = None,
    stats: str | None = None,
    timezone: str = "UTC",
) -> dict[str, Any]:
    """The ``add`` of one file as it was listed.

    :param partition_types: Delta type of each partition column, in order. None: the values given are strings.
    :param stats: the file's statistics as a JSON string (rule 31).
    :param timezone: the zone of ``timestamp`` partition values that name none.
    """
    root = parse_location(table_location, "table location")
    file = parse_location(file_info.path, "file path")
    given = file_info.partition_values
    types = dict.fromkeys(given or (), "string") if partition_types is None else partition_types
    below = root.relative(file) if root.holds(file) else file.path
    stored = stored_values(given, below, types, timezone, file_info.path)
    return add_action(add_path(file, root), stored, file_info.size, file_info.modification_time, stats)


def generate_delta_log(
    files: Sequence[ParquetFileInfo],
    schema: Mapping[str, Any],
    partition_columns: Sequence[str],
    table_location: str,
    *,
    features: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    description: str | None = None,
) -> str:
    """The first log entry of a table over these files, without statistics. Empty files are left out (rule 41).

    :param schema: the Delta schema, with the partition columns.
    :param features: table features beyond those that the schema itself shows to be needed.
    """
    types = _partition_types(schema, partition_columns)
    seen: set[Location] = set()
    adds = []
    for file in files:
        location = parse_location(file.path, "file path").canonical
        if location in seen:
            raise PermanentError(f"The file {file.path} is listed twice; a log entry holds a path once (rule 4)")
        seen.add(location)
        if file.size:
            adds.append(build_add_action(file, table_location, types))
    info = commit_info(
        number_of_files=len(adds),
        partition_columns=partition_columns,
        collect_stats=False,
        txn_id=str(uuid.uuid4()),
    )
    protocol = protocol_action(sorted({*features, *features_of(schema)}))
    metadata = metadata_action(schema, partition_columns, configuration=configuration, description=description)
    return "".join(f"{action_line(action)}\n" for action in (info, protocol, metadata, *adds))


def write_delta_log(delta_log_content: str, table_location: str, region: str | None = None) -> str:
    """Commit version 0 of a table, and return the entry's path. Raises when the table is a Delta table already.

    :param delta_log_content: as :func:`generate_delta_log` writes it.
    """
    from airflow_hive_to_delta.core.storage.log_storage import storage_for

    root = parse_location(table_location, "table location")
    txn_id = _check_first_entry(delta_log_content, root)
    spark = None
    if root.scheme not in S3_SCHEMES | {"file"}:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
    storage = storage_for(root, spark, ConversionOptions(region=region))
    entry = io.BytesIO(delta_log_content.encode())
    if log_state(storage, root).exists or not commit(storage, root, 0, entry, txn_id):
        raise PermanentError(f"{ALREADY_DELTA}: {root}. Nothing was written")
    return str(commit_path(root, 0))


def commit(
    storage: Storage, root: Location, version: int, entry: BinaryIO, txn_id: str, *, previous: str | None = None
) -> bool:
    """Write an entry, and say whether it is the one that is there: False means that another writer was faster.

    An entry above version 0 is written only onto the entry before it, and none while the table is rolled back (rule
    56). That is looked at right before the entry is put, and once more afterwards. Between the two a rollback can still
    begin: it looks for new entries before it ends, and then fails too. Only a process that is held up between look and
    put until after the end of a rollback leaves an entry that nobody can read. Then this function and, from then on,
    :func:`log_state` fail with what to do.

    :param entry: a seekable local file whose first line is a ``commitInfo`` with ``txn_id``.
    :param previous: the ``txnId`` of the entry before it, where it is known: the table may have been rolled back and
        converted again since it was read.
    :raises TransientError: it cannot be told; running the whole conversion again finds out.
    """
    _refuse_other_log_stores(storage, root, version)
    path = commit_path(root, version)
    _check_onto(storage, root, version, previous, written=False)
    lost = None
    try:
        storage.put_if_absent(path, entry)
    except TransientError as error:
        lost = error
    # Whatever the answer was, what is there now decides: a refused request can be the repetition of one that had
    # landed (rule 2), and a writer without conditional writes can have overwritten what had landed (rule 5).
    try:
        found = commit_info_of(storage, path)
        size = storage.size(path)
    except MissingError as error:
        raise TransientError(
            f"{path} is not there after it was written ({lost or 'the storage reported success'}). Try again"
        ) from error
    if found.get("txnId") != txn_id:
        return False
    if size != (expected := entry.seek(0, os.SEEK_END)):
        raise PermanentError(
            f"{path} has {size} bytes, expected {expected}: the storage does not hold what was written. Look at the "
            "entry before anything else writes to this table"
        )
    _check_onto(storage, root, version, previous, written=True)
    return True


def latest_version(storage: Storage, root: Location) -> int:
    """The latest version that a table's log names; -1 when there is no log."""
    return log_files(storage.list_names(log_folder(root))).latest


def log_state(storage: Storage, root: Location) -> LogState:
    """Look at a table's log. A folder without a commit or a checkpoint, or with temporary files only, is no log.

    :raises MissingError: the log is broken: entries are there, and nobody can put the latest version together.
    """
    refuse_catalog_managed(storage, root)
    names = storage.list_names(log_folder(root))
    refuse_half_rolled_back(storage, root, names)
    files = log_files(names)
    if not files.names:
        return LogState(exists=False)
    refuse_broken(storage, root, files)
    info = commit_info_of(storage, commit_path(root, 0)) if 0 in files.commits else {}
    ours = info.get("operation") == "CONVERT" and is_ours(info)
    parameters = info["operationParameters"] if ours else {}
    own = info.get(OWN_FIELD, {}) if ours else {}
    return LogState(
        exists=True,
        version=files.latest,
        ours=ours,
        has_checkpoint=bool(files.checkpoints) and "_last_checkpoint" in names,
        catalog_table=parameters.get("catalogTable"),
        file_count=int(parameters["numFiles"]) if ours else None,
        user_metadata=info.get("userMetadata") if ours else None,
        byte_count=own.get("numBytes"),
        run_id=own.get("runId"),
    )


def read_metadata(storage: Storage, root: Location) -> Metadata:
    """The latest ``metaData`` in the entries of a log."""
    names = storage.list_names(log_folder(root))
    for name in sorted((name for name in names if COMMIT.fullmatch(name)), reverse=True):
        with storage.open(log_folder(root).child(name)) as lines:
            for line in lines:
                if line.startswith(b'{"metaData"'):
                    return metadata_of(json.loads(line)["metaData"])
    raise MissingError(f"No entry of {log_folder(root)} that is still there holds the table's metaData")


def _partition_types(schema: Mapping[str, Any], partition_columns: Sequence[str]) -> dict[str, str]:
    types = {field["name"]: field["type"] for field in schema["fields"]}
    for column in partition_columns:
        if not is_partition_type(types.get(column)):
            raise SchemaError(
                f"The partition column {column} is {types.get(column, 'not in the schema')}, expected a column of a "
                f"primitive type. The schema has {', '.join(types)}"
            )
    return {column: types[column] for column in partition_columns}


def _check_first_entry(content: str, root: Location) -> str:
    """Refuse content that would make a broken table, and return its transaction's id (rules 1, 4 and 7)."""
    try:
        actions = [json.loads(line) for line in content.split("\n") if line]
        kinds = Counter(kind for action in actions for kind in action)
        txn_id = actions[0]["commitInfo"]["txnId"]
        paths = Counter(action["add"]["path"] for action in actions if "add" in action)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise PermanentError(
            f"The log entry for {root} is not a line of JSON per action that begins with a commitInfo with a txnId "
            f"({error!r}). Take it from generate_delta_log"
        ) from error
    twice = [path for path, count in paths.items() if count > 1]
    if kinds["protocol"] != 1 or kinds["metaData"] != 1 or kinds["commitInfo"] != 1 or twice:
        raise PermanentError(
            f"The log entry for {root} has {kinds['protocol']} protocol, {kinds['metaData']} metaData and "
            f"{kinds['commitInfo']} commitInfo actions, expected one of each, and {len(twice)} paths more than once "
            f"{twice[:3]}. Take it from generate_delta_log"
        )
    return str(txn_id)


def _refuse_other_log_stores(storage: Storage, root: Location, version: int) -> None:
    """Refuse to commit where a put-if-absent is not what decides who wins (rule 6)."""
    refuse_catalog_managed(storage, root)
    if version > 0 and storage.list_names(log_folder(root).child(".tmp")):
        raise UnsupportedTableError(
            f"{log_folder(root)}/.tmp shows that the table is written through the DynamoDB log store, which does not "
            f"see entries written by others. Version {version} was not committed; write through that log store"
        )


def _check_onto(storage: Storage, root: Location, version: int, previous: str | None, *, written: bool) -> None:
    """Raise when an entry of this version, which is to be written or was, has nothing to stand on (rule 56)."""
    outcome = f"Version {version} of {root} was {'' if written else 'not '}written"
    if is_rollback_begun(storage, root):
        raise PermanentError(
            f"{outcome}: a rollback of the table was begun and has not ended. Call rollback_table again, which "
            "finishes it, or says what to do about entries that were written meanwhile"
        )
    if version == 0:
        return
    try:
        found = commit_info_of(storage, commit_path(root, version - 1)).get("txnId")
    except MissingError as error:
        files = log_files(storage.list_names(log_folder(root)))
        # Delta's clean-up leaves the entry of a checkpoint; that of another writer may not.
        if version - 1 in files.checkpoints:
            return
        refuse_broken(storage, root, files)
        raise MissingError(
            f"{outcome}: the entry {version - 1} before it is gone. If the table was rolled back meanwhile, convert it "
            "again"
        ) from error
    if previous is None or found is None or found == previous:
        return
    other = f"{outcome}: the entry {version - 1} before it is not the one that was read, so the table was rolled back"
    if written:
        raise PermanentError(
            f"{other} and converted again meanwhile. Verify the table; where it differs, roll it back and convert it "
            "again"
        )
    raise TransientError(f"{other} and converted again meanwhile. Try again")
