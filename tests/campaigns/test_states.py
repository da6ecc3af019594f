"""The states of a table: every change that there is, what becomes of work, and what people decide."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from airflow_hive_to_delta.campaigns.decisions import (
    Decision,
    apply_approvals,
    apply_decisions,
    read_decisions,
    record_approval,
)
from airflow_hive_to_delta.campaigns.leases import take_leases
from airflow_hive_to_delta.campaigns.outcomes import WorkOutcome, apply_outcome
from airflow_hive_to_delta.campaigns.states import FINAL, STATES, TRANSITIONS, Retries, StateName, TableState
from airflow_hive_to_delta.core.errors import PermanentError, WindowClosedError
from tests.support.campaigns import NOON, add_decision, converted, failed, local_store

TABLE = "sales.orders"


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("after", STATES)
def test_only_known_changes_of_state_are_possible(before: StateName, after: StateName) -> None:
    state = TableState(TABLE, before)
    if before == after or after in TRANSITIONS[before]:
        changed = state.change(after, NOON, run="r", unit="0001", by="ada")
        assert (changed.state, changed.history[-1]["state"], changed.history[-1]["by"]) == (after, after, "ada")
    else:
        with pytest.raises(ValueError, match=f"is {before} and cannot become {after}"):
            state.change(after, NOON)


def test_every_state_can_be_left_or_is_final() -> None:
    assert set(TRANSITIONS) == set(STATES) == set(get_args(StateName))
    assert all(TRANSITIONS.values())
    assert {"verified", "refused", "needs_person", "excluded"} <= FINAL["convert"]


def test_a_state_survives_its_document_and_later_fields_are_passed_over() -> None:
    state = TableState(TABLE, "verified", verified={"counts": 3}).change("synced", NOON, run="r")
    document = json.loads(json.dumps(state.to_dict()))
    assert document["format"] == 1
    assert TableState.from_dict({**document, "of_a_later_version": 1}) == state
    with pytest.raises(ValueError, match="state of t is 'done'"):
        TableState("t", "done")  # type: ignore[arg-type]


def test_the_history_keeps_the_newest_entries_and_no_credentials() -> None:
    state = TableState(TABLE)
    for number in range(205):
        error = {"error": f"s3://key:secret@bucket/{number}"}
        state = state.change("planned", NOON + dt.timedelta(seconds=number), changes=error)
    assert len(state.history) == 200
    assert state.history[-1]["at"] == "2026-11-18T12:03:24+00:00"
    assert "secret" not in json.dumps(state.to_dict())


def work(state: TableState, result: dict[str, Any], retries: Retries | None = None, **more: Any) -> TableState:
    outcome = WorkOutcome.of_result(more.pop("phase", "convert"), result)
    return apply_outcome(state, outcome, retries or Retries(), now=NOON, run="r", unit="0001", **more)


def test_a_conversion_with_its_verification_verifies_and_without_it_converts() -> None:
    state = work(TableState(TABLE, "approved", attempts=2, error="before", next_attempt="2026-01-01"), converted(TABLE))
    assert (state.state, state.version, state.verified, state.rows) == ("verified", 0, {"counts": 0}, 30)
    assert (state.attempts, state.error, state.next_attempt, state.files) == (0, None, None, 3)
    assert work(TableState(TABLE), converted(TABLE, verified={}, verification=None)).state == "converted"


def test_the_notes_of_a_job_are_kept_how_the_table_differs_first() -> None:
    mismatch = {"partition": "day=1", "what": "rows", "original": 5, "delta": 4}
    proof = {"success": False, "level": "counts", "mismatches": [mismatch], "mismatch_count": 3, "notes": ["b"]}
    state = work(TableState(TABLE), failed(TABLE, verification=proof, notes=["a", "b", "s3://k:secret@x"], message="m"))
    differences = ["day=1: rows: original 5, Delta 4", "2 more differences"]
    assert state.notes == [*differences, "a", "b", "s3://***@x", "m"]
    assert work(state, converted(TABLE)).notes == [], "those of the last job"


def test_a_refusal_and_a_delta_table_of_others_are_refused() -> None:
    refusal = failed(TABLE, "bucketed", retryable=False, status="refused", error_kind="UnsupportedTableError")
    assert (work(TableState(TABLE), refusal).state, work(TableState(TABLE), refusal).error) == ("refused", "bucketed")
    others = work(TableState(TABLE), converted(TABLE, status="already_delta", ours=False, verified={}))
    assert (others.state, others.version) == ("refused", None)
    assert "this package has not made" in (others.error or "")
    unknown = converted(TABLE, status="already_delta", ours=False, origin="who made the log at x is not known")
    assert work(TableState(TABLE), unknown).error == (
        "It is a Delta table already: who made the log at x is not known. It was left as it is"
    )


def test_a_failure_that_may_pass_is_tried_again_ever_later_until_it_needs_a_person() -> None:
    state = TableState(TABLE)
    retries = Retries(attempts=4, backoff=dt.timedelta(hours=1), longest_backoff=dt.timedelta(hours=3))
    waits = []
    while state.state != "needs_person":
        state = work(state, failed(TABLE), retries)
        waits.append(state.next_attempt and state.next_attempt[11:16])
    assert waits == ["13:00", "14:00", "15:00", None]
    assert [entry["state"] for entry in state.history] == ["failed"] * 3 + ["needs_person"]
    assert "as often as the campaign allows" in state.advice
    assert not TableState(TABLE, next_attempt="2026-11-18T12:00:01+00:00").is_due(NOON)
    assert TableState(TABLE, next_attempt="2026-11-18T12:00:00+00:00").is_due(NOON)


def test_files_that_changed_while_they_were_read_are_listed_again() -> None:
    state = work(TableState(TABLE), failed(TABLE, retryable=False, status="refused", error_kind="StaleFileListError"))
    assert (state.state, state.retryable) == ("failed", True)


def test_a_failure_that_no_try_helps_needs_a_person_at_once() -> None:
    state = work(TableState(TABLE, "approved"), failed(TABLE, "denied", retryable=False))
    assert (state.state, state.attempts, state.next_attempt) == ("needs_person", 1, None)
    assert "does not help" in state.advice


@pytest.mark.parametrize(("retryable", "name"), [(True, "converted"), (False, "needs_person")])
def test_a_table_whose_verification_failed_is_a_delta_table_that_is_compared_again(retryable: bool, name: str) -> None:
    result = failed(TABLE, "differs", retryable=retryable, status="converted", version=0)
    state = work(TableState(TABLE, "approved"), result)
    assert (state.state, state.version, state.error) == (name, 0, "differs")
    assert [entry["state"] for entry in state.history] == [name]


def test_a_table_that_fails_in_a_later_phase_stays_what_it_is_until_it_needs_a_person() -> None:
    verified = TableState(TABLE, "verified", verified={"counts": 0}, version=0)
    state = work(verified, failed(TABLE), Retries(attempts=2), phase="sync")
    assert (state.state, state.attempts, state.error) == ("verified", 1, "S3 throttles")
    state = work(state, failed(TABLE), Retries(attempts=2), phase="sync")
    assert state.state == "needs_person"
    assert work(verified, converted(TABLE, status="synced", version=4), phase="sync").version == 4


def test_cut_over_begins_a_probation_and_a_rollback_ends_in_hive() -> None:
    probation = dt.timedelta(days=14)
    state = work(TableState(TABLE, "synced"), converted(TABLE), phase="cut_over", probation=probation)
    assert (state.state, state.probation_until) == ("cut_over", "2026-12-02T12:00:00+00:00")
    assert work(state, converted(TABLE), phase="roll_back").state == "rolled_back"


def test_a_table_that_was_not_begun_in_the_window_is_as_it_was() -> None:
    state = TableState(TABLE, "approved")
    assert work(state, failed(TABLE, error_kind=WindowClosedError.__name__)) is state


def test_an_error_without_a_result_counts_as_an_attempt() -> None:
    outcome = WorkOutcome.of_error("The job died", retryable=True)
    state = apply_outcome(TableState(TABLE), outcome, Retries(), now=NOON, run="r", unit="0001", links={"log_url": "x"})
    assert (state.state, state.attempts, state.log_url) == ("failed", 1, "x")


def decide(folder: Path, state: TableState, **decision: Any) -> TableState:
    store = local_store(folder, f"c{len(list(folder.glob('campaigns/*')))}")
    store.write_state(state)
    add_decision(store, Decision("2026-11-18T12:00:00+00:00", "ada", TABLE, **decision))
    return apply_decisions(store, store.states(), read_decisions(store), run="r", now=NOON)[TABLE]


def test_people_exclude_include_retry_and_approve(tmp_path: Path) -> None:
    state = decide(tmp_path, TableState(TABLE), decision="exclude", owner="bob", note="later")
    assert (state.state, state.owner, state.history[-1]["by"]) == ("excluded", "bob", "ada")
    assert decide(tmp_path, state, decision="include").state == "planned"
    assert decide(tmp_path, TableState(TABLE), approved=True).state == "approved"
    broken = TableState(TABLE, "needs_person", attempts=5, error="denied", next_attempt="2026-12-01")
    state = decide(tmp_path, broken, decision="retry")
    assert (state.state, state.attempts, state.error, state.next_attempt) == ("planned", 0, None, None)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"version": 3, "verified": {"counts": 2}}, "verified"),
        ({"version": 3}, "converted"),
        ({"version": 3, "probation_until": "2026-12-01"}, "cut_over"),
        ({"history": [{"at": "2026-11-18", "state": "approved", "run": "r", "unit": "approval"}]}, "approved"),
    ],
)
def test_a_retry_goes_on_where_the_table_is(tmp_path: Path, known: dict[str, Any], expected: str) -> None:
    broken = TableState(TABLE, "needs_person", error="denied", **known)
    assert decide(tmp_path, broken, decision="retry").state == expected


def test_a_table_that_was_rolled_back_is_converted_again_by_a_retry_and_one_cut_over_is_not_excluded(tmp_path) -> None:
    back = TableState(TABLE, "rolled_back", version=3, verified={"counts": 0})
    assert decide(tmp_path, back, decision="retry").state == "planned"
    assert decide(tmp_path, TableState(TABLE, "cut_over"), decision="exclude").state == "cut_over"


def test_a_decision_counts_once_and_waits_for_who_works_on_the_table(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    store.write_state(TableState(TABLE, "failed", attempts=3))
    name = add_decision(store, Decision("2026-11-18T12:00:00+00:00", "ada", TABLE, "retry"))
    held = take_leases(store, [TABLE], "other", "0001", now=NOON, lasts=dt.timedelta(hours=1))
    assert apply_decisions(store, store.states(), read_decisions(store), run="r", now=NOON)[TABLE].attempts == 3
    later = NOON + dt.timedelta(hours=2)
    assert held
    state = apply_decisions(store, store.states(), read_decisions(store), run="r", now=later)[TABLE]
    assert (state.attempts, state.decided) == (0, name)
    store.write_state(state.change("failed", later, changes={"attempts": 1}))
    assert apply_decisions(store, store.states(), read_decisions(store), run="r", now=later)[TABLE].attempts == 1


def test_an_approval_of_many_tables_is_one_document(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    for name in ("a", "b", "new"):
        store.write_state(TableState(name))
    record_approval(store, "convert", ["a", "b", "gone"], run="r", by="ada", now=NOON)
    states = apply_approvals(store, store.states(), run="r", now=NOON)
    assert {name: state.state for name, state in states.items()} == {"a": "approved", "b": "approved", "new": "planned"}
    assert store.states() == states
    assert states["a"].history[-1]["by"] == "ada"


def test_what_is_no_decision_and_no_state_is_named(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    with pytest.raises(ValueError, match=r"priority is 1.5"):
        Decision("2026", "ada", TABLE, priority=1.5)  # type: ignore[arg-type]
    store.put("decisions/1.json", {"at": "2026", "by": "ada", "table": TABLE, "decision": "maybe"})
    with pytest.raises(PermanentError, match=r"1.json is no decision: decision is 'maybe'"):
        read_decisions(store)
    store.write_state(TableState(TABLE))
    (path,) = (tmp_path / "campaigns/lake/tables").rglob("*.json")
    path.write_text("{")
    with pytest.raises(PermanentError, match=r"is not JSON.*rebuild"):
        store.states()
    path.write_text('{"format": 2}')
    with pytest.raises(PermanentError, match="no document of format 1"):
        store.states()


@pytest.mark.parametrize(
    ("edited", "message"),
    [
        ({"history": None}, "history is None, expected a list"),
        ({"history": [{"at": "2026-11-18"}]}, "history has an entry without at, run, state, unit"),
        ({"attempts": "3"}, "attempts is '3', expected a whole number"),
        ({"next_attempt": "tomorrow"}, "next_attempt is 'tomorrow', expected a time such as 2026"),
        ({"table": "sales.other"}, r"names the table 'sales.other', whose document is tables/\w\w/sales.other"),
    ],
)
def test_a_state_that_somebody_has_edited_wrongly_is_named_with_what_to_do(
    tmp_path: Path, edited: dict[str, Any], message: str
) -> None:
    store = local_store(tmp_path)
    store.write_state(TableState(TABLE))
    (path,) = (tmp_path / "campaigns/lake/tables").rglob("*.json")
    path.with_name(f"{path.name}.bak").write_text("{")
    assert set(store.states()) == {TABLE}, "a copy that an editor has left is no document"
    path.write_text(json.dumps({**json.loads(path.read_text()), **edited}))
    with pytest.raises(PermanentError, match=f"{message}.*Delete it, and make it anew.*rebuild-states"):
        store.states()
