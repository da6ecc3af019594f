"""The documentation: its examples run, the site builds without a warning, and what it says of the code is true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from datetime import timedelta
from inspect import signature
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import airflow_hive_to_delta
from airflow_hive_to_delta import ConversionOptions
from tests.support.lake import PARQUET, Lake
from tests.support.layers import LAYERS
from tests.support.oracle import assert_same
from tests.support.project import PROJECT
from tests.support.tables import write_parquet

DOCS = PROJECT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SOURCES = sorted((PROJECT / "airflow_hive_to_delta").rglob("*.py"))
#: The life of one table: these pages go on from each other.
LIFE_OF_A_TABLE = ("plan-and-verify.md", "sync.md", "stream-and-read.md", "vacuum.md", "cut-over-and-roll-back.md")
#: By page, the example DAG that it shows.
DAGS = {"quick-start.md": "one_database.py", "campaigns.md": "campaign.py"}
#: Each with a DAG, which tests/engines runs.
ENGINE_PAGES = {str(path.relative_to(DOCS)) for path in (DOCS / "engines").glob("*.md")}


def python_blocks(*pages: str) -> list[str]:
    blocks = [
        re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE) for page in pages
    ]
    return [block for page in blocks for block in page]


def test_every_page_with_an_example_is_run_here() -> None:
    pages = {str(path.relative_to(DOCS)) for path in PAGES}
    assert {page for page in pages if python_blocks(page)} == {
        *(*LIFE_OF_A_TABLE, *DAGS, *ENGINE_PAGES, "python.md"),
    }


@pytest.mark.parametrize(("page", "example"), DAGS.items())
def test_a_dag_of_a_page_is_an_example_that_is_run(page: str, example: str) -> None:
    (dag,) = python_blocks(page)
    assert (PROJECT / "dags_examples" / example).read_text().endswith(dag)


def test_every_example_dag_is_named() -> None:
    examples = {path.name for path in (PROJECT / "dags_examples").glob("*.py")}
    assert set(re.findall(r"^\| `(\w+\.py)` \|", (DOCS / "migrate.md").read_text(), re.MULTILINE)) == examples


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
    groups = (airflow_hive_to_delta.hive_to_delta_sync_task_group, airflow_hive_to_delta.hive_to_delta_task_group)
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


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "WARNING -" not in run.stderr
    built = {str(page.relative_to(tmp_path / "site")) for page in (tmp_path / "site").rglob("*.html")}
    assert built - {"404.html"} == {str(page.relative_to(DOCS).with_suffix(".html")) for page in PAGES}
    operator = (tmp_path / "site" / "reference" / "convert.html").read_text()
    assert all(f"<code>{name}</code>" in operator for name in ("target_schema", "files", "table", "engine")), (
        "parameters of the operator itself, and of the classes that it inherits from"
    )
    options = (tmp_path / "site" / "reference" / "options.html").read_text()
    names = ConversionOptions().to_dict()
    assert [name for name in names if f"<code>{name}</code>" not in options] == []
    elsewhere = [
        f"{page.name}: {found}"
        for page in (tmp_path / "site").rglob("*.html")
        for found in re.findall(r'<(?:script|img|link)\b[^>]*\b(?:src|href)="(https?://[^"]*)"', page.read_text())
    ]
    assert elsewhere == [], "the pages can be read without a network"


def test_every_public_name_is_on_a_reference_page() -> None:
    names = [re.findall(r"^::: airflow_hive_to_delta\.(\w+)$", page.read_text(), re.MULTILINE) for page in PAGES]
    assert sorted(name for page in names for name in page) == airflow_hive_to_delta.__all__


def test_the_drawing_of_the_layers_has_every_package_in_its_layer() -> None:
    drawing = (DOCS / "assets" / "layers.svg").read_text()
    names = re.findall(r'<text x="\d+" y="(\d+)" font-weight="bold">([\w, ]+)</text>', drawing)
    height = {name: int(y) for y, group in names for name in group.split(", ")}
    drawn = [[height[package.removeprefix("core/")] for package in layer] for layer in LAYERS]
    assert all(max(above) < min(below) for above, below in pairwise(drawn))


def cited_rules(text: str) -> set[int]:
    """The numbers of all rules that a text cites, such as ``rule 4``, ``rules 40 to 43`` or ``rules 10, 11 and 29``."""
    found: set[int] = set()
    for numbers in re.findall(r"\brules?\s+(\d+(?:(?:,| to| and|, and)\s+\d+)*)", text, re.IGNORECASE):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", numbers):
            found |= set(range(int(first), int(last or first) + 1))
    return found


def test_citations_are_read_whole() -> None:
    assert cited_rules("(rules 10 to 12, 29), rule 4; Rules 1, 26 and 31 to 33. rule of 5") == {
        *(10, 11, 12, 29),
        *(4, 1, 26, 31, 32, 33),
    }


def test_every_rule_that_is_cited_is_on_the_page_of_rules() -> None:
    page = (DOCS / "rules.md").read_text()
    rules = [int(number) for number in re.findall(r"^\*\*(\d+)\.\*\* ", page, re.MULTILINE)]
    assert rules == list(range(1, len(rules) + 1))
    assert rules == [int(number) for number in re.findall(r"^\{ #rule-(\d+) \}$", page, re.MULTILINE)]
    cited = {path: cited_rules(path.read_text()) for path in [*SOURCES, *(PROJECT / "tests").rglob("*.py")]}
    assert len(set.union(*cited.values())) > 40
    del cited[Path(__file__)]
    assert {path: numbers - set(rules) for path, numbers in cited.items() if numbers - set(rules)} == {}


def string_literals(path: Path, *, docstrings: bool) -> list[str]:
    """The string literals of a module, those of an f-string with ``…`` for what is filled in."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    passed_over = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if not docstrings and isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed_over |= {id(part) for part in node.values}
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed_over:
            found.append(node.value)
    return found


