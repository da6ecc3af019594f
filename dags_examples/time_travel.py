"""A table as it was: what it held at its conversion, and what it holds now.

``DeltaTableView`` looks at one version, by number, by time, or in the path (``s3://lake/sales/items@v0``), and never
moves to a later one. Spark runs in the task itself, with the identity that the worker has.
"""

from typing import Any

from airflow.sdk import DAG, Param, task

TABLE = "s3://lake/sales/items"

with DAG(
    "time_travel",
    schedule=None,
    params={"version": Param(0, type="integer", minimum=0, title="Version to compare with")},
    tags=["hive_to_delta"],
):

    @task
    def compare(params: dict[str, Any] | None = None) -> dict[str, Any]:
        from airflow_hive_to_delta import DeltaTableView, local_session

        spark = local_session("Time travel")
        then = DeltaTableView.for_path(spark, TABLE, version=(params or {})["version"])
        now = DeltaTableView.for_path(spark, TABLE)
        return {
            "then": {"version": then.version, "rows": then.to_df().count()},
            "now": {"version": now.version, "rows": now.to_df().count()},
            "operations": [commit.operation for commit in now.history],
        }

    compare()
