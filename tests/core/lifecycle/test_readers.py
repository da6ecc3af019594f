"""Converted tables are read by engines that nobody here wrote, as ``docs/readers.md`` and the plans say."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_hive_to_delta.core import readers
from airflow_hive_to_delta.core.readers import (
    DUCKDB,
    FAILING,
    KERNEL,
    POLARS,
    PYARROW,
    QUERY_BUILDER,
    SPARK_4,
    SPARK_35,
    TRINO,
    Trait,
)
from tests.support.project import PROJECT
from tests.support.reader_answers import Sample
from tests.support.reader_page import Matrix, Outcome, render
from tests.support.reader_tables import Builder, build_samples
from tests.support.reader_trino import VERSION, trino
from tests.support.readers import READERS, read_all, read_with_spark
from tests.support.spark_versions import SPARK_35_PYTHON, needs_spark_4, spark_35_variables

pytestmark = [pytest.mark.slow, needs_spark_4("an environment with the other readers beside it")]

PAGE = PROJECT / "docs" / "readers.md"


def refuses(words: str) -> Outcome:
    return Outcome("refuses", words)


def wrong(words: str) -> Outcome:
    return Outcome("wrong", words)


_MISSING = refuses("No such file or directory")
_NOT_FOUND = refuses("not found")
_OUTSIDE = {DUCKDB: _MISSING, PYARROW: _NOT_FOUND, POLARS: _MISSING}
_UNTRIED = {KERNEL: Outcome("not tried")}
_OUTSIDE_ON_S3 = {DUCKDB: refuses("HTTP 404 Not Found"), PYARROW: _NOT_FOUND, POLARS: _MISSING, **_UNTRIED}
_OTHER_BUCKET = {**_OUTSIDE_ON_S3, QUERY_BUILDER: refuses("No suitable object store found")}

#: What is not simply read. All that is not here is.
EXPECTED: dict[str, dict[str, Outcome]] = {
    "plain": {},
    "filters on columns without bounds": {PYARROW: wrong("filters on precise, ratio, yes"), **_UNTRIED},
    "partitioned: odd values and nulls": {},
    "partitioned: dates, times, decimals, booleans": {},
    "partitioned: a negative decimal": {PYARROW: refuses("is not a valid decimal128 number")},
    "microseconds in timestamps": {TRINO: wrong("rows, filters on at")},
    "column mapping": {POLARS: refuses("requires reader version 2 (column mapping)")},
    "timestamp_ntz": {},
    "type widening": {
        SPARK_35: refuses("DELTA_UNSUPPORTED_TYPE_CHANGE_IN_PREVIEW"),
        TRINO: wrong("SELECT * has no number, price, ratio"),
        QUERY_BUILDER: refuses("Unsupported table features required: [TypeWidening]"),
        PYARROW: refuses("The table has set these reader features: {'typeWidening'}"),
        POLARS: refuses("requires reader features ['typeWidening']"),
    },
    "narrower files, without the feature": {
        SPARK_35: refuses("Parquet column cannot be converted"),
        TRINO: wrong("filters on price"),
        POLARS: refuses("incoming dtype cannot safely cast to target dtype"),
    },
    "checkpoint": {},
    "outside the root, as file:///": _OUTSIDE,
    "outside the root, as file:/": _OUTSIDE,
    "outside the root, as /path": {
        TRINO: refuses("Failed to generate splits"),
        PYARROW: _NOT_FOUND,
        POLARS: _MISSING,
    },
    "on S3: plain": _UNTRIED,
    "on S3: odd values": {POLARS: _NOT_FOUND, **_UNTRIED},
    "on S3: outside the root, in its bucket": _OUTSIDE_ON_S3,
    "on S3: in another bucket, as s3://": _OTHER_BUCKET,
    "on S3: in another bucket, as s3a://": _OTHER_BUCKET,
}
#: The tables that show what readers fail on.
SHOWN_BY: dict[Trait, list[str]] = {
    "outside": ["outside the root, as file:///"],
    "outside on S3": ["on S3: outside the root, in its bucket", "on S3: in another bucket, as s3://"],
    "escaped on S3": ["on S3: odd values"],
    "typeWidening": ["type widening"],
    "narrower files": ["narrower files, without the feature"],
    "columnMapping": ["column mapping"],
    "timestampNtz": ["timestamp_ntz"],
    "filters without bounds": ["filters on columns without bounds"],
    "negative decimal partitions": ["partitioned: a negative decimal"],
}


@pytest.fixture(scope="module")
def seen(
    spark: SparkSession, s3: Any, aws_endpoint: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, dict[str, Outcome]], dict[str, str]]:
    """What every reader made of every table, by table and reader, and the readers' versions."""
    folder = tmp_path_factory.mktemp("readers")
    buckets = [f"b-{uuid.uuid4().hex[:12]}" for _ in range(2)]
    for bucket in buckets:
        s3.create_bucket(Bucket=bucket)
    samples = build_samples(Builder(spark, s3, folder, *buckets))
    (folder / "samples").write_bytes(pickle.dumps(samples))
    answers: dict[str, dict[str, Any]] = {}
    with ExitStack() as running:
        # PySpark and the shared libraries of each are in a process of their own, and all of them side by side.
        others = [
            running.enter_context(_asking(python, folder / "samples", aws_endpoint, names))
            for python, names in ((sys.executable, list(READERS)[1:]), (str(SPARK_35_PYTHON), [SPARK_35]))
        ]
        spark_4 = {
            "versions": _versions("pyspark", "delta-spark"),
            "answers": read_all(samples, read_with_spark(spark)),
        }
        answers[SPARK_4] = spark_4
        for other in others:
            printed, _ = other.communicate()
            assert other.returncode == 0, "a reader's process failed; its errors are above"
            answers |= json.loads(printed.splitlines()[-1])
    if "TRINO" in os.environ:
        with trino(Path(os.environ["TRINO"]), folder / "trino", aws_endpoint) as read:
            answers[TRINO] = {"versions": f"trino-server {VERSION}", "answers": read_all(samples, read)}
    outcomes = {
        sample.name: {name: _outcome(sample, answer["answers"][sample.name]) for name, answer in answers.items()}
        for sample in samples
    }
    return outcomes, {name: answer["versions"] for name, answer in answers.items()}


