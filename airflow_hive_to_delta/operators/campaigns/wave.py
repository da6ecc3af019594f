"""Planning a wave of a campaign, and closing it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier, TriggerRule
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_hive_to_delta.campaigns.closing import ClosedWave, close_wave
from airflow_hive_to_delta.campaigns.times import now
from airflow_hive_to_delta.campaigns.waves import UnitSize, Wave, plan_wave, read_wave
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.links import ReportLink
from airflow_hive_to_delta.operators.campaigns.campaign_operator import CampaignOperator
from airflow_hive_to_delta.operators.campaigns.report import REPORT_DOCUMENT, REPORT_PAGE, write_report
from airflow_hive_to_delta.operators.report_publishing import REPORT
from airflow_hive_to_delta.operators.tables.outcomes import airflow_error

if TYPE_CHECKING:
    from airflow.sdk import Context

Notifiers = Sequence[BaseNotifier]


class PlanWaveOperator(CampaignOperator):
    """Chooses the tables of a wave and packs them into units, each for one task and one job.

    Returns the URIs of the units of small tables. It is skipped, with what comes after it, when no table is left to be
    worked on now.

    :param wave: how much a wave takes, and until when: :class:`Wave`.
    :param units: what a unit holds: :class:`UnitSize`.
    :param approve: take only tables that a person has approved: once and for all in the phase ``convert``, in this run
        in other phases.
    :param verify: whether the campaign verifies what it converts.
    :param only: patterns of the tables to take, such as ``sales.*``; all when not given. (templated)
    """

    template_fields: Sequence[str] = ("only", *CampaignOperator.template_fields)

    def __init__(
        self,
        *,
        wave: Wave | None = None,
        units: UnitSize | None = None,
        approve: bool = False,
        verify: bool = True,
        only: str | Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.wave = wave or Wave()
        self.units = units or UnitSize()
        self.approve = approve
        self.verify = verify
        self.only = only

    def execute(self, context: Context) -> list[str]:
        run: Any = context["dag_run"]
        try:
            planned = plan_wave(
                self.open_store(),
                self.run_key(context),
                phase=self.phase,
                wave=self.wave,
                size=self.units,
                approve=self.approve,
                verify=self.verify,
                only=self.only or None,
                now=now(),
                started=run.start_date,
                about={"dag_id": run.dag_id, "run_id": run.run_id},
            )
        except HiveToDeltaError as error:
            raise airflow_error(error) from error
        if planned is None:
            raise AirflowSkipException(
                "No table of the campaign is left to be worked on now, or the window of this run has ended"
            )
        count = len(planned.packed) + len(planned.alone)
        self.log.info(
            "%d tables of %d bytes in %d units, of which %d are of one large table; no table is begun after %s",
            *(planned.tables, planned.bytes, count, len(planned.alone), planned.until or "any time"),
        )
        return planned.packed


class LargeUnitsOperator(CampaignOperator):
    """Returns the URIs of the units of single large tables in the wave that was planned."""

    def execute(self, context: Context) -> list[str]:
        try:
            planned = read_wave(self.open_store(), self.run_key(context))
        except HiveToDeltaError as error:
            raise airflow_error(error) from error
        return [] if planned is None else planned.alone


class CloseWaveOperator(CampaignOperator):
    """Writes what became of a wave and of the campaign, notifies people, and fails when too many tables failed.

    It runs when all units have ended, however they did. Leases that the run still holds are given back. Returns the
    numbers of the wave, and where the report is.

    :param plan_task_id: the id of the task that planned the wave.
    :param tolerance: how many tables of a wave may fail before the run is red: a whole number, or a part of the wave
        such as ``0.05``. The tables that failed are always named. A unit whose task failed makes the run red anyway.
    :param verify: whether the campaign verifies what it converts.
    :param wave_ended: notifiers for the end of a wave. In their templates ``campaign`` is a dict with the ``name``, the
        ``phase``, the numbers ``tables``, ``failed`` and ``left`` of the wave, ``by_state`` of the campaign, the
        address of the ``report``, and a ``text`` that says it all.
    :param needs_person: notifiers for tables that need a person since this wave, called once for each owner:
        ``campaign`` then has ``owner`` and ``needs_person``, the names of that owner's tables, too.
    """

    operator_extra_links = (ReportLink(),)
    #: Where a person finds the report, once it is written.
    report_page: str | None = None

    def __init__(
        self,
        *,
        plan_task_id: str,
        tolerance: float = 0,
        verify: bool = True,
        wave_ended: Notifiers = (),
        needs_person: Notifiers = (),
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("trigger_rule", TriggerRule.ALL_DONE)
        super().__init__(**kwargs)
        check_tolerance(tolerance)
        self.plan_task_id = plan_task_id
        self.tolerance = tolerance
        self.verify = verify
        self.wave_ended = list(wave_ended)
        self.needs_person = list(needs_person)

    def execute(self, context: Context) -> dict[str, Any]:
        instance: Any = context["ti"]
        found = instance.get_task_states(
            dag_id=instance.dag_id, task_ids=[self.plan_task_id], run_ids=[instance.run_id]
        )
        state = found.get(instance.run_id, {}).get(self.plan_task_id)
        if state == "skipped":
            raise AirflowSkipException("No wave was planned: no table was left, or a person has not approved it")
        if state != "success":
            raise AirflowFailException(
                f"No wave was planned: {self.plan_task_id} is {state}. Read its log, or that of the task before it"
            )
        store = self.open_store()
        try:
            closed = close_wave(store, self.run_key(context), verify=self.verify, now=now())
            write_report(store, closed, context)
        except HiveToDeltaError as error:
            raise airflow_error(error) from error
        self.report_page = page = self.browser_address(REPORT_DOCUMENT)
        failed = closed.failed[:100]
        numbers = {"tables": closed.tables, "failed": len(closed.failed), "left": len(closed.left)}
        message = {
            **{"name": self.campaign, "phase": self.phase, "by_state": closed.summary["by_state"]},
            **{"forecast": closed.summary["forecast"], "report": page, **numbers},
        }
        message["text"] = _describe(closed, self.campaign)
        instance.xcom_push(REPORT, {**message, "failed_tables": failed, REPORT_PAGE: page})
        self.log.info("%s", message["text"])
        for name in failed:
            self.log.warning("%s: %s", name, closed.states[name].error)
        self._notify(context, closed, message)
        self._fail_over_tolerance(closed)
        return {**numbers, "report": page}

    def _notify(self, context: Context, closed: ClosedWave, message: dict[str, Any]) -> None:
        for notifier in self.wave_ended:
            _call(notifier, context, message)
        for owner, tables in closed.needs_person.items():
            for notifier in self.needs_person:
                text = f"{len(tables)} tables of {owner or 'nobody'} need a person: {_names(tables)}"
                _call(notifier, context, {**message, "owner": owner, "needs_person": tables, "text": text})

    def _fail_over_tolerance(self, closed: ClosedWave) -> None:
        if closed.lost_units:
            raise AirflowFailException(
                f"{len(closed.lost_units)} of {closed.units} units did not end well: their tasks failed or were lost. "
                f"Read their logs. {len(closed.left)} tables wait for the next wave: {_names(closed.left)}"
            )
        if closed.exceeds(self.tolerance):
            raise AirflowFailException(
                f"{len(closed.failed)} of {closed.tables} tables failed, of which {self.tolerance} are tolerated: "
                f"{_names(closed.failed)}"
            )


def check_tolerance(tolerance: Any) -> None:
    """Refuse, when a DAG is parsed, what is neither a number of tables nor a part of a wave."""
    is_count = type(tolerance) is int and tolerance >= 0
    is_part = type(tolerance) is float and 0 <= tolerance < 1
    if not (is_count or is_part):
        raise ValueError(f"tolerance is {tolerance!r}, expected a number of tables, or a part of a wave such as 0.05")


def _call(notifier: BaseNotifier, context: Context, message: dict[str, Any]) -> None:
    # A notifier renders its templates in place: the next call needs them as they were.
    copied = copy.copy(notifier)
    given: Any = {**context, "campaign": message}
    copied(given)


def _describe(closed: ClosedWave, campaign: str) -> str:
    states = ", ".join(
        f"{each['tables']} {name.replace('_', ' ')}" for name, each in closed.summary["by_state"].items()
    )
    failed = f", {len(closed.failed)} failed ({_names(closed.failed)})" if closed.failed else ""
    left = f", {len(closed.left)} wait for the next wave" if closed.left else ""
    ends = f" Nothing will be left by {closed.summary['forecast']}." if closed.summary["forecast"] else ""
    return f"Campaign {campaign}: a wave of {closed.tables} tables has ended{failed}{left}. In all: {states}.{ends}"


def _names(tables: Sequence[str]) -> str:
    return ", ".join(tables[:20]) + (f" and {len(tables) - 20} more" if len(tables) > 20 else "")
