"""What people decide about tables: documents that are added and never changed, and their part in a table's state."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

from airflow_hive_to_delta.campaigns.documents import CampaignDocument
from airflow_hive_to_delta.campaigns.leases import change_states
from airflow_hive_to_delta.campaigns.states import Phase, StateName, TableState
from airflow_hive_to_delta.campaigns.store import CampaignStore, sequence_names, states_after
from airflow_hive_to_delta.campaigns.times import format_time
from airflow_hive_to_delta.core.errors import MissingError
from airflow_hive_to_delta.core.redaction import redact_credentials

Choice = Literal["include", "exclude", "retry"]


@dataclass(frozen=True)
class Decision(CampaignDocument):
    """What a person decided about one table. What is None stays as it is."""

    noun: ClassVar[str] = "decision"

    #: ISO 8601 in UTC.
    at: str
    #: The person's name.
    by: str
    table: str
    decision: Choice | None = None
    #: Higher ones come first.
    priority: int | None = None
    owner: str | None = None
    approved: bool | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        if self.decision not in (None, *get_args(Choice)):
            raise ValueError(f"decision is {self.decision!r}, expected one of {', '.join(get_args(Choice))}")
        if self.priority is not None and (type(self.priority) is not int or abs(self.priority) > 1_000_000):
            raise ValueError(f"priority is {self.priority!r}, expected a whole number, at most a million")
        if self.approved not in (None, True, False):
            raise ValueError(f"approved is {self.approved!r}, expected True or False")


@dataclass(frozen=True)
class ApprovalRecord(CampaignDocument):
    """Tables that a person approved together."""

    noun: ClassVar[str] = "approval"

    at: str
    by: str
    phase: Phase
    #: The key of the run that asked.
    run: str
    tables: list[str]


@dataclass(frozen=True)
class QuestionRecord(CampaignDocument):
    """The tables that a person is asked to approve."""

    noun: ClassVar[str] = "question"

    phase: Phase
    tables: list[str]


@dataclass
class TableDecisions:
    """All decisions about one table, and what they say together: of each field the latest decision that has it."""

    priority: int | None = None
    owner: str | None = None
    excluded: bool | None = None
    #: Each with its name, in their order.
    all: list[tuple[str, Decision]] = field(default_factory=list)

    def add(self, name: str, decision: Decision) -> None:
        """Add a decision that was made after the others."""
        self.all.append((name, decision))
        self.priority = self.priority if decision.priority is None else decision.priority
        self.owner = self.owner if decision.owner is None else decision.owner
        if decision.decision is not None:
            self.excluded = decision.decision == "exclude"

    def until(self, last: str) -> TableDecisions:
        """The decisions up to the one of a name."""
        earlier = TableDecisions()
        for name, decision in self.all:
            if name <= last:
                earlier.add(name, decision)
        return earlier


def add_decisions(store: CampaignStore, decisions: Sequence[Decision]) -> list[str]:
    """Add decisions, which the next wave takes up in their order, after those that were made before.

    :returns: their names.
    """
    names = sequence_names(store.names("decisions"), len(decisions))

    def add(numbered: tuple[str, Decision]) -> None:
        name, decision = numbered
        clean = replace(decision, note=None if decision.note is None else redact_credentials(decision.note)[:2_000])
        document = {key: value for key, value in clean.to_dict().items() if value is not None}
        store.put(f"decisions/{name}", document)

    store.map(add, zip(names, decisions, strict=True))
    return names


def read_decisions(store: CampaignStore) -> dict[str, TableDecisions]:
    """All decisions, by table.

    :raises PermanentError: one of the documents is none.
    """
    found: dict[str, TableDecisions] = defaultdict(TableDecisions)
    for path, decision in store.read_all_as(Decision, (f"decisions/{name}" for name in store.names("decisions"))):
        found[decision.table].add(path.rpartition("/")[2], decision)
    return dict(found)


def apply_decisions(
    store: CampaignStore,
    states: Mapping[str, TableState],
    decisions: Mapping[str, TableDecisions],
    *,
    run: str,
    now: dt.datetime,
) -> Mapping[str, TableState]:
    """Apply new decisions to the states of their tables. A table that somebody works on waits for the next wave.

    :returns: the states of all tables afterwards.
    """

    def pending(state: TableState) -> list[tuple[str, Decision]]:
        known = decisions.get(state.table, TableDecisions()).all
        return [(name, decision) for name, decision in known if name > (state.decided or "")]

    def apply(state: TableState) -> TableState | None:
        new = pending(state)  # another run may have applied some since
        for name, decision in new:
            state = _apply(state, name, decision, run, now)
        return state if new else None

    waiting = [table for table, state in states.items() if pending(state)]
    changed = change_states(store, waiting, apply, known=states, run=run, unit="decisions", now=now)
    return states_after(states, changed)


def read_question(store: CampaignStore, path: str) -> QuestionRecord:
    """What a person was asked.

    :raises MissingError: the document is gone.
    """
    found = store.read_as(QuestionRecord, path)
    if found is None:
        raise MissingError(
            f"There is no question at {store.location(path)}: somebody has deleted it, so it is not known which tables "
            "were approved. Start a new run, which asks again"
        )
    return found


def record_approval(
    store: CampaignStore, phase: Phase, tables: Sequence[str], *, run: str, by: str, now: dt.datetime
) -> str:
    """Record that a person has approved tables together. Returns the name of the document.

    :param run: the run that asked. In the phase ``convert`` the approval counts for all runs.
    """
    (name,) = sequence_names(store.names("approvals"))
    store.put(f"approvals/{name}", ApprovalRecord(format_time(now), by, phase, run, sorted(tables)).to_dict())
    return name


def approved_tables(store: CampaignStore, phase: Phase, run: str) -> set[str]:
    """The tables that a person has approved for a phase in a run."""
    return {table for each in _approvals(store) if (each.phase, each.run) == (phase, run) for table in each.tables}


def apply_approvals(
    store: CampaignStore, states: Mapping[str, TableState], *, run: str, now: dt.datetime
) -> Mapping[str, TableState]:
    """Write the state ``approved`` of tables that wait for an approval and have one.

    :returns: the states of all tables afterwards.
    """
    if not any(state.state == "planned" for state in states.values()):
        return states
    people: dict[str, str] = {}
    for approval in _approvals(store):
        for table in approval.tables if approval.phase == "convert" else ():
            people.setdefault(table, approval.by)
    waiting = [name for name, state in states.items() if state.state == "planned" and name in people]

    def approve(state: TableState) -> TableState | None:
        if state.state != "planned":
            return None
        return state.change("approved", now, run=run, unit="approval", by=people[state.table])

    changed = change_states(store, waiting, approve, known=states, run=run, unit="approval", now=now)
    return states_after(states, changed)


def _approvals(store: CampaignStore) -> list[ApprovalRecord]:
    names = store.names("approvals")
    return [each for _, each in store.read_all_as(ApprovalRecord, (f"approvals/{name}" for name in names))]


def _apply(state: TableState, name: str, decision: Decision, run: str, now: dt.datetime) -> TableState:
    changes: dict[str, Any] = {"decided": name}
    if decision.owner is not None:
        changes["owner"] = decision.owner
    target: StateName = state.state
    match decision.decision:
        case "exclude":
            # What is cut over is a Delta table for everybody: leaving it out undoes nothing.
            target = "excluded" if state.state != "cut_over" else target
        case "include" if state.state == "excluded":
            target = state.resumed_state()
        case "retry" if state.state in ("failed", "needs_person", "refused", "rolled_back") or state.error:
            target = state.resumed_state()
            changes |= {"attempts": 0, "next_attempt": None, "error": None, "error_kind": None, "retryable": None}
            changes["advice"] = ""
            if state.state == "rolled_back":  # it begins anew
                changes |= {"version": None, "verified": {}, "probation_until": None}
    if decision.approved and target == "planned":
        target = "approved"
    elif decision.approved is False and target == "approved":
        target = "planned"
    return state.change(target, now, run=run, unit="decisions", by=decision.by, changes=changes)
