"""DAGs that migrate a lake, and what they are run on."""

from __future__ import annotations

from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame

from tests.support.airflow_runs import dag_source
from tests.support.lake import Lake, Partition

GROUP = """
hive_to_delta_task_group(
    source=GlueSource({databases!r}), staging={staging!r}, engine={engine}, aws_conn_id={conn!r},
    per_table=PerTable(retries=1, retry_delay=timedelta(0){per_table}){more}
)
"""
#: An engine that loses the first result of an action.
LOSES = """
from airflow_hive_to_delta.engines import JobStatus
from airflow_hive_to_delta.job.documents import DONE, delete_document

class Loses(SharedSession):
    '''An engine that loses the first result of an action.'''

    def do(self, request, results):
        super().do(request, results)
        if request.action == {action!r} and not LOST:
            LOST.append(str(results))
            delete_document(results.child(DONE), None)

    def status(self, ref, cursor=None):
        found = super().status(ref, cursor)
        if found.has_ended and LOST[:1] == [ref.results_uri]:
            return JobStatus("failed", "The connection was lost")
        return found

LOST = []
"""


def group(
    lake: Lake,
    more: str = "",
    *,
    databases: object = None,
    engine: str = "SharedSession()",
    per_table: str = "",
    conn: str | None = None,
    imports: str = "",
) -> str:
    """The source of a DAG with one task group over the lake's database."""
    staging = f"s3://{lake.bucket}/staging"
    body = GROUP.format(
        databases=databases or lake.database,
        staging=staging,
        engine=engine,
        conn=conn,
        per_table=f", {per_table}" if per_table else "",
        more=f", {more}" if more else "",
    )
    return dag_source(body, imports=imports)


def orders_and_people(lake: Lake) -> dict[str, DataFrame]:
    """Two tables in Glue, and the same as Spark reads them from the Hive metastore."""
    lake.put("orders/day=1/000000_0", {"id": [1, 2]})
    other = lake.add_bucket()
    lake.put("far/000000_0", {"id": pa.array([3, None], pa.int64())}, bucket=other)
    orders: tuple[dict[str, str], dict[str, str], list[Partition]] = (
        {"id": "bigint"},
        {"day": "int"},
        [(["1"], lake.location("orders/day=1")), ([None], f"s3://{other}/far")],
    )
    lake.put("people/000000_0", {"name": pa.array(["Ada", None])})
    people = ({"name": "string"},)
    lake.glue_table(*orders, name="orders")
    lake.glue_table(*people, name="people")
    return {
        "orders": lake.hive_table(*orders, name="orders"),
        "people": lake.hive_table(*people, name="people"),
    }


def read_text(lake: Lake, address: str) -> str:
    location = urlsplit(address)
    return lake.s3.get_object(Bucket=location.netloc, Key=location.path.lstrip("/"))["Body"].read().decode()
