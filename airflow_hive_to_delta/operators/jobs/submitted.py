"""What a task keeps of the job that it has submitted, so that a later try finds the job again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.models import Document
from airflow_hive_to_delta.operators.staging import RunFolder, read_text

if TYPE_CHECKING:
    from airflow.sdk import Context

_KEY = "hive_to_delta_job"
_FILE = "_submitted.json"


@dataclass(frozen=True)
class SubmittedJob(Document):
    """A job that a task has submitted, or is about to. It holds no credential."""

    #: Of the task, as :func:`generation` counts it.
    generation: int
    try_number: int
    #: The name of the job's folder.
    folder: str
    token: str
    #: The :class:`JobRef`, as a dict; None: the answer of the engine has not come yet, or was lost.
    ref: dict[str, Any] | None = None


class SubmittedJobStore:
    """Keeps the job that a task waits for: where Airflow keeps a task's state (from 3.3 on), else with the run.

    :param folder: the run's folder under the staging root.
    """

    def __init__(self, context: Context, folder: RunFolder) -> None:
        self._state: Any = context.get("task_state_store")
        self._folder = folder

    def read(self) -> SubmittedJob | None:
        """The job that this try, or an earlier one, has submitted and not seen the end of."""
        if self._state is not None:
            found = self._state.get(_KEY)
        else:
            try:
                found = json.loads(read_text(self._path()))
            except FileNotFoundError:
                return None
        return SubmittedJob.from_dict(found) if found else None

    def write(self, job: SubmittedJob) -> None:
        if self._state is not None:
            self._state.set(_KEY, job.to_dict())
        else:
            self._path().write_text(json.dumps(job.to_dict()))

    def clear(self) -> None:
        """Forget the job: it has ended."""
        if self._state is not None:
            self._state.delete(_KEY)
        else:
            self._path().unlink(missing_ok=True)

    def _path(self) -> Any:
        path = self._folder.jobs / _FILE
        if path.protocol == "file":
            path.parent.mkdir(parents=True, exist_ok=True)
        return path


def generation(context: Context) -> int:
    """A number that is another one each time a person clears the task, and the same for all tries until then."""
    instance: Any = context["ti"]
    return int(instance.max_tries) - int(instance.task.retries or 0)


def job_token(context: Context, job_number: int) -> str:
    """A name for one job of one try of a task, that no other job has, in this Airflow or another.

    :param job_number: of the job among those of the try.
    """
    instance: Any = context["ti"]
    of_task = [instance.dag_id, instance.run_id, instance.task_id, instance.map_index]
    # The id is a new one for each try, and tells a run from one of the same name that was deleted before.
    of_try = [generation(context), instance.try_number, job_number, str(instance.id)]
    digest = hashlib.blake2b(json.dumps([*of_task, *of_try]).encode(), digest_size=16).hexdigest()
    return f"hive-to-delta-{digest}"
