"""A whole migration in one call, and the syncs after it: discover, then some steps for each table, then report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, get_args

from airflow.sdk import BaseOperator, TaskGroup, TriggerRule, XComArg, task_group

from airflow_hive_to_delta.core.models import OutputMode, VerifyLevel
from airflow_hive_to_delta.engines import Engine
from airflow_hive_to_delta.manifests import INLINE_LIMIT
from airflow_hive_to_delta.operators.convert import ConvertTableOperator
from airflow_hive_to_delta.operators.discover import CatalogDiscoverOperator, Choose, GlueDiscoverOperator
from airflow_hive_to_delta.operators.list_files import ListFilesOperator, Strategy
from airflow_hive_to_delta.operators.report import MigrationReportOperator
from airflow_hive_to_delta.operators.sync import SyncTableOperator
from airflow_hive_to_delta.operators.tables import OUTCOMES, Options, check_count, options_dict
from airflow_hive_to_delta.operators.verify import VerifyTableOperator
from airflow_hive_to_delta.report import ReportedAction


@dataclass(frozen=True)
class GlueSource:
    """Tables of AWS Glue: see :class:`GlueDiscoverOperator`."""

    databases: str | Sequence[str]
    include: str | Sequence[str] = "*"
    exclude: str | Sequence[str] = ()
    catalog_id: str | None = None


@dataclass(frozen=True)
class CatalogSource:
    """Tables of Unity Catalog, ``hive_metastore`` or another catalog of Spark: see :class:`CatalogDiscoverOperator`."""

    allow: str | Sequence[str]
    deny: str | Sequence[str] = ("*.information_schema.*",)


@dataclass(frozen=True)
class FileListing:
    """How files are found: see :class:`ListFilesOperator`."""

    strategy: Strategy = "s3"
    inventory_manifests: str | Sequence[str] | None = None
    glue_database: str | None = None
    inline_limit: int = INLINE_LIMIT


@dataclass(frozen=True)
class Target:
    """Where Delta tables are registered: a schema for all of them, or one for each database. Nowhere by default."""

    catalog: str | None = None
    schema: str | Mapping[str, str] | None = None
    #: Create a schema that is missing. Unset: through Spark SQL it is created, in Glue the run fails and names it.
    create_schema: bool | None = None


@dataclass(frozen=True)
class Staging:
    """Where manifests, results and reports are kept, such as ``s3://bucket/staging``."""

    root: str
    #: The Airflow connection of the storage; the AWS connection of the group for one on S3.
    conn_id: str | None = None


@dataclass(frozen=True)
class PerTable:
    """How the tasks of each table, or of each batch of tables, run."""

    #: Of the tasks before and after them, too.
    retries: int = 2
    retry_delay: timedelta = timedelta(minutes=1)
    #: Tables (or batches) at a time in one DAG run, in each step; as many as Airflow has room for when not given. A
    #: pool limits the steps together.
    max_active: int | None = None
    pool: str | None = None
    execution_timeout: timedelta | None = None
    #: Tables that one task takes. Needed for more tables than Airflow maps (``core.max_map_length``), and worth it for
    #: many small ones: they share one Spark session.
    batch_size: int | None = None
    #: Tables of a batch that are worked on side by side.
    max_workers: int = 4

    def __post_init__(self) -> None:
        check_count("retries", self.retries, least=0)
        for name in ("max_active", "batch_size"):
            check_count(name, getattr(self, name), least=1, optional=True)


