"""Jobs on AWS Glue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from airflow_hive_to_delta.core.spark.properties import DELTA_SETTINGS
from airflow_hive_to_delta.core.storage.aws_errors import error_code
from airflow_hive_to_delta.engines.aws import (
    AwsEngine,
    console,
    s3_uri,
    start_job,
    timeout_minutes,
)
from airflow_hive_to_delta.engines.engine import JobError, JobRef, JobSpec, JobState, JobStatus
from airflow_hive_to_delta.engines.spark_settings import (
    check_settings,
    describe_settings,
    job_variables,
    refuse_secrets,
)

#: A job definition of Glue that begins so is this engine's, to be changed when the engine is.
_DESCRIPTION = "airflow-hive-to-delta: runs its Spark jobs. Changed by the DAGs that use it."
_OWN = "airflow-hive-to-delta"
_STATES: dict[str, JobState] = {
    "STARTING": "pending",
    "WAITING": "pending",
    "RUNNING": "running",
    "STOPPING": "running",
    "STOPPED": "cancelled",
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "ERROR": "failed",
    "TIMEOUT": "failed",
    "EXPIRED": "failed",
}
#: The longest that Glue lets a run take: seven days.
_MAX_MINUTES = 10080
#: How far back a run is looked for by its token. By default Airflow waits at most a day between two tries.
_FIND_WITHIN = timedelta(days=7)
#: How often the definition is changed while others change it.
_UPDATES = 5
_TRANSIENT = {
    "ConcurrentRunsExceededException",
    "ResourceNumberLimitExceededException",
    "EntityNotFoundException",
    "OperationTimeoutException",
}
#: By these Glue says that the definition was created or changed in between.
_LOST_RACES = {
    "AlreadyExistsException",
    "IdempotentParameterMismatchException",
    "ConcurrentModificationException",
    "EntityNotFoundException",
}


@dataclass(repr=False)
class GlueJob(AwsEngine):
    """Runs each job as a run of one job definition of AWS Glue, version 5.0 or later.

    The definition is created by the first task that needs it, and changed when the engine's arguments are. What differs
    from run to run is passed with the run, so that DAGs with different staging roots or versions of this package can
    share a definition. Runs have the role, whatever identity the task has.

    :param name: the name of the job definition. One that this engine has not made is left alone, and refused.
    :param role: the name or the ARN of the role that jobs run with.
    :param glue_version: the version of Glue.
    :param worker_type: what a worker is: ``G.1X``, ``G.2X`` and so on.
    :param number_of_workers: of one run, the driver's among them.
    :param max_concurrent_runs: how many runs of the definition Glue lets run at a time. A submission beyond is refused
        by Glue, and left to the task's retries.
    :param execution_class: ``STANDARD``, or ``FLEX`` for spare capacity, which may be late or taken away.
    :param connections: the names of connections of Glue, for workers in a VPC.
    :param security_configuration: the name of a security configuration of Glue.
    :param python_modules: modules that ``pip`` installs on the workers, separated by commas, such as
        ``"pyarrow==18.1.0"``; None: what the version of Glue has.
    :param conf: more settings of Spark, such as ``{"spark.sql.shuffle.partitions": "64"}``. They are shown with the
        run, so that those with a secret are refused.
    :param aws_conn_id: the AWS connection by which runs are started, watched and stopped. It is looked up when the
        task or the trigger runs; None: the identity of that process.
    :param region_name: the region of the job, when the connection names none.
    :param poll_seconds: how often the state of a run is asked for.
    """

    service = "glue"
    main_script = "run_glue_job.py"

    name: str
    role: str
    glue_version: str = "5.0"
    worker_type: str = "G.1X"
    number_of_workers: int = 2
    max_concurrent_runs: int = 200
    execution_class: str = "STANDARD"
    connections: list[str] = field(default_factory=list)
    security_configuration: str | None = None
    python_modules: str | None = None
    conf: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for text in ("name", "role", "glue_version", "worker_type"):
            if not isinstance(getattr(self, text), str) or not getattr(self, text).strip():
                raise ValueError(f"{text} is {getattr(self, text)!r}, expected a text")
        if not re.fullmatch(r"\d+\.\d+", self.glue_version) or float(self.glue_version) < 5:
            raise ValueError(
                f"glue_version is {self.glue_version!r}, expected '5.0' or later: before, Python is too old"
            )
        for name, least in (("number_of_workers", 2), ("max_concurrent_runs", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"{name} is {value!r}, expected a whole number, at least {least}")
        if self.execution_class not in ("STANDARD", "FLEX"):
            raise ValueError(f"execution_class is {self.execution_class!r}, expected 'STANDARD' or 'FLEX'")
        self.connections = list(self.connections)
        self.conf = check_settings(self.conf)
        refuse_secrets(self.conf, "Give the role access instead, or let the job read it from a secret store")
        for name, setting in self.conf.items():
            if re.search(r"\s", setting):
                raise ValueError(f"conf[{name!r}] has a space: Glue takes settings of Spark without any")

    def __repr__(self) -> str:
        """Leave out the values of the settings. Airflow writes this into a serialized DAG."""
        settings = f", conf={describe_settings(self.conf)}" if self.conf else ""
        return (
            f"{type(self).__name__}(name={self.name!r}, role={self.role!r}, worker_type={self.worker_type!r}, "
            f"number_of_workers={self.number_of_workers!r}{settings}, aws_conn_id={self.aws_conn_id!r})"
        )

    def submit(self, spec: JobSpec, environment: Mapping[str, str]) -> JobRef:
        start_job(
            lambda: self._prepare_definition(spec),
            f"Preparing the Glue job {self.name!r} for {spec.name}",
            repeatable=True,
            advice=self._advice,
            transient=_TRANSIENT,
        )
        request = self._describe_run(spec, environment)
        answer = start_job(
            lambda: self.call("start_job_run", **request),
            f"Starting {spec.name} as a run of the Glue job {self.name!r}",
            repeatable=False,  # Glue knows no client token: each call may start a run
            advice=self._advice,
            transient=_TRANSIENT,
        )
        return self._ref(answer["JobRunId"], spec.results_uri)

    def find(self, token: str) -> JobRef | None:
        """The run that has the token among its arguments."""
        from botocore.exceptions import ClientError

        try:
            for run in self._list_runs():
                arguments = run.get("Arguments", {})
                if arguments.get("--token") == token:
                    return self._ref(run["Id"], arguments["--results"])
        except ClientError as error:
            if error_code(error) != "EntityNotFoundException":  # of the job definition, which has no runs then
                raise
        return None

    def status(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        from botocore.exceptions import ClientError

        try:
            run = self._get_run(ref.id)
        except ClientError as error:
            if error_code(error) != "EntityNotFoundException":
                raise
            return JobStatus(
                "not_found", f"Glue knows no run {ref.id} of the job {self.name!r}: the job was deleted", cursor=cursor
            )
        state = _STATES.get(run["JobRunState"], "running")
        return JobStatus(state, self._describe_end(ref, run), cursor=cursor)

    def cancel(self, ref: JobRef, within: float) -> None:
        # Two calls at most, each with a time to connect and a time to answer.
        run = {"JobName": self.name, "JobRunIds": [ref.id]}
        answer = self.ask("batch_stop_job_run", f"Stopping the run {ref.id} on Glue", timeout=within / 4, **run)
        for refused in answer.get("Errors", ()):
            detail = refused.get("ErrorDetail", {})
            if detail.get("ErrorCode") == "EntityNotFoundException":
                continue
            if self._get_run(ref.id, within / 4)["JobRunState"] in ("STARTING", "WAITING", "RUNNING"):
                raise JobError(
                    f"Glue does not stop the run {ref.id} of the job {self.name!r}: {detail.get('ErrorCode')}: "
                    f"{detail.get('ErrorMessage')}",
                    retryable=True,
                )

    def _prepare_definition(self, spec: JobSpec) -> None:
        """Create the job definition, or change it where it is not as the engine says. Other tasks may do so, too."""
        from botocore.exceptions import ClientError

        wanted = self._describe_definition()
        for _ in range(_UPDATES):
            found = self._get_definition()
            try:
                if found is None:
                    command = {"Name": "glueetl", "PythonVersion": "3", "ScriptLocation": s3_uri(spec.main_uri)}
                    self.call("create_job", Name=self.name, Command=command, **wanted)
                elif not str(found.get("Description", "")).startswith(_OWN):
                    raise JobError(
                        f"There is a Glue job {self.name!r} already that is not of this engine: its description is "
                        f"{found.get('Description', '')!r}, expected one that begins with {_OWN!r}. Choose another "
                        "name, or give the job such a description if it is meant for this",
                        retryable=False,
                    )
                elif _differs(found, wanted):
                    self.call("update_job", JobName=self.name, JobUpdate={"Command": found["Command"], **wanted})
            except ClientError as error:
                if error_code(error) not in _LOST_RACES:
                    raise
                continue  # another task was quicker: see what it has made
            return
        raise JobError(
            f"The Glue job {self.name!r} is changed by others all the time: let engines with different arguments have "
            "jobs of different names",
            retryable=True,
        )

    def _get_definition(self) -> dict[str, Any] | None:
        from botocore.exceptions import ClientError

        try:
            found: dict[str, Any] = self.call("get_job", JobName=self.name)["Job"]
        except ClientError as error:
            if error_code(error) != "EntityNotFoundException":
                raise
            return None
        return found

    def _describe_definition(self) -> dict[str, Any]:
        """The part of the job definition that a run cannot override."""
        return {
            "Description": _DESCRIPTION,
            "Role": self.role,
            "GlueVersion": self.glue_version,
            "ExecutionProperty": {"MaxConcurrentRuns": self.max_concurrent_runs},
            "MaxRetries": 0,  # Airflow tries again, and knows which tables are done
            "WorkerType": self.worker_type,
            "NumberOfWorkers": self.number_of_workers,
            **({"Connections": {"Connections": self.connections}} if self.connections else {}),
        }

    def _describe_run(self, spec: JobSpec, environment: Mapping[str, str]) -> dict[str, Any]:
        """The arguments of ``start_job_run``."""
        variables = job_variables(environment)
        conf = {
            **DELTA_SETTINGS,
            **{f"spark.executorEnv.{name}": value for name, value in variables.items()},
            **self.conf,
        }
        arguments = {
            "--scriptLocation": s3_uri(spec.main_uri),
            "--extra-py-files": s3_uri(spec.package_uri),
            "--datalake-formats": "delta",
            # Glue takes one value for a name: the settings after the first are part of it.
            "--conf": " --conf ".join(f"{name}={value}" for name, value in conf.items()),
            "--request": spec.request_uri,
            "--results": spec.results_uri,
            "--token": spec.token,
        }
        if variables:  # Glue sets no variables of these names for the driver; the job does it itself
            arguments["--variables"] = ",".join(f"{name}={value}" for name, value in variables.items())
        if self.python_modules is not None:
            arguments["--additional-python-modules"] = self.python_modules
        security = {"SecurityConfiguration": self.security_configuration} if self.security_configuration else {}
        return {
            "JobName": self.name,
            "Arguments": arguments,
            # Without it Glue ends a run after eight hours, or two days, by its version.
            "Timeout": min(timeout_minutes(spec.timeout) or _MAX_MINUTES, _MAX_MINUTES),
            "WorkerType": self.worker_type,
            "NumberOfWorkers": self.number_of_workers,
            "ExecutionClass": self.execution_class,
            **security,
        }

    def _get_run(self, run: str, timeout: float | None = None) -> dict[str, Any]:
        doing = f"Asking Glue for the run {run} of the job {self.name!r}"
        found: dict[str, Any] = self.ask("get_job_run", doing, timeout=timeout, JobName=self.name, RunId=run)["JobRun"]
        return found

    def _list_runs(self) -> Iterator[dict[str, Any]]:
        """The runs of the last days, the latest first."""
        page: dict[str, Any] = {"JobName": self.name}
        oldest = datetime.now(UTC) - _FIND_WITHIN
        while True:
            doing = f"Looking for a run of the Glue job {self.name!r}"
            answer = self.ask("get_job_runs", doing, MaxResults=200, **page)
            for run in answer["JobRuns"]:
                if run.get("StartedOn", oldest) < oldest:
                    return
                yield run
            if not answer.get("NextToken"):
                return
            page["NextToken"] = answer["NextToken"]

    def _ref(self, run: str, results_uri: str) -> JobRef:
        path = f"gluestudio/home?region={self.region}#/job/{quote(self.name, safe='')}/run/{run}"
        return JobRef(run, results_uri, console(self.region, path))

    def _describe_end(self, ref: JobRef, run: Mapping[str, Any]) -> str | None:
        ends = {
            "FAILED": "failed",
            "ERROR": "could not be run by Glue",
            "TIMEOUT": f"was ended by Glue at its timeout of {run.get('Timeout')} minutes",
            "EXPIRED": "waited in the queue of Glue for too long",
            "STOPPED": "was cancelled on Glue",
        }
        if run["JobRunState"] not in ends:
            return None
        message = str(run.get("ErrorMessage") or run.get("StateDetail") or "").strip().rstrip(".")
        reason = f": {message}" if message else ""
        logs = f"CloudWatch, in the log groups below {run.get('LogGroupName') or '/aws-glue/jobs'}, stream {ref.id}"
        how = ends[run["JobRunState"]]
        return f"The run {ref.id} of the Glue job {self.name!r} {how}, without a result{reason}. Its logs are in {logs}"

    def _advice(self) -> dict[str, str]:
        return {
            "AccessDeniedException": (
                f"Allow the identity of the connection {self.aws_conn_id!r} glue:GetJob, glue:CreateJob, "
                f"glue:UpdateJob and glue:StartJobRun on the job {self.name}, and iam:PassRole on {self.role}"
            ),
            "InvalidInputException": (
                f"Check that the role {self.role} is there and trusts glue.amazonaws.com, and that Glue "
                f"{self.glue_version} has workers of type {self.worker_type} in {self.region}"
            ),
            "EntityNotFoundException": f"The job {self.name!r} was deleted since; the next try creates it",
            "ConcurrentRunsExceededException": (
                f"max_concurrent_runs is {self.max_concurrent_runs}: raise it, or let fewer tasks run at a time, by a "
                "pool or max_active_tis_per_dag"
            ),
            "ResourceNumberLimitExceededException": (
                "The account has too many workers or runs of Glue at a time: let fewer tasks run, or ask AWS for more"
            ),
        }


def _differs(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a job definition differs from the wanted one in a part that a run cannot override."""

    def compared(definition: Mapping[str, Any]) -> tuple[Any, ...]:
        return (
            str(definition.get("Role", "")).rpartition("/")[2],  # Glue may give the ARN for a name
            definition.get("GlueVersion"),
            definition.get("ExecutionProperty", {}).get("MaxConcurrentRuns"),
            definition.get("MaxRetries", 0),
            sorted(definition.get("Connections", {}).get("Connections", ())),
        )

    return compared(found) != compared(wanted)
