"""Files come from S3 Inventory reports instead of LIST requests: for tables with many millions of files.

A report is as old as its date: take one from after the last write. Partitions still come from Glue, and one that no
report covers fails its table.
"""

from airflow.sdk import DAG, Param

from airflow_hive_to_delta import (
    FileListing,
    GlueSource,
    GlueTarget,
    PerTable,
    hive_to_delta_task_group,
)

DATABASE = "sales"
TARGET_SCHEMA = "sales_delta"
STAGING = "s3://lake/staging"
#: One report for each bucket that has files of the tables. Airflow asks for its date when the DAG is triggered.
REPORTS = [
    "s3://inventory/lake/daily/{{ params.report }}/manifest.json",
    "s3://inventory/archive/daily/{{ params.report }}/manifest.json",
]

with DAG(
    "s3_inventory",
    schedule=None,
    params={"report": Param("2024-05-01T01-00Z", type="string", title="Report", description="The reports' folder")},
    tags=["hive_to_delta"],
):
    hive_to_delta_task_group(
        source=GlueSource(DATABASE),
        listing=FileListing("inventory", inventory_manifests=REPORTS),
        target=GlueTarget(TARGET_SCHEMA, create_schema=True),
        staging=STAGING,
        # Reading the reports is the work: a batch reads them once for all its tables.
        per_table=PerTable(batch_size=100),
    )
