"""How many requests a table on S3 takes: those for its data follow its size, and all others are always the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from airflow_hive_to_delta import ConversionOptions, GlueDiscovery, S3Listing, TableInfo, sync_table, verify_table
from airflow_hive_to_delta.core.lifecycle.convert import TableConverter
from tests.support.lake import Lake
from tests.support.s3_servers import ServedRequest, served_requests
from tests.support.small_tables import count_jobs

pytestmark = pytest.mark.slow


class Requests(NamedTuple):
    """The requests of one step."""

    #: How often each data file was read.
    data: Counter[str]
    #: LIST requests for data.
    data_lists: int
    #: All others, without what differs from table to table.
    others: Counter[str]


@contextmanager
def counted(lake: Lake, table: str) -> Iterator[Callable[[], Requests]]:
    """Count the requests of the block. The answer is for after the block."""
    with served_requests(lake.bucket) as served:
        yield lambda: _sort(served, table)


def _sort(served: list[ServedRequest], table: str) -> Requests:
    data: Counter[str] = Counter()
    others: Counter[str] = Counter()
    data_lists = 0
    for request in served:
        folder = request.query.get("prefix", request.key)
        if request.is_list and "_delta_log" not in folder:
            data_lists += 1
        elif request.method == "GET" and "_delta_log" not in folder:
            data[request.key] += 1
        else:
            path = re.sub("[0-9a-f]{32}", "*", folder.removeprefix(f"{table}/"))
            others[f"{'LIST' if request.is_list else request.method} {path}"] += 1
    return Requests(data, data_lists, others)


def make_table(lake: Lake, name: str, partitions: int, files: int, *, in_glue: bool) -> tuple[TableInfo, set[str]]:
    """A table with two partition columns, and the keys of its files."""
    folders = [(str(number % 3), str(number)) for number in range(partitions)]
    keys = {f"{name}/a={a}/p={p}/{file}" for a, p in folders for file in range(files)}
    for key in keys:
        lake.put(key, {"id": [1]})
    types = {"a": "int", "p": "int"}
    if not in_glue:
        return TableInfo(name, lake.location(name), partition_keys=list(types), partition_types=types), keys
    locations = [((a, p), f"{lake.location(name)}/a={a}/p={p}") for a, p in folders]
    lake.glue_table({"id": "bigint"}, types, locations, name=name)
    (table,) = GlueDiscovery(lake.database, name).discover(lake.spark)
    return table, keys


def measure(lake: Lake, name: str, partitions: int, files: int, *, in_glue: bool) -> dict[str, Requests]:
    """The requests of each step in the life of a table."""
    table, keys = make_table(lake, name, partitions, files, in_glue=in_glue)
    spark = lake.spark
    with counted(lake, name) as converted:
        converter = TableConverter(spark, [table], S3Listing(), None, lambda _: None, ConversionOptions())
        assert converter.convert(table).file_count == len(keys)
    with counted(lake, name) as first_synced:
        assert sync_table(spark, table, S3Listing()).status == "unchanged"
    with counted(lake, name) as synced, count_jobs(spark) as jobs:
        assert sync_table(spark, table, S3Listing()).status == "unchanged"
    assert jobs() == 0
    with counted(lake, name) as verified:
        assert verify_table(spark, table, S3Listing()).success
    steps = {"convert": converted(), "first sync": first_synced(), "sync": synced(), "verify": verified()}
    for step, requests in steps.items():
        assert requests.data_lists == 1, step
        assert requests.data == (dict.fromkeys(keys, 1) if step in ("convert", "verify") else {}), step
    return steps


@pytest.mark.parametrize("in_glue", [False, True], ids=["paths", "glue"])
def test_requests_beside_those_for_data_do_not_depend_on_the_size(lake: Lake, in_glue: bool) -> None:
    measure(lake, "first", 1, 1, in_glue=in_glue)  # it finds out about the bucket, once for all tables in it
    small = measure(lake, "small", 3, 2, in_glue=in_glue)
    large = measure(lake, "large", 12, 5, in_glue=in_glue)
    for step, requests in small.items():
        assert requests.others == large[step].others, step
    log = "_delta_log/"
    assert small["sync"].others == {
        f"LIST {log}": 1,
        f"LIST {log}_staged_commits/": 1,
        f"HEAD {log}_hive_to_delta/rollback.json": 1,
        f"GET {log}{0:020d}.json": 1,
        f"LIST {log}_hive_to_delta/": 1,
        f"GET {log}_hive_to_delta/source.json": 1,
        f"LIST {log}_hive_to_delta/ledger/": 1,
        f"GET {log}_hive_to_delta/ledger/{0:020d}-{0:020d}-*.json": 1,
    }
    totals = {step: requests.others.total() for step, requests in small.items()}
    assert totals == {"convert": 9, "first sync": 11, "sync": 8, "verify": 7}
