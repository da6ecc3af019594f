"""Applications on YARN, through the REST API of its ResourceManager."""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from airflow_hive_to_delta.core.extras import needs_extra
from airflow_hive_to_delta.engines.clusters.spark_connection import SparkConnection
from airflow_hive_to_delta.engines.engine import JobError, JobState, JobStatus

#: In the extra of the connection, where the provider's own hook looks for it, too.
ADDRESS_EXTRA = "yarn_resourcemanager_webapp_address"
#: In seconds: to connect, and to wait for an answer.
_TIMEOUT = (5.0, 30.0)

_STATES: dict[str, JobState] = {
    "NEW": "pending",
    "NEW_SAVING": "pending",
    "SUBMITTED": "pending",
    "ACCEPTED": "pending",
    "RUNNING": "running",
    "FINISHED": "succeeded",
    "FAILED": "failed",
    "KILLED": "cancelled",
}
#: What an application says of itself when it has finished.
_FINAL_STATES: dict[str, JobState] = {"SUCCEEDED": "succeeded", "KILLED": "cancelled"}


@dataclass(frozen=True)
class ResourceManager:
    """The ResourceManager of a YARN cluster.

    :param addresses: of its web application, such as ``http://host:8088``; several where it is highly available.
    :param uses_kerberos: whether it wants to know who asks by Kerberos (SPNEGO).
    """

    addresses: Sequence[str]
    uses_kerberos: bool = False

    @classmethod
    def of(cls, connection: SparkConnection) -> ResourceManager:
        """The ResourceManager that the connection names, or ``yarn-site.xml`` in ``HADOOP_CONF_DIR``.

        :raises JobError: neither says where it is.
        """
        extra = connection.extra
        named = str(extra.get(ADDRESS_EXTRA) or "").strip()
        found = [named] if named else _addresses_of_site()
        if not found:
            raise JobError(
                f"It is not known where YARN's ResourceManager is: set {ADDRESS_EXTRA} in the extra of the connection "
                f"{connection.conn_id!r}, such as http://host:8088, or HADOOP_CONF_DIR to a folder with the cluster's "
                "yarn-site.xml",
                retryable=False,
            )
        urls = [(each if "://" in each else f"http://{each}").rstrip("/") for each in found]
        return cls(urls, uses_kerberos=bool(extra.get("keytab") and extra.get("principal")))

    def page(self, application: str) -> str:
        """The address of the page about an application."""
        return f"{self.addresses[0]}/cluster/app/{application}"

    def find(self, tag: str) -> str | None:
        """The id of the application that was submitted with this tag."""
        answer = self._ask("GET", "apps", params={"applicationTags": tag})
        if answer.status_code != 200:
            raise self._error(answer)
        applications = (answer.json().get("apps") or {}).get("app") or []
        return str(applications[0]["id"]) if applications else None

    def status(self, application: str) -> JobStatus:
        """How far an application is."""
        answer = self._ask("GET", f"apps/{application}")
        if answer.status_code == 404:
            return JobStatus("not_found", f"YARN does not know the application {application}")
        if answer.status_code != 200:
            raise self._error(answer)
        found: dict[str, Any] = answer.json()["app"]
        yarn_state = str(found["state"])
        state = _STATES.get(yarn_state, "running")
        if yarn_state == "FINISHED":
            state = _FINAL_STATES.get(str(found.get("finalStatus")), "failed")
        if state in ("pending", "running", "succeeded"):
            return JobStatus(state, log=[f"The application {application} is {yarn_state}"])
        why = str(found.get("diagnostics") or "").strip()
        return JobStatus(
            state,
            f"The application {application} {'was cancelled' if state == 'cancelled' else 'failed'} on YARN "
            f"({yarn_state}, {found.get('finalStatus')}), without a result"
            f"{f': {why}' if why else ''}. Its log: yarn logs -applicationId {application}",
        )

    def kill(self, application: str, within: float) -> None:
        """End an application. One that has ended is left alone."""
        answer = self._ask("PUT", f"apps/{application}/state", document={"state": "KILLED"}, seconds=within)
        if answer.status_code not in (200, 202, 404):
            raise self._error(answer)

    def _error(self, answer: Any) -> Exception:
        """The exception for an answer that is none: a ``JobError`` where it is one to this identity."""
        text = f"YARN's ResourceManager answered {answer.status_code}: {answer.text[:300]}"
        if answer.status_code == 401 and self.uses_kerberos:
            return JobError(
                f"{text}. The Kerberos ticket of this process is missing or has expired: renew it on the Airflow "
                "workers and the triggerer (airflow kerberos does so all the time, kinit once)",
                retryable=True,
            )
        if answer.status_code == 401:
            return JobError(
                f"{text}. It wants to know by Kerberos who asks: set keytab (the content of the file, in "
                "Base64) and principal in the extra of the Spark connection, and run airflow kerberos beside the "
                "Airflow workers and the triggerer",
                retryable=False,
            )
        if answer.status_code == 403:
            return JobError(
                f"{text}. Let the user that Airflow runs as, or its principal, view and end applications of the queue "
                "(yarn.admin.acl, or spark.ui.view.acls and spark.modify.acls in the engine's conf)",
                retryable=False,
            )
        return RuntimeError(text)

    def _ask(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        document: Any = None,
        seconds: float | None = None,
    ) -> Any:
        """The answer of the first address that gives one; one that is on standby redirects to the active one."""
        with needs_extra("spark", "SparkSubmit"):
            import requests
        auth, who = None, {"user.name": os.environ.get("HADOOP_USER_NAME") or getpass.getuser()}
        if self.uses_kerberos:
            auth, who = _kerberos(), {}
        limit = _TIMEOUT if seconds is None else (seconds / 2 / len(self.addresses),) * 2
        errors: list[Exception] = []
        for address in self.addresses:
            url = f"{address}/ws/v1/cluster/{path}"
            try:
                return requests.request(
                    method, url, params={**who, **(params or {})}, json=document, auth=auth, timeout=limit
                )
            except requests.exceptions.ConnectionError as error:
                errors.append(error)
        raise errors[0]


