"""Thousands of tables in nightly waves: each run takes the next ones, until nothing is left.

What became of each table is kept under the staging root, so a run forgets nothing, and a table that fails is tried
again in a later one. A person approves the plan once, before the first wave. ``campaign_sync.py`` and
``campaign_cut_over.py`` take the same campaign further.
"""

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable

from airflow_hive_to_delta import (
    Approval,
    Closing,
    GlueSource,
    GlueTarget,
    Lane,
    PlanSettings,
    Retries,
    Units,
    UnitSize,
    Wave,
    hive_to_delta_campaign,
)

#: Where the tables of each Glue database are registered.
SCHEMAS = {"sales": "sales_delta", "web": "web_delta"}
STAGING = "s3://lake/staging"

with DAG(
    "campaign",
    schedule=CronTriggerTimetable("0 22 * * *", timezone="Europe/Berlin"),
    catchup=False,
    # A wave at a time.
    max_active_runs=1,
    tags=["hive_to_delta"],
):
    hive_to_delta_campaign(
        "lake",
        source=GlueSource(list(SCHEMAS), exclude=["tmp_*"]),
        target=GlueTarget(SCHEMAS, create_schema=True),
        staging=STAGING,
        plan=PlanSettings(sizes="list"),
        approval=Approval(),
        # Of a night: so much at most, and no table is begun after six.
        wave=Wave(tables=2_000, bytes=20 * 1024**4, until="06:00", timezone="Europe/Berlin"),
        units=Units(
            # Small tables share a job; those with more files than this have one to themselves.
            UnitSize(tables=50, files=50_000),
            packed=Lane(max_active=8),
            alone=Lane(max_active=2, execution_timeout=timedelta(hours=6)),
            retries=Retries(attempts=4, backoff=timedelta(hours=12)),
        ),
        closing=Closing(tolerance=0.02),
    )
