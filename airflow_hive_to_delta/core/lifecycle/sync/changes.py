"""What has changed in Hive since the last sync: its files now, against the log's and all that the log ever held.

A difference of sets, never of times (rule 46): a file that was copied or came late has an old time. What Delta has
deleted or rewritten stays Delta's, though the file still lies in Hive's folder (rule 47).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from operator import add
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.delta import local_frames
from airflow_hive_to_delta.core.delta.action_schemas import VECTOR_SCHEMA
from airflow_hive_to_delta.core.delta.local_frames import collect_small, local_frame
from airflow_hive_to_delta.core.errors import KINDS, PermanentError
from airflow_hive_to_delta.core.files import files_table
from airflow_hive_to_delta.core.lifecycle.sync.mirrored import FOUND_SCHEMA, MirroredFiles, compare_mirrored
from airflow_hive_to_delta.core.parquet.add_actions import DESCRIBED_SCHEMA
from airflow_hive_to_delta.core.parquet.scan import PathReader
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.persistence import persisted
from airflow_hive_to_delta.core.spark.sql import sql_literal
from airflow_hive_to_delta.core.spark.versions import df_from_arrow
from airflow_hive_to_delta.core.storage.existence import look_up_files
from airflow_hive_to_delta.core.storage.uri import canonical_uri, canonical_uri_column, parse_location

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_hive_to_delta.core.delta.snapshot import Snapshot
    from airflow_hive_to_delta.core.files import ListedFiles
    from airflow_hive_to_delta.core.lifecycle.ledger import Ledger
    from airflow_hive_to_delta.core.options import ConversionOptions

#: The kinds of files:
#:
#: - ``new``: Hive has it, and the log has not, nor had it ever; or Hive had dropped it and has it again.
#: - ``same``: Hive's, and live as it is.
#: - ``replaced``: Hive's and live, but with another size, time or partition.
#: - ``gone``: Hive's and live, and Hive has it no more.
#: - ``taken``: Hive's, and Delta has deleted or rewritten it since: its rows are Delta's affair.
#: - ``conflict``: Hive has written it anew after Delta had deleted or rewritten rows of it; or it is new in a partition
#:   of which Delta has rewritten files that Hive then took away, so that its rows may be there already.
#: - ``delta``: a file that Delta wrote.
#: - ``lost``: a live file that Delta wrote, and that is gone from a folder of Hive, which deletes all that lies in it.
#: - ``unlisted``, ``unseen``: a live file of Delta that the listing has not, before it is known whether it is lost.
#: - ``waiting``: what of these would change the Delta table, in a partition that Hive may be writing at this moment.
_KIND = """
CASE WHEN h_path IS NOT NULL AND l_path IS NOT NULL THEN
    CASE WHEN hive IS NULL THEN 'delta' WHEN {same_live} THEN 'same' WHEN l_vector IS NOT NULL THEN 'conflict'
         ELSE 'replaced' END
WHEN h_path IS NOT NULL THEN
    CASE WHEN hive AND {same_seen} THEN 'taken' WHEN hive THEN 'conflict' WHEN NOT hive THEN 'new'
         WHEN delta OR tombstone THEN 'delta' ELSE 'new' END
WHEN l_path IS NOT NULL THEN CASE WHEN hive THEN 'gone' ELSE 'unlisted' END
ELSE CASE WHEN hive THEN 'taken' ELSE 'past' END END
"""
# A storage may know a time to the second only, or not at all.
_SAME_TIME = """
(h_time IS NULL OR {time} IS NULL OR {time} = 0 OR h_time = {time}
 OR ((h_time % 1000 = 0 OR {time} % 1000 = 0) AND h_time div 1000 = {time} div 1000))
