"""Compares converted tables with their originals, column by column: a checksum of every partition on both sides.

The task group compares counts after each conversion. This reads all data, for a last proof before a cut-over, and shows
how a table fails: with the partitions and the numbers that differ.
"""

from typing import Any

from airflow.sdk import DAG, Param

from airflow_hive_to_delta import (
    GlueDiscoverOperator,
    ListFilesOperator,
    MigrationReportOperator,
    VerifyTableOperator,
)

DATABASE = "sales"
STAGING = "s3://lake/staging"
LABEL = "{{ task.table_label }}"


def table_and_files(pair: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    table, files = pair
    return {"table": table, "files": files}


with DAG(
    "verify_fully",
    schedule=None,
    params={"tables": Param("*", type="string", title="Tables", description="A name, or a pattern such as dim_*")},
    tags=["hive_to_delta"],
):
    discover = GlueDiscoverOperator(
        task_id="discover", databases=DATABASE, include="{{ params.tables }}", leave_out_delta=True
    )
    list_files = ListFilesOperator.partial(task_id="list_files", staging=STAGING, map_index_template=LABEL).expand(
        table=discover.output
    )
    verify = VerifyTableOperator.partial(
        task_id="verify", level="full", staging=STAGING, map_index_template=LABEL
    ).expand_kwargs(discover.output.zip(list_files.output).map(table_and_files))
    report = MigrationReportOperator(
        task_id="report",
        action="verify",
        discover_task_id="discover",
        table_task_ids=["list_files", "verify"],
        staging=STAGING,
    )
    verify >> report
