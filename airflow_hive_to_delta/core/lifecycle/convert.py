"""A Hive table becomes a Delta table in place: :func:`convert_table` for one, :func:`convert` for many.

    list -> describe (footers or scan) -> resolve the schema -> commit 0 -> checkpoint -> register

Nothing is written before every check has passed. The converter knows neither Glue nor S3: tables come from a
:class:`Discovery`, files from a :class:`Listing`, and both are described in :mod:`models`.
"""

from __future__ import annotations

import logging
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.catalogs import registration
from airflow_hive_to_delta.core.catalogs.target_names import (
    SchemaOf,
    same_target,
    tables_by_target,
    target_key,
    with_target_names,
)
from airflow_hive_to_delta.core.delta import actions as log_actions
from airflow_hive_to_delta.core.delta.checkpoint import write_checkpoint
from airflow_hive_to_delta.core.delta.log import commits as delta_log
from airflow_hive_to_delta.core.delta.log.files import log_folder
from airflow_hive_to_delta.core.delta.snapshot import snapshot_of
from airflow_hive_to_delta.core.errors import MissingError, PermanentError, is_refusal
from airflow_hive_to_delta.core.files import ListedFiles
from airflow_hive_to_delta.core.lifecycle.commit_writer import write_actions, write_adds
from airflow_hive_to_delta.core.lifecycle.context import TableContext
from airflow_hive_to_delta.core.lifecycle.preflight import (
    note_managed_table,
    parse_partition_types,
    preflight,
    read_log_state,
)
from airflow_hive_to_delta.core.lifecycle.verify import verify_conversion, verify_table
from airflow_hive_to_delta.core.listing.age import ListedAt, conversion_notes, listed_before
from airflow_hive_to_delta.core.listing.base import Listing
from airflow_hive_to_delta.core.listing.inventory import check_files_df
from airflow_hive_to_delta.core.models import ALREADY_DELTA, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.results import ConversionResult, Status, VerifyLevel, VerifyResult, levels_that_prove
from airflow_hive_to_delta.core.runner import run_tables
from airflow_hive_to_delta.core.storage.uri import Location, parse_location, redacted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_hive_to_delta.core.catalogs.discovery import Discovery

logger = logging.getLogger(__name__)
_BY_EARLIER_TRY = "An earlier try of this run has converted it"


def convert_table(
    spark: SparkSession,
    files_df: DataFrame,
    table_location: str,
    target_catalog: str | None,
    target_schema: str | None,
    target_table: str | None,
    partition_columns: Sequence[str] | Mapping[str, str] | None = None,
    *,
    options: ConversionOptions | None = None,
) -> ConversionResult:
    """Make one Delta table at ``table_location`` over the files of ``files_df``, and register it.

    :param files_df: ``file_path`` (string) and ``size`` (integer) of every data file, as they are on the storage and
        not URL-encoded; they need not lie under ``table_location``.
    :param table_location: where the table's ``_delta_log`` goes.
    :param target_catalog: with ``target_schema`` and ``target_table`` the name to register; all three None: the table
        is written and not registered.
    :param partition_columns: names (then strings), or a mapping of name to type such as ``{"year": "int"}``; their
        values are in the ``key=value`` folders of the paths.
    :raises PermanentError: the table is refused, and its folder is as it was.
    :raises TransientError: trying again may help.
    """
    options = options or ConversionOptions()
    types = _partition_columns(partition_columns)
    root = parse_location(table_location, "table_location")
    table = TableInfo(
        name=target_table or root.path.rpartition("/")[2],
        location=table_location,
        partition_keys=list(types),
        partition_types=types,
    )
    target = registration.target_of(target_catalog, target_schema, target_table, options)
    files = ListedFiles(spark, check_files_df(files_df))
    return _convert_one(TableContext.open(spark, table, options), lambda: files, target)