def hive_to_delta_task_group(
    group_id: str = "hive_to_delta",
    *,
    source: GlueSource | CatalogSource,
    staging: Staging | str,
    target: Target | None = None,
    listing: FileListing | None = None,
    engine: Engine | None = None,
    options: Options = None,
    per_table: PerTable | None = None,
    choose: Choose | None = None,
    at_least_one: bool = True,
    verify: VerifyLevel | None = "counts",
    aws_conn_id: str | None = "aws_default",
    region_name: str | None = None,
    asset_alias: str | None = "hive_to_delta",
) -> TaskGroup:
    """Tasks that migrate every table of a source: discover, a mapped group of list, convert and verify, and the report.

    Each table has its own retries, and a table that fails touches no other; the report then fails the run and names it.
    Clearing a failed table runs that table and the report again, and nothing else.

    :param source: which tables: :class:`GlueSource` or :class:`CatalogSource`.
    :param staging: where manifests, results and the report are kept: :class:`Staging`, or just its root.
    :param target: where the Delta tables are registered; not at all when not given.
    :param listing: how files are found; by default on S3 for tables of Glue, by Spark for those of a catalog.
    :param engine: where Spark jobs run; an embedded Spark by default.
    :param options: :class:`ConversionOptions`.
    :param per_table: retries, concurrency and batches.
    :param choose: a function that takes a discovered table as a dict and returns it, with another
        ``target_table_name`` for example, or None to leave it out.
    :param at_least_one: fail when the source has no table at all, which is a mistyped name more often than not.
    :param verify: compare every table that the run converted with the files that it was made from, by ``counts`` or in
        ``full``; None does not. So is one that an earlier run has converted and nobody has verified since. One that was
        verified before, or that others made a Delta table, is not compared: its task is skipped.
    :param aws_conn_id: the AWS connection of every task; None: the environment's identity.
    :param asset_alias: the alias that the converted tables, as assets, belong to.
    """
    parts = _Parts(
        source=source,
        staging=staging,
        target=target,
        listing=listing,
        engine=engine,
        options=options,
        per_table=per_table,
        choose=choose,
        at_least_one=at_least_one,
        verify=verify,
        aws_conn_id=aws_conn_id,
        region_name=region_name,
        asset_alias=asset_alias,
    )

    def steps(table: Any) -> list[BaseOperator]:
        files = parts.list_files(table)
        convert = parts.convert(table, files)
        return [files, convert, *parts.verify_after(convert, table, files)]

    return parts.group(group_id, "convert", steps)


