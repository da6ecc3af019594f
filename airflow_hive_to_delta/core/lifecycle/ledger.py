"""Which files a table's log has ever held, and who put them there (rules 46 and 47).

Delta forgets: a file that it removed is out of the log after a week, the entries themselves after a month, and the
file may still lie in Hive's folder. Taken for a new one then, its rows would be there twice. So what the entries say of
files is kept beside the log, in parts that cover some versions each.

The ledger is a function of the log and of nothing else. A part keeps a digest of the beginning of every entry that it
covers, with the entry's ``txnId`` in it (rule 55). What a part says of an entry that is another one by now, because a
writer without conditional puts has overwritten it (rule 5), does not count: that entry is read from the log, as are
those that no part covers. What is kept of an entry that Delta has cleaned up cannot be compared any more, and counts.

Files that this package added belong to *Hive*; those that any other writer added are *Delta's* own.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, reduce
from hashlib import blake2b
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_hive_to_delta.core.delta.local_frames import arrow_table
from airflow_hive_to_delta.core.delta.log.driver_reader import READERS
from airflow_hive_to_delta.core.delta.log.entries import Commit
from airflow_hive_to_delta.core.delta.log.spark_reader import log_reader
from airflow_hive_to_delta.core.errors import MissingError, PermanentError
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.versions import df_from_arrow
from airflow_hive_to_delta.core.storage.uri import Location, canonical_log_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_hive_to_delta.core.delta.snapshot import Snapshot
    from airflow_hive_to_delta.core.storage.base import Storage

#: One row for each time that an entry named a file.
_MENTIONS_SCHEMA = (
    "key string, version bigint, ours boolean, is_add boolean, size bigint, modification_time bigint, "
    "partition_values map<string,string>"
)
#: More parts than this are written together as one.
_MOST_PARTS = 20


@dataclass(frozen=True)
class EntryIdentity:
    """The identity of an entry of the log, which another entry of the same version does not share."""

    digest: str
    #: Whether this package wrote it.
    ours: bool


@dataclass(frozen=True)
class _Part:
    """What the entries of some versions said of files, kept as Parquet."""

    first: int
    last: int
    name: str
    #: Addresses of the Parquet files.
    files: tuple[str, ...] = ()
    #: The digest of each entry that was in the log when the part was written.
    digests: Mapping[int, str] = field(default_factory=dict)
    #: Names of parts that this one was written in the place of.
    replaces: frozenset[str] = frozenset()
    #: Whether this package wrote all of these entries.
    all_ours: bool = False

    def covers(self, version: int) -> bool:
        return self.first <= version <= self.last

    def contains(self, other: _Part) -> bool:
        """Whether it covers more versions than the other, and all of the other's."""
        return (
            self.first <= other.first and other.last <= self.last and self.last - self.first > other.last - other.first
        )

    def overwritten(self, entries: Mapping[int, EntryIdentity]) -> list[int]:
        """Versions that it covers whose entries are there, and are not those that it was made of."""
        return sorted(v for v, entry in entries.items() if self.covers(v) and self.digests.get(v) != entry.digest)


