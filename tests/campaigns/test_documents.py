"""Documents of a campaign that somebody has edited wrongly: an error names the document and what helps, and it does."""

from __future__ import annotations

import datetime as dt
import io
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_hive_to_delta.campaigns.closing import SUMMARY, SummaryRecord, close_wave
from airflow_hive_to_delta.campaigns.decisions import (
    Decision,
    QuestionRecord,
    approved_tables,
    read_question,
    record_approval,
)
from airflow_hive_to_delta.campaigns.drafts import (
    MeasuredTables,
    Measurement,
    finish_plan,
    read_draft,
    read_draft_unit,
    read_measurements,
    with_measurements,
    write_draft,
)
from airflow_hive_to_delta.campaigns.leases import live_leases
from airflow_hive_to_delta.campaigns.measuring import CountedReport
from airflow_hive_to_delta.campaigns.outcomes import WorkOutcome
from airflow_hive_to_delta.campaigns.plan import PLAN, read_plan
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.units import UnitWork, read_unit
from airflow_hive_to_delta.campaigns.waves import UnitSize, plan_wave, read_wave
from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.storage.uri import Location
from benchmarks.campaigns.storages import MemoryStorage
from tests.support.campaigns import NOON, add_decision, converted, row

ROWS = [row("a"), row("b"), row("c")]
NAMES = [each.table for each in ROWS]
QUESTION = "questions/one.json"
#: The second run starts when the leases of a unit that was lost have expired.
STARTED = {"one": NOON, "two": NOON + dt.timedelta(hours=2)}
ABSENT = object()
WRONG: tuple[Any, ...] = (ABSENT, None, 0, -1, 1.5, True, "", "x", [], {}, [5], [{}], {"x": 5}, {"x": {}})


def find_tables(store: CampaignStore) -> None:
    write_draft(store, "one", ROWS, counted=NAMES, filtered=())


def measure(store: CampaignStore) -> None:
    found = [Measurement(name, files=1, bytes=5).to_dict() for name in NAMES]
    store.write("drafts/one/measured/0000.000.json", MeasuredTables(found).to_dict())


def plan(store: CampaignStore) -> None:
    rows = with_measurements(read_draft(store, "one"), read_measurements(store, "one"), {})
    finish_plan(store, rows, run="one", now=NOON, dag_id="d")


def begin(store: CampaignStore, run: str) -> None:
    plan_wave(store, run, approve=True, size=UnitSize(tables=2), now=STARTED[run])


def work(store: CampaignStore, run: str) -> list[str]:
    """The units of a run, of which the last one dies in the middle when it is the first run."""
    worked = []
    wave = read_wave(store, run)
    for uri in [] if wave is None else wave.packed:
        unit = UnitWork(store, read_unit(store, uri), clock=lambda: STARTED[run])
        for table in unit.begin():
            worked.append(table.qualified_name)
            if (run, unit.unit.unit) != ("one", "0001"):
                unit.record(worked[-1], WorkOutcome.of_result("convert", converted(worked[-1])))
        unit.end() if (run, unit.unit.unit) != ("one", "0001") else None
    return worked


def campaign() -> CampaignStore:
    """A campaign whose first wave has not ended: one of its units was lost."""
    store = CampaignStore(MemoryStorage(), Location("s3", "bucket", "/staging/campaigns/lake"))
    find_tables(store)
    measure(store)
    store.write("drafts/one/inventory/00000.json", CountedReport("r.csv", {"sales.a": [1, 5]}).to_dict())
    plan(store)
    store.write(QUESTION, QuestionRecord("convert", NAMES).to_dict())
    record_approval(store, "convert", NAMES, run="one", by="ada", now=NOON)
    add_decision(store, Decision("2026-11-18T12:00:00+00:00", "ada", "sales.a", priority=3))
    begin(store, "one")
    work(store, "one")
    return store


