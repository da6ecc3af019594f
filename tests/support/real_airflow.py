"""A real Airflow with all its parts, as processes in a home of its own: what a DAG run meets in production."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from airflow_hive_to_delta.job.processes import kill_session
from tests.support.project import PROJECT

#: Those of an Airflow that runs DAGs.
PARTS = ("api-server", "scheduler", "triggerer", "dag-processor")
#: For whatever a test waits for, on a machine that does much else.
PATIENCE = 120.0
#: Seconds between two looks. Each asks Airflow's API a few times, which takes it longer than many a thing waited for.
LOOK_EVERY = 0.5
#: A worker is given up when its task was not heard of for so many seconds. One on a busy machine must not be.
HEARTBEAT_TIMEOUT = 25

Found = TypeVar("Found")


@dataclass(frozen=True)
class Task:
    """A task of a DAG run, as Airflow's API has it."""

    id: str
    map_index: int
    state: str | None
    try_number: int
    #: The process of the task; its parent is the worker.
    pid: int | None


@dataclass
class RealAirflow:
    """An Airflow that runs: scheduler with LocalExecutor, triggerer, dag-processor and API server."""

    home: Path
    port: int
    environment: dict[str, str]
    parts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _token: str = ""

    def run(self, dag_id: str, source: str) -> DagRun:
        """Put a DAG where Airflow finds it, and begin a run of it."""
        (self.home / "dags" / f"{dag_id}.py").write_text(source)
        begun = self.wait(f"Airflow knows the DAG {dag_id}", lambda: self._begin(dag_id))
        return DagRun(self, dag_id, begun["dag_run_id"])

    def wait(self, what: str, look: Callable[[], Found | None]) -> Found:
        """Look until there is something, while all parts of Airflow run.

        :param what: that which is waited for, in the words of an error.
        """
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if found := look():
                return found
            if ended := [name for name, process in self.parts.items() if process.poll() is not None]:
                raise AssertionError(f"{ended} of Airflow ended by itself\n{self.logs()}")
            time.sleep(LOOK_EVERY)
        raise AssertionError(f"It did not come to pass that {what}\n{self.logs()}")

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask Airflow's API, with GET, or with POST when there is a body. Returns None where there is nothing."""
        if not self._token:
            self._token = self._send("/auth/token", None)["access_token"]
        try:
            return self._send(f"/api/v2/{path}", body)
        except HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise AssertionError(f"{path}: {error.code} {error.read().decode()}") from error

    def token_of(self, name: str, password: str) -> str:
        """What Airflow gives a user who logs in; a browser keeps it as the cookie ``_token``."""
        token: str = self._send("/auth/token", {"username": name, "password": password})["access_token"]
        return token

    def answers(self) -> bool:
        """Whether the API server answers."""
        with suppress(URLError, TimeoutError, ConnectionError):
            return bool(self._send("/api/v2/monitor/health", None))
        return False

    def logs(self) -> str:
        """The last lines of the log of each part of Airflow."""
        logs = sorted(self.home.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    def _begin(self, dag_id: str) -> Any:
        if errors := (self.ask("importErrors") or {}).get("import_errors"):
            raise AssertionError(errors)
        known = self.ask(f"dags/{dag_id}")
        return known and self.ask(f"dags/{dag_id}/dagRuns", {"logical_date": None})

    def _send(self, path: str, body: dict[str, Any] | None) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        with urlopen(request, timeout=30) as answer:
            return json.load(answer)


@dataclass
class DagRun:
    """A DAG run of a real Airflow."""

    airflow: RealAirflow
    dag_id: str
    run_id: str

    def tasks(self) -> list[Task]:
        found = self.airflow.ask(f"{self._path}/taskInstances")
        return [
            Task(each["task_id"], each["map_index"], each["state"], each["try_number"], each["pid"])
            for each in found["task_instances"]
        ]

    def wait(self, what: str, look: Callable[[], Found | None]) -> Found:
        """Call a function until it returns something, while the run goes on.

        :param what: that which is waited for, in the words of an error.
        """

        def look_in_run() -> Found | None:
            has_ended = self._has_ended()
            found = look()
            assert found or not has_ended, f"The run ended before {what}\n{self._describe()}"
            return found

        return self.airflow.wait(what, look_in_run)

    def wait_for(self, task_id: str, state: str, *, try_number: int = 1) -> Task:
        """Wait until a try of a task is in a state."""

        def look() -> Task | None:
            wanted = (task_id, state, try_number)
            return next((task for task in self.tasks() if (task.id, task.state, task.try_number) == wanted), None)

        return self.wait(f"try {try_number} of {task_id} is {state}", look)

    def wait_for_deferral(self, task_id: str, *, try_number: int = 1) -> Task:
        """Wait until a try of a task is deferred, and the executor has reported that its worker is free.

        When that report comes after the task goes on, the scheduler takes it for one of a task that has ended without
        saying so, and fails the task. Jobs take longer than that in real life.
        """
        task = self.wait_for(task_id, "deferred", try_number=try_number)
        key = rf"task_id='{re.escape(task_id)}', run_id='{re.escape(self.run_id)}', try_number={try_number}\b"
        reported = re.compile(rf"Received executor event with state success .*{key}")
        log = self.airflow.home / "scheduler.log"
        self.wait(f"the worker of {task_id} is free", lambda: reported.search(log.read_text(errors="replace")))
        return task

    def clear(self, task_id: str) -> None:
        """Clear a task, as a person does, so that it begins anew."""
        chosen = {"dag_run_id": self.run_id, "task_ids": [task_id], "only_failed": False}
        self.airflow.ask(f"dags/{self.dag_id}/clearTaskInstances", {"dry_run": False, **chosen})

    def wait_for_success(self) -> list[Task]:
        """Wait for the end of the run, which must be a success."""
        self.airflow.wait(f"the run of {self.dag_id} ends", self._has_ended)
        tasks = self.tasks()
        assert {task.state for task in tasks} == {"success"}, self._describe()
        return tasks

    def _has_ended(self) -> bool:
        return self.airflow.ask(self._path)["state"] in ("success", "failed")

    def _describe(self) -> str:
        """The tasks of the run, and what those said that are not well."""
        tasks = self.tasks()
        return "\n".join(f"{task}\n{'' if task.state == 'success' else self.log(task)}" for task in tasks)

    def log(self, task: Task, try_number: int | None = None) -> str:
        """The log of a try of a task, of the last one when none is given."""
        path = f"{self._path}/taskInstances/{task.id}/logs/{try_number or task.try_number}?map_index={task.map_index}"
        lines = (self.airflow.ask(path) or {}).get("content", [])
        return "\n".join(line["event"] if isinstance(line, dict) else str(line) for line in lines)

    @property
    def _path(self) -> str:
        return f"dags/{self.dag_id}/dagRuns/{self.run_id}"


@contextmanager
def real_airflow(
    home: Path, parts: Sequence[str] = PARTS, settings: Mapping[str, str] | None = None
) -> Iterator[RealAirflow]:
    """An Airflow that runs until the end of the block, on which no process and no port of it is left.

    :param home: a folder that is not there yet.
    :param parts: those that are started; its API server alone shows pages, and runs nothing.
    :param settings: more of Airflow's settings, or others than tests have, by section and name.
    """
    (home / "dags").mkdir(parents=True)
    port = free_port()
    changed = {f"AIRFLOW__{name}": value for name, value in (settings or {}).items()}
    airflow = RealAirflow(home, port, {**_environment(home, port), **changed})
    try:
        with (home / "migrate.log").open("wb") as log:
            subprocess.run(
                [_command(), "db", "migrate"], env=airflow.environment, stdout=log, stderr=log, check=True, timeout=240
            )
        arguments = {
            "api-server": ("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
            "scheduler": ("--skip-serve-logs",),
            "triggerer": ("--skip-serve-logs",),
        }
        for part in parts:
            with (home / f"{part}.log").open("wb") as log:
                airflow.parts[part] = subprocess.Popen(
                    [_command(), part, *arguments.get(part, ())],
                    env=airflow.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        airflow.wait("Airflow's API answers", airflow.answers)
        yield airflow
    finally:
        left = _end(airflow)
    assert not left, f"Airflow was asked to end, and left {left}\n{airflow.logs()}"
    with socket.socket() as tried:
        assert tried.connect_ex(("127.0.0.1", port)), "no port is left behind"


def parent_of(process: int) -> int:
    """The parent of a process, which is the worker if it is that of a task."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def processes_of_home(home: Path) -> dict[int, str]:
    """The command of every process of the Airflow in a folder, by its id, wherever it was started from."""
    mark = f"AIRFLOW_HOME={home}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        found: int = tried.getsockname()[1]
        return found


def _end(airflow: RealAirflow) -> dict[int, str]:
    """Ask every part to end, and kill what does not: these processes are returned."""
    until = time.monotonic() + 60
    server = airflow.parts.get("api-server")
    others = [process for process in airflow.parts.values() if process is not server]
    for process in others:
        process.send_signal(signal.SIGTERM)
    for process in others:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
    if server is not None:
        # The last: workers report to it what became of their tasks, and the scheduler waits for them.
        server.send_signal(signal.SIGTERM)
    while (left := processes_of_home(airflow.home)) and time.monotonic() < until:
        for process in airflow.parts.values():
            process.poll()  # else one that has ended is still there
        time.sleep(0.1)
    for process in airflow.parts.values():
        kill_session(process.pid)
        process.wait()
    for process_id in processes_of_home(airflow.home):
        with suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)
    return left


def _command() -> str:
    return str(Path(sys.executable).parent / "airflow")


def _environment(home: Path, port: int) -> dict[str, str]:
    """What Airflow and its tasks find: nothing of the Airflow of other tests."""
    address = f"http://127.0.0.1:{port}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    settings = {
        "CORE__DAGS_FOLDER": home / "dags",
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": "false",
        "CORE__LOAD_EXAMPLES": "false",
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": "6",  # a process each
        "CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        # Whoever reaches the port, which is on loopback, for a minute.
        "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "true",
        "API__BASE_URL": address,
        "API__SECRET_KEY": secrets.token_urlsafe(32),
        "API_AUTH__JWT_SECRET": secrets.token_urlsafe(48),
        "DATABASE__LOAD_DEFAULT_CONNECTIONS": "false",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "1",
        # No DAG changes once it is there. Each is otherwise parsed anew every 30 seconds, in a process of its own.
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "1",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": HEARTBEAT_TIMEOUT,
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
        "OPERATORS__DEFAULT_DEFERRABLE": "true",
    }
    return {
        **kept,
        **{f"AIRFLOW__{name}": str(value) for name, value in settings.items()},
        "AIRFLOW_HOME": str(home),
        # The parts start others by this name, and DAGs import the engines of the tests.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
        "PYTHONPATH": str(PROJECT),
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
