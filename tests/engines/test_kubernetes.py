"""Jobs whose drivers are pods on Kubernetes: what is submitted, and what the answers of its API mean."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta import SparkSubmit
from airflow_hive_to_delta.core.errors import MissingDependencyError
from airflow_hive_to_delta.engines import JobError, JobRef, JobSpec
from tests.support.platform_kubernetes import NAMESPACE, KubernetesPlatform

SPEC = JobSpec(
    "Convert t",
    "s3://b/job/_request.json",
    "s3://b/job",
    "Token_1",
    "s3://b/staging/packages/p.zip",
    "s3://b/staging/packages/run_job_of_zip-1.py",
    timeout=90,
)


@pytest.fixture
def platform(airflow_home: Path, tmp_path: Path) -> Iterator[KubernetesPlatform]:
    platform = KubernetesPlatform(tmp_path, staging="s3://b/staging")
    platform.held = None
    yield platform
    platform.close()


@pytest.fixture
def engine(platform: KubernetesPlatform) -> SparkSubmit:
    return SparkSubmit("kubernetes_test", deploy_mode="cluster")


@pytest.fixture
def with_extra(monkeypatch: pytest.MonkeyPatch, platform: KubernetesPlatform) -> Callable[..., None]:
    """Sets the extra of the connection."""

    def define(**extra: str) -> None:
        connection = {"conn_type": "spark", "host": "k8s://http://127.0.0.1", "port": platform.port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_TEST", json.dumps(connection))

    return define


def terminated(reason: str, code: int, name: str = "spark-kubernetes-driver") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return {"name": name, "state": state, "image": "", "imageID": "", "ready": False, "restartCount": 0}


def test_what_is_submitted(platform, engine) -> None:
    own = replace(
        engine, conf={"spark.executor.instances": "2", "spark.kubernetes.driver.secretKeyRef.PASSWORD": "s:k"}
    )
    ref = own.submit(SPEC, {"AWS_REGION": "eu-west-1", "AWS_SECRET_ACCESS_KEY": "keep-me-here"})
    ((name, pod),) = platform.pods.items()
    assert ref == JobRef(f"{NAMESPACE}:{name}", SPEC.results_uri)
    assert pod["spec"]["activeDeadlineSeconds"] == 90
    (container,) = pod["spec"]["containers"]
    assert container["args"][-5:] == [
        "s3a://b/staging/packages/run_job_of_zip-1.py",
        "s3a://b/staging/packages/p.zip",
        *SPEC.arguments,
    ]
    assert container["env"] == [{"name": "AWS_REGION", "value": "eu-west-1"}]
    (config_map,) = platform.config_maps.values()
    settings = config_map["data"]["spark.properties"].splitlines()
    assert "spark.executorEnv.AWS_REGION=eu-west-1" in settings
    assert "spark.executor.instances=2" in settings
    assert "keep-me-here" not in json.dumps([pod, config_map])
    assert engine.find(SPEC.token) == JobRef(ref.id, ""), "by the token alone"
    assert engine.find("token_1") is None
    engine.cancel(ref, 4.0)
    assert engine.status(ref).state == "not_found"


def test_the_pod_template_of_the_user_decides_how_long_a_driver_runs(platform, engine, tmp_path) -> None:
    (template := tmp_path / "own.json").write_text(json.dumps({"spec": {"priorityClassName": "low"}}))
    conf = {"spark.kubernetes.driver.podTemplateFile": str(template)}
    replace(engine, conf=conf).submit(SPEC, {})
    (pod,) = platform.pods.values()
    assert pod["spec"]["priorityClassName"] == "low"
    assert "activeDeadlineSeconds" not in pod["spec"]


@pytest.mark.parametrize("setting", ["spark.hadoop.fs.s3a.secret.key", "spark.kubernetes.authenticate.oauthToken"])
def test_no_credential_gets_into_a_config_map(platform, engine, setting) -> None:
    with pytest.raises(JobError, match="Kubernetes has the settings of a driver in a ConfigMap") as refused:
        replace(engine, conf={setting: "abc"}).submit(SPEC, {})
    assert not refused.value.retryable
    assert platform.pods == {}


def test_a_pod_that_waits_for_a_config_map_which_was_never_created_is_removed(platform, engine) -> None:
    engine.submit(SPEC, {})
    platform.config_maps.clear()
    platform.jobs.clear()
    assert engine.find(SPEC.token) is None
    assert platform.pods == {}, "so that the next try can create it"


def test_a_driver_that_has_ended_is_left_with_its_log(platform, engine) -> None:
    ref = engine.submit(SPEC, {})
    platform.end(platform.jobs[0], "succeeded")
    engine.cancel(ref, 4.0)
    assert list(platform.pods) == [platform.jobs[0].id]


@pytest.mark.parametrize(
    ("status", "state", "expected"),
    [
        ({"phase": "Unknown"}, "running", "is Unknown"),
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    terminated("", 0) | {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}}
                ],
            },
            "pending",
            "is Pending (ImagePullBackOff: no image)",
        ),
        (
            {"phase": "Failed", "containerStatuses": [terminated("OOMKilled", 137)]},
            "failed",
            "failed (OOMKilled, exit code 137), without a result. Its log: kubectl logs -n jobs hive-to-delta-",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"},
            "failed",
            "failed (Evicted), without a result: The node was low on memory",
        ),
        (
            {"phase": "Running", "containerStatuses": [terminated("", 1, "mesh"), terminated("Error", 1)]},
            "failed",
            "failed (Error, exit code 1)",
        ),
        ({"phase": "Running", "containerStatuses": [terminated("Completed", 0)]}, "succeeded", "is Running"),
        (
            {"phase": "Running", "containerStatuses": [terminated("", 1, "mesh"), terminated("", 1, "own")]},
            "running",
            "is Running",
        ),
    ],
)
def test_what_the_state_of_a_pod_means(platform, engine, status, state, expected) -> None:
    ref = engine.submit(SPEC, {})
    (job,) = platform.jobs
    (platform.folder / f"{job.id}.log").write_text("first\nImportError: pyarrow\n")
    platform.statuses[job.id] = status
    found = engine.status(ref)
    assert found.state == state
    assert expected in (found.error or found.log[0])
    assert ("ImportError: pyarrow" in found.log) is (state == "failed")
    assert engine.status(ref, found.cursor).log == [], "each line once"


@pytest.mark.parametrize(
    ("status", "kind", "retryable", "message"),
    [
        (500, RuntimeError, None, "ServiceUnavailable by the test"),
        (401, JobError, True, r"or has expired: renew it on the Airflow workers and the triggerer \(KUBECONFIG\)"),
        (403, JobError, False, "Let the identity of the Airflow workers and the triggerer get and delete pods"),
    ],
)
def test_an_answer_that_says_no_is_an_error_of_the_poll(platform, engine, status, kind, retryable, message) -> None:
    ref = engine.submit(SPEC, {})
    platform.failures = [status]
    said = rf"The API of Kubernetes at http://127\.0\.0\.1:\d+ answered {status}: .*{message}"
    with pytest.raises(kind, match=said) as error:
        engine.status(ref)
    assert getattr(error.value, "retryable", None) is retryable
    assert engine.status(ref).state == "running"


def test_a_token_that_is_renewed_in_the_kubeconfig_file_is_read_by_the_next_poll(platform, engine) -> None:
    ref = engine.submit(SPEC, {})
    assert engine.status(ref).state == "running"
    platform.token = "renewed"
    with pytest.raises(JobError, match="answered 401"):
        engine.status(ref)
    platform.write_kubeconfig()
    assert engine.status(ref).state == "running"


def test_the_triggerer_needs_no_settings(platform, engine, with_extra) -> None:
    with_extra()
    ref = replace(engine, conf={"spark.kubernetes.namespace": NAMESPACE}).submit(SPEC, {})
    _, arguments = engine.serialize()
    assert "conf" not in arguments
    assert SparkSubmit(**arguments).status(ref).state == "running"


def test_a_context_is_that_of_the_connection(platform, engine, with_extra) -> None:
    with pytest.raises(JobError, match="set context in the extra of the Spark connection") as refused:
        replace(engine, conf={"spark.kubernetes.context": "airflow"}).submit(SPEC, {})
    assert not refused.value.retryable
    with_extra(namespace=NAMESPACE, context="airflow")
    engine.submit(SPEC, {})
    (config_map,) = platform.config_maps.values()
    assert "spark.kubernetes.context=airflow" in config_map["data"]["spark.properties"].splitlines()


def test_without_an_identity_the_api_is_not_asked(platform, engine, tmp_path, monkeypatch) -> None:
    ref = engine.submit(SPEC, {})
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(JobError, match=r"there is no identity to ask with: .* \(KUBECONFIG\)"):
        engine.status(ref)


@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_a_provider_that_is_not_installed_is_named(platform, deploy_mode, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'airflow-hive-to-delta\[kubernetes\]'"):
        SparkSubmit("kubernetes_test", deploy_mode=deploy_mode).submit(SPEC, {})
