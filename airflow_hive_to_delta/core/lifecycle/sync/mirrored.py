"""What has changed in Hive since the last sync of a table that nobody but this package has ever written to.

Such a table mirrors Hive's: every live file in its log is Hive's, and a file is ``new``, ``same``, ``replaced`` or
``gone``, whatever the log held before. So the driver compares the listed files with the live ones as columns, without
Spark, also where there are very many; :mod:`changes` compares all other tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_to_delta.core import arrow_columns
from airflow_hive_to_delta.core.arrow_columns import equal_or_both_null, in_one_chunk, map_values
from airflow_hive_to_delta.core.delta.action_schemas import VECTOR_SCHEMA
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.parquet.add_actions import FileLocator
from airflow_hive_to_delta.core.parquet.located_files import LocatedFiles, locate_files
from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.storage.uri import canonical_uri, parse_location

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.delta.snapshot import Snapshot
    from airflow_hive_to_delta.core.files import ListedFiles
    from airflow_hive_to_delta.core.lifecycle.ledger import Ledger
    from airflow_hive_to_delta.core.options import ConversionOptions

#: What a comparison finds of each file: of Hive's ``h_path``, ``h_size`` and ``h_time``, of the log's ``l_path``,
#: ``l_values``, ``l_size`` and ``l_vector``; and ``hive``, whether a live file is one that this package added.
FOUND_SCHEMA = (
    "key string, hive boolean, h_path string, h_size bigint, h_time bigint, l_path string, "
    f"l_values map<string,string>, l_size bigint, l_vector {VECTOR_SCHEMA}, kind string, partition string, "
    "folder string"
)


@dataclass(frozen=True)
class MirroredFiles:
    """The files of Hive and of the log, in FOUND_SCHEMA."""

    #: The files of all kinds but ``same``.
    changed: pa.Table
    #: Makes the table of all files: few callers need those of the kind ``same``, which are nearly all.
    make_all: Callable[[], pa.Table]
    #: The files of the kind ``same``: how many they are, and their bytes.
    same: tuple[int, int]


def compare_mirrored(
    snapshot: Snapshot,
    ledger: Ledger,
    files: ListedFiles,
    partition_types: dict[str, str],
    options: ConversionOptions,
    quiet_since: int | None,
) -> MirroredFiles | None:
    """Compare Hive's files with the log.

    None where others have written to the table or may have, where a file cannot be part of it, and where the driver
    does not hold the files of both.

    :param quiet_since: a partition in which Hive has a file of after this time, in milliseconds since the epoch, waits.
    """
    if not ledger.is_all_ours or (live := snapshot.read_live_files()) is None:
        return None
    if (listed := files.collect_table(arrow_columns.MOST_FILES)) is None or live.num_rows > arrow_columns.MOST_FILES:
        return None
    try:
        located = locate_files(listed, FileLocator(snapshot.root, partition_types, options), list(partition_types))
    except HiveToDeltaError:
        return None
    hive_keys, live_keys = in_one_chunk(located.files["key"]), in_one_chunk(live["key"])
    if any(pc.count_distinct(keys).as_py() < len(keys) for keys in (hive_keys, live_keys)):
        return None
    if pc.any(live["has_vector"]).as_py():
        return None
    # A root that is a file allows only that file of its folder.
    roots = [canonical_uri(parse_location(root)) for root in options.allowed_roots]
    if pc.any(pc.is_in(hive_keys, pa.array(roots, pa.string()))).as_py():
        return None
    compared = _Compared(located, live, pc.index_in(hive_keys, live_keys), list(partition_types))
    is_same = compared.is_same
    changed = compared.select(pc.invert(is_same))
    if len(hive_keys) - compared.rows.null_count < live.num_rows:
        gone = live.filter(pc.invert(pc.is_in(live_keys, hive_keys)))
        changed = pa.concat_tables([changed, _gone(gone, list(partition_types))])
    if quiet_since is not None and changed.num_rows:
        young = compared.find_partitions_after(quiet_since)
        kinds = pc.if_else(pc.is_in(changed["partition"], young), "waiting", changed["kind"])
        changed = changed.set_column(changed.column_names.index("kind"), "kind", kinds)
    same = pc.sum(is_same).as_py() or 0, pc.sum(located.files["size"].filter(is_same)).as_py() or 0
    return MirroredFiles(changed, lambda: pa.concat_tables([changed, compared.select(is_same)]), same)


@dataclass(frozen=True)
class _Compared:
    """Hive's files, and where the log has them."""

    located: LocatedFiles
    live: pa.Table
    #: The row of each of Hive's files in ``live``; null for one that the log does not have.
    rows: pa.Array
    partition_columns: Sequence[str]

    @cached_property
    def is_same(self) -> pa.Array:
        """Whether each of Hive's files is in the log as it is: with its size, time and partition."""
        size, time = (in_one_chunk(self.located.files[name]) for name in ("size", "modification_time"))
        logs_size, logs_time = (in_one_chunk(self.live[name]).take(self.rows) for name in ("size", "modification_time"))
        is_same = pc.and_(pc.fill_null(pc.equal(size, logs_size), False), _are_same_times(time, logs_time))
        maps = in_one_chunk(self.live["partition_values"])
        for name, values in zip(self.partition_columns, self.located.values, strict=True):
            logged = map_values(maps, name)
            # An empty text is a null for Delta (rule 19).
            logged = pc.if_else(pc.fill_null(pc.equal(logged, ""), False), None, logged)
            is_same = pc.and_(is_same, equal_or_both_null(values, logged.take(self.rows)))
        return is_same

    def select(self, which: pa.Array) -> pa.Table:
        """Some of Hive's files, in FOUND_SCHEMA."""
        hive, rows, is_same = self.located.files.filter(which), self.rows.filter(which), self.is_same.filter(which)
        logged = self.live.take(rows)
        maps = in_one_chunk(logged["partition_values"])
        values = [
            (name, pc.coalesce(ours.filter(which), map_values(maps, name)))
            for name, ours in zip(self.partition_columns, self.located.values, strict=True)
        ]
        kind = pc.if_else(pc.is_null(rows), "new", pc.if_else(is_same, "same", "replaced"))
        return _found(in_one_chunk(hive["key"]), hive, logged, kind, _partition_texts(values, len(kind)))

    def find_partitions_after(self, time: int) -> pa.Array:
        """The partitions in which Hive has a file of after a time."""
        is_young = pc.fill_null(pc.greater(in_one_chunk(self.located.files["modification_time"]), time), False)
        return pc.unique(self.select(is_young)["partition"])


