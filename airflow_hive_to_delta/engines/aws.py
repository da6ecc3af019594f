"""What the engines on AWS share: clients of the platform's API from an Airflow connection, and what its errors mean."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, ClassVar, TypeVar

from airflow_hive_to_delta.core.errors import EXPIRED_CODES, RENEW_CREDENTIALS, AccessDeniedError, describe_error
from airflow_hive_to_delta.core.storage.aws_errors import error_code, http_status, translate_aws_error
from airflow_hive_to_delta.engines.engine import Engine, JobError

#: Where it is not defined, it stands for the identity of the process, as for Airflow's own AWS operators.
_DEFAULT_CONNECTION = "aws_default"
_NOT_ALLOWED = {"AccessDenied", "AccessDeniedException"}
_THROTTLED = {"Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded", "429"}
#: The seconds between the attempts of one submission.
_PAUSES = (1.0, 2.0, 4.0)
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 30.0

Answer = TypeVar("Answer")
#: The consoles of the other partitions of AWS, by how the names of their regions begin.
_CONSOLES = {"cn-": "amazonaws.cn", "us-gov-": "amazonaws-us-gov.com"}


@dataclass
class AwsEngine(Engine):
    """The base of engines that are called through an API of AWS.

    :param aws_conn_id: the AWS connection for the calls of the platform's API, which is looked up when a task or a
        trigger runs; None: the identity of that process. Jobs do not get it: they have a role of their own.
    :param region_name: the region of the platform, when the connection names none.
    :param poll_seconds: how often the platform is asked how far a job is.
    """

    survives_worker = True
    ships_package = True
    schemes = frozenset({"s3", "s3a"})
    #: The name of the API in boto3.
    service: ClassVar[str]

    aws_conn_id: str | None = field(default="aws_default", kw_only=True)
    region_name: str | None = field(default=None, kw_only=True)
    poll_seconds: float = field(default=10.0, kw_only=True)
    _connected: _Connected | None = field(default=None, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out open connections: Airflow copies operators, and their engines with them."""
        return {**self.__dict__, "_connected": None}

    def call(self, operation: str, *, timeout: float | None = None, **arguments: Any) -> Any:
        """Call the API once, without the repetitions of boto3.

        :param operation: the name of the method of boto3's client.
        :param timeout: the seconds for the connection, and for the answer.
        """
        from botocore.exceptions import ClientError

        connected = self._connected = self._connected or self._connect()
        client = connected.client if timeout is None else connected.make_client(timeout, timeout)
        try:
            return getattr(client, operation)(**arguments)
        except ClientError as error:
            if error_code(error) in EXPIRED_CODES:
                self._connected = None  # a client keeps the credentials that it was made with
            raise

    def ask(self, operation: str, doing: str, *, timeout: float | None = None, **arguments: Any) -> Any:
        """Call the API about a job that may be running.

        :param doing: what the call is for, as the beginning of messages.
        :raises JobError: the API does not answer this identity: its credentials have expired, or it may not ask.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return self.call(operation, timeout=timeout, **arguments)
        except (ClientError, BotoCoreError) as error:
            known = describe_error(translate_aws_error(error, doing))
            if error_code(error) in _NOT_ALLOWED:
                action = f"{self.service}:{''.join(word.capitalize() for word in operation.split('_'))}"
                advice = f"Allow the identity of the connection {self.aws_conn_id!r} {action}"
                raise JobError(f"{_describe_client_error(error, doing)}. {advice}", retryable=False) from error
            if error_code(error) in EXPIRED_CODES or known.kind == AccessDeniedError.__name__:
                raise JobError(known.text, retryable=known.retryable) from error
            raise

    @property
    def region(self) -> str:
        """The region of the platform, as its client has it. It is known after the first call."""
        return self._connected.client.meta.region_name if self._connected else self.region_name or ""

    def _connect(self) -> _Connected:
        from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

        self._check_connection()
        hook: Any = AwsGenericHook(self.aws_conn_id, client_type=self.service, region_name=self.region_name)
        session = hook.get_session(region_name=hook.region_name)

        def make_client(connect: float, read: float) -> Any:
            from botocore.config import Config

            config = (hook.config or Config()).merge(
                Config(retries={"total_max_attempts": 1}, connect_timeout=connect, read_timeout=read)
            )
            endpoint = hook.conn_config.get_service_endpoint_url(self.service)
            return session.client(self.service, endpoint_url=endpoint, config=config, verify=hook.verify)

        return _Connected(make_client, make_client(_CONNECT_SECONDS, _READ_SECONDS))

    def _check_connection(self) -> None:
        """Fail for a connection that is not defined: Airflow's hook would silently take the identity of the process."""
        if self.aws_conn_id in (None, _DEFAULT_CONNECTION):
            return
        from airflow.sdk import BaseHook
        from airflow.sdk.exceptions import AirflowNotFoundException

        try:
            BaseHook.get_connection(self.aws_conn_id)
        except AirflowNotFoundException as error:
            raise JobError(
                f"The AWS connection {self.aws_conn_id!r} is not defined. Define it, correct the aws_conn_id of "
                f"{type(self).__name__}, or pass aws_conn_id=None for the identity that the process has anyway",
                retryable=False,
            ) from error


