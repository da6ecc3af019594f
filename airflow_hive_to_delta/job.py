"""The Spark job: a JSON request in, a JSON result out, on any Spark.

    python -m airflow_hive_to_delta.job request.json --result result.json

The request is a :class:`JobRequest`; its ``action`` says what its ``arguments`` are:

- ``discover``: ``allow`` and ``deny``, patterns on ``catalog.schema.table``. The result has ``tables``.
- ``list``: ``tables``; ``listing``, as :func:`listing_of` takes it; ``manifests``, where each table's manifest goes,
  or null; ``inline_limit``; ``options``. The result has ``lists``: a file list for each table, or its error.
- ``convert``: ``tables``; ``lists``, a file list for each; ``target_catalog``; ``target_schemas``, one for each table;
  ``max_workers``; ``options``. The result has ``results``.

A result with ``error`` is of a job that failed as a whole; ``retryable`` says whether trying again may help. What the
job is doing is told on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.converter import convert
from airflow_hive_to_delta.core.discovery import UCDiscovery
from airflow_hive_to_delta.core.errors import PermanentError, spark_call
from airflow_hive_to_delta.core.listing import (
    DatabricksListing,
    DataFrameListing,
    InventoryListing,
    S3Listing,
)
from airflow_hive_to_delta.core.models import ConversionOptions, ConversionResult, TableInfo
from airflow_hive_to_delta.core.session import local_session
from airflow_hive_to_delta.engines.engine import JobRequest
from airflow_hive_to_delta.manifests import FileList, files_df, too_many

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PROGRESS_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m airflow_hive_to_delta.job", description=__doc__.partition("\n")[0])
    parser.add_argument("request", type=Path, help="the request, a JSON document")
    parser.add_argument("--result", type=Path, help="where the result goes; standard output when not given")
    parser.add_argument(
        "--ends-with-input", action="store_true", help="end, with all processes of the group, when the input closes"
    )
    chosen = parser.parse_args(arguments)
    if chosen.ends_with_input:
        threading.Thread(target=_end_with_input, name="end-with-input", daemon=True).start()
    try:
        request = JobRequest.from_dict(json.loads(chosen.request.read_text()))
    except (OSError, ValueError, TypeError) as error:
        parser.error(f"{chosen.request} is no request: {error}")
    result = run(request)
    if chosen.result is None:
        print(json.dumps(result))
    else:
        written = chosen.result.with_suffix(".tmp")
        written.write_text(json.dumps(result))
        written.replace(chosen.result)
    return 1 if "error" in result else 0


def run(request: JobRequest, spark: SparkSession | None = None) -> dict[str, Any]:
    """Do what the request says, in the given session, an embedded one or the cluster's own. Never raises."""
    actions: dict[str, Callable[..., dict[str, Any]]] = {"discover": _discover, "list": _list, "convert": _convert}
    try:
        session = spark or _session(request)
        try:
            _say(f"{request.name} began, on Spark {session.version}")
            if request.session is not None and request.action == "convert":
                _check_registration(session, **request.arguments)
            with _progress(session):
                return actions[request.action](session, **request.arguments)
        finally:
            if spark is None:
                session.stop()
    except Exception as error:
        _say(f"{request.name} failed: {type(error).__name__}: {error}")
        return {"error": str(error) or type(error).__name__, "retryable": not isinstance(error, _PERMANENT)}


#: A request that does not fit is as wrong the next time.
_PERMANENT = (PermanentError, TypeError, ValueError, LookupError)


def listing_of(spark: SparkSession, given: Mapping[str, Any]) -> DataFrameListing:
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


def _discover(spark: SparkSession, allow: list[str], deny: list[str]) -> dict[str, Any]:
    tables = UCDiscovery(allow, deny).discover(spark)
    _say(f"Found {len(tables)} tables")
    return {"tables": [table.to_dict() for table in tables]}


def _list(
    spark: SparkSession,
    tables: list[dict[str, Any]],
    listing: dict[str, Any],
    manifests: list[str | None],
    inline_limit: int,
    options: dict[str, Any],
) -> dict[str, Any]:
    strategy = listing_of(spark, listing)
    chosen = ConversionOptions.from_dict(options)
    lists = []
    for document, manifest in zip(tables, manifests, strict=True):
        table = TableInfo.from_dict(document)
        try:
            files = _list_one(strategy.list_files_df(spark, table, chosen), table, manifest, inline_limit)
            _say(f"{table.qualified_name}: {files.file_count} files, {files.byte_count} bytes")
            lists.append(files.to_dict())
        except Exception as error:
            _say(f"{table.qualified_name}: {error}")
            retryable = not isinstance(error, PermanentError)
            lists.append({"table": table.qualified_name, "error": str(error), "retryable": retryable})
    return {"lists": lists}


