"""The Spark job: a JSON request in, a JSON result out, on any Spark.

    python -m airflow_hive_to_delta.job request.json --result result.json

The request is a :class:`JobRequest`; :mod:`airflow_hive_to_delta.actions` says what its actions take and give. A result
with ``error`` is of a job that failed as a whole; ``retryable`` says whether trying again may help. What the job is
doing is told on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.actions import ACTIONS, say
from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.models import ConversionOptions
from airflow_hive_to_delta.core.session import local_session
from airflow_hive_to_delta.engines.engine import JobRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    try:
        session = spark or _session(request)
        try:
            say(f"{request.name} began, on Spark {session.version}")
            if request.session is not None and request.action == "convert":
                _check_registration(session, **request.arguments)
            with _progress(session):
                return ACTIONS[request.action](session, **request.arguments)
        finally:
            if spark is None:
                session.stop()
    except Exception as error:
        say(f"{request.name} failed: {type(error).__name__}: {error}")
        return {"error": str(error) or type(error).__name__, "retryable": not isinstance(error, _PERMANENT)}


#: A request that does not fit is as wrong the next time.
_PERMANENT = (PermanentError, TypeError, ValueError, LookupError)


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
            say(f"Running for {time.monotonic() - started:.0f} s. {'; '.join(told)}")

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


if __name__ == "__main__":
    sys.exit(main())
