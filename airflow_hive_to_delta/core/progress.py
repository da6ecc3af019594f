"""How far the work of this process is, in counts, for those who wait for it."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Literal

Count = Literal["files_listed", "footers_read"]

_counts: Counter[Count] = Counter()
_lock = threading.Lock()


def count_work(what: Count, number: int) -> None:
    """Add to a count. It is that of all tables which this process works on, or has worked on."""
    with _lock:
        _counts[what] += number


def read_counts() -> dict[str, int]:
    """The counts so far, without those that are 0."""
    with _lock:
        return {str(what): number for what, number in _counts.items() if number}
