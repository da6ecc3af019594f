"""The log on Databricks without credentials for Python: claims in place of conditional writes."""

from __future__ import annotations

import io
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from airflow_hive_to_delta.core.delta.log.commits import commit
from airflow_hive_to_delta.core.errors import AccessDeniedError, MissingError, PermanentError, TransientError
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage import databricks
from airflow_hive_to_delta.core.storage.databricks import DatabricksStorage, needs_dbutils
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.s3 import S3Storage
from airflow_hive_to_delta.core.storage.uri import Location, parse_location
from airflow_hive_to_delta.job.documents import needs_spark
from tests.support.storages import read


@pytest.fixture
def storage(databricks_runtime: pytest.MonkeyPatch, spark: Any) -> DatabricksStorage:
    return DatabricksStorage(spark)


@pytest.fixture
def entry(bucket: str) -> Location:
    return parse_location(f"s3://{bucket}/t/_delta_log/00000000000000000000.json")


def test_the_session_is_used_only_on_databricks_and_without_credentials(databricks_runtime, spark, bucket) -> None:
    root = parse_location(f"s3://{bucket}/t")
    assert isinstance(storage_for(root, spark, ConversionOptions()), DatabricksStorage)
    assert needs_spark(root)
    databricks_runtime.setenv("AWS_ACCESS_KEY_ID", "of-an-instance-profile")
    databricks_runtime.setenv("AWS_SECRET_ACCESS_KEY", "x")
    needs_dbutils.cache_clear()
    assert isinstance(storage_for(root, spark, ConversionOptions()), S3Storage)
    assert not needs_spark(root)


def test_compute_without_dbutils_is_refused_clearly(databricks_runtime, spark) -> None:
    databricks_runtime.setitem(sys.modules, "pyspark.dbutils", None)
    with pytest.raises(PermanentError, match="neither AWS credentials for Python nor dbutils"):
        DatabricksStorage(spark)


def test_one_of_many_writers_of_an_entry_wins_and_it_is_its_entry(storage, entry, databricks_runtime) -> None:
    databricks_runtime.setattr(databricks, "_PAUSES", (0.2,) * 100)  # no limit to the tries
    root = entry.parent.parent
    begin = Barrier(4)

    def write(number: int) -> bool:
        text = json.dumps({"commitInfo": {"txnId": f"w{number}", "engineInfo": "x"}})
        begin.wait()
        return commit(storage, root, 0, io.BytesIO(f"{text}\n".encode()), f"w{number}")

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(write, range(4)))
    assert won.count(True) == 1
    assert json.loads(read(storage, entry))["commitInfo"]["txnId"] == f"w{won.index(True)}"
    assert storage.list_names(entry.parent.child("_hive_to_delta")) == [], "no claim is left"


def test_the_claim_of_another_writer_counts_for_ten_minutes(storage, entry, databricks_runtime) -> None:
    claim = entry.parent.child("_hive_to_delta").child("claim-00000000000000000000.json-other")
    storage._files.put(str(claim), "", False)
    databricks_runtime.setattr(databricks, "_PAUSES", ())
    with pytest.raises(TransientError, match="Another writer is about to write"):
        storage.put_if_absent(entry, io.BytesIO(b"x"))
    assert storage.list_names(entry.parent) == ["_hive_to_delta/"]
    databricks_runtime.setattr(databricks, "_CLAIM_MILLISECONDS", -60_000)
    assert storage.put_if_absent(entry, io.BytesIO(b"x"))
    assert storage.list_names(claim.parent) == []


def test_texts_are_read_in_part_and_whole(storage, entry) -> None:
    """A long entry by its first lines, and then by Spark; a hidden file, which Spark passes over, by dbutils alone."""
    content = "".join(f'{{"é": {number}}}\n' for number in range(20_000)).encode()
    assert storage.put_if_absent(entry, io.BytesIO(content))
    assert read(storage, entry) == content
    storage._spark = SimpleNamespace()  # which is not asked for the first lines
    with storage.open(entry) as lines:
        assert lines.readline() == '{"é": 0}\n'.encode()
    hidden = entry.parent.child("_last_checkpoint")
    assert storage.put_if_absent(hidden, io.BytesIO(content))
    assert read(storage, hidden) == content


@pytest.mark.parametrize("can_copy", [True, False])
def test_a_long_text_goes_by_the_disk_where_that_is_allowed(storage, entry, databricks_runtime, can_copy) -> None:
    databricks_runtime.setattr(databricks, "_LONGEST_TEXT", 10)
    copy = Mock(side_effect=storage._files.cp)
    databricks_runtime.setattr(storage._files, "cp", copy)
    if not can_copy:
        ls = storage._files.ls
        databricks_runtime.setattr(
            storage._files, "ls", lambda path: _denied() if path.startswith("file:") else ls(path)
        )
    assert storage.put_if_absent(entry, io.BytesIO(b"a longer text\n"))
    assert read(storage, entry) == b"a longer text\n"
    assert copy.called is can_copy


def test_what_dbutils_raises_is_translated(storage, entry, databricks_runtime) -> None:
    databricks_runtime.setattr(storage._files, "ls", lambda _: _denied())
    with pytest.raises(AccessDeniedError, match="READ FILES and WRITE FILES on the external location"):
        storage.list_names(entry.parent)
    databricks_runtime.setattr(
        storage._files, "ls", lambda _: _raise("java.net.SocketTimeoutException: Read timed out")
    )
    with pytest.raises(TransientError, match="Read timed out"):
        storage.size(entry)
    databricks_runtime.setattr(storage._files, "ls", lambda _: _raise("java.io.FileNotFoundException: No such file"))
    with pytest.raises(MissingError):
        storage.size(entry)


def _denied() -> Any:
    return _raise("An error occurred while calling o1.ls.\n: java.nio.file.AccessDeniedException: Forbidden")


def _raise(text: str) -> Any:
    raise RuntimeError(text)
