"""The registry of actions names everything once, and is light to import."""

from __future__ import annotations

from typing import get_args

from airflow_hive_to_delta.core.results import CutOverStatus, RollbackStatus, Status, SyncStatus
from airflow_hive_to_delta.job.actions import ACTIONS, STATUSES, ActionName, ReportedAction
from airflow_hive_to_delta.report.outcomes import OutcomeStatus
from tests.test_layers import imported_by


def test_every_action_is_registered_with_all_that_a_report_needs() -> None:
    assert list(ACTIONS) == sorted(get_args(ActionName))
    for name, action in ACTIONS.items():
        reported = name in get_args(ReportedAction)
        assert [bool(known) for known in (action.result_type, action.goals, action.labels)] == [reported] * 3
        assert action.goals <= STATUSES.keys()


def test_every_action_has_a_handler() -> None:
    assert all(callable(action.load_handler()) for action in ACTIONS.values())


def test_every_status_of_a_result_is_registered() -> None:
    assert get_args(OutcomeStatus) == tuple(STATUSES)
    for statuses in (Status, SyncStatus, CutOverStatus, RollbackStatus):
        assert set(get_args(statuses)) <= STATUSES.keys()
    assert {status.colour_of for status in STATUSES.values()} <= {None, *STATUSES}


def test_the_registry_is_read_without_spark() -> None:
    assert imported_by("import airflow_hive_to_delta.job.actions").isdisjoint({"pyspark", "pyarrow", "boto3"})
