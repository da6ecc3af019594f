"""A table is compared by the driver or on Spark, by its size and history: each file must be of one kind for both."""

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
from tests.support.hive_folder import Folder, Walk, original
from tests.support.small_tables import count_jobs, large_checkpoints, no_small_frames, no_small_logs

#: By name, the patches with which tables are compared: by the driver, and on Spark, each with a small and a large log.
COMPARISONS = {
    "driver": [],
    "driver, large log": [large_checkpoints],
    "Spark, small log": [no_small_frames],
    "Spark": [no_small_frames, no_small_logs],
}


def compare(
    hive: Folder, listing: Any, options: ConversionOptions | None = None, **arguments: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The totals of every kind, and every file with its kind."""
    options = options or ConversionOptions()
    root = parse_location(str(hive.root))
    snapshot = snapshot_of(hive.spark, storage_for(root, hive.spark, options), root)
    files = list_table(hive.spark, listing, hive.table, options)
    with find_differences(snapshot, read_ledger(snapshot), files, {"day": "string"}, options, **arguments) as found:
        rows = [row.asDict(recursive=True) for row in found.frame.collect()]
        # Of files that neither has any more only the ledger knows, and that Hive had a new one before.
        totals = {kind: counted for kind, counted in found.totals.items() if kind != "past"}
        shown = [row | {"hive": bool(row["hive"])} for row in rows if row["kind"] != "past"]
        return totals, sorted(shown, key=lambda row: (row["key"], str(row["l_vector"])))


def compare_by_all(hive: Folder, listing: Any, **arguments: Any) -> list[dict[str, Any]]:
    answers = {}
    for comparison, patches in COMPARISONS.items():
        with ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch())
            answers[comparison] = compare(hive, listing, **arguments)
    for name, (totals, rows) in answers.items():
        assert totals == answers["driver"][0], name
        assert rows == answers["driver"][1], name
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


@pytest.mark.slow
def test_what_hive_has_changed_in_a_table_that_nobody_else_has_written_to_is_found_alike(folder: Folder) -> None:
    for day in ("3", "4", "__HIVE_DEFAULT_PARTITION__", "ü +%25"):
        for name in ("000000_0", "000001_0"):
            folder.write(day, name, [1, 2])
    folder.convert()
    folder.write("5", "000000_0", [1])
    folder.sync()  # an entry after the checkpoint
    (folder.root / "day=3" / "000000_0").unlink()
    shutil.rmtree(folder.root / "day=5")
    folder.sync("complete")
    folder.write("5", "000000_0", [1])  # there again
    folder.write("4", "000000_0", [1, 2, 3], at=1_700_000_000)
    folder.write("ü +%25", "000002_0", [1], at=1_700_000_000)
    folder.write("6", ".hidden", [1])
    folder.write("6", "_SUCCESS", [1])
    shutil.rmtree(folder.root / "day=__HIVE_DEFAULT_PARTITION__")
    rows = compare_by_all(folder, Walk())
    assert kinds(rows) == {
        "new": ["day=5/000000_0", "day=ü +%25/000002_0"],
        "replaced": ["day=4/000000_0"],
        "gone": ["day=__HIVE_DEFAULT_PARTITION__/000000_0", "day=__HIVE_DEFAULT_PARTITION__/000001_0"],
        "same": kinds(rows)["same"],
    }
    waiting = compare_by_all(folder, Walk(), quiet_since=1_750_000_000_000)
    assert kinds(waiting)["waiting"] == [
        *("day=4/000000_0", "day=5/000000_0", "day=ü +%25/000002_0"),
    ]
    with large_checkpoints():
        assert folder.sync("complete").num_removed_files == 3
        assert folder.sync("complete").status == "unchanged"
    assert folder.ids == sorted((row.day, row.id) for row in original(folder).select("day", "id").collect())


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


def test_a_file_beside_one_that_is_an_allowed_root_is_refused(converted: Folder) -> None:
    (allowed, _) = sorted(converted.root.glob("day=*/*"))
    for name in ("000000_0", "000001_0"):
        converted.write("1", name, [1])
    options = ConversionOptions(allowed_roots=[str(allowed), str(converted.root / "day=2")])
    with pytest.raises(HiveToDeltaError, match="outside the allowed roots"):
        compare(converted, Walk(), options=options)


def test_a_small_table_takes_few_jobs(converted: Folder) -> None:
    converted.sync()  # which keeps the ledger
    with count_jobs(converted.spark) as jobs:
        assert converted.sync().status == "unchanged"
    by_driver = jobs()
    converted.write("9", "000000_0", [1])
    with large_checkpoints(), count_jobs(converted.spark) as jobs:
        assert converted.sync().num_added_files == 1
    assert jobs() == 0
    with no_small_frames(), no_small_logs(), count_jobs(converted.spark) as jobs:
        assert converted.sync().status == "unchanged"
    assert by_driver == 0
    assert jobs() > by_driver
