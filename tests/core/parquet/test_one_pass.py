"""Add actions that are written while footers are read are those that are written afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta import ConversionOptions, ConversionResult, DatabricksListing, TableInfo, convert
from airflow_hive_to_delta.core.files import FILES_ARROW_SCHEMA
from airflow_hive_to_delta.core.lifecycle.convert import TableConverter
from airflow_hive_to_delta.core.parquet import describe
from airflow_hive_to_delta.core.parquet.one_pass import split_sample
from airflow_hive_to_delta.core.parquet.totals import add_up_totals
from airflow_hive_to_delta.core.progress import read_counts
from tests.support.discoveries import KnownTables
from tests.support.oracle import assert_same, delta_at
from tests.support.small_tables import count_jobs, described_on_executors
from tests.support.tables import write_parquet

FILES = 8


@pytest.fixture(autouse=True)
def sample(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that the driver reads first."""
    names = ["f00", "f01", "f07"]

    def split(files: pa.Table) -> tuple[pa.Table, pa.Table]:
        chosen = pa.array([path.rpartition("/")[2] in names for path in files["path"].to_pylist()], pa.bool_())
        return files.filter(chosen), files.filter(pc.invert(chosen))

    monkeypatch.setattr(describe, "split_sample", split)
    return names


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Files of two layouts, with values in every kind of column, nulls and a NaN, and a partition without a value."""
    root = tmp_path / "t"
    for number in range(FILES):
        folder = root / ("p=__HIVE_DEFAULT_PARTITION__" if number == 7 else f"p={number % 2}")
        ids = pa.array([number, None], pa.int64())
        columns: dict[str, Any] = {"id": ids, "name": ["ä", None]}
        if number % 2:
            columns["x"] = pa.array([float("nan") if number == 5 else -number, None], pa.float64())
        write_parquet(folder / f"f{number:02}", columns)
    return root


def convert_folder(spark: SparkSession, root: Path, **options: Any) -> ConversionResult:
    table = TableInfo(name="t", location=str(root), partition_keys=["p"], partition_types={"p": "int"})
    with described_on_executors():
        (result,) = convert(
            spark,
            KnownTables(table),
            DatabricksListing(),
            None,
            None,
            options=ConversionOptions(**options),
            progress=False,
        )
    return result


def read_adds(root: Path) -> dict[str, Mapping[str, Any]]:
    lines = (root / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    adds = [action["add"] for action in map(json.loads, lines) if "add" in action]
    by_path = {add["path"]: add for add in adds}
    assert len(by_path) == len(adds)
    shutil.rmtree(root / "_delta_log")
    return by_path


@pytest.fixture
def read_once(monkeypatch) -> list[str]:
    """What the one pass ended in, each time: with the add actions or without them."""
    ends: list[str] = []
    original = describe._describe_in_one_pass

    def noting(*arguments: Any) -> Any:
        made = original(*arguments)

        class Noting:
            def __enter__(self) -> Any:
                described = made.__enter__()
                ends.append("dropped" if described is None else "kept")
                return described

            def __exit__(self, *error: Any) -> Any:
                return made.__exit__(*error)

        return Noting()

    monkeypatch.setattr(describe, "_describe_in_one_pass", noting)
    return ends


def test_footers_are_counted_while_executors_read_them(spark, root, monkeypatch) -> None:
    """Seen when the first tasks have ended and the table is not yet described."""
    seen: list[int] = []

    def footers_read() -> int:
        return read_counts().get("footers_read", 0)

    def noting(*arguments: Any) -> Any:
        seen.append(footers_read())
        return add_up_totals(*arguments)

    before = footers_read()
    monkeypatch.setattr(describe, "add_up_totals", noting)
    assert convert_folder(spark, root).status == "converted"
    _, by_executors = seen  # of the sample, before Spark has begun, and of all files
    assert by_executors == before + FILES - 3, "those that the driver has not read"
    assert footers_read() == before + FILES, "and in the end each file once"


@pytest.mark.parametrize("stats", ["footer", "none"])
@pytest.mark.parametrize("at_once", [True, False])
def test_one_pass_writes_what_two_passes_write(spark, root, monkeypatch, read_once, stats, at_once) -> None:
    if not at_once:
        monkeypatch.setattr(describe, "FILES_AT_ONCE", 0)
    one = convert_folder(spark, root, stats=stats)
    adds = read_adds(root)
    assert read_once == ["kept"]
    monkeypatch.setattr(describe, "has_driver", lambda _: False)
    two = convert_folder(spark, root, stats=stats)
    assert (one.file_count, one.byte_count, one.row_count) == (two.file_count, two.byte_count, two.row_count)
    assert adds == read_adds(root)
    assert len(read_once) == 1
    assert len(adds) == FILES
    assert all(("stats" in add) == (stats == "footer") for add in adds.values())


def test_the_table_reads_as_the_files_do(spark, root) -> None:
    assert convert_folder(spark, root).success
    original = spark.read.schema("id long, name string, x double, p int").parquet(str(root))
    assert_same(spark, original, delta_at(spark, root))


def test_one_job_does_it(spark, root) -> None:
    table = TableInfo(name="t", location=str(root), partition_keys=["p"], partition_types={"p": "int"})
    converter = TableConverter(spark, [table], DatabricksListing(), None, lambda _: None, ConversionOptions())
    with count_jobs(spark) as jobs, described_on_executors():
        assert converter.convert(*converter.tables).success
    assert jobs() == 1


def test_a_column_that_only_one_other_file_has_is_found(spark, root, read_once) -> None:
    write_parquet(root / "p=0" / "more", {"id": pa.array([1], pa.int64()), "More": ["only here"]})
    result = convert_folder(spark, root)
    assert result.success, result.error
    assert read_once == ["dropped"]
    original = spark.read.schema("id long, name string, More string, x double, p int").parquet(str(root))
    assert_same(spark, original, delta_at(spark, root))
    assert '"More"' in json.dumps({path: add["stats"] for path, add in read_adds(root).items()}).replace('\\"', '"')


@pytest.mark.parametrize("in_sample", [True, False])
def test_a_damaged_file_is_named_as_by_two_passes(spark, root, monkeypatch, sample, in_sample) -> None:
    name = "p=0/damaged"
    if in_sample:
        sample.append("damaged")
    (root / name).write_bytes(b"not Parquet")
    one = convert_folder(spark, root)
    monkeypatch.setattr(describe, "has_driver", lambda _: False)
    two = convert_folder(spark, root)
    assert not one.success
    assert (one.error, one.error_kind, one.status) == (two.error, two.error_kind, two.status)
    assert name in str(one.error)
    assert not (root / "_delta_log").exists()


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 100, 1_001])
def test_a_sample_has_the_first_and_the_last_file_and_the_others_are_the_rest(count) -> None:
    rows = [{"path": f"/t/{n:04}", "size": 1, "modification_time": 1, "partition_values": None} for n in range(count)]
    files = pa.Table.from_pylist(rows, schema=FILES_ARROW_SCHEMA)
    sample, others = split_sample(files)
    paths = sample["path"].to_pylist()
    assert sorted([*paths, *others["path"].to_pylist()]) == files["path"].to_pylist()
    assert len(paths) <= 17
    assert paths[:1] == files["path"].to_pylist()[:1]
    assert paths[-1:] == files["path"].to_pylist()[-1:]
