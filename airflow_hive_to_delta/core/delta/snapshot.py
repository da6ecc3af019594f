"""The state of a Delta table at one version, replayed from its log.

Entries in JSON and checkpoints of all kinds are read: classic, multi-part and V2 with sidecars. The files of the table
are a DataFrame, because there can be millions of them; only what is small is collected on the driver. Entries that are
small together are read by the driver, all others by Spark. Of a classic checkpoint the driver reads all, or, if it has
many files, what identifies them. Spark reads the rest, and larger checkpoints or other kinds of them. A part of the log
that is missing or cannot be read is an error.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, reduce
from io import BytesIO
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.delta.action_schemas import LATEST_ACTIONS_SCHEMA, READ_ACTIONS_SCHEMA
from airflow_hive_to_delta.core.delta.actions import Metadata, metadata_of
from airflow_hive_to_delta.core.delta.live_files import live_files_of, replay_live_files
from airflow_hive_to_delta.core.delta.local_frames import collect_small, local_frame
from airflow_hive_to_delta.core.delta.log import driver_reader
from airflow_hive_to_delta.core.delta.log.driver_reader import (
    Action,
    LargeCheckpoint,
    LogEntry,
    check_file,
    is_small,
    latest_file_actions,
    parse_checkpoint,
    parse_large_checkpoint,
    read_entries,
)
from airflow_hive_to_delta.core.delta.log.entries import Commit, EntryHead
from airflow_hive_to_delta.core.delta.log.files import commit_path, log_folder
from airflow_hive_to_delta.core.delta.log.segment import LogSegment, log_segment
from airflow_hive_to_delta.core.delta.log.spark_reader import log_reader, read_checkpoint
from airflow_hive_to_delta.core.delta.protocol import Protocol, check_readable
from airflow_hive_to_delta.core.errors import (
    AccessDeniedError,
    HiveToDeltaError,
    MissingError,
    PermanentError,
    TransientError,
)
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.uri import (
    Location,
    canonical_log_uri_column,
    decoded_path_column,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from airflow_hive_to_delta.core.storage.base import Storage

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _LargeLog:
    """The actions of a version whose checkpoint the driver has read in part, and whose entries after it whole."""

    checkpoint: LargeCheckpoint
    later: list[Action]

    @property
    def state(self) -> list[Action]:
        return [*self.checkpoint.state, *self.later]


@dataclass
class Snapshot:
    """The state of a table at one version. Each part of it is read when it is first used, and then kept."""

    spark: SparkSession = field(repr=False)
    storage: Storage = field(repr=False)
    #: The files of the log that it is read from.
    segment: LogSegment
    #: The entries that the driver has read, by their versions.
    _entries: dict[int, LogEntry] = field(default_factory=dict, repr=False)
    #: The beginnings of entries, by their versions.
    _heads: dict[int, EntryHead] = field(default_factory=dict, repr=False)

    @property
    def root(self) -> Location:
        return self.segment.root

    @property
    def version(self) -> int:
        return self.segment.version

    def load(self) -> None:
        """Read the protocol and the metadata now, so that a table that cannot be read fails here.

        :raises UnsupportedTableError: the table has a reader version or feature that this package does not know.
        """
        _ = self._replay

    @property
    def is_small(self) -> bool:
        """Whether the driver holds the actions that make up this version."""
        return isinstance(self._actions, list)

    @property
    def protocol(self) -> Protocol:
        return Protocol.of(self._state["protocol"])

    @property
    def metadata(self) -> Metadata:
        return metadata_of(self._state["metaData"])

    @property
    def transactions(self) -> dict[str, int]:
        """The latest version of each application, by its id (``txn``)."""
        found: dict[str, int] = self._state["txn"]
        return found

    @cached_property
    def files(self) -> DataFrame:
        """The live files.

        The columns are ``key``, the canonical URI of the file, ``path``, as the log has it, ``partition_values``,
        ``size``, ``modification_time``, ``stats``, ``rows``, ``deletion_vector`` and ``tags``.
        """
        return (
            self._latest.where("is_add")
            .drop("is_add", "deletion_timestamp", "extended_file_metadata")
            .selectExpr("*", "cast(get_json_object(stats, '$.numRecords') as bigint) AS rows")
        )

    @cached_property
    def live_files(self) -> list[dict[str, Any]] | None:
        """The live files as rows of LATEST_ACTIONS_SCHEMA, where the driver holds them; otherwise None."""
        return None if self._latest_rows is None else [file for file in self._latest_rows if file["is_add"]]

    def read_live_files(self, *, with_rows: bool = False) -> pa.Table | None:
        """The live files in LIVE_FILES_SCHEMA, where the driver holds or can read what identifies them; otherwise None.

        :param with_rows: whether the column ``rows`` is filled in.
        """
        if isinstance(self._actions, _LargeLog):
            return replay_live_files(self._actions.checkpoint, self._actions.later, self.root, with_rows=with_rows)
        return None if self.live_files is None else live_files_of(self.live_files)

    def read_files_of_first_entry(self) -> pa.Table | None:
        """The files that entry 0 adds, in LIVE_FILES_SCHEMA; None unless the driver has read the checkpoint of it."""
        if isinstance(self._actions, _LargeLog) and self.segment.checkpoint_version == 0:
            return replay_live_files(self._actions.checkpoint, [], self.root, with_rows=False)
        return None

    @cached_property
    def removed(self) -> DataFrame:
        """The removed files that have not expired from the log.

        The columns are ``key``, the canonical URI of the file, ``path``, as the log has it, ``partition_values``,
        ``size``, ``deletion_vector``, ``deletion_timestamp`` and ``extended_file_metadata``.
        """
        return self._latest.where("NOT is_add").drop("is_add", "stats", "modification_time", "tags")

    @cached_property
    def history(self) -> list[Commit]:
        """The entries up to this version that still exist, the newest first."""
        versions = sorted(self.segment.times)
        found = {}
        if (actions := self.read_small(versions)) is not None:
            found = {action["version"]: action["commitInfo"] for action in actions if action["commitInfo"] is not None}
        else:
            with ThreadPoolExecutor(driver_reader.READERS) as pool:
                heads = zip(versions, pool.map(self.read_head, versions), strict=True)
                found = {version: head.commit_info for version, head in heads if head.commit_info is not None}
            # Other writers may have it in any line.
            if others := [version for version in versions if version not in found]:
                infos = self.read_commits(others).where("commitInfo IS NOT NULL").select("version", "commitInfo")
                with spark_call(f"Reading the history of {self.root}"):
                    found |= {row.version: json.loads(row.commitInfo) for row in infos.collect()}
        commits = []
        last = -1
        for version in versions:
            info = found.get(version, {})
            # The clocks of writers differ, so Delta takes an entry to be later than the one before it, unless it has an
            # in-commit timestamp.
            last = info.get("inCommitTimestamp") or max(self.segment.times[version], last + 1)
            commits.append(Commit(version, last, info))
        return commits[::-1]

    def read_commits(self, versions: Iterable[int]) -> DataFrame:
        """The actions of the entries of these versions, in READ_ACTIONS_SCHEMA, each with its ``version``.

        They are read now where the entries are small together, and otherwise each time that the DataFrame is used.
        """
        versions = list(versions)
        if (actions := self.read_small(versions)) is not None:
            texts = [_with_text_of_info(action) for action in actions]
            return local_frame(self.spark, texts, f"{READ_ACTIONS_SCHEMA}, version bigint")
        paths = [str(commit_path(self.root, version)) for version in versions]
        version = "cast(substr(_metadata.file_name, 1, 20) as bigint) AS version"
        return log_reader(self.spark).schema(READ_ACTIONS_SCHEMA).json(paths).selectExpr("*", version)

    def read_head(self, version: int) -> EntryHead:
        """The beginning of an entry, from the storage unless it was read before.

        :raises MissingError: the entry does not exist.
        """
        if version not in self._heads:
            entry = self._entries.get(version)
            path = commit_path(self.root, version)
            with self.storage.open(path) if entry is None else BytesIO(entry.content) as stream:
                self._heads[version] = EntryHead.read(stream)
        return self._heads[version]

    def file_actions(self, actions: DataFrame, column: str) -> DataFrame:
        """The actions of one kind, ``add`` or ``remove``, with their fields as columns and the ``key`` of their file.

        :param actions: a DataFrame that :meth:`read_commits` made.
        """
        return (
            actions.where(f"{column} IS NOT NULL")
            .select("version", f"{column}.*")
            .withColumn("key", canonical_log_uri_column("path", self.root))
        )

    def read_small(self, versions: Sequence[int]) -> list[Action] | None:
        """The actions of these entries, read by the driver; None when they are for Spark to read."""
        if not is_small(self.segment.sizes.get(version, 0) for version in versions):
            return None
        unread = [version for version in versions if version not in self._entries]
        self._entries.update(read_entries(self.storage, self.root, unread))
        actions: list[Action] = []
        for version in versions:
            found = self._entries[version].actions
            if found is None:
                return None
            actions += found
        return actions

    @property
    def _actions(self) -> DataFrame | _LargeLog | list[Action]:
        return self._replay[0]

    @property
    def _state(self) -> dict[str, Any]:
        """The latest protocol and metadata, and the applications' versions."""
        return self._replay[1]

    @cached_property
    def _replay(self) -> tuple[DataFrame | _LargeLog | list[Action], dict[str, Any]]:
        """The actions that make up this version, on the driver or on Spark, and the state that they lead to.

        If a checkpoint cannot be read, an older one and the entries after it are read instead. Delta does so too, but
        it only notices when it reads the protocol and the metadata. Where those come from a ``.crc`` file, or the
        fault is in a sidecar, Delta fails later; this replay does not.
        """
        unreadable: HiveToDeltaError | None = None
        while True:
            try:
                actions = self._actions_of_segment()
                state = self._read_state(actions)
                break
            except AccessDeniedError:
                raise
            except HiveToDeltaError as error:
                if (reason := self._why_unreadable()) is None:
                    raise
                unreadable = unreadable or reason
                logger.warning("%s. Going on with what is before it", reason)
                try:
                    self.segment = log_segment(
                        self.storage, self.root, self.version, before_checkpoint=self.segment.checkpoint_version
                    )
                except MissingError as missing:
                    raise type(unreadable)(f"{unreadable}, and without it: {missing}") from error
        check_readable(Protocol.of(state["protocol"]), f"{self.root} at version {self.version}")
        return actions, state

    def _actions_of_segment(self) -> DataFrame | _LargeLog | list[Action]:
        if (small := self.read_small(self.segment.commits)) is not None:
            if not self.segment.checkpoint:
                return small
            if (checkpoint := self._read_small_checkpoint()) is not None:
                return checkpoint + small
            if (large := self._read_large_checkpoint()) is not None:
                return _LargeLog(large, small)
        return self._frame_of_segment()

    def _frame_of_segment(self) -> DataFrame:
        parts = []
        if self.segment.commits:
            parts.append(self.read_commits(self.segment.commits).drop("commitInfo"))
        if self.segment.checkpoint:
            parts.append(self._checkpoint())
        return reduce(lambda one, other: one.unionByName(other), parts)

    def _read_small_checkpoint(self) -> list[Action] | None:
        """The actions of the checkpoint, for the driver to go on with; None when they are for Spark to go on with."""
        if self.segment.checkpoint_size > driver_reader.MOST_CHECKPOINT_BYTES:
            return None
        if (content := self._read_classic_checkpoint()) is not None:
            with suppress(ValueError):  # Spark reads it, or says what is wrong with it
                return parse_checkpoint(content, self.segment.checkpoint_version or 0)
        frame = self._checkpoint()
        with spark_call(f"Reading version {self.version} of {self.root}"):
            actions = collect_small(frame)
        try:
            for action in actions or ():
                check_file(action)
        except ValueError:
            return None
        return actions

    def _read_large_checkpoint(self) -> LargeCheckpoint | None:
        """What the driver reads of a checkpoint with many files; None when it is for Spark to read."""
        size = self.segment.checkpoint_size
        if not driver_reader.MOST_CHECKPOINT_BYTES < size <= driver_reader.MOST_LARGE_CHECKPOINT_BYTES:
            return None
        if (content := self._read_classic_checkpoint()) is not None:
            with suppress(ValueError):
                return parse_large_checkpoint(content, self.segment.checkpoint_version or 0)
        return None

    def _read_classic_checkpoint(self) -> bytes | None:
        """The content of the checkpoint, if it is one Parquet file."""
        names = self.segment.checkpoint
        if len(names) != 1 or not names[0].endswith(".parquet"):
            return None
        with self.storage.open(log_folder(self.root).child(names[0])) as file:
            return file.read()

    def _why_unreadable(self) -> HiveToDeltaError | None:
        """The error of reading the checkpoint of the segment; None when it can be read, or there is none."""
        if not self.segment.checkpoint:
            return None
        try:
            self._state_rows(self._checkpoint())
        except AccessDeniedError:
            raise
        except HiveToDeltaError as error:
            # Spark's error for a damaged file looks like one of a storage that did not answer.
            damaged = isinstance(error, PermanentError) or _DAMAGED.search(f"{error} {error.__cause__}")
            found = f"The checkpoint {', '.join(self.segment.checkpoint)} of {self.root} cannot be read ({error})"
            return PermanentError(found) if damaged else TransientError(found)
        return None

    def _checkpoint(self) -> DataFrame:
        return read_checkpoint(self.spark, self.segment)

    @cached_property
    def _latest_rows(self) -> list[dict[str, Any]] | None:
        return latest_file_actions(self._actions, self.root) if isinstance(self._actions, list) else None

    @cached_property
    def _latest(self) -> DataFrame:
        """The latest action of each file, in LATEST_ACTIONS_SCHEMA: on Spark as by :func:`latest_file_actions`."""
        from pyspark.sql import functions as F  # noqa: N812

        if self._latest_rows is not None:
            return local_frame(self.spark, self._latest_rows, LATEST_ACTIONS_SCHEMA)
        actions = self._frame_of_segment() if isinstance(self._actions, (_LargeLog, list)) else self._actions
        vector = F.concat_ws("|", "deletion_vector.storageType", "deletion_vector.pathOrInlineDv",
                             F.col("deletion_vector.offset").cast("string"))  # fmt: skip
        file_actions = (
            actions.where("add IS NOT NULL OR remove IS NOT NULL")
            .selectExpr(*_FILE_COLUMNS)
            .withColumn("key", canonical_log_uri_column("path", self.root))
            .withColumn("spelling", decoded_path_column("path"))
            .withColumn("vector", vector)
        )
        columns = [name for name in file_actions.columns if name not in ("key", "spelling", "vector")]
        latest = F.max_by(F.struct(*columns), "version").alias("latest")
        by_file = file_actions.groupBy("key", "spelling", "vector").agg(latest)
        return by_file.select("key", *(f"latest.{name}" for name in columns))

    def _state_rows(self, actions: DataFrame | _LargeLog | list[Action]) -> list[dict[str, Any]]:
        """The actions that say more than which files there are."""
        if isinstance(actions, (_LargeLog, list)):
            known = actions if isinstance(actions, list) else actions.state
            return [action for action in known if any(action[kind] is not None for kind in _STATE)]
        with spark_call(f"Reading version {self.version} of {self.root}"):
            found = actions.where(" OR ".join(f"{kind} IS NOT NULL" for kind in _STATE)).select("version", *_STATE)
            return [row.asDict(recursive=True) for row in found.collect()]

    def _read_state(self, actions: DataFrame | _LargeLog | list[Action]) -> dict[str, Any]:
        state: dict[str, Any] = {"protocol": None, "metaData": None, "txn": {}}
        for row in sorted(self._state_rows(actions), key=_version):
            for kind in ("protocol", "metaData"):
                if row[kind] is not None:
                    state[kind] = row[kind]
            if row["txn"] is not None:
                state["txn"][row["txn"]["appId"]] = row["txn"]["version"]
        for kind in ("protocol", "metaData"):
            if state[kind] is None:
                raise PermanentError(
                    f"Version {self.version} of {self.root} has no {kind}: the log is not whole. Restore it"
                )
        return state


