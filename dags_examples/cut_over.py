"""Cuts one table over: its name in Glue is that of the Delta table from then on, and the Hive definition is kept.

Stop the Hive jobs that write the table, then trigger this: a last sync, and the cut-over only if it succeeds.
``roll_back.py`` is the way back.
"""

from typing import Any

from airflow.sdk import DAG, Param

from airflow_hive_to_delta import CutOverTableOperator, GlueDiscoverOperator, ListFilesOperator, SyncTableOperator

DATABASE = "sales"
STAGING = "s3://lake/staging"
LABEL = "{{ task.table_label }}"


def table_and_files(pair: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    table, files = pair
    return {"table": table, "files": files}


with DAG(
    "cut_over",
    schedule=None,
    params={"table": Param("orders", type="string", title="Table", description="A name, or a pattern such as dim_*")},
    tags=["hive_to_delta"],
):
    discover = GlueDiscoverOperator(
        task_id="discover", databases=DATABASE, include="{{ params.table }}", leave_out_delta=True
    )
    list_files = ListFilesOperator.partial(task_id="list_files", staging=STAGING, map_index_template=LABEL).expand(
        table=discover.output
    )
    sync = SyncTableOperator.partial(
        task_id="sync", output_mode="complete", staging=STAGING, map_index_template=LABEL
    ).expand_kwargs(discover.output.zip(list_files.output).map(table_and_files))
    cut_over = CutOverTableOperator.partial(task_id="cut_over", staging=STAGING, map_index_template=LABEL).expand(
        table=discover.output
    )
    # All of them or none: where one table cannot be synced, no name changes.
    sync >> cut_over
