"""What a run of a DAG costs Airflow's scheduler and its metadata database, when its tasks do nothing.

The scheduler is Airflow's own, with its default settings, in this process, over a database of SQLite. In the place of
an executor and its workers a stand-in ends every task at once and writes what it would push to XCom. What the stand-in
takes, and what it asks of the database, does not count.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from airflow import settings
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
from airflow.executors.base_executor import BaseExecutor
from airflow.jobs.job import Job, run_job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskmap import TaskMap
from airflow.models.xcom import XComModel
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, State, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import event, func, insert, select, text, update

from benchmarks.campaigns.measurements import read_memory
from benchmarks.campaigns.pushed_values import SHAPES, PushedBy

_DAG = "measured"
_RUN = "manual"
_SOURCE = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_hive_to_delta import *

with DAG({dag!r}, schedule=None, start_date=datetime(2026, 1, 1)):
    {tasks}
"""


class OutOfTime(BaseException):
    """The scheduler has had its time, and the run has not ended."""


@dataclass
class Meter:
    """Counts what the scheduler takes, and leaves out what others do in its process."""

    #: Of CPU; by the clock it may take four times as many, for a machine has other work, too.
    seconds_at_most: float
    statements: int = 0
    #: Seconds of CPU of each turn of the scheduler's loop.
    turns: list[float] = field(default_factory=list)
    _is_counting: bool = True
    _turn_began: float = field(default_factory=time.process_time)
    _began: float = field(default_factory=time.monotonic)

    def count_statement(self, *_: Any) -> None:
        """Count a statement of the scheduler, and stop it when it has had its time: a turn can take minutes."""
        if self._is_counting:
            self.statements += 1
            elapsed, taken = time.monotonic() - self._began, time.process_time() - self._turn_began
            if sum(self.turns) + taken > self.seconds_at_most or elapsed > 4 * self.seconds_at_most:
                self._is_counting = False
                self.turns.append(taken)
                raise OutOfTime

    @contextmanager
    def not_counting(self) -> Iterator[None]:
        """A block between two turns of the loop, which is not the scheduler's."""
        self.turns.append(time.process_time() - self._turn_began)
        self._is_counting = False
        try:
            yield
        finally:
            self._is_counting = True
            self._turn_began = time.process_time()


class EndingExecutor(BaseExecutor):
    """Ends every task as soon as it is handed over, with success."""

    def __init__(self, meter: Meter, pushed_by: PushedBy) -> None:
        super().__init__()
        self._meter = meter
        self._pushed_by = pushed_by

    def _process_workloads(self, workload_items: Sequence[Any]) -> None:
        for workload in workload_items:
            del self.queued_tasks[workload.ti.key]
            self.running.add(workload.ti.key)

    def sync(self) -> None:
        with self._meter.not_counting():
            ended: list[Any] = list(self.running)
            if ended:
                with create_session() as session:
                    self._end_tasks(ended, session)
        for key in ended:
            self.success(key)

    def end(self) -> None:
        """Nothing is running."""

    def _end_tasks(self, ended: Sequence[Any], session: Any) -> None:
        run_number = session.scalar(select(DagRun.id).where(DagRun.run_id == _RUN))
        now = dt.datetime.now(dt.UTC)
        xcoms, maps = [], []
        for key in ended:
            where = {name: getattr(key, name) for name in ("dag_id", "task_id", "run_id", "map_index")}
            own = session.scalar(select(TaskInstance.id).filter_by(**where))
            changes = {"state": TaskInstanceState.SUCCESS, "start_date": now, "end_date": now, "duration": 0.0}
            session.execute(update(TaskInstance).where(TaskInstance.id == own).values(**changes))
            task = key.task_id.rpartition(".")[2]
            pushed = self._pushed_by(task, key.map_index)
            for name, value in pushed.items():
                # As the API server keeps it: a text of JSON in a column of JSON.
                xcoms.append({**where, "dag_run_id": run_number, "key": name, "value": json.dumps(value)})
            if task in ("discover", "plan_wave", "large_units"):
                maps.append({**where, "length": len(pushed["return_value"]), "keys": None})
        session.execute(insert(XComModel), xcoms)
        if maps:
            session.execute(insert(TaskMap), maps)