def hive_to_delta_sync_task_group(
    group_id: str = "hive_to_delta_sync",
    *,
    source: GlueSource | CatalogSource,
    staging: Staging | str,
    convert_new: bool = False,
    target: Target | None = None,
    listing: FileListing | None = None,
    engine: Engine | None = None,
    options: Options = None,
    per_table: PerTable | None = None,
    choose: Choose | None = None,
    at_least_one: bool = True,
    output_mode: OutputMode = "append",
    merge_schema: bool = False,
    overwrite_schema: bool = False,
    accept_conflicts: bool = False,
    allow_forgotten_entries: bool = False,
    quiet_period: timedelta | float | str | None = timedelta(minutes=10),
    verify: VerifyLevel | None = None,
    aws_conn_id: str | None = "aws_default",
    region_name: str | None = None,
    asset_alias: str | None = "hive_to_delta",
) -> TaskGroup:
    """Tasks that bring what Hive has written since into the Delta tables: on a schedule, until these are cut over.

    Discover, a mapped group of list and sync for each table, and the report, as in :func:`hive_to_delta_task_group`. A
    table that was cut over, or is a Delta table in its catalog anyway, is left out and reported as skipped. One that
    was never converted fails, unless ``convert_new`` is set.

    The version of a sync is the DAG run's ``run_after``: the same run again changes nothing (see
    :class:`SyncTableOperator`). The other parameters are those of :func:`hive_to_delta_task_group`.

    :param convert_new: convert tables that are no Delta tables yet, with a step before the sync: the first run then
        converts all, later ones what is new in Hive.
    :param target: where tables that ``convert_new`` converts are registered.
    :param output_mode: ``append`` brings new files; ``complete`` mirrors what Hive has replaced and dropped, too.
    :param merge_schema: take over new columns and wider types.
    :param overwrite_schema: take over Hive's columns as they are; with ``complete`` only.
    :param accept_conflicts: add files that Hive has written anew after Delta had changed rows of them.
    :param allow_forgotten_entries: go on though entries of the log are gone that no sync has seen.
    :param quiet_period: partitions with a file younger than this, a timedelta or a number of minutes, wait for the next
        run, for a Hive job may be writing them: see :func:`sync_table`. None for tables that are written to all the
        time, whose partitions would always wait: then half of what a job writes may be taken over, until the next run.
    :param verify: compare every table after its sync with the files of Hive. Only for tables that nobody else writes
        to; and with ``append`` what Hive has dropped is a difference. One of which partitions wait is not compared.
    """
    if target is not None and not convert_new:
        raise ValueError("target is given without convert_new=True, and only tables that are converted are registered")
    parts = _Parts(
        source=source,
        staging=staging,
        target=target,
        listing=listing,
        engine=engine,
        options=options,
        per_table=per_table,
        choose=choose,
        at_least_one=at_least_one,
        verify=verify,
        aws_conn_id=aws_conn_id,
        region_name=region_name,
        asset_alias=asset_alias,
    )
    mode = {
        "output_mode": output_mode,
        "merge_schema": merge_schema,
        "overwrite_schema": overwrite_schema,
        "accept_conflicts": accept_conflicts,
        "allow_forgotten_entries": allow_forgotten_entries,
        "quiet_period": quiet_period,
    }

    def steps(table: Any) -> list[BaseOperator]:
        files = parts.list_files(table)
        converted = [parts.convert(table, files)] if convert_new else []
        sync = parts.sync(table, files, mode, *converted)
        return [files, *converted, sync, *parts.verify_after(sync, table, files)]

    return parts.group(group_id, "sync", steps, leave_out_delta=True)


