"""The state of one table in a campaign, and how it changes.

A table is *planned*, maybe *approved* by a person, *converted*, *verified*, *synced* again and again, *cut over* and
maybe *rolled back*. It may be *refused*, for it cannot become a Delta table in place; *failed*, to be tried again in a
later wave; in need of a person, when trying again does not help; or *excluded* by a person.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from airflow_hive_to_delta.campaigns.documents import CampaignDocument, check_times
from airflow_hive_to_delta.campaigns.times import format_time, parse_time
from airflow_hive_to_delta.core.options import check_count, check_duration
from airflow_hive_to_delta.core.redaction import redact_credentials

StateName = Literal[
    "planned",
    "approved",
    "converted",
    "verified",
    "synced",
    "cut_over",
    "rolled_back",
    "refused",
    "failed",
    "needs_person",
    "excluded",
]
#: What pages call each state, in the order of their bars: what is done first, what is left last. The styles colour a
#: state by the class of its name.
STATES: dict[StateName, str] = {
    "cut_over": "Cut over",
    "synced": "Synced",
    "verified": "Verified",
    "rolled_back": "Rolled back",
    "excluded": "Excluded",
    "refused": "Refused",
    "needs_person": "Needs a person",
    "failed": "Failed",
    "converted": "Converted",
    "approved": "Approved",
    "planned": "Planned",
}
Phase = Literal["convert", "sync", "cut_over", "roll_back"]


@dataclass(frozen=True)
class PhaseInfo:
    """What a campaign does in one of its phases."""

    #: What a person is asked to approve: to convert the tables.
    verb: str
    #: What pages call the phase.
    label: str
    #: The state of a table whose work is done. A table that was converted and not verified is *converted*.
    done: StateName


PHASES: dict[Phase, PhaseInfo] = {
    "convert": PhaseInfo("Convert", "Convert and verify", "verified"),
    "sync": PhaseInfo("Sync", "Sync", "synced"),
    "cut_over": PhaseInfo("Cut over", "Cut over", "cut_over"),
    "roll_back": PhaseInfo("Roll back", "Roll back", "rolled_back"),
}

_AFTER_WORK: tuple[StateName, ...] = ("converted", "verified", "refused", "failed", "needs_person", "excluded")
#: The states that a table can come to from each state. Work that is repeated leaves it where it is.
TRANSITIONS: dict[StateName, frozenset[StateName]] = {
    "planned": frozenset({"approved", *_AFTER_WORK}),
    "approved": frozenset({"planned", *_AFTER_WORK}),
    "converted": frozenset({"verified", "synced", "cut_over", "rolled_back", "needs_person", "excluded"}),
    "verified": frozenset({"synced", "cut_over", "rolled_back", "needs_person", "excluded"}),
    "synced": frozenset({"verified", "cut_over", "rolled_back", "needs_person", "excluded"}),
    "cut_over": frozenset({"rolled_back", "needs_person"}),
    "rolled_back": frozenset({"planned", "approved", "excluded"}),
    "refused": frozenset({"planned", "approved", "excluded"}),
    "failed": frozenset({"planned", "approved", *_AFTER_WORK}),
    "needs_person": frozenset({"planned", "approved", "converted", "verified", "synced", "cut_over", "excluded"}),
    "excluded": frozenset({"planned", "approved", "converted", "verified", "synced", "refused"}),
}
#: The states in which nothing is left to be done for a table in each phase, unless a person decides otherwise.
FINAL: dict[Phase, frozenset[StateName]] = {
    "convert": frozenset(
        {"verified", "synced", "cut_over", "rolled_back", "refused", "needs_person", "excluded"},
    ),
    "sync": frozenset({"cut_over", "rolled_back", "refused", "needs_person", "excluded"}),
    "cut_over": frozenset({"cut_over", "rolled_back", "refused", "needs_person", "excluded"}),
    "roll_back": frozenset({"rolled_back", "refused", "needs_person", "excluded"}),
}
#: The states of tables that each phase works on.
WORKED_ON: dict[Phase, frozenset[StateName]] = {
    "convert": frozenset({"planned", "approved", "failed", "converted"}),
    "sync": frozenset({"converted", "verified", "synced"}),
    "cut_over": frozenset({"converted", "verified", "synced"}),
    "roll_back": frozenset({"cut_over"}),
}
#: Tables that have not become Delta tables. One that fails has *failed*; any other stays what it is, with the error.
_NOT_CONVERTED = ("planned", "approved", "failed")
#: Entries that are kept of a table.
MOST_HISTORY = 200
#: An error is shown by a page and travels in a report; the log of the task has the whole of it.
_LONGEST_TEXT = 4_000
_LONGEST_NOTE = 500
_ENTRY = frozenset({"at", "state", "run", "unit"})
_MOST_NOTES = 30


def final_states(phase: Phase, *, verify: bool) -> frozenset[StateName]:
    """The states in which a table of this phase is done with.

    :param verify: whether the campaign verifies what it converts. If not, a converted table is done with.
    """
    return FINAL[phase] | ({"converted"} if phase == "convert" and not verify else frozenset())


def done_states(summary: Mapping[str, Any]) -> frozenset[str]:
    """The states in which pages count a table as done, by the summary of its campaign: those that end its phase.

    In the phase ``sync`` a synced table counts as done, although later waves take it again. A campaign that does not
    verify says by ``final`` that a table is done when it is converted.
    """
    phases: dict[str, Phase] = {name: name for name in PHASES}
    phase = phases.get(str(summary.get("phase")), "convert")
    final = summary.get("final")
    named = STATES.keys() & set(map(str, final)) if isinstance(final, list) else set()
    return FINAL[phase] | {PHASES[phase].done} | named


@dataclass
class TableState(CampaignDocument):
    """The state of one table, as its document has it."""

    noun: ClassVar[str] = "state of a table"

    #: Qualified name.
    table: str
    state: StateName = "planned"
    #: Tries that failed since the last one that succeeded, or since a person had it tried again.
    attempts: int = 0
    #: Not before this time; None: at once.
    next_attempt: str | None = None
    #: The latest version that was verified, by level.
    verified: dict[str, int] = field(default_factory=dict)
    version: int | None = None
    error: str | None = None
    error_kind: str | None = None
    retryable: bool | None = None
    #: What a person should do.
    advice: str = ""
    #: What the job has to say of the table besides, such as the differences that a verification found.
    notes: list[str] = field(default_factory=list)
    location: str = ""
    target_table: str = ""
    files: int = 0
    bytes: int = 0
    rows: int | None = None
    owner: str = ""
    #: The run that has last written the document.
    lease_run: str | None = None
    updated: str | None = None
    log_url: str | None = None
    job_url: str | None = None
    #: A table that was cut over can be rolled back by the campaign until then.
    probation_until: str | None = None
    #: The name of the last decision of a person that is part of this state.
    decided: str | None = None
    #: The newest changes, oldest first: each with ``at``, ``state``, ``run``, ``unit``, ``attempt``, and where there
    #: are such, ``error`` and ``by``.
    history: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"state of {self.table} is {self.state!r}, expected one of {', '.join(STATES)}")
        if not all(entry.keys() >= _ENTRY for entry in self.history):
            raise ValueError(f"history has an entry without {', '.join(sorted(_ENTRY))}")
        check_times(next_attempt=self.next_attempt, probation_until=self.probation_until)

    def is_due(self, now: dt.datetime) -> bool:
        """Whether the time of the next attempt has come."""
        return self.next_attempt is None or parse_time(self.next_attempt) <= now

    def change(
        self,
        state: StateName,
        now: dt.datetime,
        *,
        run: str | None = None,
        unit: str | None = None,
        by: str | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> TableState:
        """The table in another state, or in the same one after more work, with an entry in its history.

        :param by: the person who decided so.
        :param changes: other fields that change.
        :raises ValueError: no table comes from its state to that one.
        """
        if state != self.state and state not in TRANSITIONS[self.state]:
            raise ValueError(
                f"{self.table} is {self.state} and cannot become {state}, only {', '.join(TRANSITIONS[self.state])}"
            )
        changed = replace(self, state=state, updated=format_time(now), lease_run=run, **dict(changes or {}))
        for name in ("error", "advice", "location"):
            text = getattr(changed, name)
            setattr(changed, name, redact_credentials(text)[:_LONGEST_TEXT] if text else text)
        changed.notes = [redact_credentials(note)[:_LONGEST_NOTE] for note in changed.notes[:_MOST_NOTES]]
        entry: dict[str, Any] = {
            "at": format_time(now),
            "state": state,
            "run": run,
            "unit": unit,
            "attempt": changed.attempts,
            **({"error": changed.error[:500]} if changed.error else {}),
            **({"by": by} if by else {}),
        }
        changed.history = [*self.history, entry][-MOST_HISTORY:]
        return changed

    def resumed_state(self) -> StateName:
        """The state from which the table goes on when a person includes it again, or has it tried again."""
        if self.version is not None and self.state != "rolled_back":
            if self.probation_until is not None:
                return "cut_over"
            return "verified" if self.verified else "converted"
        was_approved = any(entry["state"] == "approved" for entry in self.history)
        return "approved" if was_approved else "planned"

    def state_after_failure(self) -> StateName:
        """The state of the table after work that failed and is tried again."""
        return "failed" if self.state in _NOT_CONVERTED else self.state


@dataclass(frozen=True)
class Retries:
    """How often a table is tried that fails for a reason that may pass, and when."""

    #: Failed attempts, one in each wave, after which the table needs a person.
    attempts: int = 5
    #: The time until the second attempt. It doubles with each attempt that fails.
    backoff: dt.timedelta = dt.timedelta(minutes=30)
    #: No pause between attempts is longer than this.
    longest_backoff: dt.timedelta = dt.timedelta(days=1)
    #: Tries inside of a unit, for the tables that are unfinished, before the attempt counts as failed.
    in_unit: int = 2
    #: The time between tries inside of a unit.
    delay_in_unit: dt.timedelta = dt.timedelta(minutes=1)

    def __post_init__(self) -> None:
        check_count("attempts", self.attempts, least=1)
        check_count("in_unit", self.in_unit, least=0)
        check_duration("backoff", self.backoff)
        check_duration("longest_backoff", self.longest_backoff, least=self.backoff)
        check_duration("delay_in_unit", self.delay_in_unit)

    def next_attempt(self, attempts: int, now: dt.datetime) -> dt.datetime:
        """When a table is tried again that has failed so many times."""
        wait = self.backoff
        for _ in range(min(attempts - 1, 20)):
            wait = min(wait * 2, self.longest_backoff)
        return now + wait
