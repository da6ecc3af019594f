"""Cuts a table over: its name in Glue is that of the Delta table from then on, and the Hive definition is kept.

Stop the Hive jobs that write the table, then trigger this: a last sync, a comparison with what Hive has, and the
cut-over only if both succeed. ``roll_back.py`` is the way back.
"""

from typing import Any

from airflow.sdk import DAG, Param, TriggerRule, task_group

from airflow_hive_to_delta import (
    CutOverTableOperator,
    GlueDiscoverOperator,
    ListFilesOperator,
    SyncOptions,
    SyncTableOperator,
    VerifyTableOperator,
)

DATABASE = "sales"
STAGING = "s3://lake/staging"

with DAG(
    "cut_over",
    schedule=None,
    params={"table": Param("orders", type="string", title="Table", description="A name, or a pattern such as dim_*")},
    tags=["hive_to_delta"],
):
    discover = GlueDiscoverOperator(
        task_id="discover", databases=DATABASE, include="{{ params.table }}", leave_out_delta=True, at_least_one=True
    )

    @task_group
    def tables(table: Any) -> None:
        files = ListFilesOperator(task_id="list_files", table=table, staging=STAGING)
        sync = SyncTableOperator(
            task_id="sync",
            table=table,
            files=files.output,
            sync_options=SyncOptions(output_mode="complete", merge_schema=True),
            staging=STAGING,
        )
        verify = VerifyTableOperator(
            task_id="verify", table=table, files=files.output, results=sync.output["outcomes"], staging=STAGING
        )
        cut_over = CutOverTableOperator(
            task_id="cut_over",
            table=table,
            staging=STAGING,
            # What a later run has synced already is not verified here, and is cut over all the same.
            trigger_rule=TriggerRule.NONE_FAILED,
        )
        verify >> cut_over

    tables.expand(table=discover.output)
