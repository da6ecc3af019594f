"""The process of ``spark-submit``, and the settings of this machine that it would read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from airflow_hive_to_delta.engines.job_process import JobProcess, merge_environment

#: Of what spark-submit says, how many of the last lines are shown when it fails.
_LAST_LINES = 20
#: How long to wait for spark-submit, which uploads what a job needs, to have submitted it.
_SUBMIT_SECONDS = 600.0


def start_submission(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> JobProcess:
    """Start ``spark-submit`` in a process session of its own, which ends with this process."""
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "airflow_hive_to_delta.engines.clusters.ends_with_input", *command],
        # Kept open and never written to: it closes when this process ends, and the command ends then.
        stdin=subprocess.PIPE,
        # What the Python program writes, on either stream.
        stdout=subprocess.PIPE,
        # What the JVM writes.
        stderr=subprocess.PIPE,
        env=merge_environment(environment),
        start_new_session=True,
        cwd=folder,
    )
    assert process.stderr is not None, "asked for"
    return JobProcess(process, folder, process.stderr)


def run_submission(command: Sequence[str], folder: Path) -> tuple[int, bytes]:
    """Run a ``spark-submit`` that does not wait for the end of its job: its exit code, and its output.

    :param folder: of this process alone. It is removed.
    """
    submitting = start_submission(command, folder, {})
    try:
        try:
            code = submitting.process.wait(_SUBMIT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"spark-submit has not submitted the job in {_SUBMIT_SECONDS:.0f} s") from error
        submitting.wait_for_output()
        return code, submitting.log.read_bytes()
    finally:
        submitting.cancel(1.0)


def last_lines(output: bytes) -> str:
    """The end of the output of a ``spark-submit``, for an error."""
    return "Its last lines:\n" + "\n".join(output.decode(errors="replace").splitlines()[-_LAST_LINES:])


def spark_defaults(binary: str) -> str:
    """The text of the ``spark-defaults.conf`` that this ``spark-submit`` would read; empty if there is none."""
    folders = []
    if named := os.environ.get("SPARK_CONF_DIR"):
        folders = [Path(named)]
    elif home := os.environ.get("SPARK_HOME"):
        folders = [Path(home, "conf")]
    elif found := shutil.which(binary):
        folders = [Path(found).resolve().parent.parent / "conf"]
        with suppress(ImportError, AttributeError, TypeError):
            folders.append(Path(find_spec("pyspark").origin).parent / "conf")  # type: ignore[union-attr,arg-type]
    for folder in folders:
        if (file := folder / "spark-defaults.conf").is_file():
            return file.read_text(encoding="utf-8")
    return ""
