"""A stand-in for the API of a Kubernetes cluster, on which ``spark-submit`` creates the pods of drivers.

What a pod runs, it runs by Spark on this machine (``runs_jobs = True``, with the real ``spark-submit`` on the worker),
or it plays it, and a small program is the worker's ``spark-submit``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from tests.support.platforms import PlatformJob
from tests.support.spark_platforms import HttpPlatform
from tests.support.spark_submit_runs import platform_environment, spark_submit, write_spark_defaults

NAMESPACE = "jobs"
#: Of the kubeconfig file.
TOKEN = "of-the-kubeconfig"
#: What a stand-in's spark-submit does: it creates what Spark 4.2 creates, in the same order.
_SPARK_SUBMIT = """#!{python} -SE
import json, sys, urllib.request
given = sys.argv[1:]
options = dict(zip(given[::2], given[1::2]))
lines = [line for line in open(options["--properties-file"]).read().splitlines() if line.strip()]
properties = dict(line.split("=", 1) for line in lines)
program = given[given.index(next(each for each in given if "/run_job_of_zip-" in each)):]
name, namespace = properties["spark.kubernetes.driver.pod.name"], properties["spark.kubernetes.namespace"]
assert options["--deploy-mode"] == "cluster", given
assert properties["spark.kubernetes.submission.waitAppCompletion"] == "false", properties
template = properties.get("spark.kubernetes.driver.podTemplateFile")
pod = json.load(open(template)) if template else {{"spec": {{}}}}
pod["metadata"] = {{"name": name}}
arguments = ["driver", "--properties-file", "/opt/spark/conf/spark.properties", *program]
start = "spark.kubernetes.driverEnv."
variables = [{{"name": n.removeprefix(start), "value": v}} for n, v in properties.items() if n.startswith(start)]
pod["spec"]["containers"] = [{{"name": "spark-kubernetes-driver", "args": arguments, "env": variables}}]
pod["spec"]["volumes"] = [{{"name": "spark-conf-volume-driver", "configMap": {{"name": name + "-conf-map"}}}}]
settings = {{"metadata": {{"name": name + "-conf-map"}}, "data": {{"spark.properties": "\\n".join(lines)}}}}
for method, path, document in (("POST", "pods", pod), ("PATCH", "configmaps/" + name + "-conf-map", settings)):
    url = "{url}/api/v1/namespaces/" + namespace + "/" + path
    request = urllib.request.Request(url, json.dumps(document).encode(), method=method)
    request.add_header("Authorization", "Bearer {token}")
    try:
        urllib.request.urlopen(request).close()
    except OSError as error:
        sys.exit(f"Exception in thread main io.fabric8.kubernetes.client.KubernetesClientException: {{error}}")
