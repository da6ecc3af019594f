"""The plan of a rollback: what is lost by it, what is moved, and where to. Kept beside the log as ``rollback.json``.

The plan is whole before anything is done, so that any later call can carry it out. What is read back of it is checked
before it is used: anybody who may write to the table's folder can have changed it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import tempfile
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.delta.deletion_vectors import vector_files
from airflow_hive_to_delta.core.delta.log.entries import Commit, commit_info_of
from airflow_hive_to_delta.core.delta.log.files import (
    ROLLBACK,
    ROLLED_BACK,
    commit_path,
    log_files,
    log_folder,
)
from airflow_hive_to_delta.core.delta.snapshot import Snapshot, snapshot_of
from airflow_hive_to_delta.core.errors import MissingError, PermanentError, TransientError
from airflow_hive_to_delta.core.lifecycle.ledger import read_ledger
from airflow_hive_to_delta.core.lifecycle.records import Records
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.storage.existence import look_up_files
from airflow_hive_to_delta.core.storage.uri import Location, is_hidden, parse_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RollbackPlan:
    """What a rollback does: what is lost, what is moved, and where to."""

    #: A folder for the log, and beside it what Delta wrote.
    folder: Location
    #: The version that the table was at.
    version: int
    #: The ``txnId`` of entry 0: it tells the table from one that was converted again since. None: there was none.
    first_txn_id: str | None
    lost_versions: list[int]
    #: The record that names the files to move aside, one a line; None when there are none.
    files: str | None
    notes: list[str]

    @property
    def log(self) -> Location:
        return log_folder(self.folder)

    def to_record(self) -> dict[str, Any]:
        return {
            "moved_to": str(self.folder),
            "version": self.version,
            "first_txn_id": self.first_txn_id,
            "lost_versions": self.lost_versions,
            "files": self.files,
            "notes": self.notes,
        }


def make_rollback_plan(
    spark: SparkSession, records: Records, accepted: frozenset[int], options: ConversionOptions
) -> RollbackPlan:
    """Make the plan of a rollback, and keep it beside the log.

    :param accepted: the versions of other writers that may be lost.
    :raises PermanentError: the table cannot be rolled back, or other versions than those would be lost.
    """
    # First of all: if another table takes the place of this one from here on, the plan is seen not to be of that one.
    first_txn_id = read_first_txn_id(records)
    snapshot = snapshot_of(spark, records.storage, records.root)
    if not records.is_ours(snapshot):
        raise PermanentError(
            f"The Delta log at {records.root} was not made by a conversion of this package: there is no Hive table to "
            "go back to. Nothing was changed"
        )
    foreign = [commit for commit in snapshot.history[::-1] if not commit.ours]
    gone = [version for version in range(snapshot.version) if version not in snapshot.segment.times]
    versions = sorted({*gone, *(commit.version for commit in foreign)})
    missing = _count_missing_files(spark, snapshot, options) if versions else 0
    lost = f"{missing} files that Hive reads were removed by Delta and are deleted: no rollback brings them back"
    if accepted != set(versions):
        raise PermanentError(_describe_losses(records.root, versions, gone, foreign, accepted, lost if missing else ""))
    notes = [lost] if missing else []
    moment = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{moment}-{uuid.uuid4().hex[:8]}"
    files = _keep_file_list(records, _list_name(name), _find_files_of_delta(snapshot, notes)) if versions else None
    folder = records.root.child(ROLLED_BACK).child(name)
    plan = RollbackPlan(folder, snapshot.version, first_txn_id, versions, files, notes)
    if not records.keep(ROLLBACK, plan.to_record()):
        raise TransientError(f"Another rollback of {records.root} began at the same moment. Try again")
    return plan


def read_plan(records: Records) -> RollbackPlan | None:
    """The plan that is kept beside a log; None when no rollback is under way."""
    found = records.read(ROLLBACK)
    return None if found is None else _parse_plan(records, found)


def read_first_txn_id(records: Records) -> str | None:
    """Read the ``txnId`` of entry 0, which a table that was converted again does not share; None without that entry."""
    try:
        found = commit_info_of(records.storage, commit_path(records.root, 0)).get("txnId")
    except MissingError:
        return None
    return None if found is None else str(found)


def find_later_versions(records: Records, plan: RollbackPlan) -> list[int]:
    """Find the versions in the log that are later than the plan's."""
    names = records.storage.list_names(log_folder(records.root))
    return sorted(version for version in log_files(names).commits if version > plan.version)


def read_files_to_move(records: Records, plan: RollbackPlan) -> Iterator[str]:
    """The paths, from the table's root, of the files that are to be moved aside.

    :raises MissingError: the list is not there: an earlier call has moved it.
    :raises PermanentError: the list holds what no rollback writes into it.
    """
    if plan.files is None:
        return
    with records.storage.open(records.folder.child(plan.files)) as lines:
        for number, line in enumerate(lines, 1):
            try:
                relative = json.loads(line)
            except ValueError as error:
                raise records.changed(plan.files, f"line {number} is no JSON") from error
            if not _is_path_of_data(relative):
                raise records.changed(plan.files, f"line {number} is {relative!r}")
            yield relative


