"""Rollbacks while others write: syncs, Spark, and calls that were held up."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta import ParquetFileInfo, plan_migration
from airflow_hive_to_delta.core.catalogs.registration import Target
from airflow_hive_to_delta.core.delta.log import commits as delta_log
from airflow_hive_to_delta.core.delta.log.commits import generate_delta_log, write_delta_log
from airflow_hive_to_delta.core.delta.log.files import ROLLED_BACK
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView
from airflow_hive_to_delta.core.errors import MissingError, PermanentError
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.lifecycle.rollback.rollback import rollback_table
from airflow_hive_to_delta.core.lifecycle.verify import verify_table
from airflow_hive_to_delta.core.storage.local import LocalStorage
from airflow_hive_to_delta.core.storage.uri import Location, parse_location
from tests.support.discoveries import KnownTables
from tests.support.hive_folder import Folder, Walk
from tests.support.tables import convert_folder, write_parquet

pytestmark = pytest.mark.slow


@pytest.fixture
def written(spark: SparkSession, tmp_path: Path) -> Folder:
    """A converted table to which Hive has written since."""
    folder = Folder(spark, tmp_path / "t")
    folder.write("1", "f", [1, 2])
    folder.convert()
    folder.write("2", "f", [3])
    return folder


def test_a_sync_in_flight_writes_nothing_into_a_log_that_was_rolled_back(
    written: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = delta_log.commit

    def commit_after_rollback(*arguments: Any, **named: Any) -> bool:
        monkeypatch.undo()
        assert rollback_table(written.spark, str(written.root)).status == "rolled_back"
        return commit(*arguments, **named)

    monkeypatch.setattr(delta_log, "commit", commit_after_rollback)
    with pytest.raises(MissingError, match=r"Version 1 .* the entry 0 before it is gone.* convert it again$"):
        written.sync()
    assert not (written.root / "_delta_log").exists()
    written.convert()
    assert len(written.ids) == 3


def test_a_sync_that_was_held_up_until_after_a_rollback_leaves_a_log_that_everybody_calls_broken(
    written: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look and its put, which no storage can make one step. What the errors say to do mends it."""
    put = LocalStorage.put_if_absent

    def put_after_rollback(self: LocalStorage, path: Location, source: Any) -> bool:
        if path.path.endswith(f"{1:020d}.json"):
            monkeypatch.undo()
            assert rollback_table(written.spark, str(written.root)).status == "rolled_back"
        return put(self, path, source)

    monkeypatch.setattr(LocalStorage, "put_if_absent", put_after_rollback)
    broken = rf"is broken: it holds {1:020d}\.json, but there is no entry 0"
    spark, root = written.spark, str(written.root)
    for call in (
        written.sync,
        written.sync,
        lambda: rollback_table(spark, root),
        lambda: verify_table(spark, written.table, Walk()),
        lambda: DeltaTableView.for_path(spark, root).version,
        lambda: convert_folder(spark, written.root),
    ):
        with pytest.raises(MissingError, match=broken) as error:
            call()

    (plan,) = plan_migration(spark, KnownTables(written.table), Walk(), progress=False)
    assert (plan.status, str(error.value)) == ("refused", plan.error)
    ((name, folder),) = re.findall(r"move (\S+) out of file://(\S+), then convert the table again", str(error.value))
    Path(folder, name).rename(written.root.parent / name)
    written.convert()
    assert len(written.ids) == 3


