"""The arguments of a campaign: how it plans, asks, runs its units and ends its waves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from airflow.sdk import BaseNotifier

from airflow_hive_to_delta.campaigns.measuring import PartitionFilter, Sizes
from airflow_hive_to_delta.campaigns.states import Retries
from airflow_hive_to_delta.campaigns.waves import UnitSize
from airflow_hive_to_delta.core.options import check_count, check_duration
from airflow_hive_to_delta.engines import Engine
from airflow_hive_to_delta.operators.arguments import check_names
from airflow_hive_to_delta.operators.campaigns.plan import OwnerOf, check_measuring
from airflow_hive_to_delta.operators.campaigns.wave import check_tolerance
from airflow_hive_to_delta.operators.spark_job import check_engine
from airflow_hive_to_delta.operators.tables.selection import Choose
from airflow_hive_to_delta.task_groups.steps import check_type

#: Arguments of the task that asks for an approval that come from the campaign.
_OF_CAMPAIGN = frozenset(
    {"task_id", "campaign", "phase", "verify", "only", "notifiers", "staging", "staging_conn_id", "aws_conn_id"}
    | {"region_name", "trigger_rule", "retries", "retry_delay"}
)


@dataclass(frozen=True)
class InventorySizes:
    """The plan of a campaign takes the sizes of tables from reports of S3 Inventory, in CSV, Parquet or ORC."""

    #: The address of the ``manifest.json`` of a report, or one for each bucket. (templated)
    manifests: str | Sequence[str]

    def __post_init__(self) -> None:
        check_names("manifests", self.manifests)


@dataclass(frozen=True)
class PlanSettings:
    """Which of the tables that were found a campaign plans, and how it learns their owners and sizes."""

    #: A function that takes a discovered table as a dict and returns it, changed or not, or None to leave it out.
    choose: Choose | None = None
    #: A function that takes a discovered table as a dict and returns the name of its owner; the property ``owner`` of
    #: the table when not given.
    owner_of: OwnerOf | None = None
    #: Where sizes come from: ``statistics`` of the catalog; for tables that have none, with ``list`` from S3, and with
    #: :class:`InventorySizes` from reports of S3 Inventory.
    sizes: Literal["statistics", "list"] | InventorySizes = "statistics"
    #: A function that takes the values of a partition, a dict of texts by column with None for a null, and returns
    #: whether the partition counts. Only tables of Glue with such a partition are taken, each with all its partitions.
    partition_filter: PartitionFilter | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sizes, InventorySizes) and self.sizes not in ("statistics", "list"):
            raise ValueError(f"sizes is {self.sizes!r}, expected statistics, list or InventorySizes(manifests)")
        check_measuring(self.sizes_from, self.partition_filter)
        _check_function("choose", self.choose)
        _check_function("owner_of", self.owner_of)

    @property
    def sizes_from(self) -> Sizes:
        """Where sizes come from, as the operators take it."""
        return "inventory" if isinstance(self.sizes, InventorySizes) else self.sizes

    @property
    def inventory_manifests(self) -> str | Sequence[str] | None:
        """The manifests of the reports that sizes come from, if they do."""
        return self.sizes.manifests if isinstance(self.sizes, InventorySizes) else None


@dataclass(frozen=True)
class Approval:
    """A person approves in Airflow's pages: see :class:`CampaignApprovalOperator`."""

    #: Called when a plan, a cut-over or a rollback waits for its approval.
    notifiers: Sequence[BaseNotifier] = ()
    #: More arguments of the task that asks, such as ``assigned_users`` and ``response_timeout``.
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_notifiers("notifiers", self.notifiers)
        check_type("arguments", self.arguments, Mapping)
        if taken := sorted(_OF_CAMPAIGN & self.arguments.keys()):
            raise ValueError(
                f"arguments has {', '.join(taken)}, which the campaign gives the task itself; expected others of "
                "CampaignApprovalOperator, such as assigned_users"
            )


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
        check_duration("execution_timeout", self.execution_timeout, least=timedelta(seconds=1), optional=True)
        check_engine(self.engine)
        for name in ("pool", "queue"):
            given = getattr(self, name)
            if given is not None and not (isinstance(given, str) and given):
                raise ValueError(f"{name} is {given!r}, expected a name or None")
        if self.deferrable not in (None, True, False):
            raise ValueError(f"deferrable is {self.deferrable!r}, expected True, False or None")


@dataclass(frozen=True)
class Units:
    """What one task and its job take, how they run, and how often they are tried."""

    #: How many tables, files and bytes a unit has at most.
    size: UnitSize = field(default_factory=UnitSize)
    #: How units of small tables run.
    packed: Lane = field(default_factory=Lane)
    #: How those of single large tables run; as ``packed`` when not given.
    alone: Lane | None = None
    #: How often and when tables are tried that fail for a reason that may pass.
    retries: Retries = field(default_factory=Retries)

    def __post_init__(self) -> None:
        check_type("size", self.size, UnitSize)
        check_type("packed", self.packed, Lane)
        if self.alone is not None:
            check_type("alone", self.alone, Lane)
        check_type("retries", self.retries, Retries)


@dataclass(frozen=True)
class Closing:
    """What the end of a wave does: when its run is red, and whom it notifies. See :class:`CloseWaveOperator`."""

    #: How many tables of a wave may fail before the run is red: a number, or a part such as ``0.05``.
    tolerance: float = 0
    #: Notifiers that are called at the end of each wave.
    wave_ended: Sequence[BaseNotifier] = ()
    #: Notifiers that are called when tables need a person, once for each owner.
    needs_person: Sequence[BaseNotifier] = ()

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        _check_notifiers("wave_ended", self.wave_ended)
        _check_notifiers("needs_person", self.needs_person)


def _check_function(name: str, given: Any) -> None:
    if given is not None and not callable(given):
        raise TypeError(f"{name} is {given!r}, expected a function of one table")


def _check_notifiers(name: str, given: Any) -> None:
    # A notifier alone is easily given in the place of a list of one.
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(callable(each) for each in given):
        raise TypeError(f"{name} is {given!r}, expected a list of notifiers")
