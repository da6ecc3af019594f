"""The states of a campaign made again from the catalog and the Delta logs, which are the truth."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_hive_to_delta.campaigns.leases import release_leases, take_leases
from airflow_hive_to_delta.campaigns.outcomes import advise
from airflow_hive_to_delta.campaigns.plan import STATES_BY_DECISION, PlanRow, waits_for_plan
from airflow_hive_to_delta.campaigns.states import StateName, TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.times import format_time
from airflow_hive_to_delta.core.errors import HiveToDeltaError, MissingError, PermanentError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions

_UNIT = "rebuild"
_LEASE = dt.timedelta(hours=1)
#: What is known from people or from work that left no trace in a log: it stays while the log says nothing else.
_KEPT_WITHOUT_LOG = ("planned", "approved", "refused", "failed", "needs_person", "excluded", "rolled_back")


def rebuild_states(
    store: CampaignStore,
    rows: Iterable[PlanRow],
    *,
    run: str,
    now: dt.datetime,
    options: ConversionOptions | None = None,
    probation: dt.timedelta = dt.timedelta(days=14),
) -> dict[str, TableState]:
    """Write the state of each table as its catalog and its Delta log say it, where that differs from the document.

    Documents that are missing or cannot be read are made anew. Files are only read, and none of the tables' own are
    written. Tables that somebody works on are left as they are. A table whose document is lost and whose log cannot be
    read needs a person, with the error.

    :param rows: the plan, with the definitions of the tables: ``read_plan(store, with_definitions=True)``.
    :param run: a name for this call, for the histories.
    :param options: by which logs are read, such as ``region``.
    :param probation: that of the campaign, for tables whose documents are lost: it begins with their cut-over.
    :returns: the states that were written.
    :raises TransientError: a storage or a catalog cannot answer now. Call it again.
    """
    by_table = {row.table: row for row in rows if row.definition is not None}
    leases = take_leases(store, by_table, run, _UNIT, now=now, lasts=_LEASE)
    chosen = options or ConversionOptions()

    def rebuild(table: str) -> TableState | None:
        try:
            before = store.state(table)
        except HiveToDeltaError:  # it cannot be read
            before = None
        after = _rebuild_state(by_table[table], before, run, now, chosen, probation)
        if after is not None:
            store.write_state(after)
        return after

    try:
        written = store.map(rebuild, leases)
    finally:
        release_leases(store, leases.values())
    return {state.table: state for state in written if state is not None}


def _rebuild_state(
    row: PlanRow,
    before: TableState | None,
    run: str,
    now: dt.datetime,
    options: ConversionOptions,
    probation: dt.timedelta,
) -> TableState | None:
    """The state of a table by its log; None when the document says so already."""
    name: StateName | None
    try:
        name, known = _state_in_log(TableInfo.from_dict(dict(row.definition or {})), options, probation)
    except PermanentError as error:
        if before is not None:
            return None
        name, known = "needs_person", {"error": str(error), "retryable": False, "advice": advise("needs_person")}
    if name is None:
        if before is not None and before.state in _KEPT_WITHOUT_LOG:
            return None
        name = STATES_BY_DECISION[row.decision]
        known = {"error": row.reason} if name == "refused" and row.reason else {}
    elif before is not None and _agrees_with_log(before, name, known):
        return None
    sizes = {"files": row.files, "bytes": row.bytes, "owner": row.owner, "location": row.location}
    fresh = TableState(row.table, name)
    if before is not None:
        fresh.history, fresh.decided = before.history, before.decided
        sizes["owner"] = before.owner or row.owner
        known |= {"probation_until": before.probation_until} if before.probation_until else {}
    return fresh.change(fresh.state, now, run=run, unit=_UNIT, changes={**sizes, "target_table": row.target, **known})


def _agrees_with_log(before: TableState, name: StateName, known: Mapping[str, Any]) -> bool:
    """Whether a document says what the log says. A synced table looks like a verified one."""
    if name == "rolled_back":
        # A person may have had it tried again since. A plan that finds no document does not know of the rollback.
        return before.state in _KEPT_WITHOUT_LOG and not (before.state == "planned" and waits_for_plan(before))
    same_work = before.version == known["version"] and before.verified == known["verified"]
    is_beyond_log = name != "cut_over" and before.state in ("synced", "excluded", "needs_person")
    return same_work and (before.state == name or is_beyond_log)


def _state_in_log(
    table: TableInfo, options: ConversionOptions, probation: dt.timedelta
) -> tuple[StateName | None, dict[str, Any]]:
    """What the catalog and the Delta log of a table say: its state, and what is known besides; None: it has no log."""
    from airflow_hive_to_delta.core.catalogs.definitions import current_definition
    from airflow_hive_to_delta.core.delta.log.commits import log_state
    from airflow_hive_to_delta.core.delta.log.files import ROLLED_BACK
    from airflow_hive_to_delta.core.lifecycle.records import Records
    from airflow_hive_to_delta.core.storage.log_storage import storage_for
    from airflow_hive_to_delta.core.storage.uri import parse_location

    if not table.location:  # a view, or a table that its catalog describes no more
        return None, {}
    root = parse_location(table.location)
    storage = storage_for(root, None, options)
    log = log_state(storage, root)
    if not log.exists:
        return ("rolled_back" if storage.list_names(root.child(ROLLED_BACK)) else None), {}
    records = Records(storage, root)
    # Delta cleans up the entry of the conversion after a while. The record of it stays.
    if not log.ours and records.source() is None:
        return None, {}
    verified = records.verified()
    known: dict[str, Any] = {"version": log.version, "verified": verified}
    try:
        is_delta = current_definition(table).format == "delta"
    except MissingError:
        is_delta = False
    if is_delta and (definitions := records.definitions()):
        written = {file.name: file.modified for file in storage.list_files(records.folder)}
        cut_over = dt.datetime.fromtimestamp(written[definitions[-1].record] // 1000, dt.UTC)
        return "cut_over", {**known, "probation_until": format_time(cut_over + probation)}
    return "verified" if verified else "converted", known
