"""Deletes what Delta's own VACUUM never does: files outside of a table's root that Delta removed long ago.

A partition in another bucket stays there when Delta rewrites or deletes its rows. Without the parameter this says only
what would go. A table is given by its name and location alone; what discovery returns will do as well.
"""

from airflow.sdk import DAG, Param

from airflow_hive_to_delta import VacuumExternalFilesOperator

TABLES = [{"name": "orders", "database": "sales", "location": "s3://lake/sales/orders"}]
STAGING = "s3://lake/staging"

with DAG(
    "vacuum_external_files",
    schedule=None,
    params={
        "delete": Param(False, type="boolean", title="Delete", description="Only say what would go, when not set"),
        "hours": Param(168, type="integer", minimum=168, title="Hours that a removed file is kept"),
    },
    tags=["hive_to_delta"],
):
    VacuumExternalFilesOperator.partial(
        task_id="vacuum",
        retention_hours="{{ params.hours }}",
        dry_run="{{ not params.delete }}",
        staging=STAGING,
        map_index_template="{{ task.table_label }}",
    ).expand(table=TABLES)