"""
#: All that is known of a file: in Hive, in the log, and in the ledger.
_JOINED_SCHEMA = (
    "key string, h_path string, h_size bigint, h_time bigint, h_values map<string,string>, l_path string, "
    f"l_size bigint, l_time bigint, l_values map<string,string>, l_vector {VECTOR_SCHEMA}, delta boolean, "
    "hive boolean, hive_size bigint, hive_time bigint, hive_values map<string,string>, tombstone boolean"
)
_RowsByKey = dict[str, list[dict[str, Any]]]
#: Kinds that change the Delta table.
_CHANGES = ("new", "replaced", "gone", "conflict", "lost")
_MOST_NAMES = 5


@dataclass(frozen=True)
class WaitingPartitions:
    """Partitions with changes that wait for the next sync, and the names of the first of them."""

    count: int
    names: list[str]


@dataclass(frozen=True)
class Differences:
    """Every file that Hive or the log knows, with its kind."""

    #: The files in FOUND_SCHEMA.
    _make_frame: Callable[[], DataFrame]
    #: Files of each kind, their bytes in Hive, how many of them are live, and the bytes of those by the log.
    totals: dict[str, tuple[int, int, int, int]]
    #: The files of all kinds but ``same``, where those are at hand without the others.
    _make_changed: Callable[[], DataFrame] | None = None

    @cached_property
    def frame(self) -> DataFrame:
        """Every file, in FOUND_SCHEMA."""
        return self._make_frame()

    @cached_property
    def _changed(self) -> DataFrame:
        return self._make_changed() if self._make_changed else self.frame

    def count(self, *kinds: str) -> int:
        return self._sum(kinds, 0)

    def size_in_hive(self, *kinds: str) -> int:
        return self._sum(kinds, 1)

    def count_live(self, *kinds: str) -> int:
        return self._sum(kinds, 2)

    def size_live(self, *kinds: str) -> int:
        return self._sum(kinds, 3)

    def _sum(self, kinds: Collection[str], which: int) -> int:
        return sum(self.totals[kind][which] for kind in kinds if kind in self.totals)

    def of(self, kinds: Collection[str]) -> DataFrame:
        frame = self.frame if "same" in kinds else self._changed
        return frame.where(frame["kind"].isin(list(kinds)))

    def some(self, *kinds: str) -> str:
        """A few of the files, for a message."""
        rows = self.of(kinds).selectExpr("coalesce(h_path, key) AS path").orderBy("path").limit(3).collect()
        more = self.count(*kinds) - len(rows)
        return ", ".join(row.path for row in rows) + (f" and {more} more" if more else "")

    def waiting_partitions(self) -> WaitingPartitions:
        if not self.count("waiting"):
            return WaitingPartitions(0, [])
        partitions = self.of(("waiting",)).select("partition").distinct()
        names = [row.partition for row in partitions.orderBy("partition").limit(_MOST_NAMES).collect()]
        return WaitingPartitions(partitions.count(), names)

    def count_without_time(self) -> int:
        """Count the files that Hive has written, and whose time the listing does not know."""
        return self.of(("new", "replaced", "conflict")).where("h_path IS NOT NULL AND h_time IS NULL").count()

    def vanished(self) -> list[str]:
        """Files that Delta has rewritten and Hive has taken away, in partitions in which Hive has new ones."""
        written = self.of(("new", "conflict")).select("partition").distinct()
        rows = self.of(("taken",)).where("h_path IS NULL").join(written, "partition", "left_semi").select("key")
        return sorted(row.key for row in rows.toLocalIterator())

    def rewritten_partitions(self) -> list[str]:
        """Partitions that lost files and got others: a few of those that Hive has written anew."""
        if not (self.count("new") and self.count("gone")):
            return []
        from pyspark.sql import functions as F  # noqa: N812

        found = (
            self.of(("new", "gone"))
            .groupBy("partition")
            .agg(F.count_distinct("kind").alias("kinds"))
            .where("kinds = 2")
            .orderBy("partition")
            .limit(5)
        )
        return [row.partition for row in found.collect()]


@contextmanager
def find_differences(
    snapshot: Snapshot,
    ledger: Ledger,
    files: ListedFiles,
    partition_types: dict[str, str],
    options: ConversionOptions,
    settled: Collection[str] = (),
    quiet_since: int | None = None,
) -> Iterator[Differences]:
    """Compare Hive's files with the table. The answer is kept in Spark while the block runs.

    :param settled: keys of files that Hive has taken away and people have decided about.
    :param quiet_since: a partition in which Hive has a file of after this time, in milliseconds since the epoch, waits.
    """
    from pyspark.sql import functions as F  # noqa: N812

    doing = f"Comparing the files of {snapshot.root} with its log"
    with spark_call(doing):
        mirrored = compare_mirrored(snapshot, ledger, files, partition_types, options, quiet_since)
    if mirrored is not None:
        yield _differences_of(mirrored, snapshot.spark)
        return
    with _read_partitions(snapshot, files, PathReader(str(snapshot.root), partition_types, options), doing) as hives:
        with spark_call(doing):
            _refuse_wrong_files(hives, snapshot, ledger)
        hive = hives.select(
            # Only files of Delta's own, which may lie in any folder, have no key by now.
            F.coalesce("key", canonical_uri_column("path")).alias("key"),
            F.col("path").alias("h_path"),
            F.col("size").alias("h_size"),
            F.col("modification_time").alias("h_time"),
            F.from_json("partition_values", "map<string,string>").alias("h_values"),
        )
        live = snapshot.files.select(
            "key",
            F.col("path").alias("l_path"),
            F.col("size").alias("l_size"),
            F.col("modification_time").alias("l_time"),
            F.col("partition_values").alias("l_values"),
            F.col("deletion_vector").alias("l_vector"),
        )
        tombs = snapshot.removed.select("key").distinct().withColumn("tombstone", F.lit(True))
        values = {name: _value("h_values", name) for name in partition_types}
        same_values = [f"{value} <=> nullif({_value('l_values', name)}, '')" for name, value in values.items()]
        same_live = " AND ".join(["h_size = l_size", _SAME_TIME.format(time="l_time"), *same_values])
        same_seen = f"h_size = hive_size AND {_SAME_TIME.format(time='hive_time')}"
        partition = ", ".join(
            f"concat({sql_literal(name + '=')}, "
            f"coalesce({value}, {_value('l_values', name)}, {_value('hive_values', name)}, 'null'))"
            for name, value in values.items()
        )
        with spark_call(doing):
            joined, few = _join(snapshot, hive, live, ledger.files(), tombs)
        classified = joined.selectExpr(
            *("key", "hive", "h_path", "h_size", "h_time", "l_path", "l_values", "l_size", "l_vector"),
            f"{_KIND.format(same_live=same_live, same_seen=same_seen)} AS kind",
            f"concat_ws('/', {partition}) AS partition" if partition else "'the table' AS partition",
        ).withColumn("folder", _folder("key"))
        with nullcontext(classified) if few else persisted(classified) as frame:
            with spark_call(doing):
                found = _count_kinds(frame, few=few)
                if found.count("unlisted"):
                    found = _count_kinds(_with_unseen(frame), few=few)
                if found.count("unseen"):
                    gone = _keys(snapshot, _find_gone(snapshot, found, options))
                    found = _count_kinds(_with_lost(found.frame, gone), few=few)
                if found.count("taken") and found.count("new") and found.count("delta"):
                    found = _count_kinds(_with_rewritten(found.frame, snapshot, _keys(snapshot, settled)), few=few)
                if quiet_since is not None and found.count(*_CHANGES):
                    found = _count_kinds(_with_waiting(found.frame, quiet_since), few=few)
            yield found


@contextmanager
def _read_partitions(snapshot: Snapshot, files: ListedFiles, reader: PathReader, doing: str) -> Iterator[DataFrame]:
    """Read the partitions of Hive's files from their paths (DESCRIBED_SCHEMA): by the driver if the files are few."""
    with spark_call(doing):
        few = files.collect_few(local_frames.MOST_ROWS) if snapshot.is_small else None
    if few is None:
        with persisted(files.frame.mapInArrow(reader, DESCRIBED_SCHEMA)) as described:
            yield described
        return
    batches = files_table(few).to_batches()
    rows = [row for batch in reader(iter(batches)) for row in batch.to_pylist()]
    yield local_frame(snapshot.spark, rows, DESCRIBED_SCHEMA)


