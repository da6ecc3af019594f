"""The arguments of operators and task groups: what is refused when a DAG is parsed, and what a template may name."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from typing import Any, cast

import pytest

from airflow_hive_to_delta import (
    CatalogDiscoverOperator,
    CatalogSource,
    CatalogTarget,
    ConversionOptions,
    ConvertTableOperator,
    CutOverTableOperator,
    Engine,
    FileListing,
    GlueDiscoverOperator,
    GlueSource,
    GlueTarget,
    ListFilesOperator,
    LocalSpark,
    MigrationReportOperator,
    PerTable,
    PlanMigrationOperator,
    RollbackTableOperator,
    Staging,
    SyncSettings,
    SyncTableOperator,
    VacuumExternalFilesOperator,
    VerifyTableOperator,
    hive_to_delta_sync_task_group,
    hive_to_delta_task_group,
)
from tests.support.airflow_runs import SharedSession

TABLE = {"name": "t", "location": "s3://b/t"}
FILES = {"table": "t", "file_count": 0, "byte_count": 0, "files": []}


def sync_task(sync_options: Any, **arguments: Any) -> SyncTableOperator:
    return SyncTableOperator(task_id="x", table=TABLE, files=FILES, sync_options=sync_options, **arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GlueDiscoverOperator(task_id="x", databases=[]), "databases is empty"),
        (lambda: GlueDiscoverOperator(task_id="x", databases="d", batch_size=0), "batch_size is 0"),
        (lambda: GlueDiscoverOperator(task_id="x", databases="d", choose="f"), "choose is 'f'"),
        (lambda: GlueDiscoverOperator(task_id="x", databases="d", options={"stat": "x"}), "options: .*no stat"),
        (lambda: CatalogDiscoverOperator(task_id="x", allow=[]), "allow is empty"),
        (lambda: CatalogDiscoverOperator(task_id="x", allow="*", engine="local"), "engine is 'local'"),
        (lambda: ListFilesOperator(task_id="x", table=TABLE, listing="ftp"), "listing is 'ftp'"),
        (lambda: ListFilesOperator(task_id="x", table=TABLE, listing="inventory"), "inventory_manifests is None"),
        (lambda: ListFilesOperator(task_id="x", table=TABLE, inventory_manifests="s3://m"), "inventory_manifests is"),
        (lambda: ListFilesOperator(task_id="x", table=TABLE, inline_limit=-1), "inline_limit is -1"),
        (lambda: ListFilesOperator(task_id="x", table=TABLE, staging="bucket/x"), "staging is 'bucket/x'"),
        (lambda: ConvertTableOperator(task_id="x", table=TABLE, files=FILES, target_catalog="c"), "target_schema is"),
        (lambda: ConvertTableOperator(task_id="x", table=TABLE, files=FILES, max_workers=0), "max_workers is 0"),
        (lambda: ConvertTableOperator(task_id="x", table=TABLE, files=FILES, options=7), "options is 7"),
        (lambda: ConvertTableOperator(task_id="x", table=TABLE, files=FILES, options={"stats": "all"}), "stats is"),
        (
            lambda: MigrationReportOperator(task_id="x", discover_task_id="d", table_task_ids="c", staging="s3://b"),
            "table_task_ids is 'c'",
        ),
        (
            lambda: MigrationReportOperator(task_id="x", discover_task_id="d", table_task_ids=["c"], staging="b"),
            "staging is 'b'",
        ),
        (lambda: GlueDiscoverOperator(task_id="x", databases=7), "databases is 7"),
        (lambda: GlueDiscoverOperator(task_id="x", databases="d", include=None), "include is None"),
        (lambda: GlueDiscoverOperator(task_id="x", databases="d", batch_size="20"), "batch_size is '20'"),
        (lambda: GlueDiscoverOperator(task_id="x", databases="d", target_schema=7), "target_schema is 7"),
        (
            lambda: GlueDiscoverOperator(task_id="x", databases=["a", "b"], target_schema={"a": "x"}),
            "target_schema has no schema for b, only for a",
        ),
        (
            lambda: ListFilesOperator(task_id="x", table=TABLE, options={"partition_timezone": "Mars/Phobos"}),
            "options: .*Mars/Phobos",
        ),
        (
            lambda: ListFilesOperator(task_id="x", table=TABLE, options={"allow_bucketed": "perhaps"}),
            "allow_bucketed is 'perhaps', expected True or False",
        ),
        (lambda: ListFilesOperator(task_id="x", table=TABLE, options={"x": "{{ 1 }}"}), "options: .*no x"),
        (
            lambda: ListFilesOperator(task_id="x", table=TABLE, listing="spark", glue_database="sales"),
            "glue_database is 'sales' with listing='spark'",
        ),
        (lambda: VerifyTableOperator(task_id="x", table=TABLE, files=FILES, level="some"), "level is 'some'"),
        (lambda: VerifyTableOperator(task_id="x", table=TABLE, files=FILES, version=-1), "version is -1"),
        (
            lambda: VerifyTableOperator(task_id="x", table=TABLE, files=FILES, version=1, results=[]),
            "version is 1 beside results",
        ),
        (lambda: sync_task({"output_mode": "update"}), "output_mode is"),
        (lambda: sync_task({"merge_schema": "yes"}), "merge_schema is 'yes'"),
        (lambda: sync_task({"merge": True}), "sync_options has merge, expected some of output_mode, merge_schema"),
        (lambda: sync_task({"quiet_period": -1}), "quiet_period is -1, expected a timedelta, or a number of minutes"),
        (lambda: sync_task("complete"), "sync_options is 'complete', expected SyncOptions or a dict of them"),
        (lambda: sync_task(None, run_version=1.5), "run_version is 1.5"),
        (
            lambda: sync_task({"overwrite_schema": True, "quiet_period": "{{ ds }}"}),
            "overwrite_schema=True goes with output_mode='complete' only",
        ),
        (
            lambda: SyncSettings(quiet_period=cast("Any", "{{ ds }}")),
            "quiet_period is '{{ ds }}', expected a timedelta",
        ),
        (lambda: VacuumExternalFilesOperator(task_id="x", table=TABLE, dry_run=None), "dry_run is None"),
        (lambda: VacuumExternalFilesOperator(task_id="x", table=TABLE, retention_hours=-1), "retention_hours is -1"),
        (lambda: VacuumExternalFilesOperator(task_id="x", table=TABLE, retention_hours="week"), "retention_hours is"),
        (lambda: VacuumExternalFilesOperator(task_id="x", table=TABLE, dropped="d.t"), "dropped is 'd.t'"),
        (lambda: VacuumExternalFilesOperator(task_id="x", table=TABLE, dropped=[1]), r"dropped is \[1\]"),
        (lambda: RollbackTableOperator(task_id="x", table=TABLE, lose_versions="3"), "lose_versions is '3'"),
        (lambda: RollbackTableOperator(task_id="x", table=TABLE, lose_versions=[True]), "lose_versions is True"),
        (lambda: PlanMigrationOperator(task_id="x", tables=[], staging="b"), "staging is 'b'"),
        (lambda: PlanMigrationOperator(task_id="x", tables=[], staging="s3://b", max_workers=0), "max_workers is 0"),
        (
            lambda: MigrationReportOperator(
                task_id="x", discover_task_id="d", table_task_ids=["c"], staging="s3://b", action="see"
            ),
            "action is 'see'",
        ),
        (
            lambda: hive_to_delta_task_group(source=GlueSource("d"), staging="s3://b", verify="all"),
            "verify is 'all', expected counts, full or None",
        ),
        (
            lambda: hive_to_delta_sync_task_group(source=GlueSource("d"), staging="s3://b", target=GlueTarget("x")),
            "target is given without convert_new",
        ),
        (
            lambda: hive_to_delta_sync_task_group(source=GlueSource("d"), staging="s3://b", sync="complete"),
            "sync is 'complete', expected SyncSettings or a dict of them",
        ),
        (
            lambda: hive_to_delta_task_group(
                source=GlueSource("d"),
                staging="s3://b",
                target=CatalogTarget("main", "bronze"),
                options=ConversionOptions(register_in="glue"),
            ),
            "options has register_in='glue' beside target=CatalogTarget.* which registers in 'sql'. Leave",
        ),
        (
            lambda: hive_to_delta_task_group(
                source=GlueSource("d"), staging="s3://b", target=GlueTarget("x"), options={"register_in": "sql"}
            ),
            "options has register_in='sql' beside target=GlueTarget.* which registers in 'glue'",
        ),
        (lambda: GlueTarget(""), "schema is '', expected a name, or a mapping of database to name"),
        (lambda: CatalogTarget(None, "bronze"), "catalog is None, expected the name of a catalog"),
        (lambda: PerTable(max_active=0), "max_active is 0"),
        (lambda: PerTable(retries=-1), "retries is -1"),
        (lambda: LocalSpark(memory="lots"), "memory is 'lots'"),
        (lambda: LocalSpark(cores=0), "cores is 0"),
        (lambda: LocalSpark(memory=2), "memory is 2, expected a size with its unit, such as '4g'"),
        (lambda: LocalSpark(conf="spark.x=1"), "conf is of type str, expected a dict of Spark's settings"),
        (lambda: LocalSpark(conf={"hive.metastore.uris": "x"}), "expected a name that begins with 'spark.'"),
        (lambda: LocalSpark(conf={"spark.x": None}), r"conf\['spark.x'\] is of type NoneType, expected text"),
        (
            lambda: CatalogDiscoverOperator(task_id="x", allow="*", engine=LocalSpark),
            r"engine is the class LocalSpark, expected an engine: call it, LocalSpark\(\)",
        ),
        (lambda: CatalogDiscoverOperator(task_id="x", allow="*", engine=_Nameless()), "a new version of it each time"),
        (
            lambda: RollbackTableOperator.partial(task_id="x", engine=_Nameless()).expand(table=[TABLE]),
            "Give _Nameless a __repr__ that names its settings",
        ),
        (
            lambda: RollbackTableOperator(task_id="x", table=TABLE, engine=_Elsewhere(), staging="file:///staging"),
            "staging is 'file:///staging', but jobs of _Elsewhere cannot read their request from file://. "
            "Pass a staging root that they can read, one of s3://, s3a://",
        ),
        (
            lambda: RollbackTableOperator.partial(task_id="x", engine=_Elsewhere(), staging="gs://b").expand(table=[]),
            "jobs of _Elsewhere cannot read their request from gs://",
        ),
        (
            lambda: hive_to_delta_task_group(source=GlueSource("d"), staging="file:///staging", engine=_Elsewhere()),
            "jobs of _Elsewhere cannot read their request from file://",
        ),
        (
            lambda: RollbackTableOperator(task_id="x", table=TABLE, engine=_Elsewhere()),
            "staging is not given, but jobs of _Elsewhere run elsewhere and read their request there",
        ),
        (
            lambda: RollbackTableOperator(task_id="x", table=TABLE, engine=LocalSpark(), staging="abfss://c@a/staging"),
            r"cannot read their request from abfss://. Pass .*, one of file://, gs://, hdfs://, s3://, s3a://",
        ),
        (
            lambda: RollbackTableOperator(task_id="x", table=TABLE, staging="hdfs://namenode:8020/staging"),
            "but Airflow leaves out the name node. Write hdfs:///path",
        ),
        (lambda: hive_to_delta_task_group(source="sales", staging="s3://b"), "source is 'sales'"),
        (lambda: hive_to_delta_task_group(source=GlueSource("d"), staging=None), "staging is None"),
        (lambda: hive_to_delta_task_group(source=GlueSource("d"), staging="s3://b", target="x"), "target is 'x'"),
        (lambda: hive_to_delta_task_group(source=GlueSource("d"), staging="s3://b", listing="s3"), "listing is 's3'"),
        (lambda: hive_to_delta_task_group(source=GlueSource("d"), staging="s3://b", per_table=3), "per_table is 3"),
    ],
)
def test_bad_arguments_fail_when_the_dag_is_parsed(airflow_home, make, message) -> None:
    from airflow.sdk import DAG

    with DAG(f"d{uuid.uuid4().hex}", schedule=None), pytest.raises((ValueError, TypeError), match=message):
        make()


class _Nameless(SharedSession):
    __repr__ = object.__repr__


class _Elsewhere(SharedSession):
    schemes = Engine.schemes


def test_an_engines_settings_are_not_in_a_serialized_dag_which_is_the_same_at_every_parse(airflow_home) -> None:
    from airflow.sdk import DAG
    from airflow.serialization.serialized_objects import DagSerialization

    def serialized() -> str:
        with DAG("settings", schedule=None, start_date=datetime(2024, 1, 1)) as dag:
            engine = LocalSpark(memory="3g", conf={"spark.hadoop.my.secret": "hunter2", "spark.flag": True})
            RollbackTableOperator(task_id="a", table=TABLE, engine=engine)
            RollbackTableOperator.partial(task_id="b", engine=engine).expand(table=[TABLE])
        return json.dumps(DagSerialization.serialize_dag(dag))

    assert serialized() == serialized()
    assert "LocalSpark(memory='3g', cores=None, conf=<spark.flag, spark.hadoop.my.secret>)" in serialized()
    assert "hunter2" not in serialized()


def test_every_argument_that_may_differ_between_runs_is_templated(airflow_home) -> None:
    from airflow.sdk import DAG

    with DAG("templates", schedule=None, start_date=datetime(2024, 1, 1)):
        tasks = [
            GlueDiscoverOperator(task_id="a", databases="{{ ds }}"),
            CatalogDiscoverOperator(task_id="b", allow="{{ ds }}"),
            ListFilesOperator(task_id="c", table=TABLE, staging="{{ ds }}"),
            ConvertTableOperator(task_id="d", table=TABLE, files=FILES, target_schema="{{ ds }}"),
            MigrationReportOperator(task_id="e", discover_task_id="a", table_task_ids=["d"], staging="{{ ds }}"),
            PlanMigrationOperator(task_id="f", tables=[TABLE], staging="{{ ds }}"),
            VerifyTableOperator(task_id="g", table=TABLE, files=FILES, version="{{ ds }}"),
            SyncTableOperator(task_id="h", table=TABLE, files=FILES, run_version="{{ ds }}"),
            VacuumExternalFilesOperator(task_id="i", table=TABLE, dry_run="{{ ds }}"),
            RollbackTableOperator(task_id="j", table=TABLE, lose_versions="{{ ds }}"),
            CutOverTableOperator(task_id="k", table=TABLE),
        ]
    not_templated = {"engine", "choose", "batch_size", "listing", "inline_limit", "max_workers", "asset_alias"}
    not_templated |= {"leave_out_delta", "at_least_one", "action", "deferrable"}
    for task in tasks:
        own = {name for name in vars(task) if not name.startswith("_")} - set(vars(_plain()))
        assert own - set(task.template_fields) <= not_templated | {"job_page"}, task


def _plain():
    from airflow.sdk import BaseOperator

    return BaseOperator(task_id="plain")


def test_a_label_fits_into_airflows_database(airflow_home) -> None:
    from airflow_hive_to_delta.operators.tables.batches import batch_label

    long = {"name": "n" * 255, "database": "d" * 255, "location": "s3://b/t"}
    assert len(batch_label(long)) == 250
    assert len(batch_label([long] * 20)) == 250
    assert batch_label([long] * 20).endswith("… and 19 more")
    assert batch_label({"name": "t", "database": "d", "location": "s3://b/t"}) == "d.t"


def test_airflow_knows_the_provider(airflow_home) -> None:
    from airflow.providers_manager import ProvidersManager

    provider = ProvidersManager().providers["airflow-hive-to-delta"]
    assert provider.version == __import__("airflow_hive_to_delta").__version__
    assert "airflow_hive_to_delta.links.SparkJobLink" in ProvidersManager().extra_links_class_names


def test_the_config_objects_have_defaults_that_work(airflow_home) -> None:
    assert (PerTable().retries, FileListing().strategy, GlueTarget("d").catalog) == (2, "s3", None)
    assert (GlueTarget("d").create_schema, CatalogTarget("c", "s").create_schema) == (None, None)
    assert SyncSettings().output_mode == "append"
    assert CatalogSource("a.b.*").deny == ("*.information_schema.*",)
    assert Staging("s3://b").conn_id is None
    assert ConversionOptions().stats == "footer"
