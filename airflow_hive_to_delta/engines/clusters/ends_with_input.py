"""Runs a command that ends, with all that it has started, when the input of this process closes.

    python -m airflow_hive_to_delta.engines.clusters.ends_with_input COMMAND ARGUMENT…

The process that starts it holds the other end of the input: however that process ends, the command ends with it. It is
to be started in a process session of its own. Its exit code is the command's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from airflow_hive_to_delta.job.processes import end_when_input_closes

#: What a shell exits with for a command that it does not find.
_NOT_FOUND = 127


def main(command: list[str]) -> int:
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603
    except OSError as error:
        print(error, file=sys.stderr)
        return _NOT_FOUND
    end_when_input_closes()
    code = process.wait()
    if code < 0:  # by a signal: this process ends by the same one, so that its parent sees which
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
