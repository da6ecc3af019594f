"""Finding the files of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import check_count
from airflow_hive_to_delta.job.manifests import INLINE_LIMIT, list_error
from airflow_hive_to_delta.operators.table_operator import TableOperator
from airflow_hive_to_delta.operators.tables.definitions import current_definitions
from airflow_hive_to_delta.operators.tables.file_lister import FileLister, Strategy, check_listing
from airflow_hive_to_delta.operators.tables.outcomes import fail_with_outcomes, has_tries_left, record_outcomes
from airflow_hive_to_delta.report.outcomes import TableOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context


class ListFilesOperator(TableOperator):
    """Lists the files of one table, or of each table of a batch.

    Returns, for each table, where its list is, how many files it has and how many bytes: the list itself while it is
    short, else the address of a manifest under the staging root. A table that was discovered is listed by the
    definition that its catalog has now.

    :param table: a table as discovery returned it, or a batch of them. Its text is never taken for a template.
    :param listing: ``s3`` lists with boto3 from this task; ``spark`` lists on the engine, with Spark's own identity, on
        any storage; ``inventory`` takes the files from S3 Inventory reports, on the engine.
    :param inventory_manifests: addresses of the reports' ``manifest.json``, for ``inventory``. (templated)
    :param glue_database: the Glue database that knows the partitions, for tables that do not say so. (templated)
    :param inline_limit: more files than this, of all tables of a batch together, make a manifest.
    :param options: :class:`ConversionOptions`, of which ``allow_missing_partitions``, ``allow_nested_tables`` and
        ``allowed_roots`` count here. (templated)
    """

    template_fields: Sequence[str] = ("inventory_manifests", "glue_database", *TableOperator.template_fields)
    ui_color = "#e6f4ea"

    def __init__(
        self,
        *,
        listing: Strategy = "s3",
        inventory_manifests: str | Sequence[str] | None = None,
        glue_database: str | None = None,
        inline_limit: int = INLINE_LIMIT,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_listing(listing, inventory_manifests, glue_database)
        check_count("inline_limit", inline_limit, least=0)
        self.listing = listing
        self.inventory_manifests = inventory_manifests
        self.glue_database = glue_database
        self.inline_limit = inline_limit

    def execute_for(self, context: Context, tables: Sequence[TableInfo]) -> list[dict[str, Any]]:
        lister = FileLister.of_operator(self, context, inline_limit=self.inline_limit // len(tables))
        known = current_definitions(tables, aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        if not known.tables:
            listed = []
        elif lister.needs_engine(known.tables):
            listed = lister.list_on_engine(
                known.tables, lambda request: self.run_job(request, context), self.was_killed
            )
        else:
            listed = list(lister.list_in_task(known.tables))
        listed += [list_error(name, error, lister.document()) for name, error in known.errors.items()]
        outcomes = [
            TableOutcome.of_error(each["table"], each["error"], each["retryable"], each.get("error_kind"))
            for each in listed
            if "error" in each
        ]
        # Of a batch the good tables go on; but first every table has its tries.
        none_is_listed = len(outcomes) == len(listed)
        if outcomes and (none_is_listed or (any(o.retryable for o in outcomes) and has_tries_left(context))):
            fail_with_outcomes(context, outcomes)
        record_outcomes(context, outcomes, goes_on=True)
        for outcome in outcomes:
            self.log.error("%s: %s", outcome.table, outcome.error)
        return listed
