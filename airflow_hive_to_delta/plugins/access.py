"""Who may see a campaign and decide about its tables: whoever may read and edit the DAG that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import HTTPException, Request, status

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser


def may_access(method: ResourceMethod, dag_id: str, request: Request, user: BaseUser) -> bool:
    """Whether Airflow lets a user read (``GET``) or edit (``PUT``) a DAG.

    :param dag_id: empty for a campaign that names no DAG: nobody may see it, because nobody's rights can be asked for.
    """
    if not dag_id:
        return False
    try:
        requires_access_dag(method, param_dag_id=dag_id)(request, user)
    except HTTPException as error:
        if error.status_code == status.HTTP_403_FORBIDDEN:
            return False
        raise
    return True


def check_same_site(request: Request) -> None:
    """Refuse a request that a page of another site makes a browser send.

    A browser says by ``Sec-Fetch-Site`` who asks, which no page can forge; a client without it, such as curl, sends no
    cookie that it was not given.

    :raises HTTPException: 403, the request comes from another site.
    """
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "The request comes from a page of another site")
