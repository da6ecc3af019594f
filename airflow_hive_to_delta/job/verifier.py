"""Comparing tables with the lists of files that a job was given, for jobs that verify and jobs that convert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.lifecycle.verify import verify_table
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.results import VerifyLevel, VerifyResult
from airflow_hive_to_delta.job.file_lists import GivenLists, make_given_listing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableVerifier:
    """Compares the tables of a job with the files that were listed for them.

    In a later try of a task, a table that fails this is listed again and compared with what it has now, at the latest
    version before anybody else than this package wrote to it: a sync may have mended it.

    :param lists: a list of files for each table.
    :param list_again: how lists are made again, as the request says it, with ``later_try``; None: they are not.
    """

    def __init__(
        self,
        spark: SparkSession,
        level: VerifyLevel,
        options: ConversionOptions,
        lists: list[dict[str, Any]],
        list_again: Mapping[str, Any] | None,
    ) -> None:
        self.level: VerifyLevel = level
        #: The lists as they were given. One is made again only where the definition of its table has changed.
        self.listing = make_given_listing(spark, lists, list_again and {**list_again, "later_try": False}, options)
        later_try = bool(list_again and list_again["later_try"])
        self._new_listing = make_given_listing(spark, lists, list_again, options) if later_try else None
        self._spark = spark
        self._options = options

    def verify(
        self, table: TableInfo, version: int | Literal["ours"] | None, listing: GivenLists | None = None
    ) -> VerifyResult:
        """Compare one table.

        :param version: as :func:`verify_table` takes it.
        :param listing: the files that the table was converted from; those that were given when not given here.
        :raises VerificationError: it differs from its original.
        """
        try:
            return self._compare(table, listing or self.listing, version)
        except PermanentError:
            if self._new_listing is None or not self._new_listing.can_list_again(table):
                raise
            return self._compare(table, self._new_listing, "ours")

    def _compare(self, table: TableInfo, listing: GivenLists, version: int | Literal["ours"] | None) -> VerifyResult:
        return verify_table(self._spark, table, listing, level=self.level, version=version, options=self._options)
