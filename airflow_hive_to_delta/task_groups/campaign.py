"""A campaign in one call: thousands of tables in waves, run by run of a scheduled DAG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, Literal, get_args

from airflow.sdk import BaseNotifier, BaseOperator, TaskGroup, TriggerRule, XComArg

from airflow_hive_to_delta.campaigns.measuring import PartitionFilter
from airflow_hive_to_delta.campaigns.states import Phase, Retries
from airflow_hive_to_delta.campaigns.waves import UnitSize, Wave
from airflow_hive_to_delta.core.results import VerifyLevel
from airflow_hive_to_delta.engines import Engine
from airflow_hive_to_delta.operators.arguments import Options, check_count
from airflow_hive_to_delta.operators.campaigns.campaign_operator import check_campaign
from airflow_hive_to_delta.operators.campaigns.plan import (
    CatalogCampaignPlanOperator,
    FinishPlanOperator,
    GlueCampaignPlanOperator,
    MeasureTablesOperator,
    OwnerOf,
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
    check_tolerance,
)
from airflow_hive_to_delta.operators.tables.selection import Choose
from airflow_hive_to_delta.task_groups.config import (
    CatalogSource,
    FileListing,
    GlueSource,
    InventorySizes,
    Staging,
    SyncSettings,
    Target,
)
from airflow_hive_to_delta.task_groups.steps import options_for

#: Tasks that look at tables at a time. Glue answers so many requests a second for a whole account.
_MEASURING = 8
_UNITS: dict[Phase, type[UnitOperator]] = {
    "convert": ConvertUnitOperator,
    "sync": SyncUnitOperator,
    "cut_over": CutOverUnitOperator,
    "roll_back": RollbackUnitOperator,
}


@dataclass(frozen=True)
class Lane:
    """How units run: those of small tables together (``packed``), or those of large ones (``alone``)."""

    #: Where their jobs run; an embedded Spark when not given.
    engine: Engine | None = None
    pool: str | None = None
    queue: str | None = None
    #: Units at a time in one DAG run; as many as Airflow has room for when not given.
    max_active: int | None = None
    execution_timeout: timedelta | None = None
    #: Tables of a unit that are worked on side by side.
    max_workers: int = 4
    #: Wait for jobs in the triggerer: see :class:`ConvertTableOperator`.
    deferrable: bool | None = None

    def __post_init__(self) -> None:
        check_count("max_workers", self.max_workers, least=1)
        check_count("max_active", self.max_active, least=1, optional=True)


@dataclass(frozen=True)
class Notify:
    """Whom a campaign tells what, by Airflow's notifiers: see :class:`CloseWaveOperator`."""

    #: At the end of each wave.
    wave_ended: Sequence[BaseNotifier] = ()
    #: When tables need a person, once for each owner.
    needs_person: Sequence[BaseNotifier] = ()
    #: When a plan or a cut-over waits for an approval.
    approval: Sequence[BaseNotifier] = ()


