"""Campaigns for tests: their tables, plans and clocks."""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta.campaigns.decisions import Decision, add_decisions
from airflow_hive_to_delta.campaigns.plan import PlanRow, first_states, write_plan
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.core.models import TableInfo

NOON = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)


class Clock:
    """A clock that a test moves."""

    def __init__(self, time: dt.datetime = NOON) -> None:
        self.time = time

    def __call__(self) -> dt.datetime:
        return self.time

    def move(self, **duration: float) -> None:
        self.time += dt.timedelta(**duration)


def local_store(folder: Path, campaign: str = "lake") -> CampaignStore:
    return CampaignStore.open(f"file://{folder}", campaign)


def row(name: str, **known: Any) -> PlanRow:
    """The plan of a table ``sales.<name>``, of one file and a kilobyte unless it says otherwise."""
    table = TableInfo(name, f"s3://lake/{name}", database="sales")
    return PlanRow.of_table(table, **{"files": 1, "bytes": 1_000, **known})


def planned(store: CampaignStore, rows: Iterable[PlanRow], now: dt.datetime = NOON) -> Sequence[PlanRow]:
    """Write a plan, and the first states of its tables."""
    rows = list(rows)
    write_plan(store, rows)
    first_states(store, rows, store.states(), run="plan", now=now)
    return rows


def add_decision(store: CampaignStore, decision: Decision) -> str:
    """Add a decision of a person. Returns its name."""
    return add_decisions(store, [decision])[0]


def converted(table: str, **known: Any) -> dict[str, Any]:
    """The result of a conversion that was verified."""
    result: dict[str, Any] = {
        "source_table": table,
        "target_table": f"delta.{table}",
        "success": True,
        "status": "converted",
        "ours": True,
        "version": 0,
        "file_count": 3,
        "byte_count": 3_000,
        "row_count": 30,
        "location": f"s3://lake/{table}",
        "verified": {"counts": 0},
        "verification": {"success": True, "level": "counts", "version": 0, "row_count": 30},
        "error": None,
        "error_kind": None,
        "retryable": None,
    }
    return {**result, **known}


def failed(table: str, error: str = "S3 throttles", *, retryable: bool = True, **known: Any) -> dict[str, Any]:
    """The result of a conversion that failed."""
    wrong = {"success": False, "status": "failed", "error": error, "retryable": retryable, "error_kind": "AnError"}
    return converted(table, **{"verified": {}, "verification": None, "version": None, **wrong, **known})


#: What notifiers of a test's DAG have sent.
NOTES: list[str] = []


@contextmanager
def answering(option: str, user: str = "ada") -> Iterator[list[str]]:
    """Inside the block a person answers each question of a DAG run that waits for one. Yields the questions."""
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
    from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
    from airflow.models.hitl import HITLDetail
    from airflow.utils.session import create_session

    questions: list[str] = []

    def answer() -> None:
        with create_session() as session:
            waiting = session.query(HITLDetail).filter(HITLDetail.responded_at.is_(None)).all()
            for detail in waiting:
                questions.append(detail.body or "")
                task = detail.task_instance
                payload = UpdateHITLDetailPayload(chosen_options=[option], params_input={})
                person = SimpleAuthManagerUser(username=user, role="admin")
                update_hitl_detail(task.dag_id, task.run_id, task.task_id, payload, person, session)

    real = time.sleep

    def sleep(seconds: float) -> None:
        # dag.test() waits so for an answer that comes from elsewhere.
        if sys._getframe(1).f_code.co_filename.endswith("definitions/dag.py"):
            answer()
        else:
            real(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", sleep)
        yield questions
