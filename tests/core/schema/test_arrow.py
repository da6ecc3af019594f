"""Arrow schemas that are derived from DDL."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from airflow_hive_to_delta.core.delta.action_schemas import READ_ACTIONS_SCHEMA, WRITTEN_ACTIONS_SCHEMA
from airflow_hive_to_delta.core.models import FILES_SCHEMA
from airflow_hive_to_delta.core.parquet.add_actions import BLOCKS_SCHEMA, DESCRIBED_SCHEMA
from airflow_hive_to_delta.core.schema.arrow import arrow_schema


def test_columns_keep_their_names_and_order() -> None:
    assert arrow_schema("b bigint, a map<string,string>, c array<struct<x:int,y:map<string,binary>>>") == pa.schema(
        [
            ("b", pa.int64()),
            ("a", pa.map_(pa.string(), pa.string())),
            ("c", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.map_(pa.string(), pa.binary()))]))),
        ]
    )


@pytest.mark.parametrize("ddl", ["a decimal(10,2)", "a", "a struct", "a int<int>"])
def test_an_unknown_type_is_an_error(ddl: str) -> None:
    with pytest.raises(ValueError, match="known Arrow type"):
        arrow_schema(ddl)


def test_spark_takes_both_forms_for_one_schema(spark: SparkSession) -> None:
    for ddl in (FILES_SCHEMA, DESCRIBED_SCHEMA, BLOCKS_SCHEMA, WRITTEN_ACTIONS_SCHEMA, READ_ACTIONS_SCHEMA):
        assert from_arrow_schema(arrow_schema(ddl)) == spark.createDataFrame([], ddl).schema
