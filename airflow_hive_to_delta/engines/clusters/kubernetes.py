"""Drivers that are pods on Kubernetes, through the API of the cluster."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow_hive_to_delta.core.extras import needs_extra
from airflow_hive_to_delta.engines.clusters.spark_connection import SparkConnection
from airflow_hive_to_delta.engines.engine import JobError, JobState, JobStatus

NAMESPACE_SETTING = "spark.kubernetes.namespace"
_CONTEXT_SETTING = "spark.kubernetes.context"
_TEMPLATE_SETTING = "spark.kubernetes.driver.podTemplateFile"
#: In seconds: to connect, and to wait for an answer.
_TIMEOUT = (5.0, 30.0)
#: Of what a driver has written, how many of the last lines are shown when it failed.
_LAST_LINES = 40
#: How Spark calls the container of a driver, unless a template of the user names another.
_DRIVER_CONTAINER = "spark-kubernetes-driver"

#: By the phase of a pod. ``Unknown``: its node does not answer, and may come back.
_STATES: dict[str, JobState] = {
    "Pending": "pending",
    "Running": "running",
    "Unknown": "running",
    "Succeeded": "succeeded",
    "Failed": "failed",
}


@dataclass(frozen=True)
class KubernetesCluster:
    """A namespace of a Kubernetes cluster, in which drivers and executors are pods.

    Its API is asked as ``spark-submit`` asks it: at the address of the connection, with the identity of the kubeconfig
    file, or with that of the pod's service account where there is no such file.

    :param url: the address of the API.
    :param namespace: in which drivers are submitted. None: a job that is known by its id needs none.
    :param context: of the kubeconfig file; None: its current one.
    """

    url: str
    namespace: str | None
    context: str | None = None

    @classmethod
    def of(cls, connection: SparkConnection, conf: Mapping[str, str]) -> KubernetesCluster:
        """The cluster that a connection names.

        :raises JobError: the settings contradict the connection.
        """
        context = connection.extra.get("context")
        if _CONTEXT_SETTING in conf and conf[_CONTEXT_SETTING] != context:
            raise JobError(
                f"conf has the setting {_CONTEXT_SETTING!r}, which the triggerer does not know. Take it out, and set "
                f"context in the extra of the Spark connection {connection.conn_id!r}",
                retryable=False,
            )
        url = connection.master.removeprefix("k8s://")
        # As Spark reads it.
        url = url if "://" in url else f"https://{url}"
        return cls(url.rstrip("/"), connection.extra.get("namespace") or conf.get(NAMESPACE_SETTING), context)

    def settings(
        self, token: str, timeout: float | None, variables: Mapping[str, str], conf: Mapping[str, str], folder: Path
    ) -> dict[str, str]:
        """The settings by which ``spark-submit`` creates the driver of a job, and does not wait for its end.

        :param timeout: after so many seconds Kubernetes ends the driver. It is part of a pod template, so that of
            the user, if there is one, decides instead.
        :param variables: of the driver's environment.
        :param conf: the settings of the user.
        :param folder: where the pod template is written.
        """
        settings = {f"spark.kubernetes.driverEnv.{name}": value for name, value in variables.items()} | dict(conf)
        if timeout is not None and _TEMPLATE_SETTING not in conf:
            template = {"apiVersion": "v1", "kind": "Pod", "spec": {"activeDeadlineSeconds": max(1, round(timeout))}}
            (folder / "driver.json").write_text(json.dumps(template), encoding="utf-8")
            settings[_TEMPLATE_SETTING] = str(folder / "driver.json")
        if self.context is not None:
            settings[_CONTEXT_SETTING] = self.context
        return settings | {
            NAMESPACE_SETTING: self._own_namespace(),
            "spark.kubernetes.driver.pod.name": pod_name(token),
            "spark.kubernetes.submission.waitAppCompletion": "false",
        }

    def job_id(self, token: str) -> str:
        """What Spark calls a submission: namespace and name of the driver's pod."""
        return f"{self._own_namespace()}:{pod_name(token)}"

    def find(self, token: str) -> str | None:
        """The id of the job that was submitted with this token.

        ``spark-submit`` creates the pod first, and then the ConfigMap that the pod waits for. A pod whose ConfigMap was
        never created would wait for ever, and has run nothing: it is removed.
        """
        pod = self._read(job := self.job_id(token))
        if pod is None:
            return None
        namespace, name = job.split(":")
        maps = [each.config_map.name for each in pod.spec.volumes or [] if each.config_map is not None]
        if pod.status.phase == "Pending" and not all(self._has_config_map(namespace, each) for each in maps):
            self._delete(namespace, name, _TIMEOUT, grace_period_seconds=0)
            return None
        return job

    def status(self, job: str) -> JobStatus:
        """How far a driver is."""
        namespace, name = job.split(":")
        pod = self._read(job)
        if pod is None:
            return JobStatus(
                "not_found",
                f"There is no pod {name} in the namespace {namespace}: the job was cancelled by deleting it, or its "
                "node is gone",
            )
        container = _driver_container(pod)
        state = _STATES.get(pod.status.phase or "Pending", "running")
        ended = container.state.terminated if container is not None and container.state is not None else None
        if ended is not None and state == "running":  # containers beside that of the driver, as of a mesh, still run
            state = "succeeded" if ended.exit_code == 0 else "failed"
        if state != "failed":
            return JobStatus(state, log=[f"The driver pod {name} is {pod.status.phase}{_waits_for(container)}"])
        how = [pod.status.reason, *([ended.reason, f"exit code {ended.exit_code}"] if ended is not None else [])]
        why = pod.status.message or (ended.message if ended is not None else None)
        return JobStatus(
            "failed",
            f"The driver pod {name} in the namespace {namespace} failed ({', '.join(each for each in how if each)}), "
            f"without a result{f': {why}' if why else ''}. Its log: kubectl logs -n {namespace} {name}",
            log=self._last_lines(namespace, name, container),
        )

    def kill(self, job: str, within: float) -> None:
        """Delete the pod of a driver, and by that its executors. One that has ended is left, with its log."""
        namespace, name = job.split(":")
        limit = (within / 4, within / 4)  # of each of two requests
        pod = self._read(job, limit)
        if pod is not None and pod.status.phase not in ("Succeeded", "Failed"):
            self._delete(namespace, name, limit)

    def _own_namespace(self) -> str:
        if self.namespace is None:
            raise JobError(
                "It is not known in which namespace of Kubernetes the job is to run: set namespace in the extra of the "
                f"Spark connection, or {NAMESPACE_SETTING} in conf",
                retryable=False,
            )
        return self.namespace

    def _read(self, job: str, limit: tuple[float, float] = _TIMEOUT) -> Any:
        namespace, name = job.split(":")
        return self._ask(lambda: self._api.read_namespaced_pod(name, namespace, _request_timeout=limit))

    def _has_config_map(self, namespace: str, name: str) -> bool:
        found = self._ask(lambda: self._api.read_namespaced_config_map(name, namespace, _request_timeout=_TIMEOUT))
        return found is not None

    def _delete(self, namespace: str, name: str, limit: tuple[float, float], **options: Any) -> None:
        self._ask(lambda: self._api.delete_namespaced_pod(name, namespace, _request_timeout=limit, **options))

    def _ask(self, call: Callable[[], Any]) -> Any:
        """What the API answers; None: there is no such thing."""
        from kubernetes.client import ApiException

        try:
            return call()
        except ApiException as error:
            if error.status == 404:
                return None
            # The text of the exception itself has the headers of the answer.
            body = str(error.body or error.reason)[:300]
            text = f"The API of Kubernetes at {self.url} answered {error.status}: {body}"
            if error.status == 401:
                self.__dict__.pop("_api", None)  # the next call reads the identity anew
                raise JobError(
                    f"{text}. The token or the certificate of the kubeconfig file, or of the service account, is wrong "
                    "or has expired: renew it on the Airflow workers and the triggerer (KUBECONFIG)",
                    retryable=True,
                ) from error
            if error.status == 403:
                raise JobError(
                    f"{text}. Let the identity of the Airflow workers and the triggerer get and delete pods, and get "
                    "pods/log and configmaps, in the namespace of the job",
                    retryable=False,
                ) from error
            raise RuntimeError(text) from error

    def _last_lines(self, namespace: str, name: str, container: Any) -> list[str]:
        options = {} if container is None else {"container": container.name}
        with suppress(Exception):  # the log of a pod that never began, or whose node is gone
            # As bytes: of a text, some versions of the client give what repr() makes of its bytes.
            answer = self._api.read_namespaced_pod_log(
                name, namespace, tail_lines=_LAST_LINES, _request_timeout=_TIMEOUT, _preload_content=False, **options
            )
            if output := answer.data.decode(errors="replace"):
                return ["The last lines of the driver's log:", *output.splitlines()]
        return []

    @cached_property
    def _api(self) -> Any:
        check_kubernetes()
        from kubernetes import client, config

        configuration = client.Configuration()
        # Failed requests are counted by who asks, and a task that is killed has no time to try again.
        configuration.retries = False
        file = os.environ.get("KUBECONFIG") or "~/.kube/config"
        try:
            if any(Path(each).expanduser().is_file() for each in file.split(os.pathsep)):
                config.load_kube_config(file, context=self.context, client_configuration=configuration)
            else:
                config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException as error:
            raise JobError(
                f"The API of Kubernetes at {self.url} cannot be asked, because there is no identity to ask with: "
                f"{error}. Run Airflow on Kubernetes with a service account, or give its workers and the triggerer "
                "a kubeconfig file (KUBECONFIG)",
                retryable=False,
            ) from error
        _keep_host(configuration, self.url)
        return client.CoreV1Api(client.ApiClient(configuration))


