"""Replacing a Hive definition by the Delta one, as a Spark job."""

from __future__ import annotations

from typing import ClassVar

from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.operators.table_operator import TableOperator


class CutOverTableOperator(TableOperator):
    """Makes the name of a Hive table in Glue, or each of a batch, that of its Delta table.

    Returns the :class:`CutOverResult` of each table as a dict. The old definition is kept for a rollback. From then on
    the Hive jobs that wrote the table must write to Delta: sync the table for the last time before. A table that is cut
    over already is a success that changes nothing.

    :param table: a table as discovery returned it, or a batch of them. Its text is never taken for a template.
    """

    action: ClassVar[ReportedAction] = "cut_over"
    verb = "Cut over"
    ui_color = "#e8eaf6"
