"""An Airflow connection to AWS, as the core's clients and a job's process take it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

log = logging.getLogger(__name__)

#: Where it is not defined, it stands for the worker's own identity, as for Airflow's own AWS operators.
DEFAULT_CONNECTION = "aws_default"

_SERVICES = ("s3", "glue", "sts")
#: By these a process finds an identity. Those that a job inherits from the worker would outrank a connection's.
_IDENTITY_VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"),
    *("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
)
_IDENTITY_FILES = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BOTO_CONFIG")
#: Ways to an identity that boto3 has and the S3A of a Spark job has not.
_UNKNOWN_TO_S3A = ("sso", "login")


def check_connection(aws_conn_id: str) -> None:
    """Fail for a connection that is not defined: Airflow's hook would silently take the worker's own identity."""
    if aws_conn_id == DEFAULT_CONNECTION:
        return
    try:
        BaseHook.get_connection(aws_conn_id)
    except AirflowNotFoundException as error:
        raise AirflowFailException(
            f"The AWS connection {aws_conn_id!r} is not defined. Define it, correct the aws_conn_id (or "
            "staging_conn_id) that names it, or pass aws_conn_id=None for the identity that the worker has anyway"
        ) from error


@contextmanager
def aws_clients(aws_conn_id: str | None, region_name: str | None) -> Iterator[None]:
    """Inside the block the core's AWS clients come from this connection; None: from the environment."""
    if aws_conn_id is None:
        yield
        return
    check_connection(aws_conn_id)
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    from airflow_hive_to_delta.core.storage.aws import clients_from

    def client(service: str, region: str | None, config: Any) -> Any:
        hook: AwsGenericHook[Any] = AwsGenericHook(
            aws_conn_id, client_type=service, region_name=region or region_name, config=config
        )
        return hook.get_conn()

    with clients_from(client):
        yield


@contextmanager
def job_environment(
    aws_conn_id: str | None, region_name: str | None, *, on_this_machine: bool
) -> Iterator[dict[str, str]]:
    """The connection as environment variables of a job's process, for as long as the job runs.

    A connection without an identity of its own adds none: the job finds that of the machine it runs on, and renews it.
    To a job on this machine keys are passed on, and a role, whose credentials expire, is served: the job asks for new
    ones in time. A job elsewhere gets no credentials.

    :param on_this_machine: whether the job can reach the loopback address of this one.
    """
    found = _region(region_name)
    with ExitStack() as stack:
        if aws_conn_id is not None:
            check_connection(aws_conn_id)
            from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

            hook: AwsGenericHook[Any] = AwsGenericHook(aws_conn_id, client_type="s3", region_name=region_name)
            found |= _region(hook.region_name)
            for service in _SERVICES:
                if endpoint := hook.conn_config.get_service_endpoint_url(service):
                    found[f"AWS_ENDPOINT_URL_{service.upper()}"] = endpoint
            found |= stack.enter_context(_identity(hook, on_this_machine))
        yield found


@contextmanager
def _identity(hook: AwsGenericHook[Any], on_this_machine: bool) -> Iterator[dict[str, str]]:
    from botocore.credentials import RefreshableCredentials

    session = hook.get_session(region_name=hook.region_name)
    credentials: Any = session.get_credentials()
    if credentials is None or not (_has_identity(hook) or credentials.method in _UNKNOWN_TO_S3A):
        yield {}
    elif not on_this_machine:
        log.warning(
            "The identity of the connection %s is not sent to an engine elsewhere: its jobs use the one that they have "
            "there. An engine whose jobs run on the task's machine says so by runs_on_this_machine = True",
            hook.aws_conn_id,
        )
        yield {}
    elif not isinstance(credentials, RefreshableCredentials):
        keys = hook.get_credentials(region_name=hook.region_name)  # which keeps them out of the task's log
        yield {
            **_region(session.region_name),
            "AWS_ACCESS_KEY_ID": str(keys.access_key),
            "AWS_SECRET_ACCESS_KEY": str(keys.secret_key),
            "AWS_SESSION_TOKEN": keys.token or "",
        }
    else:
        from airflow.sdk.log import mask_secret

        from airflow_hive_to_delta.operators.aws.credential_server import serve_credentials

        with serve_credentials(credentials) as address:
            mask_secret(address["AWS_CONTAINER_AUTHORIZATION_TOKEN"])
            yield {
                **dict.fromkeys(_IDENTITY_VARIABLES, ""),
                **dict.fromkeys(_IDENTITY_FILES, os.devnull),
                **_region(session.region_name),
                **address,
            }


def _has_identity(hook: AwsGenericHook[Any]) -> bool:
    """Whether the connection says who it is, or Airflow's settings do for all connections."""
    from airflow.providers.amazon.aws.hooks.base_aws import BaseSessionFactory, SessionFactory

    connection = hook.conn_config
    own = connection.aws_access_key_id or connection.role_arn or connection.profile_name
    return bool(own) or SessionFactory is not BaseSessionFactory


def _region(region: str | None) -> dict[str, str]:
    # boto3 reads the first, the AWS SDK for Java the second.
    return {"AWS_DEFAULT_REGION": region, "AWS_REGION": region} if region else {}
