"""Listing the files of tables: in the task with boto3, or by a job on the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.engines import JobError, JobRequest
from airflow_hive_to_delta.job.file_names import safe_name
from airflow_hive_to_delta.job.manifests import FileList, first_of, list_error, too_many, write_manifest
from airflow_hive_to_delta.operators.aws.identity import aws_clients
from airflow_hive_to_delta.operators.staging import RunFolder, plain_uri
from airflow_hive_to_delta.operators.tables.batches import batch_label

if TYPE_CHECKING:
    import pyarrow as pa
    from airflow.sdk import Context

Strategy = Literal["s3", "spark", "inventory"]


def check_listing(
    listing: Strategy, inventory_manifests: str | Sequence[str] | None, glue_database: str | None
) -> None:
    """Refuse, when a DAG is parsed, a strategy that nobody knows, and what does not go with the strategy."""
    if listing not in get_args(Strategy):
        raise ValueError(f"listing is {listing!r}, expected one of {', '.join(get_args(Strategy))}")
    if listing == "spark" and glue_database is not None:
        raise ValueError(
            f"glue_database is {glue_database!r} with listing='spark', which asks Spark's catalog for partitions; "
            "it goes with listing='s3' or 'inventory'"
        )
    if (listing == "inventory") != bool(inventory_manifests):
        raise ValueError(
            f"inventory_manifests is {inventory_manifests!r} with listing={listing!r}; it goes with "
            "listing='inventory', which needs it"
        )


class ListingOperator(Protocol):
    """An operator that lists files, with the arguments by which it does."""

    listing: Strategy
    inventory_manifests: str | Sequence[str] | None
    glue_database: str | None
    aws_conn_id: str | None
    region_name: str | None
    options: dict[str, Any]

    @property
    def log(self) -> Any: ...

    def run_folder(self, context: Context) -> RunFolder | None: ...


@dataclass(frozen=True)
class FileLister:
    """Lists the files of a task's tables."""

    strategy: Strategy
    inventory_manifests: str | Sequence[str] | None
    glue_database: str | None
    aws_conn_id: str | None
    region_name: str | None
    #: :class:`ConversionOptions` as a dict.
    options: dict[str, Any]
    #: Where the manifests of long lists are kept; None: a long list is an error of its table.
    folder: RunFolder | None
    #: More files of a table than this make a manifest.
    inline_limit: int
    log: Any

    @classmethod
    def of_operator(cls, operator: ListingOperator, context: Context, *, inline_limit: int) -> FileLister:
        """The lister of an operator whose templates are rendered."""
        return cls(
            operator.listing,
            operator.inventory_manifests,
            operator.glue_database,
            aws_conn_id=operator.aws_conn_id,
            region_name=operator.region_name,
            options=operator.options,
            folder=operator.run_folder(context),
            inline_limit=inline_limit,
            log=operator.log,
        )

    def needs_engine(self, tables: Sequence[TableInfo]) -> bool:
        """Whether a job has to list these tables: of Spark's catalog, or on any storage, only Spark can."""
        return self.strategy != "s3" or any(table.source == "spark" for table in tables)

    def document(self) -> dict[str, Any]:
        """The listing, as a job takes it."""
        listing: dict[str, Any] = {"strategy": self.strategy}
        if self.strategy == "inventory":
            listing["manifest_uri"] = self.inventory_manifests
        if self.strategy != "spark":
            listing |= {"region": self.region_name, "glue_database": self.glue_database}
        return listing

    def list_in_task(self, tables: Sequence[TableInfo]) -> Iterator[dict[str, Any]]:
        """The file list of each table, or its error, made by this task."""
        from airflow_hive_to_delta.core.catalogs.definitions import location_digest
        from airflow_hive_to_delta.core.errors import HiveToDeltaError
        from airflow_hive_to_delta.core.listing.age import now
        from airflow_hive_to_delta.core.listing.base import log_version
        from airflow_hive_to_delta.core.listing.s3 import S3Listing

        options = ConversionOptions.from_dict(self.options)
        with aws_clients(self.aws_conn_id, self.region_name):
            listing = S3Listing(self.region_name, self.glue_database)
            for table in tables:
                name = table.qualified_name
                try:
                    began, version = now(), log_version(table, options)  # so that neither is ever too new
                    files = self._list(name, listing.list_batches(table, options))
                    files.log_version, files.listed_at = version, began
                    files.listing, files.listed_for = self.document(), location_digest(table)
                except Exception as error:
                    if not isinstance(error, HiveToDeltaError):
                        self.log.exception("%s: listing its files failed", name)
                    yield list_error(name, error, self.document())
                    continue
                self.log.info("%s: %d files, %d bytes", name, files.file_count, files.byte_count)
                yield files.to_dict()

    def list_on_engine(
        self,
        tables: Sequence[TableInfo],
        run_job: Callable[[JobRequest], dict[str, Any]],
        was_killed: Callable[[], bool],
    ) -> list[dict[str, Any]]:
        """The file list of each table, or its error, made by a job; by a job for each table, where that job died.

        :param run_job: runs a job and returns its result. ``JobError``, which becomes the error of its tables: it has
            none.
        :param was_killed: whether the task was killed: then no other job is begun.
        """
        documents = [table.to_dict() for table in tables]
        manifests = [plain_uri(self._manifest(table.qualified_name)) if self.folder else None for table in tables]
        arguments = {
            "tables": documents,
            "listing": self.document(),
            "manifests": manifests,
            "inline_limit": self.inline_limit,
            "options": self.options,
        }
        try:
            return list(run_job(JobRequest("list", arguments, f"List the files of {batch_label(documents)}"))["lists"])
        except JobError as error:
            if len(tables) > 1 and error.retryable and not was_killed():
                self.log.warning(
                    "Each table is listed by a job of its own, for one job for all of them died: %s", error
                )
                return [files for table in tables for files in self.list_on_engine([table], run_job, was_killed)]
            failed = {"error": str(error), "retryable": error.retryable, "listing": arguments["listing"]}
            return [{"table": table.qualified_name, **failed} for table in tables]

    def _list(self, table: str, batches: Iterator[pa.RecordBatch]) -> FileList:
        first, batches = first_of(batches, self.inline_limit)
        if len(first) <= self.inline_limit:
            return FileList(table, len(first), sum(file["size"] for file in first), files=first)
        path = self._manifest(table)
        counted = _CountedBatches(batches, self.log.info, table)
        try:
            with path.open("wb") as destination:
                write_manifest(counted, destination)
        except BaseException:
            path.unlink(missing_ok=True)  # a part of the files must not look like all of them
            raise
        return FileList(table, counted.files, counted.bytes, manifest=plain_uri(path))

    def _manifest(self, table: str) -> Any:
        from airflow_hive_to_delta.core.errors import PermanentError

        if self.folder is None:
            raise PermanentError(too_many(table, self.inline_limit))
        # Of each try, so that one which is late to end cannot change what the next has made.
        return self.folder.file("files", f"{safe_name(table)}.{self.folder.try_number}.parquet")


class _CountedBatches:
    """Batches on their way into a manifest, counted, with a line of log for every 100,000 files or so."""

    def __init__(self, batches: Iterator[pa.RecordBatch], log: Callable[..., None], table: str) -> None:
        self._batches = batches
        self._log = log
        self._table = table
        self.files = 0
        self.bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        logged = 0
        for batch in self._batches:
            self.files += batch.num_rows
            self.bytes += pc.sum(batch["size"]).as_py() or 0
            if self.files - logged >= 100_000:
                logged = self.files
                self._log("%s: %d files so far", self._table, self.files)
            yield batch
