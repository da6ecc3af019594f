"""The staging root: where manifests, results and reports of a run are kept, on any storage that Airflow knows."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import ObjectStoragePath
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_hive_to_delta.core.errors import RENEW_CREDENTIALS
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.core.storage.aws_errors import error_code, is_expired
from airflow_hive_to_delta.engines.aws import console_host
from airflow_hive_to_delta.job.file_names import safe_name

if TYPE_CHECKING:
    from airflow.sdk import Context


#: What Airflow needs for storages that not all workers can write to.
_LIBRARIES = {"gs": "the package gcsfs", "hdfs": "Hadoop's libhdfs, a Java, and Hadoop's jars on the CLASSPATH"}


class RunFolder:
    """The folder of one DAG run under the staging root, as one of its tasks uses it.

    :param root: such as ``s3://bucket/staging``, ``s3://conn_id@bucket/staging`` or ``file:///var/staging``.
    :param conn_id: the Airflow connection of the storage, when the root names none.
    :param aws_conn_id: the one for a root on S3, when neither does.
    """

    def __init__(self, root: str, context: Context, *, conn_id: str | None, aws_conn_id: str | None) -> None:
        named = split_connection(root)[1]
        if root.startswith(("s3://", "s3a://")):
            conn_id = aws_conn_id if conn_id is None else conn_id
            if (used := named or conn_id) is not None:
                from airflow_hive_to_delta.operators.aws.identity import check_connection

                check_connection(used)
        base = ObjectStoragePath(root, conn_id=conn_id if named is None else None)
        instance: Any = context["ti"]
        group, _, task = instance.task_id.rpartition(".")
        # Of each task group, so that two in one DAG keep apart.
        group = group.removesuffix(".tables")
        names = [instance.dag_id, instance.run_id, *([group] if group else [])]
        self._base = base
        self._path = base.joinpath(*map(safe_name, names))
        self.root = root
        #: The id of the task without that of its groups, as a name of a file.
        self.task_name = safe_name(task)
        #: The index of a mapped task; -1 of any other.
        self.map_index: int = -1 if instance.map_index is None else instance.map_index
        self.try_number: int = instance.try_number

    def file(self, *names: str) -> ObjectStoragePath:
        """The path of a file in the folder, which can be written: on a disk its parent folders are created."""
        return _with_parent(self._path.joinpath(*names))

    def put_shared(self, folder: str, name: str, content: bytes) -> ObjectStoragePath:
        """Keep a file for all runs under the staging root, by a name that only this content has. It is written once."""
        path = _with_parent(self._base.joinpath(folder, name))
        path.fs.invalidate_cache()  # other tasks write it, too
        if path.exists() and path.stat().st_size == len(content):
            return path
        if path.protocol == "file":
            part = path.with_name(f".{uuid.uuid4().hex}")  # on a disk half a file can be seen
            part.write_bytes(content)
            Path(part.path).replace(path.path)
        else:
            path.write_bytes(content)
        return path

    @property
    def jobs(self) -> ObjectStoragePath:
        """The folder that holds a folder for each job of this task."""
        return self.file("jobs", self.task_name, str(self.map_index))

    def check_writable(self) -> None:
        """Fail the task, before it does anything, when the staging root cannot be written to.

        It fails without retries where these cannot help.
        """
        with self.explaining_errors("Nothing was done"):
            path = self.file("probe", uuid.uuid4().hex)  # of each task: others may be trying it out, too
            path.write_text("written to see whether it can be")
            path.unlink()

    @contextmanager
    def explaining_errors(self, so_far: str) -> Iterator[None]:
        """Fail the task, with what to do, when the block cannot write below the staging root.

        It fails without retries where these cannot help.

        :param so_far: what has not been done therefore, as a sentence without its end.
        """
        try:
            yield
        except Exception as error:
            message = f"The staging root {self.root} cannot be written to: {type(error).__name__}: {error}. {so_far}. "
            if error.__cause__ is not None and is_expired(error_code(error.__cause__)):  # a PermissionError of s3fs
                raise AirflowException(redact_credentials(message + RENEW_CREDENTIALS)) from error
            message += "Correct it, create its bucket or folder, or give this identity access"
            if library := _LIBRARIES.get(self.root.partition("://")[0]):
                message += f"; and see that the Airflow workers have {library}, by which Airflow writes there"
            permanent = isinstance(
                error, (FileNotFoundError, PermissionError, NotADirectoryError, ValueError, ImportError)
            )
            raise (AirflowFailException if permanent else AirflowException)(redact_credentials(message)) from error


def split_connection(root: str) -> tuple[str, str | None]:
    """Split a staging root such as ``s3://conn_id@bucket/staging`` into the root alone and the id of the connection.

    The id is None where the root names no connection.
    """
    scheme, separator, rest = root.partition("://")
    named, at, _ = rest.partition("/")[0].rpartition("@")
    return (f"{scheme}{separator}{rest.removeprefix(named + at)}", named) if at else (root, None)


def _with_parent(path: ObjectStoragePath) -> ObjectStoragePath:
    """A path that can be written: on a disk its parent folders are created."""
    if path.protocol in ("file", "local"):
        # An object store has no folders; asked for one, it would make a bucket of a mistyped name.
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


def read_text(path: ObjectStoragePath) -> str:
    """Read a document that others write: jobs, and other tasks.

    The storage is asked for the object itself. Opened as a file, it would be looked for in a listing that another
    thread may have cached before the document was there.

    :raises FileNotFoundError: there is none.
    """
    content: bytes = path.fs.cat_file(path.path)
    return content.decode()


def files_below(folder: ObjectStoragePath) -> list[str]:
    """The paths of all files in a folder and its subfolders, from there; none where there is no such folder."""
    folder.fs.invalidate_cache()  # jobs write there
    start = folder.path.rstrip("/") + "/"
    return [str(path).removeprefix(start) for path in folder.fs.find(folder.path)]


def plain_uri(path: ObjectStoragePath) -> str:
    """The URI of a path without the Airflow connection in it, as Spark and people spell it."""
    return (
        f"{path.protocol}://{path.bucket}/{path.key.lstrip('/')}" if path.bucket else f"{path.protocol}://{path.path}"
    )


def browser_url(path: ObjectStoragePath) -> str:
    """The URL at which a browser shows a file: in the console of AWS or Google, which ask who it is, or its plain URI.

    A presigned URL will not do: whoever sees it could read the file, and it would be kept in an XCom.
    """
    if path.protocol == "gs":
        return f"https://storage.cloud.google.com/{path.bucket}/{quote(path.key.lstrip('/'))}"
    elsewhere = any(os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
    if path.protocol not in ("s3", "s3a") or elsewhere or getattr(path.fs, "endpoint_url", None):
        return plain_uri(path)
    settings: dict[str, Any] = getattr(path.fs, "client_kwargs", None) or {}
    region = str(settings.get("region_name") or os.environ.get("AWS_DEFAULT_REGION") or "")
    return f"https://{console_host(region)}/s3/object/{path.bucket}?prefix={quote(path.key.lstrip('/'), safe='')}"


def check_root(root: str | None, argument: str = "staging") -> None:
    """Refuse what cannot be a staging root, when a DAG is parsed; a template is checked when it runs."""
    if root is not None and "{{" not in root and not re.match(r"^[a-z][a-z0-9+.-]*://.", root):
        raise ValueError(f"{argument} is {root!r}, expected an address such as s3://bucket/staging or file:///staging")
    if root is not None and re.match("^hdfs://[^/]", root):
        raise ValueError(
            f"{argument} is {root!r}, but Airflow leaves out the name node. Write hdfs:///path, on the default "
            "file system (fs.defaultFS) of the Airflow workers and of the cluster: it is to be the same one"
        )
