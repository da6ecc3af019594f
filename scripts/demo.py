"""Two small but honest Hive databases on a simulated S3 and Glue become Delta tables, and are read back.

    make demo

No cloud account is needed: moto's server plays AWS on loopback, an embedded Spark does the work, and both end with
the demo. It runs the same from the start each time.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession

from airflow_hive_to_delta import ConversionResult, GlueDiscovery, S3Listing, convert, create_summary, local_session

REGION = "us-east-1"
PARQUET = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
}
TEXT = {
    "InputFormat": "org.apache.hadoop.mapred.TextInputFormat",
    "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"},
}


def main() -> int:
    with simulated_aws() as endpoint, tempfile.TemporaryDirectory() as home:
        fill_glue_and_s3()
        spark = demo_session(endpoint, Path(home))
        results: list[ConversionResult] = []
        for database in ("sales", "web"):
            print(f"\nConverting the Glue database {database}", flush=True)
            results += convert(
                spark, GlueDiscovery(database, region=REGION), S3Listing(REGION), "spark_catalog", database
            )
        print()
        show(spark, results)
        print(f"\n{create_summary(results)}")
        spark.stop()
    # One table is text on purpose: a demo in which nothing is refused would not be honest.
    expected = {"refused": 1, "converted": 4}
    return 0 if create_summary(results).by_status == expected else 1


def fill_glue_and_s3() -> None:
    """Partitions in a second bucket, null partitions, odd characters, nested types, Hive's file names, a text table."""
    s3 = boto3.client("s3", region_name=REGION)
    for bucket in ("lake", "archive"):
        s3.create_bucket(Bucket=bucket)
    glue = boto3.client("glue", region_name=REGION)
    for database in ("sales", "web"):
        glue.create_database(DatabaseInput={"Name": database})

    orders = {"Id": [1, 2, 3], "amount": pa.array([Decimal("9.99"), None, Decimal("120.00")], pa.decimal128(10, 2))}
    table(glue, "sales", "orders", {"id": "bigint", "amount": "decimal(10,2)"}, {"day": "date"})
    partition(s3, glue, "sales", "orders", ["2024-02-29"], "s3://lake/sales/orders/day=2024-02-29", orders)
    partition(s3, glue, "sales", "orders", ["2019-01-01"], "s3://archive/orders/2019", orders)
    null = "__HIVE_DEFAULT_PARTITION__"
    partition(s3, glue, "sales", "orders", [null], f"s3://lake/sales/orders/day={null}", orders)

    items = {"item": [{"Name": "pen", "Price": Decimal("1.50")}, None], "tags": [["a", "b"], []]}
    item_type = pa.struct([("Name", pa.string()), ("Price", pa.decimal128(10, 2))])
    nested = {"item": pa.array(items["item"], item_type), "tags": items["tags"]}
    table(glue, "sales", "items", {"item": "struct<name:string,price:decimal(10,2)>", "tags": "array<string>"}, {})
    put(s3, "s3://lake/sales/items/000000_0", nested)
    put(s3, "s3://lake/sales/items/_temporary/0/000000_0", nested)

    table(glue, "sales", "notes", {"line": "string"}, {}, TEXT)

    clicks = {"at": pa.array([1_700_000_000_000_000, None], pa.timestamp("us", tz="UTC")), "score": [float("nan"), 0.5]}
    table(glue, "web", "clicks", {"at": "timestamp", "score": "double"}, {"page": "string"})
    for page, folder in (("a/b c%d=e", "a%2Fb c%25d%3De"), ("start", "start")):
        partition(s3, glue, "web", "clicks", [page], f"s3://lake/web/clicks/page={folder}", clicks)

    table(glue, "web", "counters", {"n": "bigint"}, {})
    put(s3, "s3://lake/web/counters/000000_0", {"n": pa.array([1, 2], pa.int32())})
    put(s3, "s3://lake/web/counters/000001_0", {"n": pa.array([2**40], pa.int64())})


def show(spark: SparkSession, results: list[ConversionResult]) -> None:
    """What became of each table, with the rows that Delta now reads."""
    lines = [("table", "status", "files", "rows read", "notes")]
    for result in results:
        rows = str(spark.table(result.target_table).count()) if result.success else "-"
        said = "; ".join(result.notes) or result.error or ""
        lines.append((result.source_table, result.status, str(result.file_count), rows, said))
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4][:150])


def table(
    glue: Any, database: str, name: str, columns: dict[str, str], keys: dict[str, str], form: Any = PARQUET
) -> None:
    glue.create_table(
        DatabaseName=database,
        TableInput={
            "Name": name,
            "TableType": "EXTERNAL_TABLE",
            "PartitionKeys": [{"Name": key, "Type": hive_type} for key, hive_type in keys.items()],
            "StorageDescriptor": {
                "Columns": [{"Name": column, "Type": hive_type} for column, hive_type in columns.items()],
                "Location": f"s3://lake/{database}/{name}",
                **form,
            },
        },
    )


def partition(
    s3: Any, glue: Any, database: str, name: str, values: list[str], location: str, data: dict[str, Any]
) -> None:
    put(s3, f"{location}/000000_0", data)
    storage = {"Location": location, **PARQUET}
    glue.create_partition(
        DatabaseName=database, TableName=name, PartitionInput={"Values": values, "StorageDescriptor": storage}
    )


def put(s3: Any, uri: str, data: dict[str, Any]) -> None:
    file = io.BytesIO()
    pq.write_table(pa.table(data), file)
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    s3.put_object(Bucket=bucket, Key=key, Body=file.getvalue())


@contextmanager
def simulated_aws() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    os.environ.update(
        AWS_ENDPOINT_URL=endpoint,
        AWS_ACCESS_KEY_ID="demo",
        AWS_SECRET_ACCESS_KEY="demo",
        AWS_DEFAULT_REGION=REGION,
        AWS_EC2_METADATA_DISABLED="true",
    )
    try:
        yield endpoint
    finally:
        server.stop()


def demo_session(endpoint: str, home: Path) -> SparkSession:
    return local_session(
        "demo",
        conf={
            "spark.jars.ivy": str(Path(__file__).parent.parent.resolve() / ".ivy"),
            "spark.log.level": "ERROR",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        },
    )


if __name__ == "__main__":
    sys.exit(main())
