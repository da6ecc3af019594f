"""A person's approval of a campaign's plan, or of a cut-over, by Airflow's human-in-the-loop operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator

from airflow_hive_to_delta.campaigns.closing import SUMMARY, SummaryRecord
from airflow_hive_to_delta.campaigns.decisions import QuestionRecord, read_decisions, read_question, record_approval
from airflow_hive_to_delta.campaigns.plan import PlanRow, read_plan, with_decisions
from airflow_hive_to_delta.campaigns.states import PHASES, Phase
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.times import now
from airflow_hive_to_delta.campaigns.waves import choose_tables
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.job.file_names import safe_name
from airflow_hive_to_delta.operators.campaigns.campaign_operator import CampaignOperator
from airflow_hive_to_delta.operators.campaigns.report import REPORT_DOCUMENT
from airflow_hive_to_delta.operators.tables.outcomes import airflow_error
from airflow_hive_to_delta.report.formatting import format_bytes, format_count

if TYPE_CHECKING:
    from airflow.sdk import Context

_MOST_ROWS = 20


class CampaignApprovalOperator(CampaignOperator, ApprovalOperator):
    """Asks a person to approve the tables that wait, with the plan's numbers in the question.

    Nobody is asked when no table waits. Of a conversion each table is approved once, for all waves; a cut-over is
    approved for the run that asks. Who rejects it skips the tasks after it.

    :param phase: what is to be approved.
    :param verify: whether the campaign verifies what it converts.
    :param only: patterns of the tables that the phase takes. (templated)

    The other parameters, such as ``assigned_users``, ``notifiers`` and ``response_timeout``, are those of Airflow's
    ``ApprovalOperator``.
    """

    template_fields: Sequence[str] = (
        *("only", *CampaignOperator.template_fields),
        *ApprovalOperator.template_fields,
    )

    def __init__(
        self,
        *,
        campaign: str,
        phase: Phase = "convert",
        verify: bool = True,
        only: str | Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        verb = PHASES[phase].verb if phase in PHASES else phase  # which is refused below
        kwargs.setdefault("subject", f"{verb} the tables of the campaign {campaign}?")
        super().__init__(campaign=campaign, phase=phase, **kwargs)
        self.verify = verify
        self.only = only

    def execute(self, context: Context) -> Any:
        try:
            store = self.open_store()
            waiting = self._waiting(store)
            if not waiting:
                self.log.info("No table waits for an approval")
                return None
            question = QuestionRecord(self.phase, [row.table for row in waiting])
            store.write(self._question_path(context), question.to_dict())
            summary = store.read_as(SummaryRecord, SUMMARY) or SummaryRecord()
        except HiveToDeltaError as error:
            raise airflow_error(error) from error
        documents = {"plan": "plan.csv", **({"report": REPORT_DOCUMENT} if summary.waves else {})}
        links = {name: self.browser_address(document) for name, document in documents.items()}
        # Not a template: the names of tables are in it.
        self.body = describe_question(self.phase, waiting, summary, links)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        answer = super().execute_complete(context, event)
        if answer["chosen_options"] == [self.REJECT]:
            return {"approved": False}
        by = str((answer.get("responded_by_user") or {}).get("name") or "a person")
        try:
            store = self.open_store()
            # What was asked for, whatever the plan says by now.
            asked = read_question(store, self._question_path(context))
            record_approval(store, self.phase, asked.tables, run=self.run_key(context), by=by, now=now())
        except HiveToDeltaError as error:
            raise airflow_error(error) from error
        return {"approved": True, "by": by, "tables": len(asked.tables)}

    def _question_path(self, context: Context) -> str:
        return f"questions/{safe_name(self.run_key(context))}.json"

    def _waiting(self, store: CampaignStore) -> list[PlanRow]:
        rows = with_decisions(read_plan(store), read_decisions(store))
        states = store.states()
        found = choose_tables(rows, states, phase=self.phase, verify=self.verify, only=self.only or None, now=now())
        if self.phase != "convert":
            return found
        return [row for row in found if row.table not in states or states[row.table].state == "planned"]


def describe_question(phase: Phase, rows: Sequence[PlanRow], summary: SummaryRecord, links: Mapping[str, str]) -> str:
    """The question, as Markdown. Names are in code, so that nothing of them is taken for Markdown.

    :param links: by what they are of.
    """
    files, size = sum(row.files for row in rows), sum(row.bytes for row in rows)
    lines = [
        f"**{PHASES[phase].verb} {format_count(len(rows), 'table')}** with {format_count(files, 'file')} "
        f"and {format_bytes(size)}.",
        "",
        "| table | owner | files | size |",
        "|---|---|---:|---:|",
    ]
    lines += [
        f"| {_code(row.table)} | {_code(row.owner)} | {row.files:,} | {format_bytes(row.bytes)} |"
        for row in rows[:_MOST_ROWS]
    ]
    if len(rows) > _MOST_ROWS:
        lines.append(f"| and {len(rows) - _MOST_ROWS:,} more | | | |")
    states = ", ".join(f"{each.get('tables', 0):,} {name.replace('_', ' ')}" for name, each in summary.by_state.items())
    lines += ["", f"The campaign: {states}.", ""]
    # Of a staging root on a disk there is only the path.
    lines += [
        f"- [The {name}](<{url}>)" if url.startswith("http") else f"- The {name}: {_code(url)}"
        for name, url in links.items()
    ]
    return "\n".join(lines)


def _code(text: str) -> str:
    clean = "".join(character for character in text if character.isprintable() and character not in "`|")
    return f"`{clean}`" if clean else ""
