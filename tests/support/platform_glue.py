"""A stand-in for the jobs of AWS Glue. Its catalog is moto's."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.aws import REGION, ROLE
from tests.support.aws_apis import ApiError, AwsPlatform, JobRun, Operation
from tests.support.platforms import PlatformJob
from tests.support.spark_submit_runs import platform_environment, spark_submit

NAME = "hive-to-delta"
_OPERATIONS = {"GetJob", "CreateJob", "UpdateJob", "StartJobRun", "GetJobRun", "GetJobRuns", "BatchStopJobRun"}
_STATES = {"running": "RUNNING", "succeeded": "SUCCEEDED", "failed": "FAILED", "cancelled": "STOPPED"}
#: Parameters that Glue itself takes out, or reads.
_OF_GLUE = {"--scriptLocation", "--extra-py-files", "--conf", "--datalake-formats", "--additional-python-modules"}


class GluePlatform(AwsPlatform):
    service = "glue"
    page = 200
    engine = f"GlueJob({NAME!r}, {ROLE!r}, aws_conn_id=None, poll_seconds=0.01)"

    def __init__(self, folder: Path, *, staging: str) -> None:
        super().__init__(folder, staging=staging)
        #: The job definitions, and how often each was changed.
        self.definitions: dict[str, dict[str, Any]] = {}
        self._moto = os.environ["AWS_ENDPOINT_URL"]

    def new_id(self) -> str:
        return f"jr_{uuid.uuid4().hex}"

    def find_operation(self, method: str, path: str, headers: Any, body: bytes) -> Operation:
        name = headers["X-Amz-Target"].removeprefix("AWSGlue.")
        if name not in _OPERATIONS:
            raise LookupError(name)
        return self.model.operation_model(name), json.loads(body)

    def forward(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Forward an operation of the catalog to moto."""
        request = urllib.request.Request(self._moto + path, body, dict(headers), method="POST")
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def actions(self, operation: str, asked: dict[str, Any]) -> set[tuple[str, str]]:
        name = asked.get("JobName") or asked["Name"]
        definition = {"CreateJob": asked, "UpdateJob": asked.get("JobUpdate", {})}.get(operation)
        passed = {("iam:PassRole", definition["Role"])} if definition is not None else set()
        return {(f"glue:{operation}", f"arn:aws:glue:{REGION}:123456789012:job/{name}"), *passed}

    def get_job(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"Job": {**self._definition(asked["JobName"]), "Name": asked["JobName"]}}

    def create_job(self, asked: dict[str, Any]) -> dict[str, Any]:
        definition = {name: value for name, value in asked.items() if name != "Name"}
        if asked["Name"] in self.definitions:
            same = self.definitions[asked["Name"]] == definition
            code = "AlreadyExistsException" if same else "IdempotentParameterMismatchException"
            raise ApiError(400, code, f"Job {asked['Name']} exists")
        self.definitions[asked["Name"]] = definition
        return {"Name": asked["Name"]}

    def update_job(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._definition(asked["JobName"])
        self.definitions[asked["JobName"]] = asked["JobUpdate"]  # what is not named goes back to its default
        return {"JobName": asked["JobName"]}

    def start_job_run(self, asked: dict[str, Any]) -> dict[str, Any]:
        definition = self._definition(asked["JobName"])
        limit = definition.get("ExecutionProperty", {}).get("MaxConcurrentRuns", 1)
        if sum(job.state == "running" for job in self.jobs) >= limit:
            raise ApiError(400, "ConcurrentRunsExceededException", f"Concurrent runs exceeded for {asked['JobName']}")
        given = asked["Arguments"]
        arguments = [given["--request"], "--results", given["--results"]]
        return {"JobRunId": self.start_run(asked, given["--token"], arguments, asked["Timeout"] * 60).id}

    def run_submitted(self, job: PlatformJob, asked: dict[str, Any]) -> None:
        given = asked["Arguments"]
        assert given["--datalake-formats"] == "delta"
        own = {
            "--JOB_ID": "j_1",
            "--JOB_RUN_ID": job.id,
            "--JOB_NAME": asked["JobName"],
            "--TempDir": "s3://x/temporary",
        }
        rest = {name: value for name, value in given.items() if name not in _OF_GLUE}
        arguments = [text for pair in {**own, **rest}.items() for text in pair]
        conf = dict(setting.split("=", 1) for setting in given["--conf"].split(" --conf "))
        py_files = given["--extra-py-files"].split(",")
        command = spark_submit(self.folder, given["--scriptLocation"], arguments, py_files=py_files, conf=conf)
        self.run(job, command, platform_environment())

    def get_job_run(self, asked: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.get(asked["RunId"])
        if asked["JobName"] not in self.definitions or run is None:
            raise ApiError(400, "EntityNotFoundException", f"Job run {asked['RunId']} not found")
        return {"JobRun": self._describe(run, run.state or _STATES[self.ask(run.job)])}

    def get_job_runs(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._definition(asked["JobName"])
        runs, more = self.list_runs(asked.get("NextToken"))
        return {"JobRuns": [self._describe(run, "RUNNING") for run in runs], **({"NextToken": more} if more else {})}

    def batch_stop_job_run(self, asked: dict[str, Any]) -> dict[str, Any]:
        (run_id,) = asked["JobRunIds"]
        run = self.runs.get(run_id)
        if run is not None and run.job.state == "running":
            self.end(run.job, "cancelled")
            return {"SuccessfulSubmissions": [{"JobName": asked["JobName"], "JobRunId": run_id}], "Errors": []}
        code = "EntityNotFoundException" if run is None else "JobRunCannotBeStoppedException"
        return {"Errors": [{"JobName": asked["JobName"], "JobRunId": run_id, "ErrorDetail": {"ErrorCode": code}}]}

    def _definition(self, name: str) -> dict[str, Any]:
        if name not in self.definitions:
            raise ApiError(400, "EntityNotFoundException", f"Job {name} not found")
        return self.definitions[name]

    def _describe(self, run: JobRun, state: str) -> dict[str, Any]:
        return {
            "Id": run.job.id,
            "JobName": run.asked["JobName"],
            "JobRunState": state,
            "StartedOn": run.started,
            "Arguments": run.asked["Arguments"],
            "Timeout": run.asked["Timeout"],
            "LogGroupName": "/aws-glue/jobs",
            **({"ErrorMessage": run.job.error} if run.job.error else {}),
        }
