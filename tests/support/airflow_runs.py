"""A real Airflow in a folder of its own, DAGs that run in it, and an engine on the tests' own Spark session."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta.core.storage.uri import KNOWN_SCHEMES, Location, parse_location
from airflow_hive_to_delta.engines import Engine, JobRef, JobRequest, JobSpec, JobStatus
from airflow_hive_to_delta.job.documents import read_document
from tests.support.crashes import Killed
from tests.support.jvm_options import FAST_START


@dataclass
class Run:
    """A DAG run that has ended."""

    dag: Any
    run_id: str
    state: str
    #: What the tasks, and the jobs they ran, said.
    log: str

    @property
    def states(self) -> dict[str, str]:
        """State of each task, as ``task_id`` or ``task_id[label]``, without the id of the group."""
        return {_name(task): str(task.state) for task in self._tasks()}

    @property
    def tries(self) -> dict[str, int]:
        return {_name(task): task.try_number for task in self._tasks()}

    @property
    def red(self) -> list[str | tuple[str, int]]:
        """What failed, with what comes after it for the same table: what a person clears."""
        found: set[str | tuple[str, int]] = set()
        for task in self._tasks():
            if task.state == "failed":
                after = self.dag.task_dict[task.task_id].get_flat_relative_ids(upstream=False)
                mapped = {name for name in (task.task_id, *after) if ".tables." in name and task.map_index >= 0}
                found |= {(name, task.map_index) if name in mapped else name for name in (task.task_id, *after)}
        return sorted(found, key=str)

    def xcom(self, task_id: str, key: str = "return_value", label: str | None = None) -> Any:
        """The value that a task pushed, by its id without that of its group."""
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        wanted = task_id if label is None else f"{task_id}[{label}]"
        task = next(task for task in self._tasks() if _name(task) == wanted)
        with create_session() as session:
            found = (
                session.query(XComModel)
                .filter_by(dag_id=task.dag_id, run_id=task.run_id, task_id=task.task_id, key=key)
                .filter_by(map_index=task.map_index)
                .one_or_none()
            )
            if found is None:
                return None
            try:
                return json.loads(found.value)
            except (TypeError, ValueError):
                return found.value

    def all_xcoms(self) -> str:
        """Every XCom of the run, as the database has it."""
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        with create_session() as session:
            rows = session.query(XComModel).filter_by(dag_id=self.dag.dag_id, run_id=self.run_id).all()
            return "\n".join(f"{row.task_id} {row.key} {row.value!r}" for row in rows)

    def _tasks(self) -> list[Any]:
        from airflow.models.dagrun import DagRun
        from airflow.utils.session import create_session

        with create_session() as session:
            run = session.query(DagRun).filter_by(dag_id=self.dag.dag_id, run_id=self.run_id).one()
            return list(run.get_task_instances(session=session))


@pytest.fixture(scope="session")
def airflow_home(aws_endpoint: str) -> Path:
    """An Airflow with a database of its own; jobs on this machine find the project's jars."""
    home = Path(os.environ["AIRFLOW_HOME"])
    (home / "dags").mkdir(parents=True)
    # Not in a folder of settings: the JVM takes no archive of classes when such a folder is on its class path.
    os.environ["SPARK_SUBMIT_OPTS"] = FAST_START
    from airflow.utils.db import initdb

    initdb()
    for chatty in ("werkzeug", "py4j"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return home


@pytest.fixture
def run_dag(airflow_home: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Run]]:
    """Runs a DAG, given as a file or as source, to its end."""
    files = []

    def run(dag: Path | str, conf: dict[str, Any] | None = None) -> Run:
        source = dag.read_text() if isinstance(dag, Path) else dag
        name = dag.stem if isinstance(dag, Path) else f"dag_{uuid.uuid4().hex[:8]}"
        file = airflow_home / "dags" / f"{name}.py"
        file.write_text(source)
        files.append(file)
        found = load_dag(file)
        forget_storages()
        capfd.readouterr()
        done = found.test(run_conf=conf)
        return Run(found, done.run_id, str(done.state), "".join(capfd.readouterr()))

    yield run
    for file in set(files):  # one may have run several times
        file.unlink()
    shutil.rmtree(airflow_home / "dags" / "__pycache__", ignore_errors=True)


