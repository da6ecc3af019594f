"""Which files a table has: listed on S3, listed by Spark, or taken from an inventory (rules 40 to 44).

What holds for every strategy:

- A catalog that knows the partitions says where they lie and what their values are; folders it does not know are not
  part of the table. Where no catalog does, the files under the root are listed and their paths say the values later.
- Hidden and empty files are left out, files in subfolders are included.
- A partition without anything at its location is refused, unless ``ConversionOptions.allow_missing_partitions`` says
  otherwise. An object store cannot tell an empty folder from one that is not there, and a mistyped location looks the
  same. A folder marker, or a hidden or empty file, is enough to be there.
- A table's own root without anything in it is an empty table. Not so in an inventory, which may just not cover it.
- What cannot be listed, for want of a bucket or of permission, fails the table (rule 54).
"""

from __future__ import annotations

import datetime as dt
import queue
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from airflow_hive_to_delta.core import aws
from airflow_hive_to_delta.core.delta_log import latest_version
from airflow_hive_to_delta.core.errors import (
    HiveToDeltaError,
    PartitionError,
    PermanentError,
    aws_call,
    spark_call,
)
from airflow_hive_to_delta.core.inventory import check_files_df as check_files_df
from airflow_hive_to_delta.core.inventory import read_inventory
from airflow_hive_to_delta.core.models import FILES_SCHEMA, ConversionOptions, ParquetFileInfo, TableInfo
from airflow_hive_to_delta.core.paths import S3_SCHEMES, Location, parse_location
from airflow_hive_to_delta.core.places import (
    ARROW_FILES,
    UNREADABLE_NAMES,
    Place,
    check_missing,
    data_files,
    files_batch,
    is_data_file,
    map_pairs,
    may_be_under,
    places_of,
    with_places,
)
from airflow_hive_to_delta.core.sql import error_condition
from airflow_hive_to_delta.core.storage import storage_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOCATIONS_PER_READ = 5_000
#: Spark makes a task of each 128 MB of listed files, though none is read; more tasks than this only cost time.
_MOST_TASKS = 200
_PATTERN = re.compile(r"[{}\[\]*?\\]")


class Listing(Protocol):
    """How the files of a table are found. Write your own by having this one method."""

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]: ...


class DataFrameListing(ABC):
    """A listing whose files are a DataFrame (FILES_SCHEMA) from the start, so that the driver need not hold them."""

    @abstractmethod
    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame: ...

    def list_files(self, spark: SparkSession, table: TableInfo) -> list[ParquetFileInfo]:
        files = self.list_files_df(spark, table, ConversionOptions())
        with spark_call(f"Listing the files of {table.qualified_name}"):
            return [ParquetFileInfo(**row.asDict()) for row in files.collect()]


class DatedListing(DataFrameListing):
    """A listing of files as they were at some time before it is asked."""

    @abstractmethod
    def listed_at_time(self, table: TableInfo) -> int | None:
        """When, in milliseconds since the epoch: that moment or one before it; None: not known."""


class MadeListing(DatedListing):
    """A listing of files that were listed before, by a task of their own."""

    @abstractmethod
    def listed_at_version(self, table: TableInfo) -> int | None:
        """The version that the table's Delta log had before its files were listed, -1 for none; None: not known."""


