"""Where the page finds campaigns: the section ``[hive_to_delta]`` of Airflow's configuration."""

from __future__ import annotations

import re

from airflow.configuration import conf

SECTION = "hive_to_delta"


def staging_roots() -> list[str]:
    """The staging roots under which campaigns are looked for, in the order of the setting ``campaigns``.

    They are separated by commas or line breaks, such as ``s3://bucket/staging`` or ``s3://conn_id@bucket/staging``.
    """
    configured = conf.get(SECTION, "campaigns", fallback="") or ""
    return [root.rstrip("/") for root in re.split(r"[,\s]+", configured) if root]


def storage_connection() -> str | None:
    """The Airflow connection for roots that name none, by the setting ``campaigns_conn_id``; None: no connection."""
    return conf.get(SECTION, "campaigns_conn_id", fallback="") or None
