"""Brings what Hive has written since into all tables of a campaign, daily, until they are cut over.

The tables are those that ``campaign.py`` has converted and verified: those that wait longest come first. A partition
that was written to in the last ten minutes waits for the next run; run the DAG with ``{"quiet_minutes": 0}`` to take
all that is there.
"""

from airflow.sdk import DAG, CronTriggerTimetable

from airflow_hive_to_delta import Closing, Wave, hive_to_delta_campaign

STAGING = "s3://lake/staging"

with DAG(
    "campaign_sync",
    schedule=CronTriggerTimetable("0 12 * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    params={"quiet_minutes": 10},
    tags=["hive_to_delta"],
):
    hive_to_delta_campaign(
        "lake",
        phase="sync",
        staging=STAGING,
        wave=Wave(until="20:00"),
        sync={"output_mode": "complete", "merge_schema": True, "quiet_period": "{{ params.quiet_minutes }}"},
        closing=Closing(tolerance=0.02),
    )
