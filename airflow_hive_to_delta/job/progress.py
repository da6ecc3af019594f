"""What a job prints while it runs."""

from __future__ import annotations

import sys


def print_progress(line: str) -> None:
    """Print what the job is doing to standard error, where the engine reads it."""
    print(line, file=sys.stderr, flush=True)
