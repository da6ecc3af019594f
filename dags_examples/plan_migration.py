"""What a migration would do, before it does anything: a plan of every table, as JSON and as one HTML page.

It says what can be converted and what is refused, and why; and which readers will not be able to read the Delta tables.
Nothing but the plan is written.
"""

from airflow.sdk import DAG

from airflow_hive_to_delta import GlueDiscoverOperator, PlanMigrationOperator

DATABASES = ["sales", "web"]
STAGING = "s3://lake/staging"

with DAG("plan_migration", schedule=None, tags=["hive_to_delta"]):
    discover = GlueDiscoverOperator(task_id="discover", databases=DATABASES)
    PlanMigrationOperator(task_id="plan", tables=discover.output, left_out=discover.output["left_out"], staging=STAGING)
