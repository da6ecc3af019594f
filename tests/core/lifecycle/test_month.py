"""A month in the life of a table, simulated: Hive writes, drops, overwrites and moves partitions, Delta deletes, merges
and compacts, and between them conversions, syncs, vacuums and rollbacks come in any order.

A model keeps the rows that each side must read, and after every step both are read. What is random here is the order
and the numbers, and it is the same in every run of the tests. A longer month:

    HIVE_TO_DELTA_MONTHS=20 HIVE_TO_DELTA_DAYS=60 pytest tests/core/lifecycle/test_month.py
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from airflow_hive_to_delta import ConversionOptions, GlueDiscovery, S3Listing
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.lifecycle.rollback.rollback import rollback_table
from airflow_hive_to_delta.core.lifecycle.sync.sync import sync_table
from airflow_hive_to_delta.core.lifecycle.vacuum.vacuum import vacuum_external_files
from airflow_hive_to_delta.core.lifecycle.verify import verify_table
from tests.support.lake import PARQUET, Lake
from tests.support.oracle import delta_at

#: The first month is always the simplest one there is, in which Hive only inserts.
MONTHS = int(os.environ.get("HIVE_TO_DELTA_MONTHS", "2"))
DAYS = int(os.environ.get("HIVE_TO_DELTA_DAYS", "10"))

Rows = Counter[tuple[str, int]]


class Chance(NamedTuple):
    """What is drawn for one step: which one, and what it may need."""

    step: int
    day: str
    few: int
    far: bool


chances = st.builds(Chance, st.integers(0, 999), st.sampled_from(["1", "2", "é 3"]), st.integers(1, 3), st.booleans())


class Month:
    """One table on S3, in two buckets, with its partitions in Glue."""

    def __init__(self, lake: Lake, far: str, name: str) -> None:
        self.lake, self.far, self.name = lake, far, name
        self.root = self.lake.location(self.name)
        #: Each partition that Glue has, and those that it had, with their locations.
        self.partitions: dict[str, str] = {}
        self.dropped: dict[str, str] = {}
        #: Rows of each file that Hive wrote and that is there, by its address.
        self.hive: dict[str, list[int]] = {}
        #: What Delta must read; None while the table is not converted.
        self.delta: Rows | None = None
        #: Files of Hive as they were at the last sync: live in Delta, or taken over by it.
        self.synced: dict[str, list[int]] = {}
        self.taken: dict[str, list[int]] = {}
        #: Of those, which Hive has taken away, and what to do about it was decided.
        self.settled: set[str] = set()
        #: Hive has taken away files that Delta reads: it cannot be read until a sync has mirrored that.
        self.broken = False
        self.ids = 0
        self.lake.glue_table({"id": "bigint"}, {"day": "string"}, name=self.name)

    def steps(self) -> list[Callable[[Chance], None]]:
        """The steps that are possible next."""
        can: list[Callable[[Chance], None]] = [self.hive_inserts]
        if self.partitions:
            can += [self.hive_inserts, self.hive_overwrites, self.hive_drops_a_partition, self.hive_moves_a_partition]
        if self.dropped:
            can += [self.hive_takes_a_partition_back]
        if self.delta is None:
            return [*can, self.hive_is_converted, self.hive_is_converted]
        if self.broken:
            return [*can, *([self.hive_is_synced] * 6), self.the_table_is_rolled_back]
        can += [self.hive_is_synced, self.hive_is_synced, self.hive_is_synced_by_appending]
        can += [self.external_files_are_vacuumed, self.the_table_is_rolled_back]
        return [*can, *([self.delta_deletes, self.delta_merges, self.delta_optimizes] if self.delta else [])]

    # --- Hive -----------------------------------------------------------------------------------------------------

    def hive_inserts(self, chance: Chance) -> None:
        day = chance.day
        if day not in self.partitions:
            bucket = self.far if chance.far else self.lake.bucket
            location = self.dropped.pop(day, f"s3://{bucket}/{self.name}/day={day}")
            self._add_partition(day, location)
        for _ in range(chance.few):
            self._write(f"{self.partitions[day]}/{self.ids:06d}_0", chance.few)

    def hive_overwrites(self, chance: Chance) -> None:
        """INSERT OVERWRITE: all files in the folder are deleted, Delta's too, and the first name is used again."""
        day = chance.day
        location = self.partitions.get(day)
        if location is None:
            return
        mine = sorted(file for file in self.hive if file.startswith(f"{location}/"))
        deltas = [file for file in self._live_files() if file.startswith(f"{location}/") and file not in self.hive]
        lost = Counter((day, number) for file in deltas for number in self._read(file))
        # Never as many rows as before: a storage may tell times to the second only, so the size has to differ.
        before = max((len(self.hive[file]) for file in mine), default=0)
        for file in self._objects(location):
            self._delete(file)
            self.hive.pop(file, None)
        self._write(mine[0] if mine else f"{location}/{self.ids:06d}_0", chance.few + before)
        if deltas:
            assert self.delta is not None
            self.delta -= lost
        self.broken = self.broken or bool(deltas) or any(file in self.synced for file in mine)

    def hive_drops_a_partition(self, chance: Chance) -> None:
        """Hive drops a partition of an external table, whose files stay where they are."""
        day = chance.day
        if day in self.partitions:
            self.dropped[day] = self.partitions.pop(day)
            self.lake.glue.delete_partition(DatabaseName=self.lake.database, TableName=self.name, PartitionValues=[day])

    def hive_takes_a_partition_back(self, chance: Chance) -> None:
        day = chance.day
        if day in self.dropped and self._objects(self.dropped[day]):
            self._add_partition(day, self.dropped.pop(day))

    def hive_moves_a_partition(self, chance: Chance) -> None:
        day = chance.day
        old = self.partitions.get(day)
        mine = [file for file in self.hive if old and file.startswith(f"{old}/")]
        if old is None or not mine:
            return
        new = f"s3://{self.far}/{self.name}/moved-{self.ids}/day={day}"
        for file in mine:
            target = new + file.removeprefix(old)
            self._put(target, self._get(file))
            self.hive[target] = self.hive.pop(file)
            self._delete(file)
        self.broken = self.broken or any(file in self.synced for file in mine)
        self.ids += 1
        self.hive_drops_a_partition(chance)
        self.dropped.pop(day)
        self._add_partition(day, new)

    # --- Delta ----------------------------------------------------------------------------------------------------

    def delta_deletes(self, chance: Chance) -> None:
        every = chance.few + 1
        self._sql(f"DELETE FROM {{t}} WHERE id % {every} = 0")
        self._delta_now(Counter({row: n for row, n in self._rows().items() if row[1] % every}))

    def delta_merges(self, chance: Chance) -> None:
        every = chance.few + 1
        rows = self._rows()
        chosen = sorted(row for row in rows if row[1] % every == 0)
        source = " UNION ALL ".join(f"SELECT '{day}' AS day, {number} AS id" for day, number in [*chosen, ("9", -1)])
        self._sql(
            f"MERGE INTO {{t}} t USING ({source}) s ON t.id = s.id AND t.day = s.day "
            "WHEN MATCHED THEN UPDATE SET id = t.id + 1000000 "
            "WHEN NOT MATCHED THEN INSERT (id, day) VALUES (s.id, s.day)"
        )
        merged = Counter({row: n for row, n in rows.items() if row not in chosen})
        merged += Counter({(day, number + 1_000_000): rows[(day, number)] for day, number in chosen})
        if not rows[("9", -1)]:
            merged[("9", -1)] += 1
        elif ("9", -1) not in chosen:  # found by its id, and so updated
            merged[("9", -1)] -= rows[("9", -1)]
            merged[("9", 999_999)] += rows[("9", -1)]
        self._delta_now(+merged)

    def delta_optimizes(self, _: Chance) -> None:
        self._sql("OPTIMIZE {t}")
        self._delta_now(self._rows())

    # --- This package ---------------------------------------------------------------------------------------------

    def hive_is_converted(self, _: Chance) -> None:
        from airflow_hive_to_delta import convert

        (result,) = convert(
            self.lake.spark, GlueDiscovery(self.lake.database, self.name), S3Listing(), None, None, progress=False
        )
        assert result.status == "converted", result.error
        self.delta = self._hive_rows()
        self.synced = dict(self._hive_files())
        verify_table(self.lake.spark, self._table(), S3Listing())

    def hive_is_synced(self, _: Chance) -> None:
        assert self.delta is not None
        now = self._hive_files()
        conflicts = self._conflicts(now)
        if conflicts:
            with pytest.raises(PermanentError, match="accept_conflicts"):
                self._sync()
        for day in conflicts:
            self._sql(f"DELETE FROM {{t}} WHERE day = '{day}'")
            self._delta_now(Counter({row: n for row, n in self.delta.items() if row[0] != day}))
        result = self._sync(accept_conflicts=bool(conflicts))
        if conflicts:
            written = {_day(file) for file in now if file not in self.synced}
            self.settled |= {file for file in self.taken if file not in now and _day(file) in written}
        for file, rows in self.synced.items():
            if now.get(file) != rows:
                self.delta -= _rows(file, rows)
        for file, rows in now.items():
            if self.synced.get(file) != rows and self.taken.get(file) != rows:
                self.delta += _rows(file, rows)
        changed = {file for file, rows in now.items() if self.synced.get(file) != rows and self.taken.get(file) != rows}
        assert result.num_added_files == len(changed)
        self.broken = False
        self.taken = {file: rows for file, rows in self.taken.items() if file not in changed}
        self.synced = {file: rows for file, rows in now.items() if file not in self.taken}
        again = self._sync()
        assert again.status == "unchanged", again

    def _conflicts(self, now: dict[str, list[int]]) -> set[str]:
        """Days on which only people can know which rows are right: Hive has written anew what Delta had taken over."""
        days = {_day(file) for file, rows in now.items() if file in self.taken and rows != self.taken[file]}
        live = {file for file in self._live_files() if file not in self.synced and file not in self.hive}
        there = {file for file in live if file in self._objects(file.rpartition("/")[0])}
        new = {_day(file) for file in now if file not in self.synced and file not in self.taken}
        listed = {file.rpartition("/")[0] for file in there} & set(self.partitions.values())
        for file in self.taken:
            beside = file.startswith(f"{self.root}/") and file.rpartition("/")[0] in listed
            if file not in now and file not in self.settled and not beside:
                days |= {_day(file)} & new & {_day(other) for other in there}
        return days

    def hive_is_synced_by_appending(self, _: Chance) -> None:
        """Which refuses all but new files, and then a full sync does it."""
        assert self.delta is not None
        now = self._hive_files()
        untouched = all(now.get(file) == rows for file, rows in self.synced.items())
        untouched &= not self._conflicts(now)
        new = {file: rows for file, rows in now.items() if file not in self.synced and file not in self.taken}
        if not untouched:
            return
        result = sync_table(self.lake.spark, self._table(), S3Listing())
        assert result.num_added_files == len(new)
        for file, rows in new.items():
            self.delta += _rows(file, rows)
            self.synced[file] = rows

    def external_files_are_vacuumed(self, _: Chance) -> None:
        result = vacuum_external_files(self.lake.spark, self.root, 0, dry_run=False, allow_short_retention=True)
        assert result.error is None
        gone = set(result.deleted_files)
        assert all(not file.startswith(f"{self.root}/") for file in gone)
        assert not gone & set(self._hive_files()), "what Hive reads is never deleted"
        for file in gone:
            self.hive.pop(file, None)

    def the_table_is_rolled_back(self, _: Chance) -> None:
        foreign = [commit.version for commit in self._view().history if not commit.ours]
        if foreign:
            with pytest.raises(PermanentError, match="lose_versions"):
                rollback_table(self.lake.spark, self.root)
        result = rollback_table(self.lake.spark, self.root, lose_versions=foreign)
        assert result.status == "rolled_back"
        self.delta, self.synced, self.taken, self.settled, self.broken = None, {}, {}, set(), False
        for location in self.partitions.values():
            assert set(self._objects(location)) == {file for file in self.hive if file.startswith(f"{location}/")}

    def both_sides_read_what_they_must(self) -> None:
        for file, rows in self.hive.items():
            assert self._read(file) == rows
        if self.delta is not None and not self.broken:
            assert self._rows() == self.delta

    # --- What the steps are made of -------------------------------------------------------------------------------

    def _table(self) -> Any:
        (table,) = GlueDiscovery(self.lake.database, self.name).discover()
        return table

    def _sync(self, **arguments: Any) -> Any:
        return sync_table(self.lake.spark, self._table(), S3Listing(), output_mode="complete", **arguments)

    def _view(self) -> DeltaTableView:
        return DeltaTableView.for_path(self.lake.spark, self.root, options=ConversionOptions())

    def _sql(self, statement: str) -> None:
        self.lake.spark.sql(statement.format(t=f"delta.`{self.root}`"))

    def _rows(self) -> Rows:
        """The rows that Delta reads."""
        return Counter((row.day, row.id) for row in delta_at(self.lake.spark, self.root).select("day", "id").collect())

    def _live_files(self) -> set[str]:
        """The files that Delta itself reads, and not our own replay of its log."""
        if self.delta is None:
            return set()
        files = delta_at(self.lake.spark, self.root).inputFiles()
        return {unquote(file).replace("s3a://", "s3://") for file in files}

    def _delta_now(self, rows: Rows) -> None:
        """Delta has written: what it must read now, and which files of Hive it has taken over."""
        self.delta = rows
        live = self._live_files()
        for file in [file for file in self.synced if file not in live]:
            self.taken[file] = self.synced.pop(file)

    def _hive_files(self) -> dict[str, list[int]]:
        """The files that Hive wrote and reads: those in its partitions."""
        locations = tuple(f"{location}/" for location in self.partitions.values())
        return {file: rows for file, rows in self.hive.items() if file.startswith(locations)} if locations else {}

    def _hive_rows(self) -> Rows:
        rows: Rows = Counter()
        for file, numbers in self._hive_files().items():
            rows += _rows(file, numbers)
        return rows

    def _add_partition(self, day: str, location: str) -> None:
        self.partitions[day] = location
        self.lake.glue.create_partition(
            DatabaseName=self.lake.database,
            TableName=self.name,
            PartitionInput={"Values": [day], "StorageDescriptor": {**PARQUET, "Location": location}},
        )

    def _write(self, file: str, rows: int) -> None:
        numbers = list(range(self.ids + 1, self.ids + 1 + rows))
        self.ids += rows
        bucket, _, key = file.removeprefix("s3://").partition("/")
        self.lake.put(key, {"id": numbers}, bucket=bucket)
        self.hive[file] = numbers

    def _put(self, file: str, data: bytes) -> None:
        bucket, _, key = file.removeprefix("s3://").partition("/")
        self.lake.put(key, data, bucket=bucket)

    def _get(self, file: str) -> bytes:
        bucket, _, key = file.removeprefix("s3://").partition("/")
        return bytes(self.lake.s3.get_object(Bucket=bucket, Key=key)["Body"].read())

    def _read(self, file: str) -> list[int]:
        return list(pq.read_table(io.BytesIO(self._get(file)), columns=["id"])["id"].to_pylist())

    def _delete(self, file: str) -> None:
        bucket, _, key = file.removeprefix("s3://").partition("/")
        self.lake.s3.delete_object(Bucket=bucket, Key=key)

    def _objects(self, location: str) -> list[str]:
        bucket, _, key = location.removeprefix("s3://").partition("/")
        found = self.lake.s3.list_objects_v2(Bucket=bucket, Prefix=f"{key}/").get("Contents", [])
        return [f"s3://{bucket}/{file['Key']}" for file in found]


def _day(file: str) -> str:
    return file.rpartition("/")[0].rpartition("day=")[2]


def _rows(file: str, numbers: list[int]) -> Rows:
    return Counter((_day(file), number) for number in numbers)


@pytest.mark.slow
def test_a_month(lake: Lake) -> None:
    far = lake.add_bucket("eu-central-1")
    months: list[Counter[str]] = []

    # No shrinking: a step takes seconds, and the steps of a month that failed are told as they were.
    @settings(
        max_examples=MONTHS,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(chances, min_size=DAYS, max_size=DAYS))
    def run(drawn: list[Chance]) -> None:
        month = Month(lake, far, f"t{len(months)}")
        months.append(Counter())
        for chance in drawn:
            can = month.steps()
            step = can[chance.step % len(can)]
            note(f"{step.__name__}({chance})")
            step(chance)
            months[-1][step.__name__] += 1
            month.both_sides_read_what_they_must()
        if month.delta is not None:
            month.hive_is_synced(drawn[-1])
            month.both_sides_read_what_they_must()

    run()
    happened = sum(months, Counter())
    assert happened["hive_is_converted"], happened
    assert happened["hive_is_synced"], happened
