"""Put-if-absent, reading and listing of log entries, on each storage."""

from __future__ import annotations

import io
import os
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from airflow_hive_to_delta.core.errors import MissingError, PermanentError, TransientError
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.base import Storage
from airflow_hive_to_delta.core.storage.databricks import DatabricksStorage
from airflow_hive_to_delta.core.storage.hadoop import HadoopStorage
from airflow_hive_to_delta.core.storage.local import LocalStorage
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.s3 import S3Storage
from airflow_hive_to_delta.core.storage.uri import Location, parse_location
from tests.support import dbutils_module
from tests.support.files import tree
from tests.support.s3_servers import s3_server
from tests.support.storages import read

MEBIBYTE = 1024 * 1024


@pytest.fixture(params=["moto", "s3proxy", "local", "hadoop", "dbutils"])
def storage_folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Storage, Location]]:
    """A storage and a folder on it that does not exist yet."""
    if request.param in ("moto", "s3proxy"):
        with s3_server(request, request.param) as client:
            name = f"b-{uuid.uuid4().hex[:12]}"
            client.create_bucket(Bucket=name)
            yield S3Storage(ConversionOptions()), parse_location(f"s3://{name}/a b/t'1%20")
    elif request.param == "dbutils":
        monkeypatch.setitem(sys.modules, "pyspark.dbutils", dbutils_module)
        bucket = request.getfixturevalue("bucket")
        yield DatabricksStorage(request.getfixturevalue("spark")), parse_location(f"s3://{bucket}/a b/t'1%20")
    else:
        found = LocalStorage() if request.param == "local" else HadoopStorage(request.getfixturevalue("spark"))
        yield found, parse_location(f"{tmp_path}/a b/t'1%20")


