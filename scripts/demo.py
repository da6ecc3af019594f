"""A real Airflow migrates two small Hive databases on a simulated AWS, and the Delta tables are read back.

    make demo                   plans, migrates and verifies, syncs what Hive writes after, rolls a table back, and ends
    make demo-ui                the migration in Airflow's own pages, and the page of a campaign, until Ctrl-C
    make demo ENGINE=cluster    with a standalone Spark cluster of two workers, which it starts and ends; demo-ui too

The DAGs are those of dags_examples. No cloud account is needed: moto's server plays AWS on loopback, an embedded Spark
does the work, and both end with the demo. Everything that it keeps is in ``.airflow``, which is Airflow's home here.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import boto3
from demo_lake import NEW_ROWS, fill, hive_tables, hive_writes, simulated_aws

from airflow_hive_to_delta import local_session

PROJECT = Path(__file__).parent.parent.resolve()
sys.path.insert(0, str(PROJECT))

from tests.support.campaign_documents import SimulatedCampaign  # noqa: E402
from tests.support.standalone_cluster import StandaloneCluster, standalone_cluster  # noqa: E402

HOME = PROJECT / ".airflow"
LOG = HOME / "demo.log"
DAG = "several_databases"
CAMPAIGN = "campaign"
POOL = "hive_to_delta"
#: Seconds for one command of Airflow. A task that fails waits before its next try, so a broken demo takes long.
PATIENCE = 600
#: Of the campaign that demo-ui shows: more than a demo could convert.
SIMULATED_TABLES = 10_000
#: One table is text and one is scratch: a demo in which nothing is refused or left out would not be honest.
EXPECTED = {"converted": 4, "refused": 1, "skipped": 1}

#: The engine of the DAGs on a cluster, whose drivers run there, too, with the identity that it has.
CLUSTER_ENGINE = """SparkSubmit(
    "spark_demo",
    deploy_mode="cluster",
    conf={"spark.driver.memory": "768m", "spark.executor.memory": "768m", "spark.cores.max": "1"},
    poll_seconds=1.0,
)"""

AWS = {"aws_access_key_id": "demo", "aws_secret_access_key": "demo", "region_name": "us-east-1"}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ui", action="store_true", help="show Airflow's own pages, until Ctrl-C")
    parser.add_argument("--engine", choices=("local", "cluster"), default="local", help="where the jobs run")
    chosen = parser.parse_args(arguments)
    HOME.mkdir(exist_ok=True)
    # However it is ended, it takes down what it started.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with only_demo(), simulated_aws() as endpoint:
        os.environ.update(environment(endpoint))
        LOG.write_text("")
        s3, glue = (boto3.client(service, endpoint_url=endpoint, **AWS) for service in ("s3", "glue"))
        fill(s3, glue)
        try:
            with spark_cluster(endpoint) if chosen.engine == "cluster" else nullcontext():
                # The campaign's DAG runs its jobs on this machine.
                shown = CAMPAIGN if chosen.engine == "local" else DAG
                return show_pages(shown) if chosen.ui else run_once(endpoint, s3, glue)
        except DemoError as error:
            print(f"\n{error}\nThe log is {LOG}. Its last lines:\n", file=sys.stderr)
            print("\n".join(LOG.read_text(errors="replace").splitlines()[-25:]), file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130


class DemoError(Exception):
    """Something that the demo started did not do what it should."""


def run_once(endpoint: str, s3: Any, glue: Any) -> int:
    (HOME / "airflow.db").unlink(missing_ok=True)
    prepare_airflow()
    plan(s3)
    report = migrate(s3)
    new = sync(s3, glue)
    say("\nReading the Delta tables back")
    rows = count_rows(endpoint, glue, report["tables"])
    in_hive = {f"{table.database}.{table.name}": table.rows for table in hive_tables()}
    in_hive["sales.orders"] += new
    show(report["tables"], rows)
    if lost := {table: (found, in_hive[table]) for table, found in rows.items() if found != in_hive[table]}:
        raise DemoError(f"Delta reads other rows than Hive has, as (Delta, Hive): {lost}")
    roll_back(s3, glue)
    print(f"\nThe pages of plan, migration and sync are in {HOME}\nTo look around in Airflow itself: make demo-ui")
    return 0


def plan(s3: Any) -> None:
    planned = statuses_of(run_dag(s3, "plan_migration", "plan"))
    say(f"  {format_counts(planned)}")
    if planned != {"convertible": 5, "refused": 1}:
        raise DemoError(f"The plan is {planned}, expected 5 convertible and 1 refused")


def migrate(s3: Any) -> dict[str, Any]:
    report = run_dag(s3, DAG, "report")
    say(f"  {format_counts(statuses_of(report))}")
    if statuses_of(report) != EXPECTED:
        raise DemoError(f"The tables ended as {statuses_of(report)}, expected {EXPECTED}")
    for table in report["tables"]:
        if table["status"] == "converted":
            verified = [note for note in table["notes"] if note.startswith("Verified")]
            say(f"  {table['table']}: {verified[0] if verified else 'not verified'}")
            if not verified:
                raise DemoError(f"{table['table']} was not verified")
    return report


def sync(s3: Any, glue: Any) -> int:
    """Sync the rows that Hive has got since."""
    say("\nA Hive job writes a new day of sales.orders")
    hive_writes(s3, glue)
    report = run_dag(s3, "sync_until_cut_over", "report", page="sync", conf={"quiet_minutes": 0})
    synced = {table["table"]: table for table in report["tables"]}
    orders = synced["sales.orders"]
    say(f"  sales.orders: {orders['status']}, version {orders['version']}: {orders['notes'][0]}")
    say(f"  sales.items: {synced['sales.items']['status']}")
    if (orders["status"], synced["sales.items"]["status"]) != ("synced", "unchanged"):
        raise DemoError(f"The sync ended as {statuses_of(report)}, expected sales.orders synced and sales.items not")
    return NEW_ROWS


def roll_back(s3: Any, glue: Any) -> None:
    say("")
    result = run_dag(s3, "roll_back", "sales.orders")
    say(f"  sales.orders: {result['status']}; its log lies at {result['log_moved_to']} now")
    say(f"  dropped from Glue: {', '.join(result['dropped'])}")
    left = [table["Name"] for table in glue.get_tables(DatabaseName="sales_delta")["TableList"]]
    files = s3.list_objects_v2(Bucket="lake", Prefix="sales/orders/_delta_log/").get("Contents", [])
    if left != ["items"] or any(file["Key"].endswith(".json") for file in files):
        raise DemoError(f"sales_delta has {left} after the rollback, and the log of sales.orders {len(files)} files")


def run_dag(
    s3: Any, dag: str, document: str, *, page: str | None = None, conf: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Run a DAG to its end: the JSON document that it left under this name. Its page is copied to Airflow's home."""
    say(f"Running the DAG {dag}")
    # Its exit code says whether the DAG run failed; what the document says is more, and is checked.
    ended = airflow("dags", "test", dag, *(["--conf", json.dumps(conf)] if conf else []), check=False)
    found = s3.list_objects_v2(Bucket="lake", Prefix=f"staging/{dag}/").get("Contents", [])
    kept = {file["Key"].rpartition("/")[2]: file["Key"] for file in found}
    if ended or f"{document}.json" not in kept:
        raise DemoError(f"The DAG run of {dag} failed, and left {', '.join(kept) or 'nothing'}")

    def read(name: str) -> bytes:
        body: bytes = s3.get_object(Bucket="lake", Key=kept[name])["Body"].read()
        return body

    if f"{document}.html" in kept:
        (HOME / f"{page or document}.html").write_bytes(read(f"{document}.html"))
    read_back: dict[str, Any] = json.loads(read(f"{document}.json"))
    return read_back


