"""What a sync commits of the differences that it has found, and what it leaves for the next one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.errors import PermanentError, SchemaError, TransientError
from airflow_hive_to_delta.core.lifecycle.sync.commit import Change
from airflow_hive_to_delta.core.listing.age import ListedAt, now

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.lifecycle.sync.changes import Differences, WaitingPartitions
    from airflow_hive_to_delta.core.models import TableInfo
    from airflow_hive_to_delta.core.options import SyncOptions


def plan_change(
    table: TableInfo, found: Differences, sync_options: SyncOptions, *, overwrite: bool
) -> tuple[Change, list[str]]:
    """Decide what is committed. Returns that, and notes for people.

    :param overwrite: whether the schema is overwritten, for which every file is added anew.
    :raises PermanentError: the differences are none that this output mode can bring over.
    """
    name = table.qualified_name
    notes = []
    if found.count("conflict") and not sync_options.accept_conflicts:
        raise PermanentError(
            f"{name}: Hive has written {found.count('conflict')} file(s) anew after Delta had deleted or rewritten "
            f"rows of them or of their partition: {found.some('conflict')}. Which rows are right only people know: "
            "delete the old ones from the Delta table, then pass accept_conflicts=True, which adds the files so"
        )
    new = {"new", *(("conflict",) if found.count("conflict") else ())}
    if sync_options.output_mode == "append":
        rewritten = found.count("replaced", "lost") + found.count_live("conflict")
        if rewritten:
            raise PermanentError(
                f"{name}: {rewritten} file(s) of the Delta table were rewritten or deleted by Hive under their names: "
                f"{found.some('replaced', 'lost', 'conflict')}. Appending cannot mend that: pass "
                "output_mode='complete', which mirrors what Hive has done"
            )
        if partitions := found.rewritten_partitions():
            raise PermanentError(
                f"{name}: Hive has dropped files of the partition(s) {', '.join(partitions)} and written others there, "
                "so appending these could double rows. Pass output_mode='complete', which mirrors what Hive has done"
            )
        if found.count("gone"):
            stay = f"{found.count('gone')} file(s) that Hive has no more stay in the Delta table"
            notes.append(
                f"{stay}: append only adds. If they were deleted, it cannot be read before output_mode='complete'"
            )
        return Change(frozenset(), frozenset(), frozenset(new)), notes
    if found.count("lost"):
        notes.append(
            f"{found.count('lost')} file(s) that Delta had written were deleted with Hive's own, as INSERT OVERWRITE "
            f"does with all that lies in a folder, and are removed from the log: {found.some('lost')}"
        )
    if not overwrite:
        before = frozenset({"replaced", "conflict"})
        return Change(before, frozenset({"gone", "lost"}), frozenset({"replaced", *new})), notes
    if found.count("delta", "taken", "lost"):
        raise SchemaError(
            f"{name}: overwrite_schema=True adds every file of Hive anew, but Delta has written to this table, and its "
            "writes would be lost. Roll the table back and convert it again, or change the columns in Delta"
        )
    every = frozenset({"replaced", "same", "conflict"})
    return Change(every, frozenset({"gone", "lost"}), frozenset({*every, *new})), notes


def quiet_since(listed_at: ListedAt, quiet_period: timedelta | None) -> int | None:
    """The time after which a file is too young; None: none is."""
    if not quiet_period:
        return None
    moment = now() if listed_at.time is None else listed_at.time
    return moment - round(quiet_period.total_seconds() * 1000)


def note_waiting(
    found: Differences, waiting: WaitingPartitions, quiet_period: timedelta | None, *, overwrite: bool
) -> list[str]:
    """Notes on partitions that wait for the next sync, and on files of which no time is known.

    :raises TransientError: the schema is overwritten, for which no partition can wait.
    """
    notes = []
    if waiting.count:
        more = waiting.count - len(waiting.names)
        names = ", ".join(waiting.names) + (f" and {more} more" if more else "")
        young = f"files younger than {quiet_period} in {waiting.count} partition(s): {names}"
        if overwrite:
            raise TransientError(
                f"Hive has {young}. overwrite_schema=True adds every file anew, so none can wait for the next sync. "
                "Try again when Hive has not written for so long, or with a shorter quiet_period"
            )
        notes.append(
            f"Hive has {young}. What it has changed there waits for the next sync. If they are always written to, pass "
            "a shorter quiet_period"
        )
    changed = found.count("new", "replaced", "conflict")
    if quiet_period and changed and (timeless := found.count_without_time()):
        notes.append(
            f"{timeless} new or changed file(s) have no time in the list, so quiet_period did not apply to them"
        )
    return notes