def convert(
    spark: SparkSession,
    discovery: Discovery,
    listing: Listing,
    target_catalog: str | None,
    target_schema: str | None,
    *,
    max_workers: int = 4,
    options: ConversionOptions | None = None,
    verify: VerifyLevel | None = None,
    progress: bool = True,
) -> list[ConversionResult]:
    """Convert every table that ``discovery`` finds, ``max_workers`` side by side, in the order of discovery.

    A table that fails or is refused has a result that says why, and touches no other. Tables of one name in several
    databases are registered as ``database_name``, with the catalog before it where databases are alike too, unless they
    bring a ``target_table_name`` of their own.

    :param verify: compare each table that is converted with its files right after the conversion, by ``counts`` or in
        ``full`` as :func:`verify_table` does. The result then has the ``verification``; one that failed is no success.
    :param progress: a line per table on standard error, and a progress bar in a terminal.
    """
    if verify is not None and not levels_that_prove(verify):
        raise PermanentError(f"verify is {verify!r}, expected counts, full or None")
    chosen = options or ConversionOptions()
    converter = TableConverter(
        spark, discovery.discover(spark), listing, target_catalog, lambda _: target_schema, chosen
    )

    def convert_and_verify(table: TableInfo) -> ConversionResult:
        result = converter.convert(table)
        if verify is None:
            return result

        def compare(converted: TableInfo, version: int) -> VerifyResult:
            return verify_table(spark, converted, listing, level=verify, version=version, options=chosen)

        return verify_conversion(table, result, verify, compare)

    return run_tables(
        convert_and_verify, converter.tables, make_failed_conversion, max_workers=max_workers, progress=progress
    )


class TableConverter:
    """Converts the tables of one run, each by itself, and gives every one its target name.

    :param tables: all tables of the run: by them tables are found that would be registered under one name.
    :param schema_of: the target schema of a table.
    """

    def __init__(
        self,
        spark: SparkSession,
        tables: Sequence[TableInfo],
        listing: Listing,
        target_catalog: str | None,
        schema_of: SchemaOf,
        options: ConversionOptions,
    ) -> None:
        #: The tables with their target names.
        self.tables = with_target_names(tables, schema_of)
        self._names_by_target = tables_by_target(self.tables, schema_of)
        self._spark = spark
        self._listing = listing
        self._catalog = target_catalog
        self._schema_of = schema_of
        self._options = options

    def convert(self, table: TableInfo) -> ConversionResult:
        """Convert one of ``tables``, or what its catalog says of it by now.

        :raises PermanentError: the table is refused.
        :raises TransientError: trying again may help.
        """
        target = self._target(table)
        context = TableContext.open(self._spark, table, self._options)
        return _convert_one(
            context,
            lambda: context.list_files(self._listing),
            target,
            lambda: listed_before(self._listing, table),
        )

    def _target(self, table: TableInfo) -> registration.Target | None:
        schema = self._schema_of(table)
        if self._catalog is None and schema is None:
            return None
        target = registration.target_of(self._catalog, schema, table.target_table_name, self._options)
        same = self._names_by_target[target_key(table, self._schema_of)]
        if target is not None and len(same) > 1:
            raise PermanentError(same_target(same, target.name))
        return target


def make_failed_conversion(table: TableInfo, error: Exception) -> ConversionResult:
    """The result of a table that was not converted, without the error itself."""
    return ConversionResult(
        source_table=table.qualified_name,
        target_table="",
        success=False,
        status="refused" if is_refusal(error) else "failed",
        location=redacted(table.location),
    )


def _partition_columns(given: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    types = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given or (), "string")
    if isinstance(given, str) or not all(isinstance(word, str) for pair in types.items() for word in pair):
        raise PermanentError(
            f"partition_columns is {given!r}, expected a list of names or a mapping of name to type, "
            "such as {'year': 'int'}"
        )
    return types


def _convert_one(
    context: TableContext,
    list_files: Callable[[], ListedFiles],
    target: registration.Target | None,
    listed: Callable[[], ListedAt | None] = lambda: None,
) -> ConversionResult:
    started = time.monotonic()
    partition_types = parse_partition_types(context)
    registered = target is None or registration.check_target(context.spark, target, context.root, context.options)
    state = read_log_state(context)
    if state.exists:
        result = _finish_existing(context, state, target, registered)
    else:
        result = _convert_files(context, list_files(), partition_types, target, listed())
    return replace(result, duration_seconds=round(time.monotonic() - started, 3))


