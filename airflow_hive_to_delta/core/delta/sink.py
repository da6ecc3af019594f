"""The writable end of a converted table for Structured Streaming: micro-batches, each written exactly once."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.delta.log import commit_path, log_state
from airflow_hive_to_delta.core.delta.log_files import is_there
from airflow_hive_to_delta.core.errors import PermanentError, SchemaError
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.spark.errors import spark_call
from airflow_hive_to_delta.core.spark.session import streaming_query_id
from airflow_hive_to_delta.core.spark.sql import error_condition, sql_identifier
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import Location, is_hidden, parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from airflow_hive_to_delta.core.storage.log_storage import Storage

APPEND = "append"
COMPLETE = "complete"


class DeltaSink:
    """Writes micro-batches to a Delta table, each of them once, however often it is tried.

    A sink is what ``foreachBatch`` takes, and can be called from a function of your own::

        stream.writeStream.foreachBatch(DeltaSink(path)).option("checkpointLocation", place).start()
        stream.writeStream.foreachBatch(lambda data, batch_id: sink.add_batch(batch_id, data.dropDuplicates()))

    What tells a batch from others is the id of its streaming query, which the query's checkpoint keeps, and its number.
    Both go into the commit (Delta's ``txnAppId`` and ``txnVersion``, rule 8), and a batch that the table has already is
    passed over. They are what ``writeStream.format("delta")`` writes too: a query can go on with a sink where it
    stopped without one, on the same checkpoint.

    A table that is not there is made by the first batch, in an empty folder only: a Hive table is converted first.
    """

    #: Files of the commit that the last batch made: ``numAddedFiles`` and ``numRemovedFiles``. Zeros when the batch was
    #: passed over. Over Spark Connect a batch is written on the server, and a client's sink does not hear of it.
    metrics: dict[str, int]

    def __init__(
        self,
        path: str,
        partition_columns: Sequence[str] = (),
        output_mode: str = APPEND,
        options: Mapping[str, str | bool] | None = None,
    ) -> None:
        """Nothing is read or written yet.

        :param path: the table's root.
        :param partition_columns: of a new table, in order. An existing one must have the same; none given: it has its
            own.
        :param output_mode: ``append`` adds the rows of a batch, ``complete`` puts them in the place of all others.
        :param options: as Delta has them, in any case. ``mergeSchema``: new columns of a batch become the table's.
            ``overwriteSchema``, with ``complete`` only: the batch's columns and ``partition_columns`` replace the
            table's. ``txnAppId``: instead of the query's id; needed over Spark Connect, which does not tell it. It
            belongs to one checkpoint: with a new one, batches are numbered from 0 again and would be passed over.
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
        #: The latest version of the table when the last batch was through.
        self._version: int | None = None
        self.metrics = _metrics(Counter())

    def __call__(self, data: DataFrame, batch_id: int) -> None:
        """What ``foreachBatch`` calls."""
        self.add_batch(batch_id, data)

    def __repr__(self) -> str:
        return f"DeltaSink[{self._path}]"

    def add_batch(self, batch_id: int, data: DataFrame) -> None:
        """Write a batch, unless the table has it or a later one of the same query already.

        The batch may read the table that it is written to.
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
        # After a batch that failed, wherever it did, the next one looks afresh: it may have been written.
        known, self._version = self._version, None
        if known is None or not is_there(storage, commit_path(self._root, known)):
            # The first batch, or the table is not the one it was: rolled back, dropped, made anew.
            known = self._find_table(storage, data)
        self._write(batch_id, data, str(app_id))
        files = self._written_since(storage, known, str(app_id), batch_id)
        if files is not None:
            self.metrics = _metrics(files)
            return
        # Passed over, and so not computed; but a query with state goes on only when the state of each batch was.
        with spark_call(f"Computing batch {batch_id}, which {self} has already"):
            data.write.format("noop").mode("overwrite").save()

    def _written_since(self, storage: Storage, known: int, app_id: str, batch_id: int) -> Counter[str] | None:
        """The actions of the entry that the batch made after a known version; None when it made none."""
        newest = known
        while is_there(storage, commit_path(self._root, newest + 1)):
            newest += 1
        self._version = newest
        entries = (commit_path(self._root, version) for version in range(newest, known, -1))
        found = (_actions_of(storage, entry, app_id, batch_id) for entry in entries)
        return next((actions for actions in found if actions is not None), None)

    def _find_table(self, storage: Storage, data: DataFrame) -> int:
        """The table's latest version; a new table's first."""
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
        # Without rows, so that the files of a first batch that fails are never taken for those of a Hive table.
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
                # Types that Delta would cast by itself differ too, and are not why it refuses new columns.
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
        """The columns of a batch that the table has not, and those that it has with another type."""
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
        # All rows, whatever the session says of overwriting.
        writer = writer.mode("overwrite").option("partitionOverwriteMode", "static")
        if self._overwrite_schema:
            # Delta makes a table with a new schema unpartitioned when it is told no partition columns.
            columns = self._partition_columns or self._columns_of_partitions(data.sparkSession)
            writer = writer.option("overwriteSchema", True).partitionBy(*columns)
        return writer

    def _columns_of_partitions(self, spark: SparkSession) -> Sequence[str]:
        with spark_call(f"Reading the partition columns of {self}"):
            row = spark.sql(f"DESCRIBE DETAIL {sql_identifier('delta', str(self._root))}").first()
        return list(row.partitionColumns) if row else []


_NEW_COLUMNS = "DELTA_METADATA_MISMATCH"
_OTHER_TYPES = "DELTA_FAILED_TO_MERGE_FIELDS"
_OPTIONS = {name.lower(): name for name in ("mergeSchema", "overwriteSchema", "txnAppId")}
_ACTION = re.compile(rb'\s*{\s*"(\w+)"')


def _output_mode(given: str) -> str:
    mode = str(given).lower()
    if mode not in {APPEND, COMPLETE}:
        raise PermanentError(
            f"The output mode is {given!r}, expected 'append' or 'complete'. Rows that change one by one need a MERGE "
            "in a foreachBatch function"
        )
    return mode


def _options(given: Mapping[str, str | bool]) -> dict[str, str | bool]:
    """The options under the names that Delta spells. Messages have no values: an option can be a credential."""
    if unknown := sorted(name for name in given if name.lower() not in _OPTIONS):
        raise PermanentError(
            f"Unknown options of a DeltaSink: {', '.join(unknown)}; expected some of {', '.join(_OPTIONS.values())}"
        )
    if len({name.lower() for name in given}) != len(given):
        raise PermanentError(f"The options {', '.join(given)} have one of them twice, in another case; give it once")
    return {_OPTIONS[name.lower()]: value for name, value in given.items()}


def _flag(options: Mapping[str, str | bool], name: str) -> bool | None:
    """None when it is not given: then the session decides."""
    if name not in options:
        return None
    text = str(options[name]).lower()
    if text not in {"true", "false"}:
        raise PermanentError(f"The option {name} is {options[name]!r}, expected true or false")
    return text == "true"


def _metrics(files: Mapping[str, int]) -> dict[str, int]:
    return {"numAddedFiles": files.get("add", 0), "numRemovedFiles": files.get("remove", 0)}


def _actions_of(storage: Storage, entry: Location, app_id: str, batch_id: int) -> Counter[str] | None:
    """How many actions of each kind an entry has; None when it is not that of this batch.

    A complete batch removes every file of a table: lines are counted, not parsed.
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