def read_everything(store: CampaignStore) -> None:
    """All that the tasks of a campaign read."""
    read_draft_unit(store, "one", "0000")
    read_measurements(store, "one")
    list(store.read_all_as(CountedReport, ["drafts/one/inventory/00000.json"]))
    read_question(store, QUESTION)
    approved_tables(store, "convert", "one")
    live_leases(store, NOON)
    work(store, "one")
    read_wave(store, "one")
    store.read_as(SummaryRecord, SUMMARY)
    close_wave(store, "one", now=NOON)
    begin(store, "two")
    if read_wave(store, "two") is not None:
        work(store, "two")
        close_wave(store, "two", now=STARTED["two"])


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    storage = campaign()._storage
    assert isinstance(storage, MemoryStorage)
    return dict(storage._files)


def copy_of(files: dict[str, bytes]) -> CampaignStore:
    storage = MemoryStorage()
    for path, content in files.items():
        storage.replace(Location("s3", "bucket", path), content)
    return CampaignStore(storage, Location("s3", "bucket", "/staging/campaigns/lake"))


def error_of(store: CampaignStore) -> str | None:
    try:
        read_everything(store)
    except PermanentError as error:
        return str(error)
    return None


def test_whatever_somebody_has_made_of_a_field_is_named_with_what_to_do(files: dict[str, bytes], monkeypatch) -> None:
    monkeypatch.setattr(CampaignStore, "map", lambda _, work, items: [work(item) for item in items])
    # One of each kind. The index is made anew when it is spoilt, and of an ended unit only the name counts.
    kinds = {
        re.sub(r"(?<=/)(\w\w/|one/(?=\d))?[\w.-]+$", "", path.partition("/lake/")[2]): path.partition("/lake/")[2]
        for path in sorted(files, reverse=True)
        if path.endswith(".json") and "/ended/" not in path and "index.json" not in path and "_folder" not in path
    }
    assert set(kinds) == {
        *("approvals/", "decisions/", "drafts/one/inventory/", "drafts/one/measured/", "drafts/one/units/", "leases/"),
        *("questions/", "summary.json", "tables/", "units/", "waves/"),
    }
    named = 0
    for path in kinds.values():
        document = copy_of(files).read(path) or {}
        for field in sorted(document.keys() - {"format"}):
            for value in WRONG:
                edited = {name: each for name, each in {**document, field: value}.items() if each is not ABSENT}
                store = copy_of(files)
                store.write(path, edited)
                if (error := error_of(store)) is not None:
                    named += 1
                    is_named = f"/lake/{path} is " in error or " names the table " in error
                    assert is_named or "has changed documents in s3://" in error, (path, field, value, error)
                    assert re.search(r"\. (Delete it|Correct it|Pause the DAGs|Clear the task)", error), error
    assert named > 300


def delete(path: str) -> Callable[[CampaignStore], None]:
    return lambda store: store.delete([path])


def run_next(store: CampaignStore) -> None:
    """What a new run does."""
    begin(store, "two")
    assert work(store, "two")
    assert close_wave(store, "two", now=STARTED["two"]).left == []


