"""One Glue database becomes Delta tables, registered in Glue under a database of their own.

Every table has its own tasks, in an embedded Spark on the worker; the report at the end fails the run when one failed.
The AWS identity is the connection ``aws_default``.
"""

from airflow.sdk import DAG

from airflow_hive_to_delta import GlueSource, GlueTarget, hive_to_delta_task_group

DATABASE = "sales"
TARGET_SCHEMA = "sales_delta"
STAGING = "s3://lake/staging"

with DAG("one_database", schedule=None, tags=["hive_to_delta"]):
    hive_to_delta_task_group(
        source=GlueSource(DATABASE),
        target=GlueTarget(TARGET_SCHEMA, create_schema=True),
        staging=STAGING,
    )