def _join(
    snapshot: Snapshot, hive: DataFrame, live: DataFrame, ledger: DataFrame, tombs: DataFrame
) -> tuple[DataFrame, bool]:
    """Join all that is known of each file by its key; and whether the driver has done so, because they are few."""
    if snapshot.is_small:
        sides = [_by_key(frame) for frame in (hive, live, ledger, tombs)]
        if None not in sides:
            rows = _join_by_key(*(side for side in sides if side is not None))
            return local_frame(snapshot.spark, rows, _JOINED_SCHEMA), True
    joined = hive.join(live, "key", "full_outer").join(ledger, "key", "full_outer").join(tombs, "key", "left")
    return joined, False


def _by_key(frame: DataFrame) -> _RowsByKey | None:
    """The rows of each key; None when they are many."""
    rows = collect_small(frame)
    if rows is None:
        return None
    found: _RowsByKey = {}
    for row in rows:
        found.setdefault(row["key"], []).append(row)
    return found


def _join_by_key(hive: _RowsByKey, live: _RowsByKey, ledger: _RowsByKey, tombs: _RowsByKey) -> list[dict[str, Any]]:
    """What ``hive FULL JOIN live FULL JOIN ledger LEFT JOIN tombs`` gives."""
    none: list[dict[str, Any]] = [{}]
    return [
        {**one, **two, **three, **four}
        for key in {**hive, **live, **ledger}
        for one, two, three, four in product(*(side.get(key, none) for side in (hive, live, ledger, tombs)))
    ]