class Broken(io.BytesIO):
    """A source whose second read fails, as on a full or broken disk."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise OSError(5, "made up")
        return super().read(10)


def test_rule_2_an_entry_is_written_once_and_never_overwritten(storage_folder: tuple[Storage, Location]) -> None:
    storage, folder = storage_folder
    path = folder.child("0.json")
    assert storage.put_if_absent(path, io.BytesIO(b"first"))
    assert not storage.put_if_absent(path, io.BytesIO(b"second, longer"))
    assert read(storage, path) == b"first"
    assert storage.size(path) == 5
    assert storage.list_names(folder) == ["0.json"], "no temporary file is left"


def test_a_source_is_written_from_its_beginning_whatever_was_read_of_it(
    storage_folder: tuple[Storage, Location],
) -> None:
    storage, folder = storage_folder
    source = io.BytesIO(b"one\ntwo\n")
    source.read()
    assert storage.put_if_absent(folder.child("x"), source)
    with storage.open(folder.child("x")) as lines:
        assert lines.readline() == b"one\n"
    with storage.open(folder.child("x")) as lines:
        assert list(lines) == [b"one\n", b"two\n"]


def test_a_large_entry_is_streamed_whole(storage_folder: tuple[Storage, Location]) -> None:
    storage, folder = storage_folder
    content = os.urandom(3 * MEBIBYTE + 17)
    assert storage.put_if_absent(folder.child("x"), io.BytesIO(content))
    assert read(storage, folder.child("x")) == content


def test_absent_is_said_so(storage_folder: tuple[Storage, Location]) -> None:
    storage, folder = storage_folder
    assert storage.list_names(folder) == []
    with pytest.raises(MissingError, match=r"0\.json"):
        storage.open(folder.child("0.json"))
    with pytest.raises(MissingError, match=r"0\.json"):
        storage.size(folder.child("0.json"))


def test_names_are_listed_one_level_deep(storage_folder: tuple[Storage, Location]) -> None:
    storage, folder = storage_folder
    for name in ("b", "a%20b", "sub/c", "sub/d"):
        storage.put_if_absent(Location(folder.scheme, folder.authority, f"{folder.path}/{name}"), io.BytesIO(b"x"))
    assert sorted(storage.list_names(folder)) == ["a%20b", "b", "sub/"]


def test_entries_have_sizes_and_times_and_no_folders(storage_folder: tuple[Storage, Location]) -> None:
    storage, folder = storage_folder
    assert storage.list_files(folder) == []
    before = time.time_ns() // 1_000_000
    for name, content in (("b", b""), ("a%20b", b"abc"), ("sub/c", b"x")):
        storage.put_if_absent(Location(folder.scheme, folder.authority, f"{folder.path}/{name}"), io.BytesIO(content))
    found = {file.name: file for file in storage.list_files(folder)}
    assert {name: file.size for name, file in found.items()} == {"a%20b": 3, "b": 0}
    # S3 tells whole seconds.
    assert all(before - 1000 <= file.modified <= time.time_ns() // 1_000_000 for file in found.values())


def test_deleting_can_be_done_again(storage_folder: tuple[Storage, Location]) -> None:
    storage, folder = storage_folder
    for name in ("a", "b"):
        storage.put_if_absent(folder.child(name), io.BytesIO(b"x"))
    storage.delete(folder.child("a"))
    storage.delete(folder.child("a"))
    assert storage.list_names(folder) == ["b"]


def test_a_file_is_moved_whole_and_moving_can_be_done_again(storage_folder: tuple[Storage, Location]) -> None:
    storage, folder = storage_folder
    source, target = folder.child("a%20b"), folder.child("aside").child("c d").child("e+f")
    content = os.urandom(MEBIBYTE + 1)
    storage.put_if_absent(source, io.BytesIO(content))
    storage.move(source, target)
    assert read(storage, target) == content
    assert storage.list_names(folder) == ["aside/"]
    storage.move(source, target)
    assert read(storage, target) == content
    with pytest.raises(MissingError):
        storage.move(source, folder.child("elsewhere"))


def test_the_storage_follows_the_scheme() -> None:
    options = ConversionOptions()
    for scheme in ("s3", "s3a", "s3n"):
        assert isinstance(storage_for(parse_location(f"{scheme}://b/t"), None, options), S3Storage)
    assert isinstance(storage_for(parse_location("/t"), None, options), LocalStorage)


def test_a_session_without_a_jvm_is_refused_clearly() -> None:
    class Connect:
        """What a Spark Connect session answers."""

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    for session in (None, Connect()):
        with pytest.raises(PermanentError, match="Spark Connect"):
            storage_for(parse_location("hdfs://n/t"), session, ConversionOptions())  # type: ignore[arg-type]


def test_a_file_system_without_its_jar_is_refused(spark: Any) -> None:
    storage = storage_for(parse_location("gs://b/t"), spark, ConversionOptions())
    with pytest.raises(PermanentError, match="jar"):
        storage.put_if_absent(parse_location("gs://b/t/x"), io.BytesIO(b"x"))


@pytest.mark.parametrize("kind", ["local", "hadoop"])
def test_rule_3_a_write_that_fails_leaves_the_folder_as_it_was(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    storage = LocalStorage() if kind == "local" else HadoopStorage(request.getfixturevalue("spark"))
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "data.parquet").write_bytes(b"data")
    before = tree(tmp_path)
    with pytest.raises((TransientError, OSError)):
        storage.put_if_absent(parse_location(f"{tmp_path}/table/_delta_log/0.json"), Broken(b"x" * 100))
    assert tree(tmp_path) == before


def test_rule_3_an_exclusive_link_lets_one_of_many_writers_win(tmp_path: Path) -> None:
    barrier = Barrier(8)

    def write(number: int) -> bool:
        barrier.wait()
        return LocalStorage().put_if_absent(parse_location(f"{tmp_path}/new/_delta_log/0"), io.BytesIO(b"%d" % number))

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert won.count(True) == 1
    assert tree(tmp_path) == {"new": None, "new/_delta_log": None, "new/_delta_log/0": b"%d" % won.index(True)}


def test_a_local_entry_can_be_read_by_others(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        LocalStorage().put_if_absent(parse_location(f"{tmp_path}/x"), io.BytesIO(b"x"))
    finally:
        os.umask(old)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644


def test_a_file_in_the_way_of_a_folder_is_no_passing_failure(tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(b"")
    with pytest.raises(PermanentError, match="table"):
        LocalStorage().put_if_absent(parse_location(f"{tmp_path}/table/_delta_log/0"), io.BytesIO(b"x"))


def test_a_file_that_is_gone_in_the_middle_of_a_listing_hides_no_other(tmp_path, monkeypatch) -> None:
    """The temporary file of another writer: without the rest, a log would be taken for missing."""
    (tmp_path / "00000000000000000000.json").write_text("{}")
    (tmp_path / ".temporary").write_text("")
    entries = list(os.scandir(tmp_path))
    (tmp_path / ".temporary").unlink()
    monkeypatch.setattr(os, "scandir", lambda _: nullcontext(entries))
    found = LocalStorage().list_files(parse_location(str(tmp_path)))
    assert [file.name for file in found] == ["00000000000000000000.json"]
