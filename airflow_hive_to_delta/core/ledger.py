"""Which files a table's log has ever held, and who put them there (rules 46 and 47).

Delta forgets: a file that it removed is out of the log after a week, the entries themselves after a month, and the
file may still lie in Hive's folder. Taken for a new one then, its rows would be there twice. So what the entries say of
files is kept beside the log.

The ledger is a function of the log and of nothing else: what is kept covers the entries up to some version, the rest is
read from the entries. It can be late, after a crash, and never wrong. Files that this package added belong to *Hive*;
those that any other writer added are *Delta's* own.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.errors import PermanentError, spark_call
from airflow_hive_to_delta.core.records import Records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_hive_to_delta.core.snapshot import Snapshot

#: One row for each time that an entry named a file.
_WORDS = "key string, version bigint, ours boolean, is_add boolean, size bigint, modification_time bigint"
#: More parts than this are written together as one.
_MOST_PARTS = 20


@dataclass(frozen=True)
class _Part:
    """What entries said of files, kept as Parquet."""

    first: int
    last: int
    files: tuple[str, ...]


@dataclass(frozen=True)
class Ledger:
    """The ledger of a table up to the version of a snapshot."""

    snapshot: Snapshot
    parts: tuple[_Part, ...]

    @property
    def kept_up_to(self) -> int:
        """The last version that is kept; -1 when nothing is."""
        return max((part.last for part in self.parts), default=-1)

    @property
    def forgotten(self) -> list[int]:
        """Versions whose entries are gone and were not kept: nobody knows any more which files they named."""
        unkept = range(self.kept_up_to + 1, self.snapshot.version + 1)
        return [version for version in unkept if version not in self.snapshot.segment.times]

    def check_whole(self, doing: str) -> None:
        """Raise when there are files that nobody can know of any more."""
        if missing := self.forgotten:
            raise PermanentError(
                f"{doing}: the entries {missing[0]} to {missing[-1]} of {self.snapshot.root} are gone from its log, "
                "and no sync came before Delta cleaned them up. So a file that Delta wrote or removed in them cannot "
                "be told from a new one of Hive. Sync more often than delta.logRetentionDuration; or, if Delta removed "
                "nothing in them, pass allow_forgotten_entries=True"
            )

    def files(self) -> DataFrame:
        """Every file that the log ever held, by its ``key``.

        ``hive`` is null for a file that this package never named, and true when it is Hive's as far as this package has
        said: the last word about it was an add, of ``hive_size`` and ``hive_time``. ``delta`` is whether another writer
        added it.
        """
        from pyspark.sql import functions as F  # noqa: N812

        last = F.max_by(F.struct("is_add", "size", "modification_time"), F.when(F.col("ours"), F.col("version")))
        found = (
            self._words()
            .groupBy("key")
            .agg(F.when(F.bool_or("ours"), last).alias("last"), F.bool_or(~F.col("ours")).alias("delta"))
        )
        return found.selectExpr(
            "key", "last.is_add AS hive", "last.size AS hive_size", "last.modification_time AS hive_time", "delta"
        )

    def keep(self) -> None:
        """Keep what the entries up to this version say. Safe to call again, and beside others that do."""
        first = self.kept_up_to + 1
        if first > self.snapshot.version:
            return
        whole = len(self.parts) >= _MOST_PARTS
        words = self._words() if whole else self._unkept()
        records = Records(self.snapshot.storage, self.snapshot.root)
        folder = f"ledger/{self.snapshot.version:020d}-{uuid.uuid4().hex}"
        with spark_call(f"Keeping the ledger of {self.snapshot.root}"):
            words.coalesce(1 if not whole else 8).write.parquet(str(records.folder.child(folder)), compression="zstd")
        stored = records.storage.entries(records.folder.child(folder))
        part = {
            "first": 0 if whole else first,
            "last": self.snapshot.version,
            "files": sorted(f"{folder}/{file.name}" for file in stored if file.name.endswith(".parquet")),
        }
        # Only now it counts: what a crash leaves before this is never read.
        records.keep(f"{folder}.json", part)

    def _words(self) -> DataFrame:
        spark = self.snapshot.spark
        unkept = self._unkept()
        paths = [file for part in self.parts for file in part.files]
        if not paths:
            return unkept
        folder = Records(self.snapshot.storage, self.snapshot.root).folder
        return unkept.unionByName(spark.read.schema(_WORDS).parquet(*(str(folder.child(path)) for path in paths)))

    def _unkept(self) -> DataFrame:
        """What the entries after the kept ones say; of other writers only what they added: that makes it Delta's."""
        from pyspark.sql import functions as F  # noqa: N812

        spark = self.snapshot.spark
        versions = [
            v for v in range(self.kept_up_to + 1, self.snapshot.version + 1) if v in self.snapshot.segment.times
        ]
        if not versions:
            return spark.createDataFrame([], _WORDS)
        our_versions = [commit.version for commit in self.snapshot.history if commit.ours]
        entries = self.snapshot.entries(versions)
        ours = F.col("version").isin(our_versions) if our_versions else F.lit(False)
        added = self.snapshot.placed(entries, "add").select(
            "key", "version", ours.alias("ours"), F.lit(True).alias("is_add"), "size",
            F.col("modificationTime").alias("modification_time"),
        )  # fmt: skip
        removed = self.snapshot.placed(entries, "remove").where(ours).select(
            "key", "version", F.lit(True).alias("ours"), F.lit(False).alias("is_add"), "size",
            F.lit(None).cast("bigint").alias("modification_time"),
        )  # fmt: skip
        # Delta adds a file of Hive again when it marks rows of it as deleted: that does not make the file Delta's.
        return added.unionByName(removed)


def ledger_of(snapshot: Snapshot) -> Ledger:
    """The ledger of a table: what is kept of it, and the entries since."""
    records = Records(snapshot.storage, snapshot.root)
    names = [file.name for file in records.storage.entries(records.folder.child("ledger"))]
    found = [_part(records.read(f"ledger/{name}") or {}) for name in names if name.endswith(".json")]
    return Ledger(snapshot, _chain([part for part in found if part.last <= snapshot.version]))


def _part(document: dict[str, Any]) -> _Part:
    return _Part(int(document["first"]), int(document["last"]), tuple(document["files"]))


def _chain(parts: list[_Part]) -> tuple[_Part, ...]:
    """Parts that together cover the entries from 0 on, as far as they go, each entry once."""
    chain: list[_Part] = []
    following = 0
    while True:
        # The longest that fits: one that was written together for several, rather than each of them.
        best = max((part for part in parts if part.first == following), key=lambda part: part.last, default=None)
        if best is None:
            return tuple(chain)
        chain.append(best)
        following = best.last + 1
