"""What a test leaves behind: processes that it has started in whatever way, and ports on which this process listens."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: In the environment of every process that a test starts, and of all that those start.
MARK = "HIVE_TO_DELTA_TEST"
#: How long processes that were told to end may take.
_GRACE_SECONDS = 10.0
_LISTENING = "0A"


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Fail after the block if a process that it has started still runs, or a port is open that it has opened.

    Processes that fixtures of a wider scope have started before are not looked at.
    """
    mark, before = uuid.uuid4().hex, listening_ports()
    outer = os.environ.get(MARK)
    os.environ[MARK] = mark
    try:
        yield
    finally:
        if outer is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = outer
    until = time.monotonic() + _GRACE_SECONDS
    while (left := marked_processes(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == {}, "processes that the test has started still run"
    assert listening_ports() - before == set(), "ports that the test has opened are still open"


def marked_processes(mark: str) -> dict[int, str]:
    """The command line of each process that has this mark in its environment, by its id."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended in between
            if wanted in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:300]
    return found


def listening_ports() -> set[int]:
    """The TCP ports on which this process listens."""
    own = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            own.add(os.readlink(descriptor))
    ports = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and f"socket:[{fields[9]}]" in own:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def open_port() -> socket.socket:
    """A socket that listens on loopback."""
    server = socket.create_server(("127.0.0.1", 0))
    server.listen()
    return server
