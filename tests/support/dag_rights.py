"""An auth manager of Airflow for tests: users whose rights differ by DAG."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

#: Ada may do everything, Vera may read everything, and Eve may read nothing but the DAG ``public``.
USERS = "ada:admin,vera:viewer,eve:viewer"


class DagRights(SimpleAuthManager):
    """Airflow's simple auth manager, which lets Eve read only one DAG."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        if user.username == "eve" and (details is None or details.id != "public"):
            return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)


def token_for(manager: SimpleAuthManager, name: str) -> str:
    """What Airflow gives a user who has logged in."""
    roles = dict(user.split(":") for user in USERS.split(","))
    return manager.generate_jwt(SimpleAuthManagerUser(username=name, role=roles[name]))
