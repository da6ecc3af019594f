"""Which of many files are still there: a listing for each folder, not a request for each file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from typing import TYPE_CHECKING, TypeVar

from airflow_hive_to_delta.core.storage.log_storage import StoredFile, storage_for
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_hive_to_delta.core.options import ConversionOptions

T = TypeVar("T")
#: Folders listed side by side.
_WORKERS = 16


def with_presence(
    files: Iterable[tuple[Location, T]], spark: SparkSession, options: ConversionOptions
) -> Iterator[tuple[Location, T, StoredFile | None]]:
    """Each file with what its storage says of it; None: it is not there.

    :param files: in the order of their paths, so that those of a folder come together. They are taken as they are
        needed, a few folders at a time.
    """
    folders = ((folder, list(found)) for folder, found in groupby(files, key=lambda file: file[0].parent))

    def listed(folder: Location) -> dict[str, StoredFile]:
        return {file.name: file for file in storage_for(folder, spark, options).entries(folder)}

    with ThreadPoolExecutor(_WORKERS) as pool:
        while some := list(islice(folders, _WORKERS)):
            found = pool.map(listed, [folder for folder, _ in some])
            for (_, wanted), there in zip(some, found, strict=True):
                for location, known in wanted:
                    yield location, known, there.get(location.path.rpartition("/")[2])
