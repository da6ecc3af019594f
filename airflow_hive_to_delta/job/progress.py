"""What a job says of how far it is: in its log, and in a document beside its results."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_hive_to_delta.core.progress import describe_counts


def print_progress(line: str) -> None:
    """Print what the job is doing to standard error, where the engine reads it."""
    print(line, file=sys.stderr, flush=True)


def describe_progress(counts: Mapping[str, Any], stages: str = "") -> str:
    """Counts in words, such as ``12,000 files listed, 9,000 footers read``, and what Spark is at."""
    return "; ".join(part for part in (describe_counts(counts), stages) if part)
