"""Rollback: a converted table is the Hive table again, and nothing of the Delta table is deleted.

    plan -> rollback.json -> drop the names -> move the log aside -> move Delta's files aside -> restore the definition
    -> move the records -> look for new entries -> move rollback.json

The plan is whole before anything is done, and kept beside the log (:mod:`rollback_plan`). From then on every other
function refuses the table, and each step can be repeated: a crash between any two of them is mended by the same call.
A name that was cut over gets its Hive definition back only when Hive would read its own files and no others; until then
queries by that name fail.

A call that was held up, while another finished the rollback and the table was converted again, must not touch the new
table: before each step a call looks whether ``rollback.json`` is still its own, and entry 0 the one that it was made
for. What remains is a call that is held up between that look and the one request after it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.catalogs import registration
from airflow_hive_to_delta.core.delta.log.commits import log_state
from airflow_hive_to_delta.core.delta.log.entries import commit_info_of
from airflow_hive_to_delta.core.delta.log.files import (
    COMMIT,
    ROLLBACK,
    ROLLED_BACK,
    LogFiles,
    log_files,
    log_folder,
    refuse_broken,
    removal_of,
)
from airflow_hive_to_delta.core.delta.table_view import DeltaTableView, view_of
from airflow_hive_to_delta.core.errors import MissingError, PermanentError, TransientError
from airflow_hive_to_delta.core.lifecycle.cut_over import find_cut_over_names, restore_definitions
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.lifecycle.rollback.plan import (
    RollbackPlan,
    find_later_versions,
    make_rollback_plan,
    read_files_to_move,
    read_first_txn_id,
    read_plan,
)
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.results import RollbackResult
from airflow_hive_to_delta.core.storage.base import Storage
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    plan = _resume_plan(records)
    if plan is None:
        if not log_state(records.storage, records.root).exists:
            if records.storage.list_names(records.root.child(ROLLED_BACK)):
                _remove_empty_folders(records.storage, log_folder(records.root))  # an earlier call came as far as that
            return _make_result(records, table, started, status="not_delta")
        plan = make_rollback_plan(spark, records, frozenset(lose_versions), options)
    return _make_result(records, table, started, **_carry_out(spark, records, plan, options))


_WORKERS = 16
#: Files of Delta that are moved between two looks at whether the rollback is still this call's.
_FILES_AT_ONCE = 1_000


def _make_result(
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


def _resume_plan(records: Records) -> RollbackPlan | None:
    """The plan of a rollback that did not finish.

    None when there is none, or when the table was written to since and nothing was moved yet.
    """
    plan = read_plan(records)
    if plan is None:
        return None
    changed = find_later_versions(records, plan) or _is_another_table(records, plan)
    if changed and not records.storage.list_names(plan.log):
        # Nothing was moved yet: what was written since is looked at as everything else is, before a new beginning.
        records.storage.delete(records.folder.child(ROLLBACK))
        return None
    return plan


# --- whether to go on --------------------------------------------------------------------------------------------


def _check_in_charge(records: Records, plan: RollbackPlan) -> None:
    """Raise when another call has ended this rollback since, or has begun anew."""
    found = read_plan(records)
    if found is None or found.folder != plan.folder:
        raise PermanentError(
            f"Another call has {'finished' if found is None else 'begun anew'} the rollback of {records.root} while "
            "this one was held up, which has done nothing since. Look whether the table is to be rolled back at all now"
        )


def _check_untouched(records: Records, plan: RollbackPlan) -> None:
    """Raise when the log is not what the plan was made for: others have written, or it is of a later conversion."""
    _check_in_charge(records, plan)
    moved = records.storage.list_names(plan.log)
    if _is_another_table(records, plan):
        if not moved:
            # Kept too late: another call had rolled the table back by then, which was converted again.
            records.storage.delete(records.folder.child(ROLLBACK))
            raise PermanentError(
                f"{records.root} was rolled back by another call and converted again while this one was held up, which "
                "has done nothing. Look whether the table is to be rolled back at all now"
            )
        raise _new_entries_error(records, log_files([f"{0:020d}.json"]))
    if newer := find_later_versions(records, plan):
        if moved:
            raise _new_entries_error(records, log_files(f"{version:020d}.json" for version in newer))
        raise TransientError(
            f"Version {newer[0]} of {records.root} was written while it was being rolled back. Stop its writers, and "
            "call rollback_table again"
        )


def _is_another_table(records: Records, plan: RollbackPlan) -> bool:
    """Whether entry 0 is there, and not the one that the plan was made for."""
    found = read_first_txn_id(records)
    return found is not None and found != plan.first_txn_id


def _new_entries_error(records: Records, files: LogFiles) -> PermanentError:
    return PermanentError(
        f"{', '.join(files.names)} of {log_folder(records.root)} was written while the table was being rolled back. "
        f"Stop the writers of the table, {removal_of(records.storage, records.root, files)}, and call rollback_table "
        "again, which finishes the rollback"
    )


# --- the steps ---------------------------------------------------------------------------------------------------


def _carry_out(spark: SparkSession, records: Records, plan: RollbackPlan, options: ConversionOptions) -> dict[str, Any]:
    """Carry out every step of a plan, whether or not an earlier call has done it. Returns fields of the result."""
    _check_records(records, plan)
    source = records.source()
    dropped = []
    cut_over = find_cut_over_names(records)
    for target, region in records.registrations():
        _check_untouched(records, plan)  # before a name goes, too
        # Of a name that was cut over the Hive definition comes back; dropping it would lose its partitions.
        if target not in cut_over and registration.unregister(
            spark, target, records.root, replace(options, region=region)
        ):
            dropped.append(target.name)
    _move_log(records, plan)
    moved = _move_files(records, plan)
    _check_untouched(records, plan)
    restored, more = restore_definitions(records, options)
    _move_records(records, plan)
    return {
        "source_table": source.qualified_name if source else "",
        "status": "rolled_back",
        "log_moved_to": str(plan.log),
        "dropped": dropped,
        "restored": restored,
        "lost_versions": plan.lost_versions,
        "files_moved_aside": moved,
        "notes": [*plan.notes, *more],
    }


def _check_records(records: Records, plan: RollbackPlan) -> None:
    """Read everything that the steps go by once before the first of them: a record may have been changed."""
    records.registrations()
    records.definitions()
    try:
        for _ in read_files_to_move(records, plan):
            pass
    except MissingError:
        # An earlier call had moved all the files, and this list of them after that.
        records.storage.size(_moved_list(records, plan))


def _move_log(records: Records, plan: RollbackPlan) -> None:
    """Move the log so that a reader sees an older version or none, and never a newer one that is not whole."""
    storage, log = records.storage, log_folder(records.root)
    _check_untouched(records, plan)
    here = {file.name: file.size for file in storage.list_files(log)}
    there = {file.name: file.size for file in storage.list_files(plan.log)}
    for name in here.keys() & there.keys():
        if here[name] != there[name] or _is_other_entry(storage, log.child(name), plan.log.child(name)):
            raise PermanentError(
                f"{log.child(name)} was written while the log was being moved to {plan.log}, which has another one of "
                "that name. Stop the writers of the table, take the newer one away, and call rollback_table again"
            )
    entries = {name for name in here if COMMIT.fullmatch(name)}
    # Pointers first, then what they point to: checkpoints before their sidecars, and entries from the last one on.
    others = sorted(here.keys() - entries - {"_last_checkpoint"}, reverse=True)
    folders = [name for name in storage.list_names(log) if name.endswith("/") and name != _records_name(records)]
    below = [
        f"{folder}{name}" for folder in sorted(folders) for name in _list_names_below(storage, _under(log, folder))
    ]
    first = ["_last_checkpoint"] if "_last_checkpoint" in here else []
    for name in [*first, *others, *below, *sorted(entries, reverse=True)]:
        _check_in_charge(records, plan)
        storage.move(_under(log, name), _under(plan.log, name))


def _is_other_entry(storage: Storage, one: Location, other: Location) -> bool:
    """Whether two entries of one name and size are not the same one, which a move that was cut off leaves twice."""
    if not COMMIT.fullmatch(one.path.rpartition("/")[2]):
        return False
    return commit_info_of(storage, one) != commit_info_of(storage, other)


def _move_files(records: Records, plan: RollbackPlan) -> int:
    """Move files that Delta wrote from where Hive reads them to the folder of the moved log, under the same paths."""

    def move(relative: str) -> bool:
        try:
            records.storage.move(_under(records.root, relative), _under(plan.folder, relative))
        except MissingError:
            return False  # Delta has deleted it, so Hive cannot read it
        return True

    moved = 0
    try:
        files = read_files_to_move(records, plan)
        with ThreadPoolExecutor(_WORKERS) as pool:
            while some := list(islice(files, _FILES_AT_ONCE)):
                _check_in_charge(records, plan)
                moved += sum(pool.map(move, some))
    except MissingError:
        with records.storage.open(_moved_list(records, plan)) as lines:
            return sum(1 for _ in lines)
    return moved


def _move_records(records: Records, plan: RollbackPlan) -> None:
    """Move the records, and that of the rollback only when nothing was written meanwhile: then it has ended."""
    storage, log = records.storage, log_folder(records.root)
    for name in _list_names_below(storage, records.folder):
        if name != ROLLBACK:
            _check_in_charge(records, plan)
            storage.move(_under(records.folder, name), _moved_record(records, plan, name))
    _check_in_charge(records, plan)
    if (left := log_files(storage.list_names(log))).names:
        raise _new_entries_error(records, left)
    storage.move(records.folder.child(ROLLBACK), _moved_record(records, plan, ROLLBACK))
    _remove_empty_folders(storage, log)
    # A writer that looked before the rollback began, and was held up until now.
    refuse_broken(storage, records.root, log_files(storage.list_names(log)))


def _moved_list(records: Records, plan: RollbackPlan) -> Location:
    return _moved_record(records, plan, str(plan.files))


def _moved_record(records: Records, plan: RollbackPlan, name: str) -> Location:
    return _under(plan.log, f"{_records_name(records)}{name}")


def _records_name(records: Records) -> str:
    return f"{log_folder(records.root).relative(records.folder)}/"


def _list_names_below(storage: Storage, folder: Location) -> list[str]:
    """The paths of all files in a folder and in those below it, from that folder."""
    found = []
    for name in sorted(storage.list_names(folder)):
        if name.endswith("/"):
            found += [f"{name}{below}" for below in _list_names_below(storage, _under(folder, name))]
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