def statuses_of(report: dict[str, Any]) -> dict[str, int]:
    return dict(Counter(table["status"] for table in report["tables"]))


def format_counts(statuses: dict[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))


def show_pages(dag: str) -> int:
    prepare_airflow()
    campaigns = campaign_roots(dag)
    airflow("dags", "reserialize")
    say("Starting Airflow")
    port = free_port()
    password = secrets.token_urlsafe(9)
    passwords = HOME / "passwords.json"
    passwords.touch(0o600)
    passwords.write_text(json.dumps({"admin": password}))
    address = f"http://127.0.0.1:{port}"
    os.environ.update(
        AIRFLOW__API__HOST="127.0.0.1",
        AIRFLOW__API__PORT=str(port),
        AIRFLOW__API__BASE_URL=address,
        AIRFLOW__CORE__EXECUTION_API_SERVER_URL=f"{address}/execution/",
        AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE=str(passwords),
        AIRFLOW__HIVE_TO_DELTA__CAMPAIGNS=",".join(campaigns),
        AIRFLOW__HIVE_TO_DELTA__CAMPAIGNS_CONN_ID="aws_default",
    )
    with standalone() as process:
        wait_for(f"{address}/api/v2/monitor/health", process)
        # Not before: the tasks need the server.
        airflow("dags", "trigger", dag)
        print(f"\n{address}/plugin/hive-to-delta  campaigns; one of {SIMULATED_TABLES:,} tables is simulated")
        waits = ", which waits for you to approve its plan" if dag == CAMPAIGN else ""
        print(f"{address}/dags/{dag}  the DAG that runs{waits}")
        print(f"user admin, password {password}\n\nCtrl-C ends all of it.")
        sys.stdout.flush()
        process.wait()
        raise DemoError(f"Airflow ended by itself, with {process.returncode}")
    return 0


