"""The embedded engine and the job it runs: a process of its own, that ends with whoever started it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from airflow_hive_to_delta import LocalSpark
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.parquet.describe import FEW_FILES
from airflow_hive_to_delta.engines import Engine, JobRequest, local
from airflow_hive_to_delta.job.run import main, run
from airflow_hive_to_delta.job.table_results import EarlierTries, earlier_tries
from tests.support.airflow_runs import dag_source, load_dag
from tests.support.job_processes import command_of, processes_of, stuck_worker, wait_for_end
from tests.support.jobs import conversion, result_in, submit, wait
from tests.support.oracle import assert_same, delta_at
from tests.support.project import PROJECT

TASK = """
ConvertTableOperator(
    task_id="convert", table={table!r}, files={files!r}, engine=LocalSpark(cores=1), aws_conn_id=None
)
"""


@contextmanager
def task_with_stuck_worker(airflow_home: Path, root: Path) -> Iterator[tuple[subprocess.Popen[str], list[int], Path]]:
    """A task of a real Airflow whose job's Python worker is in the middle of reading a file; and its processes."""
    request = conversion(root, FEW_FILES + 1)
    (table,), (files,) = request.arguments["tables"], request.arguments["lists"]
    dag = airflow_home / "dags" / "killed.py"
    dag.write_text(dag_source(TASK.format(table=table, files=files)).replace("dag_", "killed_"))
    with stuck_worker(root / "f1") as wait:
        task = subprocess.Popen(
            [sys.executable, "-m", "airflow", "dags", "test", load_dag(dag).dag_id],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
        )
        wait()
        processes = processes_of(task.pid)
        commands = " ".join(map(command_of, processes))
        assert "airflow_hive_to_delta.job" in commands
        assert "org.apache.spark.deploy.SparkSubmit" in commands
        assert "pyspark.daemon" in commands
        yield task, processes, dag


@pytest.mark.slow
def test_killing_the_task_leaves_no_process_and_no_half_log_and_the_retry_succeeds(
    airflow_home, run_dag, tmp_path, spark
) -> None:
    root = tmp_path / "t"
    with task_with_stuck_worker(airflow_home, root) as (task, processes, dag):
        task.kill()  # as the kernel does when memory is short: nothing of the task can clean up
        task.communicate()
        for process in processes:
            wait_for_end(process)
    files = sorted(root.iterdir())
    assert {file.name for file in files} == {f"f{number}" for number in range(FEW_FILES + 1)}, "no half log"

    again = run_dag(dag)
    assert again.state == "success"
    assert again.xcom("convert")["success"]
    assert_same(spark, spark.read.parquet(*map(str, files)), delta_at(spark, root))


@pytest.mark.slow
def test_a_task_that_is_killed_says_so_and_ends_with_its_job(airflow_home, tmp_path) -> None:
    with task_with_stuck_worker(airflow_home, tmp_path / "t") as (task, processes, _):
        task.terminate()  # as Airflow does for a user; it kills 5 s later
        for process in processes[1:]:
            wait_for_end(process)
        said, _ = task.communicate(timeout=60)
        wait_for_end(task.pid)
    assert "The task was killed, and its job was ended with it" in said
    assert "memory" not in said


@pytest.mark.slow
def test_a_jvm_that_is_killed_is_what_the_error_tells_of(airflow_home, tmp_path) -> None:
    request = conversion(tmp_path / "t", FEW_FILES + 1)
    later = conversion(tmp_path / "later").arguments
    request.arguments["tables"] += [{**later["tables"][0], "name": "later"}]
    request.arguments["lists"] += [{**later["lists"][0], "table": "later"}]
    (records := tmp_path / "records").mkdir()
    request.arguments |= {"target_schemas": [None, None], "max_workers": 1}
    engine = LocalSpark(cores=1)
    with stuck_worker(tmp_path / "t" / "f1") as wait_for_worker:
        job = submit(engine, request, records / "0001-01-x")
        wait_for_worker()
        processes = processes_of(int(job.id))
        (jvm,) = [process for process in processes if "SparkSubmit" in command_of(process)]
        os.kill(jvm, signal.SIGKILL)
        _, lines = wait(engine, job)
        engine.cancel(job)  # which has ended: what the engine keeps of it is dropped
        result, other = result_in(records / "0001-01-x")["results"]
        for process in processes:  # the worker too, that waits for its file
            wait_for_end(process)
    assert re.match(
        r"Spark's JVM was killed \(signal 9\) in the middle of the job: .* more memory, or", result["error"]
    )
    assert result["retryable"]
    assert (other["source_table"], other["success"], other["retryable"]) == ("later", False, True)
    assert not [line for line in lines if "Traceback" in line and "progress" in line]
    paths = [str(file.relative_to(records)) for file in records.rglob("*.json")]
    left = earlier_tries(["t", "later"], paths, lambda path: path)
    assert left == EarlierTries(suspects=["t"]), "the next try runs it alone, and the others before it"


