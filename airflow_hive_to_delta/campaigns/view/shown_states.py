"""The states of a table and the phases of a campaign, as the page in Airflow and the report show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from airflow_hive_to_delta.campaigns.states import PHASES


class ShownState(NamedTuple):
    """How a state is shown. Its name is the class of the style by which it has its colour."""

    label: str
    #: Whether a wave leaves tables in this state alone from now on, whatever the phase of the campaign is.
    is_done: bool = False
    #: Whether a person has to look at it.
    needs_attention: bool = False


#: By the name that documents have, in the order of the bar: what is done first, what is left last.
STATES: dict[str, ShownState] = {
    "cut_over": ShownState("Cut over", is_done=True),
    "synced": ShownState("Synced", is_done=True),
    "verified": ShownState("Verified", is_done=True),
    "rolled_back": ShownState("Rolled back", is_done=True),
    "excluded": ShownState("Excluded", is_done=True),
    "refused": ShownState("Refused", is_done=True, needs_attention=True),
    "needs_person": ShownState("Needs a person", is_done=True, needs_attention=True),
    "failed": ShownState("Failed", needs_attention=True),
    "converted": ShownState("Converted"),
    "approved": ShownState("Approved"),
    "planned": ShownState("Planned"),
}

PHASE_LABELS: dict[str, str] = {name: phase.label for name, phase in PHASES.items()}
#: In later phases of a campaign, states that were the end of an earlier one are on the way.
_UNDONE = {
    "sync": {"verified"},
    "cut_over": {"verified", "synced"},
    "roll_back": {"verified", "synced", "cut_over"},
}


def done_states(summary: Mapping[str, Any]) -> frozenset[str]:
    """The states that end a table's part in the phase of a campaign, by its summary.

    A campaign that does not verify says by ``final`` that a table is done when it is converted.
    """
    final = summary.get("final")
    done = {name for name, state in STATES.items() if state.is_done} - _UNDONE.get(str(summary.get("phase")), set())
    return frozenset(done | (STATES.keys() & set(map(str, final)) if isinstance(final, list) else set()))
