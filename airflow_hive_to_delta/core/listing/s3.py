"""Listing the files of tables on S3, with boto3."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_hive_to_delta.core.errors import HiveToDeltaError, PermanentError
from airflow_hive_to_delta.core.files import ListedFiles, SeenFolders
from airflow_hive_to_delta.core.listing.base import DataFrameListing
from airflow_hive_to_delta.core.listing.locations import TableLocation, check_missing, table_locations
from airflow_hive_to_delta.core.listing.s3_scan import Folder, Page, SendList, Span, list_level, scan
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.aws_errors import aws_call
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class S3Listing(DataFrameListing):
    """Lists files on S3 with boto3 from this machine, with many requests in parallel, each bucket in its own region.

    The files of a table are held in this process as one Arrow table: some 150 bytes a file, about 150 MB for a million
    files. For tables that are too large for that, list by Spark or from an inventory.

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
        locations = table_locations(spark, table, options, self.glue_database, self.region, self.max_workers)
        yield from self.list_locations(table, locations, options, seen)

    def list_locations(
        self,
        table: TableInfo,
        locations: Sequence[TableLocation],
        options: ConversionOptions,
        seen: SeenFolders | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The files of a table as :meth:`list_batches` gives them, where its locations are known already.

        :param locations: all that :func:`table_locations` gives for the table.
        """
        seen = seen or SeenFolders()
        for found in locations:
            if found.location.scheme not in S3_SCHEMES:
                raise PermanentError(
                    f"{found.description} is at {found.location}, which is not on S3; list it with DatabricksListing"
                )
        folders = [Folder(found, f"{found.location.key}/" if found.location.key else "") for found in locations]
        in_paths = table.partition_keys if locations and locations[0].values is None else []
        present: set[tuple[str, str]] = set()
        with ThreadPoolExecutor(self.max_workers) as pool:
            workers = _Workers(pool, self.max_workers, partial(self._send, options))
            pages = (
                _list_partitioned_root(workers, folders[0], len(in_paths))
                if in_paths
                else _list_folders(workers, folders)
            )
            # Closed before the pool, which waits for its threads.
            with closing(pages):
                for page in pages:
                    for location, path in page.delta_logs:
                        seen.add_all(location, [path])
                    if page.key_range:
                        seen.add_range(*page.key_range)
                    present |= page.present
                    yield from page.batches
        missing = [folder.listed for folder in folders if (folder.bucket, folder.prefix) not in present]
        check_missing(table, missing, options)
        seen.whole.update(found.location.canonical for found in locations)

    def _send(self, options: ConversionOptions, folder: Folder, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send one LIST request. The error of one that fails names the folder's location."""
        doing = f"Listing {folder.listed.description} at {folder.listed.location}"
        owner = options.expected_bucket_owner
        try:
            client: Any = aws.s3_client(folder.bucket, self.region or options.region, owner)
        except HiveToDeltaError as error:
            raise type(error)(f"{doing}: {error}") from error
        with aws_call(doing):
            answer: Mapping[str, Any] = client.list_objects_v2(
                Bucket=folder.bucket, MaxKeys=_MAX_KEYS, **arguments, **aws.owner(owner)
            )
        return answer


#: How many keys a page has at most. S3 gives no more.
_MAX_KEYS = 1_000
#: The end of the names of directory buckets (S3 Express), which give keys in no order.
_DIRECTORY_BUCKET = "--x-s3"


def _list_folders(workers: _Workers, folders: Sequence[Folder], *, in_order: bool = True) -> Generator[Page]:
    """The pages of all that lies in folders.

    :param in_order: False for a store that gives keys in no order.
    """
    by_bucket: dict[str, list[Folder]] = {}
    spans, alone = [], []
    for folder in folders:
        if in_order and not folder.bucket.endswith(_DIRECTORY_BUCKET):
            by_bucket.setdefault(folder.bucket, []).append(folder)
        else:
            alone.append(folder)
    for found in by_bucket.values():
        spans.append(Span(sorted(found, key=attrgetter("prefix"))))
    spans += [Span([folder], in_order=False) for folder in alone]
    present: set[tuple[str, str]] = set()
    for page in workers.scan(spans):
        present |= page.present
        yield page
    # A folder that nothing was seen of among others is listed by itself. It is empty, or the store has an order of its
    # own, such as that of the folders' names without the slash.
    among_others = [folder for found in by_bucket.values() if len(found) > 1 for folder in found]
    unseen = [folder for folder in among_others if (folder.bucket, folder.prefix) not in present]
    yield from workers.scan([Span([folder], in_order=False) for folder in unseen])


def _list_partitioned_root(workers: _Workers, root: Folder, levels: int) -> Generator[Page]:
    """The pages of a table's root, where the folders of the first levels are those of partitions.

    A small table is listed as a whole. The partition folders of a larger one are found level by level, until there are
    enough for all workers.
    """
    in_order = not root.bucket.endswith(_DIRECTORY_BUCKET)
    if in_order:
        whole: list[Page] = []
        for page in scan(Span([root]), workers.send, lambda: 0):
            whole.append(page)
            in_order = not page.handed_over
            if page.is_followed or page.handed_over:
                break
        else:
            yield from whole
            return
    folders = [root]
    for _ in range(levels):
        if len(folders) < workers.count:
            below: list[Folder] = []
            for page in workers.list_levels(folders):
                below += page.folders
                yield page
            folders = below
    yield from _list_folders(workers, folders, in_order=in_order)


class _Workers:
    """Threads that list folders in parallel, as fast as their pages are taken."""

    def __init__(self, pool: ThreadPoolExecutor, count: int, send: SendList) -> None:
        self.count = count
        self.send = send
        self._pool = pool
        self._active = 0

    def scan(self, spans: Iterable[Span]) -> Iterator[Page]:
        """The pages of all that lies in the folders of spans."""
        return self._run([scan(span, self.send, self._count_free) for span in spans])

    def list_levels(self, folders: Iterable[Folder]) -> Iterator[Page]:
        """The pages of what lies directly in folders."""
        return self._run([list_level(folder, self.send) for folder in folders])

    def _count_free(self) -> int:
        return max(self.count - self._active, 0)

    def _run(self, tasks: Sequence[Iterator[Page]]) -> Iterator[Page]:
        found: queue.Queue[Page | Exception | None] = queue.Queue(maxsize=self.count)
        stopped = threading.Event()

        def run_one(pages: Iterator[Page]) -> None:
            try:
                for page in pages:
                    if stopped.is_set():
                        return
                    found.put(page)
                found.put(None)
            except Exception as error:
                found.put(error)

        started = [self._pool.submit(run_one, task) for task in tasks]
        self._active = len(started)
        try:
            while self._active:
                page = found.get()
                if isinstance(page, Exception):
                    raise page
                if page is None:
                    self._active -= 1
                    continue
                for span in page.handed_over:
                    started.append(self._pool.submit(run_one, scan(span, self.send, self._count_free)))
                    self._active += 1
                yield page
        finally:
            stopped.set()
            for task in started:
                task.cancel()
            # A task that waits for room in the queue gets it, then sees that it has to stop.
            while not all(task.done() for task in started):
                with suppress(queue.Empty):
                    found.get(timeout=0.05)
