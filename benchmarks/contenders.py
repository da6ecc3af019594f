"""The tools that are compared, each from an unlisted folder or prefix to the table that it makes.

A contender lives in a process of its own (:mod:`benchmarks.worker`). Modules that take long to import are imported in
:meth:`Contender.open`, because a cold run counts them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.jobs import PARTITION_COLUMN, SCHEMA, BenchTable, Job, Settings

#: What footers alone are read with.
FOOTER_THREADS = 4
#: The same on S3, where a thread waits for answers most of the time.
S3_FOOTER_THREADS = 16


class Contender:
    """One tool. ``run`` is what is timed; ``open`` is counted in cold runs; the rest is not counted."""

    name = ""
    #: What it does, for the report.
    description = ""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def open(self) -> None:
        """Import what is needed, and start a session."""

    def prepare(self, job: Job) -> None:
        """Bring the tables into the state that ``run`` starts from."""
        for table in job.tables:
            remove_log(table)

    def run(self, job: Job) -> dict[str, Any]:
        """Do the work. Returns what the report should know of it.

        :raises Exception: the tool failed, or did not find all files.
        """
        raise NotImplementedError

    def check(self, job: Job) -> dict[str, Any]:
        """Look at what ``run`` made. Returns more for the report.

        :raises AssertionError: a table does not have all files.
        """
        import deltalake

        for table in job.tables:
            options = {"allow_http": "true"} if table.location.startswith("s3://") else None
            made = deltalake.DeltaTable(table.location, storage_options=options)
            check_count("files in the log", len(made.file_uris()), table.files)
        return {}

    def finish(self, job: Job) -> None:
        """Take away what ``run`` made, so that the next contender finds the files alone."""
        for table in job.tables:
            if job.keep_log:
                put_log_aside(table, self.name)
            remove_log(table)


# --- What a contender leaves at a table -------------------------------------------------------------------------


def remove_log(table: BenchTable) -> None:
    """Remove a table's ``_delta_log``, if it has one."""
    if not table.location.startswith("s3://"):
        shutil.rmtree(Path(table.location, "_delta_log"), ignore_errors=True)
        return
    import boto3

    client = boto3.client("s3")
    bucket, _, prefix = table.location.removeprefix("s3://").partition("/")
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/_delta_log/"):
        found = [{"Key": entry["Key"]} for entry in page.get("Contents", ())]
        if found:
            client.delete_objects(Bucket=bucket, Delete={"Objects": found})  # type: ignore[typeddict-item]


def _kept_log(table: BenchTable, maker: str) -> Path:
    # Not in the table's folder: delta-rs would take a checkpoint there for data.
    return Path(f"{table.location}-log-of-{maker}")


def put_log_aside(table: BenchTable, maker: str) -> None:
    log, kept = Path(table.location, "_delta_log"), _kept_log(table, maker)
    if log.exists():
        shutil.rmtree(kept, ignore_errors=True)
        log.rename(kept)


def bring_log_back(table: BenchTable, maker: str) -> bool:
    remove_log(table)
    kept = _kept_log(table, maker)
    if kept.exists():
        kept.rename(Path(table.location, "_delta_log"))
        return True
    return False


# --- Listing for the contenders that have none ------------------------------------------------------------------


def check_count(what: str, found: int, expected: int, *, at_least: bool = False) -> None:
    """Fail a run that did not see what is there."""
    if found != expected and not (at_least and found > expected):
        raise AssertionError(f"{found} {what}, expected {expected}")


def list_parquet_files(folder: str) -> Iterator[str]:
    """The Parquet files below a local folder, by ``os.scandir``, without hidden names."""
    for entry in os.scandir(folder):
        if entry.name.startswith(("_", ".")):
            continue
        if entry.is_dir():
            yield from list_parquet_files(entry.path)
        elif entry.name.endswith(".parquet"):
            yield entry.path


def _list_s3_files(location: str) -> Iterator[str]:
    from pyarrow import fs

    bucket_and_prefix = location.removeprefix("s3://")
    for found in _arrow_s3().get_file_info(fs.FileSelector(bucket_and_prefix, recursive=True)):
        below = found.path.removeprefix(bucket_and_prefix)
        if found.type == fs.FileType.File and "/_" not in below and found.path.endswith(".parquet"):
            yield f"s3://{found.path}"


def list_table_files(table: BenchTable) -> list[str]:
    """The Parquet files of a table, listed in one thread."""
    found: list[str] = []
    for folder in table.folders:
        found.extend(_list_s3_files(folder) if folder.startswith("s3://") else list_parquet_files(folder))
    return found


def _arrow_s3() -> Any:
    from pyarrow import fs

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3", "")
    scheme, _, address = endpoint.partition("://")
    return fs.S3FileSystem(endpoint_override=address or None, scheme=scheme or "https", background_writes=False)


