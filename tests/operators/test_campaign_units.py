"""Units of campaigns on a stand-in platform, whose jobs answer what a test tells: deferred, tried again, refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta.campaigns.leases import live_leases
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.campaigns.times import now
from airflow_hive_to_delta.campaigns.units import UnitWork
from airflow_hive_to_delta.campaigns.waves import Wave, plan_wave
from airflow_hive_to_delta.core.errors import WindowClosedError
from airflow_hive_to_delta.core.results import ConversionResult, VerifyResult
from tests.support.airflow_runs import dag_source
from tests.support.campaigns import local_store, planned, row
from tests.support.detached import Detached, make_platform

IMPORTS = "from tests.support.detached import EndsForTriggers\n"


@pytest.fixture
def store(tmp_path: Path) -> CampaignStore:
    store = local_store(tmp_path / "staging")
    planned(store, [row("a"), row("b")])
    return store


def unit(store: CampaignStore, platform: Path, more: str = "", wave: Wave | None = None) -> str:
    """A DAG with the task of the one unit of a new wave."""
    found = plan_wave(store, "one", wave=wave, now=now())
    assert found is not None
    (uri,) = found.packed
    body = (
        f"ConvertUnitOperator(task_id='unit', unit={uri!r}, campaign='lake', verify='counts', aws_conn_id=None,"
        f" staging='file://{platform.parent}/staging', engine=EndsForTriggers({str(platform)!r}), deferrable=True,"
        f" retry_delay=timedelta(0), {more})"
    )
    return dag_source(body, imports=IMPORTS)


def answer(*results: ConversionResult) -> dict[str, Any]:
    return {"results": [result.to_dict() for result in results], "files": [None] * len(results)}


def done(name: str) -> ConversionResult:
    proof = VerifyResult(f"sales.{name}", f"s3://lake/{name}", "counts", success=True, version=0)
    return ConversionResult(
        f"sales.{name}",
        "",
        success=True,
        status="converted",
        ours=True,
        location=f"s3://lake/{name}",
        version=0,
        verified={"counts": 0},
        verification=proof,
    )


def throttled(name: str) -> ConversionResult:
    result = ConversionResult(f"sales.{name}", "", success=False, status="failed")
    return replace(result, error="SlowDown", error_kind="TransientError", retryable=True)


def jobs_of(platform: Path) -> list[Path]:
    return sorted(Path(job) for job in Detached(str(platform)).jobs())


def states(store: CampaignStore) -> dict[str, str]:
    return {name.removeprefix("sales."): state.state for name, state in store.states().items()}


def test_a_deferred_unit_takes_up_its_job_and_writes_the_states(run_dag, store, tmp_path) -> None:
    platform = make_platform(tmp_path / "platform", answer(done("a"), done("b")))
    run = run_dag(unit(store, platform))
    assert (run.state, run.tries) == ("success", {"unit": 1})
    assert run.xcom("unit") == {"verified": 2}
    assert len(jobs_of(platform)) == 1
    assert states(store) == {"a": "verified", "b": "verified"}
    assert live_leases(store, now()) == {}
    assert store.states()["sales.a"].job_url == "http://127.0.0.1/job-0"


def test_a_later_try_takes_what_is_unfinished_and_the_last_one_says_what_failed(run_dag, store, tmp_path) -> None:
    platform = make_platform(tmp_path / "platform", answer(throttled("b")))
    (platform / "answer-job-0").write_text(json.dumps(answer(done("a"), throttled("b"))))
    run = run_dag(unit(store, platform, "retries=1"))
    assert (run.state, run.tries) == ("success", {"unit": 2}), "a unit ends well though tables failed"
    assert states(store) == {"a": "verified", "b": "failed"}
    state = store.states()["sales.b"]
    assert (state.attempts, state.error, state.next_attempt is not None) == (1, "SlowDown", True)
    folders = [json.loads(job.read_text())["results"].removeprefix("file://") for job in jobs_of(platform)]
    requests = [json.loads((Path(folder) / "_request.json").read_text())["arguments"] for folder in folders]
    assert [[table["name"] for table in request["tables"]] for request in requests] == [["a", "b"], ["b"]]
    assert requests[0]["list_again"]["later_try"], "the job lists the files itself"


def test_after_the_end_of_its_window_a_unit_starts_no_job(run_dag, store, tmp_path) -> None:
    platform = make_platform(tmp_path / "platform", answer())
    dag = unit(store, platform)
    path = "units/one/0000.json"
    store.write(path, {**(store.read(path) or {}), "until": "2020-01-01T00:00:00+00:00"})
    assert run_dag(dag).state == "success"
    assert jobs_of(platform) == []
    assert states(store) == {"a": "planned", "b": "planned"}


#: An engine whose jobs end after the window of their unit.
TOO_LATE = """
from airflow_hive_to_delta.campaigns.units import UnitWork

class TooLate(EndsForTriggers):
    def submit(self, spec, environment):
        ref = super().submit(spec, environment)
        UnitWork.is_past_window = lambda work: True
        return ref
"""


def test_what_a_job_has_done_is_written_though_the_window_of_its_unit_ends_meanwhile(
    run_dag, store, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(UnitWork, "is_past_window", UnitWork.is_past_window)  # which is restored after the test
    left = replace(throttled("b"), error="not begun", error_kind=WindowClosedError.__name__)
    platform = make_platform(tmp_path / "platform", answer(done("a"), left))
    dag = (
        unit(store, platform).replace("engine=EndsForTriggers(", "engine=TooLate(").replace(IMPORTS, IMPORTS + TOO_LATE)
    )
    assert run_dag(dag).state == "success"
    assert len(jobs_of(platform)) == 1
    assert states(store) == {"a": "verified", "b": "planned"}
    assert live_leases(store, now()) == {}
