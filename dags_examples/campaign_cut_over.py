"""Cuts tables of a campaign over, as many as fit the pattern, after a person has approved it.

Stop the Hive jobs that write these tables, and trigger ``campaign_sync.py`` for the last time before this one. For two
weeks after the cut-over the tables can be rolled back: trigger this DAG with ``{"phase": "roll_back"}``.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param, task

from airflow_hive_to_delta import Approval, hive_to_delta_campaign

STAGING = "s3://lake/staging"

with DAG(
    "campaign_cut_over",
    schedule=None,
    max_active_runs=1,
    params={
        "tables": Param("sales.*", type="string", title="Tables", description="A pattern on database.table"),
        "phase": Param("cut_over", enum=["cut_over", "roll_back"], title="What to do"),
    },
    tags=["hive_to_delta"],
):

    @task.branch
    def choose(phase: str) -> str:
        return f"{phase}.approve"

    cut_over = hive_to_delta_campaign(
        "lake",
        "cut_over",
        phase="cut_over",
        staging=STAGING,
        only="{{ params.tables }}",
        probation=timedelta(days=14),
        approval=Approval(),
    )
    roll_back = hive_to_delta_campaign(
        "lake", "roll_back", phase="roll_back", staging=STAGING, only="{{ params.tables }}", approval=Approval()
    )
    choose("{{ params.phase }}") >> [cut_over, roll_back]
