"""The results of a task's tables, kept with the run under the staging root."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow.sdk import ObjectStoragePath

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.job.file_names import safe_name
from airflow_hive_to_delta.job.table_results import EarlierTries, earlier_tries
from airflow_hive_to_delta.operators.staging import RunFolder, files_below, read_text

#: The result of one table, as a dict.
Result = dict[str, Any]


@dataclass(frozen=True)
class KeptResult:
    """The result of a table in this run."""

    table: TableInfo
    result: Result
    #: Whether an earlier try made it, from other files than are listed now.
    from_other_files: bool = False


class ResultStore:
    """Keeps the results of one task's tables, and knows what its jobs have left of them.

    :param folder: the run's folder; None: there is no staging root, and nothing is kept.
    """

    def __init__(self, folder: RunFolder | None) -> None:
        self._folder = folder

    def earlier_tries(self, tables: Iterable[TableInfo], before: int | None = None) -> EarlierTries:
        """What the jobs of this task have left of the tables.

        :param before: only those of tries before this one; None: those of this try too.
        """
        if self._folder is None:
            return EarlierTries()
        folder = self._folder.jobs
        return earlier_tries(
            (table.qualified_name for table in tables),
            files_below(folder),
            lambda path: read_text(folder.joinpath(*path.split("/"))),
            before,
        )

    def keep(self, table: TableInfo, result: Result, made_from: dict[str, Any]) -> KeptResult:
        """Keep the result of a table. A try that found the work done by an earlier one gets the result of that one.

        :param made_from: what is kept beside the result, to tell it from one that was made from other files.
        """
        if self._folder is None:
            return KeptResult(table, result)
        path = self._folder.file("results", self._folder.task_name, f"{safe_name(table.qualified_name)}.json")
        from_other_files = False
        earlier = _read_result(path) if _is_of_earlier_try(result) else None
        if earlier is not None:
            if made_from != (before := {name: earlier.get(name) for name in made_from}):
                from_other_files = True
                made_from = before
            elif _is_same_work(earlier, result):
                # What a verification of this try has found is known since.
                since = {name: result[name] for name in _VERIFIED_SINCE if name in result}
                merged = {name: earlier.get(name, value) for name, value in result.items()}
                return KeptResult(table, merged | since)
        path.write_text(json.dumps({**result, **made_from}))
        return KeptResult(table, result, from_other_files)


#: The fields of a result that a later try, which verifies what an earlier one has converted, fills in anew.
_VERIFIED_SINCE = ("verified", "verification", "success", "error", "error_kind", "retryable")


def _read_result(path: ObjectStoragePath) -> Result | None:
    try:
        result: Result = json.loads(read_text(path))
    except FileNotFoundError:
        return None
    return result


def _is_same_work(earlier: Result, result: Result) -> bool:
    """Whether a result is of what an earlier one is of. That the verification of one of them failed changes nothing."""
    is_verified_only = bool(earlier.get("verification") or result.get("verification"))
    names = ["location", "version", *([] if is_verified_only else ["success"])]
    return all(earlier.get(name) == result[name] for name in names)


def _is_of_earlier_try(result: Result) -> bool:
    """Whether there was nothing left to do. A conversion that finds a log says so in its message."""
    return result.get("status", "").startswith("already_") or bool(result.get("message"))
