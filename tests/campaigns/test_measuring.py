"""Drafts of plans: sizes from S3 and from S3 Inventory, filters of partitions, and what a crash leaves of them."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta.campaigns import measuring
from airflow_hive_to_delta.campaigns.drafts import (
    FinishedPlan,
    finish_plan,
    read_draft,
    read_draft_unit,
    read_measurements,
    with_measurements,
    write_draft,
)
from airflow_hive_to_delta.campaigns.measuring import Measuring, PartitionFilter, Sizes, count_in_inventory
from airflow_hive_to_delta.campaigns.plan import PlanRow
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.core.errors import MissingError, PermanentError, TransientError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.storage import aws
from tests.support.campaigns import NOON, local_store, row
from tests.support.crashes import Killed, at_every_step, killed_at
from tests.support.inventories import put_inventory


class Tables:
    """Tables of a Glue database of their own, over objects of some bytes each."""

    def __init__(self, s3: Any, glue: Any, bucket: str) -> None:
        self.s3, self.glue, self.bucket = s3, glue, bucket
        self.database = f"d_{uuid.uuid4().hex[:12]}"
        self.rows: list[PlanRow] = []
        glue.create_database(DatabaseInput={"Name": self.database})

    def put(self, *keys: str, bucket: str | None = None, size: int = 10) -> None:
        for key in keys:
            self.s3.put_object(Bucket=bucket or self.bucket, Key=key, Body=b"x" * size)

    def add(
        self, name: str, *, location: str | None = None, dates: dict[str, str] | None = None, **known: Any
    ) -> PlanRow:
        """A table, partitioned by ``dt`` with a location for each date if there are dates."""
        location = location or f"s3://{self.bucket}/{name}"
        keys = [] if dates is None else ["dt"]
        storage = {"Columns": [], "Location": location}
        given = {"Name": name, "PartitionKeys": [{"Name": key, "Type": "string"} for key in keys]}
        self.glue.create_table(DatabaseName=self.database, TableInput={**given, "StorageDescriptor": storage})
        for date, place in (dates or {}).items():
            partition = {"Values": [date], "StorageDescriptor": {"Location": place}}
            self.glue.create_partition(DatabaseName=self.database, TableName=name, PartitionInput=partition)
        known = {"source": "glue", "partition_keys": keys, **known}
        self.rows.append(PlanRow.of_table(TableInfo(name, location, database=self.database, **known)))
        return self.rows[-1]

    @property
    def names(self) -> list[str]:
        return [each.table for each in self.rows]

    def short(self, found: dict[str, Any]) -> dict[str, Any]:
        return {name.removeprefix(f"{self.database}."): value for name, value in found.items()}


@pytest.fixture
def tables(s3: Any, glue: Any, bucket: str) -> Tables:
    return Tables(s3, glue, bucket)


def plan(
    store: CampaignStore,
    tables: Tables,
    sizes: Sizes,
    *,
    manifests: list[str] | None = None,
    partition_filter: PartitionFilter | None = None,
    run: str = "run",
) -> FinishedPlan:
    """What the tasks after the one that has found the tables do, in one process."""
    for name in store.names(f"drafts/{run}/units"):
        unit = read_draft_unit(store, run, name.removesuffix(".json"))
        Measuring(sizes, partition_filter).measure_unit(store, unit)
    measured = read_measurements(store, run)
    counts = count_in_inventory(store, run, measured, manifests or []) if manifests else {}
    rows = with_measurements(read_draft(store, run), measured, counts)
    return finish_plan(store, rows, run=run, now=NOON, dag_id="dag")


def sizes_of(plan: FinishedPlan, tables: Tables) -> dict[str, tuple[int, int]]:
    return tables.short({each.table: (each.files, each.bytes) for each in plan.rows})


@contextmanager
def requests_to(bucket: str) -> Iterator[list[str]]:
    """The keys or prefixes of the LIST and GET requests that are made for objects."""
    seen: list[str] = []

    def remember(model: Any, params: dict[str, Any], **_: Any) -> None:
        query = params["query_string"]
        seen.append(f"LIST {query.get('prefix', '')}" if model.name == "ListObjectsV2" else f"GET {params['url_path']}")

    events = aws.s3_client(bucket).meta.events
    for operation in ("ListObjectsV2", "GetObject"):
        events.register(f"before-call.s3.{operation}", remember, unique_id=f"test-{operation}")
    try:
        yield seen
    finally:
        for operation in ("ListObjectsV2", "GetObject"):
            events.unregister(f"before-call.s3.{operation}", unique_id=f"test-{operation}")


def test_sizes_by_list_and_by_inventory_are_those_of_the_tables_files(tables: Tables, s3: Any, tmp_path: Path) -> None:
    far = f"b-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=far)
    tables.put("plain/000000_0", "plain/sub/f=1", "plain/_SUCCESS", "plain/.hive-staging_1/f", "plain_v2/f")
    tables.put("parts/dt=1/a", "parts/dt=1/b", "parts/dt=unknown/c", "parts/dt=1/empty/", size=100)
    tables.put("parts/dt=1/none", size=0)
    tables.put("away/2/d", "away/22/e", bucket=far, size=1_000)
    tables.add("plain")
    tables.add("same", location=f"s3a://{tables.bucket}/plain/")
    dates = {"1": f"s3://{tables.bucket}/parts/dt=1", "2": f"s3://{far}/away/2", "3": f"s3://{far}/missing"}
    tables.add("parts", dates=dates)
    tables.add("whole", location=f"s3://{tables.bucket}/parts")
    tables.add("empty")
    tables.add("nowhere", location="s3://there-is-no-such-bucket-at-all/t")
    expected = {
        "plain": (2, 20),
        "same": (2, 20),
        "parts": (3, 1_200),
        "whole": (3, 300),
        "empty": (0, 0),
        "nowhere": (0, 0),
    }
    tables.s3.delete_object(Bucket=tables.bucket, Key="parts/dt=1/empty/")
    manifests = [put_inventory(s3, source, tables.bucket) for source in (tables.bucket, far)]

    listed = local_store(tmp_path / "listed")
    write_draft(listed, "run", tables.rows, counted=tables.names, filtered=())
    with requests_to(tables.bucket) as requests:
        assert sizes_of(plan(listed, tables, "list"), tables) == expected
        assert "LIST plain/" in requests
        count = len(requests)
        assert sizes_of(plan(listed, tables, "list"), tables) == expected
        assert len(requests) == count, "another try asks for nothing that is known"

    counted = local_store(tmp_path / "counted")
    write_draft(counted, "run", tables.rows, counted=tables.names, filtered=())
    with requests_to(tables.bucket) as requests:
        assert sizes_of(plan(counted, tables, "inventory", manifests=manifests), tables) == expected
    reads = [found.partition("/data/")[2] for found in requests if "/data/" in found]
    assert sorted(reads) == ["0.csv.gz", "0.csv.gz", "1.csv.gz", "1.csv.gz"], "each file of both reports once"
    assert not [found for found in requests if found.startswith("LIST")]


@pytest.mark.parametrize("sizes", ["list", "inventory"])
def test_a_plan_whose_process_is_killed_anywhere_goes_on(
    tables: Tables, s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: Sizes
) -> None:
    monkeypatch.setattr(measuring, "_CHUNK", 2)
    for name in "abc":
        tables.put(f"{name}/0", f"{name}/1")
        tables.add(name)
    manifests = [put_inventory(s3, tables.bucket, tables.bucket)] if sizes == "inventory" else None
    numbers = itertools.count()

    def fresh() -> CampaignStore:
        store = local_store(tmp_path / str(next(numbers)))
        write_draft(store, "run", tables.rows, counted=tables.names, filtered=())
        return store

    def check(store: CampaignStore) -> None:
        found = {state.table: (state.state, state.files, state.bytes) for state in store.states().values()}
        assert tables.short(found) == dict.fromkeys("abc", ("planned", 2, 20))

    steps = at_every_step(fresh, lambda store: plan(store, tables, sizes, manifests=manifests), check)
    assert len(steps) >= 2 + (2 if manifests else 0) + 6, "measurements; counts; plan, states, csv and summary"

    store = fresh()
    with killed_at(0, after=True), pytest.raises(Killed):
        plan(store, tables, sizes, manifests=manifests)
    with requests_to(tables.bucket) as requests:
        plan(store, tables, sizes, manifests=manifests)
    lists = [found for found in requests if found.startswith("LIST")]
    assert lists == (["LIST c/"] if sizes == "list" else []), "those of the first chunk are known"


def test_tables_with_no_partition_that_the_filter_takes_are_excluded(tables: Tables, tmp_path: Path) -> None:
    root = f"s3://{tables.bucket}"
    tables.add("old", dates={"2022": f"{root}/old/2022", "2023": f"{root}/old/2023"})
    tables.add("new", dates={"2023": f"{root}/new/2023", "2024": f"{root}/new/2024"})
    tables.add("bare", dates={})
    tables.add("plain")
    by_folders = {"spark.sql.sources.provider": "parquet"}
    tables.add("folders", dates={}, properties=by_folders)
    tables.add("projected", dates={}, properties={"projection.enabled": "true"})
    tables.add("begun", dates={"2022": f"{root}/begun/2022"})
    tables.put("new/2023/a", "new/2024/b", "folders/dt=2022/f", "begun/2022/f", "old/2022/f")
    store = local_store(tmp_path)
    others = [name for name in tables.names if not name.endswith("begun")]
    write_draft(store, "run", tables.rows, counted=tables.names, filtered=others)

    with requests_to(tables.bucket) as requests:
        made = plan(store, tables, "list", partition_filter=lambda values: (values["dt"] or "") >= "2024")

    assert tables.short({each.table: (each.decision, each.reason) for each in made.rows}) == {
        "bare": ("exclude", "It has no partitions (partition_filter)"),
        "begun": ("convert", ""),
        "folders": ("convert", ""),
        "new": ("convert", ""),
        "old": ("exclude", "None of its 2 partitions is taken (partition_filter)"),
        "plain": ("exclude", "It has no partitions (partition_filter)"),
        "projected": ("convert", ""),
    }
    assert sizes_of(made, tables)["new"] == (2, 20), "a table is converted with all its partitions"
    assert not [found for found in requests if found.startswith("LIST old")]
    assert tables.short({name: state.state for name, state in store.states().items()})["old"] == "excluded"

    write_draft(store, "run", tables.rows, counted=(), filtered=tables.names)
    with pytest.raises(
        PermanentError, match=r"partition_filter failed for the partition .*2022.* of .*KeyError\('day'\)"
    ):
        plan(store, tables, "statistics", partition_filter=lambda values: values["day"])


def test_what_cannot_be_listed_now_is_tried_again_and_stays_without_a_size(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locations(self: Measuring, table: TableInfo) -> list[Any]:
        if table.name == "b":
            raise TransientError("Glue throttles")
        return whole(self, table)

    whole = Measuring._locations
    monkeypatch.setattr(Measuring, "_locations", locations)
    for name in "ab":
        tables.put(f"{name}/0")
        tables.add(name)
    store = local_store(tmp_path)
    (name,) = write_draft(store, "run", tables.rows, counted=tables.names, filtered=())
    unit = read_draft_unit(store, "run", name)
    with pytest.raises(TransientError, match="throttles"):
        Measuring("list", is_last_try=False).measure_unit(store, unit)
    assert Measuring("list").measure_unit(store, unit) == 2
    assert sizes_of(plan(store, tables, "list"), tables) == {"a": (1, 10), "b": (0, 0)}


def test_a_draft_has_at_most_256_units_and_replaces_the_ones_before(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    rows = [row(str(number)) for number in range(130)]
    assert write_draft(store, "first", rows, counted=[each.table for each in rows[:65]], filtered=()) == [
        "0000",
        "0001",
    ]
    unit = read_draft_unit(store, "first", "0001")
    assert (unit.counted, unit.filtered, len(unit.tables)) == (["sales.64"], [], 1)
    definition = rows[0].definition
    many = [PlanRow(f"sales.{number}", definition=definition) for number in range(20_000)]
    units = write_draft(store, "second", many, counted={each.table for each in many}, filtered=())
    assert len(units) == 254
    for read in (lambda: read_draft(store, "first"), lambda: read_draft_unit(store, "first", "0000")):
        with pytest.raises(MissingError, match="another run has begun its own"):
            read()