# --- The contenders ---------------------------------------------------------------------------------------------


class Listing(Contender):
    """Listing alone."""

    name = "listing"
    description = "Lists the files in one thread with `os.scandir` (on S3: pyarrow), and reads nothing."

    def prepare(self, job: Job) -> None:
        pass

    def run(self, job: Job) -> dict[str, Any]:
        for table in job.tables:
            check_count("files", len(list_table_files(table)), table.files, at_least=True)
        return {}

    def check(self, job: Job) -> dict[str, Any]:  # noqa: ARG002
        return {}

    def finish(self, job: Job) -> None:
        pass


class Footers(Contender):
    """Listing and footers, and no table: the limit of what footers can do in Python."""

    name = "footers"
    description = (
        f"Lists as `listing` does, then reads every footer with pyarrow's `read_metadata` on {FOOTER_THREADS} threads "
        f"({S3_FOOTER_THREADS} on S3) and adds up the rows. It makes no table: it is the limit for those that read "
        "footers with pyarrow in one process."
    )

    def open(self) -> None:
        import pyarrow.parquet  # noqa: F401

    def prepare(self, job: Job) -> None:
        pass

    def run(self, job: Job) -> dict[str, Any]:
        import pyarrow.parquet as pq

        for table in job.tables:
            files = list_table_files(table)
            on_s3 = table.location.startswith("s3://")
            filesystem = _arrow_s3() if on_s3 else None
            paths = [file.removeprefix("s3://") for file in files] if on_s3 else files

            def count_rows(path: str, filesystem: Any = filesystem) -> int:
                rows: int = pq.read_metadata(path, filesystem=filesystem).num_rows
                return rows

            with ThreadPoolExecutor(S3_FOOTER_THREADS if on_s3 else FOOTER_THREADS) as pool:
                check_count("rows", sum(pool.map(count_rows, paths)), table.rows, at_least=True)
        return {}

    def check(self, job: Job) -> dict[str, Any]:  # noqa: ARG002
        return {}

    def finish(self, job: Job) -> None:
        pass


class DeltaRs(Contender):
    """delta-rs, which has no catalog to register tables in."""

    name = "delta-rs"
    description = (
        "`deltalake.convert_to_deltalake`, with statistics of the footers. It has no catalog: it ends with the table "
        "at its path."
    )

    def open(self) -> None:
        import deltalake  # noqa: F401

    def run(self, job: Job) -> dict[str, Any]:
        import deltalake.schema

        partitions = deltalake.Schema([deltalake.Field(PARTITION_COLUMN, deltalake.schema.PrimitiveType("string"))])
        for table in job.tables:
            deltalake.convert_to_deltalake(
                table.location,
                partition_by=partitions if table.partitioned else None,
                partition_strategy="hive" if table.partitioned else None,
                storage_options={"allow_http": "true"} if table.location.startswith("s3://") else None,
            )
        return {}


class PyIceberg(Contender):
    """Adds the files of the tables to new Iceberg tables, by PyIceberg."""

    name = "pyiceberg"
    description = (
        "PyIceberg's `add_files` into a new Iceberg table of a SQLite catalog, after a listing as `listing` does it. "
        "It takes partition values from statistics of columns in the files, so the tables here, whose partition "
        "column is in the paths alone, become unpartitioned tables without that column."
    )

    def open(self) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        folder = self.settings.scratch / f"iceberg-{os.getpid()}"
        folder.mkdir()
        properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3"):
            properties |= {
                "s3.endpoint": endpoint,
                "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
                "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
                "s3.region": os.environ["AWS_DEFAULT_REGION"],
            }
        self._catalog = SqlCatalog("bench", **properties)
        self._catalog.create_namespace_if_not_exists(SCHEMA)

    def run(self, job: Job) -> dict[str, Any]:
        import pyarrow.parquet as pq

        for table in job.tables:
            files = list_table_files(table)
            on_s3 = table.location.startswith("s3://")
            # Some versions of pyarrow would take the partition of the path for a column of the file.
            with pq.ParquetFile(files[0].removeprefix("s3://"), filesystem=_arrow_s3() if on_s3 else None) as first:
                schema = first.schema_arrow
            made = self._catalog.create_table((SCHEMA, table.name), schema=schema)
            made.add_files(files, check_duplicate_files=False)
        return {}

    def check(self, job: Job) -> dict[str, Any]:
        for table in job.tables:
            snapshot = self._catalog.load_table((SCHEMA, table.name)).current_snapshot()
            found = snapshot.summary["total-data-files"] if snapshot and snapshot.summary else None
            check_count("files in the snapshot", int(found or 0), table.files)
        return {}

    def finish(self, job: Job) -> None:
        for table in job.tables:
            if self._catalog.table_exists((SCHEMA, table.name)):
                self._catalog.drop_table((SCHEMA, table.name))
