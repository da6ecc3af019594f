"""Jobs on a Spark cluster: on a real standalone one, with a master and two workers, and what is refused before that."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_to_delta import CatalogDiscoverOperator, SparkSubmit
from airflow_hive_to_delta.core.errors import MissingDependencyError
from airflow_hive_to_delta.core.parquet.describe import FEW_FILES
from airflow_hive_to_delta.core.spark.session import local_session_conf
from airflow_hive_to_delta.engines import JobError, JobRef, JobSpec
from tests.support.airflow_runs import dag_source
from tests.support.job_processes import acting_at_open, command_of, processes_of, wait_for_end
from tests.support.jobs import conversion
from tests.support.jvm_options import FAST_START
from tests.support.lake import Lake
from tests.support.migrations import orders_and_people
from tests.support.oracle import assert_same, delta_at
from tests.support.project import PROJECT
from tests.support.spark_platforms import StandalonePlatform, YarnPlatform
from tests.support.spark_versions import JARS
from tests.support.standalone_cluster import StandaloneCluster, standalone_cluster

PAGE = PROJECT / "docs" / "engines" / "spark-submit.md"
#: An engine on the cluster, whose executors take one core each.
ENGINE = """SparkSubmit(
    "spark_test",
    deploy_mode={deploy_mode!r},
    conf={{
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
    }},
    shared_disk=True,
    poll_seconds=0.2,
)"""
#: On every machine, the Airflow worker too: the jars of Delta Lake and S3A, after those of Spark.
OF_MACHINES = {"SPARK_DIST_CLASSPATH": f"{JARS}/*"}
TASK = """
ConvertTableOperator(
    task_id="convert", table={table!r}, files={files!r}, engine={engine}, staging={staging!r}, aws_conn_id=None,
    retry_delay=timedelta(0), {more}
)
"""


@pytest.fixture(scope="module")
def cluster(airflow_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """It has Delta Lake and S3A, as a cluster has them, and an identity of its own."""
    of_session = local_session_conf()
    settings = {
        **{
            name: of_session[name]
            for name in of_session
            if name.startswith(("spark.sql.", "spark.hadoop.", "spark.databricks."))
        },
        **{f"spark.{process}.extraJavaOptions": FAST_START for process in ("driver", "executor")},
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), environment=OF_MACHINES, settings=settings) as found:
        yield found


@pytest.fixture
def on_cluster(cluster: StandaloneCluster, monkeypatch: pytest.MonkeyPatch) -> StandaloneCluster:
    """The Airflow worker has a connection to the cluster, and a Spark with the settings of the cluster."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", json.dumps(cluster.connection()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(cluster.conf))
    for name, value in OF_MACHINES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return cluster


