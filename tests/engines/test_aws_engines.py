"""What every engine on AWS does alike: each on the stand-in for its platform."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta.engines import EmrServerless, GlueJob, JobError
from tests.support.aws import ROLE
from tests.support.aws_apis import SPEC, ApiError, AwsPlatform, open_platform
from tests.support.imports import imported_by
from tests.support.platform_emr import APPLICATION, EmrServerlessPlatform
from tests.support.platform_glue import NAME, GluePlatform


@dataclass(frozen=True)
class AwsEngine:
    """An engine, its stand-in, and what differs from the other engines."""

    platform: type[AwsPlatform]
    engine: type[Any]
    #: The arguments that it needs.
    arguments: dict[str, Any]
    #: An id that no run has.
    missing_id: str
    #: What the errors of all its submissions say, as a pattern.
    submission: str
    #: By answer of the platform to a submission: whether it is tried again, and what its error advises, as a pattern.
    refusals: list[tuple[ApiError, bool, str]]
    #: By wrong arguments, what their error says, as a pattern.
    wrong_arguments: list[tuple[dict[str, Any], str]]
    #: Further arguments, and how the engine is shown with them.
    options: dict[str, Any]
    shown: str


ENGINES = [
    AwsEngine(
        EmrServerlessPlatform,
        EmrServerless,
        {"application_id": APPLICATION, "execution_role_arn": ROLE},
        "00missing",
        f"^Starting Convert sales.orders on the application {APPLICATION}",
        [
            (
                ApiError(403, "AccessDeniedException", "not authorized"),
                False,
                r"emr-serverless:StartJobRun.*iam:PassRole on arn",
            ),
            (ApiError(400, "ValidationException", "Application is TERMINATED"), False, "not terminated"),
            (ApiError(403, "UnrecognizedClientException", "The security token is invalid"), False, "security token"),
            (
                ApiError(409, "ConflictException", "Application is STOPPED"),
                True,
                "start it, or switch on its autoStart",
            ),
            (ApiError(402, "ServiceQuotaExceededException", "vCPU"), True, "fewer jobs"),
            (ApiError(403, "ExpiredTokenException", "expired"), True, "The credentials have expired"),
        ],
        [
            ({"application_id": "My application"}, "application_id is 'My application', expected the id"),
            ({"execution_role_arn": "hive-to-delta"}, "execution_role_arn is 'hive-to-delta', expected the ARN"),
            ({"log_uri": "/logs"}, "log_uri is '/logs', expected an address that begins with 's3://'"),
            ({"python_archive": "python.tar.gz"}, "python_archive is 'python.tar.gz'"),
            ({"conf": {"executor.memory": "8g"}}, "expected a name that begins with 'spark.'"),
            (
                {"conf": {"spark.hadoop.fs.s3a.secret.key": "hush"}},
                "holds a credential by its name. Give the execution role",
            ),
        ],
        {"conf": {"spark.executor.memory": "8g"}, "tags": {"a": "b"}, "log_uri": "s3://logs"},
        f"EmrServerless(application_id={APPLICATION!r}, execution_role_arn={ROLE!r}, "
        "conf=<spark.executor.memory>, aws_conn_id=None)",
    ),
    AwsEngine(
        GluePlatform,
        GlueJob,
        {"name": NAME, "role": ROLE},
        "jr_x",
        f"of the Glue job {NAME!r}",
        [
            (ApiError(400, "AccessDeniedException", "not authorized"), False, r"glue:StartJobRun.*iam:PassRole on arn"),
            (ApiError(400, "InvalidInputException", "Role is not valid"), False, "trusts glue.amazonaws.com"),
            (ApiError(400, "EntityNotFoundException", "no such job"), True, "the next try creates it"),
            (
                ApiError(400, "ConcurrentRunsExceededException", "exceeded"),
                True,
                "max_concurrent_runs is 200: raise it",
            ),
            (ApiError(400, "ResourceNumberLimitExceededException", "DPU"), True, "ask AWS for more"),
            (ApiError(400, "ExpiredTokenException", "expired"), True, "The credentials have expired"),
        ],
        [
            ({"name": " "}, "name is ' ', expected a text"),
            ({"role": None}, "role is None, expected a text"),
            ({"glue_version": "4.0"}, "glue_version is '4.0', expected '5.0' or later"),
            ({"number_of_workers": 1}, "number_of_workers is 1, expected a whole number, at least 2"),
            ({"max_concurrent_runs": 0}, "max_concurrent_runs is 0"),
            ({"execution_class": "flex"}, "execution_class is 'flex', expected 'STANDARD' or 'FLEX'"),
            ({"conf": {"spark.x": "-Da=b -Dc=d"}}, "has a space"),
            ({"conf": {"spark.hadoop.fs.s3a.secret.key": "hush"}}, "holds a credential by its name. Give the role"),
        ],
        {"conf": {"spark.sql.shuffle.partitions": "64"}, "connections": ("vpc",)},
        f"GlueJob(name={NAME!r}, role={ROLE!r}, worker_type='G.1X', number_of_workers=2, "
        "conf=<spark.sql.shuffle.partitions>, aws_conn_id=None)",
    ),
]


@pytest.fixture(params=ENGINES, ids=[case.engine.__name__ for case in ENGINES])
def case(request: pytest.FixtureRequest) -> AwsEngine:
    chosen: AwsEngine = request.param
    return chosen


@pytest.fixture
def platform(
    case: AwsEngine, aws_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AwsPlatform]:
    with open_platform(case.platform, tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def engine(case: AwsEngine, platform: AwsPlatform) -> Any:
    return case.engine(**case.arguments, aws_conn_id=None)


@pytest.mark.parametrize(
    ("case", "refusal", "retryable", "advice"),
    [
        pytest.param(case, *refusal, id=f"{case.engine.__name__}-{refusal[0].code}")
        for case in ENGINES
        for refusal in case.refusals
    ],
)
def test_a_refused_submission_says_what_to_do(case, platform, engine, refusal, retryable, advice) -> None:
    platform.refusals = [refusal]
    with pytest.raises(JobError, match=advice) as raised:
        engine.submit(SPEC, {})
    assert raised.value.retryable is retryable
    assert re.search(case.submission, str(raised.value))
    assert engine.submit(SPEC, {}).id in platform.runs, "it gets well"


def test_a_job_is_ended_and_one_that_has_ended_or_is_gone_is_left_alone(case, platform, engine) -> None:
    ref = engine.submit(SPEC, {})
    for _ in range(2):
        engine.cancel(ref, 4)
    assert [job.state for job in platform.jobs] == ["cancelled"]
    engine.cancel(replace(ref, id=case.missing_id), 4)


def test_a_job_that_is_gone_and_a_platform_that_fails(case, platform, engine) -> None:
    ref = engine.submit(SPEC, {})
    assert engine.status(replace(ref, id=case.missing_id)).state == "not_found"
    platform.failures = [429, 503, None, 403]
    for _ in range(4):
        with pytest.raises(Exception, match=r"as the test says|Connection was closed"):
            engine.status(ref)
    assert engine.status(ref).state == "running"


def test_a_platform_that_does_not_answer_is_not_waited_for(platform, engine, monkeypatch) -> None:
    ref = engine.submit(SPEC, {})
    with socket.create_server(("127.0.0.1", 0)) as silent, monkeypatch.context() as elsewhere:
        elsewhere.setenv(platform.endpoint_variable, f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(Exception, match="Read timeout"):
            deepcopy(engine).cancel(ref, 0.4)
    engine.cancel(ref, 4)


def test_the_engine_is_made_again_from_json_and_can_be_copied(case, platform, engine) -> None:
    own = replace(engine, **case.options)
    ref = own.submit(SPEC, {})
    path, arguments = json.loads(json.dumps(own.serialize()))
    module, _, name = path.rpartition(".")
    again = getattr(import_module(module), name)(**arguments)
    assert again == own == deepcopy(own)
    assert again.status(ref).state == "running"
    assert repr(again) == case.shown


@pytest.mark.parametrize(
    ("case", "arguments", "message"),
    [
        pytest.param(case, *wrong, id=f"{case.engine.__name__}-{next(iter(wrong[0]))}")
        for case in ENGINES
        for wrong in case.wrong_arguments
    ],
)
def test_wrong_arguments_are_refused_when_the_dag_is_parsed(case, arguments, message) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        case.engine(**{**case.arguments, **arguments})
    assert "hush" not in str(raised.value)


def test_a_dag_with_the_engine_loads_no_library_of_aws(case) -> None:
    name = case.engine.__name__
    imported = imported_by(f"from airflow_hive_to_delta.engines import {name}\n{name}(**{case.arguments!r})")
    assert not imported & {"boto3", "botocore", "pyspark", "pyarrow", "airflow"}
