"""A Hive table on local disk, and lists of its files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from airflow_hive_to_delta import ConversionOptions, ParquetFileInfo, TableInfo
from airflow_hive_to_delta.core.lifecycle.convert import convert
from airflow_hive_to_delta.core.lifecycle.sync.sync import sync_table
from airflow_hive_to_delta.core.listing.base import MadeListing, list_table
from airflow_hive_to_delta.core.options import OutputMode
from airflow_hive_to_delta.core.results import SyncResult
from tests.support.discoveries import KnownTables
from tests.support.oracle import delta_at
from tests.support.tables import write_parquet


class Folder:
    """A Hive table on local disk, by days, whose partitions are the folders under it."""

    def __init__(self, spark: SparkSession, root: Path, columns: dict[str, str] | None = None) -> None:
        self.spark, self.root = spark, root
        self.columns = columns or {"id": "bigint"}

    @property
    def table(self) -> TableInfo:
        return TableInfo(
            name="t",
            location=str(self.root),
            columns=[{"Name": name, "Type": kind} for name, kind in self.columns.items()],
            partition_keys=["day"],
            partition_types={"day": "string"},
        )

    def write(self, day: str, name: str, data: Any, *, at: int | None = None) -> Path:
        path = self.root / f"day={day}" / name
        write_parquet(path, data if isinstance(data, (dict, pa.Table)) else {"id": data})
        if at is not None:
            os.utime(path, (at, at))
        return path

    def convert(self, **options: Any) -> None:
        (result,) = convert(
            self.spark,
            KnownTables(self.table),
            Walk(),
            None,
            None,
            options=ConversionOptions(**options),
            progress=False,
        )
        assert result.status == "converted", result.error

    def sync(self, output_mode: OutputMode = "append", **arguments: Any) -> SyncResult:
        return sync_table(self.spark, self.table, Walk(), output_mode=output_mode, **arguments)

    @property
    def delta(self) -> DataFrame:
        return delta_at(self.spark, self.root)

    @property
    def ids(self) -> list[tuple[str, int]]:
        """The ids that Delta reads."""
        return sorted((row.day, row.id) for row in self.delta.select("day", "id").collect())

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(t=f"delta.`{self.root}`"))

    def entry(self, version: int) -> list[dict[str, Any]]:
        lines = (self.root / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def version(self) -> int:
        return max(int(path.stem) for path in (self.root / "_delta_log").glob("*.json") if path.stem.isdecimal())


class Walk:
    """A listing of the files that the operating system finds."""

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
        files = [path for path in Path(table.location).rglob("*") if path.is_file()]
        return [ParquetFileInfo(str(p), p.stat().st_size, None, p.stat().st_mtime_ns // 1_000_000) for p in files]


class Given(MadeListing):
    """A listing of files that were listed earlier."""

    def __init__(
        self, spark: SparkSession, table: TableInfo, version: int | None = None, time: int | None = None
    ) -> None:
        self.files = list_table(spark, Walk(), table, ConversionOptions()).frame.localCheckpoint()
        self.version, self.time = version, time

    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame:
        return self.files

    def listed_at_version(self, table: TableInfo) -> int | None:
        return self.version

    def listed_at_time(self, table: TableInfo) -> int | None:
        return self.time


def original(hive: Folder) -> DataFrame:
    schema = ", ".join(f"`{name}` {kind}" for name, kind in {**hive.columns, "day": "string"}.items())
    files = [str(path) for path in hive.root.glob("day=*/*")]
    return hive.spark.read.schema(schema).option("basePath", str(hive.root)).parquet(*files)