def _asking(python: str, samples: Path, endpoint: str, names: list[str]) -> subprocess.Popen[str]:
    command = [python, "-m", "tests.support.readers", str(samples), endpoint, *names]
    return subprocess.Popen(command, cwd=PROJECT, env=spark_35_variables(), stdout=subprocess.PIPE, text=True)


def _versions(*packages: str) -> str:
    return ", ".join(f"{package} {version(package)}" for package in packages)


def _outcome(sample: Sample, answer: dict[str, Any]) -> Outcome:
    if "error" in answer:
        return Outcome("not tried") if answer["error"] is None else Outcome("refuses", answer["error"])
    if "wrong" in answer:
        return Outcome("wrong", answer["wrong"])
    expected = json.loads(json.dumps(sample.expected()))
    mistakes = list(_mistakes(sample, expected, answer))
    return Outcome("wrong", ", ".join(mistakes)) if mistakes else Outcome("reads")


def _mistakes(sample: Sample, expected: dict[str, Any], answer: dict[str, Any]) -> Iterator[str]:
    for question in ("rows", "count"):
        if answer[question] not in (None, expected[question]):
            yield question
    if answer["filtered"] not in (None, expected["filtered"]):
        pairs = zip(sample.filters, expected["filtered"], answer["filtered"], strict=True)
        columns = {condition[0] for condition, want, found in pairs if want != found}
        yield f"filters on {', '.join(sorted(columns))}"


def expected_matrix() -> Matrix:
    return {
        table: {name: exceptions.get(name, Outcome("reads")) for name in readers.READERS}
        for table, exceptions in EXPECTED.items()
    }


@pytest.mark.parametrize("reader", readers.READERS)
def test_every_table_is_read_or_refused_as_documented(seen: Any, reader: str) -> None:
    outcomes, versions = seen
    if reader not in versions:
        pytest.skip("`make test-trino` asks Trino")
    expected = {table: row[reader] for table, row in expected_matrix().items()}
    assert outcomes.keys() == expected.keys()
    for table, row in outcomes.items():
        found = row[reader]
        assert found.kind == expected[table].kind, f"{table}: {found}"
        assert expected[table].words in found.words, f"{table}: {found}"


def test_the_page_shows_what_was_seen(seen: Any) -> None:
    outcomes, versions = seen
    expected = expected_matrix()
    matrix = {
        # The words are those by which an error is known: the errors themselves have paths of this run in them.
        table: {name: row[name]._replace(words=expected[table][name].words) if name in row else expected[table][name]
                for name in readers.READERS}
        for table, row in outcomes.items()
    }  # fmt: skip
    page = render(matrix, {name: versions.get(name, f"trino-server {VERSION}") for name in readers.READERS})
    if os.environ.get("WRITE_READERS_PAGE"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "run it with WRITE_READERS_PAGE=1, and look at what became of docs/readers.md"


def test_plans_and_notes_name_the_readers_that_fail() -> None:
    expected = expected_matrix()
    failing = {
        trait: {
            name for table in tables for name, found in expected[table].items() if found.kind in ("refuses", "wrong")
        }
        for trait, tables in SHOWN_BY.items()
    }
    assert failing == {trait: set(names) for trait, names in FAILING.items()}
