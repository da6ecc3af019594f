"""Which files a table's log has ever held, and who put them there (rules 46 and 47).

Delta forgets: a file that it removed is out of the log after a week, the entries themselves after a month, and the
file may still lie in Hive's folder. Taken for a new one then, its rows would be there twice. So what the entries say of
files is kept beside the log.

The ledger is a function of the log and of nothing else: what is kept covers the entries up to some version, the rest is
read from the entries. It can be late, after a crash, and never wrong. Files that this package added belong to *Hive*;
those that any other writer added are *Delta's* own.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.errors import PermanentError, spark_call
from airflow_hive_to_delta.core.records import Records
from airflow_hive_to_delta.core.snapshot import log_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_hive_to_delta.core.snapshot import Snapshot

#: One row for each time that an entry named a file.
_WORDS = (
    "key string, version bigint, ours boolean, is_add boolean, size bigint, modification_time bigint, "
    "partition_values map<string,string>"
)
#: More parts than this are written together as one.
_MOST_PARTS = 20


@dataclass(frozen=True)
class _Part:
    """What some entries said of files, kept as Parquet."""

    first: int
    last: int
    name: str

    def files(self, records: Records) -> list[str]:
        """Exactly the files that were written: one that is missing is an error, and not a smaller ledger."""
        listed = records.read(f"ledger/{self.name}.json") or {"files": []}
        folder = records.folder.child("ledger").child(self.name)
        return [str(folder.child(file)) for file in listed["files"]]


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
        said: the last word about it was an add, of ``hive_size``, ``hive_time`` and ``hive_values``. ``delta`` is
        whether another writer added it.
        """
        from pyspark.sql import functions as F  # noqa: N812

        word = F.struct("is_add", "size", "modification_time", "partition_values")
        last = F.max_by(word, F.when(F.col("ours"), F.col("version")))
        found = (
            self._words()
            .groupBy("key")
            .agg(F.when(F.bool_or("ours"), last).alias("last"), F.bool_or(~F.col("ours")).alias("delta"))
        )
        return found.selectExpr(
            *("key", "delta", "last.is_add AS hive", "last.size AS hive_size"),
            *("last.modification_time AS hive_time", "last.partition_values AS hive_values"),
        )

    def keep(self) -> None:
        """Keep what the entries up to this version say. Safe to call again, and beside others that do."""
        first = self.kept_up_to + 1
        if first > self.snapshot.version:
            return
        whole = len(self.parts) >= _MOST_PARTS
        words = self._words() if whole else self._unkept()
        records = Records(self.snapshot.storage, self.snapshot.root)
        name = f"{0 if whole else first:020d}-{self.snapshot.version:020d}-{uuid.uuid4().hex}"
        folder = records.folder.child("ledger").child(name)
        with spark_call(f"Keeping the ledger of {self.snapshot.root}"):
            words.coalesce(1 if not whole else 8).write.parquet(str(folder), compression="zstd")
        files = sorted(file.name for file in records.storage.entries(folder) if file.name.endswith(".parquet"))
        # Only now it counts: what a crash leaves before this is never read.
        records.keep(f"ledger/{name}.json", {"files": files})

    def _words(self) -> DataFrame:
        unkept = self._unkept()
        records = Records(self.snapshot.storage, self.snapshot.root)
        paths = [path for part in self.parts for path in part.files(records)]
        if not paths:
            return unkept
        with spark_call(f"Reading the ledger of {self.snapshot.root}"):
            return unkept.unionByName(log_reader(self.snapshot.spark).schema(_WORDS).parquet(*paths))

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
            F.col("modificationTime").alias("modification_time"), F.col("partitionValues").alias("partition_values"),
        )  # fmt: skip
        removed = self.snapshot.placed(entries, "remove").where(ours).select(
            "key", "version", F.lit(True).alias("ours"), F.lit(False).alias("is_add"), "size",
            F.lit(None).cast("bigint").alias("modification_time"),
            F.lit(None).cast("map<string,string>").alias("partition_values"),
        )  # fmt: skip
        # Delta adds a file of Hive again when it marks rows of it as deleted: that does not make the file Delta's.
        return added.unionByName(removed)


def ledger_of(snapshot: Snapshot) -> Ledger:
    """The ledger of a table: what is kept of it, and the entries since."""
    records = Records(snapshot.storage, snapshot.root)
    names = [file.name for file in records.storage.entries(records.folder.child("ledger"))]
    found = [_Part(int(m["first"]), int(m["last"]), m["name"]) for name in names if (m := _PART.fullmatch(name))]
    return Ledger(snapshot, _chain([part for part in found if part.last <= snapshot.version], 0))


_PART = re.compile(r"(?P<name>(?P<first>\d{20})-(?P<last>\d{20})-[0-9a-f]+)\.json")


def _chain(parts: list[_Part], following: int) -> tuple[_Part, ...]:
    """Parts that together cover the entries from one on, as far as any do, each entry once."""
    chains = [(part, *_chain(parts, part.last + 1)) for part in parts if part.first == following]
    # Of those that reach as far, the one of fewest parts: one was written together for several.
    return max(chains, key=lambda chain: (chain[-1].last, -len(chain)), default=())
