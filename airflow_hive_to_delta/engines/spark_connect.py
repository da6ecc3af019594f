"""Jobs as clients of a Spark Connect server that runs already: no JVM is started for them."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_hive_to_delta.core.extras import needs_extra
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.engines.engine import Engine, JobError, JobRef, JobSpec, JobStatus
from airflow_hive_to_delta.engines.job_process import GRACE_SECONDS, JobProcess, merged_environment
from airflow_hive_to_delta.engines.package import package_zip

_PORT = 15002
#: How long the server may take to accept a connection before a job is started. PySpark itself tries for minutes.
_CONNECT_SECONDS = 5.0
_SECRET_PARAMETER = re.compile(r";\s*(token|x-[^=]*)\s*=", re.IGNORECASE)


@dataclass
class SparkConnect(Engine):
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
    survives_worker = False
    #: Nothing lies between this process and the client.
    poll_errors = 0

    url: str | None = None
    conn_id: str | None = None
    shared_disk: bool = False
    poll_seconds: float = 0.5
    _jobs: dict[str, JobProcess] = field(default_factory=dict, init=False, repr=False, compare=False)

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
            # Nobody writes to it: it closes when this process ends, however it ends, and the job ends with it.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # It may hold a token: on a command line every user of the machine could read it.
            env=merged_environment({**environment, "SPARK_REMOTE": url}),
            start_new_session=True,
            cwd=folder,
        )
        job = str(process.pid)
        self._jobs[job] = JobProcess(process, folder, BytesIO())  # there is no JVM that says anything
        return JobRef(job, spec.results_uri)

    def find(self, token: str) -> JobRef | None:  # noqa: ARG002
        return None  # a job ends with the process that would have got the answer

    def status(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        running = self._jobs.get(ref.id)
        if running is None:
            return JobStatus("not_found", "The job ended with the process that started it")
        return running.status(cursor, _describe_end)

    def cancel(self, ref: JobRef, within: float = GRACE_SECONDS) -> None:
        """End the client. The server notices, and drops what it was doing for it."""
        if (running := self._jobs.pop(ref.id, None)) is not None:
            running.cancel(within)


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
    """
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


def _describe_end(code: int) -> str:
    if code == -9:
        return (
            "The job's process was killed from outside (signal 9) without a result, by the kernel or the container "
            "when memory runs out, or by a person. Give the Airflow worker more memory, or let fewer jobs run at a time"
        )
    how = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
    return f"The job's process {how} without a result: see its last lines in the log"
