"""Listing the files of tables on S3, with boto3."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from airflow_hive_to_delta.core.errors import HiveToDeltaError, PermanentError
from airflow_hive_to_delta.core.files import ListedFiles, SeenFolders, files_batch
from airflow_hive_to_delta.core.listing.base import DataFrameListing
from airflow_hive_to_delta.core.listing.locations import (
    UNREADABLE_NAMES,
    TableLocation,
    check_missing,
    is_data_file,
    table_locations,
)
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.aws_errors import aws_call
from airflow_hive_to_delta.core.storage.base import DELTA_LOG
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class S3Listing(DataFrameListing):
    """Lists files on S3 with boto3 from this machine, with many requests in parallel, each bucket in its own region.

    :param region: where to ask for the buckets' regions, and the region of the Glue database.
    :param glue_database: the Glue database that has the tables' partitions, when the tables do not say so themselves.
    :param max_workers: how many requests are made in parallel.
    """

    def __init__(self, region: str | None = None, glue_database: str | None = None, max_workers: int = 32) -> None:
        self.region = region
        self.glue_database = glue_database
        self.max_workers = min(max_workers, aws.MAX_CONNECTIONS)

    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame:
        return self.list_table(spark, table, options).frame

    def list_table(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> ListedFiles:
        seen = SeenFolders()
        batches = self.list_batches(table, options, spark, seen)
        return ListedFiles.from_batches(spark, batches, seen)

    def list_batches(
        self,
        table: TableInfo,
        options: ConversionOptions,
        spark: SparkSession | None = None,
        seen: SeenFolders | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The files of a table in FILES_ARROW_SCHEMA, as they are found, in no order.

        A few pages of them are held at a time. The list is complete when the iterator has ended, and only
        then a missing partition is an error.

        :param spark: needed for tables whose partitions the session's catalog knows.
        :param seen: gets what else is there.
        :raises PartitionError: a partition has nothing at its location, and the options do not allow that.
        :raises PermanentError: a location is not on S3, or a key cannot be addressed by a Hadoop file system.
        """
        seen = seen or SeenFolders()
        locations = table_locations(spark, table, options, self.glue_database, self.region, self.max_workers)
        for found in locations:
            if found.location.scheme not in S3_SCHEMES:
                raise PermanentError(
                    f"{found.description} is at {found.location}, which is not on S3; list it with DatabricksListing"
                )
        folders = [_Folder(found, f"{found.location.key}/" if found.location.key else "") for found in locations]
        in_paths = table.partition_keys if locations and locations[0].values is None else []
        with ThreadPoolExecutor(self.max_workers) as pool:
            # A root is one folder. Its partition folders are listed level by level, until there are enough for all
            # workers.
            for _ in in_paths:
                if len(folders) < self.max_workers:
                    below = []
                    for index, page in self._list_all(pool, folders, options, one_level=True):
                        seen.add_all(folders[index].listed.location, page.delta_logs)
                        yield from page.batches
                        below += page.folders
                    folders = below
            present = set()
            for index, page in self._list_all(pool, folders, options, one_level=False):
                seen.add_all(folders[index].listed.location, page.delta_logs)
                yield from page.batches
                if page.has_objects:
                    present.add(index)
        missing = [folder.listed for index, folder in enumerate(folders) if index not in present]
        check_missing(table, missing, options)
        seen.whole.update(found.location.canonical for found in locations)

    def _list_all(
        self, pool: ThreadPoolExecutor, folders: list[_Folder], options: ConversionOptions, *, one_level: bool
    ) -> Iterator[tuple[int, _Page]]:
        """The pages of all folders, each with the index of its folder, listed in parallel as fast as they are taken."""
        found: queue.Queue[tuple[int, _Page | Exception | None]] = queue.Queue(maxsize=self.max_workers)
        stopped = threading.Event()

        def list_one(number: int) -> None:
            try:
                for page in self._list(folders[number], options, one_level):
                    if stopped.is_set():
                        return
                    found.put((number, page))
                found.put((number, None))
            except Exception as error:
                found.put((number, error))

        listed = [pool.submit(list_one, number) for number in range(len(folders))]
        try:
            left = len(folders)
            while left:
                number, page = found.get()
                if isinstance(page, Exception):
                    raise page
                if page is None:
                    left -= 1
                else:
                    yield number, page
        finally:
            stopped.set()
            for task in listed:
                task.cancel()
            # A task that waits for room in the queue gets it, then sees that it has to stop.
            while not all(task.done() for task in listed):
                with suppress(queue.Empty):
                    found.get(timeout=0.05)

    def _list(self, folder: _Folder, options: ConversionOptions, one_level: bool) -> Iterator[_Page]:
        location = folder.listed.location
        base = len(f"{location.key}/") if location.key else 0
        for answer in self._pages(folder, options, {"Delimiter": "/"} if one_level else {}):
            files = []
            for found in answer.get("Contents", []):
                key, size = found["Key"], found["Size"]
                if not is_data_file(key[base:], size):
                    continue
                if not UNREADABLE_NAMES.isdisjoint(key[base:].split("/")):
                    raise PermanentError(
                        f"The key {key!r} in the bucket {location.authority}, of {folder.listed.description}, has an "
                        "empty, '.' or '..' segment, which no Hadoop file system can address. Rename or remove the "
                        "object"
                    )
                path = f"{location.scheme}://{location.authority}/{key}"
                files.append((path, size, round(found["LastModified"].timestamp() * 1000)))
            prefixes = [found["Prefix"] for found in answer.get("CommonPrefixes", [])]
            yield _Page(
                batches=[files_batch(files, folder.listed.values)] if files else [],
                folders=[_Folder(folder.listed, prefix) for prefix in prefixes if is_data_file(prefix[base:], size=1)],
                has_objects=bool(answer.get("Contents")),
                delta_logs=[
                    key[base:]
                    for key in (*(found["Key"] for found in answer.get("Contents", [])), *prefixes)
                    if DELTA_LOG in key
                ],
            )

    def _pages(
        self, folder: _Folder, options: ConversionOptions, delimiter: dict[str, str]
    ) -> Iterator[dict[str, Any]]:
        bucket = folder.listed.location.authority
        doing = f"Listing {folder.listed.description} at {folder.listed.location}"
        owner = options.expected_bucket_owner
        try:
            client = aws.s3_client(bucket, self.region or options.region, owner)
        except HiveToDeltaError as error:
            raise type(error)(f"{doing}: {error}") from error
        pages: Any = client.get_paginator("list_objects_v2")
        with aws_call(doing):
            yield from pages.paginate(Bucket=bucket, Prefix=folder.prefix, **delimiter, **aws.owner(owner))


class _Folder(NamedTuple):
    """A prefix to list, which is that of a table's location or one below it."""

    listed: TableLocation
    prefix: str


class _Page(NamedTuple):
    """One answer to a LIST request."""

    batches: list[pa.RecordBatch]
    folders: list[_Folder]
    #: Whether there was any object, a data file or not.
    has_objects: bool
    #: Paths of objects and folders of Delta logs, from the location.
    delta_logs: list[str]
