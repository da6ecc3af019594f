"""The contenders that work in a Spark session: this package, and Delta Lake's own command."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contenders import Contender, DeltaRs, bring_log_back, check_count, put_log_aside
from benchmarks.jobs import PARTITION_COLUMN, SCHEMA, BenchTable, Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_hive_to_delta import Listing, TableInfo


class SparkContender(Contender):
    """A contender that works in a local Spark session, with the memory that all get."""

    spark: SparkSession

    def open(self) -> None:
        from airflow_hive_to_delta import local_session

        warehouse = self.settings.scratch / f"warehouse-{os.getpid()}"
        conf = {"spark.log.level": "ERROR", "spark.sql.warehouse.dir": str(warehouse)}
        self.spark = local_session("bench", memory=self.settings.memory, conf=conf)

    def prepare(self, job: Job) -> None:
        super().prepare(job)
        self.forget(job.tables)

    def finish(self, job: Job) -> None:
        super().finish(job)
        self.forget(job.tables)

    def forget(self, tables: Iterable[BenchTable]) -> None:
        """Drop the tables from the session's catalog, and what Delta remembers of them by their paths."""
        for table in tables:
            self.spark.sql(f"DROP TABLE IF EXISTS {SCHEMA}.{table.name}")
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]


class Ours(SparkContender):
    """The conversion of this package."""

    name = "ours"
    description = (
        "`convert()` of this package, with statistics of the footers and its own listing (`S3Listing` on S3, "
        "`DatabricksListing` elsewhere), and the table registered in the session's catalog."
    )

    def run(self, job: Job) -> dict[str, Any]:
        from airflow_hive_to_delta import GlueDiscovery, convert, create_summary

        database = job.tables[0].glue_database
        discovery = GlueDiscovery(database) if database else _Tables(job.tables)
        listing = _listing_for(job.tables[0])
        summary = create_summary(convert(self.spark, discovery, listing, "spark_catalog", SCHEMA, progress=False))
        if summary.failed:
            raise AssertionError(str(summary))
        check_count("files", summary.file_count, sum(table.files for table in job.tables))
        check_count("rows", summary.row_count, sum(table.rows for table in job.tables))
        return {}


class ConvertToDelta(SparkContender):
    """Delta Lake's own command."""

    name = "convert"
    description = (
        "`CONVERT TO DELTA`, which scans the data for statistics, then `CREATE TABLE … USING delta LOCATION`, in a "
        "session with the settings of ours."
    )
    statistics = ""

    def open(self) -> None:
        super().open()
        self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")

    def run(self, job: Job) -> dict[str, Any]:
        for table in job.tables:
            partitions = f" PARTITIONED BY ({PARTITION_COLUMN} STRING)" if table.partitioned else ""
            self.spark.sql(f"CONVERT TO DELTA parquet.`{table.location}`{self.statistics}{partitions}")
            self.spark.sql(f"CREATE TABLE {SCHEMA}.{table.name} USING delta LOCATION '{table.location}'")
        return {}


class ConvertToDeltaNoStatistics(ConvertToDelta):
    """Delta Lake's own command without statistics."""

    name = "convert-no-statistics"
    description = "`CONVERT TO DELTA … NO STATISTICS`, then `CREATE TABLE`. Queries on its table skip no files."
    statistics = " NO STATISTICS"


# --- What comes after the conversion ----------------------------------------------------------------------------


class _OnConverted(SparkContender):
    """A contender that works on a table that another one has converted; the conversion is not counted."""

    maker: type[Contender] = Ours

    def prepare(self, job: Job) -> None:
        for table in job.tables:
            if not bring_log_back(table, self.maker.name):
                maker = self.maker(self.settings)
                if isinstance(maker, SparkContender):
                    maker.spark = self.spark
                    self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
                maker.run(Job([table]))
        self.forget(job.tables)

    def check(self, job: Job) -> dict[str, Any]:  # noqa: ARG002
        return {}

    def finish(self, job: Job) -> None:
        for table in job.tables:
            put_log_aside(table, self.maker.name)
        self.forget(job.tables)


