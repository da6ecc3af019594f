"""Drivers on a standalone cluster of Spark, through the REST API of its master."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_hive_to_delta.core.extras import needs_extra
from airflow_hive_to_delta.engines.clusters.spark_connection import SparkConnection
from airflow_hive_to_delta.engines.engine import JobError, JobState, JobStatus

#: In seconds: to connect, and to wait for an answer.
_TIMEOUT = (5.0, 30.0)
_REST_PORT = 6066
_UI_PORT = 8080

_STATES: dict[str, JobState] = {
    "SUBMITTED": "pending",
    "RUNNING": "running",
    "RELAUNCHING": "running",
    # While a new master takes over, it does not know yet.
    "UNKNOWN": "running",
    "FINISHED": "succeeded",
    "KILLED": "cancelled",
    "FAILED": "failed",
    "ERROR": "failed",
}


@dataclass(frozen=True)
class StandaloneMaster:
    """The master of a standalone cluster.

    :param master: its address, ``spark://host:port``.
    :param rest_url: the address of its REST API.
    :param page: the address of its page.
    """

    master: str
    rest_url: str
    page: str

    @classmethod
    def of(cls, connection: SparkConnection) -> StandaloneMaster:
        """The master that a connection names.

        :raises JobError: there are several masters.
        """
        hosts = connection.master.removeprefix("spark://").split(",")
        if len(hosts) > 1:
            raise JobError(
                f"The master of the Spark connection {connection.conn_id!r} is {connection.master!r}: cluster mode "
                "works with one standalone master, and not with several. Name one of them, or use "
                "SparkSubmit(deploy_mode='client')",
                retryable=False,
            )
        host = hosts[0].rpartition(":")[0] or hosts[0]
        extra = connection.extra
        scheme = extra.get("rest-scheme") or "http"
        return cls(
            connection.master,
            f"{scheme}://{host}:{extra.get('rest-port') or _REST_PORT}",
            f"{scheme}://{host}:{extra.get('ui-port') or _UI_PORT}",
        )

    def submit(
        self, name: str, arguments: Sequence[str], conf: Mapping[str, str], environment: Mapping[str, str]
    ) -> str:
        """Start a driver that runs ``spark-submit`` with these arguments, on one of the cluster's workers.

        ``spark-submit`` itself refuses cluster mode for a Python program on a standalone cluster. This way round is in
        Spark's own documentation of the REST API.

        :returns: the id of the driver.
        :raises JobError: it was not started.
        """
        request = {
            "action": "CreateSubmissionRequest",
            "appResource": "",
            "clientSparkVersion": "",
            "mainClass": "org.apache.spark.deploy.SparkSubmit",
            "appArgs": ["--master", self.master, "--deploy-mode", "client", "--name", name, *arguments],
            "environmentVariables": dict(environment),
            "sparkProperties": {"spark.app.name": name, "spark.master": self.master, **conf},
        }
        try:
            status, answer = self._ask("POST", "create", request)
        except _requests().exceptions.ConnectTimeout as error:
            raise self._unreachable(error) from error
        except _requests().exceptions.ConnectionError as error:
            if _was_refused(error):
                raise self._unreachable(error) from error
            raise
        if status >= 500:
            raise RuntimeError(f"The master at {self.rest_url} answered {status}: {answer.get('message')}")
        if not answer.get("success"):
            raise JobError(
                f"The master at {self.rest_url} started no driver ({status}): {answer.get('message') or answer}. If "
                "this is not the REST API of the master, set rest-port in the extra of the connection, and "
                "spark.master.rest.enabled=true on the master",
                retryable=status == 200,
            )
        return str(answer["submissionId"])

    def status(self, driver: str) -> JobStatus:
        """How far a driver is."""
        code, answer = self._ask("GET", f"status/{driver}")
        if code != 200:
            raise RuntimeError(f"The master at {self.rest_url} answered {code}: {answer.get('message')}")
        driver_state = answer.get("driverState")
        if driver_state is None:
            return JobStatus("not_found", f"The master at {self.rest_url} does not know the driver {driver}")
        state = _STATES.get(str(driver_state), "running")
        worker = answer.get("workerHostPort")
        where = f" on the worker {worker}" if worker else ""
        if state != "failed":
            return JobStatus(state, log=[f"The driver {driver} is {driver_state}{where}"])
        why = answer.get("message")
        return JobStatus(
            "failed",
            f"The driver {driver} ended as {driver_state}{where}, without a result{f': {why}' if why else ''}. "
            f"What it wrote is on the page of that worker, which {self.page} links to",
        )

    def kill(self, driver: str, within: float) -> None:
        """End a driver. One that has ended is left alone."""
        code, answer = self._ask("POST", f"kill/{driver}", timeout=(within / 2, within / 2))
        if code != 200:
            raise RuntimeError(f"The master at {self.rest_url} answered {code}: {answer.get('message')}")

    def _ask(
        self, method: str, path: str, document: Any = None, timeout: tuple[float, float] = _TIMEOUT
    ) -> tuple[int, dict[str, Any]]:
        answer = _requests().request(
            method, f"{self.rest_url}/v1/submissions/{path}", json=document, timeout=timeout, allow_redirects=False
        )
        try:
            found = answer.json()
        except ValueError:
            found = {"message": answer.text[:200]}
        return answer.status_code, found if isinstance(found, dict) else {}

    def _unreachable(self, error: Exception) -> JobError:
        return JobError(
            f"The REST API of the master could not be reached at {self.rest_url}: {type(error).__name__}. If it is at "
            "another port, set rest-port in the extra of the connection; it is off unless the master has "
            "spark.master.rest.enabled=true",
            retryable=True,
        )


def _was_refused(error: Exception) -> bool:
    """Whether no connection was made, so that nothing can have been started."""
    from urllib3.exceptions import NewConnectionError

    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(reason, NewConnectionError)


def _requests() -> Any:
    with needs_extra("spark", "SparkSubmit"):
        import requests
    return requests
