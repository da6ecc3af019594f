"""Jobs on Databricks where Python has no AWS credentials: all that they do goes through the session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions, SyncOptions
from airflow_hive_to_delta.core.storage.databricks import NO_CREDENTIALS_NOTE
from airflow_hive_to_delta.engines import JobRequest
from airflow_hive_to_delta.job.run import run
from tests.support.oracle import assert_same, delta_at

pytestmark = pytest.mark.usefixtures("databricks_runtime")


@pytest.mark.slow
def test_the_life_of_a_table(lake, spark) -> None:
    lake.put("t/day=1/000000_0", {"id": [1, 2]})
    table = TableInfo(
        "t",
        lake.location("t"),
        columns=[{"Name": "id", "Type": "bigint"}],
        partition_keys=["day"],
        partition_types={"day": "int"},
    ).to_dict()
    options = ConversionOptions().to_dict()

    def do(action: Any, **arguments: Any) -> dict[str, Any]:
        answer = run(JobRequest(action, {"tables": [table], "options": options, **arguments}), spark)
        assert "error" not in answer, answer
        (result,) = answer.get("results") or answer["lists"]
        assert not result.get("error"), result
        if action != "list":
            assert NO_CREDENTIALS_NOTE in result["notes"]
        return result

    def list_files() -> dict[str, Any]:
        return do("list", listing={"strategy": "spark"}, manifests=[None], inline_limit=100)

    def read_original() -> Any:
        return spark.read.schema("id bigint, day int").parquet(lake.location("t"))

    target = {"target_catalog": None, "target_schemas": [None]}
    assert do("convert", lists=[list_files()], **target)["status"] == "converted"
    assert do("convert", lists=[list_files()], **target)["status"] == "already_delta"
    assert do("verify", lists=[list_files()], level="counts", versions=[None])["success"]

    lake.put("t/day=2/000000_0", {"id": [3]})
    synced = do("sync", lists=[list_files()], sync_options=SyncOptions().to_dict(), run_version=None)
    assert synced["success"]
    assert_same(spark, read_original(), delta_at(spark, lake.location("t")))
    assert do("rollback", lose_versions=[])["success"]
    assert not [key for key in lake.objects() if key.startswith(f"{lake.bucket}/t/_delta_log/0")]


@pytest.mark.parametrize("keep", [True, False])
def test_the_session_of_a_cluster_that_others_use_is_not_stopped(monkeypatch, keep: bool) -> None:
    stopped = []
    session: Any = SimpleNamespace(stop=lambda: stopped.append(1), version="4.0")
    monkeypatch.setattr("airflow_hive_to_delta.job.run.cluster_session", lambda _: session)
    assert "error" in run(JobRequest("convert", {}), keep_session=keep)
    assert stopped == ([] if keep else [1])
