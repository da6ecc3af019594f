"""Planning a campaign: finding its tables, how large they are, and which of them are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

from airflow.sdk import BaseOperator, TriggerRule
from airflow.sdk.exceptions import AirflowFailException

from airflow_hive_to_delta.campaigns.drafts import (
    FinishedPlan,
    finish_plan,
    read_draft,
    read_draft_unit,
    read_measurements,
    with_measurements,
    write_draft,
)
from airflow_hive_to_delta.campaigns.measuring import Measuring, PartitionFilter, Sizes, count_in_inventory
from airflow_hive_to_delta.campaigns.plan import PlanDecision, PlanRow, read_earlier_plan, statistics_of, waits_for_plan
from airflow_hive_to_delta.campaigns.states import Phase
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.times import now
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.operators.arguments import Options, options_dict
from airflow_hive_to_delta.operators.aws.identity import aws_clients
from airflow_hive_to_delta.operators.campaigns.campaign_operator import CampaignOperator, CampaignTask
from airflow_hive_to_delta.operators.discover import CatalogDiscoverOperator, DiscoverOperator, GlueDiscoverOperator
from airflow_hive_to_delta.operators.tables.batches import Table
from airflow_hive_to_delta.operators.tables.outcomes import airflow_error, has_tries_left
from airflow_hive_to_delta.operators.tables.selection import schema_for, select_tables

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

#: Takes a discovered table as a dict and returns the name of its owner.
OwnerOf = Callable[[Table], str]


class CampaignPlanOperator(CampaignTask, DiscoverOperator):
    """The base of tasks that find the tables of a campaign, and write them into the campaign's documents.

    Nothing of the tables travels through XCom. Where the catalog says all that the plan needs, it is written at once,
    and the task returns how many tables and bytes there are in each state. Otherwise it is a draft: the task then
    returns the names of its units, over which :class:`MeasureTablesOperator` is mapped, and :class:`FinishPlanOperator`
    makes the plan of it. A new plan takes over what people have decided, and changes no table that a wave has worked
    on.

    :param campaign: the name of the campaign.
    :param staging: the staging root, on S3 or on a disk that all workers share. (templated)
    :param owner_of: a function that takes a table as a dict and returns the name of its owner; the property ``owner``
        of the table when not given.
    :param sizes: where the files and bytes of tables come from, by which they are packed: ``statistics`` of the
        catalog, as Hive, Spark or a crawler have left them; those that have none are listed on S3 with ``list``, and
        counted in reports of S3 Inventory with ``inventory``, once for each table.
    :param partition_filter: as for :class:`MeasureTablesOperator`.

    The other parameters are those of :class:`GlueDiscoverOperator` or :class:`CatalogDiscoverOperator`.
    """

    phase: Phase = "convert"
    ui_color = "#ede7f6"

    def __init__(
        self,
        *,
        campaign: str,
        staging: str,
        owner_of: OwnerOf | None = None,
        sizes: Sizes = "statistics",
        partition_filter: PartitionFilter | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(staging=staging, **kwargs)
        if owner_of is not None and not callable(owner_of):
            raise TypeError(f"owner_of is {owner_of!r}, expected a function of one table")
        check_measuring(sizes, partition_filter)
        self.campaign = campaign
        self.check_campaign()
        self.owner_of = owner_of
        self.sizes: Sizes = sizes
        self.partition_filter = partition_filter

    def select_and_batch(
        self, context: Context, found: Sequence[TableInfo], wanted: str, unmatched: Sequence[str]
    ) -> Any:
        for name in unmatched:
            self.log.warning("Nothing was found by %s", name)
        if self.at_least_one and not found:
            raise AirflowFailException(f"No table was found by {wanted}, expected at least one. Check the names")
        store, run = self.open_store(), self.run_key(context)
        try:
            rows = self._rows(found)
            if measures_tables(self.sizes, self.partition_filter):
                return self._write_draft(store, run, rows)
            plan = _finish(store, rows, run, context)
        except HiveToDeltaError as error:
            raise airflow_error(error) from error
        return _summarize(self, store, plan)

    def _write_draft(self, store: CampaignStore, run: str, rows: Sequence[PlanRow]) -> list[str]:
        known = {row.table for row in (*rows, *read_earlier_plan(store)) if row.files or row.bytes}
        wanted = {row.table: row for row in rows if row.decision == "convert" and row.definition is not None}
        counted: set[str] = set()
        if self.sizes != "statistics":
            counted = {
                name
                for name, row in wanted.items()
                # Only Spark lists the tables of its catalog.
                if name not in known and (self.sizes == "inventory" or (row.definition or {})["source"] != "spark")
            }
        filtered: set[str] = set()
        if self.partition_filter is not None:
            states = store.states()
            filtered = {name for name in wanted if waits_for_plan(states.get(name))}
        units = write_draft(store, run, rows, counted=counted, filtered=filtered)
        self.log.info(
            "%d tables were found; the files of %d are to be counted, and the partitions of %d to be filtered, by %d "
            "tasks",
            *(len(rows), len(counted), len(filtered), len(units)),
        )
        return units

    def _rows(self, found: Sequence[TableInfo]) -> list[PlanRow]:
        selection = select_tables(
            found,
            choose=self.choose,
            leave_out_delta=False,
            target_schema=self.target_schema,
            options=ConversionOptions.from_dict(self.options),
        )
        self._check_target(selection.tables)
        by_name = {table.qualified_name: table for table in found}

        def row(table: TableInfo, decision: PlanDecision = "convert", reason: str = "") -> PlanRow:
            files, size = statistics_of(by_name.get(table.qualified_name, table)) or (0, 0)
            schema = schema_for(table, self.target_schema) if decision == "convert" else None
            target = ".".join(
                part for part in (self.target_catalog, schema, table.target_table_name or table.name) if part
            )
            return PlanRow.of_table(
                table,
                owner=self._owner(by_name.get(table.qualified_name, table)),
                files=files,
                bytes=size,
                decision=decision,
                reason=redact_credentials(reason),
                target=target if schema else "",
            )

        rows = [row(table) for table in selection.tables]
        for outcome in selection.left_out:
            left_out: PlanDecision = "exclude" if outcome.status == "skipped" else "refused"
            rows.append(row(by_name[outcome.table], left_out, outcome.error or ""))
        return rows

    def _owner(self, table: TableInfo) -> str:
        return str(self.owner_of(table.to_dict()) if self.owner_of else table.properties.get("owner", ""))


class GlueCampaignPlanOperator(CampaignPlanOperator, GlueDiscoverOperator):
    """Plans a campaign over tables of AWS Glue."""


class CatalogCampaignPlanOperator(CampaignPlanOperator, CatalogDiscoverOperator):
    """Plans a campaign over tables of a catalog of Spark."""


class MeasureTablesOperator(CampaignOperator):
    """Looks at the tables of one unit of a draft: whether they have partitions that count, and how large they are.

    What it finds is kept in the draft in small parts, and a later try goes on after them. A table that cannot be looked
    at stays in the plan, without a size. Returns how many tables this try has looked at.

    :param unit: the name of the unit, as the task that found the tables has returned it.
    :param sizes: ``list``: the files of tables are counted on S3; ``inventory``: the locations of their files are
        written down, for :class:`FinishPlanOperator` to count.
    :param partition_filter: a function that takes the values of a partition, a dict of texts by column with None for a
        null, and returns whether the partition counts. A table of which Glue lists no partition that counts is
        excluded, as is one without partitions; all others are taken with all their partitions.
    :param options: :class:`ConversionOptions`. (templated)

    The other parameters are those of :class:`PlanWaveOperator`.
    """

    template_fields: Sequence[str] = ("unit", "options", *CampaignOperator.template_fields)

    def __init__(
        self,
        *,
        unit: str | XComArg,
        sizes: Sizes = "list",
        partition_filter: PartitionFilter | None = None,
        options: Options = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_measuring(sizes, partition_filter)
        self.unit = unit
        self.sizes: Sizes = sizes
        self.partition_filter = partition_filter
        self.options = options_dict(options)

    def execute(self, context: Context) -> int:
        store, run = self.open_store(), self.run_key(context)
        options = ConversionOptions.from_dict(self.options)
        measuring = Measuring(
            self.sizes,
            self.partition_filter,
            options,
            self.region_name,
            is_last_try=not has_tries_left(context),
        )
        try:
            unit = read_draft_unit(store, run, str(self.unit))
            with aws_clients(self.aws_conn_id, self.region_name):
                count = measuring.measure_unit(store, unit)
        except HiveToDeltaError as error:
            raise airflow_error(error) from error
        self.log.info("Looked at %d tables of %d; those before had been looked at", count, len(unit.tables))
        return count


class FinishPlanOperator(CampaignOperator):
    """Makes the plan of a draft, when all its units have been measured.

    With reports of S3 Inventory, it counts the files of all tables in one pass over them. What it has counted of each
    file of a report is kept: a later try reads the others. Returns how many tables and bytes there are in each state.

    :param inventory_manifests: the address of the ``manifest.json`` of a report, or one for each bucket. (templated)

    The other parameters are those of :class:`PlanWaveOperator`.
    """

    template_fields: Sequence[str] = ("inventory_manifests", *CampaignOperator.template_fields)

    def __init__(self, *, inventory_manifests: str | Sequence[str] | None = None, **kwargs: Any) -> None:
        # When no table has to be measured, that task is skipped.
        kwargs.setdefault("trigger_rule", TriggerRule.NONE_FAILED)
        super().__init__(**kwargs)
        self.inventory_manifests = inventory_manifests

    def execute(self, context: Context) -> dict[str, Any]:
        store, run = self.open_store(), self.run_key(context)
        sizes: dict[str, tuple[int, int]] = {}
        try:
            rows = read_draft(store, run)
            measured = read_measurements(store, run)
            if self.inventory_manifests:
                with aws_clients(self.aws_conn_id, self.region_name):
                    sizes = count_in_inventory(store, run, measured, self.inventory_manifests, region=self.region_name)
            plan = _finish(store, with_measurements(rows, measured, sizes), run, context)
        except HiveToDeltaError as error:
            raise airflow_error(error) from error
        return _summarize(self, store, plan)


def check_measuring(sizes: Any, partition_filter: Any) -> None:
    """Refuse, when a DAG is parsed, what is no way to sizes, and what cannot filter partitions."""
    if sizes not in get_args(Sizes):
        raise ValueError(f"sizes is {sizes!r}, expected one of {', '.join(get_args(Sizes))}")
    if partition_filter is not None and not callable(partition_filter):
        raise TypeError(f"partition_filter is {partition_filter!r}, expected a function of the values of a partition")


def measures_tables(sizes: Sizes, partition_filter: PartitionFilter | None) -> bool:
    """Whether a plan needs more than the catalog says with each table, so that its tables are looked at in units."""
    return sizes != "statistics" or partition_filter is not None


def _finish(store: CampaignStore, rows: Sequence[PlanRow], run: str, context: Context) -> FinishedPlan:
    dag_run: Any = context["dag_run"]
    return finish_plan(store, rows, run=run, now=now(), dag_id=dag_run.dag_id)


def _summarize(task: BaseOperator, store: CampaignStore, plan: FinishedPlan) -> dict[str, Any]:
    count = len(plan.rows)
    task.log.info("The plan has %d tables, of which %d are new or changed: %s", count, plan.changed, plan.by_state)
    return {"tables": count, "by_state": plan.by_state, "plan": str(store.location("plan.csv"))}
