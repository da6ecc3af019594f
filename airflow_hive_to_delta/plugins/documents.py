"""The documents of one campaign, read and written on any storage that Airflow knows."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hive_to_delta.campaigns.store import CAMPAIGNS, hash_folder, sequence_names
from airflow_hive_to_delta.campaigns.view.state_index import INDEX, StateIndex, parse_index
from airflow_hive_to_delta.core.storage.base import file_version
from airflow_hive_to_delta.job.file_names import safe_name

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

Document = dict[str, Any]

#: Documents that are read with one call, side by side where the storage can.
_BATCH = 500
_PLAN_COLUMNS = frozenset({"table", "owner", "files", "bytes", "priority", "decision", "reason"})


class FileVersion(NamedTuple):
    """What a listing says of a file. Another version of the file differs in one of these."""

    size: int
    #: Seconds since the epoch; on some storages without fractions.
    modified: float
    tag: str

    @property
    def text(self) -> str:
        """The version as an index has it; empty where the storage does not tell versions apart."""
        return file_version(self.size, floor(self.modified * 1000 + 0.001), self.tag)


class CampaignFolder:
    """The folder of one campaign under a staging root."""

    def __init__(self, path: ObjectStoragePath) -> None:
        self._path = path

    @classmethod
    def find_all(cls, root: str, conn_id: str | None) -> dict[str, CampaignFolder]:
        """The folders of all campaigns under a staging root, by the names of the folders."""
        from airflow.sdk import ObjectStoragePath

        scheme, _, rest = root.partition("://")
        needs_none = scheme == "file" or "@" in rest.partition("/")[0]
        folder = ObjectStoragePath(root, conn_id=None if needs_none else conn_id) / CAMPAIGNS
        folder.fs.invalidate_cache()
        try:
            found = folder.fs.ls(folder.path, detail=False)
        except FileNotFoundError:
            return {}
        names = sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)
        return {name: cls(folder / name) for name in names if name and not name.startswith(".")}

    @property
    def uri(self) -> str:
        """The address of the folder, which tells it from all others."""
        return str(self._path)

    def read(self, *names: str) -> Document | None:
        """One document; None when it does not exist."""
        content = self.read_bytes(*names)
        return None if content is None else _parsed(content)

    def read_bytes(self, *names: str) -> bytes | None:
        """The content of one file; None when it does not exist."""
        try:
            content: bytes = self._path.fs.cat_file(self._path.joinpath(*names).path)
        except FileNotFoundError:
            return None
        return content

    def read_state(self, table: str) -> Document | None:
        """The state of a table, by its qualified name; None when it has none yet."""
        return self.read("tables", hash_folder(table), f"{safe_name(table)}.json")

    def read_index(self) -> StateIndex:
        """What the last wave knew of the documents, by the paths that :meth:`list_files` gives them.

        An index that is missing, or none, has nothing.
        """
        found = parse_index(self.read_bytes(INDEX) or b"")
        root = self._path.path.rstrip("/")
        return StateIndex(
            {f"{root}/{path}": known for path, known in found.states.items()},
            {f"{root}/{path}": known for path, known in found.decisions.items()},
        )

    def list_files(self, *names: str) -> dict[str, FileVersion]:
        """All JSON documents below a folder of the campaign, by their paths; none when there is no such folder."""
        folder = self._path.joinpath(*names)
        folder.fs.invalidate_cache()
        found: dict[str, Document] = folder.fs.find(folder.path, detail=True)
        return {path: _version(entry) for path, entry in found.items() if path.endswith(".json")}

    def read_files(self, paths: Iterable[str]) -> Iterator[tuple[str, Document]]:
        """Documents by the paths that :meth:`list_files` gave, without those that are gone.

        A file that is no document is an empty one.
        """
        wanted = list(paths)
        for start in range(0, len(wanted), _BATCH):
            contents = self._path.fs.cat(wanted[start : start + _BATCH], on_error="return")
            for path, content in contents.items():
                if isinstance(content, FileNotFoundError):
                    continue  # it is being replaced, or was deleted after the listing
                if isinstance(content, Exception):
                    raise content
                yield path, _parsed(content) or {}

    def plan_version(self) -> tuple[str, FileVersion] | None:
        """The path of the plan and its version; None while there is no plan."""
        path = self._path / "plan.parquet"
        self._path.fs.invalidate_cache()
        try:
            return path.path, _version(self._path.fs.info(path.path))
        except FileNotFoundError:
            return None

    def read_plan(self, path: str) -> list[Document]:
        """The rows of the plan, by the path that :meth:`plan_version` gave, with the columns that the page shows."""
        from pyarrow import parquet

        file = parquet.ParquetFile(io.BytesIO(self._path.fs.cat_file(path)))
        rows: list[Document] = file.read(
            [name for name in file.schema_arrow.names if name in _PLAN_COLUMNS]
        ).to_pylist()
        return rows

    def write_decisions(self, decisions: Iterable[Document]) -> None:
        """Add decisions of a person, after those that were made before; side by side where the storage can."""
        folder = self._path / "decisions"
        decisions = list(decisions)
        names = sequence_names((path.rpartition("/")[2] for path in self.list_files("decisions")), len(decisions))
        contents = {
            f"{folder.path.rstrip('/')}/{name}": json.dumps(each, ensure_ascii=False).encode(
                "utf-8", "backslashreplace"
            )
            for name, each in zip(names, decisions, strict=True)
        }
        if folder.protocol not in ("file", "local"):
            folder.fs.pipe(contents)
            return
        Path(folder.path).mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            part = Path(folder.path) / f".{uuid.uuid4().hex}"  # on a disk half a file can be seen
            part.write_bytes(content)
            part.replace(path)


def _parsed(content: bytes) -> Document | None:
    """A document, or None for what is none: a person may have put a file of another kind there."""
    try:
        document = json.loads(content)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _version(entry: Document) -> FileVersion:
    modified = entry.get("LastModified") or entry.get("last_modified") or entry.get("mtime") or entry.get("updated")
    if isinstance(modified, datetime):
        modified = modified.timestamp()
    # On a local disk a file that replaces another has an inode of its own.
    tag = str(entry.get("ETag") or entry.get("etag") or entry.get("ino") or "")
    return FileVersion(int(entry.get("size") or 0), modified if isinstance(modified, int | float) else 0.0, tag)
