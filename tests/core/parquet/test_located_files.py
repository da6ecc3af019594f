"""Files that are located folder by folder, against each of them located by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_to_delta import ConversionOptions
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.files import files_table
from airflow_hive_to_delta.core.parquet.add_actions import FileLocator, FilePlacement
from airflow_hive_to_delta.core.parquet.located_files import canonical_uris, locate_files
from airflow_hive_to_delta.core.storage.uri import canonical_uri, parse_location

ROOT = parse_location("s3://b/t")
TYPES = {"day": "date", "k": "string"}
GIVEN: dict[str, str | None] = {"day": "2024-01-01", "k": "x"}


def file(path: str, values: Mapping[str, str | None] | None = None, size: int = 7) -> dict[str, Any]:
    return {"path": path, "size": size, "modification_time": 8, "partition_values": values}


IN_PARTITION = "s3://b/t/day=2024-01-01/k=a"
HIDDEN_NAMES = ("_SUCCESS", ".hidden", "x_$folder$", "a._COPYING_")
VECTOR = "deletion_vector_01234567-89ab-cdef-0123-456789abcdef.bin"
#: Files by what is odd in them.
FILES = {
    "none": [],
    "partitions in the path": [
        *(file(f"s3://b/t/day=2024-01-0{day}/k={k}/{n}") for day in (1, 2) for k in ("a", "%20", "ü") for n in "12"),
        file("s3a://b/t/day=2024-01-01/k=a/000003_0"),
        file("s3://b/t/day=__HIVE_DEFAULT_PARTITION__/k=__HIVE_DEFAULT_PARTITION__/f"),
    ],
    "values of the catalog": [
        *(file(f"s3://other/p/{n}", GIVEN) for n in "123"),
        *(file(f"s3://other/p/{n}", {"day": None, "k": "y"}) for n in "45"),  # two partitions in one folder
        file("s3://b/t/x", {"k": "", "day": "2024-01-02"}),
        file("s3://b/t/y", {"k": None, "day": "2024-01-02"}),
    ],
    "some with values of the catalog": [file(f"{IN_PARTITION}/1"), file(f"{IN_PARTITION}/2", GIVEN)],
    "no data files": [
        *(file(f"{IN_PARTITION}/{name}") for name in (*HIDDEN_NAMES, VECTOR, "deletion_vector_of_mine", "1")),
        *(file(f"s3://b/t/{folder}/day=2024-01-01/k=a/1") for folder in ("_temporary", ".hive-staging_1", "sub")),
        *(file(f"s3://b/t/{folder}/1", GIVEN) for folder in ("_hidden", "_temporary")),
        *(file(f"s3://other/{folder}/day=2024-01-01/k=a/1") for folder in ("_hidden", "_temporary")),
        file(f"{IN_PARTITION}/empty", size=0),
    ],
    "odd characters": [file(f"{IN_PARTITION}/{name}") for name in ("a b", "ü😀", "a\nb", "a%2Fb", "a:b", "=", "\\")],
}
#: Files that cannot be part of the table.
WRONG = {
    "no partition": file("s3://b/t/stray"),
    "no date": file("s3://b/t/day=x/k=a/1"),
    "outside the allowed roots": file("s3://elsewhere/day=2024-01-01/k=a/1"),
    "a bucket": file("s3://b"),
    "a negative size": file("s3://b/t/day=2024-01-01/k=a/1", size=-1),
    "an empty name": file("s3://b/t/day=2024-01-01//1"),
    "a parent folder": file("s3://b/t/day=2024-01-01/k=a/.."),
    "relative": file("1"),
    "values of other names": file("s3://b/t/1", {"day": "2024-01-01", "other": "x"}),
    "too few values": file("s3://b/t/1", {"day": "2024-01-01"}),
}


def new_locator() -> FileLocator:
    return FileLocator(ROOT, TYPES, ConversionOptions(allowed_roots=["s3://b", "s3://other"]))


def locate_each(files: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    locator = new_locator()
    found = [(each, placement) for each in files if (placement := locator.locate(each)) is not None]
    return sorted(
        (
            each["path"],
            each["size"],
            canonical_uri(placement.location),
            *((placement.partition_values or {}).get(name) or "null" for name in TYPES),
        )
        for each, placement in found
    )


def test_the_rest_of_a_longer_list_is_located_alike() -> None:
    files = [file("s3://b/t/0", {"other": "x"}), *FILES["values of the catalog"]]
    sliced = files_table(files).combine_chunks().slice(1)
    located = locate_files(sliced, new_locator(), list(TYPES))
    assert located.files["key"].to_pylist() == [each["path"] for each in FILES["values of the catalog"]]


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_files_are_where_each_of_them_is(files: list[dict[str, Any]]) -> None:
    located = locate_files(files_table(files), new_locator(), list(TYPES))
    columns = [*(located.files[name] for name in ("path", "size", "key")), *located.values]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    assert sorted((*row[:3], *(value or "null" for value in row[3:])) for row in rows) == locate_each(files)
    assert located.files["modification_time"].to_pylist() == [8] * located.files.num_rows


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_file_that_cannot_be_in_the_table_is_refused_among_others(wrong: dict[str, Any]) -> None:
    others = FILES["partitions in the path"]
    with pytest.raises(HiveToDeltaError) as by_itself:
        locate_each([*others, wrong])
    with pytest.raises(HiveToDeltaError) as together:
        locate_files(files_table([*others, wrong]), new_locator(), list(TYPES))
    assert type(together.value) is type(by_itself.value)


def test_locating_takes_one_look_at_each_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    locate = FileLocator.locate

    def noting(locator: FileLocator, each: dict[str, Any]) -> FilePlacement | None:
        looked_at.append(each["path"])
        return locate(locator, each)

    monkeypatch.setattr(FileLocator, "locate", noting)
    files = [file(f"s3://b/t/day=2024-01-01/k={k}/{n}") for k in "abc" for n in range(100)]
    assert locate_files(files_table(files), new_locator(), list(TYPES)).files.num_rows == 300
    assert len(looked_at) == 3


def test_canonical_uris_are_those_of_each_path() -> None:
    paths = ["s3a://b/x/1", "s3://b/x/1", "/d/e", "file:/d/e", "file:///d/e", "file:///d/f g%20", "hdfs:///h/ü", "/x"]
    assert canonical_uris(pa.array(paths)).to_pylist() == [canonical_uri(parse_location(path)) for path in paths]
