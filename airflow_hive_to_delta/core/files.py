"""The data files of a table, as a listing has found them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_to_delta.core.models import FILES_SCHEMA
from airflow_hive_to_delta.core.progress import count_work
from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.spark.persistence import persisted
from airflow_hive_to_delta.core.spark.versions import collect_arrow, df_from_arrow
from airflow_hive_to_delta.core.storage.base import DELTA_LOG
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Follows every other character in the order of keys.
LAST_CHARACTER = "\U0010ffff"
FILES_ARROW_SCHEMA = arrow_schema(FILES_SCHEMA)
#: So many files are collected without a look at how many there are.
_FEW = 5_000


@dataclass(frozen=True)
class SeenFolders:
    """The folders and Delta logs that a listing has seen, so that later checks need no more requests."""

    #: Folders that were listed with all that lies below them, save in hidden folders, whose files are not of a table.
    whole: set[Location] = field(default_factory=set)
    #: Folders in which it saw a ``_delta_log``, in their canonical spelling.
    with_delta_log: set[Location] = field(default_factory=set)
    #: Ranges of keys that were listed, in order, by the root of their bucket: each from after one key to another.
    key_ranges: dict[Location, list[tuple[str, str]]] = field(default_factory=dict)

    def add_all(self, listed: Location, paths: Iterable[str]) -> None:
        """Note what was seen of Delta logs.

        :param paths: paths of files or folders, from the folder that is being listed. Those that are not of a Delta log
            are ignored.
        """
        for path in paths:
            names = path.split("/")
            if DELTA_LOG in names:
                folder = "/".join(names[: names.index(DELTA_LOG)])
                self.with_delta_log.add((listed.child(folder) if folder else listed).canonical)

    def add_range(self, bucket: Location, first: str, last: str) -> None:
        """Note that every key after ``first`` was seen, up to ``last``."""
        insort(self.key_ranges.setdefault(bucket.canonical, []), (first, last))

    def may_have_delta_log(self, folder: Location) -> bool:
        """Whether a folder has a Delta log, or is one that was not listed."""
        if folder.canonical in self.with_delta_log:
            return True
        inner = folder.canonical
        while inner not in self.whole:
            if not inner.path:
                return not self._is_in_range(Location(inner.scheme, inner.authority, ""), folder.key)
            inner = inner.parent
        return False

    def _is_in_range(self, bucket: Location, folder: str) -> bool:
        """Whether all keys of the Delta log in a folder, if there are any, are in a range of keys that was listed."""
        if DELTA_LOG in folder.split("/"):
            return False  # of a log within a log only the outer one is noted
        log = f"{folder}/{DELTA_LOG}/" if folder else f"{DELTA_LOG}/"
        ranges = self.key_ranges.get(bucket, [])
        before = bisect_left(ranges, (log, ""))
        return before > 0 and f"{log}{LAST_CHARACTER}" <= ranges[before - 1][1]


class ListedFiles:
    """The data files of a table: in this process where it has listed them itself, else a DataFrame of Spark.

    :param files: a DataFrame in FILES_SCHEMA, or an Arrow table in FILES_ARROW_SCHEMA.
    :param seen: what else the listing has seen.
    """

    def __init__(self, spark: SparkSession, files: DataFrame | pa.Table, seen: SeenFolders | None = None) -> None:
        self._spark = spark
        self.seen = seen or SeenFolders()
        self._frame: DataFrame | None = None
        #: The files in FILES_ARROW_SCHEMA; None where only Spark has them.
        self.table: pa.Table | None = None
        if isinstance(files, pa.Table):
            self.table = files
        else:
            self._frame = files

    @classmethod
    def from_batches(
        cls, spark: SparkSession, batches: Iterable[pa.RecordBatch], seen: SeenFolders | None = None
    ) -> ListedFiles:
        """Take the files as this process lists them, in FILES_ARROW_SCHEMA, and count them."""

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                count_work("files_listed", batch.num_rows)
                yield batch

        return cls(spark, pa.Table.from_batches(counted(), FILES_ARROW_SCHEMA), seen)

    @property
    def frame(self) -> DataFrame:
        """The files as a DataFrame in FILES_SCHEMA."""
        if self._frame is None:
            assert self.table is not None
            self._frame = df_from_arrow(self._spark, self.table, FILES_SCHEMA)
        return self._frame

    def collect(self) -> list[dict[str, Any]]:
        """The files as rows of FILES_SCHEMA."""
        if self.table is None:
            return [row.asDict() for row in self.frame.collect()]
        rows: list[dict[str, Any]] = self.table.to_pylist(maps_as_pydicts="strict")
        return rows

    def collect_few(self, most: int) -> list[dict[str, Any]] | None:
        """The files as rows of FILES_SCHEMA; None when there are more than ``most``."""
        if self.table is None:
            rows = [row.asDict() for row in self.frame.limit(most + 1).collect()]
            return rows if len(rows) <= most else None
        return self.collect() if self.table.num_rows <= most else None

    def collect_table(self, most: int) -> pa.Table | None:
        """The files in FILES_ARROW_SCHEMA; None when there are more than ``most``.

        Use it in a block of :meth:`kept`: elsewhere Spark may list the files several times.
        """
        if self.table is None:
            few = self.collect_few(min(most, _FEW))
            if few is not None:
                return files_table(few)
            return collect_arrow(self.frame, FILES_ARROW_SCHEMA) if self.frame.count() <= most else None
        return self.table if self.table.num_rows <= most else None

    def count(self) -> tuple[int, int]:
        """The number of the files, and their bytes."""
        if self.table is not None:
            return self.table.num_rows, pc.sum(self.table["size"]).as_py() or 0
        count, size = self.frame.selectExpr("count(*)", "coalesce(sum(size), 0)").collect()[0]
        return count, size

    @contextmanager
    def kept(self) -> Iterator[ListedFiles]:
        """Keep the files in Spark while the block runs, so that they are not listed twice."""
        if self.table is not None or self.frame.isLocal():
            yield self
            return
        with persisted(self.frame) as frame:
            yield ListedFiles(self._spark, frame, self.seen)

    def select(self, paths: DataFrame) -> ListedFiles:
        """The files of these paths.

        :param paths: a DataFrame with the column ``path``. Where this process has the files, so it gets the paths.
        """
        if self.table is None:
            return ListedFiles(self._spark, self.frame.join(paths, "path", "left_semi"), self.seen)
        wanted = pa.array([row.path for row in paths.collect()], pa.string())
        return ListedFiles(self._spark, self.table.filter(pc.is_in(self.table["path"], wanted)), self.seen)


def files_table(files: Sequence[dict[str, Any]]) -> pa.Table:
    """Files in FILES_ARROW_SCHEMA.

    :param files: rows of FILES_SCHEMA.
    """
    rows = [{**file, "partition_values": map_pairs(file["partition_values"])} for file in files]
    return pa.Table.from_pylist(rows, schema=FILES_ARROW_SCHEMA)


def files_batch(files: list[tuple[str, int, int]], values: dict[str, str | None] | None) -> pa.RecordBatch:
    """The files of one partition, in the form of FILES_ARROW_SCHEMA.

    :param files: path, size and modification time of each.
    :param values: the partition's values; None: the paths say them.
    """
    return partitioned_files_batch([(*file, values) for file in files])


def partitioned_files_batch(files: list[tuple[str, int, int, dict[str, str | None] | None]]) -> pa.RecordBatch:
    """Files of any partitions, in the form of FILES_ARROW_SCHEMA.

    :param files: path, size, modification time and the partition's values of each; None for the values: the path says
        them.
    """
    paths, sizes, times, values = zip(*files, strict=True)
    columns: list[Sequence[Any]] = [paths, sizes, times, [map_pairs(found) for found in values]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, FILES_ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=FILES_ARROW_SCHEMA)


def map_pairs(values: dict[str, str | None] | None) -> list[tuple[str, str | None]] | None:
    """A map in the form in which pyarrow takes it: a list of pairs."""
    return None if values is None else list(values.items())
