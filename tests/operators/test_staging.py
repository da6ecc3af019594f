"""Documents under the staging root, which jobs and other tasks write while this one looks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath

from airflow_hive_to_delta.operators.jobs.folder import JobFolder
from airflow_hive_to_delta.operators.staging import read_text


def test_a_result_is_found_though_a_listing_from_before_it_is_cached(airflow_home: Path, bucket: str, s3: Any) -> None:
    folder = ObjectStoragePath(f"s3://{bucket}/job", conn_id=None)
    job = JobFolder(folder)
    s3.put_object(Bucket=bucket, Key="job/t.json", Body=b"{}")
    # As by the thread that writes how far the job is.
    assert [path.name for path in folder.iterdir()] == ["t.json"]
    assert job.read_result() is None
    assert not job.has_request()
    s3.put_object(Bucket=bucket, Key="job/_done.json", Body=b'{"results": []}')
    s3.put_object(Bucket=bucket, Key="job/_request.json", Body=b"{}")
    with pytest.raises(FileNotFoundError):
        (folder / "_done.json").read_text()
    assert job.read_result() == {"results": []}
    assert job.has_request()


def test_a_document_on_a_disk(airflow_home: Path, tmp_path: Path) -> None:
    path = ObjectStoragePath(f"file://{tmp_path}") / "Ä.json"
    with pytest.raises(FileNotFoundError):
        read_text(path)
    path.write_text('"ö"', encoding="utf-8")
    assert read_text(path) == '"ö"'
