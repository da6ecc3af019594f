"""An Airflow connection to AWS, as the core's clients and a job's process take it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SERVICES = ("s3", "glue", "sts")


@contextmanager
def aws_clients(aws_conn_id: str | None, region_name: str | None) -> Iterator[None]:
    """Inside the block the core's AWS clients come from this connection; None: from the environment."""
    if aws_conn_id is None:
        yield
        return
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    from airflow_hive_to_delta.core.aws import clients_from

    def client(service: str, region: str | None, config: Any) -> Any:
        hook: AwsGenericHook[Any] = AwsGenericHook(
            aws_conn_id, client_type=service, region_name=region or region_name, config=config
        )
        return hook.get_conn()

    with clients_from(client):
        yield


def aws_environment(aws_conn_id: str | None, region_name: str | None) -> dict[str, str]:
    """The connection as environment variables of a process; None: nothing beyond what it inherits.

    Credentials of an assumed role end when the role's session does: a job that runs longer needs an identity of its
    own, such as an instance profile.
    """
    found = {} if region_name is None else {"AWS_DEFAULT_REGION": region_name}
    if aws_conn_id is None:
        return found
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    hook: AwsGenericHook[Any] = AwsGenericHook(aws_conn_id, client_type="s3", region_name=region_name)
    session = hook.get_session(region_name=region_name)
    if session.region_name:
        found["AWS_DEFAULT_REGION"] = session.region_name
    for service in _SERVICES:
        if endpoint := hook.conn_config.get_service_endpoint_url(service):
            found[f"AWS_ENDPOINT_URL_{service.upper()}"] = endpoint
    if session.get_credentials() is not None:
        credentials = hook.get_credentials(region_name=region_name)  # which keeps them out of the task's log
        found["AWS_ACCESS_KEY_ID"] = str(credentials.access_key)
        found["AWS_SECRET_ACCESS_KEY"] = str(credentials.secret_key)
        if credentials.token or "AWS_SESSION_TOKEN" in os.environ:
            found["AWS_SESSION_TOKEN"] = credentials.token or ""
    return found