def snapshot_of(spark: SparkSession, storage: Storage, root: Location, version: int | None = None) -> Snapshot:
    """The state of a table at a version, or at the latest version when none is given.

    :raises MissingError: there is no log, or the version cannot be put together from the files that are left.
    """
    return Snapshot(spark, storage, log_segment(storage, root, version))


#: Found in Spark's error for a file that is damaged or missing.
_DAMAGED = re.compile(
    r"is not a Parquet file|can not read class|could not read page|corrupt|CANNOT_READ_FILE_FOOTER|MALFORMED_RECORD"
    r"|FILE_NOT_EXIST|FileNotFoundException",
    re.IGNORECASE,
)
#: The kinds of actions that say more than which files there are.
_STATE = ("protocol", "metaData", "txn")
_FILE_COLUMNS = (
    "version",
    "add IS NOT NULL AS is_add",
    "coalesce(add.path, remove.path) AS path",
    "coalesce(add.partitionValues, remove.partitionValues) AS partition_values",
    "coalesce(add.size, remove.size) AS size",
    "add.modificationTime AS modification_time",
    "add.stats AS stats",
    "add.tags AS tags",
    "coalesce(add.deletionVector, remove.deletionVector) AS deletion_vector",
    "remove.deletionTimestamp AS deletion_timestamp",
    "remove.extendedFileMetadata AS extended_file_metadata",
)


def _version(action: Action) -> int:
    return int(action["version"])


def _with_text_of_info(action: Action) -> Action:
    info = action["commitInfo"]
    return action if info is None else {**action, "commitInfo": json.dumps(info)}
