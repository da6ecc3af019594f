"""Tables side by side: order kept, failures kept apart, progress shown."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from airflow_hive_to_delta.core.errors import HiveToDeltaError, describe_error
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.progress import describe_counts, read_counts, watch_counts
from airflow_hive_to_delta.core.results import ConversionResult, TableResult

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")
Result = TypeVar("Result", bound=TableResult)


def run_tables(
    work: Callable[[TableInfo], Result],
    tables: Sequence[TableInfo],
    make_failed_result: Callable[[TableInfo, Exception], Result],
    *,
    max_workers: int = 4,
    progress: bool = True,
    on_end: Callable[[TableInfo, Result], None] | None = None,
) -> list[Result]:
    """Do the work of every table, ``max_workers`` side by side. The results are in the order of the tables.

    A table that fails has a result that says why, and touches no other.

    :param work: returns the result of a table, or raises.
    :param make_failed_result: makes the result of a table for which ``work`` raised. The error and the duration are
        filled in here.
    :param progress: print a line per table to standard error, under a progress bar in a terminal.
    :param on_end: called with each table and its result as soon as that is known, from several threads.
    """

    def run_one(table: TableInfo) -> Result:
        started = time.monotonic()
        try:
            result = work(table)
        except Exception as error:
            if not isinstance(error, HiveToDeltaError):
                logger.exception("%s: an unexpected error", table.qualified_name)
            duration = round(time.monotonic() - started, 3)
            failed = make_failed_result(table, error)
            result = replace(failed, **describe_error(error).to_fields(), duration_seconds=duration)
        if on_end is not None:
            on_end(table, result)
        return result

    with Progress(len(tables), shown=progress) as shown:
        outcomes = run_parallel(run_one, tables, max_workers, on_done=lambda _, result: shown.done(result))
    results = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):  # of on_end or make_failed_result
            raise outcome
        results.append(outcome)
    return results


def run_parallel(
    func: Callable[[T], R],
    items: Sequence[T],
    max_workers: int = 4,
    *,
    on_done: Callable[[T, R | Exception], None] | None = None,
) -> list[R | Exception]:
    """Call ``func`` on every item, ``max_workers`` at a time. The results are in the order of the items.

    An item that fails has its exception as its result and touches no other. ``on_done`` is called in the calling
    thread as items end. An interrupt stops what has not begun.
    """
    if max_workers < 1:
        raise ValueError(f"max_workers is {max_workers}, expected at least 1")
    results: list[R | Exception] = [RuntimeError("not run")] * len(items)
    with ThreadPoolExecutor(max_workers=min(max_workers, max(len(items), 1))) as pool:
        positions = {pool.submit(func, item): position for position, item in enumerate(items)}
        try:
            for future in as_completed(positions):
                position = positions[future]
                try:
                    results[position] = future.result()
                except Exception as error:
                    results[position] = error
                if on_done is not None:
                    on_done(items[position], results[position])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


@dataclass
class ConversionSummary:
    """A whole run in numbers."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0
    #: How many tables ended in each status.
    by_status: dict[str, int] = field(default_factory=dict)
    file_count: int = 0
    byte_count: int = 0
    #: Rows of the tables converted in this run with statistics.
    row_count: int = 0
    #: Tables without any data file: empty ones, or such with a wrong location.
    empty: list[str] = field(default_factory=list)
    #: Table to error, of every table that did not succeed.
    errors: dict[str, str] = field(default_factory=dict)
    #: Of these, the ones that another try may help.
    retryable: list[str] = field(default_factory=list)
    #: Seconds of work, summed over the tables; they ran side by side.
    duration_seconds: float = 0.0

    def __str__(self) -> str:
        lines = [f"{self.succeeded} of {self.total} tables done, {self.file_count} files, {self.byte_count} bytes"]
        if self.empty:
            why = "empty tables, wrong locations, or partitions that the catalog lacks"
            lines.append(f"No data file in {', '.join(self.empty)}: {why}")
        lines += [f"{table}: {error}" for table, error in self.errors.items()]
        return "\n".join(lines)


def create_summary(results: Sequence[ConversionResult]) -> ConversionSummary:
    """Count what became of the tables."""
    summary = ConversionSummary(total=len(results))
    for result in results:
        summary.by_status[result.status] = summary.by_status.get(result.status, 0) + 1
        summary.duration_seconds += result.duration_seconds
        if result.success:
            summary.succeeded += 1
            summary.file_count += result.file_count
            summary.byte_count += result.byte_count
            summary.row_count += result.row_count or 0
            if result.is_empty:
                summary.empty.append(result.source_table)
        else:
            summary.failed += 1
            summary.errors[result.source_table] = result.error or ""
            if result.retryable:
                summary.retryable.append(result.source_table)
    return summary


class Progress:
    """A line per table on standard error; in a terminal under a progress bar with what was counted so far."""

    def __init__(self, total: int, *, shown: bool = True) -> None:
        self._total = total
        self._shown = shown
        self._done = 0
        self._bar: Any = None
        self._watching = ExitStack()
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, unit="table", file=sys.stderr)
            self._before = read_counts()
            self._watching.enter_context(watch_counts(self._show_counts))

    def done(self, result: object) -> None:
        """Count a table that has ended, with its result or an exception."""
        self._done += 1
        if not self._shown:
            return
        took = getattr(result, "duration_seconds", None)
        seconds = "" if took is None else f" ({took:.1f} s)"
        # One line, though the text of an error may have several.
        line = f"[{self._done}/{self._total}] {' '.join(str(result).split())}{seconds}"
        if self._bar is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._bar.write(line, file=sys.stderr)
            self._bar.update()

    def _show_counts(self) -> None:
        counts = {name: number - self._before.get(name, 0) for name, number in read_counts().items()}
        self._bar.set_postfix_str(describe_counts(counts))

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._watching.close()
        if self._bar is not None:
            self._bar.close()