@pytest.fixture
def clear_and_run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Clears tasks of a run, as a person does in the UI, and runs what is then to be run, as a scheduler does."""

    def again(run: Run, *, task_ids: list[str | tuple[str, int]] | None = None, only_failed: bool = False) -> Run:
        from airflow.models.dagrun import DagRun
        from airflow.sdk.definitions.dag import _run_task
        from airflow.serialization.serialized_objects import DagSerialization
        from airflow.utils.session import create_session
        from airflow.utils.state import DagRunState, TaskInstanceState

        scheduled = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(run.dag))
        scheduled.clear(
            task_ids=task_ids, run_id=run.run_id, only_failed=only_failed, dag_run_state=DagRunState.RUNNING
        )
        capfd.readouterr()
        with create_session() as session:
            done = session.query(DagRun).filter_by(dag_id=run.dag.dag_id, run_id=run.run_id).one()
            done.dag = scheduled
            while done.state == DagRunState.RUNNING:
                session.expire_all()
                ready, _ = done.update_state(session=session)
                for task in ready:
                    task.try_number += 1
                    task.state = TaskInstanceState.SCHEDULED
                session.commit()
                for task in done.get_task_instances(session=session):
                    if task.state == TaskInstanceState.SCHEDULED:
                        _run_task(ti=task, task=run.dag.task_dict[task.task_id], run_triggerer=True)
            state = str(done.state)
        return Run(run.dag, run.run_id, state, "".join(capfd.readouterr()))

    return again


def forget_storages() -> None:
    """Airflow keeps a storage by the id of its connection for the life of a process, which is a task's in real life."""
    from airflow.sdk.io import store

    store._STORE_CACHE.clear()


def load_dag(file: Path) -> Any:
    """The DAG of a file, as Airflow parses it."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(file))
    assert not bag.import_errors, bag.import_errors
    (dag,) = bag.dags.values()
    return dag


@dataclass
class SharedSession(Engine):
    """An engine on the Spark session of the tests: real Spark, without a JVM for each job."""

    schemes = KNOWN_SCHEMES
    poll_errors = 0

    poll_seconds: float = 0.01
    _jobs: dict[str, _Job] = field(default_factory=dict, init=False, repr=False, compare=False)

    def prepare(self, request: JobRequest) -> None:
        """For engines that do something before a job, or change what it is asked."""

    def do(self, request: JobRequest, results: Location) -> None:
        """Do the work of the job, in a thread of its own."""
        from pyspark.sql import SparkSession

        from airflow_hive_to_delta.job.run import run

        run(request, SparkSession.getActiveSession() or SparkSession.builder.getOrCreate(), results=results)

    def submit(self, spec: JobSpec, environment: Mapping[str, str]) -> JobRef:
        request = JobRequest.from_dict(read_document(parse_location(spec.request_uri), None))
        self.prepare(request)
        job = uuid.uuid4().hex
        self._jobs[job] = _Job(self, request, parse_location(spec.results_uri))
        return JobRef(job, spec.results_uri, f"http://127.0.0.1/jobs/{job}")

    def find(self, token: str) -> JobRef | None:
        return None

    def status(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        job = self._jobs[ref.id]
        if job.is_alive():
            return JobStatus("running")
        return JobStatus("succeeded") if job.is_done else JobStatus("failed", "The job was killed")

    def cancel(self, ref: JobRef, within: float) -> None:
        pass


class _Job(threading.Thread):
    def __init__(self, engine: SharedSession, request: JobRequest, results: Location) -> None:
        super().__init__(daemon=True)
        self._do = partial(engine.do, request, results)
        #: Not while it runs, and never of a job that was killed.
        self.is_done = False
        self.start()

    def run(self) -> None:
        with suppress(Killed):
            self._do()
            self.is_done = True


def asset_events(uri: str) -> list[Any]:
    """The versions in the events of an asset."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        asset = session.query(AssetModel).filter_by(uri=uri).one_or_none()
        found = session.query(AssetEvent).filter_by(asset_id=asset.id).order_by(AssetEvent.id).all() if asset else []
        return [event.extra["version"] for event in found]


def dag_source(body: str, *, imports: str = "") -> str:
    """The source of a DAG with the given tasks, in a run of their own name."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return (
        "from datetime import datetime, timedelta\nfrom airflow.sdk import DAG\nfrom airflow_hive_to_delta import *\n"
        f"from tests.support.airflow_runs import SharedSession\n{imports}\n"
        f"with DAG('dag_{uuid.uuid4().hex[:8]}', schedule=None, start_date=datetime(2024, 1, 1)) as dag:\n{lines}\n"
    )


def _name(task: Any) -> str:
    short = task.task_id.removeprefix("hive_to_delta.")
    return f"{short}[{task.rendered_map_index or task.map_index}]" if task.map_index >= 0 else short
