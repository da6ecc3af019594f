"""Every lake on premises: tables on a real HDFS, registered in a real Hive metastore service.

The account that converts them is not HDFS's superuser. Nothing is installed for its Python workers.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier, Event
from typing import Any, BinaryIO

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta import (
    ConversionOptions,
    ConversionResult,
    DatabricksListing,
    TableInfo,
    UCDiscovery,
    convert,
    convert_table,
)
from airflow_hive_to_delta.core.errors import AccessDeniedError, HiveToDeltaError, StaleFileListError
from airflow_hive_to_delta.core.lifecycle.plan import plan_migration
from airflow_hive_to_delta.core.lifecycle.rollback.rollback import rollback_table
from airflow_hive_to_delta.core.lifecycle.sync.sync import sync_table
from airflow_hive_to_delta.core.lifecycle.verify import verify_table
from airflow_hive_to_delta.core.models import ParquetFileInfo
from airflow_hive_to_delta.core.storage.hadoop import HadoopStorage
from airflow_hive_to_delta.core.storage.uri import Location, parse_location
from airflow_hive_to_delta.engines import JobSpec, SparkSubmit
from airflow_hive_to_delta.job.request import JobRequest
from airflow_hive_to_delta.job.run import run
from tests.support.airflow_runs import Run, SharedSession
from tests.support.discoveries import discover_tables
from tests.support.hadoop_cluster import HadoopCluster, hadoop_cluster, processes_of
from tests.support.hadoop_session import USER, hadoop_session
from tests.support.jvm_options import FAST_START
from tests.support.oracle import assert_same, delta_at
from tests.support.project import PROJECT
from tests.support.session_settings import session_conf
from tests.support.spark_versions import JARS
from tests.support.tables import write_parquet

pytestmark = pytest.mark.slow

OVER_HTTP = "were read over WebHDFS"
#: More of them, and more often, meet in the long form of ``make soak``; each costs a whole conversion.
RACERS, TURNS = (6, 10) if "SOAK" in os.environ else (3, 4)
PAGE = PROJECT / "docs" / "engines" / "on-premises.md"
SPARK_HOME = Path(pyspark.__file__).parent
#: Calls a function with the session on the cluster.
OnCluster = Callable[..., Any]
#: For :class:`OnHadoop`, which Airflow makes: how it reaches the cluster of the tests.
_call: list[OnCluster] = []


@dataclass
class OnHadoop(SharedSession):
    """Takes the place of ``LocalSpark``: its jobs run where the session on the cluster is."""

    memory: str = ""
    conf: dict[str, str] = field(default_factory=dict)

    def do(self, request: JobRequest, results: Location) -> None:
        _call[0](run_job, request.to_dict(), str(results))


def run_job(spark: SparkSession, request: dict[str, Any], results: str) -> None:
    run(JobRequest.from_dict(request), spark, results=parse_location(results))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HadoopCluster]:
    with hadoop_cluster(tmp_path_factory.mktemp("hadoop") / "cluster") as found:
        for folder in ("/warehouse", "/lake", f"/user/{USER}", "/tmp/hive"):
            found.files.mkdirs(found.path(folder))
            found.files.setOwner(found.path(folder), USER, USER)
        assert processes_of(found.folder)
        yield found
    assert processes_of(found.folder) == []


@pytest.fixture(scope="module")
def on_cluster(cluster: HadoopCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnCluster]:
    with hadoop_session(cluster.metastore, cluster.conf_dir, tmp_path_factory.mktemp("session")) as call:
        _call[:] = [call]
        yield call


def convert_database(spark: SparkSession, database: str, schema: str | None, **options: Any) -> list[ConversionResult]:
    return convert(
        spark,
        UCDiscovery([f"spark_catalog.{database}.*"]),
        DatabricksListing(),
        "spark_catalog" if schema else None,
        schema,
        options=ConversionOptions(**options),
        progress=False,
    )


def make_orders(spark: SparkSession, database: str) -> None:
    """A table as Hive keeps it: partitions under its folder, and one elsewhere on HDFS."""
    spark.sql(f"CREATE DATABASE {database} LOCATION '/lake/{database}'")
    spark.sql(
        f"CREATE EXTERNAL TABLE {database}.orders (id BIGINT, amount DECIMAL(9,2), at TIMESTAMP, name STRING) "
        f"PARTITIONED BY (day DATE, kind STRING) STORED AS PARQUET LOCATION '/lake/{database}/orders'"
    )
    elsewhere = f"/lake/{database}_old/01"
    spark.sql(f"ALTER TABLE {database}.orders ADD PARTITION (day='2024-01-01', kind='old') LOCATION '{elsewhere}'")
    spark.sql(f"""
        INSERT INTO {database}.orders PARTITION (day, kind)
        SELECT id, CAST(id / 3 AS DECIMAL(9,2)), TIMESTAMP'2024-02-29 12:00:00' + MAKE_INTERVAL(0, 0, 0, id),
               IF(id % 5 = 0, NULL, CONCAT('Ä ', id)),
               DATE'2024-01-01' + CAST(id % 2 AS INT),
               CASE id % 3 WHEN 0 THEN 'a b/c:%' WHEN 1 THEN NULL ELSE 'old' END
        FROM RANGE(8)
    """)


def migrate_and_roll_back(spark: SparkSession) -> None:
    make_orders(spark, "lake")
    (table,) = discover_tables(spark, "lake")
    original = spark.table("lake.orders")
    rows = original.count()
    (plan,) = plan_migration(spark, UCDiscovery(["spark_catalog.lake.*"]), DatabricksListing(), progress=False)
    assert (plan.status, plan.external_partition_count) == ("convertible", 1)
    (converted,) = convert_database(spark, "lake", "delta_lake")
    assert (converted.status, converted.error, converted.row_count) == ("converted", None, rows)
    assert [note for note in converted.notes if OVER_HTTP in note]
    assert_same(spark, original, spark.table("delta_lake.orders"))
    (again,) = convert_database(spark, "lake", "delta_lake")
    assert again.status == "already_delta"
    verified = verify_table(spark, table, DatabricksListing(), level="full")
    assert (verified.row_count, verified.level) == (rows, "full")
    spark.sql("INSERT INTO lake.orders VALUES (99, 1.5, NULL, 'new', DATE'2024-03-01', 'new')")
    synced = sync_table(spark, table, DatabricksListing())
    assert (synced.status, synced.num_added_files) == ("synced", 1)
    assert [note for note in synced.notes if OVER_HTTP in note]
    verified = verify_table(spark, table, DatabricksListing(), level="full")
    assert (verified.row_count, verified.version) == (rows + 1, 1)
    rolled_back = rollback_table(spark, table)
    assert rolled_back.success
    assert not spark.catalog.tableExists("delta_lake.orders")
    assert spark.table("lake.orders").count() == rows + 1


def test_a_table_is_discovered_converted_verified_synced_and_rolled_back(
    on_cluster: OnCluster, cluster: HadoopCluster
) -> None:
    on_cluster(migrate_and_roll_back)
    assert "_delta_log" not in cluster.names("/lake/lake/orders")


def test_the_dag_of_the_documentation(on_cluster: OnCluster, run_dag: Callable[..., Run], tmp_path: Path) -> None:
    on_cluster(make_orders, "sales")
    (dag,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    dag = dag.replace("file:///srv/airflow/hive-to-delta", tmp_path.as_uri())
    ended = run_dag(dag.replace("SPARK = LocalSpark(", f"from {__name__} import OnHadoop\n\nSPARK = OnHadoop("))
    assert ended.states == {
        "discover": "success",
        **{f"tables.{step}[spark_catalog.sales.orders]": "success" for step in ("list_files", "convert", "verify")},
        "report": "success",
    }
    assert OVER_HTTP in notes_of(ended)
    on_cluster(compare_tables, "sales.orders", "sales_delta.orders")


def notes_of(ended: Run) -> str:
    """What the report of a run says of its only table."""
    (table,) = ended.xcom("report", "report")["tables"]
    return str(table["notes"])


def compare_tables(spark: SparkSession, original: str, delta: str) -> None:
    assert_same(spark, spark.table(original), spark.table(delta))


def convert_with_every_reader(spark: SparkSession) -> dict[str, tuple[list[str], list[Any]]]:
    """The notes and the statistics of a conversion over WebHDFS, by a scan, and where WebHDFS is closed."""
    spark.sql("CREATE DATABASE readers LOCATION '/lake/readers'")
    columns = (
        "id",
        "id * 0.25 AS d",
        "CONCAT('name ', id) AS name",
        "id % 7 = 0 AS b",
        "DATE'2024-01-01' + int(id) AS day",
    )
    spark.range(200).selectExpr(*columns).repartition(8).write.parquet("/lake/readers/t")
    spark.sql("CREATE TABLE readers.t USING parquet LOCATION '/lake/readers/t'")
    (table,) = discover_tables(spark, "readers")
    found = {}
    closed = {"dfs__namenode__http-address": "127.0.0.1:9"}
    for reader, stats, settings in (("webhdfs", "footer", {}), ("scan", "scan", {}), ("closed", "footer", closed)):
        with session_conf(spark, **settings):
            (result,) = convert_database(spark, "readers", None, stats=stats)
        assert (result.error, result.row_count, result.file_count) == (None, 200, 8)
        entry = spark.read.json("/lake/readers/t/_delta_log/*.json")
        adds = entry.where("add IS NOT NULL").select("add.path", "add.stats").collect()
        found[reader] = result.notes, sorted((row.path, json.loads(row.stats)) for row in adds)
        assert rollback_table(spark, table).success
    return found


def test_footers_over_http_give_what_a_scan_gives_and_a_scan_takes_over_where_http_is_closed(
    on_cluster: OnCluster,
) -> None:
    found = on_cluster(convert_with_every_reader)
    notes = {reader: notes for reader, (notes, _) in found.items()}
    statistics = {reader: statistics for reader, (_, statistics) in found.items()}
    assert statistics["webhdfs"] == statistics["scan"] == statistics["closed"]
    assert OVER_HTTP in notes["webhdfs"][0]
    assert notes["scan"] == []
    assert "Spark itself has read all data, for schemas and statistics of the files" in notes["closed"][0]
    assert "Nothing answers at 127.0.0.1:9" in notes["closed"][0]


def race(spark: SparkSession) -> list[ConversionResult]:
    """Converters that all stand before the commit, and then write it."""
    make_orders(spark, "race")
    (table,) = discover_tables(spark, "race")
    about_to_commit = Barrier(RACERS)
    put = HadoopStorage.put_if_absent

    def put_together(self: HadoopStorage, path: Location, source: BinaryIO) -> bool:
        if path.path.endswith(f"/_delta_log/{0:020d}.json"):
            about_to_commit.wait(300)
        return put(self, path, source)

    HadoopStorage.put_if_absent = put_together  # type: ignore[method-assign]  # this is another process than pytest's
    try:
        with ThreadPoolExecutor(RACERS) as pool:
            racing = [
                pool.submit(convert_database, spark, "race", None, user_metadata=f"racer {n}") for n in range(RACERS)
            ]
            results = [each.result()[0] for each in racing]
    finally:
        HadoopStorage.put_if_absent = put  # type: ignore[method-assign]
    assert_same(spark, spark.table("race.orders"), delta_at(spark, table.location))
    assert verify_table(spark, table, DatabricksListing(), level="full").success
    return results


def test_of_racing_converters_one_wins_and_nobody_overwrites_its_entry(
    on_cluster: OnCluster, cluster: HadoopCluster
) -> None:
    results = on_cluster(race)
    assert sorted(result.status for result in results) == ["already_delta"] * (RACERS - 1) + ["converted"]
    (winner,) = [result for result in results if result.status == "converted"]
    log = "/lake/race/orders/_delta_log"
    assert [name for name in cluster.names(log) if name.endswith((".json", ".tmp"))] == [f"{0:020d}.json"]
    info = json.loads(cluster.read(f"{log}/{0:020d}.json").splitlines()[0])["commitInfo"]
    assert info["userMetadata"] == winner.user_metadata


def put_in_turns(spark: SparkSession, rounds: int) -> list[tuple[list[bool], bytes]]:
    """Who has written each entry by its own account, and what is in it."""
    together = Barrier(8)
    storage = HadoopStorage(spark)

    def write(path: Any, number: int) -> bool:
        together.wait(60)
        return storage.put_if_absent(path, io.BytesIO(f"{number}".encode() * 100_000))

    found = []
    with ThreadPoolExecutor(8) as pool:
        for turn in range(rounds):
            path = parse_location(f"{FILES}/entries/_delta_log/{turn:020d}.json")
            written = list(pool.map(write, [path] * 8, range(8)))
            with storage.open(path) as stream:
                found.append((written, stream.read()))
    return found


FILES = "hdfs:///lake/files"


def test_rule_2_an_entry_on_hdfs_is_written_once_however_many_write_it(
    on_cluster: OnCluster, cluster: HadoopCluster
) -> None:
    for written, content in on_cluster(put_in_turns, TURNS):
        assert written.count(True) == 1
        assert content == f"{written.index(True)}".encode() * 100_000
    assert len(cluster.names("/lake/files/entries/_delta_log")) == TURNS, "no temporary file is left"


def try_to_convert(spark: SparkSession, root: str, files: list[tuple[str, int]]) -> HiveToDeltaError:
    listed = spark.createDataFrame(files, "file_path string, size long")
    try:
        convert_table(spark, listed, root, None, None, None)
    except HiveToDeltaError as error:
        return error
    raise AssertionError("It was converted")


@pytest.mark.parametrize("what", ["denied", "missing", "damaged", "read-only"])
def test_what_is_wrong_with_one_file_is_an_error_and_no_reason_for_a_scan(
    on_cluster: OnCluster, cluster: HadoopCluster, tmp_path: Path, what: str
) -> None:
    root = f"{cluster.hdfs}/lake/wrong/{what}"
    sizes = {}
    for name in ("f", "g"):
        local = write_parquet(tmp_path / name, {"id": pa.array([1, 2])})
        if what == "damaged":
            local.write_bytes(b"not Parquet")
        cluster.put(local, f"{root}/{name}")
        sizes[f"{root}/{name}"] = local.stat().st_size
    if what == "denied":
        permission = cluster.jvm.org.apache.hadoop.fs.permission.FsPermission("600")
        cluster.files.setPermission(cluster.path(f"{root}/f"), permission)
        cluster.files.setPermission(cluster.path(f"{root}/g"), permission)
    if what == "missing":
        for path in sizes:
            cluster.files.delete(cluster.path(path), False)
    error = on_cluster(try_to_convert, root, list(sizes.items()))
    kind, text = {
        "denied": (AccessDeniedError, f"AccessControlException: Permission denied: user={USER}"),
        "missing": (StaleFileListError, "does not exist"),
        "damaged": (HiveToDeltaError, "is not a Parquet file"),
        "read-only": (AccessDeniedError, f"AccessControlException: Permission denied: user={USER}, access=WRITE"),
    }[what]
    assert isinstance(error, kind)
    assert text in str(error)
    assert "_delta_log" not in cluster.names(root)


@pytest.fixture
def on_yarn(cluster: HadoopCluster, tmp_path: Path, airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> SparkSubmit:
    """The engine for YARN, where Python has pyarrow, and neither this project nor boto3."""
    for library in ("boto3", "botocore", "urllib3"):
        (tmp_path / f"{library}.py").write_text(f"raise ModuleNotFoundError('No module named {library!r}')\n")
    # Without the module site nothing is found but what the path names: not the project, whatever is installed.
    (python := tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    variables = {
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), sysconfig.get_path("purelib")]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    conf = {
        "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
        "spark.jars": ",".join(map(str, JARS.glob("io.delta_*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": FAST_START,
        "spark.executor.memory": "600m",
        "spark.executor.extraJavaOptions": FAST_START,
        "spark.executor.instances": "1",
        "spark.ui.enabled": "false",
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.report.interval": "200ms",
        **{f"spark.yarn.appMasterEnv.{name}": value for name, value in variables.items()},
        **{f"spark.executorEnv.{name}": value for name, value in variables.items()},
    }
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps({"conn_type": "spark", "host": "yarn"}))
    monkeypatch.setenv("PATH", f"{SPARK_HOME / 'bin'}{os.pathsep}{os.environ['PATH']}")
    # Where YARN's ResourceManager is, too, the engine reads there.
    monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.conf_dir))
    monkeypatch.setenv("HADOOP_USER_NAME", USER)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return SparkSubmit("yarn", deploy_mode="cluster", conf=conf)


def test_a_job_on_yarn_converts_a_table_on_hdfs_and_nothing_is_installed_there_but_pyarrow(
    cluster: HadoopCluster, on_cluster: OnCluster, on_yarn: SparkSubmit, tmp_path: Path
) -> None:
    root, job = f"{cluster.hdfs}/lake/on_yarn", f"{cluster.hdfs}/lake/job"
    file = write_parquet(tmp_path / "f", {"n": [1, None, 3]})
    arguments = {
        "tables": [TableInfo("on_yarn", root).to_dict()],
        "lists": [
            {
                "table": "on_yarn",
                "file_count": 1,
                "byte_count": 0,
                "files": [ParquetFileInfo(f"{root}/f", file.stat().st_size).to_dict()],
            }
        ],
        "target_catalog": None,
        "target_schemas": [None],
        "options": ConversionOptions().to_dict(),
    }
    (tmp_path / "_request.json").write_text(json.dumps(JobRequest("convert", arguments).to_dict()))
    cluster.put(file, f"{root}/f")
    cluster.put(tmp_path / "_request.json", f"{job}/_request.json")
    for folder in (root, job):
        cluster.files.setOwner(cluster.path(folder), USER, USER)
    ref = on_yarn.submit(JobSpec("on YARN", f"{job}/_request.json", job, "On-Yarn_1"), {})
    found = on_yarn.find("On-Yarn_1")
    assert found is not None
    assert (found.id, found.page) == (ref.id, ref.page)
    # Another process asks for the status: it has nothing but what a trigger is given.
    path, serialized = on_yarn.serialize()
    assert path.endswith(".SparkSubmit")
    asking = SparkSubmit(**serialized)
    states = [(status := asking.status(ref)).state]
    while states[-1] in ("pending", "running"):
        status = asking.status(ref, status.cursor)
        if status.state != states[-1]:
            states.append(status.state)
        Event().wait(0.5)
    assert states[-1] == "succeeded", status.error
    (result,) = json.loads(cluster.read(f"{job}/_done.json"))["results"]
    assert (result["status"], result["row_count"]) == ("converted", 3), result["error"]
    assert OVER_HTTP in result["notes"][0]
    on_cluster(compare_with_file, root)
    on_yarn.cancel(ref, 5.0)  # which has ended: nothing happens
    assert asking.status(ref).state == "succeeded"


def test_a_job_on_yarn_is_cancelled(cluster: HadoopCluster, on_cluster: OnCluster, on_yarn: SparkSubmit) -> None:
    ref = on_yarn.submit(JobSpec("to be cancelled", f"{cluster.hdfs}/missing", f"{cluster.hdfs}/lake", "cancelled"), {})
    on_yarn.cancel(ref, 5.0)
    while (status := on_yarn.status(ref)).state in ("pending", "running"):
        Event().wait(0.2)
    assert status.state == "cancelled"
    assert f"The application {ref.id} was cancelled on YARN" in str(status.error)


def compare_with_file(spark: SparkSession, root: str) -> None:
    assert_same(spark, spark.read.parquet(f"{root}/f"), delta_at(spark, root))