@dataclass(frozen=True)
class Ledger:
    """The ledger of a table up to the version of a snapshot."""

    snapshot: Snapshot
    parts: tuple[_Part, ...]
    #: Every entry that is in the log.
    entries: Mapping[int, EntryIdentity]

    @property
    def forgotten(self) -> list[int]:
        """Versions whose entries are gone and were not kept: which files they named is not known any more."""
        return [version for version in self._uncovered if version not in self.entries]

    @property
    def is_all_ours(self) -> bool:
        """Whether this package wrote every entry up to this version, those that are gone from the log too."""
        return self._are_ours(0)

    def _are_ours(self, first: int) -> bool:
        """Whether this package wrote every entry from a version on."""
        kept = [part for part in self.parts if part.all_ours]
        return all(
            self.entries[version].ours if version in self.entries else any(part.covers(version) for part in kept)
            for version in range(first, self.snapshot.version + 1)
        )

    @property
    def is_kept(self) -> bool:
        """Whether :meth:`keep` has nothing to write."""
        return not self._unkept

    def check_whole(self, doing: str) -> None:
        """Raise when entries are gone that were not kept.

        :param doing: what cannot be done then, as the message begins.
        :raises PermanentError: some are.
        """
        if missing := self.forgotten:
            raise PermanentError(
                f"{doing}: the entries {missing[0]} to {missing[-1]} of {self.snapshot.root} are gone from its log, "
                "and no sync came before Delta cleaned them up. So a file that Delta wrote or removed in them cannot "
                "be told from a new one of Hive. Sync more often than delta.logRetentionDuration; or, if Delta removed "
                "nothing in them, pass allow_forgotten_entries=True"
            )

    def files(self) -> DataFrame:
        """Every file that the log ever held, by its ``key``.

        ``hive`` is null for a file that no entry of this package names, and true when the last of them that does adds
        it: then it is Hive's, and ``hive_size``, ``hive_time`` and ``hive_values`` are of that add. ``delta`` is
        whether another writer added it.
        """
        from pyspark.sql import functions as F  # noqa: N812

        action = F.struct("is_add", "size", "modification_time", "partition_values")
        last = F.max_by(action, F.when(F.col("ours"), F.col("version")))
        found = (
            self._read_mentions()
            .groupBy("key")
            .agg(F.when(F.bool_or("ours"), last).alias("last"), F.bool_or(~F.col("ours")).alias("delta"))
        )
        return found.selectExpr(
            *("key", "delta", "last.is_add AS hive", "last.size AS hive_size"),
            *("last.modification_time AS hive_time", "last.partition_values AS hive_values"),
        )

    def keep(self) -> None:
        """Keep which files the entries up to this version name. Safe to call again, and from several processes."""
        if not self._unkept:
            return
        kept_up_to = max((part.last for part in self.parts), default=-1)
        # What fills a gap, or says otherwise than a part, is written together with all parts, in their place.
        whole = len(self.parts) >= _MOST_PARTS or self._unkept[0] <= kept_up_to
        by_driver = None if whole else self._mentions_by_driver
        first = 0 if whole else kept_up_to + 1
        records = Records(self.snapshot.storage, self.snapshot.root)
        name = f"{first:020d}-{self.snapshot.version:020d}-{uuid.uuid4().hex}"
        folder = records.folder.child("ledger").child(name)
        if by_driver is not None:
            _write_mentions(records.storage, folder.child("mentions.parquet"), by_driver)
        else:
            mentions = self._read_mentions() if whole else self._read_entries()
            with spark_call(f"Keeping the ledger of {self.snapshot.root}"):
                mentions.coalesce(1 if not whole else 8).write.parquet(str(folder), compression="zstd")
        files = sorted(file.name for file in records.storage.list_files(folder) if file.name.endswith(".parquet"))
        # Only now it counts: what a crash leaves before this is never read.
        records.keep(
            f"ledger/{name}.json",
            {
                "files": files,
                # Of entries that are gone there is nothing to compare with.
                "entries": {str(v): entry.digest for v, entry in sorted(self.entries.items()) if v >= first},
                "replaces": [part.name for part in self.parts] if whole else [],
                "all_ours": self._are_ours(first),
            },
        )

    def at(self, snapshot: Snapshot) -> Ledger:
        """The ledger at a later version of the table, for which only the entries since are looked at."""
        return read_ledger(snapshot, self.entries)

    @cached_property
    def _overwritten(self) -> dict[str, list[int]]:
        """By part, the versions that it covers although the log has other entries for them now."""
        return {part.name: part.overwritten(self.entries) for part in self.parts}

    @cached_property
    def _uncovered(self) -> list[int]:
        """Versions that no part covers, or only parts made of another entry."""
        covered: set[int] = set()
        for part in self.parts:
            covered.update(set(range(part.first, part.last + 1)).difference(self._overwritten[part.name]))
        return [version for version in range(self.snapshot.version + 1) if version not in covered]

    @cached_property
    def _unkept(self) -> list[int]:
        """Versions that have to be read from the log."""
        return [version for version in self._uncovered if version in self.entries]

    def _read_mentions(self) -> DataFrame:
        frames = [self._read_entries()]
        whole = [path for part in self.parts for path in part.files if not self._overwritten[part.name]]
        with spark_call(f"Reading the ledger of {self.snapshot.root}"):
            if whole:
                frames.append(self._read_parts(whole))
            for part in self.parts:
                if (without := self._overwritten[part.name]) and part.files:
                    kept = self._read_parts(part.files)
                    frames.append(kept.where(~kept["version"].isin(without)))
            return reduce(lambda one, other: one.unionByName(other), frames)

    def _read_parts(self, paths: Iterable[str]) -> DataFrame:
        return log_reader(self.snapshot.spark).schema(_MENTIONS_SCHEMA).parquet(*paths)

    @cached_property
    def _mentions_by_driver(self) -> pa.Table | None:
        """What :meth:`_read_entries` gives, where the driver has read the entries or their files; otherwise None."""
        added = self._read_first_files()
        actions = self.snapshot.read_small([version for version in self._unkept if version or added is None])
        if actions is None:
            return None
        found = []
        for action in actions:
            version, add, remove = action["version"], action["add"], action["remove"]
            ours = self.entries[version].ours
            if add is not None or (remove is not None and ours):
                file = add or remove
                found.append(
                    {
                        "key": canonical_log_uri(file["path"], self.snapshot.root),
                        "version": version,
                        "ours": ours,
                        "is_add": add is not None,
                        "size": file["size"],
                        "modification_time": add and add["modificationTime"],
                        "partition_values": add and add["partitionValues"],
                    }
                )
        mentions = arrow_table(found, _MENTIONS_SCHEMA)
        return mentions if added is None else pa.concat_tables([_first_mentions(added), mentions])

    def _read_first_files(self) -> pa.Table | None:
        """The files that the conversion's entry adds, where the driver knows them without reading that entry."""
        if 0 not in self._unkept or not self.entries[0].ours:
            return None
        added = self.snapshot.read_files_of_first_entry()
        metrics = (self.snapshot.read_head(0).commit_info or {}).get("operationMetrics") or {}
        # The checkpoint may be of an entry that another conversion has overwritten since (rule 55).
        is_of_entry = added is not None and metrics.get("numConvertedFiles") == str(added.num_rows)
        return added if is_of_entry else None

    def _read_entries(self) -> DataFrame:
        """Read the files that the entries which are not kept name; of other writers only those that they added."""
        from pyspark.sql import functions as F  # noqa: N812

        if self._mentions_by_driver is not None:
            return df_from_arrow(self.snapshot.spark, self._mentions_by_driver, _MENTIONS_SCHEMA)
        our_versions = [version for version in self._unkept if self.entries[version].ours]
        entries = self.snapshot.read_commits(self._unkept)
        ours = F.col("version").isin(our_versions) if our_versions else F.lit(False)
        added = self.snapshot.file_actions(entries, "add").select(
            "key", "version", ours.alias("ours"), F.lit(True).alias("is_add"), "size",
            F.col("modificationTime").alias("modification_time"), F.col("partitionValues").alias("partition_values"),
        )  # fmt: skip
        removed = self.snapshot.file_actions(entries, "remove").where(ours).select(
            "key", "version", F.lit(True).alias("ours"), F.lit(False).alias("is_add"), "size",
            F.lit(None).cast("bigint").alias("modification_time"),
            F.lit(None).cast("map<string,string>").alias("partition_values"),
        )  # fmt: skip
        # Delta adds a file of Hive again when it marks rows of it as deleted: that does not make the file Delta's.
        return added.unionByName(removed)