class _Parts:
    """What the groups are made of, by arguments that all their tasks share."""

    def __init__(
        self,
        *,
        source: GlueSource | CatalogSource,
        staging: Staging | str,
        target: Target | None,
        listing: FileListing | None,
        engine: Engine | None,
        options: Options,
        per_table: PerTable | None,
        choose: Choose | None,
        at_least_one: bool,
        verify: VerifyLevel | None,
        aws_conn_id: str | None,
        region_name: str | None,
        asset_alias: str | None,
    ) -> None:
        self.source = source
        self.staging = Staging(staging) if isinstance(staging, str) else staging
        self.target = target or Target()
        self.per_table = per_table or PerTable()
        _check("source", source, GlueSource, CatalogSource)
        _check("staging", self.staging, Staging)
        _check("target", self.target, Target)
        _check("per_table", self.per_table, PerTable)
        self.listing = listing or FileListing("s3" if isinstance(source, GlueSource) else "spark")
        _check("listing", self.listing, FileListing)
        if verify not in (None, *get_args(VerifyLevel)):
            raise ValueError(f"verify is {verify!r}, expected counts, full or None")
        self.verify = verify
        self.choose = choose
        self.at_least_one = at_least_one
        if self.target.create_schema is not None:
            options = {**options_dict(options), "create_schema": self.target.create_schema}
        self.options = options
        self.asset_alias = asset_alias
        self.identity: dict[str, Any] = {"aws_conn_id": aws_conn_id, "region_name": region_name}
        self.job: dict[str, Any] = {
            **self.identity,
            "engine": engine,
            "staging": self.staging.root,
            "staging_conn_id": self.staging.conn_id,
        }
        self.tries: dict[str, Any] = {
            "retries": self.per_table.retries,
            "retry_delay": self.per_table.retry_delay,
        }
        self.each: dict[str, Any] = {
            **self.job,
            **self.tries,
            "options": options,
            # Depth first: else every table would be listed before the first one is converted, by a list of hours ago.
            "weight_rule": "upstream",
            "max_active_tis_per_dagrun": self.per_table.max_active,
            "execution_timeout": self.per_table.execution_timeout,
            **({"pool": self.per_table.pool} if self.per_table.pool else {}),
        }

    def group(
        self,
        group_id: str,
        action: ReportedAction,
        steps: Callable[[Any], list[BaseOperator]],
        *,
        leave_out_delta: bool = False,
    ) -> TaskGroup:
        """Discover, the steps mapped over the tables, and the report."""
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
                staging=self.staging.root,
                staging_conn_id=self.staging.conn_id,
                aws_conn_id=self.identity["aws_conn_id"],
                **self.tries,
            )
            mapped >> report
        return group

    def discover(self, *, leave_out_delta: bool) -> GlueDiscoverOperator | CatalogDiscoverOperator:
        choice: dict[str, Any] = {
            "task_id": "discover",
            "target_catalog": self.target.catalog,
            "target_schema": self.target.schema,
            "choose": self.choose,
            "batch_size": self.per_table.batch_size,
            "options": self.options,
            "leave_out_delta": leave_out_delta,
            "at_least_one": "found" if self.at_least_one else False,
            **self.tries,
        }
        source = self.source
        if isinstance(source, CatalogSource):
            return CatalogDiscoverOperator(allow=source.allow, deny=source.deny, **self.job, **choice)
        return GlueDiscoverOperator(
            databases=source.databases,
            include=source.include,
            exclude=source.exclude,
            catalog_id=source.catalog_id,
            **self.identity,
            staging=self.staging.root,
            staging_conn_id=self.staging.conn_id,
            **choice,
        )

    def list_files(self, table: Any) -> ListFilesOperator:
        return ListFilesOperator(
            task_id="list_files",
            table=table,
            listing=self.listing.strategy,
            inventory_manifests=self.listing.inventory_manifests,
            glue_database=self.listing.glue_database,
            inline_limit=self.listing.inline_limit,
            **self.each,
        )

    def convert(self, table: Any, files: ListFilesOperator) -> ConvertTableOperator:
        return ConvertTableOperator(
            task_id="convert",
            target_catalog=self.target.catalog,
            target_schema=self.target.schema,
            asset_alias=self.asset_alias,
            **self._of_files(table, files),
        )

    def sync(
        self, table: Any, files: ListFilesOperator, mode: dict[str, Any], converted: BaseOperator | None = None
    ) -> SyncTableOperator:
        """The sync, after the conversion of what is new if there is one."""
        after = {} if converted is None else self._after(converted)
        return SyncTableOperator(
            task_id="sync", asset_alias=self.asset_alias, **mode, **after, **self._of_files(table, files)
        )

    def verify_after(self, written: BaseOperator, table: Any, files: ListFilesOperator) -> list[BaseOperator]:
        """The step that compares what an earlier one has written; none when nobody asked for it."""
        if self.verify is None:
            return []
        return [
            VerifyTableOperator(
                task_id="verify", level=self.verify, **self._after(written), **self._of_files(table, files)
            )
        ]

    def _after(self, step: BaseOperator) -> dict[str, Any]:
        """What a task takes to come after another one, for the tables that this did not fail for."""
        # A table by itself that failed stops its steps. Of a batch the others go on: the task sees who they are.
        rule = TriggerRule.ALL_DONE if self.per_table.batch_size else TriggerRule.ALL_SUCCESS
        return {"results": XComArg(step, key=OUTCOMES), "trigger_rule": rule}

    def _of_files(self, table: Any, files: ListFilesOperator) -> dict[str, Any]:
        return {"table": table, "files": files.output, "max_workers": self.per_table.max_workers, **self.each}


def _check(argument: str, given: Any, *expected: type) -> None:
    if not isinstance(given, expected):
        names = " or ".join(kind.__name__ for kind in expected)
        raise TypeError(f"{argument} is {given!r}, expected {names}")
