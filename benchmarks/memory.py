"""Peak memory of a process and those that it has started, sampled from outside of it."""

from __future__ import annotations

import threading
from pathlib import Path

_INTERVAL_SECONDS = 0.1
_MEGABYTE = 1024 * 1024
_KINDS = ("driver", "workers", "jvm")


class MemorySampler:
    """Samples the memory of a process tree while its block runs.

    The driver is the process itself, the JVM what runs ``java`` below it, and the workers what runs Python. Workers are
    forks of one process that share pages, so each counts with its share of them (PSS), the driver and the JVM with all
    that they have in memory (RSS).
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_all, daemon=True)
        #: In megabytes, by kind of process.
        self.peak: dict[str, float] = dict.fromkeys(_KINDS, 0.0)

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def _sample_all(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            self._sample()

    def _sample(self) -> None:
        now = dict.fromkeys(_KINDS, 0.0)
        for pid in _tree(self._pid):
            try:
                program = Path(f"/proc/{pid}/exe").readlink().name
                if pid == self._pid:
                    now["driver"] = _rss(pid)
                elif program == "java":
                    # Not the sum: before a JVM starts a program, it is there twice for a moment.
                    now["jvm"] = max(now["jvm"], _rss(pid))
                elif program.startswith("python"):
                    now["workers"] += _pss(pid)
            except OSError:  # it has ended
                continue
        self.peak = {kind: max(self.peak[kind], now[kind]) for kind in _KINDS}


def _tree(pid: int) -> list[int]:
    """The process and all below it."""
    found, waiting = [], [pid]
    while waiting:
        found.append(pid := waiting.pop())
        try:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
        except OSError:
            continue
    return found


def _rss(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / _MEGABYTE
    return 0.0


def _pss(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / _MEGABYTE
    return 0.0
