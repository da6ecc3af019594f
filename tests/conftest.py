"""One Spark session, with a real Hive metastore in it, and one moto server for every test that can share them."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession
from xdist.remote import Producer

from airflow_hive_to_delta.core.spark.jars import JARS_VARIABLE
from airflow_hive_to_delta.core.spark.session import local_session
from tests.support.aws import REGION, read_service_models_once
from tests.support.databases import new_database
from tests.support.jvm_names import look_names_up_once
from tests.support.jvm_options import FAST_START_OPTIONS
from tests.support.order import ModuleScheduling, sort_longest_first
from tests.support.project import PROJECT
from tests.support.s3_servers import s3proxy
from tests.support.small_tables import ALL_ON_SPARK, leave_nothing_to_the_driver
from tests.support.spark_versions import IS_SPARK_4, JARS, SPARK_35_WARNINGS

pytest_plugins = ["tests.support.lake", "tests.support.connect_server", "tests.support.databricks_runtime"]
if find_spec("airflow"):  # which cannot be installed beside Spark 3.5
    pytest_plugins += ["tests.support.airflow_runs", "tests.support.browser"]


def pytest_configure(config: pytest.Config) -> None:
    """Airflow reads where it lives when it is first imported: it gets a home of its own before any test is."""
    home = Path(tempfile.mkdtemp(prefix="airflow-home-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    os.environ.update(
        AIRFLOW_HOME=str(home),
        AIRFLOW__CORE__LOAD_EXAMPLES="false",
        AIRFLOW__CORE__DAGS_FOLDER=str(home / "dags"),
        AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS="false",
    )
    os.environ.setdefault(JARS_VARIABLE, str(JARS))
    if not IS_SPARK_4:
        for warning in SPARK_35_WARNINGS:
            config.addinivalue_line("filterwarnings", warning)
    read_service_models_once()
    look_names_up_once()
    if os.environ.get(ALL_ON_SPARK):
        leave_nothing_to_the_driver()
    # Airflow shows what py4j says, even when there is nowhere left to show it.
    logging.getLogger("py4j").setLevel(logging.WARNING)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A DAG run takes seconds: those tests are slow, but for a few that are marked as quick."""
    for item in items:
        if "run_dag" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("quick"):
            item.add_marker("slow")
    sort_longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ModuleScheduling | None:
    """``--dist loadfile`` with a worker for the modules that need no Spark session of the tests."""
    return ModuleScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


_ended = itertools.count(1)


@pytest.fixture(autouse=True)
def _collect_garbage() -> Iterator[None]:
    """The JVM keeps what objects of Python refer to; and Python looks for cycles of old objects once in many tests."""
    yield
    if next(_ended) % 20 == 0:
        gc.collect()


@pytest.fixture(scope="session")
def aws_endpoint() -> Iterator[str]:
    """moto's server on loopback; the environment of this process and of Spark's workers points at it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    os.environ.update(
        AWS_ENDPOINT_URL=endpoint,
        AWS_ACCESS_KEY_ID="testing",
        AWS_SECRET_ACCESS_KEY="testing",
        AWS_DEFAULT_REGION=REGION,
        AWS_EC2_METADATA_DISABLED="true",
    )
    yield endpoint
    server.stop()


@pytest.fixture(scope="session")
def spark(aws_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    home = tmp_path_factory.mktemp("spark")
    session = local_session(
        "tests",
        master="local[2]",
        conf={
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:memory:{uuid.uuid4().hex};create=true",
            "spark.hadoop.datanucleus.schema.autoCreateTables": "true",
            "spark.hadoop.hive.metastore.schema.verification": "false",
            "spark.driver.extraJavaOptions": " ".join(
                [
                    # Little runs long enough to be worth a second compilation; but all of it must fit into the cache,
                    # for the JVM interprets the rest.
                    *FAST_START_OPTIONS,
                    "-XX:ReservedCodeCacheSize=256m",
                    # Room for what a test makes: growing to it takes a full collection each time.
                    "-Xms3g",
                    "-Xmn1500m",
                    f"-Dderby.system.home={home}",
                    f"-Dderby.stream.error.file={home}/derby.log",
                ]
            ),
            "spark.hadoop.fs.s3a.endpoint": aws_endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "testing",
            "spark.hadoop.fs.s3a.secret.key": "testing",
            "spark.sql.shuffle.partitions": "1",
            "spark.default.parallelism": "2",
            # Thousands of different queries over a handful of rows: compiling each costs more than running it.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            # What Parquet's own reader skips is the same before and after; what Delta skips is ours to prove.
            "spark.sql.parquet.filterPushdown": "false",
            # The defaults of Spark 4. Spark 3.5 refuses to write the old dates and times of the tests without them.
            "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
            "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
            "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
            "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
            "spark.sql.files.openCostInBytes": "65536",
            "spark.databricks.delta.snapshotPartitions": "1",
            # Each test has tables and buckets of its own: what is kept of those of others fills the memory, and every
            # query is compared with every table state that is cached.
            "spark.databricks.delta.delta.log.cacheSize": "8",
            "spark.driver.memory": "4g",
            "spark.hadoop.fs.s3a.input.stream.type": "classic",
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    gc.freeze()  # what was imported stays, and need not be looked at by each collection
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3(aws_endpoint: str):
    return boto3.client("s3", region_name=REGION)


@pytest.fixture(scope="session")
def s3proxy_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server that is not moto: it checks signatures, and decides between writers in one step."""
    with s3proxy(PROJECT / ".jars" / "s3-server.jar", tmp_path_factory.mktemp("s3proxy")) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def glue(aws_endpoint: str):
    return boto3.client("glue", region_name=REGION)


@pytest.fixture
def bucket(s3) -> str:
    """A bucket of the test's own."""
    name = f"b-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    """A database of the test's own in the Hive metastore."""
    with new_database(spark) as name:
        yield name