def read_ledger(snapshot: Snapshot, known: Mapping[int, EntryIdentity] | None = None) -> Ledger:
    """The ledger of a table: what is kept of it, and the entries that no part covers.

    :param known: entries that were looked at a moment ago.
    """
    records = Records(snapshot.storage, snapshot.root)
    names = [file.name for file in records.storage.list_files(records.folder.child("ledger"))]
    found = [_Part(int(m["first"]), int(m["last"]), m["name"]) for name in names if (m := _PART.fullmatch(name))]
    found = [part for part in found if part.last <= snapshot.version]
    # One that covers more was written for all of them.
    outer = [part for part in found if not any(other.contains(part) for other in found)]
    known = {version: entry for version, entry in (known or {}).items() if version in snapshot.segment.times}
    with ThreadPoolExecutor(READERS) as pool:
        parts = list(pool.map(lambda part: _read_part(records, part), outer))
        versions = sorted(snapshot.segment.times.keys() - known.keys())
        read = zip(versions, pool.map(lambda version: _read_identity(snapshot, version), versions), strict=True)
        entries = {version: entry for version, entry in [*known.items(), *read] if entry is not None}
    return Ledger(snapshot, _choose_parts(parts, entries), entries)


def _first_mentions(added: pa.Table) -> pa.Table:
    """What the conversion's entry says of the files that it adds.

    :param added: the files in LIVE_FILES_SCHEMA.
    """
    columns: dict[str, Any] = {name: added[name] for name in ("key", "size", "modification_time", "partition_values")}
    for name, value in (("version", 0), ("ours", True), ("is_add", True)):
        columns[name] = pa.repeat(value, added.num_rows)
    schema = arrow_schema(_MENTIONS_SCHEMA)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _write_mentions(storage: Storage, path: Location, mentions: pa.Table) -> None:
    content = BytesIO()
    pq.write_table(mentions, content, compression="zstd")
    content.seek(0)
    storage.put_if_absent(path, content)