@dataclass
class _Connected:
    """A session with AWS. Clients for other timeouts are made of it without asking for the connection again.

    That matters when a task is killed: the signal may come in the middle of another question to Airflow.
    """

    make_client: Callable[[float, float], Any]
    client: Any


def start_job(
    call: Callable[[], Answer],
    doing: str,
    *,
    repeatable: bool,
    advice: Callable[[], Mapping[str, str]],
    transient: Collection[str] = (),
) -> Answer:
    """Make the call that starts a job. It is repeated a few times when the platform is called too often.

    :param doing: what the call is for, as the beginning of messages.
    :param repeatable: the platform starts one job however often it is called, so that a lost answer is asked for again.
    :param advice: says what to do about an error, by its code.
    :param transient: more error codes by which no job was started, and which may pass.
    :raises JobError: no job was started. Any other exception: it is not known whether one was.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    for pause in (*_PAUSES, None):
        try:
            return call()
        except (ClientError, BotoCoreError) as error:
            again = is_throttled(error) or (repeatable and not _is_refusal(error))
            if pause is not None and again:
                time.sleep(pause)
            elif _is_refusal(error):
                raise _not_started(error, doing, advice(), transient) from error
            else:
                raise
    raise AssertionError("the last attempt returns or raises")


def _not_started(error: Exception, doing: str, advice: Mapping[str, str], transient: Collection[str]) -> JobError:
    from botocore.exceptions import ClientError

    code = error_code(error)
    if not isinstance(error, ClientError):
        known = describe_error(translate_aws_error(error, doing))  # type: ignore[arg-type]
        return JobError(known.text, retryable=known.retryable)
    text = _describe_client_error(error, doing)
    if code in EXPIRED_CODES:
        return JobError(f"{text}. {RENEW_CREDENTIALS}", retryable=True)
    what_to_do = f"{text}. {advice[code]}" if code in advice else text
    if code in transient or is_throttled(error):
        return JobError(what_to_do, retryable=True)
    return JobError(what_to_do, retryable=False)


def _describe_client_error(error: Any, doing: str) -> str:
    """What the API has answered, as a sentence without its end."""
    return f"{doing}: {error_code(error)}: {error.response.get('Error', {}).get('Message', '')}".rstrip(": .")


def _is_refusal(error: Exception) -> bool:
    """Whether an error says that nothing was done."""
    from botocore.exceptions import (
        ClientError,
        NoCredentialsError,
        NoRegionError,
        ParamValidationError,
        PartialCredentialsError,
    )

    if isinstance(error, ClientError):
        return http_status(error) < 500
    return isinstance(error, (NoCredentialsError, NoRegionError, ParamValidationError, PartialCredentialsError))


def is_throttled(error: Exception) -> bool:
    """Whether the platform was called too often."""
    return error_code(error) in _THROTTLED or http_status(error) == 429


def s3_uri(uri: str | None) -> str:
    """An address on S3 as the platforms themselves take it, which know no ``s3a://``."""
    return re.sub("^s3a://", "s3://", uri or "")


def timeout_minutes(seconds: float | None) -> int | None:
    """A timeout in whole minutes, which no API of AWS has shorter than one."""
    return None if seconds is None else max(1, ceil(seconds / 60))


def console(region: str, path: str) -> str:
    """The address of a page of the console of AWS, in the partition of the region."""
    return f"https://{region}.{console_host(region)}/{path}"


def console_host(region: str) -> str:
    """The host of the console of AWS, in the partition of the region."""
    domain = next((domain for start, domain in _CONSOLES.items() if region.startswith(start)), "aws.amazon.com")
    return f"console.{domain}"
