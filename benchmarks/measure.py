"""Runs the contenders of a case, alternating, cold and warm, and returns one result for each contender.

Cold is a new process: its start, imports and session count. Warm is a process that has done a small job of the same
kind before. Every contender has processes of its own, so none is helped or slowed down by another's session.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.jobs import Job, Settings
from benchmarks.memory import MemorySampler

Mode = Literal["cold", "warm"]
PROJECT = Path(__file__).resolve().parent.parent
#: A contender whose first run takes longer than this is not run again, by default.
REPEAT_WITHIN_SECONDS = 120.0


@dataclass(frozen=True)
class Entry:
    """A contender of a case.

    :param job: what it works on.
    :param warm_up: the small job that a warm process has done before.
    :param units: how many files or tables the job has, for the time per unit.
    """

    contender: str
    job: Job
    warm_up: Job
    units: int


@dataclass
class Measured:
    """The runs of one contender in one mode. ``seconds`` of a cold run include ``startup_seconds``."""

    runs: list[float] = field(default_factory=list)
    startup_seconds: list[float] = field(default_factory=list)
    peak_mb: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def seconds(self) -> float | None:
        """The best run."""
        return min(self.runs, default=None)

    def add(self, seconds: float, startup: float | None, peak: dict[str, float], facts: dict[str, Any] | None) -> None:
        self.runs.append(round(seconds, 3))
        if startup is not None:
            self.startup_seconds.append(round(startup, 3))
        self.peak_mb = {kind: round(max(self.peak_mb.get(kind, 0), mb)) for kind, mb in peak.items()}
        self.facts |= facts or {}

    def to_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, **{key: value for key, value in asdict(self).items() if value}}


def measure(
    entries: Sequence[Entry],
    settings: Settings,
    *,
    modes: Sequence[Mode] = ("cold", "warm"),
    rounds: int = 3,
    repeat_within: float = REPEAT_WITHIN_SECONDS,
) -> dict[str, dict[Mode, Measured]]:
    """Run every contender ``rounds`` times in every mode, one after the other in turns.

    A contender that fails has the error as its result, and the others go on. One that takes longer than
    ``repeat_within`` seconds is not run again in that mode.
    """
    measured: dict[str, dict[Mode, Measured]] = {
        entry.contender: {mode: Measured() for mode in modes} for entry in entries
    }
    with ExitStack() as stack:
        warm: dict[str, Worker] = {}
        for _ in range(rounds):
            for entry in entries:
                for mode in modes:
                    result = measured[entry.contender][mode]
                    if result.error or (result.seconds or 0) > repeat_within:
                        continue
                    try:
                        if entry.contender not in warm:
                            worker = stack.enter_context(Worker(entry.contender, settings))
                            worker.work(entry.warm_up)
                            warm[entry.contender] = worker
                        _run(entry, mode, warm[entry.contender], settings, result)
                    except WorkerError as error:
                        # The results are public, and say nothing of the folders of this machine.
                        result.error = str(error).replace(str(settings.scratch.parent), "…")
                    shown = f"failed: {result.error}" if result.error else f"{result.runs[-1]:.2f} s"
                    print(f"  {entry.contender}, {mode}: {shown}", file=sys.stderr, flush=True)
    return measured


def _run(entry: Entry, mode: Mode, warm: Worker, settings: Settings, result: Measured) -> None:
    warm.call("prepare", entry.job)
    try:
        with nullcontext(warm) if mode == "warm" else Worker(entry.contender, settings) as worker:
            with MemorySampler(worker.pid) as memory:
                startup = worker.wait_until_open()
                answer = worker.call("run", entry.job)
            cold = mode == "cold"
            seconds = answer["seconds"] + (startup if cold else 0)
            result.add(seconds, startup if cold else None, memory.peak, answer["result"])
            if len(result.runs) == 1:  # by the process that made the table: its catalog may be its own
                result.facts |= worker.call("check", entry.job)["result"]
    finally:
        warm.call("finish", entry.job)


class WorkerError(Exception):
    """A contender failed."""


class Worker:
    """The process of a contender."""

    def __init__(self, contender: str, settings: Settings) -> None:
        self._contender = contender
        self._log = settings.scratch / f"{contender}-{time.monotonic_ns()}.log"
        search_path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
        with self._log.open("w") as log:
            spawned_at = time.monotonic()
            command = [contender, str(settings.scratch), settings.memory, str(spawned_at)]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=settings.scratch,
                env={**os.environ, "PYTHONPATH": search_path},
            )
        self._startup_seconds: float | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_open(self) -> float:
        """Wait for the contender's session. Returns the seconds since the process was started."""
        if self._startup_seconds is None:
            self._startup_seconds = float(self._answer()["startup_seconds"])
        return self._startup_seconds

    def call(self, do: str, job: Job) -> dict[str, Any]:
        """Let the contender do one thing. Returns the ``seconds`` that it took, and its ``result``.

        :raises WorkerError: it failed.
        """
        self.wait_until_open()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, "job": asdict(job)}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, as reading the answer will show
        return self._answer()

    def work(self, job: Job) -> None:
        """Prepare, run and finish a job without measuring it."""
        self.call("prepare", job)
        self.call("run", job)
        self.call("finish", job)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
            raise WorkerError(f"{self._contender} ended with code {self._process.wait()}: {' '.join(last)[:300]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
