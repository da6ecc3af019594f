"""The states of a campaign made again from the catalog and the Delta logs, which are the truth."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_hive_to_delta.campaigns.leases import release_leases, take_leases
from airflow_hive_to_delta.campaigns.plan import PlanRow
from airflow_hive_to_delta.campaigns.states import StateName, TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.core.errors import HiveToDeltaError, MissingError
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
) -> dict[str, TableState]:
    """Write the state of each table as its catalog and its Delta log say it, where that differs from the document.

    Documents that are missing or cannot be read are made anew. Files are only read, and none of the tables' own are
    written. Tables that somebody works on are left as they are.

    :param rows: the plan, with the definitions of the tables.
    :param run: a name for this call, for the histories.
    :param options: by which logs are read, such as ``region``.
    :returns: the states that were written.
    """
    by_table = {row.table: row for row in rows if row.definition is not None}
    leases = take_leases(store, by_table, run, _UNIT, now=now, lasts=_LEASE)
    chosen = options or ConversionOptions()

    def rebuild(table: str) -> TableState | None:
        try:
            before = store.state(table)
        except HiveToDeltaError:  # it cannot be read
            before = None
        after = _rebuild_state(by_table[table], before, run, now, chosen)
        if after is not None:
            store.write_state(after)
        return after

    try:
        written = store.map(rebuild, leases)
    finally:
        release_leases(store, leases.values())
    return {state.table: state for state in written if state is not None}


def _rebuild_state(
    row: PlanRow, before: TableState | None, run: str, now: dt.datetime, options: ConversionOptions
) -> TableState | None:
    """The state of a table by its log; None when the document says so already."""
    name, known = _state_in_log(TableInfo.from_dict(dict(row.definition or {})), options)
    if name is None:
        if before is not None and before.state in _KEPT_WITHOUT_LOG:
            return None
        name = {"refused": "refused", "exclude": "excluded"}.get(row.decision, "planned")  # type: ignore[assignment]
    elif before is not None and _agrees_with_log(before, name, known):
        return None
    sizes = {"files": row.files, "bytes": row.bytes, "owner": row.owner, "location": row.location}
    history = [] if before is None else before.history
    fresh = TableState(row.table, name or "planned", history=history)
    return fresh.change(fresh.state, now, run=run, unit=_UNIT, changes={**sizes, "target_table": row.target, **known})


def _agrees_with_log(before: TableState, name: StateName, known: Mapping[str, Any]) -> bool:
    """Whether a document says what the log says. A synced table looks like a verified one."""
    same_work = before.version == known["version"] and before.verified == known["verified"]
    is_beyond_log = name != "cut_over" and before.state in ("synced", "excluded", "needs_person")
    return same_work and (before.state == name or is_beyond_log)


def _state_in_log(table: TableInfo, options: ConversionOptions) -> tuple[StateName | None, dict[str, Any]]:
    """What the catalog and the Delta log of a table say: its state, and what is known besides; None: it has no log."""
    from airflow_hive_to_delta.core.catalogs.definitions import current_definition
    from airflow_hive_to_delta.core.delta.log.commits import log_state
    from airflow_hive_to_delta.core.lifecycle.records import Records
    from airflow_hive_to_delta.core.storage.log_storage import storage_for
    from airflow_hive_to_delta.core.storage.uri import parse_location

    if not table.location:  # a view, or a table that its catalog describes no more
        return None, {}
    root = parse_location(table.location)
    storage = storage_for(root, None, options)
    log = log_state(storage, root)
    if not log.exists or not log.ours:
        return None, {}
    records = Records(storage, root)
    verified = records.verified()
    known = {"version": log.version, "verified": verified}
    try:
        is_delta = current_definition(table).format == "delta"
    except MissingError:
        is_delta = False
    if is_delta and records.definitions():
        return "cut_over", known
    return "verified" if verified else "converted", known
