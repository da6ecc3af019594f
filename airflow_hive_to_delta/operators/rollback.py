"""Going back to the Hive table, as a Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.operators.arguments import Reader, read_whole_numbers
from airflow_hive_to_delta.operators.table_operator import TableOperator


class RollbackTableOperator(TableOperator):
    """Makes one Delta table, or each of a batch, the Hive table again that it was.

    Returns the :class:`RollbackResult` of each table as a dict. The registration is dropped, the catalog's old
    definition is restored, and the log is moved aside, not deleted. A table that holds writes of others than this
    package is refused, unless their versions are named. A table that is no Delta table is a success that does nothing.

    :param table: a table as discovery returned it, or just its ``name`` and ``location``, or a batch of them. Its text
        is never taken for a template.
    :param lose_versions: the versions of other writers that may be lost. (templated)
    """

    action: ClassVar[ReportedAction] = "rollback"
    verb = "Roll back"
    readers: ClassVar[Mapping[str, Reader]] = {"lose_versions": read_whole_numbers}
    template_fields: Sequence[str] = (*readers, *TableOperator.template_fields)
    ui_color = "#fce8e6"

    def __init__(self, *, lose_versions: Sequence[int | str] | str = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lose_versions = lose_versions
        self.check_arguments()
