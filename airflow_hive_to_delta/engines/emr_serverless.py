"""Jobs on an application of Amazon EMR Serverless."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from airflow_hive_to_delta.core.spark.properties import DELTA_SETTINGS
from airflow_hive_to_delta.core.storage.aws_errors import error_code
from airflow_hive_to_delta.core.storage.uri import parse_location
from airflow_hive_to_delta.engines.aws import (
    AwsEngine,
    console,
    s3_uri,
    start_job,
    timeout_minutes,
)
from airflow_hive_to_delta.engines.engine import JobRef, JobSpec, JobState, JobStatus
from airflow_hive_to_delta.engines.spark_settings import (
    check_settings,
    describe_settings,
    job_variables,
    refuse_secrets,
)

#: Where releases of EMR from 7.0 on have Delta Lake.
_DELTA_JARS = "/usr/share/aws/delta/lib/delta-spark.jar,/usr/share/aws/delta/lib/delta-storage.jar"
_STATES: dict[str, JobState] = {
    "SUBMITTED": "pending",
    "PENDING": "pending",
    "SCHEDULED": "pending",
    "QUEUED": "pending",
    "RUNNING": "running",
    "CANCELLING": "running",
    "SUCCESS": "succeeded",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
}
#: How far back a job is looked for by its token. By default Airflow waits at most a day between two tries.
_FIND_WITHIN = timedelta(days=7)
#: The longest name of a job run.
_NAME_LENGTH = 256


@dataclass(repr=False)
class EmrServerless(AwsEngine):
    """Runs each job as a job run of an application of EMR Serverless, release 7 or later.

    The job runs with the execution role, whatever identity the task has. It needs Python 3.11 with pyarrow and boto3:
    in a custom image of the application, or in ``python_archive``. A job run is submitted with the job's token as its
    client token, so that a submission whose answer was lost starts no second one.

    :param application_id: the id of the application. One that is stopped is started by EMR itself, unless that is
        switched off for it.
    :param execution_role_arn: the ARN of the role that jobs run with.
    :param log_uri: an address on S3 for the logs of drivers and executors; None: EMR keeps them for 30 days where the
        application says so.
    :param python_archive: the address of an archive with a Python environment, as ``venv-pack`` makes it; None: the
        Python of the image.
    :param conf: more settings of Spark, such as ``{"spark.executor.memory": "8g"}``. They are shown with the job run,
        so that those with a secret are refused.
    :param delta_jars: the jars of Delta Lake, separated by commas; None: they are on the class path of the image.
    :param tags: the tags of job runs. The identity that submits them then needs ``emr-serverless:TagResource``.
    :param aws_conn_id: the AWS connection by which job runs are submitted, watched and ended. It is looked up when the
        task or the trigger runs; None: the identity of that process.
    :param region_name: the region of the application, when the connection names none.
    :param poll_seconds: how often the state of a job run is asked for.
    """

    service = "emr-serverless"

    application_id: str
    execution_role_arn: str
    log_uri: str | None = None
    python_archive: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    delta_jars: str | None = _DELTA_JARS
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.application_id, str) or not re.fullmatch(r"[0-9a-z]{1,64}", self.application_id):
            raise ValueError(
                f"application_id is {self.application_id!r}, expected the id of an application of EMR Serverless, "
                "such as '00fabc1234defg09'"
            )
        if not isinstance(self.execution_role_arn, str) or not re.fullmatch(
            r"arn:aws[\w-]*:iam::\d{12}:role/\S+", self.execution_role_arn
        ):
            raise ValueError(
                f"execution_role_arn is {self.execution_role_arn!r}, expected the ARN of a role, such as "
                "'arn:aws:iam::123456789012:role/hive-to-delta'"
            )
        for name in ("log_uri", "python_archive"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value.startswith("s3://")):
                raise ValueError(f"{name} is {value!r}, expected an address that begins with 's3://'")
        self.conf = check_settings(self.conf)
        refuse_secrets(self.conf, "Give the execution role access instead, or let the job read it from a secret store")

    def __repr__(self) -> str:
        """Leave out the values of the settings. Airflow writes this into a serialized DAG."""
        settings = f", conf={describe_settings(self.conf)}" if self.conf else ""
        return (
            f"{type(self).__name__}(application_id={self.application_id!r}, "
            f"execution_role_arn={self.execution_role_arn!r}{settings}, aws_conn_id={self.aws_conn_id!r})"
        )

    def submit(self, spec: JobSpec, environment: Mapping[str, str]) -> JobRef:
        request = self._describe(spec, environment)
        answer = start_job(
            lambda: self.call("start_job_run", **request),
            f"Starting {spec.name} on the application {self.application_id} of EMR Serverless",
            repeatable=True,
            advice=self._advice,
            # A conflict is one of an application that is just being started or stopped.
            transient={"ConflictException", "ServiceQuotaExceededException"},
        )
        return self._ref(answer["jobRunId"], spec.results_uri)

    def find(self, token: str) -> JobRef | None:
        """The job run whose name ends in the token.

        It is looked for, and not submitted again with its client token: that could start a run anew which a person has
        cancelled.
        """
        for found in self._list_runs():
            if found.get("name", "").endswith(_name_ending(token)):
                run = self._get_run(found["id"])
                arguments = run["jobDriver"]["sparkSubmit"]["entryPointArguments"]
                return self._ref(found["id"], arguments[arguments.index("--results") + 1])
        return None

    def status(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        from botocore.exceptions import ClientError

        try:
            run = self._get_run(ref.id)
        except ClientError as error:
            if error_code(error) != "ResourceNotFoundException":
                raise
            return JobStatus(
                "not_found",
                f"EMR Serverless knows no job run {ref.id} of the application {self.application_id}: the application "
                "was deleted, or is another one than the job was submitted to",
                cursor=cursor,
            )
        state = _STATES.get(run["state"], "running")
        return JobStatus(state, self._describe_end(ref, state, run), cursor=cursor)

    def cancel(self, ref: JobRef, within: float) -> None:
        from botocore.exceptions import ClientError

        run = {"applicationId": self.application_id, "jobRunId": ref.id}
        try:
            # Two calls at most, each with a time to connect and a time to answer.
            self.ask("cancel_job_run", f"Cancelling the job run {ref.id} on EMR Serverless", timeout=within / 4, **run)
        except ClientError as error:
            if error_code(error) == "ResourceNotFoundException":
                return
            if error_code(error) not in ("ValidationException", "ConflictException"):
                raise
            state = self._get_run(ref.id, within / 4)["state"]
            if state not in ("SUCCESS", "FAILED", "CANCELLING", "CANCELLED"):
                raise

    def _describe(self, spec: JobSpec, environment: Mapping[str, str]) -> dict[str, Any]:
        """The arguments of ``start_job_run``."""
        ending = _name_ending(spec.token)
        overrides: dict[str, Any] = {
            # Not as parameters of spark-submit, whose values would have to be quoted.
            "applicationConfiguration": [
                {"classification": "spark-defaults", "properties": self._settings(environment)}
            ],
        }
        if self.log_uri is not None:
            overrides["monitoringConfiguration"] = {"s3MonitoringConfiguration": {"logUri": self.log_uri}}
        return {
            "applicationId": self.application_id,
            "clientToken": spec.token,
            "executionRoleArn": self.execution_role_arn,
            "jobDriver": {
                "sparkSubmit": {
                    "entryPoint": s3_uri(spec.main_uri),
                    "entryPointArguments": spec.arguments,
                    "sparkSubmitParameters": f"--py-files {s3_uri(spec.package_uri)}",
                }
            },
            "configurationOverrides": overrides,
            # Without it EMR ends a job run after 12 hours; 0 is no limit.
            "executionTimeoutMinutes": timeout_minutes(spec.timeout) or 0,
            "name": spec.name[: _NAME_LENGTH - len(ending)] + ending,
            **({"tags": self.tags} if self.tags else {}),
        }

    def _settings(self, environment: Mapping[str, str]) -> dict[str, str]:
        settings = dict(DELTA_SETTINGS)
        variables = job_variables(environment)
        if self.delta_jars is not None:
            settings["spark.jars"] = self.delta_jars
        if self.python_archive is not None:
            settings["spark.archives"] = f"{self.python_archive}#environment"
            python = "./environment/bin/python"
            settings["spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON"] = python
            variables["PYSPARK_PYTHON"] = python
        for name, value in variables.items():
            settings[f"spark.emr-serverless.driverEnv.{name}"] = value
            settings[f"spark.executorEnv.{name}"] = value
        return settings | self.conf

    def _get_run(self, run: str, timeout: float | None = None) -> dict[str, Any]:
        where = {"applicationId": self.application_id, "jobRunId": run}
        doing = f"Asking EMR Serverless for the job run {run}"
        found: dict[str, Any] = self.ask("get_job_run", doing, timeout=timeout, **where)["jobRun"]
        return found

    def _list_runs(self) -> Iterator[dict[str, Any]]:
        page: dict[str, Any] = {
            "applicationId": self.application_id,
            "createdAtAfter": datetime.now(UTC) - _FIND_WITHIN,
        }
        while True:
            answer = self.ask("list_job_runs", "Looking for a job run on EMR Serverless", maxResults=50, **page)
            yield from answer["jobRuns"]
            if not answer.get("nextToken"):
                return
            page["nextToken"] = answer["nextToken"]

    def _ref(self, run: str, results_uri: str) -> JobRef:
        return JobRef(run, results_uri, self._page(run))

    def _page(self, run: str) -> str:
        """The logs of a run in the console of S3, or else the page of EMR Serverless.

        The dashboard that EMR gives an address of is not linked: the address holds a token, and is good for an hour.
        """
        if self.log_uri is None:
            return console(self.region, f"emr/home?region={self.region}#/serverless")
        logs = parse_location(self._logs(run))
        return console(self.region, f"s3/buckets/{logs.authority}?region={self.region}&prefix={quote(logs.key)}/")

    def _logs(self, run: str) -> str:
        """Where EMR writes the logs of a run."""
        return f"{(self.log_uri or '').rstrip('/')}/applications/{self.application_id}/jobs/{run}"

    def _describe_end(self, ref: JobRef, state: JobState, run: Mapping[str, Any]) -> str | None:
        if state not in ("failed", "cancelled"):
            return None
        details = str(run.get("stateDetails") or "").strip().rstrip(".")
        where = f"Its logs are at {self._logs(ref.id)}" if self.log_uri is not None else "Its logs are in EMR Studio"
        reason = f": {details}" if details else ""
        how = "failed on EMR Serverless" if state == "failed" else "was cancelled on EMR Serverless"
        return f"The job run {ref.id} {how}, without a result{reason}. {where}"

    def _advice(self) -> dict[str, str]:
        application, role = self.application_id, self.execution_role_arn
        return {
            "AccessDeniedException": (
                f"Allow the identity of the connection {self.aws_conn_id!r} emr-serverless:StartJobRun on the "
                f"application {application}, and iam:PassRole on {role}"
            ),
            "ResourceNotFoundException": (
                f"Correct application_id, which is {application!r}, or region_name, which is "
                f"{self.region!r} for the connection {self.aws_conn_id!r}"
            ),
            "ValidationException": (
                f"Check that the application {application} runs Spark, release emr-7 or later, that it is not "
                f"terminated, and that EMR Serverless may assume the role {role}"
            ),
            "ConflictException": (
                f"The application {application} is being started or stopped, or is stopped and not started by itself: "
                "then start it, or switch on its autoStartConfiguration"
            ),
            "ServiceQuotaExceededException": (
                "Let fewer jobs run at a time, by a pool or max_active_tis_per_dag, let the application queue them, "
                "or ask AWS for more"
            ),
        }


def _name_ending(token: str) -> str:
    """The end of a job run's name, by which the run is found again: lists of job runs have no token."""
    return f" [{token}]"
