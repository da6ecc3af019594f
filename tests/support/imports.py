"""What a fresh interpreter imports, and what it does where libraries are missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.project import PROJECT


def imported_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after it ran the code."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PROJECT)
    return set(json.loads(run.stdout.splitlines()[-1]))


def run_without(libraries: list[str], code: str, folder: Path) -> str:
    """Run code in a fresh interpreter in which these libraries cannot be imported, nor in processes that it starts.

    :param libraries: their top-level modules, such as ``pyspark``.
    :param folder: an empty folder, for modules that are found before those that are installed.
    :returns: what the code wrote to standard output.
    """
    for library in libraries:
        missing = f"No module named {library!r}"
        (folder / f"{library}.py").write_text(f"raise ModuleNotFoundError({missing!r}, name={library!r})\n")
    path = os.pathsep.join([str(folder), str(PROJECT)])
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    return run.stdout