_PART = re.compile(r"(?P<name>(?P<first>\d{20})-(?P<last>\d{20})-[0-9a-f]+)\.json")


def _choose_parts(parts: list[_Part], entries: Mapping[int, EntryIdentity]) -> tuple[_Part, ...]:
    """One part for each range of versions: the one that replaced the others, or that fits the log best."""
    replaced = frozenset().union(*(part.replaces for part in parts))
    ranges: dict[tuple[int, int], list[_Part]] = {}
    for part in parts:
        if part.name not in replaced:
            ranges.setdefault((part.first, part.last), []).append(part)
    chosen = [min(same, key=lambda part: (len(part.overwritten(entries)), part.name)) for same in ranges.values()]
    return tuple(sorted(chosen, key=lambda part: part.first))


def _read_part(records: Records, part: _Part) -> _Part:
    """Read the record of a part.

    :raises PermanentError: the record is missing. To go on without it would make the ledger smaller.
    """
    document = records.read(f"ledger/{part.name}.json")
    if document is None or not isinstance(document.get("files"), list):
        raise PermanentError(
            f"The record {records.folder.child('ledger').child(part.name)}.json, which names files that the log of "
            f"{records.root} has held, {'is gone' if document is None else 'names no files'}. Restore it; or, if the "
            f"log still has the entries {part.first} to {part.last}, remove it: the next sync makes it again"
        )
    folder = records.folder.child("ledger").child(part.name)
    return _Part(
        part.first,
        part.last,
        part.name,
        tuple(str(folder.child(file)) for file in document["files"]),
        # Parts of before there were digests are compared with nothing: their entries are read from the log again.
        {int(version): digest for version, digest in document.get("entries", {}).items()},
        frozenset(document.get("replaces", ())),
        document.get("all_ours") is True,
    )


def _read_identity(snapshot: Snapshot, version: int) -> EntryIdentity | None:
    """Read the identity of an entry; None when Delta has just cleaned it up."""
    try:
        head = snapshot.read_head(version)
    except MissingError:
        return None
    digest = blake2b(head.line + head.rest, digest_size=16).hexdigest()
    return EntryIdentity(digest, Commit(version, 0, head.commit_info or {}).ours)
