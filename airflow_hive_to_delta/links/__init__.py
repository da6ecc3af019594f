"""Links of tasks, shown beside them in Airflow's pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperator, BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey


class SparkJobLink(BaseOperatorLink):
    """The page of the task's Spark job, where its engine has one."""

    name = "Spark job"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        # Airflow asks on the worker, when the task has ended, and keeps the answer.
        return getattr(operator, "job_page", None) or ""


class ReportLink(BaseOperatorLink):
    """The report as a page."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        # Airflow asks on the worker, when the task has ended, and keeps the answer.
        return getattr(operator, "report_page", None) or ""
