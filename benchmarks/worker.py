"""The process that a contender lives in: ``python -m benchmarks.worker CONTENDER SCRATCH MEMORY SPAWNED_AT``.

It opens the contender, then takes one JSON document per line on standard input, ``{"do": "run", "job": {…}}``, and
answers each with one line. The first line it writes says that it is open. What libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.jobs import Job, Settings
from benchmarks.registry import CONTENDERS


def main() -> None:
    name, scratch, memory, spawned_at = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(document: dict[str, Any]) -> None:
        answers.write(json.dumps(document) + "\n")

    contender = CONTENDERS[name](Settings(Path(scratch), memory))
    try:
        contender.open()
    except Exception as error:
        answer(_describe(error))
        return
    # The clock is the same in all processes of a machine.
    answer({"startup_seconds": time.monotonic() - float(spawned_at)})
    for line in sys.stdin:
        command = json.loads(line)
        job = Job.from_dict(command["job"])
        started = time.monotonic()
        try:
            result = getattr(contender, command["do"])(job)
        except Exception as error:
            answer(_describe(error))
        else:
            answer({"seconds": time.monotonic() - started, "result": result})


def _describe(error: Exception) -> dict[str, Any]:
    traceback.print_exc()
    first = str(error).strip().partition("\n")[0]
    return {"error": f"{type(error).__name__}: {first}"[:300]}


if __name__ == "__main__":
    main()