@pytest.fixture
def spark_conn(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Defines the connection ``spark_test``."""

    def define(host: str, port: int | None = None, **extra: str) -> None:
        connection = {"conn_type": "spark", "host": host, "port": port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", json.dumps(connection))

    return define


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[YarnPlatform]:
    (folder := tmp_path / "platform").mkdir()
    platform = YarnPlatform(folder, staging="s3://b/staging")
    yield platform
    platform.close()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[StandalonePlatform]:
    (folder := tmp_path / "platform").mkdir()
    platform = StandalonePlatform(folder, staging="s3://b/staging")
    yield platform
    platform.close()


def spec(folder: Path) -> JobSpec:
    package, script = "s3://b/staging/packages/p.zip", "s3://b/staging/packages/run_job_of_zip-1.py"
    return JobSpec("Convert t", "s3://b/job/_request.json", f"file://{folder}", "token-1", package, script)


def find_process(root: int, *words: str) -> int:
    """The one process below another whose command has these words."""
    (found,) = [process for process in processes_of(root) if all(word in command_of(process) for word in words)]
    return found


def waits_for_file(process: int) -> bool:
    """Whether a thread of the process waits for a lease of a file."""
    return any("lease" in wait.read_text() for wait in Path(f"/proc/{process}/task").glob("*/wchan"))


def conversion_dag(root: Path, deploy_mode: str, staging: str, more: str, files: int = 3) -> str:
    request = conversion(root, files)
    (table,), (files,) = request.arguments["tables"], request.arguments["lists"]
    engine = ENGINE.format(deploy_mode=deploy_mode)
    return dag_source(TASK.format(table=table, files=files, engine=engine, staging=staging, more=more))


def assert_converted(spark, run, root: Path) -> None:
    assert run.state == "success", run.log[-3000:]
    assert run.xcom("convert")["success"]
    files = sorted(file for file in root.iterdir() if file.is_file())
    assert_same(spark, spark.read.parquet(*map(str, files)), delta_at(spark, root))


long_run = pytest.mark.skipif(
    "SOAK" not in os.environ, reason="a killed JVM is seen in test_local_spark.py too; make soak runs it on a cluster"
)


@pytest.mark.slow
@long_run
def test_in_client_mode_a_retry_completes_what_a_killed_driver_has_begun(
    run_dag, on_cluster, spark, tmp_path, bucket
) -> None:
    dag = conversion_dag(root := tmp_path / "t", "client", f"s3://{bucket}/staging", "retries=1")
    left: list[list[str]] = []

    def kill_driver() -> None:
        os.kill(find_process(os.getpid(), "org.apache.spark.deploy.SparkSubmit", "run_job-"), signal.SIGKILL)
        left.append(sorted(path.name for path in root.iterdir()))

    with acting_at_open(root / "f1", kill_driver):
        run = run_dag(dag)
    assert left == [["f0", "f1", "f2"]], "no half log"
    assert run.tries == {"convert": 2}
    # By the Python program, or by the engine if that was ended before it could say so.
    assert re.search(r"The driver's process was killed|The JVM of Spark's driver ended in the middle", run.log)
    assert_converted(spark, run, root)
    assert (on_cluster.daemon.log.read_text()).count("Registered app") == 2, "executors of the cluster did it"


@pytest.mark.slow
@long_run
def test_in_cluster_mode_a_deferred_task_completes_what_a_killed_driver_has_begun(
    run_dag, on_cluster, spark, tmp_path, bucket
) -> None:
    more = "retries=1, deferrable=True"
    dag = conversion_dag(root := tmp_path / "t", "cluster", f"s3://{bucket}/staging", more)

    def kill_driver() -> None:
        commands = {
            process: command_of(process)
            for worker in on_cluster.workers
            for process in processes_of(worker.process.pid)
        }
        drivers = [process for process, command in commands.items() if "DriverWrapper" in command]
        assert len(drivers) == 1, commands
        os.kill(drivers[0], signal.SIGKILL)

    with acting_at_open(root / "f1", kill_driver):
        run = run_dag(dag)
    first, second = (driver.name for driver in on_cluster.drivers())
    assert run.tries == {"convert": 2}
    assert f"as job {first} on SparkSubmit" in run.log
    assert re.search(r"The driver \S+ ended as FAILED|The JVM of Spark's driver ended in the middle", run.log)
    assert f"as job {second} on SparkSubmit" in run.log
    assert "without a worker" in run.log
    assert run.xcom("convert", "_link_SparkJobLink") == f"http://127.0.0.1:{on_cluster.ui_port}"
    assert_converted(spark, run, root)


@pytest.mark.slow
def test_the_dag_of_the_page(run_dag, on_cluster, lake: Lake, monkeypatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", os.environ["AIRFLOW_CONN_SPARK_TEST"])
    originals = orders_and_people(lake)
    (source,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    source = source.replace("s3://lake/", f"s3://{lake.bucket}/").replace('"sales', f'"{lake.database}')
    source = source.replace(" conf=", " poll_seconds=0.2, conf=").replace(
        '"spark.cores.max": "8"', '"spark.cores.max": "1"'
    )
    before = len(on_cluster.drivers())
    run = run_dag(source)
    drivers = "\n".join((driver / "stderr").read_text()[-3000:] for driver in on_cluster.drivers()[before:])
    assert run.state == "success", drivers
    outcomes = {table["table"].rpartition(".")[2]: table for table in run.xcom("report", "report")["tables"]}
    for name, original in originals.items():
        assert (outcomes[name]["status"], outcomes[name]["verified"]) == ("converted", {"counts": 0})
        assert_same(lake.spark, original, delta_at(lake.spark, lake.location(name)))
    assert len(on_cluster.drivers()) == before + 1, "one for all conversions, and for all verifications"
    assert "testing" not in run.all_xcoms(), "no credential"


@pytest.mark.slow
def test_a_job_goes_on_when_a_worker_of_the_cluster_is_killed(run_dag, on_cluster, spark, tmp_path, bucket) -> None:
    staging = f"s3://{bucket}/staging"
    dag = conversion_dag(root := tmp_path / "t", "client", staging, "retries=0", FEW_FILES + 1)
    killed = []

    def kill_worker() -> None:
        # The kernel says that the file is opened a moment before the one who opens it waits.
        until = time.monotonic() + 30
        waiting: list[Any] = []
        while not waiting and time.monotonic() < until:
            waiting = [w for w in on_cluster.workers if any(map(waits_for_file, processes_of(w.process.pid)))]
        (worker,) = waiting
        killed.append(worker)
        worker.kill()

    with acting_at_open(root / "f1", kill_worker):
        run = run_dag(dag)
    assert len(killed) == 1
    on_cluster.workers.remove(killed[0])
    assert_converted(spark, run, root)
    assert "Lost executor" in run.log


@pytest.mark.parametrize(
    ("connection", "deploy_mode", "expected"),
    [
        (("spark://h", 7077, {"deploy-mode": "cluster"}), "client", "has the deploy mode 'cluster', but the engine is"),
        (("mesos://h", 5050, {}), "client", "The master .* is 'mesos://h:5050', expected spark://HOST:PORT, yarn or"),
        (("k8s://https://h", 6443, {}), "cluster", "set namespace in the extra of the Spark connection"),
        (("local[*]", None, {}), "cluster", "on YARN, Kubernetes and a standalone cluster, and not with local"),
        (("spark://h,i", 7077, {}), "cluster", "one standalone master, and not with several"),
        (("yarn", None, {}), "cluster", "set yarn_resourcemanager_webapp_address in the extra of the connection"),
        (("yarn", None, {"spark-binary": "rm"}), "client", "cannot be used: The spark-binary extra can be one of"),
        (("yarn", None, {"spark-binary": "spark2-submit"}), "client", "spark2-submit is not on the PATH"),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused_for_good(
    spark_conn, airflow_home, tmp_path, monkeypatch, connection, deploy_mode, expected
) -> None:
    host, port, extra = connection
    spark_conn(host, port, **extra)
    for variable in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(JobError, match=expected) as refused:
        SparkSubmit("spark_test", deploy_mode=deploy_mode).submit(spec(tmp_path), {})
    assert not refused.value.retryable


def test_a_provider_that_is_not_installed_is_named(spark_conn, airflow_home, tmp_path, monkeypatch) -> None:
    spark_conn("spark://h", 7077)
    monkeypatch.setitem(sys.modules, "airflow.providers.apache.spark.hooks.spark_submit", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'airflow-hive-to-delta\[spark\]'"):
        SparkSubmit("spark_test").submit(spec(tmp_path), {})


def test_a_connection_that_is_not_defined_is_none_to_yarn(airflow_home, tmp_path) -> None:
    with pytest.raises(JobError, match="The Spark connection 'nowhere' is not defined") as refused:
        SparkSubmit("nowhere").submit(spec(tmp_path), {})
    assert not refused.value.retryable


def test_what_makes_no_engine_is_refused_when_the_dag_is_parsed(airflow_home) -> None:
    with pytest.raises(ValueError, match="deploy_mode is 'remote', expected 'client' or 'cluster'"):
        SparkSubmit(deploy_mode="remote")
    with pytest.raises(ValueError, match=r"which the connection and deploy_mode say"):
        SparkSubmit(conf={"spark.master": "yarn"})
    with pytest.raises(ValueError, match="conn_id is ''"):
        SparkSubmit("")
    arguments = {"task_id": "d", "allow": "a.b.*", "staging": "file:///staging"}
    with pytest.raises(ValueError, match="jobs of SparkSubmit cannot read their request from file://"):
        CatalogDiscoverOperator(**arguments, engine=SparkSubmit())
    CatalogDiscoverOperator(**arguments, engine=SparkSubmit(shared_disk=True))


def test_settings_are_shown_nowhere(yarn, airflow_home, tmp_path, capfd) -> None:
    engine = SparkSubmit("yarn_test", deploy_mode="cluster", conf={"spark.hadoop.fs.s3a.secret.key": "hush=123 xyz"})
    assert repr(engine) == (
        "SparkSubmit(conn_id='yarn_test', deploy_mode='cluster', conf=<spark.hadoop.fs.s3a.secret.key>)"
    )
    assert "hush" not in json.dumps(engine.serialize())
    ref = engine.submit(spec(tmp_path), {"AWS_REGION": "eu-west-1", "AWS_SECRET_ACCESS_KEY": "keep-me-here"})
    (submission,) = yarn.submissions
    assert "hush" not in " ".join(submission["arguments"])
    assert "spark.hadoop.fs.s3a.secret.key=hush\\u003d123\\u0020xyz" in submission["properties"]
    assert submission["readable"] == 0, "the folder of the settings, for others than its owner"
    for setting in ("spark.executorEnv.AWS_REGION", "spark.yarn.appMasterEnv.AWS_REGION"):
        assert f"{setting}=eu-west-1" in submission["properties"]
    assert "keep-me-here" not in submission["properties"], "keys are not sent to a cluster"
    assert not Path(submission["arguments"][submission["arguments"].index("--properties-file") + 1]).exists()
    assert "hush" not in "".join(capfd.readouterr())
    assert ref.page == f"{yarn.url}/cluster/app/{ref.id}"


def test_a_standalone_cluster_gets_no_secret_on_a_command_line(standalone, airflow_home, tmp_path) -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "abc", "spark.executor.memory": "1g"}
    with pytest.raises(JobError, match=r"'spark.hadoop.fs.s3a.secret.key', which holds a credential") as refused:
        SparkSubmit("standalone_test", deploy_mode="cluster", conf=conf).submit(spec(tmp_path), {})
    assert not refused.value.retryable
    del conf["spark.hadoop.fs.s3a.secret.key"]
    engine = SparkSubmit("standalone_test", deploy_mode="cluster", conf=conf)
    engine.submit(spec(tmp_path), {"AWS_REGION": "eu-west-1", "AWS_SECRET_ACCESS_KEY": "keep-me-here"})
    (submission,) = standalone.submissions
    assert submission["environmentVariables"] == {"AWS_REGION": "eu-west-1"}
    assert submission["sparkProperties"]["spark.executor.memory"] == "1g"
    assert "s3a://b/staging/packages/p.zip" in submission["appArgs"]
    assert "keep-me-here" not in json.dumps(submission)


def test_a_job_whose_submission_got_no_answer_from_a_standalone_master_goes_on_beside_the_next(
    run_dag, standalone, bucket
) -> None:
    standalone.submit_failures = [None]
    standalone.held = 1
    task = f"""
CatalogDiscoverOperator(
    task_id="d", allow="a.b.*", engine={standalone.engine}, staging="s3://{bucket}/staging", aws_conn_id=None,
    retries=1, retry_delay=timedelta(0),
)
"""
    run = run_dag(dag_source(task))
    assert (run.state, run.tries) == ("success", {"d": 2})
    first, second = standalone.jobs
    assert first.results_uri != second.results_uri
    standalone.end(first, "cancelled")


def test_a_master_that_cannot_be_reached_is_tried_again(spark_conn, airflow_home, tmp_path) -> None:
    spark_conn("spark://127.0.0.1", 7077, **{"rest-port": "1"})
    with pytest.raises(JobError, match=r"could not be reached at http://127\.0\.0\.1:1: ConnectionError") as refused:
        SparkSubmit("spark_test", deploy_mode="cluster").submit(spec(tmp_path), {})
    assert refused.value.retryable


def test_what_yarn_says_of_a_failure_is_the_error(yarn, airflow_home, tmp_path) -> None:
    engine = SparkSubmit("yarn_test", deploy_mode="cluster")
    ref = engine.submit(spec(tmp_path), {})
    yarn.end(yarn.jobs[0], "failed")
    yarn.jobs[0].error = "Container killed by YARN for exceeding memory limits"
    status = engine.status(ref)
    assert status.state == "failed"
    assert status.retryable
    assert "exceeding memory limits. Its log: yarn logs -applicationId " in str(status.error)
    assert engine.status(JobRef("application_1_1", "")).state == "not_found"
    assert engine.find("token-1") == JobRef(ref.id, "", ref.page)
    assert engine.find("token-2") is None


@pytest.mark.parametrize(
    ("status", "keytab", "retryable", "message"),
    [
        (401, True, True, "The Kerberos ticket of this process is missing or has expired: renew it"),
        (401, False, False, "and principal in the extra of the Spark connection, and run airflow kerberos"),
        (403, True, False, "view and end applications of the queue"),
        (500, True, None, "Service unavailable"),
    ],
)
def test_what_yarn_answers_an_identity_that_it_does_not_know(
    yarn, spark_conn, airflow_home, tmp_path, monkeypatch, status, keytab, retryable, message
) -> None:
    from requests.auth import AuthBase

    class Anonymous(AuthBase):
        def __call__(self, request):
            return request

    monkeypatch.setitem(sys.modules, "requests_kerberos", SimpleNamespace(HTTPKerberosAuth=Anonymous))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the provider's hook writes the keytab
    kerberos = {"keytab": "a2V5dGFi", "principal": "airflow@EXAMPLE.COM"} if keytab else {}
    spark_conn("yarn", yarn_resourcemanager_webapp_address=yarn.url, **kerberos)
    engine = SparkSubmit("spark_test", deploy_mode="cluster")
    ref = engine.submit(spec(tmp_path), {})
    yarn.failures = [status]
    with pytest.raises(RuntimeError if retryable is None else JobError, match=message) as error:
        engine.status(ref)
    assert getattr(error.value, "retryable", None) is retryable
    assert f"ResourceManager answered {status}: " in str(error.value)
    assert ("--keytab" in yarn.submissions[0]["arguments"]) is keytab


def test_a_keytab_that_is_a_path_is_refused(yarn, spark_conn, airflow_home, tmp_path) -> None:
    """The provider's hook leaves out the whole connection then, and submits to YARN whatever it says."""
    spark_conn("spark://127.0.0.1", 7077, keytab="/etc/airflow.keytab", principal="airflow@EXAMPLE.COM")
    with pytest.raises(
        JobError, match="keytab in the extra of the Spark connection 'spark_test' is no Base64"
    ) as refused:
        SparkSubmit("spark_test").submit(spec(tmp_path), {})
    assert not refused.value.retryable
    assert yarn.submissions == []


def test_what_spark_submit_says_is_the_error_where_yarn_has_no_application(yarn, airflow_home, tmp_path) -> None:
    yarn.submit_failures = [500]
    with pytest.raises(RuntimeError, match=r"spark-submit exited with 1, and named no application(.|\n)*IOException"):
        SparkSubmit("yarn_test", deploy_mode="cluster").submit(spec(tmp_path), {})


def test_yarn_is_found_by_the_site_of_the_cluster(yarn, spark_conn, airflow_home, tmp_path, monkeypatch) -> None:
    host, _, port = yarn.url.removeprefix("http://").partition(":")
    settings = {
        "yarn.resourcemanager.ha.rm-ids": "rm1,rm2",
        "yarn.resourcemanager.webapp.address.rm1": f"{host}:1",
        "yarn.resourcemanager.webapp.address.rm2": f"{host}:{port}",
    }
    properties = "".join(f"<property><name>{n}</name><value>{v}</value></property>" for n, v in settings.items())
    (tmp_path / "yarn-site.xml").write_text(f"<configuration>{properties}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    spark_conn("yarn")
    engine = SparkSubmit("spark_test", deploy_mode="cluster")
    ref = engine.submit(spec(tmp_path), {})
    assert engine.status(ref).state == "succeeded", "by the one that answers"


def test_a_driver_ends_with_the_process_that_started_it() -> None:
    program = [sys.executable, "-m", "airflow_hive_to_delta.engines.clusters.ends_with_input"]
    with subprocess.Popen([*program, "sleep", "600"], stdin=subprocess.PIPE, start_new_session=True) as process:
        while len(processes := processes_of(process.pid)) < 2:
            pass
        assert process.stdin is not None
        process.stdin.close()
        for each in processes:
            wait_for_end(each)
    assert process.wait() == -signal.SIGKILL
    code = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    by_signal = subprocess.run([*program, sys.executable, "-c", code], start_new_session=True, input=b"")
    assert by_signal.returncode in (-signal.SIGTERM, -signal.SIGKILL)
    missing = subprocess.run([*program, "no-such-program"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert missing.returncode == 127
