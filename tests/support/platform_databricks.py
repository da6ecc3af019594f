"""A stand-in for a Databricks workspace: its REST API on loopback, with runs by ``spark-submit`` on this machine."""

from __future__ import annotations

import base64
import inspect
import itertools
import json
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from databricks.sdk.service import jobs, workspace
from databricks.sdk.service.jobs import JobEnvironment, Run, RunOutput, SparkPythonTask, SubmitTask

from airflow_hive_to_delta.core.spark.jars import JARS_VARIABLE
from tests.support.aws import REGION
from tests.support.jvm_options import FAST_START
from tests.support.platforms import Platform, PlatformJob
from tests.support.project import PROJECT
from tests.support.spark_submit_runs import archived_classes

#: Of the connection, which nothing else may hold.
TOKEN = "dapi-of-the-tests-0123456789"
USER = "8f1c2f54-service-principal"
#: What runs may take as parameters, in bytes.
_MOST_PARAMETERS = 10_000


class ApiError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class DatabricksPlatform(Platform):
    """A stand-in for a Databricks workspace.

    :param staging: a staging root.
    :param compute: the source of the arguments that say where runs go.
    """

    def __init__(
        self, folder: Path, *, staging: str, compute: str = "existing_cluster_id='0923-164208-meows279'"
    ) -> None:
        super().__init__(folder)
        self.staging = staging
        #: How the next submissions are refused: status, code and message.
        self.refusals: list[tuple[int, str, str]] = []
        #: What a run that has not ended is said to be.
        self.waits_as = "RUNNING"
        #: The ``state`` of a run that has ended, if it is another than one expects, and its ``status``.
        self.end_state: dict[str, Any] = {}
        self.end_status: dict[str, Any] = {}
        #: Of the output of a task's run.
        self.output: dict[str, Any] = {}
        #: What was asked, as method and path.
        self.requests: list[str] = []
        #: The bodies of what was submitted.
        self.submitted: list[dict[str, Any]] = []
        #: Whether Python has AWS keys where runs are: an instance profile gives them.
        self.has_instance_profile = False
        self._ids = itertools.count(7001)
        self._tokens: dict[str, PlatformJob] = {}
        self._lock = threading.RLock()
        (folder / "Workspace" / "Users" / USER).mkdir(parents=True)
        handler = type("Handler", (_Handler,), {"platform": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.conn_id = f"databricks_{self.port}"
        connection = {"conn_type": "databricks", "host": "127.0.0.1", "port": self.port, "schema": "http"}
        os.environ[self._variable] = json.dumps({**connection, "password": TOKEN})
        self.engine = f"Databricks({self.conn_id!r}, {compute}, poll_seconds=0.02)"

    @property
    def _variable(self) -> str:
        return f"AIRFLOW_CONN_{self.conn_id.upper()}"

    def new_id(self) -> str:
        return str(next(self._ids))

    def stop_server(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()
        os.environ.pop(self._variable, None)

    def local(self, path: str) -> Path:
        """Where the stand-in keeps a file of the workspace or of a volume."""
        assert path.startswith(("/Workspace/", "/Volumes/")), path
        return self.folder / path.lstrip("/")

    def check_token(self, authorization: str | None) -> None:
        if self.expired or authorization != f"Bearer {TOKEN}":
            raise ApiError(403, "403", "Invalid access token.")

    def answer_request(self, method: str, path: str, query: dict[str, Any], body: bytes) -> Any:
        """What the API answers. None: the connection is closed without an answer."""
        with self._lock:
            self.requests.append(f"{method} {path}")
            route = path.removeprefix("/api/")
            if route.startswith("2.0/fs/"):
                return self._files(method, unquote(route.removeprefix("2.0/fs/")), query, body)
            asked = {**query, **(json.loads(body) if body else {})}
            handlers: dict[str, Callable[[dict[str, Any]], Any]] = {
                "GET 2.0/preview/scim/v2/Me": lambda _: {"userName": USER},
                "GET 2.0/workspace/get-status": self._get_status,
                "POST 2.0/workspace/mkdirs": self._mkdirs,
                "POST 2.0/workspace/import": self._import,
                "POST 2.2/jobs/runs/submit": self._submit,
                "POST 2.2/jobs/run-now": self._run_now,
                "GET 2.2/jobs/runs/get": self._get_run,
                "GET 2.2/jobs/runs/get-output": self._get_output,
                "GET 2.2/jobs/runs/list": self._list,
                "POST 2.2/jobs/runs/cancel": self._cancel,
            }
            if f"{method} {route}" not in handlers:
                raise ApiError(404, "ENDPOINT_NOT_FOUND", f"No API found for '{method} {path}'")
            return handlers[f"{method} {route}"](asked)

    def _files(self, method: str, path: str, query: dict[str, Any], body: bytes) -> Any:
        kind, _, path = path.partition("/")
        file = self.local(f"/{path}")
        if kind == "directories":
            file.mkdir(parents=True, exist_ok=True)
        elif method == "HEAD":
            if not file.exists():
                raise ApiError(404, "NOT_FOUND", "The file does not exist")
        else:
            assert query == {"overwrite": "false"}
            if file.exists():
                raise ApiError(409, "ALREADY_EXISTS", "The file being created already exists")
            file.write_bytes(body)
        return {}

    def _get_status(self, asked: dict[str, Any]) -> Any:
        if not self.local(asked["path"]).exists():
            raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", f"Path ({asked['path']}) doesn't exist.")
        return {"object_type": "FILE", "path": asked["path"]}

    def _mkdirs(self, asked: dict[str, Any]) -> Any:
        self.local(asked["path"]).mkdir(parents=True, exist_ok=True)
        return {}

    def _import(self, asked: dict[str, Any]) -> Any:
        _check_arguments(workspace.WorkspaceAPI.import_, asked)
        how = workspace.ImportFormat(asked["format"])
        if (file := self.local(asked["path"])).exists() and not asked.get("overwrite"):
            raise ApiError(400, "RESOURCE_ALREADY_EXISTS", f"Path ({asked['path']}) already exists.")
        if not file.parent.is_dir():
            raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", "The parent folder does not exist")
        if how == workspace.ImportFormat.AUTO and file.suffix == ".zip":
            file.mkdir()  # Databricks unpacks it
            return {}
        file.write_bytes(base64.b64decode(asked["content"], validate=True))
        return {}

    def _submit(self, asked: dict[str, Any]) -> Any:
        _check_arguments(jobs.JobsAPI.submit, asked)
        (task,) = asked["tasks"]
        _check_document(SubmitTask, task)
        for environment in asked.get("environments", []):
            _check_document(JobEnvironment, environment)
        where = [key for key in ("existing_cluster_id", "new_cluster", "environment_key") if key in task]
        assert len(where) == 1, where
        script = SparkPythonTask.from_dict(task["spark_python_task"])
        return self._begin(asked, script.python_file, script.parameters or [])

    def _run_now(self, asked: dict[str, Any]) -> Any:
        _check_arguments(jobs.JobsAPI.run_now, asked)
        return self._begin(asked, "/Workspace/Shared/hive-to-delta/run_job_v1.py", asked["python_params"])

    def _begin(self, asked: dict[str, Any], script: str, parameters: list[str]) -> Any:
        if self.refusals:
            raise ApiError(*self.refusals.pop(0))
        failure = self.submit_failures.pop(0) if self.submit_failures else 0
        if failure:
            raise ApiError(failure, "TEMPORARILY_UNAVAILABLE", "The service is temporarily unavailable")
        assert len(json.dumps(parameters)) < _MOST_PARAMETERS
        token = asked["idempotency_token"]
        assert len(token) <= 64
        if token not in self._tokens:
            self.submitted.append(asked)
            package, *arguments = parameters
            assert self.local(script).is_file(), "uploaded before it is run"
            assert self.local(package).is_file()
            job = self._tokens[token] = self.start(token, arguments, asked.get("timeout_seconds"))
            if self.runs_jobs:
                self._run_script(job, self.local(script), self.local(package))
        if failure is None:
            return None
        return {"run_id": int(self._tokens[token].id)}

    def _run_script(self, job: PlatformJob, script: Path, package: Path) -> None:
        spark_submit = Path(sysconfig.get_path("scripts"), "spark-submit")
        environment = self._runtime()
        settings = ["--properties-file", str(self.folder / "spark-defaults.conf")]
        self.run(job, [str(spark_submit), *settings, str(script), str(package), *job.arguments], environment)

    def _runtime(self) -> dict[str, str]:
        """The environment of a driver. Spark reads S3 with keys that Python does not have."""
        (scratch := self.folder / "tmp").mkdir(exist_ok=True)
        jars = Path(os.environ[JARS_VARIABLE])
        settings = {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.jars": ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))),
            "spark.log.level": "WARN",
            "spark.driver.extraJavaOptions": f"{FAST_START} {archived_classes()}",
            "spark.local.dir": scratch,
            # Few queries over a handful of rows: compiling each costs more than running it.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.warehouse.dir": self.folder / "warehouse",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "spark.hadoop.fs.s3a.endpoint": os.environ["AWS_ENDPOINT_URL"],
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "testing",
            "spark.hadoop.fs.s3a.secret.key": "testing",
        }
        lines = "".join(f"{name} {value}\n" for name, value in settings.items())
        (self.folder / "spark-defaults.conf").write_text(lines)
        (site := self.folder / "site").mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(_SITE.format(file=str(PROJECT / "tests/support/dbutils_module.py")))
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ}
        profile = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        return {
            **kept,
            **(profile if self.has_instance_profile else {"AWS_EC2_METADATA_DISABLED": "true"}),
            "DATABRICKS_RUNTIME_VERSION": "17.3",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(scratch),
            "PYTHONPATH": str(site),
            "PYSPARK_PYTHON": sys.executable,
        }

    def _job(self, run_id: Any) -> PlatformJob:
        # The task's run has an id of its own, made from that of its run.
        found = [job for job in self.jobs if int(job.id) == int(run_id) % 1_000_000]
        if not found:
            raise ApiError(400, "INVALID_PARAMETER_VALUE", f"Run {run_id} does not exist.")
        return found[0]

    def _get_run(self, asked: dict[str, Any]) -> Any:
        if self.failures:
            failure = self.failures.pop(0)
            if failure is None:
                return None
            raise ApiError(failure, "TEMPORARILY_UNAVAILABLE", "Try again later")
        job = self._job(asked["run_id"])
        self.ask(job)
        return self._described(job)

    def _described(self, job: PlatformJob) -> dict[str, Any]:
        results = {"succeeded": "SUCCESS", "failed": "FAILED", "cancelled": "CANCELED"}
        state: dict[str, Any] = {"life_cycle_state": self.waits_as}
        if job.state != "running":
            state = {"life_cycle_state": "TERMINATED", "result_state": results[job.state]}
            state |= {"state_message": job.error} if job.error else {}
            state = self.end_state or state
        task = {"task_key": job.token, "run_id": int(job.id) + 1_000_000, "attempt_number": 0, "state": state}
        run = {
            "run_id": int(job.id),
            "run_page_url": f"http://127.0.0.1:{self.port}/#job/1/run/{job.id}",
            "run_type": "SUBMIT_RUN",
            "state": state,
            "tasks": [task],
            "overriding_parameters": {"python_params": ["/Workspace/the.zip", *job.arguments]},
            **({"status": self.end_status} if job.state != "running" and self.end_status else {}),
        }
        _check_document(Run, run)
        return run

    def _get_output(self, asked: dict[str, Any]) -> Any:
        job = self._job(asked["run_id"])
        if int(asked["run_id"]) == int(job.id):
            raise ApiError(400, "INVALID_PARAMETER_VALUE", "Retrieving the output of runs with tasks is not supported")
        output = {"logs": self.log_of(job), **self.output}
        _check_document(RunOutput, output)
        return output

    def _list(self, asked: dict[str, Any]) -> Any:
        # One at a time, so that pages have to be turned.
        number = int(asked.get("page_token", "0"))
        newest = [*reversed(self.jobs)]
        page = [self._described(job) for job in newest[number : number + 1]]
        return {"runs": page, **({"next_page_token": str(number + 1)} if number + 1 < len(newest) else {})}

    def _cancel(self, asked: dict[str, Any]) -> Any:
        self.end(self._job(asked["run_id"]), "cancelled")
        return {}


_SITE = """\
import importlib.abc, importlib.util, sys

class Runtime(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_file_location(name, {file!r}) if name == "pyspark.dbutils" else None

sys.meta_path.insert(0, Runtime())
"""


def _check_arguments(method: Any, asked: Mapping[str, Any]) -> None:
    """Refuse what the SDK's method does not know."""
    if unknown := asked.keys() - inspect.signature(method).parameters.keys():
        raise ApiError(400, "MALFORMED_REQUEST", f"Unknown fields: {sorted(unknown)}")


def _check_document(kind: Any, document: dict[str, Any]) -> None:
    """Refuse what the SDK's dataclass does not hold as it is: unknown fields, other types, unknown words."""
    if kind.from_dict(document).as_dict() != document:
        raise ApiError(400, "MALFORMED_REQUEST", f"{document} is no {kind.__name__}")


class _Handler(BaseHTTPRequestHandler):
    platform: DatabricksPlatform
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _handle(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self.platform.check_token(self.headers.get("Authorization"))
            answer = self.platform.answer_request(self.command, url.path, dict(parse_qsl(url.query)), body)
        except ApiError as error:
            self._send(error.status, {"error_code": error.code, "message": str(error)})
        except Exception as error:
            self._send(400, {"error_code": "MALFORMED_REQUEST", "message": repr(error)})
        else:
            if answer is None:
                self.close_connection = True
            else:
                self._send(200, answer)

    def _send(self, status: int, answer: Any) -> None:
        data = b"" if self.command == "HEAD" else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_HEAD = _handle
