"""The embedded engine and the job it runs: a process of its own, that ends with whoever started it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_hive_to_delta import LocalSpark
from airflow_hive_to_delta.core.models import ConversionOptions, ParquetFileInfo, TableInfo
from airflow_hive_to_delta.engines import Engine, JobError, JobRequest
from airflow_hive_to_delta.job import main, run
from tests.airflow_runs import dag_source, load_dag
from tests.conftest import PROJECT
from tests.oracle import assert_same, delta_at
from tests.tables import write_parquet

TASK = """
ConvertTableOperator(
    task_id="convert", table={table!r}, files={files!r}, engine=LocalSpark(cores=1), aws_conn_id=None
)
"""


def conversion(root: Path) -> JobRequest:
    """The request to convert a table of a few files."""
    files = [write_parquet(root / f"f{number}", {"n": [number, None]}) for number in range(3)]
    listed = [ParquetFileInfo(str(file), file.stat().st_size).to_dict() for file in files]
    return JobRequest(
        "convert",
        {
            "tables": [TableInfo("t", str(root)).to_dict()],
            "lists": [{"table": "t", "file_count": 3, "byte_count": 0, "files": listed}],
            "target_catalog": None,
            "target_schemas": [None],
            "options": ConversionOptions().to_dict(),
        },
        "Convert t",
    )


def processes_of(job: int) -> list[int]:
    """The job's process and all that it started, and these started."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                # After the name, which may hold anything: state, parent.
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = [job]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def wait_for_end(process: int) -> None:
    """Until the process is gone, whoever its parent is."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([descriptor], [], [], 60)
    os.close(descriptor)
    assert ended, f"process {process} is still there"


@pytest.mark.slow
def test_killing_the_task_leaves_no_process_and_no_half_log_and_the_retry_succeeds(
    airflow_home, run_dag, tmp_path, spark
) -> None:
    root = tmp_path / "t"
    request = conversion(root)
    before = sorted(root.iterdir())
    (table,), (files,) = request.arguments["tables"], request.arguments["lists"]
    source = dag_source(TASK.format(table=table, files=files)).replace("dag_", "killed_")
    file = airflow_home / "dags" / "killed.py"
    file.write_text(source)
    dag_id = load_dag(file).dag_id
    task = subprocess.Popen(
        [sys.executable, "-m", "airflow", "dags", "test", dag_id],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    seen = []
    for line in task.stdout:
        seen.append(line)
        if "Convert t began" in line:
            break
    processes = processes_of(task.pid)
    assert len(processes) >= 3, ("the task, its job, and the JVM that this started", seen[-20:])

    task.kill()  # as the kernel does when memory is short: nothing of the task can clean up

    task.wait()
    task.stdout.close()
    for process in processes:
        wait_for_end(process)
    entries = sorted((root / "_delta_log").glob("*.json")) if (root / "_delta_log").exists() else []
    assert entries or sorted(root.iterdir()) == before

    again = run_dag(file)
    assert again.state == "success"
    assert again.xcom("convert")["success"]
    original = spark.read.parquet(*[str(path) for path in before])
    assert_same(spark, original, delta_at(spark, root))


@pytest.mark.slow
def test_a_target_that_would_end_with_the_job_is_refused(airflow_home, tmp_path) -> None:
    request = conversion(tmp_path / "t")
    before = sorted(tmp_path.rglob("*"))
    request.arguments["target_schemas"] = ["bronze"]
    engine = LocalSpark(cores=1)
    job = engine.submit(request, {})
    while engine.status(job).state == "running":
        pass
    result = engine.result(job)
    assert "own catalog (bronze), which is kept in memory and ends with the job" in result["error"]
    assert result["retryable"] is False
    assert sorted(tmp_path.rglob("*")) == before


def test_a_list_that_was_changed_since_is_refused(spark, tmp_path) -> None:
    request = conversion(tmp_path / "t")
    request.arguments["lists"][0]["files"].pop()
    (result,) = run(request, spark)["results"]
    assert not result["success"]
    assert "has 2 files, but 3 were listed: it was changed since. List the files again" in result["error"]


@pytest.mark.slow
def test_on_kill_ends_the_job(airflow_home, tmp_path) -> None:
    from airflow.sdk import DAG

    from airflow_hive_to_delta.operators.spark_job import SparkJobOperator

    said = threading.Event()

    class Telling(LocalSpark):
        def status(self, job: str):  # type: ignore[no-untyped-def]
            status = super().status(job)
            if any("Convert t began" in line for line in status.log):
                said.set()
            return status

    engine = Telling(cores=1, poll_seconds=0.05)
    with DAG("killed", schedule=None):
        task = SparkJobOperator(task_id="t", engine=engine, aws_conn_id=None)
    errors: list[BaseException] = []

    def execute() -> None:
        try:
            task.run_job(conversion(tmp_path / "t"))
        except (JobError, KeyError) as error:
            errors.append(error)
        said.set()

    thread = threading.Thread(target=execute)
    thread.start()
    assert said.wait(120)
    assert not errors
    (job,) = engine._jobs
    processes = processes_of(int(job))
    task.on_kill()
    for process in processes:
        wait_for_end(process)
    thread.join(60)
    assert errors
    assert "ended by signal" in str(errors[0])


def test_a_process_that_ends_without_a_result_says_how_it_ended(airflow_home) -> None:
    engine = LocalSpark()
    job = engine.submit(JobRequest("discover", {"allow": ["x.*"], "deny": []}), {})
    os.killpg(int(job), signal.SIGKILL)
    while engine.status(job).state == "running":
        pass
    with pytest.raises(JobError, match=r"ended by signal 9 .*more than memory='2g'") as raised:
        engine.result(job)
    assert raised.value.retryable
    engine.cancel(job)  # of a job that has ended: nothing happens
    assert engine.page(job) is None


def test_local_spark_is_an_engine() -> None:
    assert isinstance(LocalSpark(), Engine)
    assert not isinstance("local", Engine)


def test_a_request_that_is_none_is_refused_by_name(tmp_path, capsys) -> None:
    bad = tmp_path / "request.json"
    bad.write_text('{"action": "destroy", "arguments": {}}')
    with pytest.raises(SystemExit) as ended:
        main([str(bad), "--result", str(tmp_path / "result.json")])
    assert ended.value.code == 2
    assert "action is 'destroy', expected one of convert, cut_over, discover, list, plan" in capsys.readouterr().err
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message", "retryable"),
    [
        ({"allow": [], "deny": []}, "allow is \\[\\]", False),
        ({"unknown": 1}, "unexpected keyword argument 'unknown'", False),
    ],
)
def test_a_job_that_fails_as_a_whole_has_its_error_as_its_result(spark, arguments, message, retryable) -> None:
    import re

    result = run(JobRequest("discover", arguments), spark)
    assert re.search(message, result["error"])
    assert result["retryable"] is retryable


def test_a_listing_that_nobody_knows(spark) -> None:
    arguments = {"tables": [], "listing": {"strategy": "ftp"}, "manifests": [], "inline_limit": 1, "options": {}}
    result = run(JobRequest("list", arguments), spark)
    assert "The listing strategy is 'ftp', expected s3, spark or inventory" in result["error"]
