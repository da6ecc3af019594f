"""Finding the files of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow.sdk.exceptions import AirflowFailException

from airflow_hive_to_delta.core.models import ConversionOptions, TableInfo
from airflow_hive_to_delta.engines import JobError, JobRequest
from airflow_hive_to_delta.manifests import INLINE_LIMIT, FileList, first_of, too_many, write_manifest
from airflow_hive_to_delta.operators.identity import aws_clients
from airflow_hive_to_delta.operators.spark_job import TableOperator
from airflow_hive_to_delta.operators.tables import (
    check_count,
    fail,
    has_tries_left,
    tell,
)
from airflow_hive_to_delta.report import TableOutcome
from airflow_hive_to_delta.staging import RunFolder, address, safe_name

if TYPE_CHECKING:
    import pyarrow as pa
    from airflow.sdk import Context

Strategy = Literal["s3", "spark", "inventory"]


class ListFilesOperator(TableOperator):
    """Lists the files of one table, or of each table of a batch.

    Returns, for each table, where its list is, how many files it has and how many bytes: the list itself while it is
    short, else the address of a manifest under the staging root.

    :param table: a table as discovery returned it, or a batch of them. Its text is never taken for a template.
    :param listing: ``s3`` lists with boto3 from this task; ``spark`` lists on the engine, with Spark's own identity, on
        any storage; ``inventory`` takes the files from S3 Inventory reports, on the engine.
    :param inventory_manifests: addresses of the reports' ``manifest.json``, for ``inventory``. (templated)
    :param glue_database: the Glue database that knows the partitions, for tables that do not say so. (templated)
    :param inline_limit: more files than this, of all tables of a batch together, make a manifest.
    :param options: :class:`ConversionOptions`, of which ``allow_missing_partitions`` and ``allowed_roots`` count here.
        (templated)
    """

    template_fields: Sequence[str] = (
        *("inventory_manifests", "glue_database"),
        *TableOperator.template_fields,
    )
    ui_color = "#e6f4ea"

    def __init__(
        self,
        *,
        listing: Strategy = "s3",
        inventory_manifests: str | Sequence[str] | None = None,
        glue_database: str | None = None,
        inline_limit: int = INLINE_LIMIT,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if listing not in get_args(Strategy):
            raise ValueError(f"listing is {listing!r}, expected one of {', '.join(get_args(Strategy))}")
        if (listing == "inventory") != bool(inventory_manifests):
            raise ValueError(
                f"inventory_manifests is {inventory_manifests!r} with listing={listing!r}; it goes with "
                "listing='inventory', which needs it"
            )
        check_count("inline_limit", inline_limit, least=0)
        self.listing = listing
        self.inventory_manifests = inventory_manifests
        self.glue_database = glue_database
        self.inline_limit = inline_limit
        self._limit = inline_limit
        self._try = 1

    def execute_for(self, context: Context, tables: Sequence[TableInfo]) -> list[dict[str, Any]]:
        self._limit = self.inline_limit // len(tables)
        self._try = context["ti"].try_number
        folder = self.run_folder(context)
        on_engine = self.listing != "s3" or any(table.source == "spark" for table in tables)
        listed = self._on_engine(tables, folder) if on_engine else list(self._here(tables, folder))
        outcomes = [TableOutcome.of_error(**entry) for entry in listed if "error" in entry]
        # Of a batch the good tables go on; but first every table has its tries.
        hopeless = len(outcomes) == len(listed)
        if outcomes and (hopeless or (any(o.retryable for o in outcomes) and has_tries_left(context))):
            fail(context, outcomes)
        tell(context, outcomes)
        for outcome in outcomes:
            self.log.error("%s: %s", outcome.table, outcome.error)
        return listed

    def _here(self, tables: Sequence[TableInfo], folder: RunFolder | None) -> Iterator[dict[str, Any]]:
        from airflow_hive_to_delta.core.errors import HiveToDeltaError, PermanentError
        from airflow_hive_to_delta.core.listing import S3Listing

        options = ConversionOptions.from_dict(self.options)
        with aws_clients(self.aws_conn_id, self.region_name):
            listing = S3Listing(self.region_name, self.glue_database)
            for table in tables:
                name = table.qualified_name
                try:
                    files = self._list(name, listing.list_batches(table, options), folder)
                except HiveToDeltaError as error:
                    retryable = not isinstance(error, PermanentError)
                    yield {"table": name, "error": str(error), "retryable": retryable}
                    continue
                self.log.info("%s: %d files, %d bytes", name, files.file_count, files.byte_count)
                yield files.to_dict()

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

    def _on_engine(self, tables: Sequence[TableInfo], folder: RunFolder | None) -> list[dict[str, Any]]:
        listing: dict[str, Any] = {"strategy": self.listing}
        if self.listing == "inventory":
            listing["manifest_uri"] = self.inventory_manifests
        if self.listing != "spark":
            listing |= {"region": self.region_name, "glue_database": self.glue_database}
        arguments = {
            "tables": [table.to_dict() for table in tables],
            "listing": listing,
            "manifests": [address(self._manifest(folder, t.qualified_name)) if folder else None for t in tables],
            "inline_limit": self._limit,
            "options": self.options,
        }
        request = JobRequest("list", arguments, f"List the files of {self.table_label}")
        try:
            return list(self.run_job(request)["lists"])
        except JobError as error:
            return [
                {"table": table.qualified_name, "error": str(error), "retryable": error.retryable} for table in tables
            ]

    def _manifest(self, folder: RunFolder | None, table: str) -> Any:
        if folder is None:
            raise AirflowFailException(too_many(table, self._limit))
        # Of each try, so that one which is late to end cannot change what the next has made.
        return folder.file("files", f"{safe_name(table)}.{self._try}.parquet")


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
