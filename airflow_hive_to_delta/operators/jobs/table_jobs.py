"""The jobs of one try of a task: what they did for each table, whatever became of the jobs themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.engines import JobError
from airflow_hive_to_delta.job.table_results import EarlierTries, Record
from airflow_hive_to_delta.operators.tables.result_store import Result, ResultStore
from airflow_hive_to_delta.report.outcomes import TableOutcome


class TableJobs:
    """Runs jobs for the tables of a task, and takes up what earlier tries of it have done.

    :param run_job: runs a job for some tables and returns its result. ``JobError``: it has none.
    :param was_killed: whether the task was killed.
    :param store: knows what the jobs of this task have left.
    :param try_number: of this try.
    :param first_try: the first try whose results count: a person who clears a task means all its tables.
    :param resumed_try: the try whose job this one has found again, and has seen the end of: whatever it has left of a
        table, an error too, is of this try.
    :param log: the logger of the task.
    """

    def __init__(
        self,
        run_job: Callable[[Sequence[TableInfo]], dict[str, Any]],
        was_killed: Callable[[], bool],
        store: ResultStore,
        *,
        try_number: int,
        first_try: int,
        resumed_try: int | None = None,
        log: Any,
    ) -> None:
        self._run_job = run_job
        self._was_killed = was_killed
        self._store = store
        self._try_number = try_number
        self._first_try = first_try
        self._resumed_try = resumed_try
        self._log = log
        #: What jobs left of each table that they ended.
        self.records: dict[str, Record] = {}
        #: The outcomes of the other tables.
        self.failures: dict[str, TableOutcome] = {}

    def run(self, tables: Sequence[TableInfo]) -> None:
        """Run a job for the tables that no earlier try of this task is done with.

        A table that was being worked on when an earlier job died gets a job to itself, after the others: whichever of
        such tables it was, it takes no other with it.
        """
        # What this try has done already, before it was deferred, is for run_job to find.
        earlier = self._store.earlier_tries(tables, self._try_number) if self._try_number > 1 else EarlierTries()
        for name, (number, record) in earlier.ended.items():
            counts = number >= self._first_try and record["result"].get("error") is None
            if counts or number == self._resumed_try:
                self._log.info("%s: done in try %d", name, number)
                self.records[name] = _redacted_record(record)
        rest = [table for table in tables if table.qualified_name not in self.records]
        suspects = [table for table in rest if table.qualified_name in earlier.suspects]
        others = [table for table in rest if table not in suspects]
        groups = [some for some in (others, *([table] for table in suspects)) if some]
        for number, some in enumerate(groups):
            try:
                self._run_group(some)
            except JobError as error:
                self._take_up_dead_job(some, error)
                if self._was_killed():
                    for table in chain.from_iterable(groups[number + 1 :]):
                        self._fail(table, str(error), error)
                    break

    def _run_group(self, tables: Sequence[TableInfo]) -> None:
        answer = self._run_job(tables)
        lists = answer.get("files") or [None] * len(tables)
        for table, result, files in zip(tables, answer["results"], lists, strict=True):
            self.records[table.qualified_name] = _redacted_record({"result": result, "files": files})

    def _take_up_dead_job(self, tables: Sequence[TableInfo], error: JobError) -> None:
        """Take what a job that died has left of its tables; those that it had not ended have failed."""
        left = self._store.earlier_tries(tables)
        for table in tables:
            name = table.qualified_name
            number, record = left.ended.get(name, (0, {}))
            if number == self._try_number:
                self.records[name] = _redacted_record(record)
                continue
            text = str(error)
            if len(tables) > 1 and name not in left.suspects and left.suspects:
                text = f"The job ended before this table began, while it worked on {', '.join(left.suspects)}. {text}"
            elif len(tables) > 1 and name in left.suspects:
                text = f"{text}. A later try works on this table by itself"
            self._fail(table, text, error)

    def _fail(self, table: TableInfo, text: str, error: JobError) -> None:
        name = table.qualified_name
        self.failures[name] = TableOutcome.of_error(name, text, error.retryable)


def _redacted_record(record: Record) -> Record:
    return {"result": _redacted(record["result"]), "files": record.get("files")}


def _redacted(result: Result) -> Result:
    error = redact_credentials(result["error"]) if result["error"] else None
    notes = [redact_credentials(note) for note in result["notes"]]
    verification = {"verification": _redacted(found)} if (found := result.get("verification")) else {}
    return {**result, "error": error, "notes": notes, **verification}