def test_no_message_cites_a_rule() -> None:
    """A user who reads a message does not have the page of rules."""
    messages = [text for path in SOURCES for text in string_literals(path, docstrings=False)]
    assert [text for text in messages if cited_rules(text)] == []


def test_every_message_that_is_explained_is_one_of_the_code() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    messages = [row for row in rows if row != "the message"]
    assert len(messages) > 40
    texts = [text for path in SOURCES for text in string_literals(path, docstrings=False)]
    unknown = [
        message
        for message in messages
        if not any(re.search(".*".join(map(re.escape, message.split("…"))), text, re.DOTALL) for text in texts)
    ]
    assert unknown == []


@pytest.mark.slow
def test_the_examples_without_airflow(spark, s3, glue, bucket, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(airflow_hive_to_delta, "local_session", lambda: spark, raising=False)
    folder = tmp_path / "lake"
    write_parquet(folder / "events" / "year=2024" / "country=de" / "000000_0", {"id": [1, 2]})
    write_parquet(folder / "orders" / "day=2024-02-29" / "000000_0", {"id": [3]})
    fill_glue(s3, glue, bucket, write_parquet(tmp_path / "one.parquet", {"id": [4, 5, 6]}))
    spark.sql("CREATE DATABASE legacy")
    spark.sql(f"CREATE TABLE legacy.customers (id BIGINT) STORED AS PARQUET LOCATION '{tmp_path}/customers'")
    spark.sql("INSERT INTO legacy.customers VALUES (7)")
    try:
        names: dict[str, object] = {}
        for block in python_blocks("python.md"):
            exec(block.replace("/lake/", f"{folder}/"), names)  # as a reader would paste it
        assert spark.table("bronze.events").count() == 2
        assert spark.table("bronze.dim_dates").count() == 3
        assert spark.table("bronze.customers").count() == 1
        assert spark.read.format("delta").load(str(folder / "orders")).count() == 1
        assert [result.status for result in names["results"]] == ["converted"]  # type: ignore[attr-defined]
        assert "1 of 1 tables done" in capsys.readouterr().out
    finally:
        spark.sql("DROP DATABASE IF EXISTS bronze CASCADE")
        spark.sql("DROP DATABASE legacy CASCADE")
        glue.delete_database(Name="sales")


def fill_glue(s3, glue, bucket: str, file: Path) -> None:
    s3.put_object(Bucket=bucket, Key="dim_dates/000000_0", Body=file.read_bytes())
    glue.create_database(DatabaseInput={"Name": "sales"})
    glue.create_table(
        DatabaseName="sales",
        TableInput={
            "Name": "dim_dates",
            "TableType": "EXTERNAL_TABLE",
            "StorageDescriptor": {
                **PARQUET,
                "Columns": [{"Name": "id", "Type": "bigint"}],
                "Location": f"s3://{bucket}/dim_dates",
            },
        },
    )


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
    locations = {
        "2026-01-01": lake.location("orders/day=2026-01-01"),
        "2026-01-02": f"s3://{far}/days/2026-01-02",
    }
    for day, location in locations.items():
        partition = {"Values": [day], "StorageDescriptor": {**PARQUET, "Location": location}}
        lake.glue.create_partition(DatabaseName="shop", TableName="orders", PartitionInput=partition)
    yield lake
    lake.glue.delete_database(Name="shop")


@pytest.mark.slow
def test_the_life_of_a_table(
    shop: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(airflow_hive_to_delta, "local_session", lambda: spark, raising=False)
    blocks = python_blocks(*LIFE_OF_A_TABLE)
    assert len(blocks) == 8
    names: dict[str, object] = {}
    printed = []
    for block in blocks:
        exec(block, names)  # as a reader would paste it
        printed.append(capsys.readouterr().out)
        if len(printed) == 2:
            shop.put("orders/day=2026-01-01/000001_0", {"id": [9]})  # what Hive writes before the sync
    plan, verified, synced, streamed, versions, vacuumed, cut_over, rolled_back = printed
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
