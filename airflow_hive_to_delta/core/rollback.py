"""Rollback: a converted table is the Hive table again, and nothing of the Delta table is deleted.

    plan -> rollback.json -> drop the names -> move the log aside -> move Delta's files aside -> restore the definition
    -> move the records, rollback.json last

The plan is whole before anything is done, and kept beside the log. From then on every other function refuses the table,
and each step can be repeated: a crash between any two of them is mended by the same call. A name that was cut over gets
its Hive definition back only when Hive would read its own files and no others; until then it fails rather than lies.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import tempfile
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core import catalog
from airflow_hive_to_delta.core.cutover import cut_over_name, restore_definition
from airflow_hive_to_delta.core.delta_log import ROLLBACK, log_folder, log_state
from airflow_hive_to_delta.core.errors import MissingError, PermanentError, TransientError, spark_call
from airflow_hive_to_delta.core.ledger import ledger_of
from airflow_hive_to_delta.core.models import ConversionOptions, RollbackResult, TableInfo
from airflow_hive_to_delta.core.paths import Location, is_hidden, parse_location
from airflow_hive_to_delta.core.presence import with_presence
from airflow_hive_to_delta.core.records import Records
from airflow_hive_to_delta.core.snapshot import Commit, Snapshot, snapshot_of
from airflow_hive_to_delta.core.storage import Storage
from airflow_hive_to_delta.core.table import DeltaTableView, view_of
from airflow_hive_to_delta.core.vectors import vector_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Where logs lie that were rolled back. Hidden from Hive, Spark, Delta and every listing of this package.
ROLLED_BACK = "_delta_log_rolled_back"


def rollback_table(
    spark: SparkSession,
    table: DeltaTableView | TableInfo | str,
    *,
    lose_versions: Collection[int] = (),
    options: ConversionOptions | None = None,
) -> RollbackResult:
    """Make a converted table the Hive table again: its log is moved aside, and its names as a Delta table are dropped.

    Call it again after a crash, and it goes on where it was. The table can be converted again afterwards.

    :param table: a view, the Hive table, a path, or a name; a name is of no use once a first call has dropped it.
    :param lose_versions: the versions that other writers than this package made, exactly these, to say that what they
        wrote may be lost. The error that comes without it names them. Versions whose entries are gone count as theirs.
    :raises PermanentError: other writers have written, or the log was not made by a conversion of this package.
    """
    started = time.monotonic()
    options = options or ConversionOptions()
    view = view_of(spark, table, options)
    if view.travels:
        raise PermanentError(f"{view.path} with a version or a time is no table to roll back; give it without")
    records = Records(view.storage, view.root)
    plan = _begun(records)
    if plan is None:
        if not log_state(records.storage, records.root).exists:
            if records.storage.list_names(records.root.child(ROLLED_BACK)):
                _remove_empty_folders(records.storage, log_folder(records.root))  # an earlier call came as far as that
            return _result(records, table, started, status="not_delta")
        plan = _begin(spark, records, frozenset(lose_versions), options)
    return _result(records, table, started, **_carry_out(spark, records, plan, options))


@dataclass(frozen=True)
class _Plan:
    """What a rollback does, as it is kept in ``rollback.json``."""

    #: A folder for the log, and beside it what Delta wrote.
    moved_to: str
    #: The version that the table was at.
    version: int
    lost_versions: list[int]
    #: The record that names the files to move aside, one a line; None when there are none.
    files: str | None
    notes: list[str]

    @property
    def folder(self) -> Location:
        return parse_location(self.moved_to)

    @property
    def log(self) -> Location:
        return log_folder(self.folder)


_ENTRY = re.compile(r"\d{20}\.json")
_WORKERS = 16


def _result(
    records: Records, table: DeltaTableView | TableInfo | str, started: float, source_table: str = "", **found: Any
) -> RollbackResult:
    given = table.qualified_name if isinstance(table, TableInfo) else ""
    return RollbackResult(
        # The record of it may be moved already, or there was none.
        source_table=source_table or given or str(records.root),
        location=str(records.root),
        success=True,
        duration_seconds=round(time.monotonic() - started, 3),
        **found,
    )


# --- the plan ----------------------------------------------------------------------------------------------------


def _begun(records: Records) -> _Plan | None:
    """The plan of a rollback that did not finish, unless the table has been written to since, and is still whole."""
    found = records.read(ROLLBACK)
    if found is None:
        return None
    plan = _Plan(**found)
    if _written_since(records, plan) and not records.storage.list_names(plan.log):
        # Nothing was moved yet: what was written since is looked at as everything else is, before a new beginning.
        records.storage.delete(records.folder.child(ROLLBACK))
        return None
    return plan


def _begin(spark: SparkSession, records: Records, accepted: frozenset[int], options: ConversionOptions) -> _Plan:
    snapshot = snapshot_of(spark, records.storage, records.root)
    if not records.is_ours(snapshot):
        raise PermanentError(
            f"The Delta log at {records.root} was not made by a conversion of this package: there is no Hive table to "
            "go back to. Nothing was changed"
        )
    foreign = [commit for commit in snapshot.history[::-1] if not commit.ours]
    gone = [version for version in range(snapshot.version) if version not in snapshot.segment.times]
    versions = sorted({*gone, *(commit.version for commit in foreign)})
    missing = _missing_files(spark, snapshot, options) if versions else 0
    lost = f"{missing} files that Hive reads were removed by Delta and are deleted: no rollback brings them back"
    if accepted != set(versions):
        raise PermanentError(_word_needed(records.root, versions, gone, foreign, accepted, lost if missing else ""))
    notes = [lost] if missing else []
    moment = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{moment}-{uuid.uuid4().hex[:8]}"
    files = _keep_files(records, f"rollback-{name}.jsonl", _files_of_delta(snapshot, notes)) if versions else None
    moved_to = str(records.root.child(ROLLED_BACK).child(name))
    plan = _Plan(moved_to, snapshot.version, versions, files, notes)
    if not records.keep(ROLLBACK, plan.__dict__):
        raise TransientError(f"Another rollback of {records.root} began at the same moment. Try again")
    return plan


def _missing_files(spark: SparkSession, snapshot: Snapshot, options: ConversionOptions) -> int:
    """How many files of Hive are not there any more. Only one that Delta has removed can have been deleted by it."""
    removed = (
        ledger_of(snapshot).files().where("hive").join(snapshot.files.select("key"), "key", "left_anti").orderBy("key")
    )
    with spark_call(f"Looking for the files of Hive that were removed from {snapshot.root}"):
        files = ((parse_location(row.key), None) for row in removed.select("key").toLocalIterator())
        return sum(found is None for _, _, found in with_presence(files, spark, options))


def _files_of_delta(snapshot: Snapshot, notes: list[str]) -> Iterator[Location]:
    """What Delta wrote where Hive would read it: its data files, and the deletion vectors beside them."""
    ledger = ledger_of(snapshot)
    known = ledger.files()
    if ledger.forgotten:
        said = snapshot.files.select("key").union(snapshot.removed.select("key"))
        with spark_call(f"Looking for files of unknown origin in {snapshot.root}"):
            unknown = said.join(known, "key", "left_anti").distinct().count()
        if unknown:
            raise PermanentError(
                f"The entries {_as_list(ledger.forgotten)} of {snapshot.root} are gone from its log, and of {unknown} "
                "files nobody knows any more whether Hive wrote them or Delta. Nothing was changed. Move the log aside "
                "by hand, and sort the files"
            )
    with spark_call(f"Looking for the files that Delta wrote in {snapshot.root}"):
        written = known.where("hive IS NULL AND delta").select("key")
        keys = (parse_location(row.key) for row in written.toLocalIterator())
        outside = 0
        for file in chain(keys, vector_files(snapshot)):
            if not snapshot.root.holds(file):
                outside += 1
            elif not is_hidden(snapshot.root.relative(file)):
                yield file
    if outside:
        notes.append(f"{outside} files that other writers added lie outside {snapshot.root}, and were left there")


def _keep_files(records: Records, name: str, files: Iterable[Location]) -> str | None:
    with tempfile.TemporaryFile() as kept:
        for file in files:
            kept.write(json.dumps(records.root.relative(file)).encode() + b"\n")
        if not kept.tell():
            return None
        records.storage.put_if_absent(records.folder.child(name), kept)
    return name


def _word_needed(
    root: Location,
    versions: Sequence[int],
    gone: Sequence[int],
    foreign: Sequence[Commit],
    accepted: Collection[int],
    lost: str,
) -> str:
    if not versions:
        return (
            f"lose_versions is {sorted(accepted)}, but every version of {root} was made by this package. Nothing was "
            "changed; call it without lose_versions"
        )
    found = [f"the entries {_as_list(gone)} are gone from the log, whoever made them"] if gone else []
    found += [
        f"version {commit.version}: {commit.operation} at "
        f"{dt.datetime.fromtimestamp(commit.timestamp / 1000, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
        for commit in foreign
    ]
    given = f", but lose_versions is {sorted(accepted)}" if accepted else ""
    return (
        f"Other writers than this package have written to {root}, and a rollback loses what they wrote: "
        f"{'; '.join(found)}{given}. {f'And {lost}. ' if lost else ''}Nothing was changed. If all of this may be lost, "
        f"pass lose_versions={_as_list(versions)}"
    )


def _as_list(versions: Sequence[int]) -> str:
    """As Python takes it, with ranges where they are shorter."""
    words: list[str] = []
    start = 0
    for end in range(1, len(versions) + 1):
        if end == len(versions) or versions[end] != versions[end - 1] + 1:
            run = versions[start:end]
            words += [f"*range({run[0]}, {run[-1] + 1})"] if len(run) > 5 else map(str, run)
            start = end
    return f"[{', '.join(words)}]"


# --- the steps ---------------------------------------------------------------------------------------------------


def _carry_out(spark: SparkSession, records: Records, plan: _Plan, options: ConversionOptions) -> dict[str, Any]:
    """Every step of a plan, whether or not an earlier call has done it already."""
    source = records.source()
    notes = list(plan.notes)
    dropped = []
    _check_unwritten(records, plan)  # before its names go, too
    cut_over = cut_over_name(records)
    for target, region in records.registrations():
        # Of a name that was cut over the Hive definition comes back; dropping it would lose its partitions.
        if target != cut_over and catalog.unregister(spark, target, records.root, replace(options, region=region)):
            dropped.append(target.name)
    _move_log(records, plan)
    moved = _move_files(records, plan)
    restored, more = restore_definition(records, options)
    _move_records(records, plan)
    return {
        "source_table": source.qualified_name if source else "",
        "status": "rolled_back",
        "log_moved_to": str(plan.log),
        "dropped": dropped,
        "restored": [restored] if restored else [],
        "lost_versions": plan.lost_versions,
        "files_moved_aside": moved,
        "notes": notes + more,
    }


def _check_unwritten(records: Records, plan: _Plan) -> None:
    """Raise when others have written to the table since the plan was made."""
    if newer := _written_since(records, plan):
        where = f"Version {newer[0]} of {records.root} was written while it was being rolled back. Stop its writers"
        if records.storage.list_names(plan.log):
            raise PermanentError(f"{where}, take that entry out of its log, and call rollback_table again")
        raise TransientError(f"{where}, and call rollback_table again")


def _move_log(records: Records, plan: _Plan) -> None:
    """Move the log so that a reader sees an older version or none, and never a newer one that is not whole."""
    storage, log = records.storage, log_folder(records.root)
    _check_unwritten(records, plan)
    here = {file.name: file.size for file in storage.entries(log)}
    there = {file.name: file.size for file in storage.entries(plan.log)}
    if twice := [name for name in here if name in there and here[name] != there[name]]:
        raise PermanentError(
            f"{log.child(twice[0])} was written while the log was being moved to {plan.log}, which has another one of "
            "that name. Stop the writers of the table, take the newer one away, and call rollback_table again"
        )
    entries = {name for name in here if _ENTRY.fullmatch(name)}
    # Pointers first, then what they point to: checkpoints before their sidecars, and entries from the last one on.
    others = sorted(here.keys() - entries - {"_last_checkpoint"}, reverse=True)
    folders = [name for name in storage.list_names(log) if name.endswith("/") and name != _records_name(records)]
    below = [f"{folder}{name}" for folder in sorted(folders) for name in _names_below(storage, _under(log, folder))]
    first = ["_last_checkpoint"] if "_last_checkpoint" in here else []
    for name in [*first, *others, *below, *sorted(entries, reverse=True)]:
        storage.move(_under(log, name), _under(plan.log, name))


def _move_files(records: Records, plan: _Plan) -> int:
    """Move what Delta wrote out of Hive's sight, each file to the same place beside the log that was moved."""
    if plan.files is None:
        return 0

    def move(relative: str) -> bool:
        try:
            records.storage.move(_under(records.root, relative), _under(plan.folder, relative))
        except MissingError:
            return False  # Delta has deleted it: nobody can read it
        return True

    moved = 0
    try:
        with (
            records.storage.open(records.folder.child(plan.files)) as lines,
            ThreadPoolExecutor(_WORKERS) as pool,
        ):
            while some := list(islice(lines, 1_000)):
                moved += sum(pool.map(move, map(json.loads, some)))
    except MissingError:
        # An earlier call had moved all the files, and this list of them after that.
        with records.storage.open(_under(plan.log, f"{_records_name(records)}{plan.files}")) as lines:
            return sum(1 for _ in lines)
    return moved


