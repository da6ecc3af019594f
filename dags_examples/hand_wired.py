"""The operators wired by hand, for a DAG of another shape than ``hive_to_delta_task_group`` gives.

Here all tables are listed before the first is converted: a table that cannot be listed stops the run while nothing has
been written. In the task group each table goes its own way.
"""

from typing import Any

from airflow.sdk import DAG, AssetAlias

from airflow_hive_to_delta import (
    ConversionOptions,
    ConvertTableOperator,
    GlueDiscoverOperator,
    ListFilesOperator,
    MigrationReportOperator,
)

DATABASE = "sales"
TARGET_SCHEMA = "sales_delta"
STAGING = "s3://lake/staging"
AWS = "aws_default"
OPTIONS = ConversionOptions(register_in="glue", create_schema=True)
#: Mapped tasks are called by their table. Airflow takes this from ``partial`` only, never from an operator's defaults.
LABEL = "{{ task.table_label }}"


def table_and_files(pair: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    table, files = pair
    return {"table": table, "files": files}


with DAG("hand_wired", schedule=None, tags=["hive_to_delta"]):
    discover = GlueDiscoverOperator(
        task_id="discover", databases=DATABASE, target_schema=TARGET_SCHEMA, options=OPTIONS, aws_conn_id=AWS
    )
    list_files = ListFilesOperator.partial(
        task_id="list_files", staging=STAGING, options=OPTIONS, aws_conn_id=AWS, retries=2, map_index_template=LABEL
    ).expand(table=discover.output)
    convert = ConvertTableOperator.partial(
        task_id="convert",
        target_schema=TARGET_SCHEMA,
        staging=STAGING,
        options=OPTIONS,
        aws_conn_id=AWS,
        retries=2,
        map_index_template=LABEL,
        outlets=[AssetAlias("hive_to_delta")],  # as the label: a mapped task shows what ``partial`` was given
        max_active_tis_per_dagrun=2,
    ).expand_kwargs(discover.output.zip(list_files.output).map(table_and_files))
    report = MigrationReportOperator(
        task_id="report",
        discover_task_id="discover",
        table_task_ids=["list_files", "convert"],
        staging=STAGING,
        aws_conn_id=AWS,
    )
    convert >> report