def _convert_files(
    context: TableContext,
    files: ListedFiles,
    partition_types: dict[str, str],
    target: registration.Target | None,
    listed: ListedAt | None,
) -> ConversionResult:
    table, root, storage, options = context.table, context.root, context.storage, context.options
    columns = list(partition_types)
    with preflight(context, files, partition_types, write_adds=True) as found:
        described, schema = found.files, found.schema
        txn_id = str(uuid.uuid4())
        info = log_actions.commit_info(
            number_of_files=described.file_count,
            partition_columns=columns,
            collect_stats=options.stats != "none",
            catalog_table=table.qualified_name if table.source != "none" else None,
            user_metadata=options.user_metadata,
            txn_id=txn_id,
            listed_at=listed.report_time if listed else None,
            number_of_bytes=described.byte_count,
            run_id=options.run_id,
        )
        with tempfile.TemporaryFile() as entry:
            write_actions(entry, (info, found.protocol, found.metadata))
            doing = f"Collecting the add actions of {table.qualified_name}"
            rows = write_adds(
                context.spark, entry, described, schema, columns, found.configuration, options, doing=doing
            )
            committed = delta_log.commit(storage, root, 0, entry, txn_id)
    if not committed:
        state = delta_log.log_state(storage, root)
        registered = target is None or registration.check_target(context.spark, target, root, options)
        return _finish_existing(context, state, target, registered)
    records = context.records
    records.keep_source(table)
    if described.file_count > options.checkpoint_over_files:
        write_checkpoint(storage, root, 0)
    notes = list(found.notes)
    if target is not None:
        records.keep_registration(target, options.region)
        done = registration.register(context.spark, target, root, schema.schema, columns, table.comment, options)
        notes += done.notes
    return ConversionResult(
        source_table=table.qualified_name,
        target_table=target.name if target else "",
        success=True,
        status="converted",
        file_count=described.file_count,
        byte_count=described.byte_count,
        is_empty=not described.file_count,
        row_count=rows,
        location=str(root),
        delta_log_location=str(log_folder(root)),
        version=0,
        user_metadata=options.user_metadata,
        ours=True,
        run_id=options.run_id,
        features=schema.features,
        notes=[*notes, *conversion_notes(listed)],
    )


def _finish_existing(
    context: TableContext, state: delta_log.LogState, target: registration.Target | None, registered: bool
) -> ConversionResult:
    """Finish what an earlier run of this package left undone of a table that has a log. Others' tables stay as is."""
    table, root, storage, options = context.table, context.root, context.storage, context.options
    logger.info("%s: %s", table.qualified_name, ALREADY_DELTA)
    notes = note_managed_table(table)
    made = False
    verified: dict[str, int] = {}
    same_table = state.ours and state.catalog_table in (None, table.qualified_name)
    if same_table:
        records = context.records
        verified = records.verified()
        if table.format != "delta" and records.source() is None:
            records.keep_source(table)
        if state.version == 0 and not state.has_checkpoint and (state.file_count or 0) > options.checkpoint_over_files:
            write_checkpoint(storage, root, 0)
        if target is not None and not registered:
            metadata = _read_metadata(context)
            records.keep_registration(target, options.region)
            done = registration.register(
                context.spark, target, root, metadata.schema, metadata.partition_columns, metadata.description, options
            )
            made = done.made
            notes += done.notes
            registered = True
    elif not registered:
        notes.append(f"Not registered: {_describe_origin(root, state)}. Register it yourself if it is this table")
    elif state.ours:
        notes.append(f"The log at {root} was made as {state.catalog_table}, at the same location")
    is_empty = same_table and state.version == 0 and state.file_count == 0
    if is_empty:
        notes.append("The Delta table has no data file. If the Hive table has some by now, sync it")
    by_this_run = same_table and options.run_id is not None and state.run_id == options.run_id
    status: Status = "converted" if by_this_run else "registered" if made else "already_delta"
    return ConversionResult(
        source_table=table.qualified_name,
        target_table=target.name if target and registered else "",
        success=True,
        status=status,
        file_count=state.file_count or 0,
        is_empty=is_empty,
        byte_count=(state.byte_count or 0) if same_table else 0,
        location=str(root),
        delta_log_location=str(log_folder(root)),
        version=state.version,
        user_metadata=state.user_metadata if same_table else None,
        ours=same_table,
        origin=None if same_table else _describe_origin(root, state),
        run_id=state.run_id if same_table else None,
        verified=verified,
        message=_BY_EARLIER_TRY if by_this_run else ALREADY_DELTA,
        notes=notes,
    )


def _describe_origin(root: Location, state: delta_log.LogState) -> str:
    """Who made a log that is not of this table's conversion, as far as that is known."""
    if state.ours:
        return f"the log at {root} was made as {state.catalog_table}"
    if state.has_first_entry:
        return f"the log at {root} was made by another writer"
    return (
        f"who made the log at {root} is not known: its first entry is gone, as Delta removes old ones, and there is no "
        "record of a conversion by this package beside it"
    )


def _read_metadata(context: TableContext) -> log_actions.Metadata:
    """The latest metadata of a table, from a checkpoint where the entries that are left have none."""
    try:
        return delta_log.read_metadata(context.storage, context.root)
    except MissingError:
        return snapshot_of(context.spark, context.storage, context.root).metadata
