"""The Delta log of a converted table: making its first entry, committing entries, and its state (rules 1 to 10).

An entry is a file with one action in JSON on each line. The first line of every entry that this package writes is a
``commitInfo``, by whose ``txnId`` a writer recognises its own entry.
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
from airflow_hive_to_delta.core.delta.log.entries import commit_info_of, is_conversion
from airflow_hive_to_delta.core.delta.log.files import (
    COMMIT,
    commit_path,
    is_rollback_begun,
    log_files,
    log_folder,
    refuse_broken,
    refuse_catalog_managed,
    refuse_half_rolled_back,
)
from airflow_hive_to_delta.core.errors import (
    MissingError,
    PermanentError,
    SchemaError,
    TransientError,
    UnsupportedTableError,
)
from airflow_hive_to_delta.core.models import ALREADY_DELTA, ParquetFileInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.progress import count_work
from airflow_hive_to_delta.core.schema.partition_values import is_partition_type, stored_values
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location, add_path, parse_location

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.storage.base import Storage


@dataclass(frozen=True)
class LogState:
    """What is known of a table from its ``_delta_log``, without reading its files."""

    exists: bool
    #: The latest version; None when there is no log.
    version: int | None = None
    #: Whether version 0 is a conversion by this package. The fields below are known only where its entry is there.
    ours: bool = False
    has_checkpoint: bool = False
    #: The table that was converted, and how many files it had.
    catalog_table: str | None = None
    file_count: int | None = None
    #: The ``userMetadata`` of version 0.
    user_metadata: str | None = None
    #: The bytes of its files, and the run that converted it; None where an older version of this package did.
    byte_count: int | None = None
    run_id: str | None = None
    #: Whether the entry of version 0 is there: Delta removes old entries that a checkpoint covers.
    has_first_entry: bool = True


def build_add_action(
    file_info: ParquetFileInfo,
    table_location: str,
    partition_types: Mapping[str, str] | None = None,
    stats: str | None = None,
    timezone: str = "UTC",
) -> dict[str, Any]:
    """The ``add`` action of one file.

    :param file_info: the file as it was listed.
    :param table_location: the table's root.
    :param partition_types: Delta type of each partition column, in order. None: the values given are strings.
    :param stats: the file's statistics as a JSON string (rule 31).
    :param timezone: the zone of ``timestamp`` partition values that name none.
    :raises PartitionError: the partition values do not fit the partition columns.
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
    """The first log entry of a table with these files, without statistics. Empty files are left out (rule 41).

    :param schema: the Delta schema, with the partition columns.
    :param partition_columns: the names of the partition columns, in order.
    :param table_location: the table's root.
    :param features: table features, in addition to those that the schema needs.
    :param configuration: the table's properties.
    :param description: the table's comment.
    :returns: the text of the entry, for :func:`write_delta_log`.
    :raises PermanentError: a file is listed twice, or a property needs a feature that is not given.
    """
    types = _partition_types(schema, partition_columns)
    seen: set[Location] = set()
    adds = []
    for file in files:
        location = parse_location(file.path, "file path").canonical
        if location in seen:
            raise PermanentError(f"The file {file.path} is listed twice; a log entry holds a path once")
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
    """Commit version 0 of a table.

    :param delta_log_content: the text that :func:`generate_delta_log` returns.
    :param table_location: the table's root.
    :param region: the region to ask for the bucket's own.
    :returns: the path of the entry.
    :raises PermanentError: the table is a Delta table already, or the content would make a broken one.
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
    """Commit an entry of a log, if its version does not exist yet.

    An entry above version 0 needs the entry before it, and no entry is written while the table is rolled back (rule
    56). Both are checked right before the entry is put, and again afterwards. A rollback that begins in between looks
    for new entries before it ends, and fails if it finds one. If this process is suspended between check and put until
    the rollback has ended, it leaves an entry that belongs to no table. This function then fails, and so does
    :func:`log_state` from then on; their messages say what to do.

    :param entry: a seekable local file whose first line is a ``commitInfo`` with ``txn_id``.
    :param previous: the ``txnId`` of the entry before it, where it is known: the table may have been rolled back and
        converted again since it was read.
    :returns: False when another writer has committed the version.
    :raises TransientError: it is not known whether the entry was written. Running the conversion again finds out.
    """
    _refuse_other_log_stores(storage, root, version)
    path = commit_path(root, version)
    _check_previous(storage, root, version, previous, written=False)
    lost = None
    try:
        storage.put_if_absent(path, entry)
    except TransientError as error:
        lost = error
    # The entry that exists now decides, whatever the answer was. A request can be refused because it repeats one that
    # had succeeded (rule 2), and a writer without conditional writes can have overwritten the entry (rule 5).
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
    _check_previous(storage, root, version, previous, written=True)
    count_work("log_bytes_written", size)
    return True


def latest_version(storage: Storage, root: Location) -> int:
    """The latest version in a table's log; -1 when there is no log."""
    return log_files(storage.list_names(log_folder(root))).latest


def log_state(storage: Storage, root: Location) -> LogState:
    """The state of the log at a table's root. A folder without an entry or a checkpoint is not a log.

    :raises MissingError: the log is broken: it has entries, but its latest version cannot be put together from them.
    :raises PermanentError: a rollback of the table was begun and has not finished.
    :raises UnsupportedTableError: a catalog decides about the commits of the table.
    """
    refuse_catalog_managed(storage, root)
    names = storage.list_names(log_folder(root))
    if names:
        refuse_half_rolled_back(storage, root)
    files = log_files(names)
    if not files.names:
        return LogState(exists=False)
    refuse_broken(storage, root, files)
    info = commit_info_of(storage, commit_path(root, 0)) if 0 in files.commits else {}
    ours = is_conversion(info)
    parameters = info["operationParameters"] if ours else {}
    own = info.get(OWN_FIELD, {}) if ours else {}
    return LogState(
        exists=True,
        version=files.latest,
        ours=ours,
        has_first_entry=0 in files.commits,
        has_checkpoint=bool(files.checkpoints) and "_last_checkpoint" in names,
        catalog_table=parameters.get("catalogTable"),
        file_count=int(parameters["numFiles"]) if ours else None,
        user_metadata=info.get("userMetadata") if ours else None,
        byte_count=own.get("numBytes"),
        run_id=own.get("runId"),
    )


def read_metadata(storage: Storage, root: Location) -> Metadata:
    """The latest ``metaData`` in the entries of a log. Checkpoints are not read.

    :raises MissingError: none of the entries that are left has one.
    """
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
    """The ``txnId`` of the content of an entry, which is refused if it would make a broken table (rules 1, 4, 7)."""
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
    """Refuse to commit to a table whose other writers do not rely on put-if-absent (rule 6)."""
    refuse_catalog_managed(storage, root)
    if version > 0 and storage.list_names(log_folder(root).child(".tmp")):
        raise UnsupportedTableError(
            f"{log_folder(root)}/.tmp shows that the table is written through the DynamoDB log store, which does not "
            f"see entries written by others. Version {version} was not committed; write through that log store"
        )


def _check_previous(storage: Storage, root: Location, version: int, previous: str | None, *, written: bool) -> None:
    """Raise when the entry before this version is missing or another one, or a rollback was begun (rule 56).

    :param written: whether the entry of this version was written already, for the message.
    """
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
        # Delta's clean-up keeps the entry of a checkpoint; other writers may delete it.
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
