"""What a job leaves of each table as it ends, so that a job that dies loses no more than the tables it was working on.

The folder of a job holds, for each table, a document that its work has begun and one with its result. The job writes
them with its own identity; the task of the next try reads them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.storage.uri import Location
from airflow_hive_to_delta.job.documents import begun_name, put_document, result_name
from airflow_hive_to_delta.job.progress import print_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What a job leaves of one table: its ``result``, and its ``files`` where the job has listed them itself.
Record = dict[str, Any]
#: Set by spark-submit for the Python program of a driver, which is a child of the driver's JVM.
_GATEWAY = "PYSPARK_GATEWAY_PORT"
_PARENT = os.getppid()
_JOB_FOLDER = re.compile(r"(\d{4,})-(\d{2,})-[^/]+/([^/]+)")


class TableResults:
    """Writes what one job leaves of its tables. One that cannot write goes on without it, and says so once.

    :param folder: the folder of the job; None: nothing is kept.
    """

    def __init__(self, spark: SparkSession, folder: Location | None) -> None:
        self._spark = spark
        self._folder = folder
        self._lock = threading.Lock()

    def begin(self, table: str) -> None:
        # Without a JVM nothing can be done for it: what ended the JVM was a table that had begun before.
        if not has_lost_jvm(self._spark):
            self._put(begun_name(table), {"table": table})

    def end(self, table: str, record: Record) -> None:
        result = record["result"]
        if result.get("error") and result.get("retryable") and has_lost_jvm(self._spark, 1):
            return  # it failed because the JVM ended, and may be what ended it
        self._put(result_name(table), {"table": table, **record})

    def _put(self, name: str, document: dict[str, Any]) -> None:
        with self._lock:
            folder = self._folder
        if folder is None:
            return
        try:
            put_document(folder.child(name), document, self._spark)
        except Exception as error:
            with self._lock:
                self._folder = None
            print_progress(
                f"The results of single tables cannot be kept at {folder}, so if this job dies, the next try "
                f"runs all its tables again: {error}"
            )


def has_lost_jvm(spark: SparkSession | None, seconds: float = 0) -> bool:
    """Whether the JVM of the session has ended: one that this process has started, or one that has started it.

    :param seconds: to wait for its end: its connections are closed a moment before it is gone.
    """
    if _GATEWAY not in os.environ:
        return jvm_exit_code(spark, seconds) is not None
    until = time.monotonic() + seconds
    while os.getppid() == _PARENT:  # which changes when it is gone
        if time.monotonic() >= until:
            return False
        time.sleep(0.05)
    return True


def jvm_exit_code(spark: SparkSession | None, seconds: float = 0) -> int | None:
    """How the JVM ended that this process has started for the session; None while it runs, or is none of ours.

    :param seconds: to wait for its end: its connections are closed a moment before it is gone.
    """
    gateway = getattr(getattr(spark, "_sc", None), "_gateway", None)
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return None
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def job_folder_name(try_number: int, job_number: int, token: str) -> str:
    """The name of the folder of a job, among those of all jobs of a task.

    :param job_number: of the job among those of the try, from 1.
    """
    return f"{try_number:04d}-{job_number:02d}-{token}"


@dataclass
class EarlierTries:
    """What the jobs of earlier tries have left of a task's tables."""

    #: The record of each table whose latest work has ended, with the try that it ended in.
    ended: dict[str, tuple[int, Record]] = field(default_factory=dict)
    #: Tables whose latest work has begun and not ended: whatever ended the job, it may have been one of these.
    suspects: list[str] = field(default_factory=list)


def earlier_tries(
    tables: Iterable[str], paths: Iterable[str], read: Callable[[str], str], before: int | None = None
) -> EarlierTries:
    """Find what the jobs of earlier tries have left of tables, in the folders of a task's jobs.

    :param tables: the qualified names of the tables.
    :param paths: of the files in those folders, from the folder that holds them all.
    :param read: the text of one of them.
    :param before: jobs of this try and of later ones do not count.
    """
    found = EarlierTries()
    latest: dict[str, tuple[tuple[int, int], str]] = {}
    for path in paths:
        if parts := _JOB_FOLDER.fullmatch(path):
            job = (int(parts[1]), int(parts[2]))
            if before is not None and job[0] >= before:
                continue
            latest[parts[3]] = max((job, path), latest.get(parts[3], (job, path)))
    never = ((0, 0), "")
    for table in tables:
        begun, _ = latest.get(begun_name(table), never)
        ended, path = latest.get(result_name(table), never)
        if begun > ended:
            found.suspects.append(table)
        elif path:
            found.ended[table] = (ended[0], json.loads(read(path)))
    return found
