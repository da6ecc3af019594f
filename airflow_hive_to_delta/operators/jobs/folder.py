"""The folder of a job: its request, and the results that the job leaves there; and the package that jobs import."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from airflow.sdk import ObjectStoragePath

from airflow_hive_to_delta.engines import Engine
from airflow_hive_to_delta.engines.package import main_script, package_zip
from airflow_hive_to_delta.job.documents import DONE, ENDED, REQUEST
from airflow_hive_to_delta.job.request import JobRequest
from airflow_hive_to_delta.operators.staging import RunFolder, plain_uri, read_text


class JobFolder:
    """The documents of one job, as its task reads and writes them.

    :param path: of the folder.
    """

    def __init__(self, path: ObjectStoragePath) -> None:
        self._path = path

    @property
    def uri(self) -> str:
        """The address of the folder, as it is passed to the job."""
        return plain_uri(self._path)

    @property
    def conn_id(self) -> str | None:
        """The Airflow connection of the storage; None: it has none."""
        return self._path.conn_id

    @property
    def request_uri(self) -> str:
        return f"{self.uri}/{REQUEST}"

    def write_request(self, request: JobRequest) -> None:
        if self._path.protocol == "file":
            self._path.mkdir(parents=True, exist_ok=True)
        (self._path / REQUEST).write_text(json.dumps(request.to_dict()))

    def read_request(self) -> JobRequest:
        return JobRequest.from_dict(json.loads(read_text(self._path / REQUEST)))

    def has_request(self) -> bool:
        """Whether the job was begun."""
        try:
            read_text(self._path / REQUEST)
        except FileNotFoundError:
            return False
        return True

    def write_end(self, error: str, *, retryable: bool) -> None:
        """Keep why the job ended without a result."""
        (self._path / ENDED).write_text(json.dumps({"error": error, "retryable": retryable}))

    def read_end(self) -> dict[str, Any] | None:
        """The result of a job whose end this task has seen, or why it had none; None: it has not seen its end."""
        result = self.read_result()
        if result is not None:
            return result
        try:
            ended: dict[str, Any] = json.loads(read_text(self._path / ENDED))
        except FileNotFoundError:
            return None
        return ended

    def read_result(self) -> dict[str, Any] | None:
        """The whole result of the job; None: it has left none."""
        try:
            result: dict[str, Any] = json.loads(read_text(self._path / DONE))
        except FileNotFoundError:
            return None
        return result


@contextmanager
def job_folder(run_folder: RunFolder | None, name: str) -> Iterator[JobFolder]:
    """The folder of a new job.

    :param run_folder: the folder of the run under the staging root, where it is kept. None: there is no staging root,
        and it is a private folder of this machine, which is removed after the block.
    """
    if run_folder is not None:
        yield JobFolder(run_folder.jobs / name)
        return
    with tempfile.TemporaryDirectory(prefix="hive-to-delta-job-", ignore_cleanup_errors=True) as folder:
        yield JobFolder(ObjectStoragePath(f"file://{folder}"))


def ship_package(engine: Engine, run_folder: RunFolder) -> tuple[str, str] | tuple[None, None]:
    """The addresses of the package's zip and of its script, which are uploaded unless they are there.

    None where the engine needs none.
    """
    if not engine.ships_package:
        return None, None
    shared = partial(run_folder.put_shared, "packages")
    package, main = (shared(file.name, file.content) for file in (package_zip(), main_script(engine.main_script)))
    return plain_uri(package), plain_uri(main)
