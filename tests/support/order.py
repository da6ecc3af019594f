"""The order in which the modules of tests are run."""

from __future__ import annotations

import pytest

from tests.support.project import PROJECT

#: The modules that take longer than others, the longest first. Those with clusters and JVMs of their own stand between
#: those that use the shared session, so that seldom two of them run side by side.
LONGEST = (
    "engines/test_on_premises.py",
    "core/lifecycle/test_rollback.py",
    "test_examples.py",
    "core/lifecycle/test_sync.py",
    "engines/test_spark_submit.py",
    "core/delta/test_snapshot.py",
    "operators/test_real_scheduler.py",
    "core/lifecycle/test_readers.py",
    "engines/test_local_spark.py",
    "task_groups/test_migration_failures.py",
    "engines/test_spark_connect.py",
    "core/lifecycle/test_sync_small.py",
    "engines/test_databricks.py",
    "core/lifecycle/test_convert_s3.py",
    "core/spark/test_spark35.py",
    "core/lifecycle/test_sync_times.py",
    "engines/test_engine_pages.py",
    "core/lifecycle/test_sync_schema.py",
    "task_groups/test_verify_in_convert.py",
    "operators/test_operators.py",
    "core/lifecycle/test_vacuum.py",
    "core/lifecycle/test_connect.py",
    "core/lifecycle/test_properties.py",
    "operators/test_identity.py",
    "core/delta/test_delta_writes.py",
    "operators/test_operators_after.py",
    "core/parquet/test_scan.py",
    "task_groups/test_migration_verified.py",
    "task_groups/test_migration.py",
    "test_docs.py",
    "test_extras.py",
    "task_groups/test_sync.py",
    "job/test_databricks_without_keys.py",
    "core/lifecycle/test_month.py",
)
_PLACES = {PROJECT / "tests" / name: place for place, name in enumerate(LONGEST)}


def sort_longest_first(items: list[pytest.Item]) -> None:
    """Sort tests so that the longest modules begin first, and workers that share them end at nearly the same time."""
    items.sort(key=lambda item: _PLACES.get(item.path, len(_PLACES)))