def pod_name(token: str) -> str:
    """The name of the driver's pod: the same for the same token, in the letters that Kubernetes allows."""
    return f"hive-to-delta-{hashlib.blake2b(token.encode(), digest_size=10).hexdigest()}"


def check_kubernetes() -> None:
    """Look whether what Kubernetes needs on this machine is installed.

    :raises MissingDependencyError: it is not.
    """
    with needs_extra("kubernetes", "SparkSubmit on Kubernetes"):
        import kubernetes  # noqa: F401

        # The hook of the Spark provider asks for it, for every master on Kubernetes.
        from airflow.providers.cncf.kubernetes import kube_client  # noqa: F401


def _keep_host(configuration: Any, url: str) -> None:
    """Set the address, and again after each renewal of the identity, which sets that of the kubeconfig file."""
    renew = configuration.refresh_api_key_hook

    def renew_and_keep_host(renewed: Any) -> None:
        if renew is not None:
            renew(renewed)  # it also puts itself back in this place
        renewed.host = url
        renewed.refresh_api_key_hook = renew_and_keep_host

    configuration.host = url
    configuration.refresh_api_key_hook = renew_and_keep_host


def _driver_container(pod: Any) -> Any:
    found = pod.status.container_statuses or []
    named = [each for each in found if each.name == _DRIVER_CONTAINER]
    return (named or found or [None])[0] if len(found) < 2 or named else None


def _waits_for(container: Any) -> str:
    waiting = container.state.waiting if container is not None and container.state is not None else None
    if waiting is None or not waiting.reason:
        return ""
    return f" ({waiting.reason}{f': {waiting.message}' if waiting.message else ''})"
