"""The outcome of the work on a table, by the result that a job has left, and the state that follows from it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_hive_to_delta.campaigns.states import MOST_HISTORY, PHASES, Phase, Retries, StateName, TableState
from airflow_hive_to_delta.campaigns.times import format_time
from airflow_hive_to_delta.core.errors import StaleFileListError, UnsupportedTableError, WindowClosedError
from airflow_hive_to_delta.report.result_fields import describe_mismatches

#: ``permanent``: it failed, and trying again cannot help. ``not_begun``: the window ended before its work began.
Kind = Literal["done", "refused", "failed", "permanent", "not_begun"]


@dataclass(frozen=True)
class WorkOutcome:
    """The outcome of the work on a table in one unit."""

    kind: Kind
    #: The state of a table whose work is done.
    state: StateName | None = None
    #: Fields of the table's state that are known now.
    changes: dict[str, Any] = field(default_factory=dict)
    #: Whether another try in the same unit may help.
    retryable: bool = False

    @classmethod
    def of_result(cls, phase: Phase, result: Mapping[str, Any]) -> WorkOutcome:
        """The outcome by the result of the phase's action, as a dict."""
        if result.get("error_kind") == WindowClosedError.__name__:
            return cls("not_begun")
        known = _known_fields(result)
        if not result["success"]:
            return cls._of_failed_result(phase, result, known)
        if phase == "convert":
            if not result["ours"]:
                known |= {"error": _describe_foreign(result.get("origin")), "retryable": False}
                return cls("refused", "refused", {**known, "version": None})
            verified = {**(result.get("verified") or {})}
            if (found := result.get("verification")) and found["success"]:
                verified[found["level"]] = found["version"]
                known["rows"] = known["rows"] if found["row_count"] is None else found["row_count"]
            done = PHASES[phase].done if verified else "converted"
            return cls("done", done, {**known, "verified": verified})
        return cls("done", PHASES[phase].done, known)

    @classmethod
    def of_error(cls, error: str, *, retryable: bool, kind: str | None = None) -> WorkOutcome:
        """The outcome of a table without a result."""
        changes = {"error": error, "error_kind": kind, "retryable": retryable}
        return cls("failed" if retryable else "permanent", None, changes, retryable)

    @classmethod
    def _of_failed_result(cls, phase: Phase, result: Mapping[str, Any], known: dict[str, Any]) -> WorkOutcome:
        kind = result["error_kind"]
        # Each try of a campaign lists the files anew.
        retryable = bool(result["retryable"]) or kind == StaleFileListError.__name__
        changes = {**known, "error": result["error"], "error_kind": kind, "retryable": retryable}
        if phase == "convert" and kind == UnsupportedTableError.__name__:
            return cls("refused", "refused", changes)
        # It is a Delta table, whose verification failed.
        is_converted = phase == "convert" and result["status"] in ("converted", "registered")
        state: StateName | None = "converted" if is_converted else None
        return cls("failed" if retryable else "permanent", state, changes, retryable)


def apply_outcome(
    state: TableState,
    outcome: WorkOutcome,
    retries: Retries,
    *,
    now: dt.datetime,
    run: str,
    unit: str,
    probation: dt.timedelta | None = None,
    links: Mapping[str, str | None] | None = None,
) -> TableState:
    """The state of a table after work on it.

    :param probation: after a cut-over, the time in which the campaign can roll the table back.
    :param links: ``log_url`` and ``job_url``.
    """
    if outcome.kind == "not_begun":
        return state
    changes = {**outcome.changes, **(links or {})}
    if outcome.kind in ("done", "refused") and outcome.state is not None:
        if outcome.kind == "done":
            changes |= {"error": None, "error_kind": None, "retryable": None, "advice": "", "attempts": 0}
        if outcome.state == "cut_over" and state.probation_until is None and probation is not None:
            changes["probation_until"] = format_time(now + probation)
        # A table that was verified by a stronger proof, or synced since, stays so.
        target = outcome.state if outcome.state != "converted" or state.state != "verified" else "verified"
        if outcome.kind == "refused":
            changes["advice"] = advise("refused")
        changes["next_attempt"] = None
        changes["verified"] = {**state.verified, **changes.get("verified", {})}
        return state.change(target, now, run=run, unit=unit, changes=changes)
    attempts = state.attempts + 1
    at = state.change(outcome.state, now, run=run, unit=unit, changes=changes) if outcome.state else state
    is_over = outcome.kind == "permanent" or attempts >= retries.attempts
    target = "needs_person" if is_over else at.state_after_failure()
    following = None if is_over else format_time(retries.next_attempt(attempts, now))
    changes |= {"attempts": attempts, "next_attempt": following, "advice": advise(target, outcome.retryable)}
    failed = at.change(target, now, run=run, unit=unit, changes=changes)
    failed.history = [*state.history, *failed.history[-1:]][-MOST_HISTORY:]
    return failed


def _describe_foreign(origin: str | None) -> str:
    """Why a table is refused that is a Delta table of somebody else.

    :param origin: who made its log, as far as the job has found out.
    """
    what = f": {origin}" if origin else ", which this package has not made from the Hive table"
    return f"It is a Delta table already{what}. It was left as it is"


def _known_fields(result: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a state that a result of any action knows."""
    names = {"target_table": "target_table", "location": "location", "version": "version", "row_count": "rows"}
    known = {ours: result[theirs] for theirs, ours in names.items() if result.get(theirs) not in (None, "")}
    known.setdefault("rows", None)
    known["notes"] = _notes(result)
    if result.get("file_count"):
        known["files"] = result["file_count"]
    if result.get("byte_count"):
        known["bytes"] = result["byte_count"]
    return known if "row_count" in result else {name: value for name, value in known.items() if name != "rows"}


def _notes(result: Mapping[str, Any]) -> list[str]:
    """What a result says besides its error: first how the table differs from its original."""
    proof: Mapping[str, Any] = result.get("verification") or {}
    differences = describe_mismatches(proof.get("mismatches") or [], proof.get("mismatch_count") or 0)
    notes = [*differences, *(result.get("notes") or ()), *(proof.get("notes") or ())]
    message = result.get("message")
    return list(dict.fromkeys([*notes, *([message] if message else [])]))


def advise(state: StateName, retryable: bool = False) -> str:
    """What a person should do about a table that was refused, or has failed.

    :param retryable: whether the error may pass.
    """
    if state == "needs_person":
        reason = "It was tried as often as the campaign allows" if retryable else "Trying again does not help by itself"
        return f"{reason}. Fix what the error names, then have it tried again, or exclude it."
    if state == "refused":
        return "The table is as it was. Change what the reason names, then have it tried again; or exclude it."
    return "A later wave tries it again by itself."
