"""The files of a task's tables: as they were listed, or as the step before has listed them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.job.file_names import safe_name
from airflow_hive_to_delta.job.manifests import INLINE_LIMIT
from airflow_hive_to_delta.job.table_results import Record
from airflow_hive_to_delta.operators.staging import RunFolder, plain_uri
from airflow_hive_to_delta.operators.tables.batches import as_batch
from airflow_hive_to_delta.operators.tables.outcomes import FILES
from airflow_hive_to_delta.report.outcomes import LIST_AGAIN, TableOutcome

#: One file list as :class:`ListFilesOperator` returns it, or one for each table of a batch.
FileLists = dict[str, Any] | Sequence[dict[str, Any]]
#: The outcomes that a step has recorded, or the results that it has returned.
StepResults = dict[str, Any] | Sequence[dict[str, Any]]


def outcomes_by_table(results: StepResults | None) -> dict[str, dict[str, Any]]:
    """The outcome, or the result, of each table in what a step has left; none where it has left nothing."""
    documents = [] if results is None else as_batch(results, "results")
    return {document.get("table") or document["source_table"]: document for document in documents}


class TableFiles:
    """The file lists of the tables of one task.

    :param files: what :class:`ListFilesOperator` returned; None: it did not run.
    :param results: what the step before left of the tables; None: there is none, or it did not run.
    :param follows_step: whether there is a step before.
    :param later_try: whether this is not the first try of the task: then its job lists the files again.
    """

    def __init__(
        self, files: FileLists | None, results: StepResults | None, *, follows_step: bool, later_try: bool
    ) -> None:
        self._files = files
        self._follows_step = follows_step
        self._later_try = later_try
        self._previous_outcomes = outcomes_by_table(results)

    def select(self, tables: Sequence[TableInfo]) -> tuple[list[TableInfo], list[TableOutcome]]:
        """The tables that have a list of files, and the outcomes of those that could not be listed.

        Tables that failed in the step before are in neither: they have their outcomes.

        :raises AirflowSkipException: no table is left.
        :raises AirflowFailException: the lists are of other tables.
        """
        if self._follows_step:
            before = self._previous_outcomes
            tables = [t for t in tables if before.get(t.qualified_name, {}).get("status", "failed") != "failed"]
            if self._files is None or not tables:
                raise AirflowSkipException("Every table failed in a step before, or that step did not run")
        lists = self._lists
        if missing := [table.qualified_name for table in tables if table.qualified_name not in lists]:
            raise AirflowFailException(f"files has no list for {', '.join(missing)}, only for {', '.join(lists)}")
        # Of a batch, those that could not be listed: their task had its tries, and another one now comes too soon.
        errors = [entry for entry in (lists[table.qualified_name] for table in tables) if self._has_no_list(entry)]
        unlisted = [
            TableOutcome(e["table"], "failed", error=e["error"], retryable=False, advice=_advice_without_list(e))
            for e in errors
        ]
        return [table for table in tables if not self._has_no_list(lists[table.qualified_name])], unlisted

    def job_arguments(
        self, tables: Sequence[TableInfo], folder: RunFolder | None, *, batch_size: int
    ) -> dict[str, Any]:
        """What a job's request says of the files of the tables, and of how it lists them again.

        :param folder: the run's folder, for the manifests of new lists.
        :param batch_size: the tables of the whole task, which share what may travel inline.
        """

        def manifest(table: TableInfo) -> str | None:
            if folder is None:
                return None
            name = f"{safe_name(table.qualified_name)}.{folder.task_name}.{folder.try_number}.parquet"
            return plain_uri(folder.file("files", name))

        return {
            "lists": [self._lists[table.qualified_name] for table in tables],
            "list_again": {
                "manifests": [manifest(table) for table in tables],
                "inline_limit": INLINE_LIMIT // batch_size,
                "later_try": self._later_try,
            },
        }

    def fingerprint(self, table: TableInfo, record: Record) -> dict[str, Any]:
        """What is kept beside a table's result, to tell it from one that was made from other files.

        :param record: what a job left of the table; its list of files, if it has made one, is the one that counts.
        """
        files = record["files"] or self._lists[table.qualified_name]
        return {"listed": [files["file_count"], files["byte_count"]]} if "error" not in files else {}

    def new_lists(self, records: Mapping[str, Record]) -> dict[str, dict[str, Any]]:
        """The lists, by table, that the step before or this one has made: the next step takes them."""
        return self._lists_of_previous_step | {
            name: record["files"] for name, record in records.items() if record["files"]
        }

    @cached_property
    def _lists(self) -> dict[str, dict[str, Any]]:
        """The list of each table: that of the step before, if it has made one, for it has worked with that."""
        listed = {files["table"]: files for files in as_batch(self._files, "files")}
        return listed | self._lists_of_previous_step

    @property
    def _lists_of_previous_step(self) -> dict[str, dict[str, Any]]:
        return {name: outcome[FILES] for name, outcome in self._previous_outcomes.items() if outcome.get(FILES)}

    def _has_no_list(self, entry: Mapping[str, Any]) -> bool:
        return "error" in entry and not (self._later_try and entry.get("listing"))


def _advice_without_list(entry: Mapping[str, Any]) -> str:
    return "" if entry.get("listing") else LIST_AGAIN
