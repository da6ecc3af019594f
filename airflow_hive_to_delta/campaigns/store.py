"""The documents of a campaign on a storage: S3 or a disk.

    <staging>/campaigns/<campaign>/
      plan.parquet                      one row for each table
      drafts/<run>/                     a plan that is being made (:mod:`drafts`)
      decisions/<seq>-<id>.json         what people decided about tables, never changed
      approvals/<seq>-<id>.json         the tables that a person approved together
      tables/<hash2>/<name>.json        the state of each table
      leases/<hash2>/<name>.<n>.json    who works on it (:mod:`leases`)
      units/<run>/<n>.json              the tables of one unit of work
      waves/<run>.json                  each wave and what became of it
      index.json                        what the states say, for a reader of all of them (:mod:`state_index`)
      summary.json  report.html  plan.csv

A document is replaced as a whole, so a reader sees the old or the new one.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from airflow_hive_to_delta.campaigns.documents import FORMAT, CampaignDocument
from airflow_hive_to_delta.campaigns.states import TableState
from airflow_hive_to_delta.core.errors import MissingError, PermanentError
from airflow_hive_to_delta.core.redaction import redact_credentials
from airflow_hive_to_delta.core.storage.base import ReplacingStorage, StoredFile
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location, parse_location
from airflow_hive_to_delta.job.file_names import safe_name

#: The folder of all campaigns, below a staging root.
CAMPAIGNS = "campaigns"
#: Documents that are read or written side by side. A client of S3 keeps as many connections.
_THREADS = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SEQUENCE = re.compile(r"(\d{15})-[0-9a-f]{8}\.json")

Item = TypeVar("Item")
Kind = TypeVar("Kind", bound=CampaignDocument)
Result = TypeVar("Result")


class StatesByTable(dict[str, TableState]):
    """The states of tables, and which versions of their documents they were read from.

    :param documents: by table, the path of its document and the version that a listing gave of it *before* it was read.
        A document that was changed since, even while it was read, has another version.
    """

    def __init__(self, states: Mapping[str, TableState], documents: Mapping[str, tuple[str, str]]) -> None:
        super().__init__(states)
        self.documents = dict(documents)

    def unchanged(self, versions: Mapping[str, str]) -> dict[str, TableState]:
        """The states, by the paths of their documents, of those that a listing gives the same versions."""
        return {
            path: self[table]
            for table, (path, version) in self.documents.items()
            if version and versions.get(path) == version
        }


def states_after(states: Mapping[str, TableState], changed: Iterable[TableState]) -> Mapping[str, TableState]:
    """States with those in their place that were written since, of whose documents no version is known."""
    new = {state.table: state for state in changed}
    documents = states.documents if isinstance(states, StatesByTable) else {}
    return StatesByTable({**states, **new}, {table: known for table, known in documents.items() if table not in new})


class CampaignStore:
    """The documents of one campaign.

    :param storage: of the staging root.
    :param root: the folder of the campaign.
    """

    def __init__(self, storage: ReplacingStorage, root: Location) -> None:
        self._storage = storage
        self.root = root

    @classmethod
    def open(cls, staging: str, campaign: str, *, s3_client: Any = None) -> CampaignStore:
        """The store of a campaign under a staging root on S3 or on a disk.

        :param s3_client: the client of boto3 for a root on S3; one with the identity of the process when not given.
        :raises PermanentError: the root is on another storage.
        :raises ValueError: the name of the campaign is none for a folder.
        """
        check_name(campaign)
        root = parse_location(staging.rstrip("/"), "The staging root")
        storage: ReplacingStorage
        if root.scheme in S3_SCHEMES:
            from airflow_hive_to_delta.core.options import ConversionOptions
            from airflow_hive_to_delta.core.storage.s3 import S3Storage

            storage = S3Storage(ConversionOptions(), client=s3_client)
        elif root.scheme == "file":
            from airflow_hive_to_delta.core.storage.local import LocalStorage

            storage = LocalStorage()
        else:
            raise PermanentError(
                f"The staging root {root} is on {root.scheme}://, expected s3:// or file:// for a campaign, whose "
                "documents are read and written by tasks without Spark"
            )
        return cls(storage, root.child(CAMPAIGNS).child(campaign))

    @property
    def campaign(self) -> str:
        """The name of the campaign."""
        return self.root.path.rpartition("/")[2]

    def location(self, path: str) -> Location:
        """Where a document lies, by its path from the folder of the campaign."""
        return Location(self.root.scheme, self.root.authority, f"{self.root.path}/{path}")

    def path(self, uri: str) -> str:
        """The path of a document, from the folder of the campaign, by its URI.

        :raises PermanentError: it lies elsewhere.
        """
        location = parse_location(uri, "The document")
        if not self.root.holds(location):
            raise PermanentError(f"{location} is no document of the campaign {self.campaign} at {self.root}")
        return self.root.relative(location)

    # Documents in general

    def read(self, path: str) -> dict[str, Any] | None:
        """A document; None when there is none.

        :raises PermanentError: it is no JSON object, or of a later format.
        """
        content = self.read_bytes(path)
        if content is None:
            return None
        try:
            document = json.loads(content)
        except ValueError as error:
            raise self.wrong_document(path, f"is not JSON: {error}") from error
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise self.wrong_document(
                path,
                f"is no document of format {FORMAT}: a later version of this package has written it, or somebody has "
                "changed it",
            )
        return document

    def read_bytes(self, path: str) -> bytes | None:
        """The content of a file; None when there is none."""
        try:
            with self._storage.open(self.location(path)) as source:
                return source.read()
        except MissingError:
            return None

    def write(self, path: str, document: dict[str, Any]) -> None:
        """Write a document in the place of the one that is there."""
        self.write_bytes(path, _encode(document))

    def write_bytes(self, path: str, content: bytes) -> None:
        """Write a file in the place of the one that is there."""
        self._storage.replace(self.location(path), content)

    def put(self, path: str, document: dict[str, Any]) -> bool:
        """Write a document unless there is one. Returns whether it was written."""
        return self._storage.put_if_absent(self.location(path), io.BytesIO(_encode(document)))

    def names(self, folder: str) -> list[str]:
        """The names in a folder in their order, those of folders with a trailing ``/``."""
        return sorted(name for name in self._storage.list_names(self.location(folder)) if not name.startswith("."))

    def files(self, folder: str) -> list[StoredFile]:
        """The files in a folder, in the order of their names."""
        return sorted(file for file in self._storage.list_files(self.location(folder)) if file.name[0] != ".")

    def delete(self, paths: Iterable[str]) -> None:
        """Delete documents, as far as they are there."""
        self._storage.delete_files([self.location(path) for path in paths])

    def read_as(self, kind: type[Kind], path: str) -> Kind | None:
        """A document as an object; None when there is none.

        :raises PermanentError: it is no such document, as when somebody has edited it wrongly.
        """
        found = self.read(path)
        return None if found is None else self.parse(kind, path, found)

    def parse(self, kind: type[Kind], path: str, document: dict[str, Any]) -> Kind:
        """A document that was read, as an object.

        :raises PermanentError: it is no such document, as when somebody has edited it wrongly.
        """
        try:
            return kind.from_dict(document)
        except ValueError as error:
            raise self.wrong_document(path, f"is no {kind.noun}: {redact_credentials(str(error))}") from error

    def wrong_document(self, path: str, what: str) -> PermanentError:
        """The error for a document that somebody has edited wrongly, with what a person should do about it.

        :param what: is said of the document.
        """
        return PermanentError(f"{self.location(path)} {what}. {_mend(path)}")

    def read_all_as(self, kind: type[Kind], paths: Iterable[str]) -> Iterator[tuple[str, Kind]]:
        """Documents as objects, with their paths, read side by side. One that is gone is left out."""
        return ((path, self.parse(kind, path, document)) for path, document in self.read_all(paths))

    def read_all(self, paths: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Documents with their paths, read side by side. One that is gone is left out."""
        paths = list(paths)
        found = self.map(self.read, paths)
        return ((path, document) for path, document in zip(paths, found, strict=True) if document is not None)

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Call a function for each item, side by side. Returns the results in the order of the items."""
        items = list(items)
        if len(items) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(_THREADS, len(items)), "campaign") as pool:
            return list(pool.map(work, items))

    # The states of tables

    def state(self, table: str) -> TableState | None:
        """The state of a table; None when it has no document yet."""
        path = state_path(table)
        found = self.read(path)
        return None if found is None else self._as_state(path, found)

    def states(self, known: StatesByTable | None = None) -> StatesByTable:
        """The state of every table that has a document.

        :param known: states that were read before. A document that has not changed since is not read again.
        """
        folders = [name.rstrip("/") for name in self.names("tables") if name.endswith("/")]
        listed = self.map(lambda folder: self.files(f"tables/{folder}"), folders)
        versions = {
            f"tables/{folder}/{file.name}": file.version
            for folder, files in zip(folders, listed, strict=True)
            for file in files
            if file.name.endswith(".json")
        }
        found = known.unchanged(versions) if known is not None else {}
        changed = [path for path in versions if path not in found]
        found |= {path: self._as_state(path, document) for path, document in self.read_all(changed)}
        documents = {state.table: (path, versions[path]) for path, state in found.items()}
        return StatesByTable({state.table: state for state in found.values()}, documents)

    def states_of(self, tables: Iterable[str]) -> dict[str, TableState]:
        """The states of some tables, as far as they have documents."""
        found = self.read_all(state_path(table) for table in tables)
        return {state.table: state for state in (self._as_state(path, document) for path, document in found)}

    def write_state(self, state: TableState) -> None:
        """Write the state of a table. Who does this holds the lease of the table."""
        self.write(state_path(state.table), state.to_dict())

    def put_state(self, state: TableState) -> bool:
        """Write the first state of a table, unless it has one. Returns whether it was written."""
        return self.put(state_path(state.table), state.to_dict())

    def _as_state(self, path: str, document: dict[str, Any]) -> TableState:
        state = self.parse(TableState, path, document)
        if state_path(state.table) != path:
            raise self.wrong_document(
                path, f"names the table {state.table!r}, whose document is {state_path(state.table)}"
            )
        return state


def _mend(path: str) -> str:
    """What a person should do about a document that is none."""
    if path.startswith("tables/"):
        return (
            "Delete it, and make it anew from the catalog and the Delta logs: airflow-hive-to-delta rebuild-states, or "
            "rebuild_states in Python"
        )
    if path.startswith("decisions/"):
        return "Correct it; or delete it, and decide anew"
    if path.startswith("approvals/"):
        return "Correct it; or delete it, and start a new run, which asks again"
    if path.startswith(("units/", "questions/", "waves/")):
        return "Delete it, and start a new run, which takes the tables that are left"
    if path.startswith("leases/"):
        return "Pause the DAGs of the campaign until none of their tasks runs, delete it, and clear the task"
    if path.startswith("drafts/"):
        return "Delete it, and clear the task that finds the tables, with all after it"
    return "Delete it, and clear the task"


def check_name(campaign: str) -> None:
    """Refuse a name of a campaign that cannot be the name of a folder on every storage."""
    if not isinstance(campaign, str) or not _NAME.fullmatch(campaign):
        raise ValueError(
            f"The name of the campaign is {campaign!r}, expected letters, digits, dots, hyphens and underscores, at "
            "most 100"
        )


def hash_folder(table: str) -> str:
    """The folder of a table's documents among 256, so that no listing is long."""
    return hashlib.sha256(table.encode()).hexdigest()[:2]


def sequence_names(existing: Iterable[str], count: int = 1) -> list[str]:
    """Names for documents that sort after all that there are, in their order.

    By the time of this machine, but never before a name that a machine with a faster clock has given.
    """
    newest = max((int(found[1]) for name in existing if (found := _SEQUENCE.fullmatch(name))), default=0)
    first = max(time.time_ns() // 1_000_000, newest + 1)
    return [f"{first + number:015d}-{uuid.uuid4().hex[:8]}.json" for number in range(count)]


def state_path(table: str) -> str:
    """The path of the state of a table, from the folder of the campaign."""
    return f"tables/{hash_folder(table)}/{safe_name(table)}.json"


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT, **document}, indent=1).encode()