class SyncUnchanged(_OnConverted):
    """A sync that finds nothing new."""

    name = "sync-unchanged"
    description = "`sync_table` on a table that it finds unchanged."

    def run(self, job: Job) -> dict[str, Any]:
        from airflow_hive_to_delta import sync_table

        for table in job.tables:
            result = sync_table(self.spark, _table_info(table), _listing_for(table))
            if result.status != "unchanged":
                raise AssertionError(f"The sync ended as {result.status}, expected unchanged")
        return {}


class SyncNew(_OnConverted):
    """A sync that finds new files in the folders of the table."""

    name = "sync-new"
    description = "`sync_table` after new files were written into new partitions of the table."

    def prepare(self, job: Job) -> None:
        super().prepare(job)
        (table,) = job.tables
        assert job.new_files_from is not None
        batch = uuid.uuid4().hex
        for folder in Path(job.new_files_from).glob(f"{PARTITION_COLUMN}=*"):
            new = Path(table.location, f"{folder.name}-{batch}")
            shutil.copytree(folder, new)

    def run(self, job: Job) -> dict[str, Any]:
        from airflow_hive_to_delta import sync_table

        (table,) = job.tables
        result = sync_table(self.spark, _table_info(table), _listing_for(table))
        if not result.num_added_files:
            raise AssertionError(f"The sync ended as {result.status} and added no file")
        return {"added_files": result.num_added_files}


class VerifyCounts(_OnConverted):
    """A comparison of files and rows."""

    name = "verify-counts"
    description = "`verify_table` by counts: files, bytes and rows of every partition."
    level: Any = "counts"

    def run(self, job: Job) -> dict[str, Any]:
        from airflow_hive_to_delta import verify_table

        for table in job.tables:
            verify_table(self.spark, _table_info(table), _listing_for(table), level=self.level)
        return {}


class VerifyFull(VerifyCounts):
    """A comparison of all values."""

    name = "verify-full"
    description = "`verify_table` with checksums of every column, which reads the data twice."
    level = "full"


class QueryOurs(_OnConverted):
    """Queries on the table of this package."""

    name = "query-ours"
    description = "The first query on the table that ours made, and the files read for some filters."

    def run(self, job: Job) -> dict[str, Any]:
        (table,) = job.tables
        name, condition = next(iter(job.filters.items()))
        rows = self.spark.read.format("delta").load(table.location).where(condition).count()
        return {"filter": name, "rows": rows}

    def check(self, job: Job) -> dict[str, Any]:
        (table,) = job.tables
        read = self.spark.read.format("delta").load(table.location)
        return {
            "files_read": {name: len(read.where(condition).inputFiles()) for name, condition in job.filters.items()}
        }


class QueryConvert(QueryOurs):
    """Queries on the table of Delta Lake's own command."""

    name = "query-convert"
    description = "The same on the table that `CONVERT TO DELTA` made, with its statistics."
    maker = ConvertToDelta


class QueryDeltaRs(QueryOurs):
    """Queries on the table of delta-rs."""

    name = "query-delta-rs"
    description = "The same on the table that delta-rs made."
    maker = DeltaRs


class _Tables:
    """A discovery of given tables, as a catalog would describe them."""

    def __init__(self, tables: Sequence[BenchTable]) -> None:
        self._tables = tables

    def discover(self, spark: SparkSession) -> list[TableInfo]:  # noqa: ARG002
        return [_table_info(table) for table in self._tables]


def _table_info(table: BenchTable) -> TableInfo:
    from airflow_hive_to_delta import TableInfo

    return TableInfo(
        name=table.name,
        location=table.location,
        columns=[{"Name": name, "Type": kind} for name, kind in table.columns.items()],
        partition_keys=[PARTITION_COLUMN] if table.partitioned else [],
        partition_types={PARTITION_COLUMN: "string"} if table.partitioned else {},
    )


def _listing_for(table: BenchTable) -> Listing:
    from airflow_hive_to_delta import DatabricksListing, S3Listing

    return S3Listing() if table.location.startswith("s3://") else DatabricksListing()