class S3Listing(DataFrameListing):
    """Lists S3 with boto3 from this machine, many requests at a time, each bucket in its own region.

    :param glue_database: the Glue database that knows the tables' partitions, when the tables do not say so themselves.
    """

    def __init__(self, region: str | None = None, glue_database: str | None = None, max_workers: int = 32) -> None:
        self.region = region
        self.glue_database = glue_database
        self.max_workers = min(max_workers, aws.MAX_CONNECTIONS)

    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame:
        return _from_arrow(spark, pa.Table.from_batches(self.list_batches(table, options, spark), ARROW_FILES))

    def list_batches(
        self, table: TableInfo, options: ConversionOptions, spark: SparkSession | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The files in the form of ARROW_FILES, as they are found, in no order; a few pages of them are held at a time.

        The list is whole when the iterator has ended: a partition that is missing is an error only then.

        :param spark: needed for tables whose partitions the session's catalog knows.
        """
        places = places_of(spark, table, options, self.glue_database, self.region, self.max_workers)
        for place in places:
            if place.location.scheme not in S3_SCHEMES:
                raise PermanentError(
                    f"{place.what} is at {place.location}, which is not on S3; list it with DatabricksListing"
                )
        folders = [_Folder(place, f"{place.location.key}/" if place.location.key else "") for place in places]
        in_paths = table.partition_keys if places and places[0].values is None else []
        with ThreadPoolExecutor(self.max_workers) as pool:
            # A root is one folder: go down its partition folders until there are enough to list side by side.
            for _ in in_paths:
                if len(folders) < self.max_workers:
                    below = []
                    for _, page in self._listed(pool, folders, options, one_level=True):
                        yield from page.batches
                        below += page.folders
                    folders = below
            there = set()
            for number, page in self._listed(pool, folders, options, one_level=False):
                yield from page.batches
                if page.is_there:
                    there.add(number)
        missing = [folder.place for number, folder in enumerate(folders) if number not in there]
        check_missing(table, missing, options)

    def _listed(
        self, pool: ThreadPoolExecutor, folders: list[_Folder], options: ConversionOptions, *, one_level: bool
    ) -> Iterator[tuple[int, _Page]]:
        """The pages of all folders, each with its folder's number, listed side by side as fast as they are taken."""
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
            # Whoever waits for room finds it, and then that nobody listens.
            while not all(task.done() for task in listed):
                with suppress(queue.Empty):
                    found.get(timeout=0.05)

    def _list(self, folder: _Folder, options: ConversionOptions, one_level: bool) -> Iterator[_Page]:
        location = folder.place.location
        base = len(f"{location.key}/") if location.key else 0
        for answer in self._pages(folder, options, {"Delimiter": "/"} if one_level else {}):
            files = []
            for found in answer.get("Contents", []):
                key, size = found["Key"], found["Size"]
                if not is_data_file(key[base:], size):
                    continue
                if not UNREADABLE_NAMES.isdisjoint(key[base:].split("/")):
                    raise PermanentError(
                        f"The key {key!r} in the bucket {location.authority}, of {folder.place.what}, has an empty, "
                        "'.' or '..' segment, which no Hadoop file system can address. Rename or remove the object"
                    )
                path = f"{location.scheme}://{location.authority}/{key}"
                files.append((path, size, round(found["LastModified"].timestamp() * 1000)))
            prefixes = [found["Prefix"] for found in answer.get("CommonPrefixes", [])]
            yield _Page(
                batches=[files_batch(files, folder.place.values)] if files else [],
                folders=[_Folder(folder.place, prefix) for prefix in prefixes if is_data_file(prefix[base:], size=1)],
                is_there=bool(answer.get("Contents")),
            )

    def _pages(
        self, folder: _Folder, options: ConversionOptions, delimiter: dict[str, str]
    ) -> Iterator[dict[str, Any]]:
        bucket = folder.place.location.authority
        doing = f"Listing {folder.place.what} at {folder.place.location}"
        owner = options.expected_bucket_owner
        try:
            client = aws.s3_client(bucket, self.region or options.region, owner)
        except HiveToDeltaError as error:
            raise type(error)(f"{doing}: {error}") from error
        pages: Any = client.get_paginator("list_objects_v2")
        with aws_call(doing):
            yield from pages.paginate(Bucket=bucket, Prefix=folder.prefix, **delimiter, **aws.owner(owner))


class DatabricksListing(DataFrameListing):
    """Lists with Spark alone, by the session's own credentials. Works in any Spark, on any file system it knows.

    Partitions of a table that came from Glue are asked of Glue, as its discovery was; all else is Spark.
    """

    def __init__(self, max_workers: int = 8) -> None:
        self.max_workers = max_workers

    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame:
        places = places_of(spark, table, options, None, None, self.max_workers)
        frames = []
        for start in range(0, len(places), _LOCATIONS_PER_READ):
            frames.extend(self._read(spark, table, places[start : start + _LOCATIONS_PER_READ], options))
        if not frames:
            return spark.createDataFrame([], FILES_SCHEMA)
        return data_files(with_places(reduce(lambda a, b: a.union(b), frames).coalesce(_MOST_TASKS), places))

    def _read(
        self, spark: SparkSession, table: TableInfo, places: Sequence[Place], options: ConversionOptions
    ) -> list[DataFrame]:
        """The files at these places, in one DataFrame; none when no place is there."""
        # Of a name that looks like a pattern Spark does not say that it is missing.
        odd = [place for place in places if _PATTERN.search(place.location.path)]
        places = self._those_there(spark, table, odd, options) + [place for place in places if place not in odd]
        if not places:
            return []
        try:
            with spark_call(f"Listing the files of {table.qualified_name}"):
                return [_spark_listing(spark, [place.location for place in places])]
        except HiveToDeltaError as error:
            failure = error
        # Spark names one place that it cannot list, or none: ask for each.
        left = self._those_there(spark, table, places, options)
        if len(left) == len(places):
            raise failure
        return [_spark_listing(spark, [place.location for place in left])] if left else []

    def _those_there(
        self, spark: SparkSession, table: TableInfo, places: Sequence[Place], options: ConversionOptions
    ) -> list[Place]:
        with ThreadPoolExecutor(self.max_workers) as pool:
            there = list(pool.map(lambda place: _is_there(spark, place), places))
        check_missing(table, [place for place, found in zip(places, there, strict=True) if not found], options)
        return [place for place, found in zip(places, there, strict=True) if found]


class InventoryListing(DatedListing):
    """Files of many tables in one DataFrame, such as an S3 Inventory report; each table takes its own.

    The inventory is read once or twice for each table: cache it when there are many.

    :param files_df: what :func:`check_files_df` accepts.
    :param glue_database: as for :class:`S3Listing`.
    :param listed_at: when the files were as ``files_df`` has them, with a time zone: not later than the moment at which
        listing them began. A sync with ``output_mode="complete"`` needs it, to refuse a list that is older than what
        the Delta table has.
    """

    def __init__(
        self,
        files_df: DataFrame,
        glue_database: str | None = None,
        region: str | None = None,
        listed_at: dt.datetime | None = None,
    ) -> None:
        if listed_at is not None and listed_at.tzinfo is None:
            raise PermanentError(f"listed_at is {listed_at.isoformat()}, expected a time with a time zone")
        self.files = check_files_df(files_df)
        self.glue_database = glue_database
        self.region = region
        self._listed_at = None if listed_at is None else int(listed_at.timestamp() * 1000)

    @classmethod
    def from_manifest(
        cls,
        spark: SparkSession,
        manifest_uri: str | Sequence[str],
        glue_database: str | None = None,
        region: str | None = None,
    ) -> InventoryListing:
        """Read S3 Inventory reports by their ``manifest.json``, one for each source bucket. Current versions only.

        The list is as old as the oldest of them, by its ``creationTimestamp``.
        """
        uris = [manifest_uri] if isinstance(manifest_uri, str) else manifest_uri
        if not uris:
            raise PermanentError("manifest_uri is empty, expected the address of a manifest.json of S3 Inventory")
        reports = [read_inventory(spark, uri) for uri in uris]
        listing = cls(
            reduce(lambda a, b: a.unionByName(b), [report.files for report in reports]), glue_database, region
        )
        created = [report.created for report in reports if report.created is not None]
        listing._listed_at = min(created) if len(created) == len(reports) else None
        return listing

    def listed_at_time(self, table: TableInfo) -> int | None:  # noqa: ARG002
        return self._listed_at

    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame:
        places = places_of(spark, table, options, self.glue_database, self.region)
        if not places:
            return spark.createDataFrame([], FILES_SCHEMA)
        placed = with_places(self.files.where(may_be_under(places)), places)
        if not options.allow_missing_partitions:
            with spark_call(f"Looking for the files of {table.qualified_name} in the inventory"):
                there = {row[0] for row in placed.select("place").distinct().collect()}
            missing = [place for number, place in enumerate(places) if number not in there]
            if missing and missing[0].values is None:
                raise PartitionError(
                    f"The inventory has no file under {missing[0].location}, the root of {table.qualified_name}. Take "
                    "one that covers it, or pass ConversionOptions(allow_missing_partitions=True) if the table is empty"
                )
            check_missing(table, missing, options)
        return data_files(placed)


def log_version(table: TableInfo, options: ConversionOptions, spark: SparkSession | None = None) -> int | None:
    """The latest version of the Delta log at a table's location, -1 without a log; None when that cannot be told."""
    try:
        root = parse_location(table.location)
        return latest_version(storage_for(root, spark, options), root)
    except HiveToDeltaError:
        return None


def files_as_df(spark: SparkSession, listing: Listing, table: TableInfo, options: ConversionOptions) -> DataFrame:
    """The files of a table as a DataFrame in FILES_SCHEMA, from any listing."""
    if isinstance(listing, DataFrameListing):
        return listing.list_files_df(spark, table, options)
    columns: dict[str, list[Any]] = {name: [] for name in ARROW_FILES.names}
    for file in listing.list_files(spark, table):
        columns["path"].append(file.path)
        columns["size"].append(file.size)
        columns["modification_time"].append(file.modification_time)
        columns["partition_values"].append(map_pairs(file.partition_values))
    return _from_arrow(spark, pa.table(columns, schema=ARROW_FILES))


class _Folder(NamedTuple):
    place: Place
    prefix: str


class _Page(NamedTuple):
    """One answer to a LIST request."""

    batches: list[pa.RecordBatch]
    folders: list[_Folder]
    is_there: bool


def _from_arrow(spark: SparkSession, files: pa.Table) -> DataFrame:
    # PySpark takes no Arrow table without a chunk, and is slow with one of very many.
    return spark.createDataFrame(files.combine_chunks() if files.num_rows else [], FILES_SCHEMA)


def _spark_listing(spark: SparkSession, locations: Sequence[Location]) -> DataFrame:
    """What Spark finds at these places, in FILES_SCHEMA. Contents are not read."""
    from pyspark.sql import functions as F  # noqa: N812

    found = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        # Names are names: `{`, `[`, `*` and `?` in them are no patterns.
        .option("__globPaths__", "false")
        # Twice, for a folder that a stream wrote: of a single path Spark would read what its `_spark_metadata` lists.
        .load([str(location) for location in [*locations, locations[0]]])
    )
    return check_files_df(
        found.select(
            F.col("path").alias("file_path"),
            F.col("length").alias("size"),
            F.col("modificationTime").alias("last_modified"),
        )
    )


def _is_there(spark: SparkSession, place: Place) -> bool:
    from pyspark.errors import AnalysisException

    # As a pattern that only its own name fits, a missing name is an error of Spark's; as a name it may not be.
    pattern = _PATTERN.sub(r"\\\g<0>", str(place.location))
    with spark_call(f"Listing {place.what} at {place.location}"):
        try:
            spark.read.format("binaryFile").option("recursiveFileLookup", "true").load([pattern, pattern]).isLocal()
        except AnalysisException as error:
            if error_condition(error) == "PATH_NOT_FOUND":
                return False
            raise
    return True
