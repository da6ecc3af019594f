"""Jobs that go on without the process that submitted them: found again, ended with the task, never started twice."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.engines import JobStatus, watch
from airflow_hive_to_delta.engines.package import main_script, package_zip
from airflow_hive_to_delta.job.documents import begun_name, result_name
from airflow_hive_to_delta.job.manifests import FileList
from airflow_hive_to_delta.job.request import JobRequest
from airflow_hive_to_delta.job.table_results import EarlierTries
from airflow_hive_to_delta.operators.jobs.folder import JobFolder
from airflow_hive_to_delta.operators.jobs.submitted import SubmittedJob, SubmittedJobStore
from airflow_hive_to_delta.operators.jobs.table_jobs import TableJobs
from airflow_hive_to_delta.triggers.job_progress import JobProgress, count_tables
from tests.support.airflow_runs import dag_source
from tests.support.aws import REGION
from tests.support.detached import Detached, make_platform

TASK = """
CatalogDiscoverOperator(
    task_id="discover", allow="a.b.*", engine={engine}({platform!r}), staging="file://{staging}", aws_conn_id=None,
    retry_delay=timedelta(0), {more}
)
"""
IMPORTS = "import os, signal\nfrom tests.support.detached import Detached\n"
NEVER_ENDS = """
class NeverEnds(Detached):
    def when_asked(self):
        pass
"""
KILLS = """
class Kills(Detached):
    '''A person kills the task while its job runs.'''

    def when_asked(self):
        os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Path]:
    folder = make_platform(tmp_path / "platform", {"tables": []})
    yield folder
    left = [json.loads(job.read_text())["pid"] for job in Detached(str(folder)).jobs()]
    running = [pid for pid in left if Path(f"/proc/{pid}").exists()]
    assert running == [], "no test leaves a job behind"


def task(platform: Path, more: str = "retries=1", *, engine: str = "Detached", classes: str = "") -> str:
    staging = platform.parent / "staging"
    body = TASK.format(engine=engine, platform=str(platform), staging=staging, more=more)
    return dag_source(body, imports=IMPORTS + classes)


def submitted(platform: Path) -> list[dict[str, Any]]:
    """What the platform knows of each job that was ever submitted to it."""
    return [json.loads(job.read_text()) for job in Detached(str(platform)).jobs()]


def test_a_few_failed_polls_are_nothing(run_dag, platform) -> None:
    (platform / "fail").write_text("2")
    run = run_dag(task(platform, "retries=0"))
    assert run.state == "success"
    assert "No answer, 2 of at most 2 times in a row: ConnectionError: The platform does not answer" in run.log
    assert run.xcom("discover", "_link_SparkJobLink") == "http://127.0.0.1/job-0"
    assert len(submitted(platform)) == 1


def test_a_later_try_finds_the_running_job_again(run_dag, platform) -> None:
    (platform / "fail").write_text("3")  # one more than are nothing, as of a worker that ends
    run = run_dag(task(platform))
    assert (run.state, run.tries) == ("success", {"discover": 2})
    assert len(submitted(platform)) == 1
    assert "of try 1 again" in run.log
    assert run.xcom("discover") == []
    assert run.xcom("discover", "_link_SparkJobLink") == "http://127.0.0.1/job-0"


@pytest.mark.parametrize("retryable", [True, False])
def test_a_platform_that_does_not_answer_this_identity_has_not_lost_the_job(run_dag, platform, retryable) -> None:
    """The tables of a job that died get jobs of their own. This one has not died, and a permanent error ends it."""
    (platform / "fail").write_text("3")
    tables = [TableInfo(name, f"file://{platform.parent}/{name}") for name in ("a", "b")]
    found = [FileList(table.qualified_name, 0, 0, files=[]).to_dict() for table in tables]
    (platform / "answer").write_text(json.dumps({"lists": found}))
    denied = f"""
from airflow_hive_to_delta.engines import JobError

class Denied(Detached):
    def status(self, ref, cursor=None):
        if self._takes("fail"):
            raise JobError("The token has expired. Renew it", retryable={retryable})
        return super().status(ref, cursor)
"""
    body = f"""
ListFilesOperator(
    task_id="list", table={[table.to_dict() for table in tables]!r}, listing="spark", aws_conn_id=None, retries=2,
    retry_delay=timedelta(0), engine=Denied({str(platform)!r}), staging="file://{platform.parent}/staging"
)
"""
    run = run_dag(dag_source(body, imports=IMPORTS + denied))
    assert (run.state, run.tries) == (("success", {"list": 2}) if retryable else ("failed", {"list": 1}))
    assert "The token has expired. Renew it" in run.log
    assert len(submitted(platform)) == 1
    assert (platform / "job-0.cancelled").exists() is not retryable


