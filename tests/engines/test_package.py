"""The zip of the package: from it alone a job runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from io import BytesIO

import pytest

from airflow_hive_to_delta.core.models import ParquetFileInfo, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.engines import JobRequest
from airflow_hive_to_delta.engines.package import package_zip
from tests.support.jobs import result_in
from tests.support.oracle import assert_same, delta_at
from tests.support.project import PROJECT
from tests.support.tables import write_parquet

#: Runs the job, then says where its modules are from.
PROGRAM = """
import os, runpy, sys
package = os.environ["PYTHONPATH"].partition(os.pathsep)[0]
try:
    runpy.run_module("airflow_hive_to_delta.job", run_name="__main__", alter_sys=True)
except SystemExit as ended:
    assert not ended.code, ended.code
own = [module for name, module in sys.modules.items() if name.partition(".")[0] == "airflow_hive_to_delta"]
assert len(own) > 40
assert all(module.__file__.startswith(f"{package}/") for module in own)
assert "airflow" not in sys.modules
"""


def test_the_zip_has_the_core_and_the_job_and_its_name_is_that_of_its_content() -> None:
    package = package_zip()
    package_zip.cache_clear()
    assert package_zip() == package
    with zipfile.ZipFile(BytesIO(package.content)) as archive:
        names = archive.namelist()
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert {name.split("/")[1] for name in names} == {"__init__.py", "core", "job"}
    assert {"airflow_hive_to_delta/job/__main__.py", "airflow_hive_to_delta/core/lifecycle/convert.py"} <= set(names)
    assert len(names) == len(set(names))
    assert repr(package) == f"PackageFile(name={package.name!r})"


@pytest.mark.slow
def test_a_job_runs_from_the_zip_alone(airflow_home, spark, tmp_path) -> None:
    file = write_parquet(tmp_path / "t" / "f", {"n": [1, None]})
    listed = [ParquetFileInfo(str(file), file.stat().st_size).to_dict()]
    arguments = {
        "tables": [TableInfo("t", str(tmp_path / "t")).to_dict()],
        "lists": [{"table": "t", "file_count": 1, "byte_count": 0, "files": listed}],
        "target_catalog": None,
        "target_schemas": [None],
        "options": ConversionOptions().to_dict(),
    }
    (tmp_path / "request.json").write_text(json.dumps(JobRequest("convert", arguments).to_dict()))
    session = {"master": "local[1]", "conf": {"spark.jars.ivy": str(PROJECT / ".ivy")}}
    (tmp_path / "session.json").write_text(json.dumps(session))
    (tmp_path / (name := package_zip().name)).write_bytes(package_zip().content)
    # Without the module site nothing is found but what the path names: not the project, whatever is installed.
    (worker := tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    worker.chmod(0o755)
    path = os.pathsep.join([str(tmp_path / name), sysconfig.get_path("purelib")])
    (elsewhere := tmp_path / "elsewhere").mkdir()
    job = subprocess.run(
        [
            *(sys.executable, "-S", "-c", PROGRAM),
            *("../request.json", "--results", "../results", "--session", "../session.json"),
        ],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": str(worker)},
        capture_output=True,
        text=True,
    )
    assert job.returncode == 0, job.stderr
    (result,) = result_in(tmp_path / "results")["results"]
    assert result["status"] == "converted", result["error"]
    kept = json.loads((tmp_path / "results" / "t.json").read_text())
    assert kept["result"] == result
    assert_same(spark, spark.read.parquet(str(file)), delta_at(spark, tmp_path / "t"))
