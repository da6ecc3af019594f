"""What a job says of how far it is: in its log, and in a document beside its results."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

_LABELS = {"files_listed": "files listed", "footers_read": "footers read"}


def print_progress(line: str) -> None:
    """Print what the job is doing to standard error, where the engine reads it."""
    print(line, file=sys.stderr, flush=True)


def describe_progress(counts: Mapping[str, Any], stages: str = "") -> str:
    """Counts in words, such as ``12,000 files listed, 9,000 footers read``, and what Spark is at."""
    said = [f"{counts[name]:,} {label}" for name, label in _LABELS.items() if counts.get(name)]
    return "; ".join(part for part in (", ".join(said), stages) if part)
