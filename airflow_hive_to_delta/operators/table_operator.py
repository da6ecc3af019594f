"""The base of operators that do something for one table, or for each table of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_hive_to_delta.core.errors import MissingError, describe_error
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import check_count
from airflow_hive_to_delta.engines import JobError, JobRequest
from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.operators.arguments import Options, Reader, check_readable, options_dict
from airflow_hive_to_delta.operators.jobs.submitted import generation
from airflow_hive_to_delta.operators.jobs.table_jobs import TableJobs
from airflow_hive_to_delta.operators.spark_job import SparkJobOperator
from airflow_hive_to_delta.operators.tables.batches import TableOrBatch, as_batch, batch_label
from airflow_hive_to_delta.operators.tables.definitions import current_definitions
from airflow_hive_to_delta.operators.tables.files import FileLists, StepResults, TableFiles
from airflow_hive_to_delta.operators.tables.outcomes import (
    airflow_error,
    fail_with_outcomes,
    record_outcomes,
    recording_outcomes,
    refused_as_failed,
)
from airflow_hive_to_delta.operators.tables.result_store import KeptResult, Result, ResultStore
from airflow_hive_to_delta.report.outcomes import RESULTS, TableOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg


@dataclass(frozen=True)
class ActionRun:
    """What became of the tables of a task when its action was run for them."""

    results: list[KeptResult]
    #: The outcomes of the tables without a result.
    others: list[TableOutcome]
    #: Whether the action was run for any table.
    has_run: bool
    #: The lists of files, by table, for the step after this one, where they are others than it has anyway.
    file_lists: dict[str, dict[str, Any]]
    #: The names of tables without a result for which a job was begun that ended without one.
    lost: frozenset[str] = frozenset()


class TableOperator(SparkJobOperator):
    """Runs one action of the job for one table, or for each table of a batch.

    Returns the result of each table as a dict. Results are kept with the run under the staging root, if there is one,
    and the outcomes of the tables are recorded for the report however the task ends. The task fails when a table
    failed: without retries, unless trying again may help one of them.

    An operator names its ``action``, its ``verb`` and the ``readers`` of its arguments, and may override
    :meth:`select_tables`, :meth:`job_arguments` and :meth:`outcome`.

    :param table: a table as discovery returned it, or a batch of them. Its text is never taken for a template.
    :param options: :class:`ConversionOptions`, or a dict of them. (templated)
    """

    action: ClassVar[ReportedAction]
    #: What the job is called, before the name of the table.
    verb: ClassVar[str]
    #: The arguments of the action that are attributes of the operator, and how each is read.
    readers: ClassVar[Mapping[str, Reader]] = {}
    template_fields: Sequence[str] = ("table", "options", *SparkJobOperator.template_fields)
    untrusted_fields: Sequence[str] = ("table",)

    def __init__(self, *, table: TableOrBatch | XComArg, options: Options = None, **kwargs: Any) -> None:
        kwargs.setdefault("map_index_template", "{{ task.table_label }}")
        super().__init__(**kwargs)
        self.table = table
        self.options = options_dict(options)
        self._takes_files = False
        self._follows_step = False

    def take_files(self, files: FileLists | XComArg, results: StepResults | XComArg | None, max_workers: int) -> None:
        """For constructors: the action works on the listed files of its tables.

        Each table is then taken by the definition that its catalog has when the task runs. A later try, or a task that
        was cleared, lists the files again, as :class:`ListFilesOperator` did: whatever an error names can be mended,
        and the task that failed be cleared with what comes after it, which takes the new list.

        :param files: what :class:`ListFilesOperator` returned for the table or the batch.
        :param results: what the step before left of the same tables as ``outcomes``, such as
            ``convert.output["outcomes"]``, or what it returned. Tables that failed there are passed over; where none is
            left, the task is skipped. With the trigger rule ``all_done`` one bad table of a batch then stops no other.
        :param max_workers: tables of a batch that are worked on side by side.
        """
        check_count("max_workers", max_workers, least=1)
        self.files = files
        self.results = results
        self.max_workers = max_workers
        self._takes_files = True
        # What is given may turn out to be None: a step that was killed leaves nothing.
        self._follows_step = results is not None

    def check_arguments(self) -> None:
        """Refuse, when a DAG is parsed, what the readers cannot read. Templates are known only when they run."""
        check_readable(self.readers, {name: getattr(self, name) for name in self.readers})

    @property
    def table_label(self) -> str:
        """The label of the task in Airflow's pages: the name of its table."""
        return batch_label(self.table)

    def execute(self, context: Context) -> Result | list[Result]:
        tables = [TableInfo.from_dict(table) for table in as_batch(self.table, "table")]
        with recording_outcomes(context, [table.qualified_name for table in tables]):
            results = self.execute_for(context, tables)
        return results if isinstance(self.table, list) else results[0]

    def execute_for(self, context: Context, tables: Sequence[TableInfo]) -> list[Result]:
        """Do the work of the task, and return what it returns of each table.

        An exception becomes the outcome of all tables, unless their outcomes are recorded already.
        """
        return self.conclude(context, self.run_action(context, tables))

    def run_action(self, context: Context, tables: Sequence[TableInfo]) -> ActionRun:
        """Run the action for the tables that are ready for it, and keep their results."""
        folder = self.run_folder(context)
        store = ResultStore(folder)
        instance: Any = context["ti"]
        files = self.table_files(later_try=instance.try_number > 1)
        ready, others = self.select_tables(tables, files)
        if ready and folder is not None:
            folder.check_writable()  # else a table would be done, and its result lost
        known = self.find_known_results(context, ready)
        rest = [table for table in ready if table.qualified_name not in known]

        def run_job(some: Sequence[TableInfo]) -> dict[str, Any]:
            try:
                arguments = self.job_arguments(context, some)
            except ValueError as error:  # what a template has rendered
                raise AirflowFailException(str(error)) from error
            if files is not None:
                batch_size = len(as_batch(self.table, "table"))
                arguments |= files.job_arguments(some, folder, batch_size=batch_size)
                arguments["max_workers"] = self.max_workers
            documents = [table.to_dict() for table in some]
            arguments = {"tables": documents, "options": self.options, **arguments}
            return self.run_job(JobRequest(self.action, arguments, f"{self.verb} {batch_label(documents)}"), context)

        try:
            resumed = self.resume_job(context) if rest else None
        except JobError as error:
            raise airflow_error(error) from error
        jobs = TableJobs(
            run_job,
            self.was_killed,
            store,
            try_number=instance.try_number,
            first_try=generation(context) + 1,
            resumed_try=None if resumed is None else resumed.try_number,
            log=self.log,
        )
        jobs.run(rest)
        records = {**{name: {"result": result, "files": None} for name, result in known.items()}, **jobs.records}
        results = []
        for table in ready:
            if record := records.get(table.qualified_name):
                fingerprint = {} if files is None else files.fingerprint(table, record)
                results.append(store.keep(table, record["result"], fingerprint))
        lists = {} if files is None else files.new_lists(jobs.records)
        failures = jobs.failures
        return ActionRun(results, [*failures.values(), *others], bool(ready), lists, frozenset(failures))

    def conclude(self, context: Context, run: ActionRun) -> list[Result]:
        """Record the outcomes of all tables, and return the results.

        Fails the task when a table failed, and skips it when the action was run for none.
        """
        for kept in run.results:
            self.log.info("%s", RESULTS[self.action].from_dict(kept.result))
            for note in kept.result["notes"]:
                self.log.info("  %s", note)
        outcomes = [self.outcome(kept.result, from_other_files=kept.from_other_files) for kept in run.results]
        outcomes += run.others
        found = [(kept.table.qualified_name, kept.result.get("verification")) for kept in run.results]
        verifications = {table: result for table, result in found if result and result["success"]}
        if any(outcome.status == "failed" for outcome in outcomes):
            fail_with_outcomes(context, outcomes, run.file_lists, verifications=verifications)
        record_outcomes(context, outcomes, run.file_lists, verifications=verifications)
        if not run.has_run:
            raise AirflowSkipException(
                "\n".join(f"{outcome.table}: {note}" for outcome in run.others for note in outcome.notes)
            )
        return [kept.result for kept in run.results]

    def select_tables(
        self, tables: Sequence[TableInfo], files: TableFiles | None
    ) -> tuple[list[TableInfo], list[TableOutcome]]:
        """The tables that the action can be run for, by their current definitions, and the outcomes of the others.

        :param files: the files of the tables, if the action takes them. If it does not, a table that its catalog has no
            more is taken as it was: its log can be rolled back, and its files be vacuumed.
        """
        listed, others = (list(tables), []) if files is None else files.select(tables)
        known = current_definitions(listed, aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        errors, ready = known.errors, known.tables
        if files is None:
            errors = {name: error for name, error in errors.items() if not isinstance(error, MissingError)}
            current = {table.qualified_name: table for table in known.tables}
            ready = [current.get(t.qualified_name, t) for t in listed if t.qualified_name not in errors]
        others += [TableOutcome(name, "failed", **describe_error(error).to_fields()) for name, error in errors.items()]
        return ready, others

    def find_known_results(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Result]:  # noqa: ARG002
        """The results, by table, of tables for which no job has to be run. There are none unless this is overridden."""
        return {}

    def job_arguments(self, context: Context, tables: Sequence[TableInfo]) -> dict[str, Any]:  # noqa: ARG002
        """The arguments of the action, beside the tables, their files and the options.

        :raises ValueError: a template has rendered what cannot be read.
        """
        return {name: read(name, getattr(self, name)) for name, read in self.readers.items()}

    def outcome(self, result: Result, *, from_other_files: bool = False) -> TableOutcome:  # noqa: ARG002
        """The outcome of a table, for the report, by its result.

        :param from_other_files: an earlier try made the result, from other files than are listed now.
        """
        return refused_as_failed(TableOutcome.of_result(result, self.action))

    def table_files(self, *, later_try: bool) -> TableFiles | None:
        """The lists of files of the task's tables; None: the action takes none.

        :param later_try: whether this is not the first try of the task.
        """
        if not self._takes_files:
            return None
        files: Any = self.files
        results: Any = self.results
        return TableFiles(files, results, follows_step=self._follows_step, later_try=later_try)
