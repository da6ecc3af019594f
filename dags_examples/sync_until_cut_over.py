"""Converts once, and syncs daily until the tables are cut over.

Hive jobs go on writing during a migration. The first run converts every table; each later one brings what Hive has
written, replaced and dropped since, and converts tables that are new. Whoever reads the Delta tables already is a day
behind at most. A partition that was written to in the last ten minutes waits for the next run, for the job may not have
ended; run the DAG with ``{"quiet_minutes": 0}`` to take all that is there. ``cut_over.py`` ends it, table by table:
what is cut over is left out here from then on.
"""

from airflow.sdk import DAG, CronTriggerTimetable

from airflow_hive_to_delta import (
    GlueSource,
    GlueTarget,
    PerTable,
    hive_to_delta_sync_task_group,
)

DATABASE = "sales"
TARGET_SCHEMA = "sales_delta"
STAGING = "s3://lake/staging"

with DAG(
    "sync_until_cut_over",
    schedule=CronTriggerTimetable("0 3 * * *", timezone="UTC"),
    catchup=False,
    # Two runs at once would only wait for each other's commits.
    max_active_runs=1,
    params={"quiet_minutes": 10},
    tags=["hive_to_delta"],
):
    hive_to_delta_sync_task_group(
        source=GlueSource(DATABASE),
        convert_new=True,
        target=GlueTarget(TARGET_SCHEMA, create_schema=True),
        staging=STAGING,
        sync={"output_mode": "complete", "merge_schema": True, "quiet_period": "{{ params.quiet_minutes }}"},
        per_table=PerTable(batch_size=20),
    )
