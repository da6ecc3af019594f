"""The fan-in: what became of every table of a run."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, BaseXCom, TriggerRule
from airflow.sdk.exceptions import AirflowFailException

from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.links import ReportLink
from airflow_hive_to_delta.operators.discover import LEFT_OUT, UNMATCHED
from airflow_hive_to_delta.operators.staging import RunFolder, address, browser_address, check_root
from airflow_hive_to_delta.operators.tables import FILES, GOES_ON, MAP_INDEX, OUTCOMES, qualified_name
from airflow_hive_to_delta.report.html import render_html
from airflow_hive_to_delta.report.outcomes import RESULTS, TableOutcome, build_report, failed_tables

if TYPE_CHECKING:
    from airflow.sdk import Context

#: The XCom with the report.
REPORT = "report"
#: A report with more text than this travels without its tables, which are in the files: XComs are rows of a database.
_MOST_TEXT = 48_000
_UNHEARD = "Its task ended without a word, or never began: killed, timed out or skipped. See its log"

_UNPROVEN = (
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
            outcomes, title=self.title, run=self._about(context), action=self.action, elapsed_seconds=elapsed(context)
        )
        folder = RunFolder(self.staging, context, conn_id=self.staging_conn_id, aws_conn_id=self.aws_conn_id)
        pushed = publish(context, folder, "report", report)
        self.report_page = pushed["page"]
        failed = failed_tables(report)
        self.log.info("The report is at %s and %s", pushed["html"], pushed["json"])
        for table in report["tables"]:
            self.log.info("%-12s %s %s", table["status"], table["table"], table["error"] or "")
        if failed:
            named = ", ".join(failed[:20]) + (f" and {len(failed) - 20} more" if len(failed) > 20 else "")
            raise AirflowFailException(f"{len(failed)} of {len(report['tables'])} tables failed: {named}")
        return {"totals": report["totals"], "json": pushed["json"], "html": pushed["html"]}

    def _about(self, context: Context) -> dict[str, str]:
        """The run, and what discovery looked for and did not find."""
        pulled = self._pulled(context, self.discover_task_id, UNMATCHED)
        unmatched = [str(name) for names in pulled for name in (names if isinstance(names, list) else [names])]
        return about(context) | ({"nothing_found_by": ", ".join(unmatched)} if unmatched else {})

    def _outcomes(self, context: Context) -> Iterator[TableOutcome]:
        """What each step says of the tables that discovery names now.

        Where a task failed, what a later step said is of an earlier run: a task that does not run keeps its XComs.
        """
        discovered = self._pulled(context, self.discover_task_id)
        if not any(value is not None for value in discovered):
            raise AirflowFailException(
                f"No table is known: {self.discover_task_id} failed, or did not run. Read its log, then clear it"
            )
        batches = list(_batches(discovered))
        index_of = {name: index for index, batch in enumerate(batches) for name in batch}
        found = {name: TableOutcome(name, "not_run", error=_UNHEARD) for name in index_of}
        for outcome in flat(self._pulled(context, self.discover_task_id, LEFT_OUT)):
            yield TableOutcome.from_dict(outcome)
        heard: set[str] = set()
        taken_up: set[str] = set()
        for task_id in self.table_task_ids:
            words = list(self._words(context, task_id, index_of))
            heard = {word.table for word, _ in words}
            for word, goes_on in words:
                if found[word.table].status != "failed":
                    found[word.table] = _with(found[word.table], word)
                elif word.table in taken_up:
                    found[word.table] = word
                if goes_on:
                    taken_up.add(word.table)
                else:
                    taken_up.discard(word.table)
        for batch in batches:
            stopped = any(found[name].status == "failed" for name in batch)
            for name in set(batch) - heard:
                found[name] = _without_last_word(found[name], stopped=stopped)
        yield from map(_with_proof_or_note, found.values())

    def _words(
        self, context: Context, task_id: str, index_of: Mapping[str, int]
    ) -> Iterator[tuple[TableOutcome, bool]]:
        """What a step says of each table, by the task that has the table now; and whether that task went on with it.

        Airflow keeps the XComs of mapped tasks that a cleared run has no more, and a table may have another index then.
        """
        for told in flat(self._pulled(context, task_id, OUTCOMES)):
            index = told.pop(MAP_INDEX, -1)
            told.pop(FILES, None)
            goes_on = bool(told.pop(GOES_ON, False))
            word = TableOutcome.from_dict(told)
            if word.table in index_of and index in (-1, index_of[word.table]):
                yield word, goes_on

    def _pulled(self, context: Context, task_id: str, key: str = BaseXCom.XCOM_RETURN_KEY) -> list[Any]:
        """What every mapped task of this id pushed. Asked for a list of ids, so that one value comes in a list too."""
        return list(context["ti"].xcom_pull(task_ids=[task_id], key=key) or [])


def about(context: Context) -> dict[str, str]:
    """What a report says of the run that it is of."""
    run: Any = context["dag_run"]
    return {"dag_id": run.dag_id, "run_id": run.run_id, "started": str(run.start_date or "")}


def elapsed(context: Context) -> float | None:
    """Seconds since the run started."""
    run: Any = context["dag_run"]
    return None if run.start_date is None else (dt.datetime.now(dt.UTC) - run.start_date).total_seconds()


def publish(context: Context, folder: RunFolder, name: str, report: dict[str, Any]) -> dict[str, Any]:
    """Write a report as JSON and as a page, and push it, with where these are, as ``report``.

    ``json`` and ``html`` are the addresses of the files, ``page`` is where a person finds the page.
    """
    as_json, as_html = folder.file(f"{name}.json"), folder.file(f"{name}.html")
    as_json.write_text(json.dumps(report, indent=1))
    as_html.write_text(render_html(report))
    failed = failed_tables(report)
    where = {"json": address(as_json), "html": address(as_html), "page": browser_address(as_html)}
    pushed = {**report, "failed": failed, **where}
    if len(json.dumps(pushed)) > _MOST_TEXT:
        pushed = {**pushed, "tables": [], "failed": failed[:100]}
    context["ti"].xcom_push(REPORT, pushed)
    return pushed


def flat(given: Any) -> Iterator[dict[str, Any]]:
    """Every dict in a value that may be none, one, or many in lists."""
    if isinstance(given, dict):
        yield given
    elif given is not None and not isinstance(given, str):
        for item in given:
            yield from flat(item)


def _batches(discovered: Any) -> Iterator[list[str]]:
    """The names of the tables that each mapped task took."""
    for item in chain.from_iterable(value if isinstance(value, list) else [value] for value in discovered):
        yield [qualified_name(table) for table in flat(item)]


def _with(before: TableOutcome, word: TableOutcome) -> TableOutcome:
    """What is known of a table when a later step has had its word, too."""
    adds = word.status in ("verified", "skipped")
    adds = adds or (word.status == "unchanged" and before.status in ("converted", "registered"))
    if before.status == "not_run" or not adds:
        return replace(word, target_table=word.target_table or before.target_table)
    notes = [*before.notes, *(note for note in word.notes if note not in before.notes)]
    seconds = before.duration_seconds + word.duration_seconds
    return replace(before, notes=notes, verified={**before.verified, **word.verified}, duration_seconds=seconds)


def _with_proof_or_note(known: TableOutcome) -> TableOutcome:
    """What is known of a table; if this run has converted it and nothing has proven it, that too."""
    told = known.verified or any(note.startswith("Not verified: ") for note in known.notes)
    if known.status not in ("converted", "registered") or told:
        return known
    return replace(known, notes=[*known.notes, _UNPROVEN])


def _without_last_word(known: TableOutcome, *, stopped: bool) -> TableOutcome:
    """A table of which the last step said nothing: it failed too, unless another table of its batch stopped it."""
    if known.status in ("failed", "not_run"):
        return known
    if stopped:
        return replace(known, notes=[*known.notes, "The steps after it did not run: another table of its batch failed"])
    return replace(known, status="not_run", error=_UNHEARD, advice="")