def campaign_roots(dag: str) -> list[str]:
    """The staging roots whose campaigns the page shows: that of the DAGs, and one with a large simulated campaign."""
    shutil.rmtree(folder := HOME / "simulated", ignore_errors=True)
    SimulatedCampaign(folder, name="simulated", dag_id=dag, tables=SIMULATED_TABLES).write()
    return ["s3://lake/staging", folder.as_uri()]


def environment(endpoint: str) -> dict[str, str]:
    """What Airflow, its tasks and their Spark find; nothing of the user's own AWS or Airflow."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AIRFLOW_"))]:
        del os.environ[name]
    spark = HOME / "spark"
    spark.mkdir(exist_ok=True)
    # Sessions of a minute: what is compiled quickly runs sooner.
    (spark / "spark-defaults.conf").write_text(
        "spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"
    )
    connection = {
        "conn_type": "aws",
        "login": AWS["aws_access_key_id"],
        "password": AWS["aws_secret_access_key"],
        "extra": {"endpoint_url": endpoint, "region_name": AWS["region_name"]},
    }
    return {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(connection),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags_examples"),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "false",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        # A process each, even when idle.
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "false",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        # `airflow standalone` starts its parts by this name.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_CONF_DIR": str(spark),
    }


@contextmanager
def spark_cluster(endpoint: str) -> Iterator[StandaloneCluster]:
    """A standalone Spark cluster, on which the DAGs of the demo run their jobs until the end of the block."""
    say("Starting a Spark cluster: a master and two workers")
    shutil.rmtree(folder := HOME / "cluster", ignore_errors=True)
    s3a = {"endpoint": endpoint, "endpoint.region": AWS["region_name"], "path.style.access": "true"}
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
        **{
            f"spark.{part}.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
            for part in ("driver", "executor")
        },
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.enabled": "false",
    }
    # Its own identity, and Delta Lake and S3A after its own jars.
    machine = {
        "AWS_ACCESS_KEY_ID": AWS["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": AWS["aws_secret_access_key"],
        "AWS_DEFAULT_REGION": AWS["region_name"],
        "AWS_ENDPOINT_URL": endpoint,
        "SPARK_DIST_CLASSPATH": f"{os.environ['HIVE_TO_DELTA_JARS']}/*",
    }
    with standalone_cluster(folder, environment=machine, settings=settings) as cluster:
        os.environ["AIRFLOW_CONN_SPARK_DEMO"] = json.dumps(cluster.connection())
        os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(dags_with(CLUSTER_ENGINE))
        say(f"  {cluster.master}, its page is http://127.0.0.1:{cluster.ui_port}")
        yield cluster


def dags_with(engine: str) -> Path:
    """The folder of copies of the example DAGs that run their jobs on another engine."""
    shutil.rmtree(folder := HOME / "dags", ignore_errors=True)
    folder.mkdir()
    for dag in ("plan_migration", DAG, "sync_until_cut_over", "roll_back"):
        source = (PROJECT / "dags_examples" / f"{dag}.py").read_text()
        if "LocalSpark(" in source:
            source = source.replace('LocalSpark(memory="2g", cores=2)', engine).replace(
                "    LocalSpark,\n", "    SparkSubmit,\n"
            )
        else:
            source = source.replace("staging=STAGING,", "staging=STAGING, engine=ENGINE,")
            source = source.replace("staging=STAGING)", "staging=STAGING, engine=ENGINE)")
            source = source.replace(
                "\nwith DAG(", f"\nfrom airflow_hive_to_delta import SparkSubmit\nENGINE = {engine}\n\nwith DAG("
            )
        (folder / f"{dag}.py").write_text(source)
    return folder


def prepare_airflow() -> None:
    say(f"Preparing Airflow in {HOME}")
    airflow("db", "migrate")
    airflow("pools", "set", POOL, "2", "Spark sessions at a time")


def airflow(*arguments: str, check: bool = True) -> int:
    with LOG.open("ab") as log:
        try:
            code = subprocess.run(["airflow", *arguments], stdout=log, stderr=log, timeout=PATIENCE).returncode
        except subprocess.TimeoutExpired as error:
            raise DemoError(f"airflow {' '.join(arguments)} did not end within {PATIENCE} s") from error
    if code and check:
        raise DemoError(f"airflow {' '.join(arguments)} exited with {code}")
    return code


@contextmanager
def standalone() -> Iterator[subprocess.Popen[bytes]]:
    """Airflow with all its parts, which end with the block."""
    with LOG.open("ab") as log:
        # In a session of its own, so that Ctrl-C reaches this process alone and the parts end in order.
        process = subprocess.Popen(["airflow", "standalone"], stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    except KeyboardInterrupt:
        say("\nStopping")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                os.killpg(process.pid, signal.SIGKILL)


def wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(240):
        try:
            with urlopen(address, timeout=5):
                return
        except (URLError, TimeoutError, ConnectionError):
            if process.poll() is not None:
                break
            time.sleep(0.5)
    raise DemoError(f"Airflow did not answer at {address}")


def count_rows(endpoint: str, glue: Any, tables: list[dict[str, Any]]) -> dict[str, int]:
    """The rows that Delta reads where Glue says that each registered table is."""
    with quiet():
        spark = local_session(
            "demo",
            conf={
                "spark.hadoop.fs.s3a.endpoint": endpoint,
                "spark.hadoop.fs.s3a.endpoint.region": AWS["region_name"],
                "spark.hadoop.fs.s3a.path.style.access": "true",
                "spark.hadoop.fs.s3a.access.key": AWS["aws_access_key_id"],
                "spark.hadoop.fs.s3a.secret.key": AWS["aws_secret_access_key"],
            },
        )
        rows = {}
        for table in tables:
            if table["target_table"]:
                schema, name = table["target_table"].split(".")
                registered = glue.get_table(DatabaseName=schema, Name=name)["Table"]
                location = registered["StorageDescriptor"]["Location"]
                rows[table["table"]] = spark.read.format("delta").load(location).count()
        spark.stop()
    return rows


def show(tables: list[dict[str, Any]], rows: dict[str, int]) -> None:
    """What became of each table, with the rows that Delta now reads."""
    lines = [("Hive table", "status", "Delta table", "files", "rows read", "why")]
    for table in tables:
        read = str(rows.get(table["table"], ""))
        files = str(table["file_count"] or "")
        lines.append((table["table"], table["status"], table["target_table"], files, read, table["error"] or ""))
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    print()
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[5])


@contextmanager
def quiet() -> Iterator[None]:
    """What this process, and the JVM it starts, say goes to the log."""
    sys.stdout.flush()
    kept = [os.dup(1), os.dup(2)]
    with LOG.open("ab") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
    try:
        yield
    finally:
        for descriptor, before in zip((1, 2), kept, strict=True):
            os.dup2(before, descriptor)
            os.close(before)


@contextmanager
def only_demo() -> Iterator[None]:
    with (HOME / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"Another demo is running in {HOME}. Stop it first.")
        yield


def free_port() -> int:
    """A free port: 8080, which people know, or another one."""
    for port in (8080, 0):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = tried.getsockname()[1]
            return found
    raise DemoError("No port is free on 127.0.0.1")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
