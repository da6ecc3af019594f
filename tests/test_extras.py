"""What works without the extras, and what the error says where one is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.airflow_runs import dag_source
from tests.support.imports import run_without
from tests.support.lake import Lake

NO_SPARK = ["pyspark", "delta", "pandas", "py4j"]

IN_PROCESS = """
from airflow_hive_to_delta.core.errors import MissingDependencyError
from airflow_hive_to_delta.core.spark import session
try:
    session.{call}
except MissingDependencyError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("missing", "call", "remote", "extra"),
    [
        (["pyspark"], "local_session()", "", "local"),
        (["pyspark"], "cluster_session('job')", "", "local"),
        (["grpc"], "cluster_session('job')", "sc://127.0.0.1:1", "connect"),
    ],
)
def test_a_session_names_the_extra_that_brings_what_it_needs(
    missing: list[str], call: str, remote: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if remote:
        monkeypatch.setenv("SPARK_REMOTE", remote)
    said = run_without(missing, IN_PROCESS.format(call=call), tmp_path)
    assert f"pip install 'airflow-hive-to-delta[{extra}]'" in said


def test_the_embedded_engine_without_spark_fails_for_good_and_says_what_to_install(tmp_path: Path) -> None:
    program = """
from pathlib import Path
from airflow_hive_to_delta import LocalSpark
from airflow_hive_to_delta.engines import JobRequest
from tests.support.jobs import result_in, submit, wait
engine = LocalSpark()
folder = Path.cwd() / "job"
wait(engine, submit(engine, JobRequest("convert", {}, "Convert t"), folder))
print(result_in(folder))
"""
    said = run_without(["pyspark"], program, tmp_path)
    assert "pip install 'airflow-hive-to-delta[local]'" in said
    assert "'retryable': False" in said


def test_lineage_names_the_extra_that_brings_it(tmp_path: Path, airflow_home: Path) -> None:
    program = """
from airflow_hive_to_delta import ConvertTableOperator
from airflow_hive_to_delta.core.errors import MissingDependencyError
import sys
sys.modules["airflow.providers.openlineage"] = None
task = ConvertTableOperator(task_id="t", table={"name": "t", "location": "/t"}, files={})
try:
    task.get_openlineage_facets_on_complete(None)
except MissingDependencyError as error:
    print(error)
"""
    assert "pip install 'airflow-hive-to-delta[openlineage]'" in run_without([], program, tmp_path)


#: As on a worker that submits to a cluster: an engine that needs no Spark here, and answers as a cluster would.
REMOTE_ENGINE = """
from dataclasses import dataclass
from airflow_hive_to_delta.engines import Engine, JobRef, JobStatus

@dataclass
class Cluster(Engine):
    schemes = {"file"}
    poll_seconds: float = 0.01
    def submit(self, spec, environment):
        return JobRef("1", spec.results_uri)
    def status(self, ref, cursor=None):
        return JobStatus("failed", "the cluster is full", retryable=False)
    def cancel(self, ref, within):
        pass
"""


@pytest.mark.slow
def test_a_worker_without_spark_discovers_lists_submits_and_reports(
    lake: Lake, airflow_home: Path, tmp_path: Path
) -> None:
    lake.put("t/000000_0", {"id": [1, 2]})
    lake.glue_table({"id": "bigint"})
    staging = tmp_path / "staging"
    staging.mkdir()
    source = dag_source(
        f"""
hive_to_delta_task_group(
    source=GlueSource({lake.database!r}), staging="file://{staging}", engine=Cluster(), aws_conn_id=None,
    per_table=PerTable(retries=0),
)
""",
        imports=REMOTE_ENGINE,
    )
    dag = airflow_home / "dags" / "worker_without_spark.py"
    dag.write_text(source)
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    imports = "from pathlib import Path\nfrom tests.support.airflow_runs import load_dag"
    try:
        run_without(NO_SPARK, f"{imports}\nload_dag(Path({str(dag)!r})).test()", libraries)
    finally:
        dag.unlink()
    (report,) = staging.rglob("report.json")
    (table,) = json.loads(report.read_text())["tables"]
    assert table["status"] == "failed"
    assert "the cluster is full" in table["error"], "it was discovered, listed and submitted"
