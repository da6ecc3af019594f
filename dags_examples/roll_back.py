"""The way back: a converted table is the Hive table again that it was, in Glue too if it was cut over.

The log is moved aside, not deleted. A table that others have written to since is refused, and the error names their
versions; trigger it again with these to accept that what they wrote is lost.
"""

from airflow.sdk import DAG, Param

from airflow_hive_to_delta import GlueDiscoverOperator, RollbackTableOperator

DATABASE = "sales"
STAGING = "s3://lake/staging"

with DAG(
    "roll_back",
    schedule=None,
    params={
        "table": Param("orders", type="string", title="Table"),
        "lose_versions": Param([], type="array", items={"type": "integer"}, title="Versions that may be lost"),
    },
    tags=["hive_to_delta"],
):
    discover = GlueDiscoverOperator(
        task_id="discover", databases=DATABASE, include="{{ params.table }}", at_least_one=True
    )
    RollbackTableOperator.partial(
        task_id="roll_back",
        lose_versions="{{ params.lose_versions }}",
        staging=STAGING,
        map_index_template="{{ task.table_label }}",
    ).expand(table=discover.output)
