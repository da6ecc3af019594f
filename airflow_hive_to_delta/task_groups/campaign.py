"""A campaign in one call: thousands of tables in waves, run by run of a scheduled DAG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, get_args

from airflow.sdk import BaseOperator, TaskGroup, TriggerRule, XComArg

from airflow_hive_to_delta.campaigns.states import Phase
from airflow_hive_to_delta.campaigns.waves import Wave
from airflow_hive_to_delta.core.options import check_duration
from airflow_hive_to_delta.core.results import VerifyLevel
from airflow_hive_to_delta.operators.arguments import Options, check_names
from airflow_hive_to_delta.operators.campaigns.campaign_operator import check_campaign
from airflow_hive_to_delta.operators.campaigns.plan import (
    CatalogCampaignPlanOperator,
    FinishPlanOperator,
    GlueCampaignPlanOperator,
    MeasureTablesOperator,
    measures_tables,
)
from airflow_hive_to_delta.operators.campaigns.units import (
    ConvertUnitOperator,
    CutOverUnitOperator,
    RollbackUnitOperator,
    SyncUnitOperator,
    UnitOperator,
)
from airflow_hive_to_delta.operators.campaigns.wave import (
    CloseWaveOperator,
    LargeUnitsOperator,
    PlanWaveOperator,
)
from airflow_hive_to_delta.task_groups.campaign_config import Approval, Closing, Lane, PlanSettings, Units
from airflow_hive_to_delta.task_groups.config import (
    CatalogSource,
    CatalogTarget,
    FileListing,
    GlueSource,
    GlueTarget,
    Staging,
    SyncSettings,
    Target,
    registration_arguments,
    sync_arguments,
)
from airflow_hive_to_delta.task_groups.steps import check_type, options_for

#: Tasks that look at tables at a time. Glue answers so many requests a second for a whole account.
_MEASURING = 8
_UNITS: dict[Phase, type[UnitOperator]] = {
    "convert": ConvertUnitOperator,
    "sync": SyncUnitOperator,
    "cut_over": CutOverUnitOperator,
    "roll_back": RollbackUnitOperator,
}


def hive_to_delta_campaign(
    name: str,
    group_id: str | None = None,
    *,
    staging: Staging | str,
    phase: Phase = "convert",
    source: GlueSource | CatalogSource | None = None,
    target: Target | None = None,
    plan: PlanSettings | None = None,
    approval: Approval | None = None,
    wave: Wave | None = None,
    only: str | Sequence[str] | None = None,
    units: Units | None = None,
    closing: Closing | None = None,
    listing: FileListing | None = None,
    options: Options = None,
    verify: VerifyLevel | None = "counts",
    sync: SyncSettings | Mapping[str, Any] | None = None,
    probation: timedelta = timedelta(days=14),
    aws_conn_id: str | None = "aws_default",
    region_name: str | None = None,
    asset_alias: str | None = None,
) -> TaskGroup:
    """The tasks of one wave of a campaign: plan, approval, the units of the wave, and its end.

    Each run of the DAG is a wave, so schedule it, with ``max_active_runs=1``: until no table is left, every run takes
    the next ones, and those again whose time has come. What became of each table is kept under the staging root, for
    thousands of tables and for months. A table that fails touches no other, and fails no task.

    :param name: of the campaign. Groups of one name, in one DAG or in several, share its tables and states.
    :param group_id: of the task group; the name and the phase when not given.
    :param staging: where the campaign is kept: :class:`Staging`, or just its root, on S3 or on a disk that all workers
        share.
    :param phase: ``convert`` plans, converts and verifies; ``sync`` brings what Hive has written since into tables that
        are converted; ``cut_over`` makes their names in Glue those of the Delta tables; ``roll_back`` undoes this for
        tables whose probation is not over.
    :param source: which tables: :class:`GlueSource` or :class:`CatalogSource`; for the phase ``convert``.
    :param target: where the Delta tables are registered: :class:`GlueTarget` or :class:`CatalogTarget`; for the phase
        ``convert``.
    :param plan: which of the tables are planned, their owners and their sizes: :class:`PlanSettings`; for the phase
        ``convert``.
    :param approval: have a person approve the plan before its first wave, and each cut-over and rollback, in Airflow's
        pages: :class:`Approval`. None: nobody is asked.
    :param wave: how much a run takes, and until when: :class:`Wave`.
    :param only: patterns of the tables to take, such as ``sales.*``. (templated)
    :param units: what one task and its job take, how they run, and how often they are tried: :class:`Units`.
    :param closing: how many tables may fail before the run is red, and who is notified: :class:`Closing`.
    :param listing: how files are found; by default on S3 for tables of Glue, by Spark for those of a catalog.
    :param options: :class:`ConversionOptions`.
    :param verify: compare each table right after its conversion, in the same job, by ``counts`` or in ``full``; None:
        do not.
    :param sync: what a sync takes over from Hive, and when: :class:`SyncSettings`, or a dict of them with templates,
        in which ``quiet_period`` may be a number of minutes; for the phase ``sync``.
    :param probation: after a cut-over, the time in which the phase ``roll_back`` takes the table.
    :param aws_conn_id: the AWS connection of every task; None: the environment's identity.
    :param region_name: the AWS region, when the connection names none.
    :param asset_alias: the alias that converted and synced tables, as assets, belong to; None: there are no assets.
    """
    tasks = _CampaignTasks(
        name=name,
        staging=Staging(staging) if isinstance(staging, str) else staging,
        phase=phase,
        source=source,
        target=target,
        plan=plan,
        approval=approval,
        wave=wave or Wave(),
        only=only,
        units=units or Units(),
        closing=closing or Closing(),
        listing=listing,
        options=options,
        verify=verify,
        sync=sync,
        probation=probation,
        aws_conn_id=aws_conn_id,
        region_name=region_name,
        asset_alias=asset_alias,
    )
    with TaskGroup(group_id or f"{name}_{phase}".replace(".", "_")) as group:
        tasks.make()
    return group


@dataclass(kw_only=True)
class _CampaignTasks:
    """Makes the tasks of a campaign, by the arguments of :func:`hive_to_delta_campaign`."""

    name: str
    staging: Staging
    phase: Phase
    source: GlueSource | CatalogSource | None
    target: Target | None
    plan: PlanSettings | None
    approval: Approval | None
    wave: Wave
    only: str | Sequence[str] | None
    units: Units
    closing: Closing
    listing: FileListing | None
    options: Options
    verify: VerifyLevel | None
    sync: SyncSettings | Mapping[str, Any] | None
    probation: timedelta
    aws_conn_id: str | None
    region_name: str | None
    asset_alias: str | None

    def __post_init__(self) -> None:
        check_type("staging", self.staging, Staging)
        check_campaign(self.name, self.staging.root, self.phase)
        check_type("wave", self.wave, Wave)
        check_type("units", self.units, Units)
        check_type("closing", self.closing, Closing)
        if self.plan is not None:
            check_type("plan", self.plan, PlanSettings)
        if self.approval is not None:
            check_type("approval", self.approval, Approval)
        if self.target is not None:
            check_type("target", self.target, GlueTarget, CatalogTarget)
        if self.listing is not None:
            check_type("listing", self.listing, FileListing)
        if self.only is not None:
            check_names("only", self.only)
        check_duration("probation", self.probation)
        self._check_phase()
        if self.target is not None:
            self.options = options_for(self.target, self.options)
        #: The arguments of every task: who it is to AWS, and which campaign it belongs to.
        self._shared: dict[str, Any] = {
            "campaign": self.name,
            "staging": self.staging.root,
            "staging_conn_id": self.staging.conn_id,
            "aws_conn_id": self.aws_conn_id,
            "region_name": self.region_name,
        }
        # Tasks that only read and write documents: what fails there has nothing to do with tables.
        self._of_documents = {**self._shared, "retries": 2, "retry_delay": timedelta(minutes=1)}
        self._of_wave = {**self._of_documents, "phase": self.phase, "verify": self.verify is not None}

    def _check_phase(self) -> None:
        """Refuse, when a DAG is parsed, what does not go with a phase."""
        phase = self.phase
        if phase == "convert" and not isinstance(self.source, (GlueSource, CatalogSource)):
            raise TypeError(f"source is {self.source!r}, expected GlueSource or CatalogSource for phase='convert'")
        if phase != "convert" and (self.source is not None or self.target is not None):
            raise ValueError(
                f"source or target is given with phase={phase!r}, which takes the tables that phase='convert' of the "
                "same campaign has converted. Leave them out"
            )
        if self.plan is not None:
            if phase != "convert":
                raise ValueError(f"plan is given with phase={phase!r}; it goes with phase='convert'")
            if self.plan.partition_filter is not None and isinstance(self.source, CatalogSource):
                raise TypeError(
                    "partition_filter is given with CatalogSource, whose partitions only Spark knows; it goes with "
                    "GlueSource"
                )
        if self.sync is not None and phase != "sync":
            raise ValueError(f"sync is given with phase={phase!r}; it goes with phase='sync'")
        if self.verify not in (None, *get_args(VerifyLevel)):
            raise ValueError(f"verify is {self.verify!r}, expected counts, full or None")

    def make(self) -> None:
        """Make all tasks of the group, in their order."""
        # A campaign before it in the same DAG may have been skipped, for nothing was left.
        first: dict[str, Any] = {"trigger_rule": TriggerRule.NONE_FAILED}
        before: list[BaseOperator] = []
        if self.phase == "convert":
            before.append(self._plan(self.plan or PlanSettings(), first))
            first = {}
        if self.approval is not None:
            before.append(self._approve(self.approval, first))
            first = {}
        plan_wave = PlanWaveOperator(
            task_id="plan_wave",
            wave=self.wave,
            units=self.units.size,
            approve=self.approval is not None,
            only=self.only,
            **self._of_wave,
            **first,
        )
        for earlier, later in pairwise([*before, plan_wave]):
            earlier >> later
        large = LargeUnitsOperator(task_id="large_units", phase=self.phase, **self._of_documents)
        close = CloseWaveOperator(
            task_id="close_wave",
            plan_task_id=plan_wave.task_id,
            tolerance=self.closing.tolerance,
            wave_ended=self.closing.wave_ended,
            needs_person=self.closing.needs_person,
            **self._of_wave,
        )
        plan_wave >> large
        self._work_on_units("packed", self.units.packed, plan_wave.output) >> close
        self._work_on_units("alone", self.units.alone or self.units.packed, large.output) >> close
        plan_wave >> close

    def _plan(self, settings: PlanSettings, first: dict[str, Any]) -> BaseOperator:
        """The task that plans, after those that find the tables and look at them, where the plan needs these."""
        in_units = measures_tables(settings.sizes_from, settings.partition_filter)
        measuring = {
            "sizes": settings.sizes_from,
            "partition_filter": settings.partition_filter,
            "options": self.options,
        }
        arguments: dict[str, Any] = {
            "task_id": "find_tables" if in_units else "plan",
            "choose": settings.choose,
            "owner_of": settings.owner_of,
            "at_least_one": "found",
            **registration_arguments(self.target),
            **measuring,
            **self._of_documents,
            **first,
        }
        found: BaseOperator
        if isinstance(self.source, CatalogSource):
            arguments["engine"] = self.units.packed.engine
            found = CatalogCampaignPlanOperator(**self.source.to_arguments(), **arguments)
        else:
            assert isinstance(self.source, GlueSource)
            found = GlueCampaignPlanOperator(**self.source.to_arguments(), **arguments)
        if not in_units:
            return found
        measured = MeasureTablesOperator.partial(
            task_id="measure", max_active_tis_per_dagrun=_MEASURING, **measuring, **self._of_documents
        ).expand(unit=found.output)
        plan = FinishPlanOperator(
            task_id="plan", inventory_manifests=settings.inventory_manifests, **self._of_documents
        )
        found >> plan
        measured >> plan
        return plan

    def _approve(self, approval: Approval, first: dict[str, Any]) -> BaseOperator:
        from airflow_hive_to_delta.operators.campaigns.approval import CampaignApprovalOperator

        return CampaignApprovalOperator(
            task_id="approve",
            only=self.only,
            notifiers=list(approval.notifiers),
            **self._of_wave,
            **first,
            **approval.arguments,
        )

    def _work_on_units(self, task_id: str, lane: Lane, uris: XComArg) -> Any:
        """The mapped task that works on the units of a lane."""
        tries = self.units.retries
        more: dict[str, Any] = {}
        if self.phase in ("convert", "sync"):
            more |= {"max_workers": lane.max_workers, "asset_alias": self.asset_alias}
        if self.phase == "convert":
            more |= {"verify": self.verify, **registration_arguments(self.target)}
        elif self.phase == "sync":
            more |= sync_arguments(self.sync)
        if self.listing is not None:
            more |= self.listing.to_arguments()
        return (
            _UNITS[self.phase]
            .partial(
                task_id=task_id,
                attempts=tries,
                probation=self.probation,
                engine=lane.engine,
                deferrable=lane.deferrable,
                options=self.options,
                retries=tries.in_unit,
                retry_delay=tries.delay_in_unit,
                execution_timeout=lane.execution_timeout,
                max_active_tis_per_dagrun=lane.max_active,
                map_index_template="{{ task.table_label }}",
                **({"pool": lane.pool} if lane.pool else {}),
                **({"queue": lane.queue} if lane.queue else {}),
                **more,
                **self._shared,
            )
            .expand(unit=uris)
        )
