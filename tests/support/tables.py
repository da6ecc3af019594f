"""Small tables as somebody left them on a storage, and what to do with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from airflow_hive_to_delta import ConversionResult, convert_table


def write_parquet(path: Path, data: pa.Table | Mapping[str, Any], **options: Any) -> Path:
    """A Parquet file written by pyarrow."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data if isinstance(data, pa.Table) else pa.table(dict(data)), path, **options)
    return path


def files_of(spark: SparkSession, *roots: Path | str) -> DataFrame:
    """Every file under the folders, as the list that convert_table takes."""
    found = [
        (os.path.join(folder, name), os.path.getsize(os.path.join(folder, name)))
        for root in roots
        for folder, _, names in os.walk(root)
        for name in names
    ]
    return spark.createDataFrame(found, "file_path string, size long")


def convert_folder(spark: SparkSession, root: Path, *more: Path, **arguments: Any) -> ConversionResult:
    """convert_table over everything under a local folder, not registered."""
    return convert_table(spark, files_of(spark, root, *more), str(root), None, None, None, **arguments)


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    """All that is under a folder: names, sizes and modification times, folders too."""
    return {
        str(path.relative_to(root)): (path.stat().st_size if path.is_file() else -1, path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
    }


def hive_escape(text: str) -> str:
    """A partition value as Hive writes it into the name of a folder."""
    return "".join(f"%{ord(c):02X}" if c in "\"#%'*/:=?\\{[]^\x7f" or ord(c) < 0x20 else c for c in text)
