"""States of a unit's tables while its job runs, and leases that last as long."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

from airflow_hive_to_delta.campaigns.outcomes import WorkOutcome
from airflow_hive_to_delta.campaigns.units import UnitWork
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.engines.watch import describe_failure
from airflow_hive_to_delta.operators.tables.result_store import ResultStore

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_to_delta.operators.campaigns.units import UnitOperator

_SECONDS = 15.0


class LiveStates:
    """Inside the block, a thread writes the states of tables whose results the job has left, and renews the leases.

    :param with_results: whether it writes states; else it only renews the leases.
    """

    def __init__(self, operator: UnitOperator, context: Context, work: UnitWork, *, with_results: bool) -> None:
        instance: Any = context["ti"]
        self._operator = operator
        self._context = context
        self._work = work
        self._with_results = with_results
        self._try_number: int = instance.try_number
        self._results = ResultStore(operator.run_folder(context))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="campaign-states", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        renew_after = self._work.lease.total_seconds() / 4
        renewed = time.monotonic()
        while not self._ended.wait(_SECONDS):
            try:
                if time.monotonic() - renewed >= renew_after:
                    self._work.renew()
                    renewed = time.monotonic()
                if self._with_results:
                    self.write_ended()
            except Exception as error:  # the task itself writes what is left, and fails if it cannot
                self._operator.log.warning("States cannot be written now: %s", describe_failure(error))

    def write_ended(self) -> None:
        """Write the states of tables whose work has ended well since."""
        held = [TableInfo.from_dict(table) for table in self._work.unit.tables]
        held = [table for table in held if self._work.holds(table.qualified_name)]
        ended = self._results.earlier_tries(held).ended
        links = self._operator.links(self._context)
        for name, (number, record) in ended.items():
            if number == self._try_number and record["result"].get("error") is None:
                self._work.record(name, WorkOutcome.of_result(self._work.unit.phase, record["result"]), links)
