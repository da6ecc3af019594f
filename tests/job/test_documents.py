"""The documents of a job: what it reads and leaves, on any storage."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta.core.storage.uri import parse_location
from airflow_hive_to_delta.engines import JobRef, JobSpec
from airflow_hive_to_delta.job import run as job
from airflow_hive_to_delta.job.documents import (
    PROGRESS,
    begun_name,
    put_document,
    read_document,
    replace_document,
    result_name,
)
from airflow_hive_to_delta.job.request import JobRequest
from airflow_hive_to_delta.job.run import run
from tests.support.lake import Lake

REQUEST = JobRequest("discover", {"allow": ["spark_catalog.no_such_database.*"], "deny": []})


def test_a_job_that_is_done_is_not_run_again_and_one_that_failed_is(spark, tmp_path: Path) -> None:
    """A platform may start a job again by itself."""
    folder, done = parse_location(str(tmp_path)), tmp_path / "_done.json"
    found = run(REQUEST, spark, results=folder)
    assert json.loads(done.read_text()) == found == {"tables": []}

    done.write_text('{"tables": ["of before"]}')
    assert run(REQUEST, spark, results=folder) == {"tables": ["of before"]}

    done.write_text('{"error": "of before", "retryable": true}')
    assert run(REQUEST, spark, results=folder) == found
    assert json.loads(done.read_text()) == found


def test_documents_lie_on_s3(lake: Lake, spark) -> None:
    folder = parse_location(f"s3://{lake.bucket}/job")
    put_document(folder.child("_request.json"), REQUEST.to_dict(), None)
    request = JobRequest.from_dict(read_document(folder.child("_request.json"), None))
    assert request == REQUEST
    assert run(request, spark, results=folder) == read_document(folder.child("_done.json"), None)


@pytest.mark.parametrize("table", ["request", "done", "begun.t", "_done", "sales.begun"])
def test_no_table_has_the_name_of_another_document(table: str) -> None:
    names = {"_request.json", "_done.json", begun_name("t"), result_name("t"), begun_name("sales")}
    assert {begun_name(table), result_name(table)}.isdisjoint(names)


def test_a_reference_is_plain_json_and_a_token_is_short() -> None:
    ref = JobRef("application_1", "s3://b/job", "https://example.com/1")
    assert JobRef.from_dict(json.loads(json.dumps(ref.to_dict()))) == ref
    assert JobSpec("Convert t", "s3://b/r", "s3://b/job", "t" * 64).package_uri is None
    for token in ("t" * 65, "", "a b"):
        with pytest.raises(ValueError, match="expected at most 64 letters"):
            JobSpec("Convert t", "s3://b/r", "s3://b/job", token)


def test_a_job_leaves_how_far_it_is_also_after_its_storage_has_failed(spark, tmp_path: Path, monkeypatch) -> None:
    is_left = threading.Event()
    failures = [OSError("Slow down")]

    def fails_once(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        replace_document(*arguments)
        is_left.set()

    monkeypatch.setattr(job, "_PROGRESS_SECONDS", 0.01)
    monkeypatch.setattr(job, "replace_document", fails_once)
    counts = {"files_listed": 12_000, "footers_read": 9_000}
    monkeypatch.setattr(job, "read_counts", lambda: counts)
    with job._reporting_progress(spark, parse_location(str(tmp_path))):
        assert is_left.wait(60)
    assert json.loads((tmp_path / PROGRESS).read_text()) == {**counts, "stages": ""}
