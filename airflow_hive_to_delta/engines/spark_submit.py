"""Jobs on a Spark cluster: standalone, YARN or Kubernetes, through the Apache Spark provider's connection and hook."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from airflow_hive_to_delta.core.extras import needs_extra
from airflow_hive_to_delta.core.spark.properties import property_lines
from airflow_hive_to_delta.engines.clusters.kubernetes import KubernetesCluster, check_kubernetes
from airflow_hive_to_delta.engines.clusters.spark_connection import SparkConnection, read_connection
from airflow_hive_to_delta.engines.clusters.standalone import StandaloneMaster
from airflow_hive_to_delta.engines.clusters.submission import (
    last_lines,
    run_submission,
    spark_defaults,
    start_submission,
)
from airflow_hive_to_delta.engines.clusters.yarn import ResourceManager
from airflow_hive_to_delta.engines.engine import STAGING_SCHEMES, Engine, JobError, JobRef, JobSpec, JobStatus
from airflow_hive_to_delta.engines.job_process import JobProcess, describe_end
from airflow_hive_to_delta.engines.package import main_script, package_zip
from airflow_hive_to_delta.engines.spark_settings import (
    check_settings,
    describe_settings,
    job_variables,
    refuse_secrets,
)

_Manager = StandaloneMaster | ResourceManager | KubernetesCluster
_DEPLOY_MODES = ("client", "cluster")
_APPLICATION = re.compile(rb"\bapplication_\d+_\d+\b")
_MORE_MEMORY = (
    "Give the Airflow worker more memory, let fewer jobs run at a time, or use SparkSubmit(deploy_mode='cluster')"
)


@dataclass
class SparkSubmit(Engine):
    """Runs each job on a Spark cluster that an Airflow connection of the Apache Spark provider names.

    Where the driver runs is to be known when a DAG is parsed, so it is an argument here and not part of the connection.
    In client mode it runs on the Airflow worker, and the job ends with the task's process: a later try begins anew. In
    cluster mode it runs on the cluster, and goes on without the worker; a task can be deferred. Cluster mode works on
    YARN, on Kubernetes, and on a standalone cluster of Spark 4 through the REST API of its master.

    Jobs use the identity that the cluster has. That of ``aws_conn_id`` is not sent to it.

    :param conn_id: the Spark connection.
    :param deploy_mode: where the driver runs: ``"client"``, on the Airflow worker, or ``"cluster"``.
    :param conf: settings of Spark, such as ``{"spark.executor.memory": "4g"}``. They are passed in a file that only its
        owner can read. In cluster mode a standalone cluster shows those of a driver to whoever sees its processes, and
        Kubernetes to whoever reads its ConfigMap: there, settings that hold a credential are refused.
    :param shared_disk: whether ``file://`` addresses are on a disk that the Airflow workers and all machines of the
        cluster have mounted at the same path. Without it, they are refused.
    """

    #: Not in client mode either: its executors run elsewhere, and Spark would send them the keys of its driver.
    runs_on_this_machine = False

    conn_id: str = "spark_default"
    deploy_mode: Literal["client", "cluster"] = "client"
    conf: dict[str, str] = field(default_factory=dict, repr=False)
    shared_disk: bool = False
    poll_seconds: float = 5.0
    _jobs: dict[str, JobProcess] = field(default_factory=dict, init=False, repr=False, compare=False)
    _manager: _Manager | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.conn_id, str) or not self.conn_id:
            raise ValueError(f"conn_id is {self.conn_id!r}, expected the id of a Spark connection")
        if self.deploy_mode not in _DEPLOY_MODES:
            raise ValueError(f"deploy_mode is {self.deploy_mode!r}, expected 'client' or 'cluster'")
        self.conf = check_settings(self.conf)
        for setting in ("spark.master", "spark.submit.deployMode"):
            if setting in self.conf:
                raise ValueError(f"conf has the setting {setting!r}, which the connection and deploy_mode say")
        on_cluster = self.deploy_mode == "cluster"
        self.survives_worker = on_cluster
        self.ships_package = on_cluster
        self.main_script = "run_job_of_zip.py"
        # In client mode nothing lies between this process and the driver.
        self.poll_errors = 5 if on_cluster else 0
        self.schemes = STAGING_SCHEMES if self.shared_disk else STAGING_SCHEMES - {"file"}

    def __repr__(self) -> str:
        """Leave out the values of the settings, which may be secret. Airflow writes this into a serialized DAG."""
        settings = f", conf={describe_settings(self.conf)}" if self.conf else ""
        disk = ", shared_disk=True" if self.shared_disk else ""
        return f"{type(self).__name__}(conn_id={self.conn_id!r}, deploy_mode={self.deploy_mode!r}{settings}{disk})"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Leave out the settings, which may be secret: asking for the status of a job needs none."""
        path, arguments = super().serialize()
        return path, {name: value for name, value in arguments.items() if name != "conf"}

    def submit(self, spec: JobSpec, environment: Mapping[str, str]) -> JobRef:
        connection = read_connection(self.conn_id, self.deploy_mode)
        if self.deploy_mode == "client":
            return self._run_driver(spec, connection, environment)
        manager = self._manager_of(connection)
        shared = job_variables(environment)
        if isinstance(manager, ResourceManager):
            application = self._submit_to_yarn(spec, connection, shared)
            return JobRef(application, spec.results_uri, manager.page(application))
        if isinstance(manager, KubernetesCluster):
            return JobRef(self._submit_to_kubernetes(spec, connection, manager, shared), spec.results_uri)
        return JobRef(self._submit_to_standalone(spec, manager, shared), spec.results_uri, manager.page)

    def find(self, token: str) -> JobRef | None:
        """Find an application on YARN by its tag, and a driver on Kubernetes by its name.

        A standalone master keeps no token, so None is returned there: a driver whose submission got no answer goes on
        beside the next one, and writes only its own results.
        """
        # Neither keeps the address of the results; the caller has it.
        match self._cluster_manager():
            case ResourceManager() as manager:
                application = manager.find(token.lower())
                return None if application is None else JobRef(application, "", manager.page(application))
            case KubernetesCluster() as cluster:
                driver = cluster.find(token)
                return None if driver is None else JobRef(driver, "")
        return None

    def status(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        if self.deploy_mode == "client":
            driver = self._jobs.get(ref.id)
            if driver is None:
                return JobStatus("not_found", "The job ended with the process that started it")
            return driver.status(cursor, lambda code: describe_end(code, "driver's process", _MORE_MEMORY))
        manager = self._cluster_manager()
        assert manager is not None, "of a job in cluster mode"
        status = manager.status(ref.id)
        # One line for each state that the job comes to.
        line = status.log[0] if status.log else cursor
        return replace(status, log=[] if line == cursor else status.log, cursor=line)

    def cancel(self, ref: JobRef, within: float) -> None:
        if self.deploy_mode == "client":
            if (driver := self._jobs.pop(ref.id, None)) is not None:
                driver.cancel(within)
        elif (manager := self._cluster_manager()) is not None:
            manager.kill(ref.id, within)

    def _cluster_manager(self) -> _Manager | None:
        if self.deploy_mode == "client":
            return None
        return self._manager or self._manager_of(read_connection(self.conn_id, self.deploy_mode))

    def _manager_of(self, connection: SparkConnection) -> _Manager:
        """The cluster manager that a connection names, for cluster mode.

        :raises JobError: there is no cluster mode for this connection.
        """
        match connection.cluster_manager:
            case "standalone":
                self._manager = StandaloneMaster.of(connection)
            case "yarn":
                self._manager = ResourceManager.of(connection)
            case "kubernetes":
                self._manager = KubernetesCluster.of(connection, self.conf)
            case other:
                raise JobError(
                    f"The master of the Spark connection {connection.conn_id!r} is {connection.master!r}: "
                    f"SparkSubmit(deploy_mode='cluster') works on YARN, Kubernetes and a standalone cluster, and not "
                    f"with {other}. Use deploy_mode='client': the driver then runs on the Airflow worker",
                    retryable=False,
                )
        return self._manager

    def _run_driver(self, spec: JobSpec, connection: SparkConnection, environment: Mapping[str, str]) -> JobRef:
        """Client mode: start ``spark-submit``, whose process is the driver's."""
        conf = _executor_variables(job_variables(environment)) | self.conf
        # The driver needs pyarrow and boto3, which the first Python on the path may not have.
        defaults = {"spark.ui.showConsoleProgress": "false"}
        if not os.environ.get("PYSPARK_DRIVER_PYTHON"):
            defaults["spark.pyspark.driver.python"] = sys.executable
        folder = Path(tempfile.mkdtemp(prefix="hive-to-delta-"))
        try:
            command = self._command(spec, connection, folder, defaults, conf)
            # Spark's scratch goes with the folder, even when Spark was killed and could not remove it.
            scratch = {} if os.environ.get("SPARK_LOCAL_DIRS") else {"SPARK_LOCAL_DIRS": str(folder)}
            driver = start_submission(command, folder, {**scratch, **environment})
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        job = str(driver.process.pid)
        self._jobs[job] = driver
        return JobRef(job, spec.results_uri)

    def _submit_to_yarn(self, spec: JobSpec, connection: SparkConnection, variables: Mapping[str, str]) -> str:
        """Run ``spark-submit`` until YARN has the application: the id that YARN gave it.

        :raises Exception: it ended without an id. It may have been submitted nevertheless: YARN knows it by its tag.
        """
        tags = [tag for tag in self.conf.get("spark.yarn.tags", "").split(",") if tag]
        conf = {
            **_executor_variables(variables),
            **{f"spark.yarn.appMasterEnv.{name}": value for name, value in variables.items()},
            **self.conf,
            "spark.yarn.tags": ",".join([*tags, spec.token.lower()]),
            "spark.yarn.submit.waitAppCompletion": "false",
        }
        code, output = self._submit(spec, connection, lambda _: conf)
        if found := _APPLICATION.search(output):
            return found[0].decode()
        raise RuntimeError(f"spark-submit exited with {code}, and named no application. {last_lines(output)}")

    def _submit_to_kubernetes(
        self, spec: JobSpec, connection: SparkConnection, cluster: KubernetesCluster, variables: Mapping[str, str]
    ) -> str:
        """Run ``spark-submit`` until Kubernetes has the pod of the driver: the namespace and the name of the pod.

        :raises Exception: it failed. The pod may have been created nevertheless: it is known by its name.
        """
        self._refuse_secrets(
            "Kubernetes has the settings of a driver in a ConfigMap. Use the identity of a service account, or "
            "spark.kubernetes.driver.secretKeyRef, or deploy_mode='client'"
        )
        given = _executor_variables(variables) | self.conf
        code, output = self._submit(
            spec, connection, lambda folder: cluster.settings(spec.token, spec.timeout, variables, given, folder)
        )
        if code != 0:
            raise RuntimeError(f"spark-submit exited with {code}. {last_lines(output)}")
        return cluster.job_id(spec.token)

    def _submit_to_standalone(self, spec: JobSpec, master: StandaloneMaster, variables: Mapping[str, str]) -> str:
        self._refuse_secrets(
            "A standalone cluster has the settings of a driver on its command line. Put it into the "
            "spark-defaults.conf of the cluster's workers, or use deploy_mode='client'"
        )
        conf = {**_executor_variables(variables), **self.conf}
        return master.submit(spec.name, _staged_program(spec), conf, variables)

    def _refuse_secrets(self, instead: str) -> None:
        try:
            refuse_secrets(self.conf, instead)
        except ValueError as error:
            raise JobError(str(error), retryable=False) from error

    def _submit(
        self, spec: JobSpec, connection: SparkConnection, settings: Callable[[Path], Mapping[str, str]]
    ) -> tuple[int, bytes]:
        """Run ``spark-submit`` in cluster mode, which ends when the job is submitted: its exit code, and its output.

        :param settings: makes the settings of the job. It may write files that they name into the folder.
        """
        folder = Path(tempfile.mkdtemp(prefix="hive-to-delta-"))
        try:
            command = self._command(spec, connection, folder, {}, settings(folder))
            return run_submission(command, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _command(
        self,
        spec: JobSpec,
        connection: SparkConnection,
        folder: Path,
        defaults: Mapping[str, str],
        conf: Mapping[str, str],
    ) -> list[str]:
        """The command of ``spark-submit``, as the provider's hook makes it, with all that it names in a private folder.

        :param defaults: settings that those of the machine, in ``spark-defaults.conf``, replace.
        """
        with needs_extra("spark", "SparkSubmit"):
            from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
        on_kubernetes = connection.cluster_manager == "kubernetes"
        if on_kubernetes:
            check_kubernetes()
        if on_kubernetes and self.deploy_mode == "cluster":
            py_files, (main, *arguments) = None, _staged_program(spec)
        else:
            package, script = package_zip(), main_script()
            for file in (package, script):
                (folder / file.name).write_bytes(file.content)
            py_files, main, arguments = str(folder / package.name), str(folder / script.name), spec.arguments
        try:
            hook = SparkSubmitHook(
                conn_id=self.conn_id,
                deploy_mode=self.deploy_mode,
                name=spec.name,
                py_files=py_files,
                application_args=arguments,
                properties_file=str(folder / "spark.properties"),
            )
            # Its submit() blocks until the end of the job, and the id of an application on YARN is its own.
            command: list[str] = hook._build_spark_submit_command(main)
        except (ValueError, RuntimeError, NameError) as error:
            raise JobError(
                f"The Spark connection {connection.conn_id!r} cannot be used: {error}", retryable=False
            ) from error
        if shutil.which(command[0]) is None:
            raise JobError(
                f"{command[0]} is not on the PATH of the Airflow worker. Install Spark there, in the version of the "
                "cluster, such as by pip install pyspark==VERSION",
                retryable=False,
            )
        # spark-submit reads no other file beside the one that it is given.
        texts = [property_lines(defaults), spark_defaults(command[0]), property_lines(conf)]
        (folder / "spark.properties").write_text("\n".join(texts), encoding="utf-8")
        return command


def _executor_variables(variables: Mapping[str, str]) -> dict[str, str]:
    return {f"spark.executorEnv.{name}": value for name, value in variables.items()}


def _staged_program(spec: JobSpec) -> list[str]:
    """The script that lies under the staging root, and its arguments: the zip that lies beside it, and the job's."""
    if spec.package_uri is None or spec.main_uri is None:
        raise JobError(
            "A job in cluster mode on a standalone cluster or on Kubernetes needs the package under the staging root",
            retryable=False,
        )
    return [_hadoop_uri(spec.main_uri), _hadoop_uri(spec.package_uri), *spec.arguments]


def _hadoop_uri(uri: str) -> str:
    """An address with ``s3a://`` for ``s3://``, which Hadoop knows on every cluster with S3."""
    return f"s3a://{uri.removeprefix('s3://')}" if uri.startswith("s3://") else uri