def _move_records(records: Records, plan: _Plan) -> None:
    storage, log = records.storage, log_folder(records.root)
    names = _names_below(storage, records.folder)
    for name in sorted(names, key=lambda name: name == ROLLBACK):
        storage.move(_under(records.folder, name), _under(plan.log, f"{_records_name(records)}{name}"))
    _remove_empty_folders(storage, log)


def _written_since(records: Records, plan: _Plan) -> list[int]:
    names = records.storage.list_names(log_folder(records.root))
    versions = (int(name[:20]) for name in names if _ENTRY.fullmatch(name))
    return sorted(version for version in versions if version > plan.version)


def _records_name(records: Records) -> str:
    return f"{log_folder(records.root).relative(records.folder)}/"


def _names_below(storage: Storage, folder: Location) -> list[str]:
    """The paths of all files in a folder and in those below it, from that folder."""
    found = []
    for name in sorted(storage.list_names(folder)):
        if name.endswith("/"):
            found += [f"{name}{below}" for below in _names_below(storage, _under(folder, name))]
        else:
            found.append(name)
    return found


def _remove_empty_folders(storage: Storage, folder: Location) -> bool:
    """Take away what is left of folders: Delta takes a table with an empty log for a Delta table."""
    kept = [
        name
        for name in storage.list_names(folder)
        if not name.endswith("/") or not _remove_empty_folders(storage, _under(folder, name))
    ]
    if not kept:
        storage.remove_folder(folder)
    return not kept


def _under(folder: Location, relative: str) -> Location:
    return folder.child(relative.rstrip("/"))
