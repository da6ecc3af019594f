"""An Airflow connection to Spark: which cluster manager it names, and where that is asked about jobs."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_hive_to_delta.engines.engine import JobError

ClusterManager = Literal["standalone", "yarn", "kubernetes", "local"]


@dataclass(frozen=True)
class SparkConnection:
    """What a job needs to know of a connection. The rest, such as a keytab, is for the provider's hook alone."""

    conn_id: str
    #: Such as ``spark://host:7077``, ``yarn`` or ``k8s://https://host:6443``.
    master: str
    cluster_manager: ClusterManager
    #: May hold a secret.
    extra: dict[str, Any] = field(default_factory=dict, repr=False)


def read_connection(conn_id: str, deploy_mode: str) -> SparkConnection:
    """Look a connection up.

    :param deploy_mode: as the DAG says it. The connection may say nothing else.
    :raises JobError: it is not defined, contradicts the DAG, or names a master that Spark does not know.
    """
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        found: Any = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise JobError(
            f"The Spark connection {conn_id!r} is not defined. Define it, or correct SparkSubmit(conn_id=…)",
            retryable=False,
        ) from error
    extra: dict[str, Any] = found.extra_dejson
    configured = extra.get("deploy-mode")
    if configured and configured != deploy_mode:
        raise JobError(
            f"The Spark connection {conn_id!r} has the deploy mode {configured!r}, but the engine is "
            f"SparkSubmit(deploy_mode={deploy_mode!r}). Take it out of the connection, or pass "
            f"deploy_mode={configured!r}: whether a job goes on without the worker has to be known when the DAG is "
            "parsed",
            retryable=False,
        )
    _check_keytab(conn_id, extra)
    host = found.host or ""
    is_whole = found.conn_type == "spark" and host and ("://" in host or not found.port)
    master = host if is_whole else f"{found.conn_type}://{host}"
    master = f"{master}:{found.port}" if found.port else master
    return SparkConnection(conn_id, master, _cluster_manager(conn_id, master), extra)


def _check_keytab(conn_id: str, extra: dict[str, Any]) -> None:
    """Refuse a keytab that the provider's hook cannot read: it would leave out the whole connection, and take YARN."""
    if not (keytab := extra.get("keytab")):
        return
    try:
        b64decode("".join(keytab.split()), validate=True)
    except (ValueError, AttributeError) as error:
        raise JobError(
            f"keytab in the extra of the Spark connection {conn_id!r} is no Base64. It holds the content of the keytab "
            "file, as the command base64 prints it, and not its path",
            retryable=False,
        ) from error


def _cluster_manager(conn_id: str, master: str) -> ClusterManager:
    if master.startswith("spark://"):
        return "standalone"
    if master.partition(":")[0] == "yarn":  # of a connection that was given as a URI, the hook makes yarn://
        return "yarn"
    if master.startswith("k8s://"):
        return "kubernetes"
    if master.partition("[")[0] == "local":
        return "local"
    raise JobError(
        f"The master of the Spark connection {conn_id!r} is {master!r}, expected spark://HOST:PORT, yarn or "
        "k8s://https://HOST:PORT. Correct the host and port of the connection",
        retryable=False,
    )