def _gone(logged: pa.Table, partition_columns: Sequence[str]) -> pa.Table:
    """The files of the log that Hive has no more."""
    maps, count = in_one_chunk(logged["partition_values"]), logged.num_rows
    hive = pa.table({name: pa.nulls(count, logged.schema.field(name).type) for name in _OF_HIVE})
    partition = _partition_texts([(name, map_values(maps, name)) for name in partition_columns], count)
    return _found(in_one_chunk(logged["key"]), hive, logged, pa.repeat(pa.scalar("gone"), count), partition)


_OF_HIVE = ["path", "size", "modification_time"]


def _found(key: pa.Array, hive: pa.Table, logged: pa.Table, kind: pa.Array, partition: pa.Array) -> pa.Table:
    path, size, time = (in_one_chunk(hive[name]) for name in _OF_HIVE)
    logs_path, logs_values, logs_size = (in_one_chunk(logged[name]) for name in ("path", "partition_values", "size"))
    folder = pc.replace_substring_regex(key, "/[^/]*$", "")
    schema = arrow_schema(FOUND_SCHEMA)
    vector = pa.nulls(len(key), schema.field("l_vector").type)
    is_hives = pc.if_else(pc.is_valid(logs_path), True, None)
    columns = [key, is_hives, path, size, time, logs_path, logs_values, logs_size, vector, kind, partition, folder]
    return pa.table(columns, schema=schema)


def _are_same_times(listed: pa.Array, logged: pa.Array) -> pa.Array:
    """Whether two times may be the same: a storage may know a time to the second only, or not at all."""
    seconds = [pc.divide(times, 1000) for times in (listed, logged)]
    is_whole = [
        pc.equal(times, pc.multiply(whole, 1000)) for times, whole in zip((listed, logged), seconds, strict=True)
    ]
    about = pc.and_(pc.or_(*is_whole), pc.equal(*seconds))
    unknown = pc.or_(pc.is_null(listed), pc.or_(pc.is_null(logged), pc.fill_null(pc.equal(logged, 0), False)))
    return pc.or_(unknown, pc.fill_null(pc.or_(pc.equal(listed, logged), about), False))


def _partition_texts(values: Sequence[tuple[str, pa.Array]], count: int) -> pa.Array:
    """The partition of each file for people: ``year=2024/month=01``."""
    if not values:
        return pa.repeat(pa.scalar("the table"), count)
    texts = [pc.binary_join_element_wise(f"{name}=", pc.fill_null(each, "null"), "") for name, each in values]
    return pc.binary_join_element_wise(*texts, "/")