def measure_scheduler(shape: str, tables: int, seconds_at_most: float) -> dict[str, Any]:
    """Run one DAG run to its end, or until the scheduler has taken so many seconds of CPU. Returns what it took.

    Airflow's home has to be an empty folder.
    """
    initdb()
    made = SHAPES[shape](tables)
    _make_run(made.source)
    size_before = _database_bytes()
    meter = Meter(seconds_at_most)
    event.listen(settings.engine, "before_cursor_execute", meter.count_statement)
    executor = EndingExecutor(meter, made.pushed_by)
    job = Job()  # type: ignore[no-untyped-call]
    runner = SchedulerJobRunner(job, num_runs=3, only_idle=True, scheduler_idle_sleep_time=0, executors=[executor])
    has_ended = False
    with suppress(OutOfTime):
        run_job(runner.job, execute_callable=runner._execute)
        has_ended = True
    with create_session() as session:
        state = session.scalar(select(DagRun.state).where(DagRun.run_id == _RUN))
        instances = session.scalar(select(func.count()).select_from(TaskInstance))
        ended = session.scalar(
            select(func.count()).select_from(TaskInstance).where(TaskInstance.state.in_(State.finished))
        )
        xcoms, xcom_bytes = session.execute(text("SELECT count(*), sum(length(value)) FROM xcom")).one()
        pulled = session.scalar(
            text(
                "SELECT max(length(x.value)) FROM xcom x JOIN task_map m ON x.task_id = m.task_id "
                "WHERE x.key = 'return_value'"
            )
        )
    if state != (DagRunState.SUCCESS if has_ended else DagRunState.RUNNING):
        raise RuntimeError(f"The run is {state} after {len(meter.turns)} turns of the scheduler's loop")
    return {
        "shape": shape,
        "tables": made.tables,
        "has_ended": has_ended,
        "cpu_seconds": round(sum(meter.turns), 2),
        "turns": len(meter.turns),
        "longest_turn_seconds": round(max(meter.turns), 3),
        "task_instances": instances,
        "ended_instances": ended,
        "statements": meter.statements,
        "database_bytes": _database_bytes() - size_before,
        "xcoms": xcoms,
        "xcom_bytes": xcom_bytes,
        # A mapped task reads the whole list, to take its own entry of it.
        "xcom_bytes_read_by_a_mapped_task": pulled,
        "memory_mb": round(read_memory("VmHWM")),
        "airflow": version("apache-airflow"),
    }


def _make_run(tasks: str) -> None:
    """Write a DAG file, have Airflow take it up as its processor does, and ask for a run of it."""
    folder = Path(settings.DAGS_FOLDER)
    folder.mkdir(exist_ok=True)
    (folder / f"{_DAG}.py").write_text(_SOURCE.format(dag=_DAG, tasks=tasks))
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    bag = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder")
    assert not bag.import_errors, bag.import_errors
    sync_bag_to_db(bag, "dags-folder", None)
    dag = SerializedDagModel.get_dag(_DAG)
    assert dag is not None
    # SQLite tells the time in whole seconds: a run of just now would not be due yet.
    now = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1)
    dag.create_dagrun(
        run_id=_RUN,
        logical_date=now,
        data_interval=(now, now),
        run_after=now,
        run_type=DagRunType.MANUAL,
        triggered_by=DagRunTriggeredByType.TEST,
        state=DagRunState.QUEUED,
    )


def _database_bytes() -> int:
    """The bytes of the pages that are in use."""
    names = ("page_count", "freelist_count", "page_size")
    with create_session() as session:
        pages, free, size = (session.scalar(text(f"PRAGMA {name}")) for name in names)
    return int((pages - free) * size)