#: The document, the task that finds it spoilt, and what its error advises.
ADVICE: dict[str, tuple[str, Callable[[CampaignStore], object], str, list[Callable[[CampaignStore], object]]]] = {
    "wave": (
        "waves/one.json",
        lambda store: close_wave(store, "one", now=NOON),
        "Delete it, and start a new run, which takes the tables that are left",
        [delete("waves/one.json"), run_next],
    ),
    "unit": (
        "units/one/0001.json",
        lambda store: close_wave(store, "one", now=NOON),
        "Delete it, and start a new run",
        [delete("units/one/0001.json"), lambda store: close_wave(store, "one", now=NOON), run_next],
    ),
    "approval": (
        "approvals/*",
        lambda store: approved_tables(store, "convert", "two"),
        "Correct it; or delete it, and start a new run, which asks again",
        [
            lambda store: record_approval(store, "convert", NAMES, run="two", by="ada", now=NOON),
            lambda store: close_wave(store, "one", now=NOON),
            run_next,
        ],
    ),
    "decision": (
        "decisions/*",
        lambda store: begin(store, "two"),
        "Correct it; or delete it, and decide anew",
        [lambda store: close_wave(store, "one", now=NOON), run_next],
    ),
    "lease": (
        "leases/22/sales.c.000001.json",
        lambda store: begin(store, "two"),
        "Pause the DAGs of the campaign until none of their tasks runs, delete it, and clear the task",
        [delete("leases/22/sales.c.000001.json"), run_next],
    ),
    "unit of a draft": (
        "drafts/one/units/0000.json",
        lambda store: read_draft_unit(store, "one", "0000"),
        "Delete it, and clear the task that finds the tables, with all after it",
        [delete("drafts/one/units/0000.json"), find_tables, measure, plan],
    ),
    "measurement": (
        "drafts/one/measured/0000.000.json",
        plan,
        "Delete it, and clear the task that finds the tables, with all after it",
        [delete("drafts/one/measured/0000.000.json"), find_tables, measure, plan],
    ),
    "question": (
        QUESTION,
        lambda store: read_question(store, QUESTION),
        "Delete it, and start a new run",
        [delete(QUESTION), lambda store: close_wave(store, "one", now=NOON), run_next],
    ),
    "summary": (
        SUMMARY,
        lambda store: store.read_as(SummaryRecord, SUMMARY),
        "Delete it, and clear the task",
        [delete(SUMMARY), lambda store: store.read_as(SummaryRecord, SUMMARY)],
    ),
}


@pytest.mark.parametrize("kind", ADVICE)
@pytest.mark.parametrize("spoilt", [b"{", b"[]", b'{"format": 1, "tables": 5, "by_state": 5, "table": 5}'])
def test_what_the_error_advises_helps(files: dict[str, bytes], kind: str, spoilt: bytes) -> None:
    pattern, read, advice, steps = ADVICE[kind]
    store = copy_of(files)
    folder, _, name = pattern.rpartition("/")
    path = f"{folder}/{store.names(folder)[0]}" if name == "*" else pattern
    store.write_bytes(path, spoilt)
    with pytest.raises(PermanentError, match=rf"/lake/{path} is no.*\. {re.escape(advice)}"):
        read(store)
    if name == "*":
        store.delete([path])
    for step in steps:
        step(store)


def test_a_plan_that_is_gone_or_spoilt_stops_the_wave_and_is_made_again_by_the_task_that_plans(files) -> None:
    content = io.BytesIO(files[f"/staging/campaigns/lake/{PLAN}"])
    table = pq.read_table(content)
    spoilt = (
        table.drop_columns(["decision"]),
        table.set_column(0, "table", pa.nulls(3, pa.string())),
        table.set_column(2, "files", pa.array([1.5, 2, 3])),
        table.set_column(6, "decision", pa.array(["maybe"] * 3)),
        table.set_column(10, "definition", pa.array(["[]"] * 3)),
    )
    for wrong in spoilt:
        store = copy_of(files)
        target = io.BytesIO()
        pq.write_table(wrong, target)
        store.write_bytes(PLAN, target.getvalue())
        with pytest.raises(PermanentError, match=f"{PLAN} cannot be read: .*Clear the task that plans, in the DAG"):
            begin(store, "two")
        plan(store)
        begin(store, "two")
    store = copy_of(files)
    store.delete([PLAN])
    with pytest.raises(
        PermanentError, match=r"There is no plan at .*expected one of 3 tables.*Clear the task that plans"
    ):
        begin(store, "two")
    plan(store)
    assert len(read_plan(store)) == 3
    close_wave(store, "one", now=NOON)
    run_next(store)
    assert plan_wave(CampaignStore(MemoryStorage(), Location("s3", "b", "/new")), "first", now=NOON) is None
