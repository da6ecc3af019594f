"""Jobs as clients of a Spark Connect server that runs already: no JVM is started for them."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_hive_to_delta.core.extras import needs_extra
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.engines.engine import JobError, JobRef, JobSpec
from airflow_hive_to_delta.engines.job_process import JobProcess, ProcessEngine, merge_environment
from airflow_hive_to_delta.engines.package import package_zip

_PORT = 15002
#: How long the server may take to accept a connection before a job is started. PySpark itself tries for minutes.
_CONNECT_SECONDS = 5.0
_SECRET_PARAMETER = re.compile(r";\s*(token|x-[^=]*)\s*=", re.IGNORECASE)


@dataclass
class SparkConnect(ProcessEngine):
    """Runs each job in a small process on the Airflow worker, as a client of a Spark Connect server.

    The server reads the data with the identity that it has. The client lists files on S3 and writes the log, with the
    identity of ``aws_conn_id``; this package goes to the server's Python workers as an artifact of the session. The job
    ends with the process of the task: a later try begins anew, and a task cannot be deferred.

    Tables are on S3, or on a disk that the worker and the server share. Others need Hadoop's file systems, which a
    client does not have.

    :param url: of the server, such as ``sc://spark.example.com:15002/;use_ssl=true``. A token has no place in it, for
        it would be shown with the DAG: it is the password of a connection.
    :param conn_id: instead of ``url``, a connection of the Apache Spark provider, of the type Spark Connect.
    :param shared_disk: whether ``file://`` addresses are on a disk that the Airflow worker and the server have mounted
        at the same path. Without it, they are refused.
    """

    #: The client can reach the loopback address of the process that submits it.
    runs_on_this_machine = True

    url: str | None = None
    conn_id: str | None = None
    shared_disk: bool = False
    poll_seconds: float = 0.5

    def __post_init__(self) -> None:
        if (self.url is None) == (self.conn_id is None):
            raise ValueError(
                f"url is {self.url!r} and conn_id is {self.conn_id!r}, expected one of them: the address of a Spark "
                "Connect server, or the connection that has it"
            )
        if self.url is not None:
            if _SECRET_PARAMETER.search(self.url) or "@" in self.url:
                raise ValueError(
                    "url holds a token or a header, which would be shown with the DAG. Put it into a connection of the "
                    "type Spark Connect, and pass its id as conn_id"
                )
            _host_and_port(self.url)
        self.schemes = frozenset({"s3", "s3a", "file"} if self.shared_disk else {"s3", "s3a"})

    def submit(self, spec: JobSpec, environment: Mapping[str, str]) -> JobRef:
        with needs_extra("connect", "SparkConnect"):
            import grpc  # noqa: F401
            import pyspark  # noqa: F401
        url = self.url or _read_url(self.conn_id or "")
        _check_server(url)
        folder = Path(tempfile.mkdtemp(prefix="hive-to-delta-"))
        package = package_zip()
        (folder / package.name).write_bytes(package.content)
        process = subprocess.Popen(  # noqa: S603
            [
                *(sys.executable, "-m", "airflow_hive_to_delta.job", *spec.arguments),
                *("--package", str(folder / package.name), "--ends-with-input"),
            ],
            # Kept open and never written to: it closes when this process ends, and the job ends then.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # It may hold a token: on a command line every user of the machine could read it.
            env=merge_environment({**environment, "SPARK_REMOTE": url}),
            start_new_session=True,
            cwd=folder,
        )
        job = str(process.pid)
        self._jobs[job] = JobProcess(process, folder, BytesIO())  # there is no JVM that says anything
        return JobRef(job, spec.results_uri)


def _read_url(conn_id: str) -> str:
    """The address that a connection has, with its token.

    :raises JobError: the connection is not defined, or no connection to a Connect server.
    """
    with needs_extra("spark", "SparkConnect(conn_id=…)"):
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
    from airflow.sdk.exceptions import AirflowNotFoundException
    from airflow.sdk.log import mask_secret

    try:
        url: str = SparkConnectHook(conn_id).get_connection_url()
        _host_and_port(url)
    except (AirflowNotFoundException, ValueError) as error:
        raise JobError(
            f"The Spark Connect connection {conn_id!r} cannot be used: {redact_credentials(str(error))}. Define it "
            "with the type Spark Connect, a host and a port",
            retryable=False,
        ) from error
    mask_secret(url)
    return url


def _host_and_port(url: Any) -> tuple[str, int]:
    """The host and the port in the URL of a Connect server.

    :raises ValueError: it is no address of a Connect server.
    """
    parts = urlsplit(url if isinstance(url, str) else "")
    if parts.scheme != "sc" or not parts.hostname:
        raise ValueError(f"url is {redact_credentials(str(url))!r}, expected sc://HOST:PORT")
    return parts.hostname, parts.port or _PORT


def _check_server(url: str) -> None:
    host, port = _host_and_port(url)
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except OSError as error:
        raise JobError(
            f"No Spark Connect server answers at {host}:{port}: {error}. Start it, or correct the address; the task "
            "tries again",
            retryable=True,
        ) from error
