"""The engines that read a converted table, each in the way its own documentation shows.

Run as a program it asks the readers of its own environment:
``python -m tests.support.readers SAMPLES ENDPOINT READER…`` prints what each of them answers, as JSON. In a process of
their own they leave moto's server free to answer; some hold Python's interpreter while they wait for it.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.spark.session import local_session
from tests.support.jvm_options import FAST_START
from tests.support.reader_answers import ID, Filter, Sample, answer_of, by_question, filtered_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[[Sample], dict[str, Any]]


class NotTriedError(Exception):
    """The reader was not asked: it has no way to the storage here, or no such question."""


class ColumnsLeftOutError(Exception):
    """The reader answered, but without all columns."""


def read_all(samples: list[Sample], read: Read) -> dict[str, Any]:
    """What a reader answers by table: an answer, or ``{"error": …}``."""
    answers = {}
    for sample in samples:
        started = time.monotonic()
        try:
            answers[sample.name] = read(sample)
        except ColumnsLeftOutError as error:
            answers[sample.name] = {"wrong": str(error)}
        except NotTriedError:
            answers[sample.name] = {"error": None}
        except Exception as error:
            answers[sample.name] = {"error": f"{type(error).__name__}: {error}"}
        answers[sample.name]["seconds"] = round(time.monotonic() - started, 2)
    return answers


def read_with_spark(spark: SparkSession) -> Read:
    def read(sample: Sample) -> dict[str, Any]:
        table = f"delta.`{sample.location}`"
        rows = _spark_rows(spark.sql(f"SELECT * FROM {table}"))
        (count,) = spark.sql(f"SELECT count(*) FROM {table}").collect()[0]
        pairs = spark.sql(filtered_sql(sample, table, "spark")).collect()
        return answer_of(sample, rows, count, by_question(sample, pairs))

    return read


def _spark_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """PySpark gives timestamps in the zone of the process, and does not say which."""
    zoned = {name for name, kind in frame.dtypes if kind == "timestamp"}
    return [
        {
            name: value.astimezone() if name in zoned and value is not None else value
            for name, value in row.asDict().items()
        }
        for row in frame.collect()
    ]


def read_with_spark35(endpoint: str) -> Read:
    """PySpark 3.5 with Delta 3.3: only in an environment of its own."""
    settings = {
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": FAST_START,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "testing",
        "spark.hadoop.fs.s3a.secret.key": "testing",
    }
    return read_with_spark(local_session("readers", master="local[2]", conf=settings))


def read_with_query_builder(endpoint: str) -> Read:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    def read(sample: Sample) -> dict[str, Any]:
        table = DeltaTable(sample.location, storage_options=_object_store(endpoint))
        builder = QueryBuilder().register("t", table)

        def ask(sql: str) -> list[dict[str, Any]]:
            return pa.table(builder.execute(sql).read_all()).to_pylist()

        (counted,) = ask("SELECT count(*) AS n FROM t")
        pairs = [(row["question"], row["answer"]) for row in ask(filtered_sql(sample, "t", "datafusion"))]
        return answer_of(sample, ask("SELECT * FROM t"), counted["n"], by_question(sample, pairs))

    return read


def read_with_deltalake_pyarrow(endpoint: str) -> Read:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    def filter_of(condition: Filter, schema: pa.Schema) -> Any:
        name, operator, value = condition
        column = ds.field(name)
        if operator == "is null":
            return column.is_null()
        literal = pa.scalar(value, schema.field(name).type)
        return column == literal if operator == "=" else column > literal

    def read(sample: Sample) -> dict[str, Any]:
        table = DeltaTable(sample.location, storage_options=_object_store(endpoint))
        dataset = table.to_pyarrow_dataset()
        filtered = [
            dataset.to_table(columns=[ID], filter=filter_of(condition, dataset.schema))[ID].to_pylist()
            for condition in sample.filters
        ]
        return answer_of(sample, table.to_pyarrow_table().to_pylist(), dataset.count_rows(), filtered)

    return read


def read_with_polars(endpoint: str) -> Read:
    import polars as pl

    def read(sample: Sample) -> dict[str, Any]:
        options = _object_store(endpoint) if "://" in sample.location else None
        frame = pl.scan_delta(sample.location, storage_options=options)
        kinds = frame.collect_schema()
        questions = []
        for name, operator, value in sample.filters:
            column = pl.col(name)
            literal = None if value is None else pl.lit(value, dtype=kinds[name])
            asked = column.is_null() if literal is None else column == literal if operator == "=" else column > literal
            questions.append(frame.filter(asked).select(ID))
        filtered = [found[ID].to_list() for found in pl.collect_all(questions)]
        count = frame.select(pl.len()).collect().item()
        return answer_of(sample, frame.collect().to_dicts(), count, filtered)

    return read


def read_with_duckdb(endpoint: str) -> Read:
    import duckdb
    import duckdb_extension_delta
    import duckdb_extension_httpfs

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for package in (duckdb_extension_httpfs, duckdb_extension_delta):
        (extension,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.load_extension(str(extension))
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(
        "CREATE SECRET (TYPE s3, KEY_ID 'testing', SECRET 'testing', REGION 'us-east-1', USE_SSL false, "
        f"URL_STYLE 'path', ENDPOINT '{endpoint.removeprefix('http://')}')"
    )

    def read(sample: Sample) -> dict[str, Any]:
        table = f"delta_scan('{sample.location}')"
        found = connection.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in found.description]
        rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        ((count,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
        pairs = connection.execute(filtered_sql(sample, table, "duckdb")).fetchall()
        return answer_of(sample, rows, count, by_question(sample, pairs))

    return read


def read_with_kernel(_: str) -> Read:
    """The kernel's Python wrapper reads whole tables, and takes no keys of S3 but those of the machine."""
    import delta_kernel_rust_sharing_wrapper as kernel
    import pyarrow as pa

    def read(sample: Sample) -> dict[str, Any]:
        if "://" in sample.location or sample.only_unbounded:
            raise NotTriedError
        location = f"{Path(sample.location).as_uri()}/"
        interface = kernel.PythonInterface(location)
        batches = kernel.ScanBuilder(kernel.Table(location).snapshot(interface)).build().execute(interface)
        rows = pa.Table.from_batches(list(batches), schema=batches.schema).to_pylist()
        return answer_of(sample, rows, None, None)

    return read


def _object_store(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


READERS: dict[str, tuple[Callable[[str], Read], tuple[str, ...]]] = {
    "Spark 3.5": (read_with_spark35, ("pyspark", "delta-spark")),
    "deltalake's QueryBuilder": (read_with_query_builder, ("deltalake",)),
    "PyArrow through deltalake": (read_with_deltalake_pyarrow, ("deltalake", "pyarrow")),
    "Polars": (read_with_polars, ("polars", "deltalake")),
    "DuckDB": (read_with_duckdb, ("duckdb", "duckdb-extension-delta")),
    "Delta kernel": (read_with_kernel, ("delta-kernel-rust-sharing-wrapper",)),
}


def ask_readers(samples_file: str, endpoint: str, *names: str) -> None:
    samples = pickle.loads(Path(samples_file).read_bytes())
    answers = {}
    for name in names:
        start, packages = READERS[name]
        versions = ", ".join(f"{package} {version(package)}" for package in packages)
        answers[name] = {"versions": versions, "answers": read_all(samples, start(endpoint))}
    print(json.dumps(answers))


if __name__ == "__main__":
    ask_readers(*sys.argv[1:])