_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


def _list_name(name: str) -> str:
    return f"rollback-{name}.jsonl"


def _is_path_of_data(relative: Any) -> bool:
    """Whether this is the path of a file that Hive could read, from the table's root and nowhere out of it."""
    if not isinstance(relative, str) or "\0" in relative or not {"", ".", ".."}.isdisjoint(relative.split("/")):
        return False
    return not is_hidden(relative)


def _parse_plan(records: Records, found: dict[str, Any]) -> RollbackPlan:
    """Parse the plan in a record.

    :raises PermanentError: the record cannot be of a plan for this table.
    """
    try:
        given = parse_location(found.get("moved_to", ""))
    except PermanentError as error:
        raise records.changed(ROLLBACK, f"moved_to is {found.get('moved_to')!r}") from error
    name = given.path.rpartition("/")[2]
    folder = records.root.child(ROLLED_BACK).child(name)
    version, lost, first = found.get("version"), found.get("lost_versions"), found.get("first_txn_id")
    checks = {
        "moved_to": given.canonical == folder.canonical and _NAME.fullmatch(name) is not None,
        "version": _is_version(version),
        "first_txn_id": first is None or isinstance(first, str),
        "lost_versions": isinstance(lost, list) and all(map(_is_version, lost)),
        "files": found.get("files") in (None, _list_name(name)),
        "notes": isinstance(found.get("notes"), list) and all(isinstance(note, str) for note in found["notes"]),
    }
    for field, right in checks.items():
        if not right:
            raise records.changed(ROLLBACK, f"{field} is {found.get(field)!r}")
    return RollbackPlan(folder, found["version"], first, found["lost_versions"], found["files"], found["notes"])


def _is_version(value: Any) -> bool:
    return type(value) is int and value >= 0


def _count_missing_files(spark: SparkSession, snapshot: Snapshot, options: ConversionOptions) -> int:
    """Count the files of Hive that are deleted. Only those that Delta has removed from its log are looked for."""
    removed = (
        read_ledger(snapshot)
        .files()
        .where("hive")
        .join(snapshot.files.select("key"), "key", "left_anti")
        .orderBy("key")
    )
    with spark_call(f"Looking for the files of Hive that were removed from {snapshot.root}"):
        files = ((parse_location(row.key), None) for row in removed.select("key").toLocalIterator())
        return sum(found is None for _, _, found in look_up_files(files, spark, options))


def _find_files_of_delta(snapshot: Snapshot, notes: list[str]) -> Iterator[Location]:
    """Find the files that Delta wrote where Hive would read them: data files, and deletion vectors beside them."""
    ledger = read_ledger(snapshot)
    known = ledger.files()
    if ledger.forgotten:
        said = snapshot.files.select("key").union(snapshot.removed.select("key"))
        with spark_call(f"Looking for files of unknown origin in {snapshot.root}"):
            unknown = said.join(known, "key", "left_anti").distinct().count()
        if unknown:
            raise PermanentError(
                f"The entries {_format_versions(ledger.forgotten)} of {snapshot.root} are gone from its log, and of "
                f"{unknown} files nobody knows any more whether Hive wrote them or Delta. Nothing was changed. "
                "Move the log aside by hand, and sort the files"
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


def _keep_file_list(records: Records, name: str, files: Iterable[Location]) -> str | None:
    with tempfile.TemporaryFile() as kept:
        for file in files:
            kept.write(json.dumps(records.root.relative(file)).encode() + b"\n")
        if not kept.tell():
            return None
        records.storage.put_if_absent(records.folder.child(name), kept)
    return name


def _describe_losses(
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
    found = [f"the entries {_format_versions(gone)} are gone from the log, whoever made them"] if gone else []
    found += [
        f"version {commit.version}: {commit.operation} at "
        f"{dt.datetime.fromtimestamp(commit.timestamp / 1000, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
        for commit in foreign
    ]
    given = f", but lose_versions is {sorted(accepted)}" if accepted else ""
    return (
        f"Other writers than this package have written to {root}, and a rollback loses what they wrote: "
        f"{'; '.join(found)}{given}. {f'And {lost}. ' if lost else ''}Nothing was changed. If all of this may be lost, "
        f"pass lose_versions={_format_versions(versions)}"
    )


def _format_versions(versions: Sequence[int]) -> str:
    """Versions as a list in Python, with ranges where they are shorter: ``[1, *range(3, 12)]``."""
    parts: list[str] = []
    start = 0
    for end in range(1, len(versions) + 1):
        if end == len(versions) or versions[end] != versions[end - 1] + 1:
            run = versions[start:end]
            parts += [f"*range({run[0]}, {run[-1] + 1})"] if len(run) > 5 else map(str, run)
            start = end
    return f"[{', '.join(parts)}]"