def _differences_of(mirrored: MirroredFiles, spark: SparkSession) -> Differences:
    """The differences that the driver has found."""
    counted = mirrored.changed.group_by("kind").aggregate(
        [("key", "count"), ("h_size", "sum"), ("l_path", "count"), ("l_size", "sum")]
    )
    totals = {
        row["kind"]: (row["key_count"], row["h_size_sum"] or 0, row["l_path_count"], row["l_size_sum"] or 0)
        for row in counted.to_pylist()
    }
    files, size = mirrored.same
    if files:
        totals["same"] = files, size, files, size
    return Differences(
        lambda: df_from_arrow(spark, mirrored.make_all(), FOUND_SCHEMA),
        totals,
        lambda: df_from_arrow(spark, mirrored.changed, FOUND_SCHEMA),
    )


def _count_kinds(frame: DataFrame, *, few: bool) -> Differences:
    """Count the files of each kind: by the driver if they are few."""
    from pyspark.sql import functions as F  # noqa: N812

    if few:
        totals: dict[str, tuple[int, int, int, int]] = {}
        for kind, hive, path, log in frame.select("kind", "h_size", "l_path", "l_size").collect():
            counted = (1, hive or 0, int(path is not None), log or 0)
            totals[kind] = tuple(map(add, totals.get(kind, (0, 0, 0, 0)), counted))
        return Differences(lambda: frame, totals)
    rows = frame.groupBy("kind").agg(F.count("*"), F.sum("h_size"), F.count("l_path"), F.sum("l_size")).collect()
    return Differences(
        lambda: frame, {kind: (files, hive or 0, live, log or 0) for kind, files, hive, live, log in rows}
    )


def _with_unseen(files: DataFrame) -> DataFrame:
    """Mark the unlisted files that lie in a folder of Hive, or in one above it; the others are Delta's."""
    from pyspark.sql import functions as F  # noqa: N812

    own = files.where("h_path IS NOT NULL OR hive IS NOT NULL").select("folder")
    folders = own.union(own.select(_folder("folder"))).distinct().withColumn("hives", F.lit(True))
    kind = F.when(F.col("kind") != "unlisted", F.col("kind")).when(F.col("hives"), "unseen").otherwise("delta")
    return files.join(folders, "folder", "left").withColumn("kind", kind).drop("hives")


def _find_gone(snapshot: Snapshot, found: Differences, options: ConversionOptions) -> Iterator[str]:
    """The keys of files that are neither in the listing nor on the storage: a listing may be older than a file."""
    rows = found.of(("unseen",)).select("key").orderBy("key").toLocalIterator()
    files = ((parse_location(row.key), row.key) for row in rows)
    return (key for _, key, there in look_up_files(files, snapshot.spark, options) if there is None)