def _list_one(files: DataFrame, table: TableInfo, manifest: str | None, inline_limit: int) -> FileList:
    kept = files.persist()
    try:
        count, size = kept.selectExpr("count(*)", "coalesce(sum(size), 0)").collect()[0]
        if count <= inline_limit:
            inline = [row.asDict() for row in kept.collect()]
            return FileList(table.qualified_name, count, size, files=inline)
        if manifest is None:
            raise PermanentError(too_many(table.qualified_name, inline_limit))
        kept.write.parquet(manifest, mode="overwrite", compression="zstd")
        return FileList(table.qualified_name, count, size, manifest=manifest)
    finally:
        kept.unpersist()


def _convert(
    spark: SparkSession,
    tables: list[dict[str, Any]],
    lists: list[dict[str, Any]],
    target_catalog: str | None,
    target_schemas: list[str | None],
    options: dict[str, Any],
    max_workers: int = 4,
) -> dict[str, Any]:
    chosen = ConversionOptions.from_dict(options)
    infos = [TableInfo.from_dict(table) for table in tables]
    listing = _Listed({files["table"]: FileList.from_dict(files) for files in lists})
    results: dict[str, ConversionResult] = {}
    for schema in dict.fromkeys(target_schemas):
        chosen_tables = [table for table, its in zip(infos, target_schemas, strict=True) if its == schema]
        done = convert(
            spark, _Known(chosen_tables), listing, target_catalog, schema, max_workers=max_workers, options=chosen
        )
        results |= {table.qualified_name: result for table, result in zip(chosen_tables, done, strict=True)}
    return {"results": [results[table.qualified_name].to_dict() for table in infos]}


class _Known:
    """A discovery of tables that were discovered already."""

    def __init__(self, tables: list[TableInfo]) -> None:
        self._tables = tables

    def discover(self, spark: SparkSession) -> list[TableInfo]:  # noqa: ARG002
        return self._tables


class _Listed(DataFrameListing):
    """A listing of files that were listed already."""

    def __init__(self, lists: Mapping[str, FileList]) -> None:
        self._lists = lists

    def list_files_df(self, spark: SparkSession, table: TableInfo, options: ConversionOptions) -> DataFrame:  # noqa: ARG002
        files = self._lists[table.qualified_name]
        found = files_df(spark, files)
        with spark_call(f"Reading the list of the files of {table.qualified_name}"):
            count = found.count()
        if count != files.file_count:
            where = f" at {files.manifest}" if files.manifest else ""
            raise PermanentError(
                f"The list of the files of {table.qualified_name}{where} has {count} files, but "
                f"{files.file_count} were listed: it was changed since. List the files again"
            )
        return found


def _check_registration(
    spark: SparkSession,
    target_catalog: str | None,
    target_schemas: list[str | None],
    options: dict[str, Any],
    **_: Any,
) -> None:
    """Refuse a target that would be gone when the embedded session ends: its own catalog is only in memory."""
    by_sql = any(target_schemas) and ConversionOptions.from_dict(options).register_in == "sql"
    in_memory = spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"
    if by_sql and in_memory and target_catalog in (None, "spark_catalog"):
        raise PermanentError(
            f"The target is a schema of the embedded Spark's own catalog ({', '.join(filter(None, target_schemas))}), "
            "which is kept in memory and ends with the job. Register in Glue by ConversionOptions(register_in='glue'), "
            "give the embedded Spark a metastore or another catalog by LocalSpark(conf=…) or spark-defaults.conf, or "
            "leave the target out"
        )


def _session(request: JobRequest) -> SparkSession:
    if request.session is not None:
        return local_session(request.name, **request.session)
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName(request.name).getOrCreate()


@contextmanager
def _progress(spark: SparkSession) -> Iterator[None]:
    """Say now and then how far Spark's stages are, where the session can tell."""
    tracker = spark.sparkContext.statusTracker() if hasattr(spark, "_jsparkSession") else None
    ended = threading.Event()

    def tell() -> None:
        started = time.monotonic()
        while not ended.wait(_PROGRESS_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()] if tracker else []
            told = [f"{s.name.partition(' at ')[0]}: {s.numCompletedTasks} of {s.numTasks} tasks" for s in stages if s]
            _say(f"Running for {time.monotonic() - started:.0f} s. {'; '.join(told)}")

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def _end_with_input() -> None:
    while os.read(0, 4096):  # not through sys.stdin, whose lock Python wants when it shuts down
        pass
    # Spark's JVM is in this group, and its Python workers end with it.
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
