"""The order in which the modules of tests are run, and by which of the processes that share them."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.support.project import PROJECT

#: The modules that take longer than others, the longest first. Those with clusters and JVMs of their own stand between
#: those that use the shared session, so that seldom two of them run side by side.
LONGEST = (
    "engines/test_on_premises.py",
    "test_examples.py",
    "core/lifecycle/test_rollback.py",
    "core/lifecycle/test_verify.py",
    "core/lifecycle/test_convert.py",
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
    "core/lifecycle/test_rollback_races.py",
    "task_groups/test_campaign.py",
    "engines/test_every_engine.py",
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
#: Modules and folders of tests that need no Spark session of their process. Many of them wait for processes that they
#: start: one worker takes them all beside the others, and never starts a session.
WITHOUT_SESSION = (
    "engines/test_on_premises.py",
    "core/spark/test_spark35.py",
    "plugins/",
    "core/lifecycle/test_connect.py",
    "campaigns/",
    "report/",
    "triggers/",
    "engines/test_glue.py",
    "engines/test_aws_engines.py",
    "engines/test_emr_serverless.py",
    "core/storage/test_s3.py",
    "core/storage/test_s3_tails.py",
    "core/storage/test_web_hdfs.py",
    "core/storage/test_file_tails.py",
    "core/listing/test_s3_scan.py",
    "core/parquet/test_footer_fuzz.py",
    "core/catalogs/test_discovery_glue.py",
    "core/schema/test_evidence.py",
    "core/schema/test_merge.py",
    "core/schema/test_translation.py",
    "core/schema/test_partition_values.py",
    "operators/test_deferred_jobs.py",
    "test_layers.py",
    "test_readme.py",
    "test_benchmarks.py",
)
_PLACES = {PROJECT / "tests" / name: place for place, name in enumerate(LONGEST)}


def sort_longest_first(items: list[pytest.Item]) -> None:
    """Sort tests so that the longest modules begin first, and workers that share them end at nearly the same time."""
    items.sort(key=lambda item: _PLACES.get(item.path, len(_PLACES)))


class ModuleScheduling(LoadFileScheduling):  # type: ignore[misc]  # which is of an untyped module
    """Gives each module to one worker, and those of :data:`WITHOUT_SESSION` to the third, if there is one.

    Two Spark sessions keep two cores busy but for the moments in which both wait. A third session would cost more than
    those; modules without one fill them.
    """

    def _reschedule(self, node: WorkerController) -> None:
        if not self._units_for(node) and not node.shutting_down:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if found := self._units_for(node):
            self.workqueue.move_to_end(found[0], last=False)
        super()._assign_work_unit(node)

    def _units_for(self, node: WorkerController) -> list[str]:
        """The modules that a worker may take, in their order. Those with sessions help the third out at the end."""
        free = [module for module in self.workqueue if _needs_no_session(module)]
        if node.gateway.id == "gw2":
            return free
        return [module for module in self.workqueue if module not in free] or free


def _needs_no_session(module: str) -> bool:
    return module.removeprefix("tests/").startswith(WITHOUT_SESSION)