def _with_lost(frame: DataFrame, gone: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    marked = frame.join(gone.withColumn("gone", F.lit(True)), "key", "left")
    kind = F.when(F.col("kind") != "unseen", F.col("kind")).when(F.col("gone"), "lost").otherwise("delta")
    return marked.withColumn("kind", kind).drop("gone")


def _with_rewritten(frame: DataFrame, snapshot: Snapshot, settled: DataFrame) -> DataFrame:
    """Mark new files as conflicts that may be old rows written anew: Hive took away what Delta rewrote and still has.

    Not where Delta's own file lies in the same folder under the root: an overwrite by Hive would have taken that too,
    so it was a VACUUM of Delta's that took the old files away.
    """
    from pyspark.sql import functions as F  # noqa: N812

    deltas = frame.where("kind = 'delta' AND l_path IS NOT NULL")
    beside = deltas.where("h_path IS NOT NULL").select("folder").distinct().withColumn("beside", F.lit(True))
    vanished = (
        frame.where("kind = 'taken' AND h_path IS NULL")
        .join(settled, "key", "left_anti")
        .join(beside, "folder", "left")
        .where(~(F.col("key").startswith(f"{canonical_uri(snapshot.root)}/") & F.coalesce("beside", F.lit(False))))
        .select("partition")
        .distinct()
    )
    doubtful = vanished.join(deltas.select("partition"), "partition", "left_semi").withColumn("doubtful", F.lit(True))
    doubled = (F.col("kind") == "new") & F.col("doubtful")
    marked = frame.join(doubtful, "partition", "left")
    return marked.withColumn("kind", F.when(doubled, "conflict").otherwise(F.col("kind"))).drop("doubtful")


def _with_waiting(frame: DataFrame, quiet_since: int) -> DataFrame:
    """Mark what is to wait: every change of a partition in which Hive has a file that is too young."""
    from pyspark.sql import functions as F  # noqa: N812

    young = frame.where((F.col("kind") != "delta") & (F.col("h_time") > quiet_since)).select("partition").distinct()
    marked = frame.join(young.withColumn("young", F.lit(True)), "partition", "left")
    waits = F.col("young") & F.col("kind").isin(*_CHANGES)
    return marked.withColumn("kind", F.when(waits, "waiting").otherwise(F.col("kind"))).drop("young")


def _keys(snapshot: Snapshot, keys: Iterable[str]) -> DataFrame:
    """Keys as a DataFrame, to join with."""
    return local_frame(snapshot.spark, [{"key": key} for key in keys], "key string")


def _folder(column: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.regexp_extract(column, "^(.*)/[^/]*$", 1)


def _refuse_wrong_files(hives: DataFrame, snapshot: Snapshot, ledger: Ledger) -> None:
    """Refuse files that cannot be part of the table, and files that are listed twice (rule 4).

    Files that Delta wrote need not lie in the folder of a partition: ``delta.randomizeFilePrefixes``.
    """
    from pyspark.sql import functions as F  # noqa: N812

    few = collect_small(hives.select("key", "error")) if snapshot.is_small else None
    if few is not None:
        keys = [row["key"] for row in few if row["key"] is not None]
        is_wrong, is_twice = any(row["error"] is not None for row in few), len(set(keys)) < len(keys)
    else:
        ((is_wrong, is_twice),) = hives.agg(F.count("error") > 0, F.count("key") > F.count_distinct("key")).collect()
    if is_wrong:
        said = ledger.files()
        named = reduce(
            lambda one, other: one.unionByName(other),
            [frame.select("key") for frame in (said, snapshot.files, snapshot.removed)],
        )
        deltas = named.join(said.where("hive IS NOT NULL"), "key", "left_anti")
        wrong = hives.where("error IS NOT NULL").withColumn("key", canonical_uri_column("path"))
        first = wrong.join(deltas, "key", "left_anti").orderBy("retryable", "path").first()
        if first is not None:
            raise KINDS[first.error_kind](first.error)
    if is_twice:
        twice = hives.groupBy("key").count().where("count > 1").orderBy("key").first()
        raise PermanentError(f"The list of files has {twice and twice.key} more than once. List each file once")


def _value(column: str, name: str) -> str:
    return f"try_element_at({column}, {sql_literal(name)})"
