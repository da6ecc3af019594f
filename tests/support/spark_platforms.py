"""Stand-ins for a ResourceManager of YARN, with its ``spark-submit``, and for the master of a standalone cluster.

They play the jobs that they are given. What Spark really does with them, tests on a real cluster show.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from abc import abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.platforms import Platform, PlatformJob

#: What a stand-in's spark-submit does: it gives the server what it was given, and says what Spark says.
_SPARK_SUBMIT = """#!{python} -SE
import json, os, sys, urllib.request
arguments = sys.argv[1:]
file = arguments[arguments.index("--properties-file") + 1]
readable = os.stat(os.path.dirname(file)).st_mode & 0o077
document = json.dumps({{"arguments": arguments, "properties": open(file).read(), "readable": readable}}).encode()
try:
    with urllib.request.urlopen(urllib.request.Request("{url}/submit", document)) as answer:
        print("26/01/01 00:00:00 INFO YarnClientImpl: Submitted application", answer.read().decode(), file=sys.stderr)
except OSError as error:
    sys.exit(f"Exception in thread main java.io.IOException: {{error}}")
"""
#: How YARN and a standalone master call the states of a job.
_STATES = {"running": "RUNNING", "succeeded": "FINISHED", "failed": "FAILED", "cancelled": "KILLED"}
#: What an application says of itself.
_FINAL = {"running": "UNDEFINED", "succeeded": "SUCCEEDED", "failed": "FAILED", "cancelled": "KILLED"}


class HttpPlatform(Platform):
    """A platform with an HTTP API."""

    def __init__(self, folder: Path, staging: str) -> None:
        super().__init__(folder)
        self.staging = staging
        platform = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer()

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

            def answer(self) -> None:
                document = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
                parts = urlsplit(self.path)
                with platform.lock:
                    platform.authorization = self.headers.get("Authorization")
                    code, body = platform.respond(self.command, parts.path, parse_qs(parts.query), document)
                if code is None:  # the answer is lost
                    self.close_connection = True
                    return
                content = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self.lock = threading.RLock()
        #: The header of the request that is being answered.
        self.authorization: str | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self._before: dict[str, str | None] = {}

    @abstractmethod
    def respond(self, method: str, path: str, query: dict[str, list[str]], document: Any) -> tuple[int | None, Any]:
        """The status and the body of an answer; the status None: there is none."""

    def job(self, number: str) -> PlatformJob | None:
        return next((job for job in self.jobs if job.id == number), None)

    def set_variable(self, name: str, value: str) -> None:
        """Set a variable of this process until the platform is stopped."""
        self._before.setdefault(name, os.environ.get(name))
        os.environ[name] = value

    def stop_server(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class YarnPlatform(HttpPlatform):
    """A ResourceManager, and a ``spark-submit`` on the path of the Airflow worker that gives it applications."""

    engine = 'SparkSubmit("yarn_test", deploy_mode="cluster", poll_seconds=0.01)'

    def __init__(self, folder: Path, staging: str) -> None:
        super().__init__(folder, staging)
        (programs := folder / "bin").mkdir()
        program = programs / "spark-submit"
        program.write_text(_SPARK_SUBMIT.format(python=sys.executable, url=self.url))
        program.chmod(0o755)
        self.set_variable("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        extra = {"yarn_resourcemanager_webapp_address": self.url}
        connection = {"conn_type": "spark", "host": "yarn", "extra": extra}
        self.set_variable("AIRFLOW_CONN_YARN_TEST", json.dumps(connection))
        #: The commands and the properties files of spark-submit.
        self.submissions: list[dict[str, Any]] = []

    def new_id(self) -> str:
        return f"application_1760000000000_{len(self.jobs) + 1:04}"

    def respond(self, method: str, path: str, query: dict[str, list[str]], document: Any) -> tuple[int | None, Any]:
        if path == "/submit":
            return self._submit(document)
        found = re.fullmatch(r"/ws/v1/cluster/apps(?:/(\w+))?(/state)?", path)
        assert found is not None, path
        if found[1] is None:
            jobs = [job for job in self.jobs if [job.token] == query["applicationTags"]]
            return 200, {"apps": {"app": [self._describe(job) for job in jobs]} if jobs else None}
        job = self.job(found[1])
        if method == "PUT":
            assert job is not None
            assert document == {"state": "KILLED"}
            assert query["user.name"], "YARN lets nobody in particular end nothing"
            self.end(job, "cancelled")
            return 202, document
        if self.failures:
            return self.failures.pop(0), "Service unavailable"
        if job is None:
            return 404, {"RemoteException": {"exception": "NotFoundException"}}
        self.ask(job)
        return 200, {"app": self._describe(job)}

    def _submit(self, document: dict[str, Any]) -> tuple[int, str]:
        failure = self.submit_failures.pop(0) if self.submit_failures else 200
        if failure not in (None, 200):
            return int(failure or 0), "not submitted"
        self.submissions.append(document)
        properties = dict(line.partition("=")[::2] for line in document["properties"].splitlines() if "=" in line)
        assert properties["spark.yarn.submit.waitAppCompletion"] == "false"
        arguments = document["arguments"]
        assert arguments[arguments.index("--deploy-mode") + 1] == "cluster"
        (script,) = [number for number, each in enumerate(arguments) if Path(each).name.startswith("run_job-")]
        job = self.start(properties["spark.yarn.tags"], arguments[script + 1 :])
        return (500, "lost") if failure is None else (200, job.id)

    def _describe(self, job: PlatformJob) -> dict[str, Any]:
        final = _FINAL[job.state]
        diagnostics = job.error or ("Application was killed by user" if job.state == "cancelled" else "")
        return {"id": job.id, "state": _STATES[job.state], "finalStatus": final, "diagnostics": diagnostics}


class StandalonePlatform(HttpPlatform):
    """The REST API of the master of a standalone cluster."""

    lost_driver = "ended as FAILED on the worker"

    engine = 'SparkSubmit("standalone_test", deploy_mode="cluster", poll_seconds=0.01)'
    #: A master does not say which driver is of which job.
    finds_jobs = False

    def __init__(self, folder: Path, staging: str) -> None:
        super().__init__(folder, staging)
        extra = {"rest-port": str(self.port), "ui-port": "18080"}
        connection = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": 7077, "extra": extra}
        self.set_variable("AIRFLOW_CONN_STANDALONE_TEST", json.dumps(connection))
        #: The requests to start a driver.
        self.submissions: list[dict[str, Any]] = []

    def new_id(self) -> str:
        return f"driver-20260101000000-{len(self.jobs):04}"

    def respond(self, method: str, path: str, query: dict[str, list[str]], document: Any) -> tuple[int | None, Any]:
        found = re.fullmatch(r"/v1/submissions/(create|status|kill)(?:/([\w-]+))?", path)
        assert found is not None, path
        if found[1] == "create":
            return self._create(document)
        job = self.job(found[2])
        if found[1] == "kill":
            if job is not None:
                self.end(job, "cancelled")
            return 200, {"action": "KillSubmissionResponse", "submissionId": found[2], "success": job is not None}
        if self.failures:
            return self.failures.pop(0), "Service unavailable"
        answer = {"action": "SubmissionStatusResponse", "submissionId": found[2], "success": job is not None}
        if job is not None:
            answer |= {"driverState": _STATES[self.ask(job)], "workerHostPort": "127.0.0.1:7078"}
        return 200, answer

    def _create(self, document: dict[str, Any]) -> tuple[int | None, Any]:
        failure = self.submit_failures.pop(0) if self.submit_failures else 200
        if failure not in (None, 200):
            return failure, {"action": "ErrorResponse", "message": "not started"}
        self.submissions.append(document)
        arguments = document["appArgs"]
        (script,) = [number for number, each in enumerate(arguments) if "/run_job_of_zip-" in each]
        job_arguments = arguments[script + 2 :]  # after the zip
        # A driver has no token: the folder of its results is named by it.
        job = self.start(job_arguments[-1].rpartition("/")[2], job_arguments)
        answer = {"action": "CreateSubmissionResponse", "submissionId": job.id, "success": True}
        return (None, None) if failure is None else (200, answer)
