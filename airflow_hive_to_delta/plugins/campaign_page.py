"""The plugin that Airflow loads by the entry point ``airflow.plugins``.

Every part of Airflow loads it, workers too. So this module imports nothing but Airflow's class: the app is imported by
the first request for it, in the API server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

#: The path of the app on the API server.
URL_PREFIX = "/hive-to-delta"


class LazyCampaignApp:
    """The app of the page as an ASGI application that is imported when it is first asked for something."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from airflow_hive_to_delta.plugins.app import campaign_app

        await campaign_app()(scope, receive, send)


def _address(path: str) -> str:
    """The path of the app below the path that Airflow itself is served under."""
    base = urlsplit(conf.get("api", "base_url", fallback="") or "/").path.rstrip("/")
    return f"{base}{URL_PREFIX}/{path}"


class CampaignPagePlugin(AirflowPlugin):
    """Adds the page of campaigns to the navigation of Airflow, and to each DAG run."""

    name = "hive_to_delta"
    fastapi_apps: list[Any] = [  # noqa: RUF012
        {"app": LazyCampaignApp(), "url_prefix": URL_PREFIX, "name": "Hive to Delta"}
    ]
    external_views: list[Any] = [  # noqa: RUF012
        {
            "name": "Hive to Delta",
            "href": _address(""),
            "destination": "nav",
            "category": "browse",
            "url_route": "hive-to-delta",
            "icon": _address("static/icon.svg"),
            "icon_dark_mode": _address("static/icon-dark.svg"),
        },
        {
            "name": "Hive to Delta",
            "href": _address("?dag_id={DAG_ID}&run_id={RUN_ID}"),
            "destination": "dag_run",
            "url_route": "hive-to-delta-run",
            "icon": _address("static/icon.svg"),
            "icon_dark_mode": _address("static/icon-dark.svg"),
        },
    ]
