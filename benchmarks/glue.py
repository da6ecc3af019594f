"""Tables in a Glue catalog whose partitions lie anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import boto3

from benchmarks.jobs import PARTITION_COLUMN, BenchTable

_FORMATS = "org.apache.hadoop.hive.ql.io.parquet"


def register_table(table: BenchTable, partitions: Mapping[str, str]) -> None:
    """Register a table in a database of its own.

    :param partitions: the location of every partition by its value.
    """
    client = boto3.client("glue")
    database = table.glue_database or ""

    def storage(location: str) -> dict[str, Any]:
        return {
            "Location": location,
            "Columns": [{"Name": name, "Type": kind} for name, kind in table.columns.items()],
            "InputFormat": f"{_FORMATS}.MapredParquetInputFormat",
            "OutputFormat": f"{_FORMATS}.MapredParquetOutputFormat",
            "SerdeInfo": {"SerializationLibrary": f"{_FORMATS}.serde.ParquetHiveSerDe"},
        }

    client.create_database(DatabaseInput={"Name": database})
    client.create_table(
        DatabaseName=database,
        TableInput={
            "Name": table.name,
            "TableType": "EXTERNAL_TABLE",
            "PartitionKeys": [{"Name": PARTITION_COLUMN, "Type": "string"}],
            "StorageDescriptor": storage(table.location),  # type: ignore[typeddict-item]
        },
    )
    inputs = [{"Values": [value], "StorageDescriptor": storage(location)} for value, location in partitions.items()]
    for start in range(0, len(inputs), 100):
        client.batch_create_partition(
            DatabaseName=database,
            TableName=table.name,
            PartitionInputList=inputs[start : start + 100],  # type: ignore[arg-type]
        )
