"""A small table is compared by the driver, a large one on Spark: both must find each file to be of one kind."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_hive_to_delta import ConversionOptions
from airflow_hive_to_delta.core.delta.snapshot import snapshot_of
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.lifecycle.ledger import read_ledger
from airflow_hive_to_delta.core.lifecycle.sync.changes import find_differences
from airflow_hive_to_delta.core.listing.base import list_table
from airflow_hive_to_delta.core.models import ParquetFileInfo
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import parse_location
from tests.support.hive_folder import Folder, Walk
from tests.support.small_tables import count_jobs, no_small_frames, no_small_logs

#: By name, the patches with which tables are compared: by the driver, and on Spark with a small and a large log.
COMPARISONS = {"driver": [], "Spark, small log": [no_small_frames], "Spark": [no_small_frames, no_small_logs]}


def compare(hive: Folder, listing: Any, **arguments: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The totals of every kind, and every file with its kind."""
    options = ConversionOptions()
    root = parse_location(str(hive.root))
    snapshot = snapshot_of(hive.spark, storage_for(root, hive.spark, options), root)
    files = list_table(hive.spark, listing, hive.table, options)
    with find_differences(snapshot, read_ledger(snapshot), files, {"day": "string"}, options, **arguments) as found:
        rows = [row.asDict(recursive=True) for row in found.frame.collect()]
        return found.totals, sorted(rows, key=repr)


def compare_by_all(hive: Folder, listing: Any, **arguments: Any) -> list[dict[str, Any]]:
    answers = {}
    for comparison, patches in COMPARISONS.items():
        with ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch())
            answers[comparison] = compare(hive, listing, **arguments)
    assert answers["Spark, small log"] == answers["driver"]
    assert answers["Spark"] == answers["driver"]
    return answers["driver"][1]


def kinds(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The names of the files of each kind; those that Delta named by chance without their names."""
    found: dict[str, list[str]] = {}
    for row in rows:
        folder, _, name = row["key"].removesuffix("/").rpartition("/")
        shown = f"{folder.rpartition('/')[2]}/{'*' if name.startswith('part-') else name}"
        found.setdefault(row["kind"], []).append(shown)
    return {kind: sorted(names) for kind, names in found.items()}


@pytest.mark.slow
def test_every_kind_of_file_is_found_alike(folder: Folder) -> None:
    for day in ("3", "4", "5", "6", "ü +%"):
        folder.write(day, "000000_0", [1, 2])
    folder.write("7", "000000_0", [1])
    folder.convert()
    folder.sync()
    folder.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    folder.sql("DELETE FROM {t} WHERE day = '3'")  # taken
    folder.sql("DELETE FROM {t} WHERE day = '4' AND id = 1")  # live with a deletion vector
    folder.sql("INSERT INTO {t} VALUES (8, '8')")  # Delta's own
    folder.sql("INSERT INTO {t} VALUES (9, '5')")  # Delta's own, which Hive deletes
    folder.sql("UPDATE {t} SET id = 70 WHERE day = '7'")
    shutil.rmtree(folder.root / "day=5")
    folder.write("4", "000000_0", [1, 2, 3])
    folder.write("6", "000000_0", [1, 2, 3], at=1_700_000_000)
    folder.write("9", "000000_0", [1])
    (folder.root / "day=7" / "000000_0").unlink()
    folder.write("7", "000001_0", [1])
    rows = compare_by_all(folder, Walk())
    assert kinds(rows) == {
        "same": ["day=1/000000_0", "day=2/000000_0", "day=ü +%/000000_0"],
        "taken": ["day=3/000000_0", "day=7/000000_0"],
        "conflict": ["day=4/000000_0"],
        "gone": ["day=5/000000_0"],
        "lost": ["day=5/*"],
        "replaced": ["day=6/000000_0"],
        "new": ["day=7/000001_0", "day=9/000000_0"],
        "delta": kinds(rows)["delta"],
    }
    waiting = compare_by_all(folder, Walk(), quiet_since=0)
    assert kinds(waiting)["waiting"] == [
        *("day=4/000000_0", "day=6/000000_0", "day=7/000001_0", "day=9/000000_0"),
    ]


@pytest.mark.slow
def test_a_table_without_changes_is_found_alike(folder: Folder) -> None:
    for day in ("__HIVE_DEFAULT_PARTITION__", "a b%3D", "ü"):
        folder.write(day, "000000_0", [1, 2], at=1_700_000_000)
    folder.convert()
    rows = compare_by_all(folder, Walk())
    assert set(kinds(rows)) == {"same"}
    assert {"day=null", "day=a b=", "day=ü"} <= {row["partition"] for row in rows}
    folder.sync()  # which keeps the ledger
    assert compare_by_all(folder, Walk()) == rows
    folder.write("x", "000000_0", [3])
    folder.sync()
    assert len(compare_by_all(folder, Walk())) == len(rows) + 1


class Wrong(Walk):
    """A listing with files that cannot be in the table, or that are in it twice."""

    def __init__(self, *more: str) -> None:
        self.more = more

    def list_files(self, spark: Any, table: Any) -> list[ParquetFileInfo]:
        return super().list_files(spark, table) + [ParquetFileInfo(f"{table.location}/{name}", 1) for name in self.more]


@pytest.mark.slow
@pytest.mark.parametrize("more", [["day=1/000000_0"], ["stray"], ["day=1/000000_0", "stray"]], ids=" ".join)
def test_files_that_cannot_be_in_the_table_are_refused_alike(converted: Folder, more: list[str]) -> None:
    errors = []
    for patches in COMPARISONS.values():
        with ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch())
            with pytest.raises(HiveToDeltaError) as refused:
                compare(converted, Wrong(*more))
            errors.append((type(refused.value), str(refused.value)))
    assert len(set(errors)) == 1
    assert any(name in errors[0][1] for name in more)


def test_a_small_table_takes_few_jobs(converted: Folder) -> None:
    converted.sync()  # which keeps the ledger
    with count_jobs(converted.spark) as jobs:
        assert converted.sync().status == "unchanged"
    by_driver = jobs()
    with no_small_frames(), no_small_logs(), count_jobs(converted.spark) as jobs:
        assert converted.sync().status == "unchanged"
    assert by_driver == 0
    assert jobs() > by_driver
