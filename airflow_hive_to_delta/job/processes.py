"""Ending a process with all that it has started."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

#: A process may start another one between being found and being killed.
_ROUNDS = 3


def kill_session(leader: int) -> None:
    """Kill every process of the session that ``leader`` began, the caller last if it is one of them.

    A session holds more than a process group: PySpark's workers are in a group of their own, and one that waits for the
    storage does not notice that its JVM is gone. Where there is no ``/proc`` only the leader's group is killed.
    """
    for _ in range(_ROUNDS):
        for process in _members(leader) - {os.getpid()}:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def end_when_input_closes() -> None:
    """Kill this process, with its whole session, when its standard input closes. Return at once.

    The process that started this one holds the other end of the input, so that however it ends, this one ends, too.
    """
    threading.Thread(target=_wait_for_end_of_input, name="end-when-input-closes", daemon=True).start()


def _wait_for_end_of_input() -> None:
    while os.read(0, 4096):  # not through sys.stdin, whose lock Python wants when it shuts down
        pass
    kill_session(os.getpid())
    os.killpg(0, signal.SIGKILL)  # of a process that did not begin a session


def _members(session: int) -> set[int]:
    """The processes of a session that have not ended."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name comes first, in parentheses, and may hold anything. Then: state, parent, group, session.
            state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state not in "ZX":
                found.add(int(folder.name))
    return found
