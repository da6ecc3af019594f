"""A part of the core's tests on Spark 3.5, in its environment. ``make test-spark35`` runs all of them there."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.project import PROJECT
from tests.support.spark_versions import SPARK_35_PYTHON, needs_spark_4, spark_35_variables

LIFECYCLE = "tests/core/lifecycle"
CHOSEN = (
    f"{LIFECYCLE}/test_convert.py::test_rules_26_to_28_nested_types",
    f"{LIFECYCLE}/test_sync.py::test_new_files_are_one_entry_with_the_transaction_of_the_run",
    f"{LIFECYCLE}/test_verify.py::test_a_table_of_glue_with_partitions_in_another_bucket_passes[full]",
    f"{LIFECYCLE}/test_rollback.py::test_rolled_back_and_converted_again_and_rolled_back_again",
)


@pytest.mark.slow
@needs_spark_4("an environment of Spark 3.5 beside it")
def test_the_core_works_on_spark_3_5() -> None:
    command = [str(SPARK_35_PYTHON), "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *CHOSEN]
    run = subprocess.run(command, cwd=PROJECT, env=spark_35_variables(), capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    assert "skipped" not in run.stdout.splitlines()[-1], run.stdout
