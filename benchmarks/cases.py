"""The cases: which tables are made, who works on them, and what the times are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks import data
from benchmarks.jobs import BenchTable, Job
from benchmarks.measure import Entry, Mode

#: Every tool that makes a table of a folder of Parquet files, and the limit.
CONVERTERS = ("ours", "convert", "convert-no-statistics", "delta-rs", "pyiceberg", "footers")
#: Conditions that few of the different files of ``data.PLAIN`` fulfil.
FILTERS = {
    "bigint": "id BETWEEN 160 AND 170",
    "double": "price < 4.5",
    "decimal": "amount = 161.00",
    "timestamp": "at < TIMESTAMP '2020-01-01 01:00:00 UTC'",
    "string": "name = 'name 00000165'",
    "string prefix": "city LIKE 'city 0001%'",
    "partition": "day = '000001'",
    "partition and bigint": "day <= '000003' AND id = 165",
    "is null": "tag IS NULL",
}


@dataclass(frozen=True)
class Case:
    """One case.

    :param make: writes the tables under the root of a store. Takes the store, the scale, and the names of the
        contenders; returns an entry for each of them.
    :param relative_to: the contenders whose times, added up, the others' are divided by.
    :param rounds: how often each contender runs at most.
    """

    name: str
    title: str
    make: Callable[[data.Store, float, Sequence[str]], list[Entry]]
    contenders: tuple[str, ...] = CONVERTERS
    storage: Literal["local", "s3"] = "local"
    relative_to: tuple[str, ...] = ("ours",)
    unit: Literal["file", "table"] = "file"
    modes: tuple[Mode, ...] = ("cold", "warm")
    rounds: int | None = None


def _scaled(count: int, scale: float, least: int = 20) -> int:
    return max(min(least, count), round(count * scale))


def _entries(contenders: Sequence[str], job: Job, warm_up: Job, units: int | None = None) -> list[Entry]:
    units = units or sum(table.files for table in job.tables)
    return [Entry(contender, job, warm_up, units) for contender in contenders]


def _one_table(
    shape: data.Shape, files: int, *, variants: int = data.VARIANTS, least: int = 20, job: Job | None = None
) -> Callable[[data.Store, float, Sequence[str]], list[Entry]]:
    """A case of one table, warmed up with one of a tenth of its files, at most 1,000."""
    template = job or Job([])

    def make(store: data.Store, scale: float, contenders: Sequence[str]) -> list[Entry]:
        count = _scaled(files, scale, least)
        contents = shape.make_contents(min(count, variants))
        table = data.make_table(store, "table", shape, count, contents=contents)
        small = data.make_table(store, "warm_up", shape, max(least, min(1_000, count // 10)), contents=contents)
        return _entries(contenders, replace(template, tables=[table]), replace(template, tables=[small]))

    return make


def _many_tables(tables: int) -> Callable[[data.Store, float, Sequence[str]], list[Entry]]:
    """Tables of 20 files in one job. CONVERT TO DELTA, which takes seconds for each, gets the first 20 of them."""
    few = 20

    def make(store: data.Store, scale: float, contenders: Sequence[str]) -> list[Entry]:
        count = _scaled(tables, scale, 3)
        contents = data.PLAIN.make_contents(20)
        made = [data.make_table(store, f"table_{n:04d}", data.PLAIN, 20, contents=contents) for n in range(count)]
        warm_up = [data.make_table(store, f"warm_up_{n}", data.PLAIN, 20, contents=contents) for n in range(4)]
        entries = []
        for contender in contenders:
            own = made[:few] if contender.startswith("convert") else made
            entries.append(Entry(contender, Job(own), Job(warm_up), len(own)))
        return entries

    return make


def _sync_new(files: int, new: int) -> Callable[[data.Store, float, Sequence[str]], list[Entry]]:
    """New files for a large table, the conversion of those alone, and one listing of the large table."""

    def make(store: data.Store, scale: float, contenders: Sequence[str]) -> list[Entry]:
        contents = data.PLAIN.make_contents(data.VARIANTS)
        large, added, small = (
            data.make_table(store, name, data.PLAIN, count, contents=contents)
            for name, count in (("table", _scaled(files, scale)), ("new", new), ("warm_up", 100))
        )
        jobs = {
            "sync-new": (Job([large], new_files_from=added.location), Job([small], new_files_from=added.location)),
            # The small table gets new files, too.
            "ours": (Job([added]), Job([added])),
            "listing": (Job([large]), Job([small])),
        }
        return [Entry(contender, *jobs[contender], new) for contender in contenders]

    return make


def _partitions_in_two_buckets(partitions: int) -> Callable[[data.Store, float, Sequence[str]], list[Entry]]:
    """A table of Glue whose partitions lie in two buckets by turns."""

    def make(store: data.Store, scale: float, contenders: Sequence[str]) -> list[Entry]:
        from benchmarks.glue import register_table

        contents = data.PLAIN.make_contents(data.VARIANTS)
        other = data.S3Store("bench-other")

        def scattered(name: str, count: int) -> BenchTable:
            per_partition = 10
            files: dict[str, list[tuple[str, bytes]]] = {store.root: [], other.root: []}
            locations = {}
            for number in range(count):
                into = (store, other)[number % 2]
                folder = f"{name}/{data.partition_folder(number)}"
                locations[f"{number:06d}"] = f"{into.root}/{folder}"
                for part in range(per_partition):
                    content = contents[(number * per_partition + part) % len(contents)]
                    files[into.root].append((f"{folder}/part-{part:03d}.parquet", content))
            store.write(files[store.root])
            other.write(files[other.root])
            table = BenchTable(
                name=name,
                location=f"{store.root}/{name}",
                columns=data.PLAIN.columns,
                files=count * per_partition,
                rows=count * per_partition * data.PLAIN.rows,
                folders=[f"{store.root}/{name}", f"{other.root}/{name}"],
                glue_database=f"bench_{name}",
            )
            register_table(table, locations)
            return table

        table = scattered("table", _scaled(partitions, scale, 4))
        return _entries(contenders, Job([table]), Job([scattered("warm_up", 4)]))

    return make


_QUERY = Job([], filters=FILTERS, keep_log=True)
_ROW_GROUPS = data.with_row_groups(300, 500)

_ALL = (
    Case("local-10k", "10,000 files on local disk", _one_table(data.PLAIN, 10_000)),
    Case("local-100k", "100,000 files on local disk", _one_table(data.PLAIN, 100_000)),
    Case("s3-10k", "10,000 files on S3", _one_table(data.PLAIN, 10_000), storage="s3"),
    Case(
        "two-buckets",
        "1,000 partitions of 10 files in two buckets, in Glue",
        _partitions_in_two_buckets(1_000),
        contenders=("ours", "pyiceberg", "footers"),
        storage="s3",
    ),
    Case("wide", "2,000 files of 200 columns", _one_table(data.WIDE, 2_000)),
    Case("nested", "5,000 files with nested columns", _one_table(data.NESTED, 5_000)),
    Case("row-groups", "100 files of 300 row groups", _one_table(_ROW_GROUPS, 100, variants=4, least=2)),
    Case("many-tables", "1,000 tables of 20 files", _many_tables(1_000), unit="table"),
    Case(
        "small-20",
        "One table of 20 files",
        _one_table(data.PLAIN, 20),
        contenders=("ours", "sync-unchanged", "verify-counts", "verify-full"),
    ),
    Case(
        "sync-100",
        "A sync of 100 new files into a table of 100,000",
        _sync_new(100_000, 100),
        contenders=("sync-new", "ours", "listing"),
        relative_to=("ours", "listing"),
    ),
    Case(
        "verify-100k",
        "A check of a table of 100,000 files by counts",
        _one_table(data.PLAIN, 100_000),
        contenders=("verify-counts", "footers"),
        relative_to=("footers",),
    ),
    Case(
        "query-100k",
        "The first query on a table of 100,000 files",
        _one_table(data.PLAIN, 100_000, job=_QUERY),
        contenders=("query-ours", "query-convert", "query-delta-rs"),
        relative_to=("query-ours",),
    ),
    Case(
        "million",
        "1,000,000 files on local disk",
        _one_table(data.PLAIN, 1_000_000, job=_QUERY),
        contenders=("ours", "delta-rs", "footers", "query-ours", "query-delta-rs"),
        modes=("cold",),
        rounds=1,
    ),
)
CASES: dict[str, Case] = {case.name: case for case in _ALL}
#: What ``make bench`` leaves to ``make bench-million``.
NOT_BY_DEFAULT = frozenset({"million"})
