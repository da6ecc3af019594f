"""Lists of files as a job takes and makes them: listed before by a task of their own, or again by the job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.catalogs.definitions import location_digest
from airflow_hive_to_delta.core.errors import KINDS, PermanentError, StaleFileListError, TransientError
from airflow_hive_to_delta.core.files import ListedFiles
from airflow_hive_to_delta.core.listing.age import ListedAt, listed_before, now
from airflow_hive_to_delta.core.listing.base import DataFrameListing, MadeListing, log_version
from airflow_hive_to_delta.core.listing.inventory import InventoryListing
from airflow_hive_to_delta.core.listing.s3 import S3Listing
from airflow_hive_to_delta.core.listing.spark import DatabricksListing
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.job.manifests import FileList, read_list, too_many
from airflow_hive_to_delta.job.progress import print_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def make_listing(spark: SparkSession, given: Mapping[str, Any]) -> DataFrameListing:
    """The listing that a request names: ``{"strategy": "s3" | "spark" | "inventory", …}`` with its own arguments."""
    arguments = {name: value for name, value in given.items() if name != "strategy"}
    match given["strategy"]:
        case "s3":
            return S3Listing(**arguments)
        case "spark":
            return DatabricksListing(**arguments)
        case "inventory":
            return InventoryListing.from_manifest(spark, **arguments)
    raise PermanentError(f"The listing strategy is {given['strategy']!r}, expected s3, spark or inventory")


def make_given_listing(
    spark: SparkSession, lists: list[dict[str, Any]], again: Mapping[str, Any] | None, options: ConversionOptions
) -> GivenLists:
    """The lists of a request as a listing.

    :param again: ``list_again`` of the request: how lists are made again; None: they are not.
    """
    if again is None:
        return GivenLists(lists)
    maker = ListMaker(spark, options, again["inline_limit"])
    return GivenLists(lists, maker, again["manifests"], later_try=again["later_try"])


class ListMaker:
    """Makes lists of files. A listing that is asked for many tables, such as an inventory, is read once.

    :param inline_limit: more files than this make a manifest.
    """

    def __init__(self, spark: SparkSession, options: ConversionOptions, inline_limit: int) -> None:
        self._spark = spark
        self._options = options
        self._limit = inline_limit
        self._strategies: dict[str, DataFrameListing] = {}

    def make(self, table: TableInfo, listing: Mapping[str, Any], manifest: str | None) -> FileList:
        """The list of a table's files.

        :param listing: as :func:`make_listing` takes it.
        :param manifest: where a list goes that is too long to travel inline.
        """
        strategy = self.strategy(listing)
        # Before the listing, so that it is never too new.
        listed = listed_before(strategy, table) or ListedAt(now(), log_version(table, self._options, self._spark))
        files = self._write_list(strategy.list_table(self._spark, table, self._options), table, manifest)
        files.log_version, files.listed_at = listed.version, listed.time
        files.listing, files.listed_for = dict(listing), location_digest(table)
        print_progress(f"{table.qualified_name}: {files.file_count} files, {files.byte_count} bytes")
        return files

    def strategy(self, listing: Mapping[str, Any]) -> DataFrameListing:
        """The listing that a document names, made once. Raises for one that is unknown, or that cannot be read."""
        key = json.dumps(listing, sort_keys=True)
        if key not in self._strategies:
            self._strategies[key] = make_listing(self._spark, listing)
        return self._strategies[key]

    def _write_list(self, found: ListedFiles, table: TableInfo, manifest: str | None) -> FileList:
        with found.kept() as kept:
            few = kept.collect_few(self._limit)
            if few is not None:
                size = sum(file["size"] for file in few)
                return FileList(table.qualified_name, len(few), size, files=few)
            if manifest is None:
                raise PermanentError(too_many(table.qualified_name, self._limit))
            count, size = kept.count()
            kept.frame.write.parquet(manifest, mode="overwrite", compression="zstd")
            return FileList(table.qualified_name, count, size, manifest=manifest)


class GivenLists(MadeListing):
    """A listing of files that were listed before. Where ``maker`` is given, some are listed again, each once.

    A list that is an error is raised for its table.

    :param manifests: where a list that is made again goes, for each list, or null.
    :param later_try: list all tables again that are asked for: an earlier try of the task has failed. Otherwise only
        those whose definition has changed since.
    """

    def __init__(
        self,
        lists: list[dict[str, Any]],
        maker: ListMaker | None = None,
        manifests: list[str | None] | None = None,
        *,
        later_try: bool = False,
    ) -> None:
        self._lists = {files["table"]: files for files in lists}
        self._maker = maker
        self._manifests = dict(zip(self._lists, manifests or [None] * len(lists), strict=True))
        self._later_try = later_try
        self._made: dict[str, dict[str, Any]] = {}

    def made(self, table: str) -> dict[str, Any] | None:
        """The list that was made again for a table."""
        return self._made.get(table)

    def can_list_again(self, table: TableInfo) -> bool:
        """Whether it is known how the table's files were listed."""
        return self._maker is not None and self._lists[table.qualified_name].get("listing") is not None

    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame:
        return self.list_table(spark, table, options).frame

    def list_table(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> ListedFiles:  # noqa: ARG002
        document = self._document(table)
        if "error" in document:
            kind = TransientError if document["retryable"] else PermanentError
            raise KINDS.get(document.get("error_kind", ""), kind)(document["error"])
        files = FileList.from_dict(document)
        found = read_list(spark, files)
        with spark_call(f"Reading the list of the files of {table.qualified_name}"):
            count, _ = found.count()
        if count != files.file_count:
            where = f" at {files.manifest}" if files.manifest else ""
            raise StaleFileListError(
                f"The list of the files of {table.qualified_name}{where} has {count} files, but "
                f"{files.file_count} were listed: it was changed since. List the files again"
            )
        return found

    def listed_at_version(self, table: TableInfo) -> int | None:
        version: int | None = self._document(table).get("log_version")
        return version

    def listed_at_time(self, table: TableInfo) -> int | None:
        moment: int | None = self._document(table).get("listed_at")
        return moment

    def _document(self, table: TableInfo) -> dict[str, Any]:
        name = table.qualified_name
        given = self._lists[name]
        elsewhere = given.get("listed_for") not in (None, location_digest(table))
        if self._maker is not None and self.can_list_again(table) and (elsewhere or self._later_try):
            if name not in self._made:
                self._made[name] = self._maker.make(table, given["listing"], self._manifests[name]).to_dict()
        elif elsewhere:
            raise StaleFileListError(
                f"The definition of {name} has another location or other partition columns than when its files were "
                "listed. List the files again"
            )
        return self._made.get(name, given)
