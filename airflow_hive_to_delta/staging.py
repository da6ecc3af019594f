"""The staging root: where manifests, results and reports of a run are kept, on any storage that Airflow knows."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from airflow.sdk import ObjectStoragePath

if TYPE_CHECKING:
    from airflow.sdk import Context


class RunFolder:
    """The folder of one DAG run under the staging root.

    :param root: such as ``s3://bucket/staging``, ``s3://conn_id@bucket/staging`` or ``file:///var/staging``.
    :param conn_id: the Airflow connection of the storage, when the root names none.
    """

    def __init__(self, root: str, conn_id: str | None, context: Context) -> None:
        on_s3 = root.startswith(("s3://", "s3a://"))
        base = ObjectStoragePath(root, conn_id=conn_id if on_s3 and "@" not in root else None)
        run: Any = context["dag_run"]
        self._path = base / safe_name(run.dag_id) / safe_name(run.run_id)

    def file(self, *names: str) -> ObjectStoragePath:
        """A place in the folder, whose parents exist."""
        path: ObjectStoragePath = self._path.joinpath(*names)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def address(path: ObjectStoragePath) -> str:
    """The place as anybody else spells it: without the connection."""
    return (
        f"{path.protocol}://{path.bucket}/{path.key.lstrip('/')}" if path.bucket else f"{path.protocol}://{path.path}"
    )


def check_root(root: str | None, argument: str = "staging") -> None:
    """Refuse what cannot be a staging root, when a DAG is parsed; a template is checked when it runs."""
    if root is not None and "{{" not in root and not re.match(r"^[a-z][a-z0-9+.-]*://.", root):
        raise ValueError(f"{argument} is {root!r}, expected an address such as s3://bucket/staging or file:///staging")


def safe_name(name: str) -> str:
    """A name that any storage and any Hadoop file system takes; different names stay different."""
    safe = re.sub(r"[^A-Za-z0-9.=-]+", "_", name).lstrip("._") or "x"
    return safe if safe == name else f"{safe[:100]}-{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
