"""A sink of Structured Streaming that writes each micro-batch to a Delta table exactly once."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.delta.log.commits import log_state
from airflow_hive_to_delta.core.delta.log.files import commit_path, is_there
from airflow_hive_to_delta.core.errors import PermanentError, SchemaError
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.session import streaming_query_id
from airflow_hive_to_delta.core.spark.sql import error_condition, sql_identifier
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import Location, is_hidden, parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from airflow_hive_to_delta.core.storage.base import Storage

APPEND = "append"
COMPLETE = "complete"
_NEW_COLUMNS = "DELTA_METADATA_MISMATCH"
_OTHER_TYPES = "DELTA_FAILED_TO_MERGE_FIELDS"
_OPTIONS = {name.lower(): name for name in ("mergeSchema", "overwriteSchema", "txnAppId")}
_ACTION = re.compile(rb'\s*{\s*"(\w+)"')


class DeltaSink:
    """Writes micro-batches to a Delta table, each of them once, even if it is tried several times.

    A sink can be given to ``foreachBatch``, or called in a function that is::

        stream.writeStream.foreachBatch(DeltaSink(path)).option("checkpointLocation", checkpoint).start()
        stream.writeStream.foreachBatch(lambda data, batch_id: sink.add_batch(batch_id, data.dropDuplicates()))

    A batch is identified by its number and the id of its streaming query, which the query's checkpoint keeps. Both are
    written into the commit (Delta's ``txnAppId`` and ``txnVersion``, rule 8), and a batch that the table has already is
    skipped. ``writeStream.format("delta")`` writes them too, so a query that was stopped can continue with a sink on
    the same checkpoint.

    The first batch makes the table if it does not exist, in an empty folder only. A Hive table must be converted first.
    """

    #: The numbers of files in the commit of the last batch: ``numAddedFiles`` and ``numRemovedFiles``. Zeros when the
    #: batch was skipped. Over Spark Connect batches are written on the server, and these are not updated on the client.
    metrics: dict[str, int]

    def __init__(
        self,
        path: str,
        partition_columns: Sequence[str] = (),
        output_mode: str = APPEND,
        options: Mapping[str, str | bool] | None = None,
    ) -> None:
        """Make a sink. Nothing is read or written before the first batch.

        :param path: the table's root.
        :param partition_columns: the partition columns of a new table, in order. An existing table must have the same
            ones, unless none are given.
        :param output_mode: ``append`` adds the rows of a batch, ``complete`` replaces all rows by them.
        :param options: options of Delta, whose names may have any case. With ``mergeSchema`` the table gets the new
            columns of a batch. With ``overwriteSchema``, in the mode ``complete`` only, the columns of the batch and
            ``partition_columns`` replace the table's. ``txnAppId`` replaces the query's id, and is needed
            over Spark Connect, which does not give the id. It belongs to one checkpoint: with a new checkpoint batches
            are numbered from 0 again, and would be skipped.
        :raises PermanentError: an argument is not one of these.
        """
        self._path = path
        self._root = parse_location(path, "The path of a DeltaSink")
        if isinstance(partition_columns, str):
            raise PermanentError(f"partition_columns is {partition_columns!r}, expected a list of names")
        self._partition_columns = tuple(partition_columns)
        self._output_mode = _output_mode(output_mode)
        given = _options(options or {})
        self._merge_schema = _flag(given, "mergeSchema")
        self._overwrite_schema = bool(_flag(given, "overwriteSchema"))
        self._app_id = given.get("txnAppId")
        if self._app_id is not None and not (isinstance(self._app_id, str) and self._app_id):
            raise PermanentError(f"The option txnAppId is {self._app_id!r}, expected a name that is not empty")
        if self._overwrite_schema and self._output_mode != COMPLETE:
            raise PermanentError(
                "The option overwriteSchema needs the output mode complete, found append: rows that stay need their "
                "columns. Use mergeSchema to add columns"
            )
        #: The latest version of the table after the last batch.
        self._version: int | None = None
        self.metrics = _metrics(Counter())

    def __call__(self, data: DataFrame, batch_id: int) -> None:
        """Write a batch; ``foreachBatch`` calls this."""
        self.add_batch(batch_id, data)

    def __repr__(self) -> str:
        return f"DeltaSink[{self._path}]"

    def add_batch(self, batch_id: int, data: DataFrame) -> None:
        """Write a batch, unless the table already has it or a later one of the same query.

        The batch may read the table that it is written to.

        :raises SchemaError: the columns of the batch do not fit the table's.
        :raises PermanentError: the query's id is not known, or the table cannot take the batch.
        """
        self.metrics = _metrics(Counter())
        spark = data.sparkSession
        app_id = self._app_id or streaming_query_id(spark)
        if not app_id:
            raise PermanentError(
                f"Batch {batch_id} for {self} has no streaming query whose id would tell it from other batches: it is "
                "written outside of foreachBatch, or over Spark Connect, which does not tell the id. Pass "
                "options={'txnAppId': a name that stays the same when the query is started again}"
            )
        storage = storage_for(self._root, spark, ConversionOptions())
        # After a failed batch the version is not known any more: the batch may have been written.
        known, self._version = self._version, None
        if known is None or not is_there(storage, commit_path(self._root, known)):
            # This is the first batch, or the table was rolled back, dropped or made again meanwhile.
            known = self._find_table(storage, data)
        self._write(batch_id, data, str(app_id))
        files = self._written_since(storage, known, str(app_id), batch_id)
        if files is not None:
            self.metrics = _metrics(files)
            return
        # The batch was skipped, so nothing has computed it. A query with state needs the state of every batch.
        with spark_call(f"Computing batch {batch_id}, which {self} has already"):
            data.write.format("noop").mode("overwrite").save()

    def _written_since(self, storage: Storage, known: int, app_id: str, batch_id: int) -> Counter[str] | None:
        """The numbers of actions in the entry of the batch, after a known version; None when there is no such entry."""
        newest = known
        while is_there(storage, commit_path(self._root, newest + 1)):
            newest += 1
        self._version = newest
        entries = (commit_path(self._root, version) for version in range(newest, known, -1))
        found = (_actions_of(storage, entry, app_id, batch_id) for entry in entries)
        return next((actions for actions in found if actions is not None), None)

    def _find_table(self, storage: Storage, data: DataFrame) -> int:
        """The latest version of the table, which is made if it does not exist."""
        version = log_state(storage, self._root).version
        if version is None:
            self._create_table(storage, data)
            version = log_state(storage, self._root).version or 0
        elif self._partition_columns and not self._overwrite_schema:
            found = self._columns_of_partitions(data.sparkSession)
            if list(map(str.lower, found)) != list(map(str.lower, self._partition_columns)):
                raise PermanentError(
                    f"{self} has the partition columns {', '.join(self._partition_columns)}, and the table has "
                    f"{', '.join(found) or 'none'}. Give the sink the same, or leave them out to follow the table"
                )
        return version

    def _create_table(self, storage: Storage, data: DataFrame) -> None:
        if names := [name for name in storage.list_names(self._root) if not is_hidden(name.rstrip("/"))]:
            raise PermanentError(
                f"{self._root} is no Delta table, but is not empty: it holds {', '.join(sorted(names)[:3])}. Convert "
                "the table that is there before streaming into it, or choose another path"
            )
        # Without rows: files of a first batch that fails would look like those of a Hive table.
        with spark_call(f"Making the table of {self}"):
            writer = data.limit(0).write.format("delta").mode(APPEND)
            writer.partitionBy(*self._partition_columns).save(str(self._root))

    def _write(self, batch_id: int, data: DataFrame, app_id: str) -> None:
        from pyspark.errors import AnalysisException

        doing = f"Writing batch {batch_id} to {self}"
        with spark_call(doing):
            writer = self._writer(data).option("txnAppId", app_id).option("txnVersion", str(batch_id))
            try:
                writer.save(str(self._root))
            except AnalysisException as error:
                condition = error_condition(error)
                if condition not in (_NEW_COLUMNS, _OTHER_TYPES):
                    raise
                new, other = self._misfits(data)
                # Other types alone do not make Delta refuse new columns: some it casts by itself.
                if new and condition == _NEW_COLUMNS:
                    raise SchemaError(
                        f"{doing}: the table has not these columns of the batch: {', '.join(new)}. Pass "
                        "options={'mergeSchema': True} to add them, or leave them out of the batch"
                    ) from error
                if not other:
                    raise
                raise SchemaError(
                    f"{doing}: the table has these columns of the batch with other types: {', '.join(other)}. Cast "
                    "them in the batch"
                ) from error

    def _misfits(self, data: DataFrame) -> tuple[list[str], list[str]]:
        """The columns of a batch that the table does not have, and those that it has with another type."""
        table = data.sparkSession.read.format("delta").load(str(self._root)).schema
        known = {field.name.lower(): field.dataType.simpleString() for field in table}
        found = [(field.name, field.dataType.simpleString()) for field in data.schema]
        new = [f"{name} {kind}" for name, kind in found if name.lower() not in known]
        other = [
            f"{name} is {kind}, expected {known[name.lower()]}"
            for name, kind in found
            if known.get(name.lower(), kind) != kind
        ]
        return new, other

    def _writer(self, data: DataFrame) -> DataFrameWriter:
        writer = data.write.format("delta")
        if self._merge_schema is not None:
            writer = writer.option("mergeSchema", self._merge_schema)
        if self._output_mode == APPEND:
            return writer.mode(APPEND)
        # All rows are replaced, whatever partitionOverwriteMode the session has.
        writer = writer.mode("overwrite").option("partitionOverwriteMode", "static")
        if self._overwrite_schema:
            # Without partition columns Delta would make a table with a new schema unpartitioned.
            columns = self._partition_columns or self._columns_of_partitions(data.sparkSession)
            writer = writer.option("overwriteSchema", True).partitionBy(*columns)
        return writer

    def _columns_of_partitions(self, spark: SparkSession) -> Sequence[str]:
        with spark_call(f"Reading the partition columns of {self}"):
            row = spark.sql(f"DESCRIBE DETAIL {sql_identifier('delta', str(self._root))}").first()
        return list(row.partitionColumns) if row else []


def _output_mode(given: str) -> str:
    mode = str(given).lower()
    if mode not in {APPEND, COMPLETE}:
        raise PermanentError(
            f"The output mode is {given!r}, expected 'append' or 'complete'. Rows that change one by one need a MERGE "
            "in a foreachBatch function"
        )
    return mode


def _options(given: Mapping[str, str | bool]) -> dict[str, str | bool]:
    """The options under Delta's spelling of their names. Messages have no values, which can be credentials."""
    if unknown := sorted(name for name in given if name.lower() not in _OPTIONS):
        raise PermanentError(
            f"Unknown options of a DeltaSink: {', '.join(unknown)}; expected some of {', '.join(_OPTIONS.values())}"
        )
    if len({name.lower() for name in given}) != len(given):
        raise PermanentError(f"The options {', '.join(given)} have one of them twice, in another case; give it once")
    return {_OPTIONS[name.lower()]: value for name, value in given.items()}


def _flag(options: Mapping[str, str | bool], name: str) -> bool | None:
    """The value of a flag; None when it is not given, so that the session's setting counts."""
    if name not in options:
        return None
    text = str(options[name]).lower()
    if text not in {"true", "false"}:
        raise PermanentError(f"The option {name} is {options[name]!r}, expected true or false")
    return text == "true"


def _metrics(files: Mapping[str, int]) -> dict[str, int]:
    return {"numAddedFiles": files.get("add", 0), "numRemovedFiles": files.get("remove", 0)}


def _actions_of(storage: Storage, entry: Location, app_id: str, batch_id: int) -> Counter[str] | None:
    """The number of actions of each kind in an entry; None when it is not the entry of this batch.

    Lines are counted without being parsed, because a complete batch removes every file of a table.
    """
    kinds: Counter[str] = Counter()
    of_this_batch = False
    with storage.open(entry) as lines:
        for line in lines:
            found = _ACTION.match(line)
            kind = found[1].decode() if found else ""
            kinds[kind] += 1
            if kind == "txn":
                txn = json.loads(line)["txn"]
                of_this_batch |= (txn["appId"], txn["version"]) == (app_id, batch_id)
    return kinds if of_this_batch else None
