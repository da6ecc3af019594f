"""Working on one unit of a campaign: its tables in one job, and their states as they end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import TaskDeferred

from airflow_hive_to_delta.campaigns.outcomes import WorkOutcome
from airflow_hive_to_delta.campaigns.states import Phase, Retries
from airflow_hive_to_delta.campaigns.units import Unit, UnitWork, read_unit
from airflow_hive_to_delta.core.errors import HiveToDeltaError, StaleFileListError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import check_duration
from airflow_hive_to_delta.job.manifests import INLINE_LIMIT, list_error
from airflow_hive_to_delta.operators.campaigns.campaign_operator import CampaignTask
from airflow_hive_to_delta.operators.campaigns.live_states import LiveStates
from airflow_hive_to_delta.operators.convert import ConvertTableOperator
from airflow_hive_to_delta.operators.cut_over import CutOverTableOperator
from airflow_hive_to_delta.operators.jobs.submitted import generation
from airflow_hive_to_delta.operators.rollback import RollbackTableOperator
from airflow_hive_to_delta.operators.sync import SyncTableOperator
from airflow_hive_to_delta.operators.table_operator import ActionRun, TableOperator
from airflow_hive_to_delta.operators.tables.batches import batch_label
from airflow_hive_to_delta.operators.tables.file_lister import FileLister, Strategy, check_listing
from airflow_hive_to_delta.operators.tables.files import TableFiles
from airflow_hive_to_delta.operators.tables.outcomes import (
    ReportedError,
    ReportedFailure,
    airflow_error,
    has_tries_left,
)

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

#: The leases of a task that works are renewed four times in their time, by a thread that looks every 15 seconds.
_SHORTEST_LEASE = dt.timedelta(minutes=2)
_NOT_LISTED = "Its files have not been listed before the job"
#: Of a task that waits without a worker, which cannot renew its leases.
_DEFERRED_LEASE = dt.timedelta(days=2)


class UnitOperator(CampaignTask, TableOperator):
    """The base of tasks that work on one unit of a campaign: all its tables in one job, which lists their files, too.

    The task takes the leases of its tables, writes their states as their results arrive, and gives the leases back.
    It ends well although tables have failed: their states say so. Where another try may help some of them, the task
    fails while it has tries left, and the next try takes what is unfinished. After the end of the unit's window no
    table is begun; those that are left wait for the next wave.

    Returns how many of its tables are in each state.

    :param unit: the URI of the unit's document. Its text is never taken for a template.
    :param campaign: the name of the campaign. (templated)
    :param staging: the staging root, on S3 or on a disk that all workers share. (templated)
    :param attempts: how often tables are tried in later waves: :class:`Retries`.
    :param probation: after a cut-over, the time in which the campaign can roll a table back.
    :param lease: how long the leases of a task last whose worker is lost.

    ``listing``, ``inventory_manifests`` and ``glue_database`` are those of :class:`ListFilesOperator`; where no listing
    is given, tables of a catalog of Spark are listed by Spark, all others on S3. The other parameters are those of the
    operator for single tables that it extends.
    """

    template_fields: Sequence[str] = ("unit", "campaign", "inventory_manifests", "glue_database")
    untrusted_fields: Sequence[str] = ("unit", "table")
    ui_color = "#ede7f6"

    def __init__(
        self,
        *,
        unit: str | XComArg,
        campaign: str,
        staging: str,
        attempts: Retries | None = None,
        probation: dt.timedelta | None = None,
        lease: dt.timedelta = dt.timedelta(minutes=30),
        listing: Strategy | None = None,
        inventory_manifests: str | Sequence[str] | None = None,
        glue_database: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(table=[], staging=staging, **kwargs)
        self.campaign = campaign
        self.check_campaign()
        check_listing(listing or "s3", inventory_manifests, glue_database)
        check_duration("probation", probation, optional=True)
        check_duration("lease", lease, least=_SHORTEST_LEASE)
        self.unit = unit
        self.attempts = attempts or Retries()
        self.probation = probation
        self.lease = lease
        self.listing: Strategy = listing or "s3"
        self._lists_by_source = listing is None
        self.inventory_manifests = inventory_manifests
        self.glue_database = glue_database
        self._unit: Unit | None = None
        self._work: UnitWork | None = None
        self._lister: FileLister | None = None

    @property
    def table_label(self) -> str:
        """The label of the task in Airflow's pages: the number of its unit, and the name of its first table."""
        if self._unit is None:
            return str(self.unit).rpartition("/")[2].removesuffix(".json")
        return f"{self._unit.unit}: {batch_label(self._unit.tables)}"[:250]

    def execute(self, context: Context) -> Any:
        store = self.open_store()
        try:
            self._unit = read_unit(store, str(self.unit))
            work = UnitWork(store, self._unit, self.attempts, lease=self.lease, probation=self.probation)
            tables = [] if work.is_past_window() and not self._has_worked(context) else work.begin()
            self._work = work
            if tables:
                self._run(context, work, tables)
            else:
                self.log.info("No table is worked on: its window has ended, or others have done the work")
                work.end()
            return work.count_states()
        except HiveToDeltaError as error:
            raise airflow_error(error) from error

    def _has_worked(self, context: Context) -> bool:
        """Whether this task may have had a job before, whose results are taken up though the window has ended since.

        A job that is started for what is left begins no table then.
        """
        instance: Any = context["ti"]
        return self._deferral is not None or instance.try_number > generation(context) + 1

    def _run(self, context: Context, work: UnitWork, tables: Sequence[TableInfo]) -> None:
        self.table = [table.to_dict() for table in tables]
        self._lister = FileLister.of_operator(self, context, inline_limit=INLINE_LIMIT // len(tables))
        # A deferred task begins anew when its job has ended, and asks for the results of the same tables.
        live = LiveStates(self, context, work, with_results=not self.deferrable)
        try:
            with live:
                run = self.run_action(context, tables)
        except TaskDeferred:
            work.renew(self.execution_timeout or _DEFERRED_LEASE)
            raise
        except BaseException:
            work.release()
            raise
        self.conclude_unit(context, work, run)

    def conclude_unit(self, context: Context, work: UnitWork, run: ActionRun) -> None:
        """Write the states of the tables that are left, and fail the task if its work is not done.

        :raises ReportedError: another try may help some of the tables, or the task was killed.
        :raises ReportedFailure: no job can be run, which is nothing that a table can help.
        """
        outcomes = {kept.table.qualified_name: WorkOutcome.of_result(self.phase, kept.result) for kept in run.results}
        without_job = []
        for other in run.others:
            text = other.error or "Its job ended without a result"
            retryable = bool(other.retryable)
            if other.table in run.lost and (self.was_killed() or not retryable):
                without_job.append(text)
            else:
                # A job that dies counts as an attempt for its tables: one that kills it each time must end somewhere.
                outcomes[other.table] = WorkOutcome.of_error(text, retryable=retryable, kind=other.error_kind)
        unfinished = work.conclude(outcomes, is_last_try=not has_tries_left(context), links=self.links(context))
        for name, outcome in outcomes.items():
            self.log.info("%s: %s %s", name, outcome.state or outcome.kind, outcome.changes.get("error") or "")
        if without_job:
            work.release()
            text = "\n".join(dict.fromkeys(without_job))
            raise ReportedError(text) if self.was_killed() else ReportedFailure(text)
        if unfinished:
            work.release()
            raise ReportedError("\n".join(f"{name}: {outcomes[name].changes.get('error')}" for name in unfinished))
        work.end()

    def links(self, context: Context) -> dict[str, str | None]:
        """Where a person finds the log of the task, and the page of its job."""
        instance: Any = context["ti"]
        return {"log_url": getattr(instance, "log_url", None), "job_url": self.job_page}

    def job_arguments(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Any]:
        until = None if self._unit is None else self._unit.until
        return {**super().job_arguments(context, tables), "until": until}

    def table_files(self, *, later_try: bool) -> TableFiles | None:
        """No lists: the job lists the files of each table before it works on it."""
        if super().table_files(later_try=later_try) is None or self._lister is None:
            return None
        tables: Any = self.table
        files = [self._unlisted(self._lister, TableInfo.from_dict(table)) for table in tables]
        return TableFiles(files, None, follows_step=False, later_try=True)

    def _unlisted(self, lister: FileLister, table: TableInfo) -> dict[str, Any]:
        """What stands for the list of a table that the job lists itself: an error, and how it is listed."""
        if self._lists_by_source and table.source == "spark":
            lister = replace(lister, strategy="spark")
        return list_error(table.qualified_name, StaleFileListError(_NOT_LISTED), lister.document())


class ConvertUnitOperator(UnitOperator, ConvertTableOperator):
    """Converts and verifies the tables of a unit: see :class:`ConvertTableOperator`."""

    phase: Phase = "convert"
    template_fields: Sequence[str] = (*UnitOperator.template_fields, *ConvertTableOperator.template_fields)

    def __init__(self, *, asset_alias: str | None = None, **kwargs: Any) -> None:
        super().__init__(files=[], asset_alias=asset_alias, **kwargs)


class SyncUnitOperator(UnitOperator, SyncTableOperator):
    """Syncs the tables of a unit: see :class:`SyncTableOperator`."""

    phase: Phase = "sync"
    template_fields: Sequence[str] = (*UnitOperator.template_fields, *SyncTableOperator.template_fields)

    def __init__(self, *, asset_alias: str | None = None, **kwargs: Any) -> None:
        super().__init__(files=[], asset_alias=asset_alias, **kwargs)


class CutOverUnitOperator(UnitOperator, CutOverTableOperator):
    """Cuts the tables of a unit over: see :class:`CutOverTableOperator`."""

    phase: Phase = "cut_over"
    template_fields: Sequence[str] = (*UnitOperator.template_fields, *CutOverTableOperator.template_fields)


class RollbackUnitOperator(UnitOperator, RollbackTableOperator):
    """Rolls the tables of a unit back: see :class:`RollbackTableOperator`."""

    phase: Phase = "roll_back"
    template_fields: Sequence[str] = (*UnitOperator.template_fields, *RollbackTableOperator.template_fields)
