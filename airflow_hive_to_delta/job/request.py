"""What a job is asked to do: one JSON document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_hive_to_delta.core.models import Document
from airflow_hive_to_delta.job.actions import ACTIONS, ActionName


@dataclass
class JobRequest(Document):
    """What a job is to do: one JSON document, without any credential in it."""

    action: ActionName
    #: What the action works on; :mod:`airflow_hive_to_delta.job.handlers` says what each one takes.
    arguments: dict[str, Any]
    #: For people: what the job is called where it runs.
    name: str = "airflow-hive-to-delta"

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"action is {self.action!r}, expected one of {', '.join(ACTIONS)}")
