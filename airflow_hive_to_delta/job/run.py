"""The Spark job: a JSON request in, a JSON result out, on any Spark.

    python -m airflow_hive_to_delta.job s3://bucket/job/_request.json --results s3://bucket/job

The request is a :class:`JobRequest`; :mod:`airflow_hive_to_delta.job.handlers` says what its actions take and give. The
folder of the results gets a document for each table as it ends, and in the end ``_done.json`` with the whole result. A
result with ``error`` is of a job that failed as a whole; ``error_kind`` names the error's class, and ``retryable`` says
whether trying again may help. A job whose folder has such a result without an error is done, and is not run again. What
the job is doing is written to standard error.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.errors import (
    HiveToDeltaError,
    MissingError,
    PermanentError,
    TransientError,
    describe_error,
)
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.progress import read_counts
from airflow_hive_to_delta.core.spark.session import cluster_session, local_session
from airflow_hive_to_delta.core.storage.uri import Location, parse_location
from airflow_hive_to_delta.job.actions import ACTIONS
from airflow_hive_to_delta.job.documents import (
    DONE,
    PROGRESS,
    delete_document,
    needs_spark,
    put_document,
    read_document,
    replace_document,
)
from airflow_hive_to_delta.job.processes import end_when_input_closes
from airflow_hive_to_delta.job.progress import describe_progress, print_progress
from airflow_hive_to_delta.job.request import JobRequest
from airflow_hive_to_delta.job.table_results import TableResults, has_lost_jvm, jvm_exit_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROGRESS_SECONDS = 10.0
#: The first waits 50 ms, and each of the others four times as long as the one before it.
_CONNECT_RETRIES = 5
#: What a session is called that is there before the request is read.
_NAME = "airflow-hive-to-delta"
#: A request that does not fit is as wrong the next time.
_REQUEST_ERRORS = (TypeError, ValueError, LookupError)
#: Of a driver that this process has not started, so that its exit code is not known here.
_LOST_DRIVER = (
    "The JVM of Spark's driver ended in the middle of the job: it was killed, by the kernel or the container when "
    "memory runs out or by a person, or it failed, and its log says why. If it was out of memory, give it more by the "
    "setting spark.driver.memory."
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m airflow_hive_to_delta.job", description=__doc__.partition("\n")[0])
    parser.add_argument("request", help="the path or the address of the request, a JSON document")
    parser.add_argument(
        "--results", help="the path or the address of a folder for the results; standard output when not given"
    )
    parser.add_argument(
        "--session",
        type=Path,
        help="a file with the settings of an embedded session, as JSON; the session of the cluster when not given",
    )
    parser.add_argument(
        "--package", type=Path, help="a zip of this package, for the Python workers of a Spark Connect server"
    )
    parser.add_argument(
        "--ends-with-input", action="store_true", help="end, with all processes of the session, when the input closes"
    )
    parser.add_argument(
        "--spark-output", type=int, help="an open file descriptor for what Spark says; beside the rest when not given"
    )
    parser.add_argument(
        "--variables", type=_parse_variables, default={}, help="more of the environment, as NAME=VALUE,NAME=VALUE"
    )
    parser.add_argument(
        "--keep-session", action="store_true", help="leave the session running at the end: others use it, too"
    )
    chosen = parser.parse_args(arguments)
    os.environ.update(chosen.variables)
    if chosen.ends_with_input:
        end_when_input_closes()
    embedded = json.loads(chosen.session.read_text()) if chosen.session else None
    spark = None
    try:
        location = _parse(chosen.request, "request")
        results = _parse(chosen.results, "--results") if chosen.results else None
        if needs_spark(location):
            spark = _open_session(_NAME, embedded, chosen.spark_output, chosen.package)
        request = JobRequest.from_dict(read_document(location, spark))
    except HiveToDeltaError as error:
        parser.error(f"the request at {chosen.request} cannot be read: {error}")
    except (ValueError, TypeError) as error:
        parser.error(f"{chosen.request} is no request: {error}")
    result = run(
        request,
        spark,
        embedded=embedded,
        results=results,
        spark_output=chosen.spark_output,
        package=chosen.package,
        keep_session=chosen.keep_session,
    )
    if results is None:
        print(json.dumps(result))
    if spark is not None and not chosen.keep_session:
        _stop(spark)
    return 1 if "error" in result else 0


def run(
    request: JobRequest,
    spark: SparkSession | None = None,
    *,
    embedded: dict[str, Any] | None = None,
    results: Location | None = None,
    spark_output: int | None = None,
    package: Path | None = None,
    keep_session: bool = False,
) -> dict[str, Any]:
    """Do what the request says, and return its result, which has ``error`` when the job failed as a whole.

    :param spark: the session; a new one when not given.
    :param embedded: the settings of an embedded session; None: the session is the cluster's own.
    :param results: the folder for results; None: none are kept.
    :param spark_output: an open file descriptor for what Spark says.
    :param package: a zip of this package, for the Python workers of a Spark Connect server.
    :param keep_session: leave a session running that was made or found here. One that is given is never stopped.
    :raises HiveToDeltaError: the result cannot be kept.
    """
    session = spark
    try:
        if session is None:
            session = _open_session(request.name, embedded, spark_output, package)
        if results is not None and (done := _read_done(results, session)) is not None:
            print_progress(f"{request.name} was done before")
            result = done
        else:
            result = _do(request, session, results, is_embedded=embedded is not None)
    except Exception as error:
        described = describe_error(_explain_refused_token(error), permanent=_REQUEST_ERRORS)
        result = _explain_lost_jvm(described.to_fields(), session)
        print_progress(f"{request.name} failed: {result['error_kind']}: {result['error']}")
    else:
        result = _explain_lost_jvm(result, session)
    try:
        if results is not None:
            put_document(results.child(DONE), result, session)
    finally:
        if spark is None and session is not None and not keep_session:
            _stop(session)
    return result


def _parse_variables(text: str) -> dict[str, str]:
    return dict(each.split("=", 1) for each in text.split(","))


def _do(request: JobRequest, session: SparkSession, results: Location | None, *, is_embedded: bool) -> dict[str, Any]:
    print_progress(f"{request.name} began, on Spark {session.version}")
    action = ACTIONS[request.action]
    if is_embedded and action.registers_tables:
        _check_registration(session, **request.arguments)
    kept = {"table_results": TableResults(session, results)} if action.keeps_table_results else {}
    with _reporting_progress(session, results):
        return action.load_handler()(session, **request.arguments, **kept)


def _read_done(results: Location, session: SparkSession) -> dict[str, Any] | None:
    """The result that an earlier process of this job has left, as where a platform starts a job again by itself."""
    try:
        done = read_document(results.child(DONE), session)
    except MissingError:
        return None
    if "error" not in done:
        return done
    delete_document(results.child(DONE), session)
    return None


def _parse(text: str, what: str) -> Location:
    """A location that is given as an address, or as a path from the working directory."""
    return parse_location(text if "://" in text else str(Path(text).resolve()), what)


def _stop(session: SparkSession) -> None:
    with suppress(Exception):  # of a JVM that is gone there is nothing to stop
        session.stop()


@contextmanager
def _redirecting_output(descriptor: int | None) -> Iterator[None]:
    """What a process that is started inside the block writes goes to this file descriptor."""
    if descriptor is None:
        yield
        return
    own = [os.dup(stream) for stream in (1, 2)]
    sys.stdout.flush()
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    try:
        yield
    finally:
        for stream, before in zip((1, 2), own, strict=True):
            os.dup2(before, stream)
            os.close(before)


def _explain_refused_token(error: Exception) -> Exception:
    """The error itself; for that of a Connect server which does not let the session in, one that says what to do."""
    code = error.getGrpcStatusCode() if hasattr(error, "getGrpcStatusCode") else None
    if code is None or code.name != "UNAUTHENTICATED":
        return error
    return TransientError(
        "The Spark Connect server does not let this client in: the token is missing, wrong, or has expired. Renew "
        f"it: it is the password of the Airflow connection to the server. (The error was: {error})"
    )


def _explain_lost_jvm(result: dict[str, Any], spark: SparkSession | None) -> dict[str, Any]:
    """Name the end of Spark's JVM in the errors of a result, which know only that a connection was refused."""
    each_table = (*result.get("results", ()), *result.get("lists", ()))
    failed = [each for each in (result, *each_table) if each.get("error") and each["retryable"]]
    reason = _describe_jvm_end(spark) if failed else None
    if reason and "lists" in result:  # which are made again soon enough, each by itself
        first = failed[0]
        explained = f"{reason} (The error was: {first['error']})"
        return {"error": explained, "retryable": True, "error_kind": TransientError.__name__}
    for each in failed if reason else ():
        each["error"] = f"{reason} (The error was: {each['error']})"
        each["error_kind"] = TransientError.__name__
    return result


