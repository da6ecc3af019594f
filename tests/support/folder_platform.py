"""An engine whose jobs are files in a folder, and run when the test says so, whatever became of their workers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.storage.uri import KNOWN_SCHEMES, parse_location
from airflow_hive_to_delta.engines import Engine, JobRef, JobRequest, JobSpec, JobStatus
from airflow_hive_to_delta.engines.engine import JobState
from airflow_hive_to_delta.job.documents import DONE, put_document, read_document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class FolderJob:
    """A job that was submitted, as the test sees it."""

    file: Path

    @property
    def name(self) -> str:
        """What the job is called, such as ``Convert db.table``."""
        return str(self._spec["name"])

    @property
    def results_uri(self) -> str:
        return str(self._spec["results_uri"])

    @property
    def state(self) -> JobState:
        for state in ("succeeded", "cancelled"):
            if self.file.with_suffix(f".{state}").exists():
                return state
        return "running"

    def end(self, state: JobState) -> None:
        """Say that the job has ended. One that has ended before is left alone."""
        if self.state == "running":
            self.file.with_suffix(f".{state}").touch()

    def run(self, spark: SparkSession) -> None:
        """Do what the job was asked, on a session of the test."""
        from airflow_hive_to_delta.job.run import run  # not where DAGs are parsed

        request = JobRequest.from_dict(read_document(parse_location(str(self._spec["request_uri"])), None))
        run(request, spark, results=parse_location(self.results_uri))
        self.end("succeeded")

    def answer(self, result: dict[str, Any]) -> None:
        """Leave a result without doing anything."""
        put_document(parse_location(self.results_uri).child(DONE), result, None)
        self.end("succeeded")

    @property
    def _spec(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.file.read_text())
        return found


@dataclass
class FolderPlatform(Engine):
    """What it knows of its jobs is in a folder, and none of it in memory.

    :param platform: the folder.
    """

    survives_worker = True
    schemes = KNOWN_SCHEMES

    platform: str
    poll_seconds: float = 0.2

    def submit(self, spec: JobSpec, environment: Mapping[str, str]) -> JobRef:
        file = Path(self.platform) / f"{spec.token}.json"
        known = {"name": spec.name, "request_uri": spec.request_uri, "results_uri": spec.results_uri}
        new = file.with_suffix(".new")
        new.write_text(json.dumps(known))
        new.rename(file)  # whole, for the test that waits for it
        return self._ref(file)

    def find(self, token: str) -> JobRef | None:
        file = Path(self.platform) / f"{token}.json"
        return self._ref(file) if file.exists() else None

    def status(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        with suppress(FileNotFoundError):
            while True:
                # Opened to be written only if it is there, so that it is not made again when it was just taken away.
                with self._hold.open("r+") as hold:
                    hold.write("a task waits")
                time.sleep(0.05)
        return JobStatus(FolderJob(Path(ref.id)).state)

    async def astatus(self, ref: JobRef, cursor: str | None = None) -> JobStatus:
        return JobStatus(FolderJob(Path(ref.id)).state)

    def cancel(self, ref: JobRef, within: float) -> None:
        FolderJob(Path(ref.id)).end("cancelled")

    def hold_tasks(self) -> Path:
        """From now on a task that asks for a status waits, and a trigger does not. Returns a file, empty until then."""
        self._hold.touch()
        return self._hold

    def release_tasks(self) -> None:
        """Let tasks go on that wait for a status."""
        self._hold.unlink()

    @property
    def _hold(self) -> Path:
        return Path(self.platform) / "hold"

    def jobs(self) -> list[FolderJob]:
        """Every job that was ever submitted, the oldest first."""
        files = Path(self.platform).glob("hive-to-delta-*.json")
        return [FolderJob(file) for file in sorted(files, key=lambda file: file.stat().st_mtime_ns)]

    def _ref(self, file: Path) -> JobRef:
        return JobRef(str(file), FolderJob(file).results_uri, f"http://127.0.0.1/{file.stem}")
