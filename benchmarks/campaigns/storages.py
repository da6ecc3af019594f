"""Storages of the simulation: in memory, and one whose process is killed."""

from __future__ import annotations

import io
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, BinaryIO

from airflow_hive_to_delta.core.errors import HiveToDeltaError, MissingError
from airflow_hive_to_delta.core.storage.base import StoredFile
from airflow_hive_to_delta.core.storage.uri import Location


class WorkerKilled(BaseException):
    """A worker is gone, in the middle of whatever it did."""


class MemoryStorage:
    """Files in memory, which counts the requests that it gets."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self._files: dict[str, bytes] = {}
        #: A number that each version of a file has for itself, as S3 has ETags.
        self._versions: dict[str, int] = {}
        self._writes = 0
        self._names: dict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        source.seek(0)
        with self._lock:
            self.requests["PUT"] += 1
            if path.path in self._files:
                return False
            self._put(path.path, source.read())
            return True

    def replace(self, path: Location, content: bytes) -> None:
        with self._lock:
            self.requests["PUT"] += 1
            self._put(path.path, content)

    def open(self, path: Location) -> BinaryIO:
        with self._lock:
            self.requests["GET"] += 1
            if path.path not in self._files:
                raise MissingError(f"There is no {path}")
            return io.BytesIO(self._files[path.path])

    def size(self, path: Location) -> int:
        return len(self._files[path.path])

    def list_names(self, folder: Location) -> list[str]:
        with self._lock:
            self.requests["LIST"] += 1
            return list(self._names.get(folder.path, ()))

    def list_files(self, folder: Location) -> list[StoredFile]:
        with self._lock:
            self.requests["LIST"] += 1
            paths = {name: f"{folder.path}/{name}" for name in self._names.get(folder.path, ()) if name[-1] != "/"}
            return [
                StoredFile(name, len(self._files[path]), 0, str(self._versions[path])) for name, path in paths.items()
            ]

    def delete(self, path: Location) -> None:
        self.delete_files([path])

    def delete_files(self, paths: Sequence[Location]) -> dict[Location, HiveToDeltaError]:
        with self._lock:
            self.requests["DELETE"] += bool(paths)
            for path in paths:
                if self._files.pop(path.path, None) is not None:
                    folder, _, name = path.path.rpartition("/")
                    self._names[folder].discard(name)
        return {}

    def remove_folder(self, folder: Location) -> None:
        pass

    def move(self, source: Location, target: Location) -> None:
        raise NotImplementedError

    def _put(self, path: str, content: bytes) -> None:
        if path not in self._files:
            folder, _, name = path.rpartition("/")
            while name not in self._names[folder]:
                self._names[folder].add(name)
                folder, _, above = folder.rpartition("/")
                name = f"{above}/"
        self._files[path] = content
        self._writes += 1
        self._versions[path] = self._writes


class DyingStorage:
    """A storage of a worker that is killed at one of its writes, before or after it.

    :param writes: how many it does before; None: it lives on.
    """

    def __init__(self, storage: MemoryStorage, writes: int | None, *, after: bool) -> None:
        self._storage = storage
        self._left = writes
        self._after = after
        self._lock = threading.Lock()

    def put_if_absent(self, path: Location, source: BinaryIO) -> bool:
        return bool(self._write("put_if_absent", path, source))

    def replace(self, path: Location, content: bytes) -> None:
        self._write("replace", path, content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def _write(self, name: str, *arguments: Any) -> Any:
        with self._lock:
            left = self._left
            self._left = None if left is None else left - 1
        if left is not None and left < 0:
            raise WorkerKilled
        if left == 0 and not self._after:
            raise WorkerKilled
        done = getattr(self._storage, name)(*arguments)
        if left == 0:
            raise WorkerKilled
        return done
