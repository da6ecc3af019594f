"""Several Glue databases in one DAG, each with a schema of its own, as a migration of some size runs.

Shows tables left out and renamed, batches that share a Spark session, retries, and limits on what runs at a time.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_hive_to_delta import (
    GlueSource,
    GlueTarget,
    LocalSpark,
    PerTable,
    hive_to_delta_task_group,
)

#: Where the tables of each Glue database are registered.
SCHEMAS = {"sales": "sales_delta", "web": "web_delta"}
STAGING = "s3://lake/staging"
#: Limits Spark sessions over all DAGs. It must exist: airflow pools set hive_to_delta 2 "Spark sessions"
POOL = "hive_to_delta"


def choose(table: dict[str, Any]) -> dict[str, Any] | None:
    """Leaves scratch tables out, and drops a suffix that says nothing any more."""
    if table["name"].startswith("tmp_"):
        return None
    return {**table, "target_table_name": table["name"].removesuffix("_parquet")}


with DAG("several_databases", schedule=None, max_active_runs=1, tags=["hive_to_delta"]):
    hive_to_delta_task_group(
        source=GlueSource(list(SCHEMAS), exclude=["*_backup", "web.raw_*"]),
        target=GlueTarget(SCHEMAS, create_schema=True),
        staging=STAGING,
        engine=LocalSpark(memory="2g", cores=2),
        choose=choose,
        per_table=PerTable(
            retries=3,
            retry_delay=timedelta(minutes=1),
            execution_timeout=timedelta(hours=2),
            pool=POOL,
            max_active=2,
            # Starting Spark takes longer than converting a small table: twenty of them share a session, which verifies
            # them, too. A batch is retried as a whole, which is cheap, since tables that are done are left as they are.
            batch_size=20,
            verify_in_convert=True,
        ),
    )
