"""Two small but honest Hive databases: what the demo migrates, and the tests of the example DAGs too."""

from __future__ import annotations

import gzip
import io
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.parquet as pq

BUCKETS = ("lake", "archive", "inventory")
DATABASES = ("sales", "web")
#: The folder of the inventory reports.
INVENTORY = "2024-05-01T01-00Z"
#: What a Hive job writes after the conversion: a new day of sales.orders.
NEW_DAY, NEW_ROWS = "2024-05-02", 2
NEW_PLACE = f"s3://lake/sales/orders/day={NEW_DAY}"
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
PARQUET = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
}
TEXT = {
    "InputFormat": "org.apache.hadoop.mapred.TextInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
    "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"},
}


@dataclass(frozen=True)
class HiveTable:
    database: str
    name: str
    columns: Mapping[str, str]
    keys: Mapping[str, str] = field(default_factory=dict)
    #: Values of each partition, None for null, and its location.
    partitions: Sequence[tuple[Sequence[str | None], str]] = ()
    #: Address and contents of every Parquet file.
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: What Hive counts: not what a job that failed left behind.
    rows: int = 0
    storage: Mapping[str, Any] = field(default_factory=lambda: PARQUET)

    @property
    def location(self) -> str:
        return f"s3://lake/{self.database}/{self.name}"


def hive_tables() -> list[HiveTable]:
    """Partitions in a second bucket, null partitions, odd characters, nested types, Hive's file names, a text table."""
    return [_orders(), _items(), _notes(), _clicks(), _counters(), _scratch()]


def fill(s3: Any, glue: Any) -> None:
    """Put the databases on S3 and into Glue, and an S3 Inventory report about each bucket beside them."""
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)
    for database in DATABASES:
        glue.create_database(DatabaseInput={"Name": database})
    for table in hive_tables():
        for address, columns in table.files.items():
            _put(s3, address, _parquet(columns))
        _create_in_glue(glue, table)
    for bucket in ("lake", "archive"):
        _report_inventory(s3, bucket)


def hive_writes(s3: Any, glue: Any) -> None:
    """A Hive job adds a day to ``sales.orders``, as ``INSERT INTO … PARTITION`` does."""
    amounts = pa.array([Decimal("5.00"), Decimal("7.50")], pa.decimal128(10, 2))
    _put(s3, f"{NEW_PLACE}/000000_0", _parquet({"Id": [10, 11], "amount": amounts}))
    described = {"Values": [NEW_DAY], "StorageDescriptor": {"Location": NEW_PLACE, **PARQUET}}
    glue.create_partition(DatabaseName="sales", TableName="orders", PartitionInput=described)


@contextmanager
def simulated_aws() -> Iterator[str]:
    """The address of moto's server, which plays AWS on loopback and forgets everything when the block ends."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def _orders() -> HiveTable:
    amounts = pa.array([Decimal("9.99"), None, Decimal("120.00")], pa.decimal128(10, 2))
    places: dict[str | None, str] = {
        "2024-02-29": "s3://lake/sales/orders/day=2024-02-29",
        "2019-01-01": "s3://archive/orders/2019",
        None: f"s3://lake/sales/orders/day={HIVE_NULL}",
    }
    return HiveTable(
        "sales",
        "orders",
        columns={"id": "bigint", "amount": "decimal(10,2)"},
        keys={"day": "date"},
        partitions=[([day], place) for day, place in places.items()],
        files={f"{place}/000000_0": {"Id": [1, 2, 3], "amount": amounts} for place in places.values()},
        rows=9,
    )


def _items() -> HiveTable:
    item = pa.struct([("Name", pa.string()), ("Price", pa.decimal128(10, 2))])
    items = pa.array([{"Name": "pen", "Price": Decimal("1.50")}, None], item)
    columns = {"item": items, "tags": [["a", "b"], []]}
    return HiveTable(
        "sales",
        "items",
        columns={"item": "struct<name:string,price:decimal(10,2)>", "tags": "array<string>"},
        files={
            "s3://lake/sales/items/000000_0": columns,
            "s3://lake/sales/items/_temporary/0/000000_0": columns,
        },
        rows=2,
    )


def _notes() -> HiveTable:
    """A table of text files, which has to be refused."""
    return HiveTable("sales", "notes", columns={"line": "string"}, storage=TEXT)


def _clicks() -> HiveTable:
    times = pa.array([1_700_000_000_000_000, None], pa.timestamp("us", tz="UTC"))
    pages = {"a/b c%d=e": "a%2Fb c%25d%3De", "start": "start"}
    places = {page: f"s3://lake/web/clicks_parquet/page={folder}" for page, folder in pages.items()}
    return HiveTable(
        "web",
        "clicks_parquet",
        columns={"at": "timestamp", "score": "double"},
        keys={"page": "string"},
        partitions=[([page], place) for page, place in places.items()],
        files={f"{place}/000000_0": {"at": times, "score": [float("nan"), 0.5]} for place in places.values()},
        rows=4,
    )


def _counters() -> HiveTable:
    """The files are of two times: the column was an int, then a bigint."""
    return HiveTable(
        "web",
        "counters",
        columns={"n": "bigint"},
        files={
            "s3://lake/web/counters/000000_0": {"n": pa.array([1, 2], pa.int32())},
            "s3://lake/web/counters/000001_0": {"n": pa.array([2**40], pa.int64())},
        },
        rows=3,
    )


def _scratch() -> HiveTable:
    files = {"s3://lake/web/tmp_counters/000000_0": {"n": pa.array([1], pa.int64())}}
    return HiveTable("web", "tmp_counters", columns={"n": "bigint"}, files=files, rows=1)


def _create_in_glue(glue: Any, table: HiveTable) -> None:
    glue.create_table(
        DatabaseName=table.database,
        TableInput={
            "Name": table.name,
            "TableType": "EXTERNAL_TABLE",
            "PartitionKeys": [{"Name": name, "Type": kind} for name, kind in table.keys.items()],
            "StorageDescriptor": {
                "Columns": [{"Name": name, "Type": kind} for name, kind in table.columns.items()],
                "Location": table.location,
                **table.storage,
            },
        },
    )
    for values, location in table.partitions:
        described = {
            "Values": [HIVE_NULL if value is None else value for value in values],
            "StorageDescriptor": {"Location": location, **table.storage},
        }
        glue.create_partition(DatabaseName=table.database, TableName=table.name, PartitionInput=described)


def _report_inventory(s3: Any, bucket: str) -> None:
    objects = s3.list_objects_v2(Bucket=bucket)["Contents"]
    lines = [f'"{bucket}","{quote_plus(found["Key"], safe="/")}","{found["Size"]}"\n' for found in objects]
    data = f"{bucket}/daily/data/{INVENTORY}.csv.gz"
    manifest = {
        "sourceBucket": bucket,
        "destinationBucket": "arn:aws:s3:::inventory",
        "version": "2016-11-30",
        "fileFormat": "CSV",
        "fileSchema": "Bucket, Key, Size",
        "files": [{"key": data}],
    }
    _put(s3, f"s3://inventory/{data}", gzip.compress("".join(lines).encode()))
    _put(s3, f"s3://inventory/{bucket}/daily/{INVENTORY}/manifest.json", json.dumps(manifest).encode())


def _parquet(columns: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), file)
    return file.getvalue()


def _put(s3: Any, address: str, body: bytes) -> None:
    bucket, _, key = address.removeprefix("s3://").partition("/")
    s3.put_object(Bucket=bucket, Key=key, Body=body)