"""
_PHASES = {"running": "Running", "succeeded": "Succeeded", "failed": "Failed"}


class KubernetesPlatform(HttpPlatform):
    """The API of a cluster. A driver begins when its pod and the ConfigMap that it mounts are there, as on a node."""

    engine = (
        'SparkSubmit("kubernetes_test", deploy_mode="cluster", poll_seconds=0.01, '
        'conf={"spark.kubernetes.container.image": "spark"})'
    )
    has_pages = False

    def __init__(self, folder: Path, staging: str) -> None:
        super().__init__(folder, staging)
        #: As they were created, by their names.
        self.pods: dict[str, dict[str, Any]] = {}
        self.config_maps: dict[str, dict[str, Any]] = {}
        #: What the API says of pods beside their phase, by their names.
        self.statuses: dict[str, dict[str, Any]] = {}
        self._loses_answer = False
        connection = {
            "conn_type": "spark",
            "host": "k8s://http://127.0.0.1",
            "port": self.port,
            "extra": {"namespace": NAMESPACE},
        }
        for name in ("KUBERNETES_TEST", "SPARK_KUBERNETES"):
            self.set_variable(f"AIRFLOW_CONN_{name}", json.dumps(connection))
        #: That the API lets in.
        self.token = TOKEN
        self.kubeconfig = folder / "kubeconfig"
        self.write_kubeconfig()
        self.set_variable("KUBECONFIG", str(self.kubeconfig))
        (programs := folder / "bin").mkdir()
        program = programs / "spark-submit"
        program.write_text(_SPARK_SUBMIT.format(python=sys.executable, url=self.url, token=TOKEN))
        program.chmod(0o755)
        self._path = os.environ["PATH"]
        self.set_variable("PATH", f"{programs}{os.pathsep}{self._path}")

    def write_kubeconfig(self) -> None:
        """Write the file by which the API is asked. Its address is not that of the connection, which counts."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "airflow",
            "contexts": [{"name": "airflow", "context": {"cluster": "jobs", "user": "airflow"}}],
            "clusters": [{"name": "jobs", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "airflow", "user": {"token": self.token}}],
        }
        self.kubeconfig.write_text(json.dumps(document))

    @property
    def runs_jobs(self) -> bool:
        return self._runs_jobs

    @runs_jobs.setter
    def runs_jobs(self, value: bool) -> None:
        self._runs_jobs = value
        if value:  # with the spark-submit of the installed Spark
            self.set_variable("PATH", f"{Path(sys.executable).parent}{os.pathsep}{self._path}")
            write_spark_defaults(self.folder)

    def respond(self, method: str, path: str, query: dict[str, list[str]], document: Any) -> tuple[int | None, Any]:
        if self.expired or (self.authorization or "").lower() != f"bearer {self.token}".lower():
            return 401, _status(401, "Unauthorized")
        found = re.fullmatch(rf"/apis?/(?:[\w.]+/)?v1/namespaces/{NAMESPACE}/(\w+)(?:/([\w.-]+))?(/log)?", path)
        assert found is not None, path
        kind, name = found[1], found[2]
        if kind == "pods":
            if name is None:
                return self._create(document)
            if found[3]:
                return 200, next((self.log_of(job) for job in self.jobs if job.id == name), "")
            return self._delete(name) if method == "DELETE" else self._get(name)
        if method == "PATCH":
            return self._apply(kind, name, document)
        assert (method, kind) == ("GET", "configmaps"), path
        return (200, self.config_maps[name]) if name in self.config_maps else (404, _status(404, "NotFound"))

    def _create(self, pod: dict[str, Any]) -> tuple[int, Any]:
        failure = self.submit_failures.pop(0) if self.submit_failures else 200
        if failure not in (None, 200):
            return int(failure or 0), _status(int(failure or 0), "InternalError")
        self._loses_answer = failure is None
        name = pod["metadata"]["name"]
        if name in self.pods:
            return 409, _status(409, "AlreadyExists")
        pod["metadata"]["uid"] = f"uid-of-{name}"
        self.pods[name] = pod
        return 201, pod

    def _apply(self, kind: str, name: str, document: dict[str, Any]) -> tuple[int | None, Any]:
        if kind == "configmaps":
            self.config_maps[name] = document
            (pod,) = [
                pod
                for pod in self.pods.values()
                if any(each.get("configMap", {}).get("name") == name for each in pod["spec"]["volumes"])
            ]
            self._begin(pod, document["data"]["spark.properties"])
            if self._loses_answer:
                return None, None
        return 200, document

    def _begin(self, pod: dict[str, Any], properties: str) -> None:
        (container,) = pod["spec"]["containers"]
        arguments = container["args"]
        (script,) = [number for number, each in enumerate(arguments) if "/run_job_of_zip-" in each]
        name = pod["metadata"]["name"]
        job = self.start(name, arguments[script + 2 :], pod["spec"].get("activeDeadlineSeconds"))
        job.id = name
        if self.runs_jobs:
            with (self.folder / "spark-defaults.conf").open("a") as file:
                file.write(f"\n{properties}\n")
            # What a node and the image give a driver, and executors in its own process.
            conf = {
                "spark.master": "local[2]",
                "spark.submit.deployMode": "client",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.port": "0",
                "spark.driver.blockManager.port": "0",
            }
            variables = {each["name"]: each["value"] for each in container["env"] if "value" in each}
            inherited = {name: variables[name] for name in variables if not name.startswith("SPARK_")}
            command = spark_submit(self.folder, arguments[script], arguments[script + 1 :], conf=conf)
            self.run(job, command, platform_environment(inherited))

    def _get(self, name: str) -> tuple[int | None, Any]:
        if self.failures:
            failure = self.failures.pop(0)
            return failure, _status(failure or 0, "ServiceUnavailable")
        job = self.job(name)
        if name not in self.pods or (job is not None and self.ask(job) == "cancelled"):
            return 404, _status(404, "NotFound")
        status = {"phase": "Pending" if job is None else _PHASES[job.state], **self.statuses.get(name, {})}
        if job is not None and job.error:
            status["message"] = job.error
        return 200, {**self.pods[name], "status": status}

    def _delete(self, name: str) -> tuple[int, Any]:
        if self.pods.pop(name, None) is None:
            return 404, _status(404, "NotFound")
        job: PlatformJob | None = self.job(name)
        if job is not None:
            self.end(job, "cancelled")
        return 200, _status(200, "")


def _status(code: int, reason: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": f"{reason} by the test"}
