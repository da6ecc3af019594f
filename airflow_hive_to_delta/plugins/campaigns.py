"""The campaigns under the staging roots, as one Airflow user sees them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import HTTPException, Request, status

from airflow_hive_to_delta.campaigns.documents import FORMAT
from airflow_hive_to_delta.campaigns.states import PHASES, STATES, done_states
from airflow_hive_to_delta.campaigns.times import format_time, now
from airflow_hive_to_delta.campaigns.view.burn_down import burn_down
from airflow_hive_to_delta.campaigns.view.glance import count_rows, glance_at
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.plugins.access import may_access
from airflow_hive_to_delta.plugins.campaign_index import MAX_AGE, CampaignIndex, Progress, Snapshot
from airflow_hive_to_delta.plugins.documents import CampaignFolder, Document
from airflow_hive_to_delta.plugins.table_query import TableQuery

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

log = logging.getLogger(__name__)

#: Seconds for which a request waits for documents that have changed. What is known already is answered after that.
_PATIENCE = 2.0
_SHOWN_WAVES = 30
_SHOWN_OWNERS = 500
_PHASE_LABELS: dict[str, str] = {name: phase.label for name, phase in PHASES.items()}
_NOT_FOUND = "There is no such campaign, or you may not read the DAG that it belongs to"


class CampaignSite:
    """All campaigns that the page can show.

    :param roots: the staging roots.
    :param conn_id: the Airflow connection for roots that name none.
    :param patience: seconds for which a request waits for what has changed.
    """

    def __init__(
        self, roots: Sequence[str], conn_id: str | None = None, *, max_age: float = MAX_AGE, patience: float = _PATIENCE
    ) -> None:
        self.roots = list(roots)
        self._conn_id = conn_id
        self._max_age = max_age
        self._patience = patience
        self._lock = threading.Lock()
        self._indexes: dict[str, CampaignIndex] = {}

    def list_campaigns(self, request: Request, user: BaseUser) -> tuple[list[Campaign], list[str]]:
        """The campaigns whose DAGs a user may read, those that changed last first; and which could not be read."""
        found: list[Campaign] = []
        problems: list[str] = []
        for number, root in enumerate(self.roots):
            try:
                for name, folder in self._folders(root).items():
                    campaign = self._visible(number, name, folder, request, user)
                    found += [campaign] if campaign else []
            except HTTPException as error:
                problems.append(str(error.detail))
        return sorted(found, key=lambda campaign: str(campaign.summary.get("updated")), reverse=True), problems

    def find(self, root: int, name: str, request: Request, user: BaseUser) -> Campaign:
        """One campaign.

        :raises HTTPException: 404, there is none, or the user may not read its DAG: which of both is not said.
        """
        folder = self._folders(self.roots[root]).get(name) if 0 <= root < len(self.roots) else None
        campaign = self._visible(root, name, folder, request, user) if folder else None
        if campaign is None:
            raise HTTPException(status.HTTP_404_NOT_FOUND, _NOT_FOUND)
        return campaign

    def _folders(self, root: str) -> dict[str, CampaignFolder]:
        try:
            return CampaignFolder.find_all(root, self._conn_id)
        except Exception as error:
            raise _root_failed(self.roots.index(root)) from error

    def _visible(
        self, root: int, name: str, folder: CampaignFolder, request: Request, user: BaseUser
    ) -> Campaign | None:
        with self._lock:
            index = self._indexes.setdefault(folder.uri, CampaignIndex(folder, max_age=self._max_age))
        try:
            summary = _with_waves(index.summary())
        except Exception as error:
            raise _root_failed(root) from error
        # The first of them is the one that the campaign belongs to.
        dag_id = next(iter(_dags_of(summary)), "") if summary else ""
        if summary is None or not may_access("GET", dag_id, request, user):
            return None
        may_edit = may_access("PUT", dag_id, request, user)
        return Campaign(root, name, dag_id, summary, may_edit, index, self._patience)


@dataclass(frozen=True)
class Campaign:
    """A campaign that a user may see."""

    root: int
    name: str
    dag_id: str
    summary: Document
    #: Whether the user may decide about its tables.
    may_edit: bool
    index: CampaignIndex
    patience: float

    def is_of(self, dag_id: str) -> bool:
        """Whether a DAG works on it: those of its phases may differ."""
        return dag_id in _dags_of(self.summary)

    def brief(self) -> Document:
        """What a list of campaigns shows."""
        tables, phase = self.summary.get("tables"), _text(self.summary.get("phase"))
        return {
            **{"root": self.root, "name": self.name, "dag_id": self.dag_id},
            **{"title": _text(self.summary.get("campaign")) or self.name, "phase": _PHASE_LABELS.get(phase, phase)},
            **{"updated": _text(self.summary.get("updated")), "tables": tables if isinstance(tables, int) else 0},
        }

    def overview(self) -> Document:
        """The campaign at a glance."""
        snapshot, progress = self._snapshot()
        waves = [_wave(wave) for wave in self.summary["waves"]]
        done, minute = done_states(self.summary), time.time() // 60 * 60
        rows = list(snapshot.rows.values()) if snapshot else []
        curve = burn_down(rows, snapshot.since, self.summary, minute) if snapshot else None
        counts = count_rows(rows) if snapshot else _summed(self.summary)
        owners = {row.owner for row in rows}
        forecast = curve["forecast"] if curve else None
        glance = glance_at(counts, done, owners=len(owners - {""}), forecast=forecast, now=minute)
        return {
            **self.brief(),
            "may_edit": self.may_edit,
            "revision": snapshot.revision if snapshot else "",
            "loading": progress._asdict() if progress else None,
            "done_states": sorted(done),
            "verdict": glance.verdict._asdict(),
            "cards": [card._asdict() for card in glance.cards],
            "by_state": counts,
            "owners": sorted(owners)[:_SHOWN_OWNERS],
            "burn_down": curve,
            "waves": waves[-_SHOWN_WAVES:],
        }

    def tables(self, query: TableQuery, offset: int, limit: int) -> Document:
        """A page of the tables that a query asks for, and how many there are in all."""
        snapshot, progress = self._snapshot()
        rows = snapshot.select(query) if snapshot else []
        return {
            "revision": snapshot.revision if snapshot else "",
            "loading": progress._asdict() if progress else None,
            "total": len(snapshot.rows) if snapshot else 0,
            "matching": len(rows),
            "rows": [row.to_dict() for row in rows[offset : offset + limit]],
        }

    def table(self, name: str) -> Document:
        """All that is known of one table.

        :raises HTTPException: 404, the campaign has no such table.
        """
        snapshot = self._snapshot_with([name])
        try:
            state = self.index.folder.read_state(name)
        except Exception as error:
            raise _storage_failed(error) from error
        decisions = _redacted(snapshot.decisions.get(name, []))
        return {"row": snapshot.rows[name].to_dict(), "state": _redacted(state or {}), "decisions": decisions}

    def report(self) -> bytes:
        """The report that the last wave has written.

        :raises HTTPException: 404, no wave has ended yet.
        """
        try:
            page = self.index.folder.read_bytes("report.html")
        except Exception as error:
            raise _storage_failed(error) from error
        if page is None:
            raise HTTPException(status.HTTP_404_NOT_FOUND, "No wave of the campaign has ended yet")
        return page

    def decide(self, tables: Sequence[str], decision: Document, *, by: str) -> None:
        """Record a decision about tables, which the next wave acts upon.

        :param by: the name of the user.
        :raises HTTPException: 404, one of them is not in the campaign: then nothing is recorded.
        """
        self._snapshot_with(tables)
        try:
            about = {"format": FORMAT, "at": format_time(now()), "by": by}
            made = _redacted(decision)
            self.index.folder.write_decisions({**about, "table": table, **made} for table in dict.fromkeys(tables))
        except Exception as error:
            raise _storage_failed(error) from error
        finally:
            self.index.expire()

    def _snapshot_with(self, tables: Sequence[str]) -> Snapshot:
        """The campaign as it is now, which has these tables.

        :raises HTTPException: 404, it has not; 503, that is not known yet.
        """
        snapshot, _ = self._snapshot()
        if snapshot is None:
            raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, "The campaign is still being read; try again")
        if missing := [table for table in tables if table not in snapshot.rows]:
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"There is no table {missing[0]!r} in the campaign")
        return snapshot

    def _snapshot(self) -> tuple[Snapshot | None, Progress | None]:
        try:
            return self.index.snapshot(self.patience)
        except Exception as error:
            raise _storage_failed(error) from error


def _with_waves(summary: Document | None) -> Document | None:
    """A summary whose waves are documents, whatever somebody has made of them."""
    waves = None if summary is None else summary.get("waves")
    found = [wave for wave in waves if isinstance(wave, dict)] if isinstance(waves, list) else []
    return None if summary is None else {**summary, "waves": found}


def _dags_of(summary: Document) -> list[str]:
    """The DAGs that work on a campaign, each once: first the one of the summary, then those of the newest waves."""
    named = [summary, *reversed(summary["waves"])]
    return list(dict.fromkeys(dag_id for each in named if (dag_id := _text(each.get("dag_id")))))


def _summed(summary: Document) -> Document:
    """The counts of the summary, while the tables themselves are being read."""
    found = summary.get("by_state")
    counts: Document = {}
    for state in STATES:
        entry = found.get(state) if isinstance(found, dict) else None
        known = entry if isinstance(entry, dict) else {}
        counts[state] = {name: known[name] if isinstance(known.get(name), int) else 0 for name in ("tables", "bytes")}
    return counts


def _wave(wave: Document) -> Document:
    failed = wave.get("failed")
    counted = wave.get("failed_count", len(failed) if isinstance(failed, list) else 0)
    names = ("run", "dag_id", "run_id", "started", "ended", "tables", "bytes")
    return {**{name: wave.get(name) for name in names}, "failed": counted}


def _redacted(value: Any) -> Any:
    """A document with no credential in any of its texts, whoever wrote them."""
    if isinstance(value, str):
        return redact_credentials(value)
    if isinstance(value, list):
        return [_redacted(each) for each in value]
    return {key: _redacted(each) for key, each in value.items()} if isinstance(value, dict) else value


def _root_failed(number: int) -> HTTPException:
    """The answer when a staging root cannot be read. What it is, only the log says: the user's rights are not known."""
    log.exception("The campaigns under the staging root number %d of [hive_to_delta] campaigns cannot be read", number)
    detail = f"Staging root {number + 1} cannot be read. The log of the API server has the error"
    return HTTPException(status.HTTP_502_BAD_GATEWAY, detail)


def _storage_failed(error: Exception) -> HTTPException:
    message = redact_credentials(f"{type(error).__name__}: {error}")
    return HTTPException(status.HTTP_502_BAD_GATEWAY, f"The campaign's documents cannot be read. {message}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
