"""The report at the end of a run: what became of every table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, BaseXCom, TriggerRule
from airflow.sdk.exceptions import AirflowFailException

from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.links import ReportLink
from airflow_hive_to_delta.operators.discover import LEFT_OUT, UNMATCHED
from airflow_hive_to_delta.operators.report_publishing import describe_run, publish_report, seconds_since_start
from airflow_hive_to_delta.operators.staging import RunFolder, check_root
from airflow_hive_to_delta.operators.tables.batches import flatten, qualified_name
from airflow_hive_to_delta.operators.tables.outcomes import FILES, GOES_ON, MAP_INDEX, OUTCOMES, VERIFICATION
from airflow_hive_to_delta.report.outcomes import RESULTS, TableOutcome, build_report, failed_tables

if TYPE_CHECKING:
    from airflow.sdk import Context

_NO_OUTCOME = "Its task ended without a word, or never began: killed, timed out or skipped. See its log"
_NOT_VERIFIED = (
    "Not verified: no step of this run has compared it with its original. Pass verify='counts' to the task group, or "
    "add a VerifyTableOperator"
)


class MigrationReportOperator(BaseOperator):
    """Reports what became of every table, whatever happened, and fails the run when any table failed.

    Writes the report as JSON and as one HTML page into the run's folder under the staging root, and pushes it as
    ``report`` before it fails. It runs when all is done. That tables failed is not tried again.

    :param discover_task_id: the task that returned the tables, and pushed what it left out.
    :param table_task_ids: the tasks that ran for each table, in their order, mapped over what discovery returned: each
        of them leaves its outcomes.
    :param staging: the staging root, such as ``s3://bucket/staging``. (templated)
    :param staging_conn_id: the connection of the staging root; ``aws_conn_id`` for one on S3. (templated)
    :param aws_conn_id: the AWS connection; None: the environment's identity. (templated)
    :param title: the headline of the report. (templated)
    :param action: what the run is for, of which the report gives totals: that of the last operator that writes.
    """

    template_fields: Sequence[str] = (
        *("discover_task_id", "table_task_ids", "staging", "staging_conn_id", "aws_conn_id", "title"),
    )
    ui_color = "#f3e8fd"
    operator_extra_links = (ReportLink(),)
    #: Where a person finds the page, once it is written.
    report_page: str | None = None

    def __init__(
        self,
        *,
        discover_task_id: str,
        table_task_ids: Sequence[str],
        staging: str,
        staging_conn_id: str | None = None,
        aws_conn_id: str | None = "aws_default",
        title: str = "Hive to Delta: {{ dag.dag_id }}",
        action: ReportedAction = "convert",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("trigger_rule", TriggerRule.ALL_DONE)
        super().__init__(**kwargs)
        if isinstance(table_task_ids, str) or not table_task_ids:
            raise ValueError(f"table_task_ids is {table_task_ids!r}, expected task ids, such as [convert.task_id]")
        if action not in RESULTS:
            raise ValueError(f"action is {action!r}, expected one of {', '.join(RESULTS)}")
        check_root(staging)
        self.discover_task_id = discover_task_id
        self.table_task_ids = list(table_task_ids)
        self.staging = staging
        self.staging_conn_id = staging_conn_id
        self.aws_conn_id = aws_conn_id
        self.title = title
        self.action: ReportedAction = action

    def execute(self, context: Context) -> dict[str, Any]:
        outcomes = list(self._outcomes(context))
        report = build_report(
            outcomes,
            title=self.title,
            run=self._describe_run(context),
            action=self.action,
            elapsed_seconds=seconds_since_start(context),
        )
        folder = RunFolder(self.staging, context, conn_id=self.staging_conn_id, aws_conn_id=self.aws_conn_id)
        pushed = publish_report(context, folder, "report", report)
        self.report_page = pushed["page"]
        failed = failed_tables(report)
        self.log.info("The report is at %s and %s", pushed["html"], pushed["json"])
        for table in report["tables"]:
            self.log.info("%-12s %s %s", table["status"], table["table"], table["error"] or "")
        if failed:
            named = ", ".join(failed[:20]) + (f" and {len(failed) - 20} more" if len(failed) > 20 else "")
            raise AirflowFailException(f"{len(failed)} of {len(report['tables'])} tables failed: {named}")
        return {"totals": report["totals"], "json": pushed["json"], "html": pushed["html"]}

    def _describe_run(self, context: Context) -> dict[str, str]:
        """The run, and what discovery looked for and did not find."""
        pulled = self._pull(context, self.discover_task_id, UNMATCHED)
        unmatched = [str(name) for names in pulled for name in (names if isinstance(names, list) else [names])]
        return describe_run(context) | ({"nothing_found_by": ", ".join(unmatched)} if unmatched else {})

    def _outcomes(self, context: Context) -> Iterator[TableOutcome]:
        """The outcome of every table that discovery names now, by the outcomes that each step has recorded.

        Where a task failed, the outcomes of later steps are of an earlier run: a task that does not run keeps its
        XComs.
        """
        discovered = self._pull(context, self.discover_task_id)
        if not any(value is not None for value in discovered):
            raise AirflowFailException(
                f"No table is known: {self.discover_task_id} failed, or did not run. Read its log, then clear it"
            )
        batches = list(_batches(discovered))
        index_of = {name: index for index, batch in enumerate(batches) for name in batch}
        outcomes_by_table = {name: TableOutcome(name, "not_run", error=_NO_OUTCOME) for name in index_of}
        for outcome in flatten(self._pull(context, self.discover_task_id, LEFT_OUT)):
            yield TableOutcome.from_dict(outcome)
        in_last_step: set[str] = set()
        taken_up: set[str] = set()
        for task_id in self.table_task_ids:
            step = list(self._step_outcomes(context, task_id, index_of))
            in_last_step = {later.table for later, _ in step}
            for later, goes_on in step:
                name = later.table
                if outcomes_by_table[name].status != "failed":
                    outcomes_by_table[name] = _merge(outcomes_by_table[name], later)
                elif name in taken_up:
                    outcomes_by_table[name] = later
                if goes_on:
                    taken_up.add(name)
                else:
                    taken_up.discard(name)
        for batch in batches:
            stopped = any(outcomes_by_table[name].status == "failed" for name in batch)
            for name in set(batch) - in_last_step:
                outcomes_by_table[name] = _without_last_step(outcomes_by_table[name], stopped=stopped)
        yield from map(_with_note_if_unverified, outcomes_by_table.values())

    def _step_outcomes(
        self, context: Context, task_id: str, index_of: Mapping[str, int]
    ) -> Iterator[tuple[TableOutcome, bool]]:
        """The outcomes that a step recorded, by the task that has the table now; and whether that task went on with it.

        Airflow keeps the XComs of mapped tasks that a cleared run has no more, and a table may have another index then.
        """
        for document in flatten(self._pull(context, task_id, OUTCOMES)):
            index = document.pop(MAP_INDEX, -1)
            document.pop(FILES, None)
            document.pop(VERIFICATION, None)
            goes_on = bool(document.pop(GOES_ON, False))
            outcome = TableOutcome.from_dict(document)
            if outcome.table in index_of and index in (-1, index_of[outcome.table]):
                yield outcome, goes_on

    def _pull(self, context: Context, task_id: str, key: str = BaseXCom.XCOM_RETURN_KEY) -> list[Any]:
        """What every mapped task of this id pushed."""
        # Asked for a list of ids, one value comes in a list too.
        return list(context["ti"].xcom_pull(task_ids=[task_id], key=key) or [])


def _batches(discovered: Any) -> Iterator[list[str]]:
    """The names of the tables that each mapped task took."""
    for item in chain.from_iterable(value if isinstance(value, list) else [value] for value in discovered):
        yield [qualified_name(table) for table in flatten(item)]


def _merge(before: TableOutcome, later: TableOutcome) -> TableOutcome:
    """The outcome of a table by an earlier and a later step: that of the later one, unless it only adds to it."""
    adds = later.status in ("verified", "skipped")
    adds = adds or (later.status == "unchanged" and before.status in ("converted", "registered"))
    if before.status == "not_run" or not adds:
        return replace(later, target_table=later.target_table or before.target_table)
    notes = [*before.notes, *(note for note in later.notes if note not in before.notes)]
    seconds = before.duration_seconds + later.duration_seconds
    return replace(
        before,
        notes=notes,
        verified={**before.verified, **later.verified},
        verification_skipped=before.verification_skipped or later.verification_skipped,
        duration_seconds=seconds,
    )


def _with_note_if_unverified(known: TableOutcome) -> TableOutcome:
    """The outcome of a table; if this run has converted it and nothing has verified it, with a note that says so."""
    is_explained = known.verified or known.verification_skipped
    if known.status not in ("converted", "registered") or is_explained:
        return known
    return replace(known, notes=[*known.notes, _NOT_VERIFIED])


def _without_last_step(known: TableOutcome, *, stopped: bool) -> TableOutcome:
    """The outcome of a table for which the last step has none: it failed, unless another table stopped its batch."""
    if known.status in ("failed", "not_run"):
        return known
    if stopped:
        return replace(known, notes=[*known.notes, "The steps after it did not run: another table of its batch failed"])
    return replace(known, status="not_run", error=_NO_OUTCOME, advice="")
