"""Where a file belongs in a table, by its location."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_to_delta import ConversionOptions
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.core.parquet.add_actions import FileLocator
from airflow_hive_to_delta.core.storage.uri import parse_location

PATHS = [
    *("s3://b/t/p=1/a", "s3://b/t/p=1/b", "s3a://b/t/p=1/c", "s3://b/t/p=1/", "s3://b/t/p=1/..", "s3://b/t/p=1/x\0y"),
    *("s3://b/t/p=2/k:v@w", "s3://b/t/p=2/a b%20c", "s3://b", "s3://other", "s3://b/t/p=3//d", "s3://b/t/p=3/e"),
    *("/f", "f", "file:///f", "file:/f", "s3://k:s@b/t/p=4/a", "s3://b/t/p=4/a", "s3://b/t/p=x/a", "s3://b/t/p=x/b"),
    *("s3://elsewhere/p=1/a", "s3://elsewhere/p=1/_hidden", "s3://b/t/_tmp/a", "s3://b/t/p=1/.a", "S3://b/t/p=1/z"),
]


def locate(locator: FileLocator, path: str) -> Any:
    try:
        return locator.locate({"path": path, "size": 1, "modification_time": 0, "partition_values": None})
    except HiveToDeltaError as error:
        return type(error), str(error)


@pytest.mark.parametrize("paths", [PATHS, PATHS[::-1]], ids=["in order", "from the end"])
def test_a_file_is_located_alike_whatever_came_before_it(paths: list[str]) -> None:
    arguments: Any = (parse_location("s3://b/t"), {"p": "integer"}, ConversionOptions())
    shared = FileLocator(*arguments)
    for path in [*paths, *paths]:
        assert locate(shared, path) == locate(FileLocator(*arguments), path), path
