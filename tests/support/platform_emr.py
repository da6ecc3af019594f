"""A stand-in for EMR Serverless, with one application."""

from __future__ import annotations

import shlex
import uuid
from datetime import datetime
from typing import Any

from tests.support.aws import REGION, ROLE
from tests.support.aws_apis import ApiError, AwsPlatform, JobRun, Operation, rest_arguments
from tests.support.platforms import PlatformJob
from tests.support.spark_submit_runs import platform_environment, spark_submit

APPLICATION = "00fabc1234defg09"
_DRIVER = "spark.emr-serverless.driverEnv."
_ARN = f"arn:aws:emr-serverless:{REGION}:123456789012:/applications/{APPLICATION}"
_OPERATIONS = ("StartJobRun", "GetJobRun", "ListJobRuns", "CancelJobRun")


class EmrServerlessPlatform(AwsPlatform):
    service = "emr-serverless"
    page = 50
    engine = f"EmrServerless({APPLICATION!r}, {ROLE!r}, aws_conn_id=None, poll_seconds=0.01)"

    def new_id(self) -> str:
        return f"00{uuid.uuid4().hex[:14]}"

    def find_operation(self, method: str, path: str, headers: Any, body: bytes) -> Operation:
        for name in _OPERATIONS:
            operation = self.model.operation_model(name)
            if operation.http["method"] == method and (found := rest_arguments(operation, path, body)) is not None:
                return operation, found
        raise LookupError(path)

    def actions(self, operation: str, asked: dict[str, Any]) -> set[tuple[str, str]]:
        arn = _ARN + (f"/jobruns/{asked['jobRunId']}" if "jobRunId" in asked else "")
        passed = {("iam:PassRole", asked["executionRoleArn"])} if operation == "StartJobRun" else set()
        return {(f"emr-serverless:{operation}", arn), *passed}

    def start_job_run(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["applicationId"] != APPLICATION:
            raise ApiError(404, "ResourceNotFoundException", f"Application {asked['applicationId']} does not exist")
        for run in self.runs.values():
            if run.asked["clientToken"] == asked["clientToken"]:
                if run.asked != asked:
                    raise ApiError(409, "ConflictException", "The client token was used with other parameters")
                return self._started(run.job)
        submit = asked["jobDriver"]["sparkSubmit"]
        minutes = asked["executionTimeoutMinutes"]
        timeout = minutes * 60 if minutes else None
        return self._started(self.start_run(asked, asked["clientToken"], submit["entryPointArguments"], timeout))

    def run_submitted(self, job: PlatformJob, asked: dict[str, Any]) -> None:
        submit = asked["jobDriver"]["sparkSubmit"]
        (defaults,) = asked["configurationOverrides"]["applicationConfiguration"]
        assert defaults["classification"] == "spark-defaults"
        settings = dict(defaults["properties"])
        assert settings.pop("spark.jars").startswith("/usr/share/aws/delta/lib/"), "which are EMR's own"
        variables = {name.removeprefix(_DRIVER): settings.pop(name) for name in [*settings] if name.startswith(_DRIVER)}
        option, py_files = shlex.split(submit["sparkSubmitParameters"])
        assert option == "--py-files"
        command = spark_submit(
            self.folder, submit["entryPoint"], submit["entryPointArguments"], py_files=[py_files], conf=settings
        )
        self.run(job, command, platform_environment(variables))

    def get_job_run(self, asked: dict[str, Any]) -> dict[str, Any]:
        run = self._find(asked)
        state = {"running": "RUNNING", "succeeded": "SUCCESS", "failed": "FAILED", "cancelled": "CANCELLED"}[
            self.ask(run.job)
        ]
        named = {name: run.asked[name] for name in ("name", "jobDriver", "executionTimeoutMinutes")}
        return {"jobRun": {**self._summary(run, state), **named, "jobRunId": run.job.id}}

    def list_job_runs(self, asked: dict[str, Any]) -> dict[str, Any]:
        runs, more = self.list_runs(asked.get("nextToken"), after=datetime.fromisoformat(asked["createdAtAfter"]))
        listed = [{**self._summary(run, "RUNNING"), "id": run.job.id, "name": run.asked["name"]} for run in runs]
        return {"jobRuns": listed, **({"nextToken": more} if more else {})}

    def cancel_job_run(self, asked: dict[str, Any]) -> dict[str, Any]:
        run = self._find(asked)
        if run.job.state != "running":
            raise ApiError(400, "ValidationException", f"Job run {run.job.id} is in a terminal state")
        self.end(run.job, "cancelled")
        return {"applicationId": APPLICATION, "jobRunId": run.job.id}

    def _find(self, asked: dict[str, Any]) -> JobRun:
        run = self.runs.get(asked["jobRunId"])
        if asked["applicationId"] != APPLICATION or run is None:
            raise ApiError(404, "ResourceNotFoundException", f"Job run {asked['jobRunId']} does not exist")
        return run

    def _started(self, job: PlatformJob) -> dict[str, Any]:
        return {"applicationId": APPLICATION, "jobRunId": job.id, "arn": _arn(job)}

    def _summary(self, run: JobRun, state: str) -> dict[str, Any]:
        return {
            "applicationId": APPLICATION,
            "arn": _arn(run.job),
            "createdBy": "arn:aws:sts::123456789012:assumed-role/airflow/worker",
            "createdAt": run.started,
            "updatedAt": run.started,
            "executionRole": run.asked["executionRoleArn"],
            "state": state,
            "stateDetails": run.job.error or "-",
            "releaseLabel": "emr-7.5.0",
        }


def _arn(job: PlatformJob) -> str:
    return f"{_ARN}/jobruns/{job.id}"
