"""The processes of a job, and files that hold them up."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def processes_of(job: int) -> list[int]:
    """The job's process and all that it started, and these started."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                # After the name, which may hold anything: state, parent.
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = [job]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def command_of(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def wait_for_end(process: int) -> None:
    """Wait until the process is gone, whoever its parent is."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([descriptor], [], [], 60)
    os.close(descriptor)
    assert ended, f"process {process} is still there"


@contextmanager
def stuck_worker(file: Path) -> Iterator[Callable[[], None]]:
    """A file that blocks its reader, as a storage does that does not answer. Gives a function that waits for one."""
    contents = file.read_bytes()
    file.unlink()
    os.mkfifo(file)
    opened: list[int] = []
    yield lambda: opened.append(os.open(file, os.O_WRONLY))  # which blocks until there is a reader
    for descriptor in opened:
        os.close(descriptor)
    file.unlink()
    file.write_bytes(contents)


#: Of Linux, which Python does not name.
_F_SETSIG, _F_SETOWN_EX, _F_OWNER_TID = 10, 15, 0
_SIGNAL = signal.SIGRTMIN + 1


@contextmanager
def acting_at_open(file: Path, act: Callable[[], None]) -> Iterator[None]:
    """Do something at the moment at which a process first opens a file. That process waits meanwhile, and then goes on.

    The file has a lease: the kernel holds up whoever opens it until the lease is given back.
    """
    leased = threading.Event()
    done = threading.Event()
    errors: list[BaseException] = []

    def hold() -> None:
        descriptor = os.open(file, os.O_RDWR)
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {_SIGNAL})
            fcntl.fcntl(descriptor, _F_SETSIG, _SIGNAL)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(descriptor, _F_SETOWN_EX, struct.pack("ii", _F_OWNER_TID, threading.get_native_id()))
            leased.set()
            while not done.is_set():
                if signal.sigtimedwait({_SIGNAL}, 0.5) is not None:
                    act()
                    return
        except BaseException as error:
            errors.append(error)
        finally:
            leased.set()
            os.close(descriptor)  # which gives the lease back

    holder = threading.Thread(target=hold, name=f"lease-{file.name}", daemon=True)
    holder.start()
    leased.wait()
    try:
        yield
        assert not holder.is_alive(), f"nobody has opened {file}"
    finally:
        done.set()
        holder.join()
    if errors:
        raise errors[0]
