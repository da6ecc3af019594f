"""The bases of operators that do something with tables, each of which then has a result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_hive_to_delta.core.errors import describe_error
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.engines import JobError, JobRequest
from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.job.file_names import safe_name
from airflow_hive_to_delta.job.manifests import INLINE_LIMIT
from airflow_hive_to_delta.job.table_results import EarlierTries, Record, earlier_tries
from airflow_hive_to_delta.operators.arguments import Reader, check
from airflow_hive_to_delta.operators.definitions import current_definitions
from airflow_hive_to_delta.operators.spark_job import TableOperator
from airflow_hive_to_delta.operators.staging import address
from airflow_hive_to_delta.operators.tables import FILES, as_failed, batch_of, check_count, fail, label_of, tell
from airflow_hive_to_delta.report.outcomes import LIST_AGAIN, RESULTS, TableOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

#: One file list as :class:`ListFilesOperator` returns it, or one for each table of a batch.
Files = dict[str, Any] | Sequence[dict[str, Any]]
Result = dict[str, Any]


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
        self._later_try = False
        #: What jobs left of the tables that were ready, and the outcomes of those of which they left nothing.
        self._done: dict[str, Record] = {}
        self._without_result: dict[str, TableOutcome] = {}

    def check_arguments(self) -> None:
        """Refuse, when a DAG is parsed, what the readers cannot read. Templates are known only when they run."""
        check(self.readers, {name: getattr(self, name) for name in self.readers})

    def execute_for(self, context: Context, tables: Sequence[TableInfo]) -> list[Result]:
        self._done, self._without_result = {}, {}
        self._later_try = context["ti"].try_number > 1
        ready, others = self.ready(tables)
        if ready and (folder := self.run_folder(context)) is not None:
            folder.check_writable()  # else a table would be done, and its result lost
        self._run(context, ready)
        done = [table for table in ready if table.qualified_name in self._done]
        kept = [self._keep(context, table, self._done[table.qualified_name]["result"]) for table in done]
        self.done(context, list(zip(done, kept, strict=True)))
        for result in kept:
            self.log.info("%s", RESULTS[self.action].from_dict(result))
            for note in result["notes"]:
                self.log.info("  %s", note)
        outcomes = [*map(self.outcome, kept), *self._without_result.values(), *others]
        if any(outcome.status == "failed" for outcome in outcomes):
            fail(context, outcomes, self.lists_left())
        tell(context, outcomes, self.lists_left())
        if not ready:
            raise AirflowSkipException(
                "\n".join(f"{outcome.table}: {note}" for outcome in others for note in outcome.notes)
            )
        return [self.returned(result) for result in kept]

    def ready(self, tables: Sequence[TableInfo]) -> tuple[list[TableInfo], list[TableOutcome]]:
        """The tables that the action can be run for, by their current definitions, and the outcomes of the others.

        One that its catalog has no more is taken as it was: its log can be rolled back, and its files be vacuumed.
        """
        known = current_definitions(tables, aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        gone = {name for name, error in known.errors.items() if _is_missing(error)}
        others = {name: error for name, error in known.errors.items() if name not in gone}
        current = {table.qualified_name: table for table in known.tables}
        ready = [current.get(t.qualified_name, t) for t in tables if t.qualified_name not in others]
        return ready, [TableOutcome.of_error(name, str(e), describe_error(e).retryable) for name, e in others.items()]

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

    def lists_left(self) -> dict[str, dict[str, Any]]:
        """Lists of files for the step after, where they are others than it has anyway."""
        return {}

    def _run(self, context: Context, tables: Sequence[TableInfo]) -> None:
        """Run the action for each table that no earlier try of this task is done with.

        A table that was being worked on when an earlier job died gets a job to itself, after the others: whichever of
        such tables it was, it takes no other with it.
        """
        earlier = self._earlier(context, tables) if self._later_try else EarlierTries()
        first = _first_try(context, self.retries)
        for name, (number, record) in earlier.ended.items():
            if number >= first and record["result"].get("error") is None:
                self.log.info("%s: done in try %d", name, number)
                self._done[name] = _redacted_record(record)
        rest = [table for table in tables if table.qualified_name not in self._done]
        suspects = [table for table in rest if table.qualified_name in earlier.suspects]
        others = [table for table in rest if table not in suspects]
        groups = [some for some in (others, *([table] for table in suspects)) if some]
        for number, some in enumerate(groups):
            try:
                self._run_job(context, some)
            except JobError as error:
                self._take_what_is_left(context, some, error)
                if self._killed:
                    for table in chain.from_iterable(groups[number + 1 :]):
                        name = table.qualified_name
                        self._without_result[name] = TableOutcome.of_error(name, str(error), error.retryable)
                    break

    def _run_job(self, context: Context, tables: Sequence[TableInfo]) -> None:
        try:
            arguments = self.arguments(context, tables)
        except ValueError as error:  # what a template has rendered
            raise AirflowFailException(str(error)) from error
        if (folder := self._records_folder(context)) is not None:
            arguments["table_results"] = {"folder": address(folder), "try": context["ti"].try_number}
        documents = [table.to_dict() for table in tables]
        request = JobRequest(
            self.action,
            {"tables": documents, "options": self.options, **arguments},
            f"{self.verb} {label_of(documents)}",
        )
        answer = self.run_job(request, context)
        made = answer.get("files") or [None] * len(tables)
        for table, result, files in zip(tables, answer["results"], made, strict=True):
            self._done[table.qualified_name] = _redacted_record({"result": result, "files": files})

    def _take_what_is_left(self, context: Context, tables: Sequence[TableInfo], error: JobError) -> None:
        """What a job that died has left; the tables that it had not ended have failed."""
        left = self._earlier(context, tables)
        for table in tables:
            name = table.qualified_name
            number, record = left.ended.get(name, (0, {}))
            if number == context["ti"].try_number:
                self._done[name] = _redacted_record(record)
                continue
            text = str(error)
            if len(tables) > 1 and name not in left.suspects and left.suspects:
                text = f"The job ended before this table began, while it worked on {', '.join(left.suspects)}. {text}"
            elif len(tables) > 1 and name in left.suspects:
                text = f"{text}. A later try works on this table by itself"
            self._without_result[name] = TableOutcome.of_error(name, text, error.retryable)

    def _earlier(self, context: Context, tables: Sequence[TableInfo]) -> EarlierTries:
        """What jobs of this task have left of the tables, in this try too."""
        folder = self._records_folder(context)
        if folder is None:
            return EarlierTries()
        folder.fs.invalidate_cache()  # others write there
        try:
            names = [path.name for path in folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):  # no job has kept anything there
            return EarlierTries()
        return earlier_tries((t.qualified_name for t in tables), names, lambda name: (folder / name).read_text())

    def _records_folder(self, context: Context) -> Any:
        """Where the jobs of this task keep what they are done with; None without a staging root."""
        folder = self.run_folder(context)
        instance: Any = context["ti"]
        task = instance.task_id.rpartition(".")[2]
        index = -1 if instance.map_index is None else instance.map_index
        return None if folder is None else folder.file("jobs", safe_name(task), str(index))

    def _keep(self, context: Context, table: TableInfo, result: Result) -> Result:
        """Keep the result with the run. What this try found done by an earlier one has the result of that one."""
        folder = self.run_folder(context)
        if folder is None:
            return result
        task = context["ti"].task_id.rpartition(".")[2]
        place = folder.file("results", safe_name(task), f"{safe_name(table.qualified_name)}.json")
        made_from = self.made_from(table)
        if _is_of_an_earlier_try(result) and place.exists():
            earlier: Result = json.loads(place.read_text())
            if made_from != (before := {name: earlier.get(name) for name in made_from}):
                self._of_another_list.add(table.qualified_name)
                made_from = before
            elif all(earlier.get(name) == result[name] for name in ("success", "location", "version")):
                # That it was verified is known since.
                since = {name: result[name] for name in ("verified",) if name in result}
                return {name: earlier.get(name, value) for name, value in result.items()} | since
        place.write_text(json.dumps({**result, **made_from}))
        return result


class FilesOperator(ResultOperator):
    """Runs an action of the job for tables whose files were listed.

    Each table is taken by the definition that its catalog has when the task runs. A later try, or a task that was
    cleared, lists the files again, as :class:`ListFilesOperator` did: whatever an error names can be mended, and the
    task that failed be cleared with what comes after it, which takes the new list.

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
        # Of a batch, those that could not be listed: their task had its tries, and another one now comes too soon.
        errors = [entry for entry in (lists[table.qualified_name] for table in tables) if self._has_no_list(entry)]
        unlisted = [
            TableOutcome(e["table"], "failed", error=e["error"], retryable=False, advice=_advice_without_list(e))
            for e in errors
        ]
        known = current_definitions(
            [table for table in tables if not self._has_no_list(lists[table.qualified_name])],
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
        )
        unlisted += [
            TableOutcome.of_error(name, str(e), describe_error(e).retryable) for name, e in known.errors.items()
        ]
        return known.tables, unlisted

    def _has_no_list(self, entry: Mapping[str, Any]) -> bool:
        return "error" in entry and not (self._later_try and entry.get("listing"))

    def arguments(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Any]:
        lists = self._lists()
        folder = self.run_folder(context)
        instance: Any = context["ti"]
        task = safe_name(instance.task_id.rpartition(".")[2])

        def manifest(table: TableInfo) -> str | None:
            name = f"{safe_name(table.qualified_name)}.{task}.{instance.try_number}.parquet"
            return None if folder is None else address(folder.file("files", name))

        return {
            **super().arguments(context, tables),
            "lists": [lists[table.qualified_name] for table in tables],
            "list_again": {
                "manifests": [manifest(table) for table in tables],
                "inline_limit": INLINE_LIMIT // len(batch_of(self.table, "table")),
                "later_try": self._later_try,
            },
            "max_workers": self.max_workers,
        }

    def made_from(self, table: TableInfo) -> dict[str, Any]:
        name = table.qualified_name
        files = self._done[name]["files"] or self._lists()[name]
        return {"listed": [files["file_count"], files["byte_count"]]} if "error" not in files else {}

    def lists_left(self) -> dict[str, dict[str, Any]]:
        before = {name: told[FILES] for name, told in self.told_before().items() if told.get(FILES)}
        made = {name: record["files"] for name, record in self._done.items() if record["files"]}
        return before | made

    def told_before(self) -> dict[str, dict[str, Any]]:
        """What the step before said of each table."""
        documents = [] if self.results is None else batch_of(self.results, "results")
        return {document.get("table") or document["source_table"]: document for document in documents}

    def _lists(self) -> dict[str, dict[str, Any]]:
        """The list of each table's files: that of the step before, if it has made one, for it has worked with that."""
        listed = {files["table"]: files for files in batch_of(self.files, "files")}
        return listed | {name: told[FILES] for name, told in self.told_before().items() if told.get(FILES)}


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


def _is_of_an_earlier_try(result: Result) -> bool:
    """Whether there was nothing left to do. A conversion that finds a log says so in its message."""
    return result.get("status", "").startswith("already_") or bool(result.get("message"))


def _first_try(context: Context, retries: int | None) -> int:
    """The first try since the task was last cleared, or of all. A person who clears a task means all its tables."""
    instance: Any = context["ti"]
    return int(instance.max_tries) - (retries or 0) + 1


def _advice_without_list(entry: Mapping[str, Any]) -> str:
    return "" if entry.get("listing") else LIST_AGAIN


def _is_missing(error: Exception) -> bool:
    from airflow_hive_to_delta.core.errors import MissingError

    return isinstance(error, MissingError)


def _redacted_record(record: Record) -> Record:
    return {"result": _redacted(record["result"]), "files": record.get("files")}


def _redacted(result: Result) -> Result:
    error = redact_credentials(result["error"]) if result["error"] else None
    return {**result, "error": error, "notes": [redact_credentials(note) for note in result["notes"]]}