def test_a_submission_that_failed_for_the_identity_says_so(run_dag, platform) -> None:
    """The command that submits says less than the platform does when it is asked for the job."""
    refused = """
class Refused(Detached):
    def submit(self, spec, environment):
        raise RuntimeError("spark-submit exited with 1. Its last lines: KubernetesClientException")

    def find(self, token):
        from airflow_hive_to_delta.engines import JobError
        raise JobError("The API answered 401. Renew the token", retryable=False)
"""
    run = run_dag(task(platform, "retries=2", engine="Refused", classes=refused))
    assert (run.state, run.tries) == ("failed", {"discover": 1})
    assert "answered 401. Renew the token. The submission had failed: RuntimeError: spark-submit exited" in run.log


def test_a_job_of_the_last_try_is_not_left_running(run_dag, platform) -> None:
    (platform / "fail").write_text("3")
    assert run_dag(task(platform, "retries=0")).state == "failed"
    assert (platform / "job-0.cancelled").exists()


@pytest.mark.parametrize(("lost", "tries"), [(["lose_answer"], 1), (["lose_answer", "lose_find"], 2)])
def test_a_job_whose_submission_got_no_answer_is_found_by_its_token(run_dag, platform, lost, tries) -> None:
    for name in lost:
        (platform / name).touch()
    run = run_dag(task(platform))
    assert (run.state, run.tries) == ("success", {"discover": tries})
    (job,) = submitted(platform)
    assert len(job["token"]) <= 64


def test_a_retry_after_a_failed_job_and_a_cleared_task_start_new_jobs(run_dag, clear_and_run, platform) -> None:
    (platform / "answer").write_text(json.dumps({"error": "Throttled", "retryable": True}))
    run = run_dag(task(platform))
    assert (run.state, run.tries) == ("failed", {"discover": 2})
    (platform / "answer").write_text(json.dumps({"tables": []}))
    again = clear_and_run(run)
    assert again.state == "success"
    assert clear_and_run(run).state == "success"
    tokens = [job["token"] for job in submitted(platform)]
    assert len(set(tokens)) == len(tokens) == 4


def test_a_permanent_error_of_the_job_fails_the_task_without_a_retry(run_dag, platform) -> None:
    (platform / "answer").write_text(json.dumps({"error": "allow matches nothing", "retryable": False}))
    run = run_dag(task(platform, "retries=3"))
    assert (run.state, run.tries) == ("failed", {"discover": 1})
    assert "allow matches nothing" in run.log


def test_a_job_that_was_cancelled_on_its_platform_is_tried_again(run_dag, platform) -> None:
    (platform / "job-0.cancelled").touch()
    run = run_dag(task(platform))
    assert (run.state, run.tries) == ("success", {"discover": 2})
    assert "The job was cancelled where it runs, before it had a result" in run.log
    Detached(str(platform)).cancel(Detached(str(platform))._ref(platform / "job-0"), 1)


def test_an_extra_that_an_engine_lacks_fails_the_task_without_a_retry(run_dag, platform) -> None:
    lacks = """
class Lacks(Detached):
    def submit(self, spec, environment):
        from airflow_hive_to_delta.core.extras import needs_extra
        with needs_extra("spark", "This engine"):
            import no_such_library
"""
    run = run_dag(task(platform, "retries=3", engine="Lacks", classes=lacks))
    assert (run.state, run.tries) == ("failed", {"discover": 1})
    assert "pip install 'airflow-hive-to-delta[spark]'" in run.log
    assert submitted(platform) == []


def test_a_killed_task_ends_its_job(run_dag, platform) -> None:
    run = run_dag(task(platform, "retries=0", engine="Kills", classes=KILLS))
    assert run.state == "failed"
    assert "The task was killed, and its job was ended with it" in run.log
    assert (platform / "job-0.cancelled").exists()


def test_a_timeout_ends_the_job_which_is_reported_until_then(run_dag, platform, monkeypatch) -> None:
    monkeypatch.setattr(watch, "PROGRESS_SECONDS", 0)
    more = "retries=0, execution_timeout=timedelta(seconds=2)"
    run = run_dag(task(platform, more, engine="NeverEnds", classes=NEVER_ENDS))
    assert run.state == "failed"
    assert (platform / "job-0.cancelled").exists()
    assert "Discover tables is running, for " in run.log
    assert [job["timeout"] for job in submitted(platform)] == [2], "the platform knows when to end it, too"


def test_what_is_kept_of_a_job_is_a_file_where_airflow_keeps_no_state(airflow_home, tmp_path) -> None:
    class Folder:
        from airflow.sdk import ObjectStoragePath

        jobs = ObjectStoragePath(f"file://{tmp_path}/jobs")

    folder: Any = Folder()
    store = SubmittedJobStore({}, folder)
    assert store.read() is None
    job = SubmittedJob(0, 1, "0001-01-x", "x", {"id": "1", "results_uri": "file:///r", "page": None})
    store.write(job)
    assert SubmittedJobStore({}, folder).read() == job
    store.clear()
    assert store.read() is None
    assert os.listdir(tmp_path / "jobs") == []


