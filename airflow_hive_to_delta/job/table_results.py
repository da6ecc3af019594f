"""What a job leaves of each table as it ends, so that a job that dies loses no more than the tables it was working on.

A folder under the staging root holds, for each table and try, a record that its work has begun and one with its result.
The job writes them with its own identity; the task of the next try reads them.
"""

from __future__ import annotations

import io
import json
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.job.file_names import safe_name
from airflow_hive_to_delta.job.progress import print_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BEGUN, _ENDED = "begun", "ended"
#: What a job leaves of one table: its ``result``, and its ``files`` where the job has listed them itself.
Record = dict[str, Any]


class TableResults:
    """Writes the records of one job. One that cannot write goes on without them, and says so once.

    :param given: what the request says: the ``folder``, and the number of the task's ``try``; None: nothing is kept.
    """

    def __init__(self, spark: SparkSession, given: Mapping[str, Any] | None) -> None:
        self._spark = spark
        self._given = given
        self._lock = threading.Lock()

    def begin(self, table: str) -> None:
        # Without a JVM nothing can be done for it: what ended the JVM was a table that had begun before.
        if jvm_exit_code(self._spark) is None:
            self._put(table, _BEGUN, {"table": table})

    def end(self, table: str, record: Record) -> None:
        result = record["result"]
        if result.get("error") and result.get("retryable") and jvm_exit_code(self._spark, 1) is not None:
            return  # it failed because the JVM ended, and may be what ended it
        self._put(table, _ENDED, {"table": table, **record})

    def _put(self, table: str, kind: str, document: dict[str, Any]) -> None:
        from airflow_hive_to_delta.core.options import ConversionOptions
        from airflow_hive_to_delta.core.storage.log_storage import storage_for
        from airflow_hive_to_delta.core.storage.uri import parse_location

        with self._lock:
            given = self._given
        if given is None:
            return
        path = parse_location(given["folder"]).child(f"{safe_name(table)}.{given['try']:04d}.{kind}.json")
        try:
            storage = storage_for(path, self._spark, ConversionOptions())
            storage.put_if_absent(path, io.BytesIO(json.dumps(document).encode()))
        except Exception as error:
            with self._lock:
                self._given = None
            print_progress(
                f"The results of single tables cannot be kept at {given['folder']}, so if this job dies, the next try "
                f"runs all its tables again: {error}"
            )


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


@dataclass
class EarlierTries:
    """What the jobs of earlier tries have left of a task's tables."""

    #: The record of each table whose latest work has ended, with the try that it ended in.
    ended: dict[str, tuple[int, Record]] = field(default_factory=dict)
    #: Tables whose latest work has begun and not ended: whatever ended the job, it may have been one of these.
    suspects: list[str] = field(default_factory=list)


def earlier_tries(tables: Iterable[str], names: Iterable[str], read: Callable[[str], str]) -> EarlierTries:
    """What a folder's files tell of some tables.

    :param names: of the files in the folder.
    :param read: the text of one of them.
    """
    found = EarlierTries()
    known = set(names)
    latest: dict[str, dict[str, int]] = {_BEGUN: {}, _ENDED: {}}
    for name in known:
        stem, number, kind, _ = name.rsplit(".", 3) if name.count(".") >= 3 else ("", "", "", "")
        if kind in latest and number.isdecimal():
            latest[kind][stem] = max(int(number), latest[kind].get(stem, 0))
    for table in tables:
        stem = safe_name(table)
        begun, ended = latest[_BEGUN].get(stem, 0), latest[_ENDED].get(stem, 0)
        if begun > ended:
            found.suspects.append(table)
        elif ended:
            found.ended[table] = (ended, json.loads(read(f"{stem}.{ended:04d}.{_ENDED}.json")))
    return found
