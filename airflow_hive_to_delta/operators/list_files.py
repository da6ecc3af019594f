"""Finding the files of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.engines import JobError, JobRequest
from airflow_hive_to_delta.job.file_names import safe_name
from airflow_hive_to_delta.job.manifests import INLINE_LIMIT, FileList, first_of, list_error, too_many, write_manifest
from airflow_hive_to_delta.operators.definitions import current_definitions
from airflow_hive_to_delta.operators.identity import aws_clients
from airflow_hive_to_delta.operators.spark_job import SparkJobOperator, TableOperator
from airflow_hive_to_delta.operators.staging import RunFolder, address
from airflow_hive_to_delta.operators.tables import (
    check_count,
    fail,
    has_tries_left,
    label_of,
    tell,
)
from airflow_hive_to_delta.report.outcomes import TableOutcome

if TYPE_CHECKING:
    import pyarrow as pa
    from airflow.sdk import Context

Strategy = Literal["s3", "spark", "inventory"]


class ListsFiles(SparkJobOperator):
    """What listing operators share: how files are found, and where: in the task, or by a job on the engine."""

    template_fields: Sequence[str] = ("inventory_manifests", "glue_database", *SparkJobOperator.template_fields)
    options: dict[str, Any]

    def __init__(
        self,
        *,
        listing: Strategy = "s3",
        inventory_manifests: str | Sequence[str] | None = None,
        glue_database: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
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
        self.listing = listing
        self.inventory_manifests = inventory_manifests
        self.glue_database = glue_database
        self._limit = INLINE_LIMIT
        self._try = 1

    def lists_on_engine(self, tables: Sequence[TableInfo]) -> bool:
        """Whether a job has to list these tables: of Spark's catalog, or on any storage, only Spark can."""
        return self.listing != "s3" or any(table.source == "spark" for table in tables)

    def listing_document(self) -> dict[str, Any]:
        """The listing, as a job takes it."""
        listing: dict[str, Any] = {"strategy": self.listing}
        if self.listing == "inventory":
            listing["manifest_uri"] = self.inventory_manifests
        if self.listing != "spark":
            listing |= {"region": self.region_name, "glue_database": self.glue_database}
        return listing

    def list_here(
        self, context: Context, tables: Sequence[TableInfo], *, inline_limit: int
    ) -> Iterator[dict[str, Any]]:
        """The file list of each table, or its error, from this task. ``inline_limit`` is for each of them."""
        from airflow_hive_to_delta.core.catalogs.definitions import location_digest
        from airflow_hive_to_delta.core.errors import HiveToDeltaError
        from airflow_hive_to_delta.core.listing.age import now
        from airflow_hive_to_delta.core.listing.base import log_version
        from airflow_hive_to_delta.core.listing.s3 import S3Listing

        folder = self._begin(context, inline_limit)
        options = ConversionOptions.from_dict(self.options)
        with aws_clients(self.aws_conn_id, self.region_name):
            listing = S3Listing(self.region_name, self.glue_database)
            for table in tables:
                name = table.qualified_name
                try:
                    began, version = now(), log_version(table, options)  # so that neither is ever too new
                    files = self._list(name, listing.list_batches(table, options), folder)
                    files.log_version, files.listed_at = version, began
                    files.listing, files.listed_for = self.listing_document(), location_digest(table)
                except Exception as error:
                    if not isinstance(error, HiveToDeltaError):
                        self.log.exception("%s: listing its files failed", name)
                    yield list_error(name, error, self.listing_document())
                    continue
                self.log.info("%s: %d files, %d bytes", name, files.file_count, files.byte_count)
                yield files.to_dict()

    def list_on_engine(
        self, context: Context, tables: Sequence[TableInfo], *, inline_limit: int
    ) -> list[dict[str, Any]]:
        """The same by a job."""
        folder = self._begin(context, inline_limit)
        arguments = {
            "tables": [table.to_dict() for table in tables],
            "listing": self.listing_document(),
            "manifests": [address(self._manifest(folder, t.qualified_name)) if folder else None for t in tables],
            "inline_limit": self._limit,
            "options": self.options,
        }
        names = [table.qualified_name for table in tables]
        request = JobRequest("list", arguments, f"List the files of {label_of(arguments['tables'])}")
        try:
            return list(self.run_job(request, context)["lists"])
        except JobError as error:
            if len(tables) > 1 and error.retryable and not self._killed:
                self.log.warning(
                    "Each table is listed by a job of its own, for one job for all of them died: %s", error
                )
                return [
                    files
                    for table in tables
                    for files in self.list_on_engine(context, [table], inline_limit=inline_limit)
                ]
            failed = {"error": str(error), "retryable": error.retryable, "listing": arguments["listing"]}
            return [{"table": name, **failed} for name in names]

    def _begin(self, context: Context, inline_limit: int) -> RunFolder | None:
        self._limit = inline_limit
        self._try = context["ti"].try_number
        return self.run_folder(context)

    def _list(self, table: str, batches: Iterator[pa.RecordBatch], folder: RunFolder | None) -> FileList:
        first, batches = first_of(batches, self._limit)
        if len(first) <= self._limit:
            return FileList(table, len(first), sum(file["size"] for file in first), files=first)
        place = self._manifest(folder, table)
        counted = _Counted(batches, self.log.info, table)
        try:
            with place.open("wb") as destination:
                write_manifest(counted, destination)
        except BaseException:
            place.unlink(missing_ok=True)  # a part of the files must not look like all of them
            raise
        return FileList(table, counted.files, counted.bytes, manifest=address(place))

    def _manifest(self, folder: RunFolder | None, table: str) -> Any:
        from airflow_hive_to_delta.core.errors import PermanentError

        if folder is None:
            raise PermanentError(too_many(table, self._limit))
        # Of each try, so that one which is late to end cannot change what the next has made.
        return folder.file("files", f"{safe_name(table)}.{self._try}.parquet")


