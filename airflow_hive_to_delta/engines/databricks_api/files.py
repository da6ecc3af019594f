"""Files in a Databricks workspace or a Unity Catalog volume, through the REST API."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_hive_to_delta.engines.databricks_api.errors import api_error_code

if TYPE_CHECKING:
    from airflow.providers.databricks.hooks.databricks import DatabricksHook

_VOLUMES = "/Volumes/"
_HOME = "/Workspace/Users/{user}/.airflow-hive-to-delta"
#: Seconds until a request without an answer fails.
_TIMEOUT = 60


def home_folder(hook: DatabricksHook) -> str:
    """A folder in the home of the identity that the connection has, which nobody else but admins can write to."""
    me = hook._do_api_call(("GET", "2.0/preview/scim/v2/Me"))
    return _HOME.format(user=me["userName"])


def put_unless_there(hook: DatabricksHook, path: str, content: bytes) -> None:
    """Write a file, unless there is one of its name: names hold a hash of what is in the file, or a version of it.

    :param path: begins with ``/Volumes/`` for a file of a volume; otherwise it is a path in the workspace.
    :raises DatabricksApiError: the API refuses it.
    """
    if path.startswith(_VOLUMES):
        _put_in_volume(hook, path, content)
    else:
        _put_in_workspace(hook, path, content)


def _put_in_workspace(hook: DatabricksHook, path: str, content: bytes) -> None:
    from airflow.providers.databricks.exceptions import DatabricksApiError

    try:
        hook._do_api_call(("GET", "2.0/workspace/get-status"), {"path": path})
    except DatabricksApiError as error:
        if api_error_code(error) != "RESOURCE_DOES_NOT_EXIST":
            raise
    else:
        return
    hook._do_api_call(("POST", "2.0/workspace/mkdirs"), {"path": path.rpartition("/")[0]})
    # As it is: AUTO would unpack a zip into a folder of that name.
    imported = {"path": path, "format": "RAW", "overwrite": False, "content": base64.b64encode(content).decode()}
    try:
        hook._do_api_call(("POST", "2.0/workspace/import"), imported)
    except DatabricksApiError as error:
        if api_error_code(error) != "RESOURCE_ALREADY_EXISTS":  # another task was faster
            raise


def _put_in_volume(hook: DatabricksHook, path: str, content: bytes) -> None:
    if _request(hook, "HEAD", f"2.0/fs/files{quote(path)}", missing=True) is not None:
        return
    _request(hook, "PUT", f"2.0/fs/directories{quote(path.rpartition('/')[0])}")
    _request(hook, "PUT", f"2.0/fs/files{quote(path)}?overwrite=false", content, exists=True)


def _request(
    hook: DatabricksHook,
    method: str,
    endpoint: str,
    content: bytes | None = None,
    *,
    missing: bool = False,
    exists: bool = False,
) -> Any:
    """Send a request that the hook has no method for, with the hook's identity.

    :param missing: return None when there is no such file; ``exists``: when there is one already.
    """
    import requests
    from airflow.providers.databricks.exceptions import DatabricksApiError

    headers = {**hook.user_agent_header, **hook._get_aad_headers()}
    headers["Authorization"] = f"Bearer {hook._get_token(raise_error=True)}"
    url = hook._endpoint_url(f"api/{endpoint}")  # type: ignore[no-untyped-call]
    answer = requests.request(
        method, url, data=content, headers=headers, timeout=_TIMEOUT, **hook._get_requests_kwargs()
    )
    if (missing and answer.status_code == 404) or (exists and answer.status_code == 409):
        return None
    try:
        answer.raise_for_status()
    except requests.HTTPError as error:
        raise DatabricksApiError(
            f"Response: {answer.text}, Status Code: {answer.status_code}", http_status_code=answer.status_code
        ) from error
    return answer