@pytest.mark.parametrize("by", ["airflow-hive-to-delta/1", "Apache-Spark/4 Delta-Lake/4"], ids=["a sync", "Spark"])
def test_an_entry_that_is_written_while_the_log_is_moved_is_found_before_the_rollback_ends(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    root, log = tmp_path / "t", tmp_path / "t" / "_delta_log"
    write_parquet(root / "f", {"id": [1, 2]})
    convert_folder(spark, root)
    entry = log / f"{1:020d}.json"
    lines = [{"commitInfo": {"operation": "WRITE", "engineInfo": by}}, {"add": {"path": "part-1.parquet"}}]
    move = LocalStorage.move

    def move_and_write(self: LocalStorage, source: Location, target: Location) -> None:
        move(self, source, target)
        if source.path.endswith("source.json"):
            monkeypatch.undo()
            entry.write_text("".join(json.dumps(line) + "\n" for line in lines))
            write_parquet(root / "part-1.parquet", {"id": [3]})

    monkeypatch.setattr(LocalStorage, "move", move_and_write)
    for _ in range(2):
        with pytest.raises(PermanentError, match=r"was written while the table was being rolled back") as error:
            rollback_table(spark, str(root))
    with pytest.raises(PermanentError, match="was begun and did not finish"):
        convert_folder(spark, root)
    ((name, folder),) = re.findall(r"move (\S+) out of file://([^\s,]+),", str(error.value))
    Path(folder, name).rename(tmp_path / name)
    also = f"and move the files that version 1 (WRITE by {by}) added"
    assert (also in str(error.value)) == by.startswith("Apache")
    (root / "part-1.parquet").rename(tmp_path / "part-1.parquet")
    assert rollback_table(spark, str(root)).status == "rolled_back"
    assert not log.exists()
    assert convert_folder(spark, root).row_count == 2


@pytest.mark.slow
def test_a_call_that_was_held_up_does_not_touch_a_table_that_was_converted_again(
    spark: SparkSession, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held up before each look at its record, and before it writes the record, while others do all of that."""
    keep, read = Records.keep, Records.read
    template = tmp_path / "template"
    write_parquet(template / "f", {"id": [1, 2]})
    convert_folder(spark, template)
    Records(LocalStorage(), parse_location(str(template))).keep_registration(Target(None, database, "none"), None)
    held_up = 0
    while True:
        root = Path(shutil.copytree(template, tmp_path / f"t{held_up}"))
        name, looks = f"t{held_up}", 0

        def look(record: str, name: str = name, root: Path = root, held_up: int = held_up) -> None:
            nonlocal looks
            looks += record == "rollback.json"
            # The very first finds no record, and is the beginning.
            if record != "rollback.json" or looks != held_up + 2:
                return
            with monkeypatch.context() as patch:
                patch.setattr(Records, "keep", keep)
                patch.setattr(Records, "read", read)
                assert rollback_table(spark, str(root)).status == "rolled_back"
                file = ParquetFileInfo(str(root / "f"), (root / "f").stat().st_size)
                write_delta_log(generate_delta_log([file], SCHEMA, [], str(root)), str(root))
                spark.sql(f"CREATE TABLE {database}.{name} USING DELTA LOCATION '{root}'")
                records = Records(LocalStorage(), parse_location(str(root)))
                records.keep_registration(Target(None, database, name), None)

        with monkeypatch.context() as patch:
            patch.setattr(Records, "read", looking_first(look, read))
            patch.setattr(Records, "keep", looking_first(look, keep))
            error = raised(PermanentError, partial(rollback_table, spark, str(root)))
        if error is None:
            break  # it ended before it came to that look
        assert "while this one was held up" in str(error)
        assert spark.table(f"{database}.{name}").count() == 2
        log, (aside,) = root / "_delta_log", (root / ROLLED_BACK).iterdir()
        assert len(list(log.rglob("*.json"))) == 2, "the entry, and the record of its name"
        old = (aside / "_delta_log" / f"{0:020d}.json").read_bytes()
        assert old == (template / "_delta_log" / f"{0:020d}.json").read_bytes() != (log / f"{0:020d}.json").read_bytes()
        held_up += 1
    assert held_up > 5


def looking_first(look: Callable[[str], None], method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of Records that looks at the name of the record before it does its work."""

    def looked(records: Records, name: str, *more: Any) -> Any:
        look(name)
        return method(records, name, *more)

    return looked


def raised(kind: type[Exception], call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except kind as error:
        return error
    return None


SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
