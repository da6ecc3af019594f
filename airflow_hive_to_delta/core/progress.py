"""How far the work of this process is, in counts, for those who wait for it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

Count = Literal["files_listed", "footers_read", "log_bytes_written"]

_LABELS: Mapping[Count, str] = {
    "files_listed": "files listed",
    "footers_read": "footers read",
    "log_bytes_written": "bytes of log written",
}
_counts: Counter[Count] = Counter()
_lock = threading.Lock()
_watchers: list[Callable[[], None]] = []
_unfinished: list[tuple[Count, Callable[[], int]]] = []


def count_work(what: Count, number: int) -> None:
    """Add to a count. It is that of all tables which this process works on, or has worked on."""
    with _lock:
        _counts[what] += number
        watchers = list(_watchers)
    for watcher in watchers:
        watcher()


def read_counts() -> dict[str, int]:
    """The counts so far, without those that are 0."""
    with _lock:
        counts, unfinished = _counts.copy(), list(_unfinished)
    for what, read in unfinished:
        counts[what] += read()
    return {str(what): number for what, number in counts.items() if number}


@contextmanager
def counting(what: Count, read: Callable[[], int]) -> Iterator[None]:
    """Add what a function returns to the counts that are read while the block runs.

    For work that others do meanwhile. When it is done, :func:`count_work` counts it for good.
    """
    entry = (what, read)
    with _lock:
        _unfinished.append(entry)
    try:
        yield
    finally:
        with _lock:
            _unfinished.remove(entry)


def describe_counts(counts: Mapping[str, Any]) -> str:
    """Counts in words, such as ``12,000 files listed, 9,000 footers read``."""
    return ", ".join(f"{counts[name]:,} {label}" for name, label in _LABELS.items() if counts.get(name))


@contextmanager
def watch_counts(watcher: Callable[[], None]) -> Iterator[None]:
    """Call a function whenever something was counted, while the block runs: in the thread that has counted it."""
    with _lock:
        _watchers.append(watcher)
    try:
        yield
    finally:
        with _lock:
            _watchers.remove(watcher)
