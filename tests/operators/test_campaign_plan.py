"""The tasks that plan a campaign, in an Airflow that tries them again."""

from __future__ import annotations

from typing import Any

from airflow_hive_to_delta.campaigns import measuring
from airflow_hive_to_delta.campaigns.measuring import Measuring
from airflow_hive_to_delta.campaigns.plan import read_plan
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.core.errors import TransientError
from tests.support.airflow_runs import dag_source

TABLES = ("a", "b", "c", "d")


def test_a_later_try_of_measuring_asks_only_for_what_the_one_before_has_not_kept(
    run_dag, s3, glue, bucket, database, monkeypatch
) -> None:
    glue.create_database(DatabaseInput={"Name": database})
    for number, name in enumerate(TABLES, 1):
        s3.put_object(Bucket=bucket, Key=f"{name}/000000_0", Body=b"x" * number)
        storage = {
            "Columns": [{"Name": "n", "Type": "bigint"}],
            "Location": f"s3://{bucket}/{name}",
            "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
        }
        table = {"Name": name, "TableType": "EXTERNAL_TABLE", "StorageDescriptor": storage}
        glue.create_table(DatabaseName=database, TableInput=table)
    asked: list[str] = []
    count = Measuring._list

    def throttled(self: Measuring, table: Any, locations: Any) -> tuple[int, int]:
        asked.append(table.name)
        if asked == ["a", "b", "c"]:
            raise TransientError("SlowDown")
        return count(self, table, locations)

    monkeypatch.setattr(Measuring, "_list", throttled)
    monkeypatch.setattr(measuring, "_CHUNK", 1)
    staging = f"s3://{bucket}/staging"
    own = f"campaign='lake', staging={staging!r}, aws_conn_id=None, sizes='list'"
    run = run_dag(
        dag_source(
            f"found = GlueCampaignPlanOperator(task_id='find_tables', databases={database!r}, {own})\n"
            f"measured = MeasureTablesOperator.partial(task_id='measure', retries=1, retry_delay=timedelta(0), {own})"
            ".expand(unit=found.output)\n"
            f"plan = FinishPlanOperator(task_id='plan', {own.replace(', sizes=' + repr('list'), '')})\n"
            "[found, measured] >> plan"
        )
    )
    assert run.state == "success"
    assert {task.partition("[")[0]: tries for task, tries in run.tries.items()}["measure"] == 2
    assert asked == ["a", "b", "c", "c", "d"], "a and b were kept"
    rows = read_plan(CampaignStore.open(staging, "lake"))
    assert [(row.table, row.files, row.bytes) for row in rows] == [
        (f"{database}.{name}", 1, number) for number, name in enumerate(TABLES, 1)
    ]
