"""Every example of the documents in docs/ runs, in its order, on the tables it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from datetime import timedelta
from inspect import signature
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import airflow_hive_to_delta
from airflow_hive_to_delta import ConversionOptions
from tests.support.lake import PARQUET, Lake
from tests.support.lake import lake as lake
from tests.support.oracle import assert_same

DOCS = Path(__file__).parent.parent / "docs"


def python_blocks(document: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / document).read_text(), re.DOTALL | re.MULTILINE)


def test_every_document_is_run_here() -> None:
    assert {path.name for path in DOCS.glob("*.md") if python_blocks(path.name)} == {"after-conversion.md"}


def test_the_page_for_airflow_has_every_option_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \|", (DOCS / "airflow.md").read_text(), re.MULTILINE)
    defaults = ConversionOptions().to_dict()
    assert [(name, default) for name, default in rows if name in defaults] == [
        (name, repr(default)) for name, default in defaults.items()
    ]


def test_the_page_for_airflow_has_every_argument_with_its_default(airflow_home) -> None:
    def written(default: object) -> str:
        minutes = default.total_seconds() / 60 if isinstance(default, timedelta) else None
        return repr(default) if minutes is None else f"timedelta(minutes={minutes:g})"

    text = (DOCS / "airflow.md").read_text().partition("## Every option of the task groups")[2]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| `(.*?)` \|", text, re.MULTILINE))
    groups = (
        airflow_hive_to_delta.hive_to_delta_sync_task_group,
        airflow_hive_to_delta.hive_to_delta_task_group,
    )
    defaults = {
        name: argument.default
        for group in groups
        for name, argument in signature(group).parameters.items()
        if argument.default is not argument.empty
    }
    parts = (
        *("GlueSource", "CatalogSource", "FileListing", "GlueTarget", "CatalogTarget"),
        *("SyncSettings", "Staging", "PerTable", "LocalSpark"),
    )
    for part in (getattr(airflow_hive_to_delta, name) for name in parts):
        for field in fields(part):
            if field.default is not MISSING:
                defaults[f"{part.__name__}.{field.name}"] = field.default
            elif field.default_factory is not MISSING and field.init:
                defaults[f"{part.__name__}.{field.name}"] = field.default_factory()
    assert rows == {name: written(default) for name, default in defaults.items()}


@pytest.fixture
def shop(lake: Lake) -> Iterator[Lake]:
    """One table of orders by days in the Glue database of the examples, one of its days in another bucket."""
    lake.glue.create_database(DatabaseInput={"Name": "shop"})
    far = lake.add_bucket()
    lake.put("orders/day=2026-01-01/000000_0", {"id": [1, 2]})
    lake.put("days/2026-01-02/000000_0", {"id": [3]}, bucket=far)
    lake.glue.create_table(
        DatabaseName="shop",
        TableInput={
            "Name": "orders",
            "TableType": "EXTERNAL_TABLE",
            "PartitionKeys": [{"Name": "day", "Type": "string"}],
            "StorageDescriptor": {
                **PARQUET,
                "Columns": [{"Name": "id", "Type": "bigint"}],
                "Location": lake.location("orders"),
            },
        },
    )
    places = {
        "2026-01-01": lake.location("orders/day=2026-01-01"),
        "2026-01-02": f"s3://{far}/days/2026-01-02",
    }
    for day, place in places.items():
        partition = {"Values": [day], "StorageDescriptor": {**PARQUET, "Location": place}}
        lake.glue.create_partition(DatabaseName="shop", TableName="orders", PartitionInput=partition)
    yield lake
    lake.glue.delete_database(Name="shop")


@pytest.mark.slow
def test_after_the_conversion(
    shop: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(airflow_hive_to_delta, "local_session", lambda: spark, raising=False)
    blocks = python_blocks("after-conversion.md")
    assert len(blocks) == 8
    names: dict[str, object] = {}
    told = []
    for block in blocks:
        exec(block, names)  # as a reader would paste it
        told.append(capsys.readouterr().out)
        if len(told) == 2:
            shop.put("orders/day=2026-01-01/000001_0", {"id": [9]})  # what Hive writes before the sync
    plan, verified, synced, streamed, versions, vacuumed, cut_over, rolled_back = told
    assert "convertible" in plan
    assert verified.count(": equal to the original by ") == 2
    assert synced == "synced 1 0\n"
    assert streamed.startswith("DeltaSink[")
    assert versions.splitlines() == ["2 ['day'] delta WRITE", "2 3"]
    assert vacuumed.startswith("True []")
    assert cut_over.startswith("shop.orders: cut_over, version ")
    assert ": rolled_back, the log is at " in rolled_back
    hive = spark.read.parquet(shop.location("orders/day=2026-01-01"))
    assert_same(spark, spark.createDataFrame([(1,), (2,), (9,)], "id bigint"), hive)
