"""Saying what a migration would do, before it does anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from airflow_hive_to_delta.core.errors import describe_error
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import check_count
from airflow_hive_to_delta.core.results import TablePlan
from airflow_hive_to_delta.engines import JobError, JobRequest
from airflow_hive_to_delta.job.manifests import INLINE_LIMIT
from airflow_hive_to_delta.links import ReportLink
from airflow_hive_to_delta.operators.arguments import Options, options_dict
from airflow_hive_to_delta.operators.report_publishing import describe_run, publish_report, seconds_since_start
from airflow_hive_to_delta.operators.spark_job import SparkJobOperator
from airflow_hive_to_delta.operators.staging import RunFolder
from airflow_hive_to_delta.operators.tables.batches import Table, flatten
from airflow_hive_to_delta.operators.tables.definitions import current_definitions
from airflow_hive_to_delta.operators.tables.file_lister import FileLister, Strategy, check_listing
from airflow_hive_to_delta.operators.tables.outcomes import airflow_error, has_tries_left, refused_as_failed
from airflow_hive_to_delta.report.outcomes import TableOutcome, build_report

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg


_ADVICE = (
    "A migration fails for this table. Fix what the error names, then clear the task that plans, which reads the table "
    "anew; or exclude the table."
)


class PlanMigrationOperator(SparkJobOperator):
    """Says what a migration would do with every table, by reading alone: nothing is written but the plan.

    One task for all tables. The plan says of each whether it can be converted, was already, or fails and what to do
    about it; its files, bytes and partitions; where catalog and files do not fit together; and which readers will not
    be able to read the Delta table. It is written as JSON and as one HTML page into the run's folder under the staging
    root. A table that cannot be converted fails nothing here.

    Returns the totals, and where the two files are.

    :param tables: what a discovering task returned: tables, or batches of them. Their text is never taken for a
        template.
    :param left_out: what it pushed as ``left_out``, so that the plan has these too: ``discover.output["left_out"]``.
    :param staging: the staging root, such as ``s3://bucket/staging``. (templated)
    :param options: the :class:`ConversionOptions` of the migration. (templated)
    :param max_workers: tables that are looked at side by side.
    :param title: the headline of the page. (templated)

    ``listing``, ``inventory_manifests`` and ``glue_database`` are those of :class:`ListFilesOperator`.
    """

    template_fields: Sequence[str] = (
        *("tables", "left_out", "options", "title", "inventory_manifests", "glue_database"),
        *SparkJobOperator.template_fields,
    )
    untrusted_fields: Sequence[str] = ("tables", "left_out")
    operator_extra_links = (*SparkJobOperator.operator_extra_links, ReportLink())
    #: Where a person finds the page, once it is written.
    report_page: str | None = None
    staging: str
    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        tables: Sequence[Any] | XComArg,
        staging: str,
        left_out: Sequence[Table] | XComArg = (),
        listing: Strategy = "s3",
        inventory_manifests: str | Sequence[str] | None = None,
        glue_database: str | None = None,
        options: Options = None,
        max_workers: int = 4,
        title: str = "Plan: {{ dag.dag_id }}",
        **kwargs: Any,
    ) -> None:
        super().__init__(staging=staging, **kwargs)
        check_listing(listing, inventory_manifests, glue_database)
        check_count("max_workers", max_workers, least=1)
        self.tables = tables
        self.left_out = left_out
        self.listing = listing
        self.inventory_manifests = inventory_manifests
        self.glue_database = glue_database
        self.options = options_dict(options)
        self.max_workers = max_workers
        self.title = title

    def execute(self, context: Context) -> dict[str, Any]:
        tables = [TableInfo.from_dict(table) for table in flatten(self.tables)]
        known = current_definitions(tables, aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        plans = self._plan(context, known.tables) if known.tables else []
        plans += [_failed_plan(name, error) for name, error in known.errors.items()]
        failed = [plan for plan in plans if plan["status"] == "failed"]
        if any(plan["retryable"] for plan in failed) and has_tries_left(context):
            raise AirflowException("\n".join(f"{plan['source_table']}: {plan['error']}" for plan in failed))
        outcomes = [TableOutcome.from_dict(outcome) for outcome in flatten(self.left_out)]
        outcomes += [_as_run_outcome(TableOutcome.of_plan(plan)) for plan in plans]
        report = build_report(
            outcomes,
            title=self.title,
            run=describe_run(context),
            action="plan",
            elapsed_seconds=seconds_since_start(context),
        )
        for table in report["tables"]:
            self.log.info("%-13s %s %s", table["status"], table["table"], table["error"] or "")
        folder = RunFolder(self.staging, context, conn_id=self.staging_conn_id, aws_conn_id=self.aws_conn_id)
        pushed = publish_report(context, folder, "plan", report)
        self.report_page = pushed["page"]
        return {name: pushed[name] for name in ("totals", "json", "html")}

    def _plan(self, context: Context, tables: Sequence[TableInfo]) -> list[dict[str, Any]]:
        arguments: dict[str, Any] = {
            "tables": [table.to_dict() for table in tables],
            "options": self.options,
            "max_workers": self.max_workers,
        }
        lister = FileLister.of_operator(self, context, inline_limit=INLINE_LIMIT)
        if lister.needs_engine(tables):
            arguments["listing"] = lister.document()
        else:
            arguments["lists"] = list(lister.list_in_task(tables))
        request = JobRequest("plan", arguments, f"Plan the migration of {len(tables)} tables")
        try:
            return list(self.run_job(request, context)["results"])
        except JobError as error:
            raise airflow_error(error) from error


def _failed_plan(table: str, error: Exception) -> dict[str, Any]:
    """The plan of a table that its catalog does not describe any more, or not now."""
    return TablePlan(table, "failed", "", **describe_error(error).to_fields()).to_dict()


def _as_run_outcome(outcome: TableOutcome) -> TableOutcome:
    """The outcome by which a run would report the table.

    What discovery leaves out is refused; what it passes on and cannot be converted has failed.
    """
    failed = refused_as_failed(outcome)
    return failed if failed.status != "failed" else replace(failed, advice=_ADVICE)
