"""A Hive table on local disk, before and after its conversion."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.hive_folder import Folder


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    hive = Folder(spark, tmp_path / "t")
    hive.write("1", "000000_0", [1, 2])
    hive.write("2", "000000_0", [3])
    return hive


@pytest.fixture
def converted(folder: Folder) -> Folder:
    folder.convert()
    return folder
