"""Documents under the staging root, which jobs and other tasks write while this one looks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from botocore.exceptions import ClientError

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.operators.jobs.folder import JobFolder
from airflow_hive_to_delta.operators.staging import RunFolder, read_text
from tests.support.airflow_runs import dag_source
from tests.support.detached import Detached, make_platform


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


def test_a_job_whose_request_cannot_be_written_is_not_started(run_dag: Any, bucket: str, tmp_path: Path) -> None:
    platform = make_platform(tmp_path / "platform", {"lists": []})
    table = TableInfo("a", f"s3://{bucket}/a").to_dict()
    body = f"""
class OnS3(Detached):
    schemes = frozenset({{"s3"}})

ListFilesOperator(
    task_id="list", table={table!r}, listing="spark", aws_conn_id=None, engine=OnS3({str(platform)!r}), retries=2,
    staging="s3://{bucket}-gone/staging"
)
"""
    run = run_dag(dag_source(body, imports="from tests.support.detached import Detached\n"))
    assert (run.state, run.tries) == ("failed", {"list": 1})
    assert f"The staging root s3://{bucket}-gone/staging cannot be written to: FileNotFoundError: " in run.log
    assert "No job was started. Correct it, create its bucket or folder, or give this identity access" in run.log
    assert Detached(str(platform)).jobs() == []


@pytest.mark.parametrize(
    ("code", "failure", "message"),
    [
        ("AccessDenied", AirflowFailException, "Nothing was done. Correct it, .* or give this identity access"),
        (
            "ExpiredToken",
            AirflowException,
            "Nothing was done. The credentials have expired. The next try takes them anew",
        ),
    ],
)
def test_what_the_error_of_a_staging_root_on_s3_says(code: str, failure: type[Exception], message: str) -> None:
    folder = object.__new__(RunFolder)
    folder.root = "s3://lake/staging"
    with pytest.raises(failure, match=message) as raised, folder.explaining_errors("Nothing was done"):
        raise PermissionError("no") from ClientError({"Error": {"Code": code, "Message": "no"}}, "PutObject")  # of s3fs
    assert type(raised.value) is failure


def test_a_document_on_a_disk(airflow_home: Path, tmp_path: Path) -> None:
    path = ObjectStoragePath(f"file://{tmp_path}") / "Ä.json"
    with pytest.raises(FileNotFoundError):
        read_text(path)
    path.write_text('"ö"', encoding="utf-8")
    assert read_text(path) == '"ö"'


def test_a_storage_that_airflow_lacks_a_library_for_is_named(run_dag: Any) -> None:
    body = """
CatalogDiscoverOperator(task_id="discover", allow="a.b.*", staging="gs://lake/staging", aws_conn_id=None, retries=2)
"""
    run = run_dag(dag_source(body))
    assert (run.state, run.tries) == ("failed", {"discover": 1})
    assert "and see that the Airflow workers have the package gcsfs, by which Airflow writes there" in run.log
