"""What differs between the versions of Spark that this package runs on: 3.5 and 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.spark.packed_rows import pack_batches, pack_rows, unpack_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class LocalJars:
    """The jars that a local session adds to those of PySpark, and the settings that depend on them."""

    #: Delta Lake, and S3A with the parts of the AWS SDK that it uses instead of a bundle of hundreds of MB.
    packages: tuple[str, ...]
    excluded: tuple[str, ...]
    #: The keys in the session's settings, then the providers that boto3 has too, such as a web identity or a container.
    #: By default S3A uses only some of those.
    s3a_credentials: tuple[str, ...]


_PACKED_SCHEMA = "block binary"
_ROWS_OF_A_BLOCK = 10_000
_S3A_KEYS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
)
#: Of the Hadoop that PySpark has itself.
_HADOOP_CLIENT = ("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime")

#: Spark 4.2 with Hadoop 3.5, whose S3A uses version 2 of the AWS SDK.
SPARK_4_JARS = LocalJars(
    packages=(
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "org.apache.hadoop:hadoop-aws:3.5.0",
        *(f"software.amazon.awssdk:{part}:2.35.4" for part in ("s3", "s3-transfer-manager", "sts")),
    ),
    excluded=("software.amazon.awssdk:bundle", *_HADOOP_CLIENT),
    s3a_credentials=(*_S3A_KEYS, "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"),
)
#: Spark 3.5 with Hadoop 3.3, whose S3A uses version 1 of the AWS SDK.
SPARK_35_JARS = LocalJars(
    packages=(
        "io.delta:delta-spark_2.12:3.3.2",
        "org.apache.hadoop:hadoop-aws:3.3.4",
        *(f"com.amazonaws:aws-java-sdk-{part}:1.12.262" for part in ("s3", "sts", "dynamodb")),
    ),
    excluded=("com.amazonaws:aws-java-sdk-bundle", *_HADOOP_CLIENT),
    s3a_credentials=(*_S3A_KEYS, "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"),
)


def local_jars() -> LocalJars:
    """The jars for the PySpark that is installed."""
    return SPARK_4_JARS if _is_spark_4() else SPARK_35_JARS


def df_from_arrow(spark: SparkSession, table: pa.Table, schema: str) -> DataFrame:
    """A DataFrame with the rows of an Arrow table.

    :param schema: the schema of the DataFrame in Spark's words; that of the table is its Arrow form.
    """
    if not table.num_rows:  # PySpark does not accept an Arrow table without a chunk
        return spark.createDataFrame([], schema)
    if _is_spark_4():
        return spark.createDataFrame(table.combine_chunks(), schema)  # PySpark is slow with many chunks
    # PySpark 3.5 accepts no Arrow table: Python workers unpack it.
    return packed_df(spark, table, _ROWS_OF_A_BLOCK).mapInArrow(unpack_rows, schema)


def packed_df(spark: SparkSession, table: pa.Table, most: int) -> DataFrame:
    """A DataFrame of one binary column, with many rows of an Arrow table in each row: see :mod:`packed_rows`.

    :param most: rows of the table in one of the DataFrame.
    """
    import pyarrow as pa

    blocks = pack_rows(table, most)
    if blocks and _is_spark_4():
        return spark.createDataFrame(pa.table({"block": pa.array(blocks, pa.binary())}), _PACKED_SCHEMA)
    return spark.createDataFrame([(bytearray(block),) for block in blocks], _PACKED_SCHEMA)


def collect_arrow(frame: DataFrame, schema: pa.Schema) -> pa.Table:
    """The rows of a DataFrame as an Arrow table.

    :param schema: its schema in Arrow's words.
    """
    import pyarrow as pa

    if _is_spark_4():
        return frame.toArrow().cast(schema)
    # PySpark 3.5 gives no Arrow table: Python workers pack its rows.
    packed = frame.mapInArrow(pack_batches, _PACKED_SCHEMA).collect()
    blocks = pa.table({"block": pa.array([row.block for row in packed], pa.binary())})
    return pa.Table.from_batches(unpack_rows(iter(blocks.to_batches())), None if packed else schema).cast(schema)


def file_metadata(data: DataFrame) -> Column:
    """The column in which Spark has the path, the size and the time of each row's file.

    It is not a column of the files that has its name, ``_metadata``.
    """
    from pyspark.sql import Column
    from pyspark.sql import functions as F  # noqa: N812

    if hasattr(type(data), "metadataColumn"):
        return data.metadataColumn("_metadata")
    if "_metadata" not in (name.lower() for name in data.columns):
        return F.col("_metadata")
    return Column(data._jdf.metadataColumn("_metadata"))  # PySpark 3.5 lacks what its JVM has


def _is_spark_4() -> bool:
    import pyspark

    return int(pyspark.__version__.split(".")[0]) >= 4