def test_a_job_that_lists_blames_a_jvm_that_is_gone(monkeypatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        session: Any = SimpleNamespace(version="4", _sc=SimpleNamespace(_gateway=SimpleNamespace(proc=process)))

        def refused(*_: object) -> None:
            process.kill()
            raise ConnectionRefusedError(111, "Connection refused")

        monkeypatch.setattr("airflow_hive_to_delta.job.file_lists.make_listing", lambda *_: SimpleNamespace())
        monkeypatch.setattr("airflow_hive_to_delta.job.file_lists.listed_before", refused)
        tables = [TableInfo(name, f"s3://b/{name}").to_dict() for name in "ab"]
        arguments = {"tables": tables, "manifests": [None, None], "inline_limit": 1, "listing": {"strategy": "spark"}}
        result = run(JobRequest("list", {**arguments, "options": {}}), session)
    assert result["retryable"]
    assert re.match(r"Spark's JVM was killed .* \(The error was: .*Connection refused\)", result["error"])


def test_without_cores_spark_takes_those_that_its_process_may_use(tmp_path, monkeypatch) -> None:
    """Spark asks the JVM how many there are for ``local[*]``, and the JVM does not count those of the machine."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nwhile [ $1 != --session ]; do shift; done\ncp $2 {tmp_path}/session.json\n")
    program.chmod(0o755)
    monkeypatch.setattr(local, "sys", SimpleNamespace(executable=str(program)))
    for engine, master in ((LocalSpark(), "local[*]"), (LocalSpark(cores=3), "local[3]")):
        job = submit(engine, JobRequest("discover", {}), tmp_path / "job")
        assert wait(engine, job)[0].state == "succeeded"
        engine.cancel(job)
        assert json.loads((tmp_path / "session.json").read_text())["master"] == master
    java = [str(Path(os.environ["JAVA_HOME"], "bin", "java")), "-Xlog:gc+init", "-version"]
    one = min(os.sched_getaffinity(0))
    said = subprocess.run(["taskset", "-c", str(one), *java], capture_output=True, text=True, check=True)
    assert "CPUs: " in said.stdout
    assert " 1 available" in said.stdout


@pytest.mark.slow
def test_a_target_that_would_end_with_the_job_is_refused(airflow_home, tmp_path) -> None:
    request = conversion(tmp_path / "t")
    before = sorted((tmp_path / "t").rglob("*"))
    request.arguments["target_schemas"] = ["bronze"]
    engine = LocalSpark(cores=1)
    job = submit(engine, request, tmp_path / "job")
    wait(engine, job)
    engine.cancel(job)
    result = result_in(tmp_path / "job")
    assert "own catalog (bronze), which is kept in memory and ends with the job" in result["error"]
    assert result["retryable"] is False
    assert sorted((tmp_path / "t").rglob("*")) == before


def test_a_list_that_was_changed_since_is_refused(spark, tmp_path) -> None:
    request = conversion(tmp_path / "t")
    request.arguments["lists"][0]["files"].pop()
    (result,) = run(request, spark)["results"]
    assert not result["success"]
    assert "has 2 files, but 3 were listed: it was changed since. List the files again" in result["error"]
    assert result["error_kind"] == "StaleFileListError"


def test_a_process_that_ends_without_a_result_says_how_it_ended(airflow_home, tmp_path) -> None:
    engine = LocalSpark()
    job = submit(engine, JobRequest("discover", {"allow": ["x.*"], "deny": []}), tmp_path)
    os.killpg(int(job.id), signal.SIGKILL)
    status, _ = wait(engine, job)
    assert status.state == "failed"
    assert re.search(r"killed from outside \(signal 9\) .*memory='2g'", status.error or "")
    assert status.retryable
    assert asyncio.run(engine.astatus(job)) == engine.status(job), "as often as it is asked"
    engine.cancel(job)  # of a job that has ended: nothing happens
    assert engine.status(job).state == "not_found"
    assert job.page is None


def test_local_spark_is_an_engine() -> None:
    assert isinstance(LocalSpark(), Engine)
    assert not isinstance("local", Engine)


def test_a_request_that_is_none_is_refused_by_name(tmp_path, capsys) -> None:
    bad = tmp_path / "request.json"
    bad.write_text('{"action": "destroy", "arguments": {}}')
    with pytest.raises(SystemExit) as ended:
        main([str(bad), "--results", str(tmp_path / "results")])
    assert ended.value.code == 2
    assert "action is 'destroy', expected one of convert, cut_over, discover, list, plan" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "message", "retryable"),
    [
        ({"allow": [], "deny": []}, "allow is \\[\\]", False),
        ({"unknown": 1}, "unexpected keyword argument 'unknown'", False),
    ],
)
def test_a_job_that_fails_as_a_whole_has_its_error_as_its_result(spark, arguments, message, retryable) -> None:
    result = run(JobRequest("discover", arguments), spark)
    assert re.search(message, result["error"])
    assert result["retryable"] is retryable


def test_a_listing_that_nobody_knows(spark) -> None:
    arguments = {"tables": [], "listing": {"strategy": "ftp"}, "manifests": [], "inline_limit": 1, "options": {}}
    result = run(JobRequest("list", arguments), spark)
    assert "The listing strategy is 'ftp', expected s3, spark or inventory" in result["error"]


def test_workers_whose_python_lacks_a_module_say_which_python_it_is(spark, tmp_path, monkeypatch) -> None:
    from airflow_hive_to_delta.core.errors import PermanentError
    from airflow_hive_to_delta.core.spark.errors import translate_spark_error

    venv.create(tmp_path / "bare", symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    (result,) = run(conversion(tmp_path / "t", FEW_FILES + 1), spark)["results"]
    assert f"The Python of Spark's workers, {python}, has no module pyarrow" in result["error"]
    assert f"`{python} -m pip install pyarrow`, or set PYSPARK_PYTHON" in result["error"]
    assert result["retryable"] is False

    error = translate_spark_error(
        Py4JError("ModuleNotFoundError: No module named 'airflow_hive_to_delta.core'"), "Reading"
    )
    assert isinstance(error, PermanentError)
    assert "-m pip install airflow-hive-to-delta`" in str(error)
