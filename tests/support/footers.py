"""What the package reads from the footers of files, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.parquet.footers import FooterReader

FILES = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("partition_values", pa.map_(pa.string(), pa.string())),
    ]
)


def described(*files: tuple[str, int], root: str, **options: Any) -> list[dict[str, Any]]:
    """What a worker says of these files, read in this process."""
    listed = [{"path": path, "size": size} for path, size in files]
    reader = FooterReader(root, {}, ConversionOptions(**options))
    return [
        row for batch in reader(iter([pa.RecordBatch.from_pylist(listed, schema=FILES)])) for row in batch.to_pylist()
    ]


def read(*paths: Path, **options: Any) -> list[dict[str, Any]]:
    rows = described(*[(str(path), path.stat().st_size) for path in paths], root=str(paths[0].parent), **options)
    schemas = {row["layout"]: row["file_schema"] for row in rows if row["file_schema"]}
    for row in rows:
        assert row["error"] is None, row["error"]
        row["file_schema"] = json.loads(schemas[row["layout"]])
        row["leaf_statistics"] = row["leaf_statistics"] and json.loads(row["leaf_statistics"])
    return rows


def statistics(path: Path) -> list[list[Any]]:
    """Minimum, maximum and null count of each leaf of a file."""
    return read(path)[0]["leaf_statistics"]
