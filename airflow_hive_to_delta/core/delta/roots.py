"""Finding out which folders are the root of a Delta table, with one request for each folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.delta.log.files import log_folder
from airflow_hive_to_delta.core.errors import MissingError, PermanentError
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_hive_to_delta.core.options import ConversionOptions

#: Folders that are looked at in parallel.
_WORKERS = 32
#: Folders that are queued at a time.
_FOLDERS_PER_BATCH = 1_000


def folders_above(files: Iterable[Location]) -> list[Location]:
    """Every folder above these files, up to the root of their storage, each once."""
    found: dict[Location, Location] = {}
    for file in files:
        folder = file
        while folder.path:
            folder = folder.parent
            if folder.canonical in found:
                break
            found[folder.canonical] = folder
    return list(found.values())


def delta_roots(
    folders: Iterable[Location],
    spark: SparkSession | None,
    options: ConversionOptions,
    *,
    may_be_unknown: Callable[[Location], bool] = lambda _: False,
) -> Iterator[Location]:
    """The folders among these that hold a Delta log.

    :param may_be_unknown: says of a folder that cannot be listed, for want of rights for example, whether to ignore it.
    :raises AccessDeniedError: another folder may not be listed, so that a log in it would not be seen (rule 54).
    """

    def is_root(folder: Location) -> bool:
        try:
            return bool(storage_for(folder, spark, options).list_names(log_folder(folder)))
        except MissingError:
            return False
        except PermanentError:
            if may_be_unknown(folder):
                return False
            raise

    left = iter(folders)
    with ThreadPoolExecutor(_WORKERS) as pool:
        while batch := list(islice(left, _FOLDERS_PER_BATCH)):
            yield from (folder for folder, found in zip(batch, pool.map(is_root, batch), strict=True) if found)
