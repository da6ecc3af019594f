"""Tables side by side: the order of results, what failures and interrupts do, the numbers and the progress shown."""

from __future__ import annotations

import io
import os
import signal
import termios
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, current_thread, main_thread
from typing import Any

import pytest

from airflow_hive_to_delta import ConversionResult, ConversionSummary, create_summary, run_parallel
from airflow_hive_to_delta.core import runner
from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.progress import count_work
from airflow_hive_to_delta.core.runner import Progress, run_tables


def result(name: str, status: Any = "converted", **fields: Any) -> ConversionResult:
    success = status not in ("refused", "failed")
    return ConversionResult(f"db.{name}", f"main.new.{name}" if success else "", success, status, **fields)


@pytest.mark.parametrize("max_workers", [1, 3, 50])
def test_results_are_in_the_order_of_the_items(max_workers: int) -> None:
    assert run_parallel(lambda item: item * item, range(20), max_workers) == [item * item for item in range(20)]


def test_the_last_to_start_may_be_the_first_to_end() -> None:
    ended = [Event() for _ in range(4)]

    def wait_for_the_next(item: int) -> int:
        if item < 3:
            assert ended[item + 1].wait(30)
        ended[item].set()
        return item

    order: list[int] = []
    assert run_parallel(wait_for_the_next, range(4), 4, on_done=lambda item, _: order.append(item)) == [0, 1, 2, 3]
    assert sorted(order) == [0, 1, 2, 3]


def test_as_many_run_at_a_time_as_there_are_workers() -> None:
    together = Barrier(3)
    assert run_parallel(lambda item: together.wait(30) >= 0 and item, range(6), 3) == list(range(6))


def test_no_items_are_no_results() -> None:
    assert run_parallel(lambda item: item, [], 4) == []


def test_an_exception_is_the_result_of_its_item_and_touches_no_other() -> None:
    def divide(item: int) -> int:
        return 10 // item

    first, failed, last = run_parallel(divide, [1, 0, 5], 2)
    assert (first, last) == (10, 2)
    assert isinstance(failed, ZeroDivisionError)


