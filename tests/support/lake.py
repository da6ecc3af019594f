"""A lake as somebody left it: Parquet on S3, a table of Glue over it, and the same table in a Hive metastore.

Glue's table is what gets converted. The one in Spark's embedded metastore, over the same locations, is the original
that the result is compared with.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_hive_to_delta import ConversionOptions, ConversionResult, GlueDiscovery, Listing, S3Listing, convert
from airflow_hive_to_delta.core.schema.partition_values import HIVE_NULL
from airflow_hive_to_delta.core.spark.sql import sql_literal
from tests.support.aws import REGION

PARQUET: dict[str, Any] = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
}
TEXT: dict[str, Any] = {
    "InputFormat": "org.apache.hadoop.mapred.TextInputFormat",
    "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"},
}

#: Values of one partition, None for null, and its location.
Partition = tuple[Sequence[str | None], str]


@dataclass
class Lake:
    spark: SparkSession
    s3: Any
    glue: Any
    #: The bucket that tables are in, unless they say otherwise.
    bucket: str
    #: A database of the test's own, in Glue and in the Hive metastore.
    database: str
    buckets: list[str] = field(default_factory=list)

    def add_bucket(self, region: str = REGION) -> str:
        name = f"b-{uuid.uuid4().hex[:12]}"
        elsewhere = {"CreateBucketConfiguration": {"LocationConstraint": region}} if region != REGION else {}
        self.s3.create_bucket(Bucket=name, **elsewhere)
        self.buckets.append(name)
        return name

    def put(self, key: str, data: pa.Table | Mapping[str, Any] | bytes, bucket: str | None = None) -> None:
        """An object: a Parquet file of these columns, or just bytes."""
        if not isinstance(data, bytes):
            file = io.BytesIO()
            pq.write_table(data if isinstance(data, pa.Table) else pa.table(dict(data)), file)
            data = file.getvalue()
        self.s3.put_object(Bucket=bucket or self.bucket, Key=key, Body=data)

    def objects(self) -> dict[str, tuple[str, Any]]:
        """Everything in every bucket of the lake: contents and times."""
        return {
            f"{bucket}/{found['Key']}": (found["ETag"], found["LastModified"])
            for bucket in [self.bucket, *self.buckets]
            for found in self.s3.list_objects_v2(Bucket=bucket).get("Contents", [])
        }

    def location(self, name: str = "t") -> str:
        return f"s3://{self.bucket}/{name}"

    def glue_table(
        self,
        columns: Mapping[str, str],
        keys: Mapping[str, str] | None = None,
        partitions: Sequence[Partition] = (),
        *,
        name: str = "t",
        location: str | None = None,
        comment: str = "",
        comments: Mapping[str, str] | None = None,
    ) -> None:
        def described(columns: Mapping[str, str]) -> list[dict[str, str]]:
            return [{"Name": n, "Type": t, "Comment": (comments or {}).get(n, "")} for n, t in columns.items()]

        table = {
            "Name": name,
            "Description": comment,
            "TableType": "EXTERNAL_TABLE",
            "PartitionKeys": described(keys or {}),
            "StorageDescriptor": {
                **PARQUET,
                "Location": location or self.location(name),
                "Columns": described(columns),
            },
        }
        self.glue.create_table(DatabaseName=self.database, TableInput=table)
        for values, partition_location in partitions:
            partition = {
                "Values": [HIVE_NULL if value is None else value for value in values],
                "StorageDescriptor": {**PARQUET, "Location": partition_location},
            }
            self.glue.create_partition(DatabaseName=self.database, TableName=name, PartitionInput=partition)

    def hive_table(
        self,
        columns: Mapping[str, str],
        keys: Mapping[str, str] | None = None,
        partitions: Sequence[Partition] = (),
        *,
        name: str = "t",
        location: str | None = None,
    ) -> DataFrame:
        def declared(columns: Mapping[str, str]) -> str:
            return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())

        def literal(value: str | None) -> str:
            return "NULL" if value is None else sql_literal(value)

        table = f"{self.database}.`{name}`"
        partitioned = f"PARTITIONED BY ({declared(keys)})" if keys else ""
        self.spark.sql(
            f"CREATE TABLE {table} ({declared(columns)}) {partitioned} STORED AS PARQUET "
            f"LOCATION {literal(location or self.location(name))}"
        )
        for values, partition_location in partitions:
            spec = ", ".join(f"`{key}` = {literal(value)}" for key, value in zip(keys or (), values, strict=True))
            self.spark.sql(f"ALTER TABLE {table} ADD PARTITION ({spec}) LOCATION {literal(partition_location)}")
        return self.spark.table(table)

    def table(self, *arguments: Any, location: str | None = None, **comments: Any) -> DataFrame:
        """The table in both catalogs; the original, as Spark reads it from the Hive metastore."""
        self.glue_table(*arguments, location=location, **comments)
        return self.hive_table(*arguments, location=location)

    def convert(
        self,
        target: tuple[str | None, str | None] = (None, None),
        listing: Listing | None = None,
        **options: Any,
    ) -> ConversionResult:
        """Convert the one table of the Glue database."""
        (result,) = convert(
            self.spark,
            GlueDiscovery(self.database),
            listing or S3Listing(),
            *target,
            options=ConversionOptions(**{"create_schema": True, **options}),
            progress=False,
        )
        return result


@pytest.fixture
def lake(spark: SparkSession, s3: Any, glue: Any, bucket: str, database: str) -> Lake:
    glue.create_database(DatabaseInput={"Name": database})
    return Lake(spark, s3, glue, bucket, database)


def hand_converted(lake: Lake, *names: str) -> None:
    """Convert tables of the lake without Airflow."""
    for name in names:
        (result,) = convert(lake.spark, GlueDiscovery(lake.database, name), S3Listing(), None, None, progress=False)
        assert result.status == "converted", result.error
