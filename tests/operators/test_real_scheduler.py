"""Tasks under a real scheduler with LocalExecutor and a real triggerer, whose workers end in the middle."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.airflow_runs import dag_source
from tests.support.aws import REGION, ROLE
from tests.support.folder_platform import FolderJob, FolderPlatform
from tests.support.migrations import group
from tests.support.oracle import assert_same, delta_at
from tests.support.platform_databricks import TOKEN, DatabricksPlatform
from tests.support.platform_emr import APPLICATION, EmrServerlessPlatform
from tests.support.platform_glue import NAME, GluePlatform
from tests.support.platform_kubernetes import NAMESPACE, KubernetesPlatform
from tests.support.platforms import Platform
from tests.support.real_airflow import DagRun, RealAirflow, Task, parent_of, real_airflow
from tests.support.spark_platforms import StandalonePlatform, YarnPlatform

pytestmark = pytest.mark.slow

#: The file in the home of Airflow by which its parts ask the API of Kubernetes.
KUBECONFIG = "kubeconfig"
IMPORTS = "from tests.support.folder_platform import FolderPlatform\n"
DISCOVER = """
for name in {names!r}:
    CatalogDiscoverOperator(
        task_id=name, allow=f"{{name}}.b.*", engine=FolderPlatform({platform!r}), staging="file://{platform}/staging",
        aws_conn_id=None, deferrable=False, retries=1, retry_delay=timedelta(0)
    )
"""
ON_PLATFORMS = """
def with_own_programs(context):
    os.environ["PATH"] = f"{folder}/{{context['task'].task_id}}/bin:" + os.environ["PATH"]

for name, engine in {{
    "emr": EmrServerless({application!r}, {role!r}, aws_conn_id="platforms", poll_seconds=0.2),
    "glue": GlueJob({job!r}, {role!r}, aws_conn_id="platforms", poll_seconds=0.2),
    "databricks": Databricks("databricks", serverless=True, poll_seconds=0.2),
    "standalone": SparkSubmit("standalone", deploy_mode="cluster", poll_seconds=0.2),
    "yarn": SparkSubmit("yarn", deploy_mode="cluster", poll_seconds=0.2),
    "kubernetes": SparkSubmit("kubernetes", deploy_mode="cluster", poll_seconds=0.2),
}}.items():
    CatalogDiscoverOperator(
        task_id=name, allow="a.b.*", engine=engine, staging={staging!r}, aws_conn_id="platforms", retries=0,
        pre_execute=with_own_programs
    )
