"""The tasks that the task groups are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Required, TypedDict, get_args

from airflow.sdk import BaseOperator, TaskGroup, TriggerRule, XComArg, task_group

from airflow_hive_to_delta.core.results import VerifyLevel
from airflow_hive_to_delta.engines import Engine
from airflow_hive_to_delta.job.actions import ReportedAction
from airflow_hive_to_delta.operators.arguments import Options, options_dict
from airflow_hive_to_delta.operators.convert import ConvertTableOperator
from airflow_hive_to_delta.operators.discover import CatalogDiscoverOperator, GlueDiscoverOperator
from airflow_hive_to_delta.operators.list_files import ListFilesOperator
from airflow_hive_to_delta.operators.report import MigrationReportOperator
from airflow_hive_to_delta.operators.sync import SyncTableOperator
from airflow_hive_to_delta.operators.tables.assets import DEFAULT_ALIAS
from airflow_hive_to_delta.operators.tables.outcomes import OUTCOMES
from airflow_hive_to_delta.operators.tables.selection import Choose
from airflow_hive_to_delta.operators.verify import VerifyTableOperator
from airflow_hive_to_delta.task_groups.config import (
    CatalogSource,
    CatalogTarget,
    FileListing,
    GlueSource,
    GlueTarget,
    PerTable,
    Staging,
    Target,
    registration_arguments,
)


class GroupArguments(TypedDict, total=False):
    """The arguments that every task group takes: see :func:`hive_to_delta_task_group`."""

    source: Required[GlueSource | CatalogSource]
    staging: Required[Staging | str]
    listing: FileListing | None
    engine: Engine | None
    options: Options
    per_table: PerTable | None
    choose: Choose | None
    at_least_one: bool
    aws_conn_id: str | None
    region_name: str | None
    asset_alias: str | None


@dataclass(kw_only=True)
class GroupSteps:
    """Makes the tasks of a group, by the arguments that they share."""

    source: GlueSource | CatalogSource
    staging: Staging | str
    target: Target | None = None
    verify: VerifyLevel | None = None
    listing: FileListing | None = None
    engine: Engine | None = None
    options: Options = None
    per_table: PerTable | None = None
    choose: Choose | None = None
    at_least_one: bool = True
    aws_conn_id: str | None = "aws_default"
    region_name: str | None = None
    asset_alias: str | None = DEFAULT_ALIAS

    def __post_init__(self) -> None:
        staging = Staging(self.staging) if isinstance(self.staging, str) else self.staging
        per_table = self.per_table or PerTable()
        listing = self.listing or FileListing("s3" if isinstance(self.source, GlueSource) else "spark")
        check_type("source", self.source, GlueSource, CatalogSource)
        check_type("staging", staging, Staging)
        check_type("per_table", per_table, PerTable)
        check_type("listing", listing, FileListing)
        if self.verify not in (None, *get_args(VerifyLevel)):
            raise ValueError(f"verify is {self.verify!r}, expected counts, full or None")
        if per_table.verify_in_convert and self.verify is None:
            raise ValueError("per_table has verify_in_convert=True beside verify=None; give a level, or leave it out")
        if self.target is not None:
            check_type("target", self.target, GlueTarget, CatalogTarget)
            self.options = options_for(self.target, self.options)
        #: The arguments of every task that keeps something: who it is to AWS, and where the staging root is.
        self._identity: dict[str, Any] = {
            "aws_conn_id": self.aws_conn_id,
            "staging": staging.root,
            "staging_conn_id": staging.conn_id,
        }
        self._tries: dict[str, Any] = {"retries": per_table.retries, "retry_delay": per_table.retry_delay}
        #: Where tables are registered.
        self._registration = registration_arguments(self.target)
        #: The level by which the converting job verifies, if it does.
        self._verify_in_convert = self.verify if per_table.verify_in_convert else None
        self._batch_size = per_table.batch_size
        self._max_workers = per_table.max_workers
        self._listing: dict[str, Any] = {**listing.to_arguments(), "inline_limit": listing.inline_limit}
        #: The arguments of every task that runs for each table.
        self._each: dict[str, Any] = {
            **self._identity,
            **self._tries,
            "region_name": self.region_name,
            "engine": self.engine,
            "options": self.options,
            # Depth first: else every table would be listed before the first one is converted, by a list of hours ago.
            "weight_rule": "upstream",
            "max_active_tis_per_dagrun": per_table.max_active,
            "execution_timeout": per_table.execution_timeout,
            **({"pool": per_table.pool} if per_table.pool else {}),
        }

    def group(
        self,
        group_id: str,
        action: ReportedAction,
        steps: Callable[[Any], list[BaseOperator]],
        *,
        leave_out_delta: bool = False,
    ) -> TaskGroup:
        """The whole group: discovery, the steps mapped over the tables, and the report.

        :param steps: makes the tasks of a table, in their order.
        """
        made: list[BaseOperator] = []
        with TaskGroup(group_id) as group:
            discover = self.discover(leave_out_delta=leave_out_delta)

            @task_group(group_id="tables")
            def tables(table: Any) -> None:
                made.extend(steps(table))

            mapped = tables.expand(table=discover.output)
            report = MigrationReportOperator(
                task_id="report",
                discover_task_id=discover.task_id,
                table_task_ids=[step.task_id for step in made],
                action=action,
                **self._identity,
                **self._tries,
            )
            mapped >> report
        return group

    def discover(self, *, leave_out_delta: bool) -> GlueDiscoverOperator | CatalogDiscoverOperator:
        """The task that finds the tables."""
        arguments: dict[str, Any] = {
            "task_id": "discover",
            "choose": self.choose,
            "batch_size": self._batch_size,
            "options": self.options,
            "leave_out_delta": leave_out_delta,
            "at_least_one": "found" if self.at_least_one else False,
            "region_name": self.region_name,
            **self._registration,
            **self._identity,
            **self._tries,
        }
        source = self.source
        if isinstance(source, CatalogSource):
            return CatalogDiscoverOperator(engine=self.engine, **source.to_arguments(), **arguments)
        return GlueDiscoverOperator(**source.to_arguments(), **arguments)

    def list_files(self, table: Any) -> ListFilesOperator:
        """The task that lists the files of a table."""
        return ListFilesOperator(task_id="list_files", table=table, **self._listing, **self._each)

    def convert(self, table: Any, files: ListFilesOperator) -> ConvertTableOperator:
        """The task that converts a table."""
        return ConvertTableOperator(
            task_id="convert",
            verify=self._verify_in_convert,
            asset_alias=self.asset_alias,
            **self._registration,
            **self._of_files(table, files),
        )

    def sync(
        self, table: Any, files: ListFilesOperator, settings: dict[str, Any], converted: BaseOperator | None = None
    ) -> SyncTableOperator:
        """The task that syncs a table, after the conversion of what is new if there is one.

        :param settings: what :func:`sync_arguments` returned.
        """
        after = {} if converted is None else self._after(converted)
        return SyncTableOperator(
            task_id="sync",
            asset_alias=self.asset_alias,
            **settings,
            **after,
            **self._of_files(table, files),
        )

    def verify_after(self, written: BaseOperator, table: Any, files: ListFilesOperator) -> list[BaseOperator]:
        """The task that compares what an earlier one has written, or none, as the group is to verify or not."""
        if self.verify is None:
            return []
        return [
            VerifyTableOperator(
                task_id="verify", level=self.verify, **self._after(written), **self._of_files(table, files)
            )
        ]

    def _after(self, step: BaseOperator) -> dict[str, Any]:
        """The arguments of a task that comes after another one, for the tables that this did not fail for."""
        # A table by itself that failed stops its steps. Of a batch the others go on: the task sees who they are.
        rule = TriggerRule.ALL_DONE if self._batch_size else TriggerRule.ALL_SUCCESS
        return {"results": XComArg(step, key=OUTCOMES), "trigger_rule": rule}

    def _of_files(self, table: Any, files: ListFilesOperator) -> dict[str, Any]:
        return {"table": table, "files": files.output, "max_workers": self._max_workers, **self._each}


def options_for(target: Target, options: Options) -> dict[str, Any]:
    """The options by which tables are registered in a target."""
    wanted = target.register_in
    # In ConversionOptions sql may be the default. In a dict there are no defaults.
    given = options.get("register_in") if isinstance(options, Mapping) else getattr(options, "register_in", None)
    unset = (None,) if isinstance(options, Mapping) else (None, "sql")
    if given != wanted and given not in unset:
        raise ValueError(
            f"options has register_in={given!r} beside target={target!r}, which registers in {wanted!r}. Leave "
            "register_in out: the target says where tables are registered"
        )
    checked = options_dict(options)
    create_schema = checked["create_schema"] if target.create_schema is None else target.create_schema
    return {**checked, "register_in": wanted, "create_schema": create_schema}


def check_type(argument: str, given: Any, *expected: type) -> None:
    """Refuse, when a DAG is parsed, an argument that is no config object of the expected types."""
    if not isinstance(given, expected):
        names = " or ".join(kind.__name__ for kind in expected)
        raise TypeError(f"{argument} is {given!r}, expected {names}")
