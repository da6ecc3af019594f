"""The bases of operators that do something with tables, each of which then has a result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.engines import JobError, JobRequest
from airflow_hive_to_delta.operators.arguments import Reader, check
from airflow_hive_to_delta.operators.spark_job import TableOperator
from airflow_hive_to_delta.operators.tables import as_failed, batch_of, check_count, fail, tell
from airflow_hive_to_delta.report import LIST_AGAIN, RESULTS, ReportedAction, TableOutcome, redacted_text
from airflow_hive_to_delta.staging import safe_name

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

#: One file list as :class:`ListFilesOperator` returns it, or one for each table of a batch.
Files = dict[str, Any] | Sequence[dict[str, Any]]
Result = dict[str, Any]
#: Statuses of tables in which there was nothing left to write begin like this.
_FOUND_DONE = ("already_", "registered")


class ResultOperator(TableOperator):
    """Runs one action of the job for its tables, and returns a result of each as a dict.

    Results are kept with the run under the staging root, if there is one. The task fails when a table failed: for good,
    unless trying again may help one of them.
    """

    action: ClassVar[ReportedAction]
    #: What the job is called, before the name of the table.
    verb: ClassVar[str]
    #: The arguments of the action that are attributes of the operator, and how each is read.
    readers: ClassVar[Mapping[str, Reader]] = {}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._of_another_list: set[str] = set()

    def check_arguments(self) -> None:
        """Refuse, when a DAG is parsed, what the readers cannot read. Templates are known only when they run."""
        check(self.readers, {name: getattr(self, name) for name in self.readers})

    def execute_for(self, context: Context, tables: Sequence[TableInfo]) -> list[Result]:
        ready, others = self.ready(tables)
        results = self._run(context, ready) if ready else []
        self.done(context, list(zip(ready, results, strict=True)))
        for result in results:
            self.log.info("%s", RESULTS[self.action].from_dict(result))
        outcomes = [*map(self.outcome, results), *others]
        if any(outcome.status == "failed" for outcome in outcomes):
            fail(context, outcomes)
        tell(context, outcomes)
        if not ready:
            raise AirflowSkipException(
                "\n".join(f"{outcome.table}: {note}" for outcome in others for note in outcome.notes)
            )
        return [self.returned(result) for result in results]

    def ready(self, tables: Sequence[TableInfo]) -> tuple[list[TableInfo], list[TableOutcome]]:
        """The tables that the action can be run for, and the outcomes of the others."""
        return list(tables), []

    def arguments(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Any]:  # noqa: ARG002
        """What the action takes beside the tables and the options."""
        return {name: read(name, getattr(self, name)) for name, read in self.readers.items()}

    def outcome(self, result: Result) -> TableOutcome:
        """What the report is told of a result."""
        return as_failed(TableOutcome.of_result(result, self.action))

    def returned(self, result: Result) -> Result:
        """What the task returns of a result, which may be too long to travel."""
        return result

    def made_from(self, table: TableInfo) -> dict[str, Any]:  # noqa: ARG002
        """What is kept beside a result, to tell it from one of other input."""
        return {}

    def done(self, context: Context, results: Sequence[tuple[TableInfo, Result]]) -> None:
        """Called with the results before failed ones fail the task."""

    def is_of_another_list(self, result: Result) -> bool:
        """Whether what this try found done by an earlier one was made of other files than are listed now."""
        return result["source_table"] in self._of_another_list

    def _run(self, context: Context, tables: Sequence[TableInfo]) -> list[Result]:
        try:
            arguments = self.arguments(context, tables)
        except ValueError as error:  # what a template has rendered
            raise AirflowFailException(str(error)) from error
        request = JobRequest(
            self.action,
            {"tables": [table.to_dict() for table in tables], "options": self.options, **arguments},
            f"{self.verb} {self.table_label}",
        )
        try:
            results = [_redacted(result) for result in self.run_job(request, context)["results"]]
        except JobError as error:
            fail(context, [TableOutcome.of_error(t.qualified_name, str(error), error.retryable) for t in tables])
        return [self._keep(context, table, result) for table, result in zip(tables, results, strict=True)]

    def _keep(self, context: Context, table: TableInfo, result: Result) -> Result:
        """Keep the result with the run. What this try found done by an earlier one has the result of that one."""
        folder = self.run_folder(context)
        if folder is None:
            return result
        task = context["ti"].task_id.rpartition(".")[2]
        place = folder.file("results", safe_name(task), f"{safe_name(table.qualified_name)}.json")
        made_from = self.made_from(table)
        if result.get("status", "").startswith(_FOUND_DONE) and place.exists():
            earlier: Result = json.loads(place.read_text())
            if made_from != (before := {name: earlier.get(name) for name in made_from}):
                self._of_another_list.add(table.qualified_name)
                made_from = before
            elif all(earlier.get(name) == result[name] for name in ("success", "location", "version")):
                return {name: earlier.get(name, value) for name, value in result.items()}
        place.write_text(json.dumps({**result, **made_from}))
        return result


class FilesOperator(ResultOperator):
    """The same, of tables whose files were listed.

    :param files: what :class:`ListFilesOperator` returned for the table or the batch. Its text is never taken for a
        template.
    :param results: what the step before left of the same tables as ``outcomes``, such as
        ``convert.output["outcomes"]``, or what it returned. Tables that failed there are passed over; where none is
        left, the task is skipped. With the trigger rule ``all_done`` one bad table of a batch then stops no other. Its
        text is never taken for a template.
    :param max_workers: tables of a batch that are worked on side by side.
    """

    template_fields: Sequence[str] = ("files", "results", *TableOperator.template_fields)
    untrusted_fields: Sequence[str] = ("table", "files", "results")

    def __init__(
        self,
        *,
        files: Files | XComArg,
        results: Result | Sequence[Result] | XComArg | None = None,
        max_workers: int = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_count("max_workers", max_workers, least=1)
        self.files = files
        self.results = results
        self.max_workers = max_workers
        # What is given may turn out to be None: a step that was killed leaves nothing.
        self._has_step_before = results is not None

    def ready(self, tables: Sequence[TableInfo]) -> tuple[list[TableInfo], list[TableOutcome]]:
        if self._has_step_before:
            told = self.told_before()
            tables = [t for t in tables if told.get(t.qualified_name, {}).get("status", "failed") != "failed"]
            if self.files is None or not tables:
                raise AirflowSkipException("Every table failed in a step before, or that step did not run")
        lists = self._lists()
        if missing := [table.qualified_name for table in tables if table.qualified_name not in lists]:
            raise AirflowFailException(f"files has no list for {', '.join(missing)}, only for {', '.join(lists)}")
        # Of a batch, those that could not be listed: their task had its tries, and none of this one's can help.
        errors = [lists[table.qualified_name] for table in tables if "error" in lists[table.qualified_name]]
        outcomes = [TableOutcome.of_error(entry["table"], entry["error"], False) for entry in errors]
        unlisted = [replace(outcome, advice=LIST_AGAIN) for outcome in outcomes]
        return [table for table in tables if "error" not in lists[table.qualified_name]], unlisted

    def arguments(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Any]:
        lists = self._lists()
        return {
            **super().arguments(context, tables),
            "lists": [lists[table.qualified_name] for table in tables],
            "max_workers": self.max_workers,
        }

    def made_from(self, table: TableInfo) -> dict[str, Any]:
        files = self._lists()[table.qualified_name]
        return {"listed": [files["file_count"], files["byte_count"]]}

    def told_before(self) -> dict[str, dict[str, Any]]:
        """What the step before said of each table."""
        documents = [] if self.results is None else batch_of(self.results, "results")
        return {document.get("table") or document["source_table"]: document for document in documents}

    def _lists(self) -> dict[str, dict[str, Any]]:
        return {files["table"]: files for files in batch_of(self.files, "files")}


class WritesAssets(FilesOperator):
    """The same, where a table that was written to is an asset, with its location as its URI.

    :param asset_alias: the alias that the assets belong to; None: there are no assets. With ``partial``, pass
        ``outlets=[AssetAlias(…)]`` too: Airflow shows a mapped task's outlets before it is made.
    """

    def __init__(self, *, asset_alias: str | None = "hive_to_delta", **kwargs: Any) -> None:
        outlets = list(kwargs.get("outlets") or [])
        if asset_alias is not None and AssetAlias(asset_alias) not in outlets:
            kwargs["outlets"] = [*outlets, AssetAlias(asset_alias)]
        super().__init__(**kwargs)
        self.asset_alias = asset_alias

    def add_asset(self, context: Context, result: Result) -> None:
        """Tell who waits for the table that it has changed."""
        if self.asset_alias is None:
            return
        extra: dict[str, Any] = {
            name: result[name] for name in ("source_table", "target_table", "version") if name in result
        }
        asset = Asset(uri=asset_uri(result["location"]))
        context["outlet_events"][AssetAlias(self.asset_alias)].add(asset, extra=extra)


def asset_uri(location: str) -> str:
    """The asset of a table: its location, with what a URI cannot hold escaped, as Airflow would cut it off."""
    return quote(location, safe="/:=@+,;!$&'()*~")


def _redacted(result: Result) -> Result:
    error = redacted_text(result["error"]) if result["error"] else None
    return {**result, "error": error, "notes": [redacted_text(note) for note in result["notes"]]}