"""


@dataclass(frozen=True)
class Interrupted:
    """A DAG run with tasks that wait for their jobs in a worker, each of which has one."""

    platform: FolderPlatform
    run: DagRun
    tasks: dict[str, Task]
    jobs: dict[str, FolderJob]


@pytest.fixture(scope="module")
def airflow(aws_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAirflow]:
    home = tmp_path_factory.mktemp("real") / "airflow"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KUBECONFIG", str(home / KUBECONFIG))
        with real_airflow(home) as started:
            yield started


@pytest.fixture(scope="module", autouse=True)
def lost(airflow: RealAirflow, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interrupted]:
    """A task that is lost with its worker, before all tests: it takes Airflow long to notice.

    Its job ends after them, wherever the test of it has run: Airflow would wait for the retry at its end.
    """
    made = begin_waiting(airflow, FolderPlatform(str(tmp_path_factory.mktemp("platform"))), "lost")
    task = process_of(made.tasks["lost"])
    for process in (parent_of(task), task):  # the worker first: it would report the end of the task
        os.kill(process, signal.SIGKILL)
    yield made
    if made.jobs["lost"].state == "running":
        made.jobs["lost"].answer({"tables": []})


@pytest.fixture
def platform(tmp_path: Path) -> FolderPlatform:
    return FolderPlatform(str(tmp_path))


def process_of(task: Task) -> int:
    assert task.pid is not None, f"{task} has a process"
    return task.pid


def begin(airflow: RealAirflow, source: str) -> DagRun:
    (dag_id,) = re.findall(r"DAG\('(\w+)'", source)
    return airflow.run(dag_id, source)


def begin_waiting(airflow: RealAirflow, platform: FolderPlatform, *names: str) -> Interrupted:
    """Begin a run of tasks with these names, and wait until each has its job."""
    run = begin(airflow, dag_source(DISCOVER.format(names=names, platform=platform.platform), imports=IMPORTS))
    tasks = {name: run.wait_for(name, "running") for name in names}

    def job_of(task: Task) -> FolderJob:
        found = run.wait(f"{task.id} has a job", lambda: re.search(r"as job (\S+)", run.log(task)))
        return FolderJob(Path(found[1]))

    return Interrupted(platform, run, tasks, {name: job_of(task) for name, task in tasks.items()})


def wait_for_job(run: DagRun, platform: FolderPlatform, verb: str) -> FolderJob:
    def look() -> FolderJob | None:
        return next((job for job in platform.jobs() if job.name.startswith(verb)), None)

    return run.wait(f"a job is submitted to {verb.lower()} a table", look)


def end_job_of(run: DagRun, platform: FolderPlatform, task_id: str, verb: str, spark: SparkSession) -> Task:
    """Run the job of a task that is deferred. Returns the task as it has gone on in a worker, and asks for the job."""
    job = wait_for_job(run, platform, verb)
    run.wait_for_deferral(task_id)
    hold = platform.hold_tasks()
    job.run(spark)
    run.wait(f"{task_id} asks for its job again", hold.read_text)
    return run.wait_for(task_id, "running")


def test_a_task_group_is_deferred_for_its_jobs_and_a_worker_that_ends_when_it_goes_on_costs_none(
    airflow, platform, lake, spark
) -> None:
    lake.put("orders/000000_0", {"id": [1, 2]})
    lake.glue_table({"id": "bigint"}, name="orders")
    original = lake.hive_table({"id": "bigint"}, name="orders")
    run = begin(airflow, group(lake, engine=f"FolderPlatform({platform.platform!r})", imports=IMPORTS))
    convert, verify = (f"hive_to_delta.tables.{step}" for step in ("convert", "verify"))

    resumed = end_job_of(run, platform, convert, "Convert", spark)
    os.kill(parent_of(process_of(resumed)), signal.SIGTERM)
    run.wait("the task gets the signal", lambda: "The task is being killed" in run.log(resumed))
    platform.release_tasks()

    resumed = end_job_of(run, platform, verify, "Verify", spark)
    os.kill(process_of(resumed), signal.SIGKILL)
    platform.release_tasks()
    tasks = {task.id: task for task in run.wait_for_success()}

    assert tasks[convert].try_number == 1, "the job had left all that was asked for"
    assert tasks[verify].try_number == 2
    assert "of try 1 again" in run.log(tasks[verify])
    assert [job.state for job in platform.jobs()] == ["succeeded", "succeeded"], "one job for each task"
    assert_same(spark, original, delta_at(spark, lake.location("orders")))


def test_a_retry_finds_the_job_of_a_task_that_was_killed_and_begins_another_when_it_was_terminated(
    airflow, platform
) -> None:
    made = begin_waiting(airflow, platform, "killed", "terminated")
    os.kill(process_of(made.tasks["killed"]), signal.SIGKILL)
    os.kill(parent_of(process_of(made.tasks["terminated"])), signal.SIGTERM)

    run = made.run
    for name in made.tasks:
        run.wait_for(name, "running", try_number=2)
    run.wait("the terminated task begins another job", lambda: len(platform.jobs()) == 3)
    assert {name: job.state for name, job in made.jobs.items()} == {"killed": "running", "terminated": "cancelled"}
    for job in platform.jobs():
        if job.state == "running":
            job.answer({"tables": []})
    tasks = {task.id: task for task in run.wait_for_success()}

    assert {name: task.try_number for name, task in tasks.items()} == {"killed": 2, "terminated": 2}
    assert len(platform.jobs()) == 3
    assert found_again(made.jobs["killed"]) in run.log(tasks["killed"])
    assert found_again(made.jobs["terminated"]) not in run.log(tasks["terminated"])
    assert "The task is being killed: ending its job" in run.log(tasks["terminated"], try_number=1)


def test_jobs_on_platforms_are_waited_for_by_the_triggerer(airflow, aws_endpoint, bucket, tmp_path) -> None:
    """It asks each platform by a connection that only Airflow's database has."""
    kinds: dict[str, type[Platform]] = {
        "emr": EmrServerlessPlatform,
        "glue": GluePlatform,
        "databricks": DatabricksPlatform,
        "standalone": StandalonePlatform,
        "yarn": YarnPlatform,
        "kubernetes": KubernetesPlatform,
    }
    with ExitStack() as opened:
        platforms: dict[str, Any] = {}
        for name, kind in kinds.items():
            (folder := tmp_path / name).mkdir()
            platforms[name] = kind(folder, staging=f"s3://{bucket}/staging")  # type: ignore[call-arg]
            opened.callback(platforms[name].close)
            platforms[name].held = None
        services = {platforms[name].service: {"endpoint_url": platforms[name].endpoint} for name in ("emr", "glue")}
        extra = {"region_name": REGION, "endpoint_url": aws_endpoint, "service_config": services}
        connections: dict[str, dict[str, Any]] = {
            "platforms": {"conn_type": "aws", "login": "testing", "password": "testing", "extra": json.dumps(extra)},
            "databricks": {
                **{"conn_type": "databricks", "host": "127.0.0.1", "port": platforms["databricks"].port},
                **{"schema": "http", "password": TOKEN},
            },
            "standalone": {
                **{"conn_type": "spark", "host": "spark://127.0.0.1", "port": 7077},
                "extra": json.dumps({"rest-port": str(platforms["standalone"].port)}),
            },
            "yarn": {
                **{"conn_type": "spark", "host": "yarn"},
                "extra": json.dumps({"yarn_resourcemanager_webapp_address": platforms["yarn"].url}),
            },
            "kubernetes": {
                **{"conn_type": "spark", "host": "k8s://http://127.0.0.1", "port": platforms["kubernetes"].port},
                "extra": json.dumps({"namespace": NAMESPACE}),
            },
        }
        shutil.copy(platforms["kubernetes"].kubeconfig, airflow.home / KUBECONFIG)
        for name, connection in connections.items():
            airflow.ask("connections", {"connection_id": name, **connection})
        names = {"application": APPLICATION, "role": ROLE, "job": NAME, "staging": f"s3://{bucket}/staging"}
        body = ON_PLATFORMS.format(folder=tmp_path, **names)
        run = begin(airflow, dag_source(body, imports="import os\n"))
        for name in kinds:
            run.wait_for_deferral(name)
        cleared = platforms["databricks"]
        run.clear("databricks")
        run.wait("the job of a cleared task is ended", lambda: cleared.end_states()[0] == "cancelled")
        run.wait_for_deferral("databricks", try_number=2)
        for platform in platforms.values():
            platform.held = 2
        tasks = run.wait_for_success()

        assert {task.id: task.try_number for task in tasks} == {**dict.fromkeys(kinds, 1), "databricks": 2}
        states = {name: platform.end_states() for name, platform in platforms.items()}
        assert states == {**{name: ["succeeded"] for name in kinds}, "databricks": ["cancelled", "succeeded"]}
        for task in tasks:
            assert "No answer" not in run.log(task)
            assert TOKEN not in run.log(task)
            assert platforms["kubernetes"].token not in run.log(task)


def test_a_retry_finds_the_job_of_a_worker_that_was_lost(lost) -> None:
    lost.run.wait_for("lost", "running", try_number=2)
    assert lost.jobs["lost"].state == "running"
    lost.jobs["lost"].answer({"tables": []})
    (task,) = lost.run.wait_for_success()
    assert task.try_number == 2
    assert found_again(lost.jobs["lost"]) in lost.run.log(task)
    assert len(lost.platform.jobs()) == 1


def found_again(job: FolderJob) -> str:
    return f"Found the job {job.file} of try 1 again"
