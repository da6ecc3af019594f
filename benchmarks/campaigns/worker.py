"""One measurement in a process of its own: its name and arguments in, a line of JSON out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def measure(what: str, *arguments: str) -> dict[str, Any]:
    """Do the measurement of a name."""
    from benchmarks.campaigns import measurements

    match what:
        case "simulation":
            return measurements.measure_simulation(int(arguments[0]))
        case "documents":
            return measurements.make_documents(Path(arguments[0]), int(arguments[1]))
        case "planning":
            return measurements.measure_planning(Path(arguments[0]))
        case "page":
            return measurements.measure_page(Path(arguments[0]))
        case "scheduler":
            from benchmarks.campaigns.scheduler import measure_scheduler

            return measure_scheduler(arguments[0], int(arguments[1]), float(arguments[2]))
    raise LookupError(f"There is no measurement {what}")


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])), flush=True)