def _kerberos() -> Any:
    try:
        from requests_kerberos import HTTPKerberosAuth
    except ImportError as error:
        raise JobError(
            "The Spark connection has a keytab and a principal: to ask YARN about jobs, requests-kerberos is needed. "
            "Install it: pip install requests-kerberos",
            retryable=False,
        ) from error
    return HTTPKerberosAuth()


def _addresses_of_site() -> list[str]:
    """The addresses that ``yarn-site.xml`` has for the web application of the ResourceManager."""
    for variable in ("YARN_CONF_DIR", "HADOOP_CONF_DIR"):
        file = Path(os.environ.get(variable) or os.devnull, "yarn-site.xml")
        if not file.is_file():
            continue
        settings = {
            str(each.findtext("name")).strip(): str(each.findtext("value")).strip()
            for each in ElementTree.parse(file).getroot().iter("property")  # noqa: S314 the cluster's own file
        }
        is_https = settings.get("yarn.http.policy") == "HTTPS_ONLY"
        setting = f"yarn.resourcemanager.webapp.{'https.' if is_https else ''}address"
        port = 8090 if is_https else 8088
        masters = [f".{each.strip()}" for each in settings.get("yarn.resourcemanager.ha.rm-ids", "").split(",") if each]
        found = []
        for suffix in masters or [""]:
            host = settings.get(f"yarn.resourcemanager.hostname{suffix}")
            if address := settings.get(f"{setting}{suffix}") or (f"{host}:{port}" if host else None):
                address = address.replace("${yarn.resourcemanager.hostname}", host or "localhost")
                found.append(f"{'https' if is_https else 'http'}://{address}")
        return found
    return []
