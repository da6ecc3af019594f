"""Looking up many files at once: one listing for each of their folders, instead of one request for each file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from typing import TYPE_CHECKING, TypeVar

from airflow_hive_to_delta.core.storage.base import StoredFile
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_hive_to_delta.core.options import ConversionOptions

T = TypeVar("T")
#: Folders that are listed in parallel.
_WORKERS = 16


def look_up_files(
    files: Iterable[tuple[Location, T]], spark: SparkSession, options: ConversionOptions
) -> Iterator[tuple[Location, T, StoredFile | None]]:
    """Each file with its size and modification time on the storage, or with None when it does not exist.

    :param files: locations, each with anything that the caller wants back with it. They are in the order of their
        paths, so that the files of a folder come together, and are consumed a few folders at a time.
    """
    folders = ((folder, list(found)) for folder, found in groupby(files, key=lambda file: file[0].parent))

    def listed(folder: Location) -> dict[str, StoredFile]:
        return {file.name: file for file in storage_for(folder, spark, options).list_files(folder)}

    with ThreadPoolExecutor(_WORKERS) as pool:
        while some := list(islice(folders, _WORKERS)):
            found = pool.map(listed, [folder for folder, _ in some])
            for (_, wanted), there in zip(some, found, strict=True):
                for location, known in wanted:
                    yield location, known, there.get(location.path.rpartition("/")[2])