def _describe_jvm_end(spark: SparkSession | None) -> str | None:
    """How the JVM of the session ended; None while it runs, or where this process has nothing to do with it."""
    code = jvm_exit_code(spark, 1)
    if code is None:
        return _LOST_DRIVER if has_lost_jvm(spark, 1) else None
    if code == -signal.SIGKILL:
        return (
            "Spark's JVM was killed (signal 9) in the middle of the job: by the kernel or the container when memory "
            "runs out, or by a person. Give the machine more memory, or let fewer or smaller jobs run at a time."
        )
    how = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
    return (
        f"Spark's JVM {how} in the middle of the job: its own log says why. If it was out of memory, give it more by "
        "the engine's argument memory."
    )


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
            "give the embedded Spark a metastore or another catalog by the engine's argument conf or "
            "spark-defaults.conf, or leave the target out"
        )


def _open_session(
    name: str, embedded: dict[str, Any] | None, spark_output: int | None, package: Path | None
) -> SparkSession:
    if package is not None:
        return _connect(package)
    with _redirecting_output(spark_output):
        return cluster_session(name) if embedded is None else local_session(name, **embedded)


def _connect(package: Path) -> SparkSession:
    """A session on the Connect server in ``SPARK_REMOTE``, which waits some 20 s for a server that does not answer.

    Without this, each request waits for ten minutes.

    :param package: for the Python workers of the server.
    """
    # Without a name, which would be a setting: the server would be asked for it, before it is said how long to wait.
    session = cluster_session(None)
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=_CONNECT_RETRIES)])
    session.addArtifacts(str(package), pyfile=True)
    return session


@contextmanager
def _reporting_progress(spark: SparkSession, results: Location | None) -> Iterator[None]:
    """Print now and then what was counted and how far Spark's stages are, where the session knows it.

    A task that waits for a job elsewhere finds it in the folder of the results, too.
    """
    tracker = spark.sparkContext.statusTracker() if hasattr(spark, "_jsparkSession") else None
    ended = threading.Event()

    def report() -> None:
        started = time.monotonic()
        while not ended.wait(_PROGRESS_SECONDS):
            try:
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()] if tracker else []
            except Exception:  # the JVM is gone; what fails by that says so
                return
            shown = [f"{s.name.partition(' at ')[0]}: {s.numCompletedTasks} of {s.numTasks} tasks" for s in stages if s]
            counts = read_counts()
            said = describe_progress(counts, "; ".join(shown))
            print_progress(f"Running for {time.monotonic() - started:.0f} s. {said}")
            if results is not None:
                # It is for the log of a task alone, which goes on without it. The next one may be written again.
                with suppress(Exception):
                    replace_document(results.child(PROGRESS), {**counts, "stages": "; ".join(shown)}, spark)

    reporter = threading.Thread(target=report, name="progress", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join()