def test_on_done_is_called_once_for_every_item_in_the_calling_thread() -> None:
    seen: dict[int, Any] = {}

    def remember(item: int, outcome: Any) -> None:
        assert current_thread() is main_thread()
        assert item not in seen
        seen[item] = outcome

    outcomes = run_parallel(lambda item: 10 // item, [1, 0, 5], 2, on_done=remember)
    assert seen == dict(zip([1, 0, 5], outcomes, strict=True))


@pytest.mark.parametrize("max_workers", [0, -1])
def test_without_a_worker_nothing_can_run(max_workers: int) -> None:
    with pytest.raises(ValueError, match=f"max_workers is {max_workers}, expected at least 1"):
        run_parallel(lambda item: item, [1], max_workers)


def test_an_interrupt_stops_what_has_not_begun_and_lets_end_what_has(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            cancelled.set()
            super().shutdown(wait)

    monkeypatch.setattr(runner, "ThreadPoolExecutor", Pool)
    begun, ended = [], []

    def work(item: int) -> None:
        begun.append(item)
        if item > 0:
            assert cancelled.wait(30)
        ended.append(item)

    # A shell starts its background jobs with the signal ignored, and Python leaves it so.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_parallel(work, range(10), 2, on_done=lambda *_: signal.raise_signal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert sorted(ended) == sorted(begun)
    assert len(begun) <= 3, "the first, and at most one for each of the two workers"


def test_the_summary_of_a_run_in_numbers() -> None:
    results = [
        result("a", file_count=3, byte_count=300, row_count=30, duration_seconds=1.5),
        result("b", file_count=2, byte_count=200, row_count=None, duration_seconds=0.5),
        result("c", "already_delta", file_count=7),
        result("d", "registered", file_count=1),
        result("e", "refused", error="it is a view", retryable=False, duration_seconds=0.25),
        result("f", "failed", error="SlowDown", retryable=True),
    ]
    summary = create_summary(results)
    assert summary == ConversionSummary(
        total=6,
        succeeded=4,
        failed=2,
        by_status={"converted": 2, "already_delta": 1, "registered": 1, "refused": 1, "failed": 1},
        file_count=13,
        byte_count=500,
        row_count=30,
        errors={"db.e": "it is a view", "db.f": "SlowDown"},
        retryable=["db.f"],
        duration_seconds=2.25,
    )
    assert str(summary).splitlines() == [
        "4 of 6 tables done, 13 files, 500 bytes",
        "db.e: it is a view",
        "db.f: SlowDown",
    ]


def test_the_summary_of_nothing() -> None:
    assert create_summary([]) == ConversionSummary()
    assert str(create_summary([])) == "0 of 0 tables done, 0 files, 0 bytes"


def test_progress_is_a_line_per_table_with_counts_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(2) as progress:
        progress.done(result("a", file_count=3, byte_count=300, duration_seconds=1.25))
        progress.done(result("b", "failed", error="lost\n\tat the second line", duration_seconds=61))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "[1/2] db.a -> main.new.a: converted, 3 files, 300 bytes (1.2 s)",
        "[2/2] db.b: failed: lost at the second line (61.0 s)",
    ]


def test_progress_that_is_not_wanted_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(1, shown=False) as progress:
        progress.done(result("a"))
    assert capsys.readouterr() == ("", "")


def test_in_a_terminal_the_lines_stand_above_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 120))
    with open(terminal, "w") as stderr, monkeypatch.context() as patch:
        patch.setattr("sys.stderr", stderr)
        with Progress(2) as progress:
            count_work("files_listed", 12_000)
            count_work("footers_read", 9_000)
            progress.done(result("a", file_count=3, byte_count=300))
            progress.done(result("b", "refused", error="it is a view"))
        stderr.flush()
        shown = io.BytesIO()
        os.set_blocking(ours, False)
        while (chunk := _read(ours)) is not None:
            shown.write(chunk)
    os.close(ours)
    text = shown.getvalue().decode()
    assert "[1/2] db.a -> main.new.a: converted, 3 files, 300 bytes (0.0 s)" in text
    assert "[2/2] db.b: refused: it is a view (0.0 s)" in text
    assert "12,000 files listed, 9,000 footers read" in text
    assert "100%" in text
    assert "2/2" in text.rpartition("100%")[2]
    assert "table/s" in text or "s/table" in text


def _read(descriptor: int) -> bytes | None:
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None


def test_a_table_that_fails_has_a_result_that_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    def work(table: TableInfo) -> ConversionResult:
        if table.name == "bad":
            raise PermanentError("It is a view")
        if table.name == "odd":
            raise OSError("The disk is full")
        return result(table.name)

    ended: dict[str, ConversionResult] = {}
    tables = [TableInfo(name, f"/{name}", database="db") for name in ("good", "bad", "odd")]
    results = run_tables(
        work,
        tables,
        lambda table, error: result(table.name, "refused" if isinstance(error, PermanentError) else "failed"),
        on_end=lambda table, found: ended.update({table.name: found}),
    )
    assert [(r.source_table, r.status, r.error, r.error_kind, r.retryable) for r in results] == [
        ("db.good", "converted", None, None, None),
        ("db.bad", "refused", "It is a view", "PermanentError", False),
        ("db.odd", "failed", "The disk is full", "OSError", True),
    ]
    assert [ended[table.name] for table in tables] == results
    lines = capfd.readouterr().err.splitlines()
    assert {line[:6] for line in lines if line.startswith("[")} == {"[1/3] ", "[2/3] ", "[3/3] "}


def test_what_cannot_be_kept_of_a_table_fails_the_run() -> None:
    def keep(_table: TableInfo, _result: ConversionResult) -> None:
        raise OSError("The disk is full")

    with pytest.raises(OSError, match="The disk is full"):
        run_tables(
            lambda table: result(table.name),
            [TableInfo("t", "/t")],
            lambda table, _: result(table.name, "failed"),
            progress=False,
            on_end=keep,
        )
