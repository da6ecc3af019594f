"""Small tables through the DAG, by several engines, in one run.

    python -m benchmarks.engines [--tables 50] [--files 10]

Each of them converts and verifies the tables of a Glue database of its own, played by moto, with the task group, in an
Airflow that runs one task after the other: a JVM for each table and step, batches that share one, and clients of a
Spark Connect server, whose start is not counted. Prints times and ratios; the last line is one JSON object. Absolute
times say little about another machine, ratios within one run do.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from moto.server import ThreadedMotoServer

from tests.support.connect_server import serve_connect

REGION = "us-east-1"
BUCKET = "bench"
#: By name, the source of the engine and of what says how many tables share a job.
ENGINES = {
    "one JVM per table": ("LocalSpark()", ""),
    "batches of 25 tables": ("LocalSpark()", "batch_size=25"),
    "Spark Connect": ("SparkConnect({url!r})", ""),
    "Spark Connect, batches of 25": ("SparkConnect({url!r})", "batch_size=25"),
}
DAG = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_hive_to_delta import *

with DAG({dag!r}, schedule=None):
    hive_to_delta_task_group(
        source=GlueSource({database!r}), staging="s3://{bucket}/staging", engine={engine}, aws_conn_id=None,
        target=GlueTarget("{database}_delta", create_schema=True), per_table=PerTable(retries=0, {per_table}),
    )
"""


def make_tables(s3: Any, glue: Any, database: str, tables: int, files: int) -> None:
    written = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(100)), "name": [f"name {n}" for n in range(100)]}), written)
    glue.create_database(DatabaseInput={"Name": database})
    for number in range(tables):
        folder = f"{database}/t{number:03d}"
        for file in range(files):
            s3.put_object(Bucket=BUCKET, Key=f"{folder}/part-{file:05d}.parquet", Body=written.getvalue())
        storage = {
            "Location": f"s3://{BUCKET}/{folder}",
            "Columns": [{"Name": "id", "Type": "bigint"}, {"Name": "name", "Type": "string"}],
            "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
            "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
            "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
        }
        table = {"Name": f"t{number:03d}", "TableType": "EXTERNAL_TABLE", "StorageDescriptor": storage}
        glue.create_table(DatabaseName=database, TableInput=table)


def run(home: Path, name: str, source: str) -> float:
    """The seconds that a DAG takes, from a parsed file to its end."""
    from airflow.dag_processing.dagbag import DagBag

    file = home / "dags" / f"{name}.py"
    file.write_text(source)
    bag = DagBag(dag_folder=str(file))
    assert not bag.import_errors, bag.import_errors
    (dag,) = bag.dags.values()
    started = time.perf_counter()
    done = dag.test()
    seconds = time.perf_counter() - started
    if str(done.state) != "success":
        raise SystemExit(f"The run of {name} ended as {done.state}")
    return seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tables", type=int, default=50)
    arguments.add_argument("--files", type=int, default=10)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home = Path(folder)
        (home / "dags").mkdir()
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        os.environ.update(
            AIRFLOW_HOME=folder,
            AIRFLOW__CORE__LOAD_EXAMPLES="false",
            AIRFLOW__CORE__DAGS_FOLDER=str(home / "dags"),
            AIRFLOW__LOGGING__LOGGING_LEVEL="ERROR",
            AWS_ENDPOINT_URL=f"http://{host}:{port}",
            AWS_ACCESS_KEY_ID="bench",
            AWS_SECRET_ACCESS_KEY="bench",
            AWS_DEFAULT_REGION=REGION,
            AWS_EC2_METADATA_DISABLED="true",
        )
        from airflow.utils.db import initdb

        initdb()
        # Airflow's settings of loggers would show every request.
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        s3, glue = boto3.client("s3"), boto3.client("glue")
        s3.create_bucket(Bucket=BUCKET)
        seconds = {}
        (connect := home / "connect").mkdir()
        try:
            with serve_connect(connect) as connect_server:
                for number, (name, (engine, per_table)) in enumerate(ENGINES.items()):
                    database = f"bench_{number}"
                    make_tables(s3, glue, database, chosen.tables, chosen.files)
                    source = DAG.format(
                        dag=database,
                        database=database,
                        bucket=BUCKET,
                        engine=engine.format(url=connect_server.url),
                        per_table=per_table,
                    )
                    seconds[name] = run(home, database, source)
                    print(f"{name}: {seconds[name]:.1f} s, {seconds[name] / chosen.tables:.2f} s a table", flush=True)
        finally:
            server.stop()
    slowest = seconds["one JVM per table"]
    ratios = {name: round(slowest / each, 2) for name, each in seconds.items()}
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f} times as fast as a JVM for each table")
    print(json.dumps({"tables": chosen.tables, "files": chosen.files, "seconds": seconds, "ratios": ratios}))


if __name__ == "__main__":
    main()