def test_what_a_job_that_was_found_again_has_left_of_a_table_is_of_this_try() -> None:
    """An error counts as a result of this try, too."""
    tables = [TableInfo(name, f"s3://b/{name}") for name in ("good", "bad", "left")]
    good: dict[str, Any] = {"result": {"source_table": "good", "error": None, "notes": []}}
    bad = {"result": {"source_table": "bad", "error": "No such column", "retryable": False, "notes": []}}
    store: Any = type("Store", (), {"earlier_tries": lambda *_: EarlierTries({"good": (1, good), "bad": (1, bad)})})()

    def names_of_jobs(resumed: int | None) -> list[list[str]]:
        jobs: list[list[str]] = []

        def run_job(some: Any) -> dict[str, Any]:
            jobs.append([table.name for table in some])
            return {"results": [{"source_table": table.name, "error": None, "notes": []} for table in some]}

        log = logging.getLogger(__name__)
        ran = TableJobs(run_job, lambda: False, store, try_number=2, first_try=1, resumed_try=resumed, log=log)
        ran.run(tables)
        assert ran.records.keys() == {"good", "bad", "left"}
        return jobs

    assert names_of_jobs(resumed=1) == [["left"]]
    assert names_of_jobs(resumed=None) == [["bad", "left"]]


def test_a_silent_job_of_several_tables_is_reported_with_those_that_have_ended(airflow_home, tmp_path) -> None:
    from airflow.sdk import ObjectStoragePath

    names = ("a", "b", "c")
    tables = [TableInfo(name, f"s3://b/{name}").to_dict() for name in names]
    request = JobRequest("vacuum", {"tables": tables}, "Vacuum a, b, c")
    folder = JobFolder(ObjectStoragePath(f"file://{tmp_path}/job"))
    folder.write_request(request)
    for name in (begun_name("a"), begun_name("b"), result_name("a")):
        (tmp_path / "job" / name).write_text("{}")
    progress = JobProgress(request.name, folder.uri, folder.conn_id, count_tables(request))
    said = progress.describe(JobStatus("running"), 31.4)
    assert said == "Vacuum a, b, c is running, for 31 s by now; 1 of 3 tables have ended"
    (tmp_path / "job" / "_progress.json").write_text('{"files_listed": 12000, "footers_read": 9000, "stages": "count"}')
    said = progress.describe(JobStatus("running"), 31.4)
    counted = "12,000 files listed, 9,000 footers read; count"
    assert said == f"Vacuum a, b, c is running, for 31 s by now; {counted}; 1 of 3 tables have ended"
    assert folder.read_result() is None
    assert folder.read_request() == request


def test_how_far_a_job_is_is_read_by_an_airflow_connection(airflow_home, s3, bucket, aws_endpoint, monkeypatch) -> None:
    extra = {"endpoint_url": aws_endpoint, "region_name": REGION}
    connection = {"conn_type": "aws", "login": "testing", "password": "testing", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    for name, content in (("_progress.json", '{"footers_read": 7}'), (result_name("a"), "{}"), (begun_name("b"), "{}")):
        s3.put_object(Bucket=bucket, Key=f"job/{name}", Body=content)
    progress = JobProgress("Convert a, b", f"s3://{bucket}/job", "lake", 2)
    said = progress.describe(JobStatus("running"), 40)
    assert said == "Convert a, b is running, for 40 s by now; 7 footers read; 1 of 2 tables have ended"
    gone = replace(progress, results_uri=f"s3://{bucket}-gone/job").describe(JobStatus("running"), 40)
    assert gone.startswith("Convert a, b is running, for 40 s by now (how far it is could not be read: ")


def test_the_package_is_uploaded_once(lake, run_dag, monkeypatch) -> None:
    from airflow.sdk import ObjectStoragePath

    write, written = ObjectStoragePath.write_bytes, []

    def counted(path: Any, content: bytes) -> Any:
        written.append(path.name)
        return write(path, content)

    monkeypatch.setattr(ObjectStoragePath, "write_bytes", counted)
    body = f"""
class Ships(SharedSession):
    ships_package = True

    def submit(self, spec, environment):
        assert spec.package_uri.startswith("s3://{lake.bucket}/staging/packages/")
        assert spec.main_uri.startswith("s3://{lake.bucket}/staging/packages/run_job-")
        return super().submit(spec, environment)

for number in range(2):
    CatalogDiscoverOperator(
        task_id=f"discover_{{number}}", allow="a.b.*", engine=Ships(), staging="s3://{lake.bucket}/staging",
        aws_conn_id=None
    )
"""
    run = run_dag(dag_source(body))
    assert run.state == "success"
    shipped = [package_zip(), main_script()]
    assert written == [file.name for file in shipped]
    for file in shipped:
        uploaded = lake.s3.get_object(Bucket=lake.bucket, Key=f"staging/packages/{file.name}")["Body"].read()
        assert uploaded == file.content
