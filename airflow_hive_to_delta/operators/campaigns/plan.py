"""Planning a campaign: finding its tables, and how large they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk.exceptions import AirflowFailException

from airflow_hive_to_delta.campaigns.closing import count_states, write_summary
from airflow_hive_to_delta.campaigns.csv_files import export_csv
from airflow_hive_to_delta.campaigns.decisions import read_decisions
from airflow_hive_to_delta.campaigns.plan import (
    PlanDecision,
    PlanRow,
    first_states,
    merge_plans,
    read_plan,
    sort_rows,
    statistics_of,
    with_decisions,
    write_plan,
)
from airflow_hive_to_delta.campaigns.store import CampaignStore, hash_folder
from airflow_hive_to_delta.campaigns.times import now
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.operators.aws.identity import aws_clients
from airflow_hive_to_delta.operators.campaigns.campaign_operator import check_campaign, open_store, run_key
from airflow_hive_to_delta.operators.discover import CatalogDiscoverOperator, DiscoverOperator, GlueDiscoverOperator
from airflow_hive_to_delta.operators.tables.batches import Table
from airflow_hive_to_delta.operators.tables.outcomes import airflow_error
from airflow_hive_to_delta.operators.tables.selection import schema_for, select_tables

if TYPE_CHECKING:
    from airflow.sdk import Context

#: Takes a discovered table as a dict and returns the name of its owner.
OwnerOf = Callable[[Table], str]
#: ``statistics``: as the catalog has counted files and bytes. ``list``: those that it has not counted are listed on S3.
Sizes = Literal["statistics", "list"]


class CampaignPlanOperator(DiscoverOperator):
    """The base of tasks that plan a campaign, which write what discovery finds into the campaign's documents.

    Nothing of the tables travels through XCom. Returns how many tables and bytes there are in each state. A new plan
    takes over what people have decided, and changes no table that a wave has worked on. Called again, it goes on with
    what sizes it has.

    :param campaign: the name of the campaign.
    :param staging: the staging root, on S3 or on a disk that all workers share. (templated)
    :param owner_of: a function that takes a table as a dict and returns the name of its owner; the property ``owner``
        of the table when not given.
    :param sizes: where the files and bytes of tables come from, by which they are packed: ``statistics`` of the
        catalog, as Hive, Spark or a crawler have left them; with ``list`` the other tables are listed on S3.

    The other parameters are those of :class:`GlueDiscoverOperator` or :class:`CatalogDiscoverOperator`.
    """

    ui_color = "#ede7f6"

    def __init__(
        self,
        *,
        campaign: str,
        staging: str,
        owner_of: OwnerOf | None = None,
        sizes: Sizes = "statistics",
        **kwargs: Any,
    ) -> None:
        super().__init__(staging=staging, **kwargs)
        check_campaign(campaign, staging, "convert")
        if owner_of is not None and not callable(owner_of):
            raise TypeError(f"owner_of is {owner_of!r}, expected a function of one table")
        if sizes not in ("statistics", "list"):
            raise ValueError(f"sizes is {sizes!r}, expected statistics or list")
        self.campaign = campaign
        self.owner_of = owner_of
        self.sizes: Sizes = sizes

    def select_and_batch(
        self, context: Context, found: Sequence[TableInfo], wanted: str, unmatched: Sequence[str]
    ) -> Any:
        for name in unmatched:
            self.log.warning("Nothing was found by %s", name)
        if self.at_least_one and not found:
            raise AirflowFailException(f"No table was found by {wanted}, expected at least one. Check the names")
        store = open_store(
            str(self.staging),
            self.campaign,
            staging_conn_id=self.staging_conn_id,
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
        )
        run = run_key(context, "convert")
        try:
            rows = self._rows(store, run, found)
            rows = merge_plans(read_plan(store, with_definitions=True), rows)
            write_plan(store, rows)
            written = first_states(store, rows, store.states(), run=run, now=now())
            states = store.states()
            decided = with_decisions(rows, read_decisions(store))
            store.write_bytes("plan.csv", export_csv(sort_rows(decided), states).encode())
            run_of_dag: Any = context["dag_run"]
            write_summary(store, states, phase="convert", now=now(), dag_id=run_of_dag.dag_id)
        except HiveToDeltaError as error:
            raise airflow_error(error) from error
        counts = count_states(states.values())
        self.log.info("The plan has %d tables, of which %d are new or changed: %s", len(rows), written, counts)
        return {"tables": len(rows), "by_state": counts, "plan": str(store.location("plan.csv"))}

    def _rows(self, store: CampaignStore, run: str, found: Sequence[TableInfo]) -> list[PlanRow]:
        selection = select_tables(
            found,
            choose=self.choose,
            leave_out_delta=False,
            target_schema=self.target_schema,
            options=ConversionOptions.from_dict(self.options),
        )
        self._check_target(selection.tables)
        by_name = {table.qualified_name: table for table in found}
        sizes = self._sizes(store, run, by_name, selection.tables)

        def row(table: TableInfo, decision: PlanDecision = "convert", reason: str = "") -> PlanRow:
            files, size = sizes.get(table.qualified_name, (0, 0))
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

    def _sizes(
        self, store: CampaignStore, run: str, by_name: Mapping[str, TableInfo], tables: Sequence[TableInfo]
    ) -> dict[str, tuple[int, int]]:
        """The files and bytes of tables, as far as they are known."""
        counted = {name: found for name, table in by_name.items() if (found := statistics_of(table)) is not None}
        rest = [table for table in tables if table.qualified_name not in counted and table.source != "spark"]
        if self.sizes == "list" and rest:
            counted |= self._list_sizes(store, run, rest)
        return counted

    def _list_sizes(self, store: CampaignStore, run: str, tables: Sequence[TableInfo]) -> dict[str, tuple[int, int]]:
        """List tables on S3, in chunks whose results are kept: a later try of the task goes on after them."""
        from airflow_hive_to_delta.core.listing.s3 import S3Listing

        options = ConversionOptions.from_dict(self.options)
        listing = S3Listing(self.region_name, None)

        def count(table: TableInfo) -> tuple[str, list[int]] | None:
            files = size = 0
            try:
                for batch in listing.list_batches(table, options):
                    files += batch.num_rows
                    size += sum(batch["size"].to_pylist())
            except HiveToDeltaError as error:  # a wave finds it out again, and says so
                self.log.warning("%s: its size is not known: %s", table.qualified_name, error)
                return None
            return table.qualified_name, [files, size]

        chunks: dict[str, list[TableInfo]] = {}
        for table in tables:
            chunks.setdefault(hash_folder(table.qualified_name), []).append(table)
        found: dict[str, tuple[int, int]] = {}
        for folder, chunk in sorted(chunks.items()):
            path = f"sizes/{folder}.json"
            kept = store.read(path)
            if kept is None or kept["run"] != run:
                with aws_clients(self.aws_conn_id, self.region_name):
                    sizes = dict(each for each in store.map(count, chunk) if each is not None)
                kept = {"run": run, "sizes": sizes}
                store.write(path, kept)
            found |= {name: (files, size) for name, (files, size) in kept["sizes"].items()}
        self.log.info("Listed %d tables that the catalog has not counted", len(tables))
        return found


class GlueCampaignPlanOperator(CampaignPlanOperator, GlueDiscoverOperator):
    """Plans a campaign over tables of AWS Glue."""


class CatalogCampaignPlanOperator(CampaignPlanOperator, CatalogDiscoverOperator):
    """Plans a campaign over tables of a catalog of Spark."""
