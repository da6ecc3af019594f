"""Tables of Parquet files for the benchmarks, made fast.

A few hundred different files of a shape are made in memory, and each of them is written many times. Files that differ
have different values in every column, so a filter can skip most of a table.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.jobs import PARTITION_COLUMN, BenchTable

#: How many different files a table has at most.
VARIANTS = 200
FILES_PER_PARTITION = 20


@dataclass(frozen=True)
class Shape:
    """What the files of a table look like.

    :param columns: name and type of the columns, in the form of Hive.
    :param make_rows: makes the rows of one of the different files, by its number and its number of rows.
    """

    columns: dict[str, str]
    rows: int
    make_rows: Callable[[int, int], pa.Table]
    row_group_rows: int | None = None

    def make_contents(self, count: int) -> list[bytes]:
        """The bytes of ``count`` different files."""
        return [self._make_content(number) for number in range(count)]

    def _make_content(self, number: int) -> bytes:
        written = io.BytesIO()
        pq.write_table(self.make_rows(number, self.rows), written, row_group_size=self.row_group_rows)
        return written.getvalue()


class Store(Protocol):
    """Writes files under a root: a folder, or a bucket of S3."""

    root: str

    def write(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Write files by their paths relative to the root."""
        ...


class LocalStore:
    """Writes files into a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)

    def write(self, files: Sequence[tuple[str, bytes]]) -> None:
        made: set[Path] = set()
        for name, content in files:
            path = Path(self.root, name)
            if path.parent not in made:
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            path.write_bytes(content)


class S3Store:
    """Writes objects into a bucket, which it creates."""

    def __init__(self, bucket: str) -> None:
        import boto3
        from botocore.config import Config

        self.root = f"s3://{bucket}"
        self._bucket = bucket
        self._client = boto3.client("s3", config=Config(max_pool_connections=8))
        self._client.create_bucket(Bucket=bucket)

    def write(self, files: Sequence[tuple[str, bytes]]) -> None:
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(
                lambda file: self._client.put_object(Bucket=self._bucket, Key=file[0], Body=file[1]), files
            ):
                pass


def make_table(
    store: Store,
    name: str,
    shape: Shape,
    files: int,
    *,
    files_per_partition: int | None = FILES_PER_PARTITION,
    contents: Sequence[bytes] | None = None,
) -> BenchTable:
    """Write a table of ``files`` files.

    :param files_per_partition: None makes a table without partitions.
    :param contents: different files of the shape that were made before, for tables that share them.
    """
    contents = contents or shape.make_contents(min(files, VARIANTS))
    batch: list[tuple[str, bytes]] = []
    for number in range(files):
        folder = "" if files_per_partition is None else f"{partition_folder(number // files_per_partition)}/"
        batch.append((f"{name}/{folder}part-{number:07d}.parquet", contents[number % len(contents)]))
        if len(batch) == 10_000:
            store.write(batch)
            batch = []
    store.write(batch)
    location = f"{store.root}/{name}"
    return BenchTable(
        name=name,
        location=location,
        columns=shape.columns,
        files=files,
        rows=files * shape.rows,
        partitioned=files_per_partition is not None,
        folders=[location],
    )


def partition_folder(number: int) -> str:
    """The folder of a partition by its number."""
    return f"{PARTITION_COLUMN}={number:06d}"


# --- Shapes -----------------------------------------------------------------------------------------------------

#: 2020-01-01 in UTC.
_START_SECONDS = 1_577_836_800


def _plain_rows(number: int, rows: int) -> pa.Table:
    first = number * rows
    ids = pa.array(range(first, first + rows), pa.int64())
    micros = pa.array([(_START_SECONDS + 60 * n) * 1_000_000 for n in range(first, first + rows)], pa.int64())
    return pa.table(
        {
            "id": ids,
            "quantity": pa.array([n % 97 + number for n in range(rows)], pa.int32()),
            "price": pa.array([n / 8 for n in range(first, first + rows)], pa.float64()),
            "amount": ids.cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
            "at": micros.cast(pa.timestamp("us", tz="UTC")),
            "name": [f"name {n:08d}" for n in range(first, first + rows)],
            "city": [f"city {number:04d} {n % 17}" for n in range(rows)],
            "code": [f"{number:04d}-{n % 5}" for n in range(rows)],
            "note": [None if n % 3 else f"note {number:04d}" for n in range(rows)],
            "tag": [f"tag {n % 7}" for n in range(rows)],
        }
    )


_PLAIN_COLUMNS = {
    "id": "bigint",
    "quantity": "int",
    "price": "double",
    "amount": "decimal(12,2)",
    "at": "timestamp",
    "name": "string",
    "city": "string",
    "code": "string",
    "note": "string",
    "tag": "string",
}
#: Ten columns, files of some 8 KB.
PLAIN = Shape(_PLAIN_COLUMNS, 150, _plain_rows)


def with_row_groups(count: int, rows: int) -> Shape:
    """The columns of ``PLAIN`` in larger files, of ``count`` row groups of ``rows`` rows."""
    return Shape(_PLAIN_COLUMNS, count * rows, _plain_rows, row_group_rows=rows)


def _wide_rows(number: int, rows: int) -> pa.Table:
    first = number * rows
    columns: dict[str, Any] = {f"n{i}": range(first + i, first + i + rows) for i in range(100)}
    columns |= {f"s{i}": [f"{number:04d} {n % 5}" for n in range(rows)] for i in range(100)}
    return pa.table({name: pa.array(values) for name, values in columns.items()})


#: 200 columns.
WIDE = Shape({f"n{i}": "bigint" for i in range(100)} | {f"s{i}": "string" for i in range(100)}, 20, _wide_rows)


def _nested_rows(number: int, rows: int) -> pa.Table:
    first = number * rows
    ids = range(first, first + rows)
    owner = pa.struct([("name", pa.string()), ("address", pa.struct([("city", pa.string()), ("zip", pa.int32())]))])
    line = pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int32())]))
    owners = [{"name": f"name {n}", "address": {"city": f"city {number}", "zip": n % 99_999}} for n in ids]
    lines = [[{"sku": f"sku {n % 11}", "count": k} for k in range(n % 4)] for n in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "owner": pa.array(owners, owner),
            "lines": pa.array(lines, line),
            "labels": pa.array([[("a", f"{n}"), ("b", "x")] for n in ids], pa.map_(pa.string(), pa.string())),
            "numbers": pa.array([list(range(n % 5)) for n in ids], pa.list_(pa.int64())),
        }
    )


#: Structs in structs, arrays of structs, and maps.
NESTED = Shape(
    {
        "id": "bigint",
        "owner": "struct<name:string,address:struct<city:string,zip:int>>",
        "lines": "array<struct<sku:string,count:int>>",
        "labels": "map<string,string>",
        "numbers": "array<bigint>",
    },
    100,
    _nested_rows,
)
