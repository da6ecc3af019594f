"""S3Listing makes few LIST requests and finds what a plain listing finds, over a bucket in memory."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_to_delta.core.errors import AccessDeniedError, PartitionError, PermanentError
from airflow_hive_to_delta.core.files import SeenFolders
from airflow_hive_to_delta.core.listing import s3, s3_scan
from airflow_hive_to_delta.core.listing.locations import TableLocation, is_data_file
from airflow_hive_to_delta.core.listing.s3 import S3Listing
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.uri import Location
from tests.support.property_settings import examples

MODIFIED = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
ROOT = Location("s3", "b", "/t")


#: What a store sorts keys by: ``str`` on S3.
Order = Callable[[str], Any]


def by_names(key: str) -> list[str]:
    """The order of a store over a file system."""
    return key.split("/")


def backwards(key: str) -> list[list[int]]:
    """In the place of no order, which directory buckets have: they have no StartAfter."""
    return [[-ord(character) for character in name] for name in key.split("/")]


class FakeS3:
    """Buckets in memory: it answers as S3 does, and remembers what it was asked."""

    def __init__(self, buckets: Mapping[str, set[str]], order: Order = str) -> None:
        self.order = order
        self.buckets = {bucket: sorted(keys, key=order) for bucket, keys in buckets.items()}
        self.requests: list[dict[str, Any]] = []
        self.denied: set[str] = set()

    def list_objects_v2(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        prefix = request["Prefix"]
        if prefix in self.denied:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListObjectsV2")
        keys = self.buckets[request["Bucket"]]
        if "ContinuationToken" in request:
            keys = keys[int(request["ContinuationToken"]) :]
        elif "StartAfter" in request and self.order is not backwards:
            keys = keys[bisect_right(keys, self.order(request["StartAfter"]), key=self.order) :]
        start = len(self.buckets[request["Bucket"]]) - len(keys)
        objects: list[dict[str, Any]] = []
        folders: list[dict[str, str]] = []
        for number, key in enumerate(keys, start):
            if not key.startswith(prefix):
                continue
            end = key.find("/", len(prefix)) + 1 if "Delimiter" in request else 0
            if end and folders and folders[-1]["Prefix"] == key[:end]:
                continue
            if len(objects) + len(folders) == request["MaxKeys"]:
                found = {"Contents": objects, "CommonPrefixes": folders}
                return {**found, "IsTruncated": True, "NextContinuationToken": str(number)}
            if end:
                folders.append({"Prefix": key[:end]})
            else:
                objects.append({"Key": key, "Size": 0 if key.endswith("/") else 1, "LastModified": MODIFIED})
        return {"Contents": objects, "CommonPrefixes": folders, "IsTruncated": False}


@contextmanager
def answered_by(fake: FakeS3, locations: list[TableLocation], page_size: int = 1_000) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3, "table_locations", lambda *_: locations)
        patch.setattr(aws, "s3_client", lambda *_: fake)
        patch.setattr(s3, "_MAX_KEYS", page_size)
        patch.setattr(s3_scan, "PAGES_PER_WORKER", 1 if page_size < 1_000 else 4)
        yield


def list_all(
    fake: FakeS3, locations: list[TableLocation], page_size: int = 1_000, workers: int = 4, **options: Any
) -> tuple[dict[str, dict[str, str] | None], SeenFolders]:
    """Path and partition values of each file; what else was seen."""
    seen = SeenFolders()
    table = TableInfo("t", str(ROOT), partition_keys=["p", "q"])
    with answered_by(fake, locations, page_size):
        batches = list(S3Listing(max_workers=workers).list_batches(table, ConversionOptions(**options), None, seen))
    rows = [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]
    files = {row["path"]: row["partition_values"] for row in rows}
    assert len(files) == len(rows), "a file was found twice"
    return files, seen


def partition(folder: str, bucket: str = "b") -> TableLocation:
    return TableLocation(Location("s3", bucket, f"/{folder}"), {"p": folder}, f"the partition {folder} of t")


NAMES = st.sampled_from(["p=1", "p=1.5", "p=1-", "p=10", "p=2", "é", "\U0001f600", "\uffee", "_delta_log", "_h", "A"])
FOLDERS = st.lists(NAMES, min_size=1, max_size=2).map(lambda names: "/".join(["t", *names]))
KEYS = st.builds(
    lambda folder, name, marker: f"{folder}/" if marker else f"{folder}/{name}",
    st.lists(NAMES, max_size=3).map(lambda names: "/".join(["t", *names])),
    st.one_of(NAMES, st.sampled_from([*"abcdefgh", "0.json"])),
    st.booleans(),
)


def plain(keys: set[str], location: TableLocation) -> tuple[dict[str, dict[str, str | None] | None], set[Location]]:
    """The files of a location, and the folders with Delta logs in it that lie in no hidden folder."""
    prefix = f"{location.location.key}/"
    files: dict[str, dict[str, str | None] | None] = {}
    logs = set()
    for key in keys:
        path = key.removeprefix(prefix)
        if not key.startswith(prefix):
            continue
        if is_data_file(path, 0 if key.endswith("/") else 1):
            files[f"s3://{location.location.authority}/{key}"] = location.values
        names = path.split("/")
        if "_delta_log" in names:
            folder = "/".join(names[: names.index("_delta_log")])
            if is_data_file(folder, 1):
                logs.add(location.location.child(folder) if folder else location.location)
    return files, logs


def without_those_inside_others(folders: set[str]) -> list[str]:
    return [folder for folder in folders if not any(folder.startswith(f"{other}/") for other in folders)]


@examples(400, 20_000)
@given(
    st.sets(KEYS, max_size=60),
    st.sets(FOLDERS, max_size=12).map(without_those_inside_others),
    st.integers(1, 7),
    st.integers(1, 5),
)
def test_partitions_of_a_catalog_are_listed_as_one_by_one(
    keys: set[str], folders: list[str], page_size: int, workers: int
) -> None:
    locations = [partition(folder, "b" if number % 4 else "c") for number, folder in enumerate(folders)]
    fake = FakeS3({"b": keys, "c": keys})
    expected = [plain(keys, location) for location in locations]
    missing = [folder for folder in folders if not any(key.startswith(f"{folder}/") for key in keys)]
    if missing:
        with pytest.raises(PartitionError, match=rf"^{len(missing)} partition"):
            list_all(fake, locations, page_size, workers)
        fake.requests.clear()
    files, seen = list_all(fake, locations, page_size, workers, allow_missing_partitions=True)
    assert files == {path: values for found, _ in expected for path, values in found.items()}
    logs = {log for _, found in expected for log in found}
    assert seen.with_delta_log >= logs
    assert seen.whole == {location.location for location in locations}
    inside = [key for folder in folders for key in keys if key.startswith(f"{folder}/")]
    hidden = {key.rpartition("/")[0] for key in inside if not is_data_file(key.partition("/")[2], 1)}
    # A share of the folders may begin with keys that are not of them.
    assert len(fake.requests) <= 2 * len(folders) + len(inside) // page_size + len(hidden) + len(missing)
    for folder in {folder.rpartition("/")[0] for folder in folders}:
        if any(key.startswith(f"{folder}/_delta_log/") for key in keys):
            for bucket in {location.location.authority for location in locations}:
                assert seen.may_have_delta_log(Location("s3", bucket, f"/{folder}"))


@examples(400, 20_000)
@given(st.sets(KEYS, max_size=60), st.integers(1, 7), st.integers(1, 5))
def test_a_root_with_partition_folders_is_listed_as_a_whole(keys: set[str], page_size: int, workers: int) -> None:
    table = TableLocation(ROOT, None, "the table t")
    expected, logs = plain(keys, table)
    files, seen = list_all(FakeS3({"b": keys}), [table], page_size, workers)
    assert files == expected
    assert seen.with_delta_log >= logs
    assert seen.whole == {ROOT}


@examples(200, 20_000)
@given(
    st.sets(KEYS, max_size=60),
    st.sets(FOLDERS, max_size=12).map(without_those_inside_others),
    st.integers(2, 7),
    st.sampled_from([by_names, backwards]),
)
def test_no_file_is_lost_where_a_store_has_another_order(
    keys: set[str], folders: list[str], page_size: int, order: Order
) -> None:
    for locations in [[partition(folder) for folder in folders], [TableLocation(ROOT, None, "the table t")]]:
        fake = FakeS3({"b": keys}, order)
        try:
            files, _ = list_all(fake, locations, page_size, allow_missing_partitions=True)
        except PermanentError as refused:
            assert "in another order than S3" in str(refused)  # noqa: PT017 - it need not be raised
        else:
            found = [plain(keys, location)[0] for location in locations]
            assert files == {path: values for each in found for path, values in each.items()}


def numbered(count: int, name: str) -> list[str]:
    return [name.format(number) for number in range(count)]


def test_a_thousand_small_partitions_take_one_request_for_each_thousand_keys_and_a_few() -> None:
    folders = numbered(1_000, "t/p={:04}")
    keys = {f"{folder}/{number:02}" for folder in folders for number in range(20)}
    fake = FakeS3({"b": keys})
    files, _ = list_all(fake, [partition(folder) for folder in folders], workers=32)
    assert len(files) == 20_000
    assert len(fake.requests) <= 26  # 20 pages, and one more for each worker at most

    fake = FakeS3({"b": keys})
    files, _ = list_all(fake, [TableLocation(ROOT, None, "the table t")], workers=32)
    assert len(files) == 20_000
    assert len(fake.requests) <= 28  # one that shows how large the table is, and one for its folders


def test_a_small_table_takes_one_request() -> None:
    folders = numbered(30, "t/p={:02}")
    keys = {*(f"{folder}/{number}" for folder in folders for number in range(20)), "u/f", "s/f"}
    for locations in [[partition(folder) for folder in folders], [TableLocation(ROOT, None, "the table t")]]:
        fake = FakeS3({"b": keys})
        files, _ = list_all(fake, locations)
        assert (len(files), len(fake.requests)) == (600, 1)


def test_folders_between_those_of_partitions_have_been_seen_too() -> None:
    """No request is made for the log that each of them could have."""
    folders = [f"t/y={year}/m={month:02}" for year in range(2000, 2030) for month in range(1, 13)]
    keys = {f"{folder}/{number:02}" for folder in folders for number in range(20)}
    years = [Location("s3", "b", f"/t/y={year}") for year in range(2000, 2030)]
    _, seen = list_all(FakeS3({"b": keys}), [partition(folder) for folder in folders])
    assert not any(map(seen.may_have_delta_log, years))
    assert seen.may_have_delta_log(ROOT), "it was not listed as a whole"
    for number in (0, 17, 29):
        _, seen = list_all(
            FakeS3({"b": {*keys, f"t/y={2000 + number}/_delta_log/0"}}), [partition(folder) for folder in folders]
        )
        assert [year for year in years if seen.may_have_delta_log(year)] == [years[number]]


def test_what_is_not_the_tables_is_jumped_over() -> None:
    """Many keys of an orphan folder, which precedes that of the partition whose name it begins with, and of a log."""
    orphans = {*numbered(5_000, "t/p=1.5/{:04}"), *numbered(5_000, "t/_delta_log/{:04}")}
    fake = FakeS3({"b": {"t/A/f", "t/p=1/", "t/p=2/f", *orphans}})
    files, _ = list_all(fake, [partition(folder) for folder in ("t/p=2", "t/A", "t/p=1")])
    assert (set(files), len(fake.requests)) == ({"s3://b/t/A/f", "s3://b/t/p=2/f"}, 2)

    fake = FakeS3({"b": {*numbered(5_000, "t/_delta_log/{:04}"), "t/p=1/f"}})
    files, seen = list_all(fake, [TableLocation(ROOT, None, "the table t")])
    assert (set(files), len(fake.requests), seen.with_delta_log) == ({"s3://b/t/p=1/f"}, 2, {ROOT})


@pytest.mark.parametrize("before", [0, 8, 9, 10, 11, 19, 20, 21])
def test_the_log_of_a_nested_table_is_seen_wherever_a_page_ends(before: int) -> None:
    inner = {*numbered(25, "t/p=1/inner/_delta_log/{:020}.json"), "t/p=1/inner/f", "t/p=1/z"}
    keys = {*numbered(before, "t/p=1/a{:02}"), *inner, "t/p=2/f"}
    for locations in [[partition("t/p=1"), partition("t/p=2")], [TableLocation(ROOT, None, "the table t")]]:
        fake = FakeS3({"b": keys})
        files, seen = list_all(fake, locations, page_size=10)
        assert len(files) == before + 3
        assert seen.with_delta_log == {Location("s3", "b", "/t/p=1/inner")}
        assert seen.may_have_delta_log(Location("s3", "b", "/t/p=1/inner"))
        assert not seen.may_have_delta_log(Location("s3", "b", "/t/p=1"))


def test_directory_buckets_are_listed_folder_by_folder() -> None:
    bucket = "b--use1-az4--x-s3"
    fake = FakeS3({bucket: {*numbered(5, "t/p=1/{}"), *numbered(5, "t/p=2/{}")}}, backwards)
    files, _ = list_all(fake, [partition("t/p=1", bucket), partition("t/p=2", bucket)], page_size=3)
    assert len(files) == 10
    assert {request["Prefix"] for request in fake.requests} == {"t/p=1/", "t/p=2/"}
    assert not any("StartAfter" in request for request in fake.requests)

    fake.requests.clear()
    table = TableLocation(Location("s3", bucket, "/t"), None, "the table t")
    assert set(list_all(fake, [table], page_size=3)[0]) == set(files)
    assert not any("StartAfter" in request for request in fake.requests)


def test_a_store_without_order_is_listed_folder_by_folder_and_one_that_loses_it_is_refused() -> None:
    locations = [partition("t/p=1"), partition("t/p=2")]
    keys = {*numbered(5, "t/p=1/{}"), *numbered(5, "t/p=2/{}")}
    fake = FakeS3({"b": keys}, backwards)
    assert len(list_all(fake, locations, page_size=3)[0]) == 10
    fake = FakeS3({"b": keys})
    fake.buckets["b"][8:] = ["t/p=2/4", "t/p=2/3"]
    with pytest.raises(PermanentError, match="in another order than S3"):
        list_all(fake, locations, page_size=6, workers=1)


def test_who_may_list_the_partitions_but_not_what_is_between_them_lists_each() -> None:
    locations = [partition("t/p=1"), partition("t/p=2")]
    fake = FakeS3({"b": {*numbered(5, "t/p=1/{}"), *numbered(5, "t/p=2/{}")}})
    fake.denied = {"t/p="}
    assert len(list_all(fake, locations)[0]) == 10
    fake.denied = {"t/p=", "t/p=2/"}
    with pytest.raises(AccessDeniedError, match=r"the partition t/p=2 of t at s3://b/t/p=2: AccessDenied"):
        list_all(fake, locations)