class ListFilesOperator(ListsFiles, TableOperator):
    """Lists the files of one table, or of each table of a batch.

    Returns, for each table, where its list is, how many files it has and how many bytes: the list itself while it is
    short, else the address of a manifest under the staging root. A table that was discovered is listed by the
    definition that its catalog has now.

    :param table: a table as discovery returned it, or a batch of them. Its text is never taken for a template.
    :param listing: ``s3`` lists with boto3 from this task; ``spark`` lists on the engine, with Spark's own identity, on
        any storage; ``inventory`` takes the files from S3 Inventory reports, on the engine.
    :param inventory_manifests: addresses of the reports' ``manifest.json``, for ``inventory``. (templated)
    :param glue_database: the Glue database that knows the partitions, for tables that do not say so. (templated)
    :param inline_limit: more files than this, of all tables of a batch together, make a manifest.
    :param options: :class:`ConversionOptions`, of which ``allow_missing_partitions``, ``allow_nested_tables`` and
        ``allowed_roots`` count here. (templated)
    """

    template_fields: Sequence[str] = ("inventory_manifests", "glue_database", *TableOperator.template_fields)
    ui_color = "#e6f4ea"

    def __init__(self, *, inline_limit: int = INLINE_LIMIT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_count("inline_limit", inline_limit, least=0)
        self.inline_limit = inline_limit

    def execute_for(self, context: Context, tables: Sequence[TableInfo]) -> list[dict[str, Any]]:
        known = current_definitions(tables, aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        lists = self.list_on_engine if self.lists_on_engine(known.tables) else self.list_here
        limit = self.inline_limit // len(tables)
        listed = list(lists(context, known.tables, inline_limit=limit)) if known.tables else []
        listed += [list_error(name, error, self.listing_document()) for name, error in known.errors.items()]
        outcomes = [TableOutcome.of_error(e["table"], e["error"], e["retryable"]) for e in listed if "error" in e]
        # Of a batch the good tables go on; but first every table has its tries.
        hopeless = len(outcomes) == len(listed)
        if outcomes and (hopeless or (any(o.retryable for o in outcomes) and has_tries_left(context))):
            fail(context, outcomes)
        tell(context, outcomes, goes_on=True)
        for outcome in outcomes:
            self.log.error("%s: %s", outcome.table, outcome.error)
        return listed


class _Counted:
    """Batches on their way into a manifest, counted, with a line of log now and then."""

    def __init__(self, batches: Iterator[pa.RecordBatch], say: Any, table: str) -> None:
        self._batches = batches
        self._say = say
        self._table = table
        self.files = 0
        self.bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        told = 0
        for batch in self._batches:
            self.files += batch.num_rows
            self.bytes += pc.sum(batch["size"]).as_py() or 0
            if self.files - told >= 100_000:
                told = self.files
                self._say("%s: %d files so far", self._table, self.files)
            yield batch
