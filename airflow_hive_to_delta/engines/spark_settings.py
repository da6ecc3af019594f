"""What the engines pass on to jobs: settings of Spark from a DAG, and variables of the task's process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(
    r"secret|passw|token|credential(?!s?\.provider)|access[._-]?key|private[._-]?key|account\.key", re.IGNORECASE
)
#: Settings that name a secret of Kubernetes, or a file, and hold none.
_NAMES_SECRET = re.compile(r"spark\.kubernetes\.(driver|executor)\.secret(s|KeyRef)\..+|spark\.kubernetes\..+File")
#: The variables that name regions and endpoints of AWS. No other is passed on: it could be a credential.
_REGION_AND_ENDPOINTS = re.compile(r"AWS_(DEFAULT_)?REGION|AWS_ENDPOINT_URL(_[A-Z0-9_]+)?")


def check_settings(conf: Any) -> dict[str, str]:
    """The settings with their values as text.

    :raises ValueError: a name is none of a setting of Spark.
    :raises TypeError: ``conf`` is no dict, or a value is no text and no number.
    """
    if not isinstance(conf, Mapping):
        raise TypeError(f"conf is of type {type(conf).__name__}, expected a dict of Spark's settings")
    return {_check_name(name): _as_text(name, value) for name, value in conf.items()}


def refuse_secrets(conf: Mapping[str, str], instead: str) -> None:
    """Refuse settings that hold a credential, for engines whose settings are shown where the job runs.

    :param instead: what to do, as the end of the message.
    :raises ValueError: there is such a setting. The message has its name, and not its value.
    """
    for name in conf:
        if is_secret_name(name):
            raise ValueError(f"conf has the setting {name!r}, which holds a credential by its name. {instead}")


def is_secret_name(name: str) -> bool:
    """Whether a setting holds a credential, by its name."""
    return _SECRET.search(name) is not None and not _NAMES_SECRET.fullmatch(name)


def job_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a job's process that may be shown where jobs are listed: regions and endpoints of AWS."""
    found = {name: value for name, value in environment.items() if value and _REGION_AND_ENDPOINTS.fullmatch(name)}
    return dict(sorted(found.items()))


def describe_settings(conf: Mapping[str, str]) -> str:
    """The names of the settings, for the ``repr`` of an engine: their values may be secret."""
    return f"<{', '.join(sorted(conf))}>"


def _check_name(name: Any) -> str:
    if not isinstance(name, str) or not name.startswith("spark."):
        raise ValueError(
            f"conf has the setting {name!r}, expected a name that begins with 'spark.', and with 'spark.hadoop.' for a "
            "setting of Hadoop or Hive"
        )
    return name


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"conf[{name!r}] is of type {type(value).__name__}, expected text")
    return str(value)