def hive_to_delta_campaign(
    name: str,
    group_id: str | None = None,
    *,
    staging: Staging | str,
    source: GlueSource | CatalogSource | None = None,
    phase: Phase = "convert",
    target: Target | None = None,
    wave: Wave | None = None,
    units: UnitSize | None = None,
    packed: Lane | None = None,
    alone: Lane | None = None,
    retries: Retries | None = None,
    tolerance: float = 0,
    approve: bool = False,
    verify: VerifyLevel | None = "counts",
    sync: SyncSettings | None = None,
    probation: timedelta = timedelta(days=14),
    only: str | Sequence[str] | None = None,
    notify: Notify | None = None,
    listing: FileListing | None = None,
    options: Options = None,
    choose: Choose | None = None,
    owner_of: OwnerOf | None = None,
    sizes: Literal["statistics", "list"] | InventorySizes = "statistics",
    partition_filter: PartitionFilter | None = None,
    approval: Mapping[str, Any] | None = None,
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
    :param source: which tables: :class:`GlueSource` or :class:`CatalogSource`; for the phase ``convert``.
    :param phase: ``convert`` plans, converts and verifies; ``sync`` brings what Hive has written since into tables that
        are converted; ``cut_over`` makes their names in Glue those of the Delta tables; ``roll_back`` undoes this for
        tables whose probation is not over.
    :param target: where the Delta tables are registered: :class:`GlueTarget` or :class:`CatalogTarget`.
    :param wave: how much a run takes, and until when: :class:`Wave`.
    :param units: what one task and its job take: :class:`UnitSize`.
    :param packed: how units of small tables run: :class:`Lane`.
    :param alone: how those of single large tables run; as ``packed`` when not given.
    :param retries: how often and when tables are tried that fail for a reason that may pass: :class:`Retries`.
    :param tolerance: how many tables of a wave may fail before the run is red: a number, or a part such as ``0.05``.
    :param approve: have a person approve the plan before its first wave, and each cut-over and rollback, in Airflow's
        pages.
    :param verify: compare each table right after its conversion, in the same job, by ``counts`` or in ``full``; None:
        do not.
    :param sync: what a sync takes over from Hive, and when: :class:`SyncSettings`.
    :param probation: after a cut-over, the time in which the phase ``roll_back`` takes the table.
    :param only: patterns of the tables to take, such as ``sales.*``. (templated)
    :param notify: whom it tells what: :class:`Notify`.
    :param listing: how files are found; by default on S3 for tables of Glue, by Spark for those of a catalog.
    :param options: :class:`ConversionOptions`.
    :param choose: a function that takes a discovered table as a dict and returns it, changed or not, or None to leave
        it out.
    :param owner_of: a function that takes a discovered table as a dict and returns the name of its owner.
    :param sizes: where the plan has sizes from: ``statistics`` of the catalog; for tables that have none, with ``list``
        from S3, and with :class:`InventorySizes` from reports of S3 Inventory.
    :param partition_filter: a function that takes the values of a partition, a dict of texts by column with None for a
        null, and returns whether the partition counts. Only tables of Glue with such a partition are taken, each with
        all its partitions.
    :param approval: more arguments for the task that asks, such as ``assigned_users`` and ``response_timeout``.
    :param aws_conn_id: the AWS connection of every task; None: the environment's identity.
    :param asset_alias: the alias that converted and synced tables, as assets, belong to; None: there are no assets.
    """
    root = Staging(staging) if isinstance(staging, str) else staging
    check_campaign(name, root.root, phase)
    check_tolerance(tolerance)
    _check_phase(phase, source=source, target=target, sync=sync, verify=verify)
    _check_measuring(phase, source, sizes, partition_filter)
    lanes = {"packed": packed or Lane(), "alone": alone or packed or Lane()}
    tries = retries or Retries()
    messages = notify or Notify()
    identity: dict[str, Any] = {
        "aws_conn_id": aws_conn_id,
        "region_name": region_name,
        "staging": root.root,
        "staging_conn_id": root.conn_id,
    }
    # Tasks that only read and write documents: what fails there has nothing to do with tables.
    own: dict[str, Any] = {**identity, "campaign": name, "retries": 2, "retry_delay": timedelta(minutes=1)}
    of_wave = {**own, "phase": phase, "verify": verify is not None}
    checked = options if target is None else options_for(target, options)
    # A campaign before it in the same DAG may have been skipped, for nothing was left.
    first: dict[str, Any] = {"trigger_rule": TriggerRule.NONE_FAILED}
    with TaskGroup(group_id or f"{name}_{phase}".replace(".", "_")) as group:
        before: list[BaseOperator] = []
        if phase == "convert":
            find = {"choose": choose, "owner_of": owner_of, "engine": lanes["packed"].engine}
            before.append(_plan(source, target, checked, find, sizes, partition_filter, own, first))
            first = {}
        if approve:
            from airflow_hive_to_delta.operators.campaigns.approval import CampaignApprovalOperator

            before.append(
                CampaignApprovalOperator(
                    task_id="approve",
                    only=only,
                    notifiers=list(messages.approval),
                    **of_wave,
                    **first,
                    **(approval or {}),
                )
            )
            first = {}
        plan_wave = PlanWaveOperator(
            task_id="plan_wave", wave=wave, units=units, approve=approve, only=only, **of_wave, **first
        )
        for earlier, later in pairwise([*before, plan_wave]):
            earlier >> later
        large = LargeUnitsOperator(task_id="large_units", **own, phase=phase)
        close = CloseWaveOperator(
            task_id="close_wave",
            plan_task_id=plan_wave.task_id,
            tolerance=tolerance,
            wave_ended=messages.wave_ended,
            needs_person=messages.needs_person,
            **of_wave,
        )
        plan_wave >> large
        more = _phase_arguments(phase, target, verify, sync, asset_alias)
        for lane, uris in (("packed", plan_wave.output), ("alone", large.output)):
            unit = _unit(lane, uris, lanes[lane], phase, tries, listing, probation, name, checked, {**identity, **more})
            unit >> close
        plan_wave >> close
    return group


def _check_phase(
    phase: Phase,
    *,
    source: GlueSource | CatalogSource | None,
    target: Target | None,
    sync: SyncSettings | None,
    verify: VerifyLevel | None,
) -> None:
    """Refuse, when a DAG is parsed, what does not go with a phase."""
    if phase == "convert" and not isinstance(source, (GlueSource, CatalogSource)):
        raise TypeError(f"source is {source!r}, expected GlueSource or CatalogSource for phase='convert'")
    if phase != "convert" and (source is not None or target is not None):
        raise ValueError(
            f"source or target is given with phase={phase!r}, which takes the tables that phase='convert' of the same "
            "campaign has converted. Leave them out"
        )
    if sync is not None and phase != "sync":
        raise ValueError(f"sync is given with phase={phase!r}; it goes with phase='sync'")
    if verify not in (None, *get_args(VerifyLevel)):
        raise ValueError(f"verify is {verify!r}, expected counts, full or None")


def _check_measuring(
    phase: Phase, source: GlueSource | CatalogSource | None, sizes: Any, partition_filter: PartitionFilter | None
) -> None:
    if not isinstance(sizes, InventorySizes) and sizes not in ("statistics", "list"):
        raise ValueError(f"sizes is {sizes!r}, expected statistics, list or InventorySizes(manifests)")
    if partition_filter is None:
        return
    if phase != "convert":
        raise ValueError(f"partition_filter is given with phase={phase!r}; it goes with phase='convert'")
    if isinstance(source, CatalogSource):
        raise TypeError(
            "partition_filter is given with CatalogSource, whose partitions only Spark knows; it goes with GlueSource"
        )


def _plan(
    source: GlueSource | CatalogSource | None,
    target: Target | None,
    options: Options,
    find: dict[str, Any],
    sizes: Literal["statistics", "list"] | InventorySizes,
    partition_filter: PartitionFilter | None,
    own: dict[str, Any],
    first: dict[str, Any],
) -> BaseOperator:
    """The task that plans, after those that find the tables and look at them, where the plan needs these."""
    kind = "inventory" if isinstance(sizes, InventorySizes) else sizes
    in_units = measures_tables(kind, partition_filter)
    how = {"sizes": kind, "partition_filter": partition_filter, "options": options}
    arguments: dict[str, Any] = {
        "task_id": "find_tables" if in_units else "plan",
        "choose": find["choose"],
        "owner_of": find["owner_of"],
        "at_least_one": "found",
        "target_catalog": None if target is None else target.catalog,
        "target_schema": None if target is None else target.schema,
        **how,
        **own,
        **first,
    }
    found: BaseOperator
    if isinstance(source, CatalogSource):
        found = CatalogCampaignPlanOperator(allow=source.allow, deny=source.deny, engine=find["engine"], **arguments)
    else:
        assert isinstance(source, GlueSource)
        found = GlueCampaignPlanOperator(
            databases=source.databases,
            include=source.include,
            exclude=source.exclude,
            catalog_id=source.catalog_id,
            **arguments,
        )
    if not in_units:
        return found
    measured = MeasureTablesOperator.partial(
        task_id="measure", max_active_tis_per_dagrun=_MEASURING, **how, **own
    ).expand(unit=found.output)
    manifests = sizes.manifests if isinstance(sizes, InventorySizes) else None
    plan = FinishPlanOperator(task_id="plan", inventory_manifests=manifests, **own)
    found >> plan
    measured >> plan
    return plan


def _phase_arguments(
    phase: Phase, target: Target | None, verify: VerifyLevel | None, sync: SyncSettings | None, alias: str | None
) -> dict[str, Any]:
    if phase == "convert":
        return {
            "verify": verify,
            "target_catalog": None if target is None else target.catalog,
            "target_schema": None if target is None else target.schema,
            "asset_alias": alias,
        }
    if phase == "sync":
        return {**(sync or SyncSettings()).to_arguments(), "asset_alias": alias}
    return {}


def _unit(
    task_id: str,
    uris: XComArg,
    lane: Lane,
    phase: Phase,
    tries: Retries,
    listing: FileListing | None,
    probation: timedelta,
    campaign: str,
    options: Options,
    arguments: dict[str, Any],
) -> Any:
    files: dict[str, Any] = {}
    if listing is not None:
        files = {
            "listing": listing.strategy,
            "inventory_manifests": listing.inventory_manifests,
            "glue_database": listing.glue_database,
        }
    takes_files = phase in ("convert", "sync")
    return (
        _UNITS[phase]
        .partial(
            task_id=task_id,
            campaign=campaign,
            attempts=tries,
            probation=probation,
            engine=lane.engine,
            deferrable=lane.deferrable,
            options=options,
            retries=tries.in_unit,
            retry_delay=tries.delay_in_unit,
            execution_timeout=lane.execution_timeout,
            max_active_tis_per_dagrun=lane.max_active,
            map_index_template="{{ task.table_label }}",
            **({"max_workers": lane.max_workers} if takes_files else {}),
            **({"pool": lane.pool} if lane.pool else {}),
            **({"queue": lane.queue} if lane.queue else {}),
            **files,
            **arguments,
        )
        .expand(unit=uris)
    )
