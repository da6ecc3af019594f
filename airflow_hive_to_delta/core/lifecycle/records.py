"""What this package keeps beside a table's log, in ``_delta_log/_hive_to_delta``, and moves aside with it.

- ``source.json``: the Hive table that was converted, as its catalog described it.
- ``registrations/``: each name that the Delta table was registered under.
- ``definition-0.json``, ``definition-1.json`` …: the Hive definitions in Glue that cut-overs replaced, unchanged. A
  rollback restores the last one, which is what the last cut-over replaced.
- ``rollback.json``: that a rollback has begun, and where it moves the log; ``rollback-….jsonl``: files that it moves.
- ``columns/``, ``settled/``: columns that syncs have taken over; conflicts that people have decided about.
- ``ledger/``: which files the log has ever held (:mod:`ledger`).
- ``verified/``: versions that were compared with the Hive table and found equal, each by a level.

A record is written once and never changed. What is read back is checked: anybody who may write to the table's folder
can have changed it. Readers of Delta pass over the folder, as over any name in the log that they do not know.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.catalogs.registration import Target
from airflow_hive_to_delta.core.delta.log.entries import commit_info_of, is_conversion
from airflow_hive_to_delta.core.delta.log.files import (
    commit_path,
    records_folder,
    refuse_half_rolled_back,
)
from airflow_hive_to_delta.core.errors import MissingError, PermanentError, TransientError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.storage.uri import Location

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.delta.snapshot import Snapshot
    from airflow_hive_to_delta.core.results import VerifyResult
    from airflow_hive_to_delta.core.storage.base import Storage


@dataclass(frozen=True)
class KeptDefinition:
    """A table of Glue as it was before a cut-over."""

    #: Name of the record.
    record: str
    catalog: str | None
    database: str
    name: str
    region: str | None
    #: As ``get_table`` had it.
    definition: dict[str, Any]

    @property
    def target(self) -> Target:
        return Target(self.catalog, self.database, self.name, "glue")


@dataclass(frozen=True)
class Records:
    """The records of the table at ``root``."""

    storage: Storage
    root: Location
    #: Names in the folder of the records at one moment; None: they are not known.
    names: frozenset[str] | None = None

    def with_names(self) -> Records:
        """The records as they are at this moment: one request tells which of them need none to be read."""
        return replace(self, names=frozenset(self.storage.list_names(self.folder)))

    @property
    def folder(self) -> Location:
        return records_folder(self.root)

    def keep_source(self, table: TableInfo) -> None:
        """Keep what the Hive table was. The first to be kept stays."""
        self.keep("source.json", replace(table.without_other_properties(), discovered={}).to_dict())

    def source(self) -> TableInfo | None:
        """The Hive table that was converted; None when no record of it was kept."""
        found = self.read("source.json")
        if found is None:
            return None
        self._check(
            "source.json",
            found,
            {
                **dict.fromkeys(("name", "location", "source"), _is_text),
                **dict.fromkeys(("catalog", "database", "region", "comment"), _is_text_or_none),
                **dict.fromkeys(("partition_keys", "bucket_columns"), _is_texts),
                "columns": lambda value: value is None or (_is_list(value) and all(map(_is_column, value))),
                "partition_types": lambda value: isinstance(value, dict) and _is_texts([*value.values()]),
            },
        )
        try:
            return TableInfo.from_dict(found)
        except (ValueError, TypeError) as error:
            raise self.changed("source.json", str(error)) from error

    def is_ours(self, snapshot: Snapshot) -> bool:
        """Whether the log begins with a conversion by this package; Delta may have cleaned up its first entry since.

        :raises PermanentError: a rollback of the table was begun and has not finished.
        """
        if 0 in snapshot.segment.times:
            refuse_half_rolled_back(self.storage, self.root)
            try:
                info = commit_info_of(self.storage, commit_path(self.root, 0))
            except MissingError:  # it was rolled back meanwhile
                return False
            return is_conversion(info)
        return self.source() is not None

    def keep_registration(self, target: Target, region: str | None) -> None:
        """Keep a name, before it is registered: so no crash can leave one that a rollback would not know."""
        document = {**target.__dict__, "region": region}
        name = hashlib.blake2b(json.dumps(document, sort_keys=True).encode(), digest_size=8).hexdigest()
        self.keep(f"registrations/{name}.json", document)

    def registrations(self) -> list[tuple[Target, str | None]]:
        """Every name that the table was registered under, each with the region of its catalog."""
        expected: _Expected = {
            **dict.fromkeys(("schema", "table"), _is_text),
            **dict.fromkeys(("catalog", "region"), _is_text_or_none),
            "kind": lambda value: value in ("sql", "glue"),
        }
        return [
            (Target(document["catalog"], document["schema"], document["table"], document["kind"]), document["region"])
            for document in self._all("registrations", expected)
        ]

    def keep_definition(self, target: Target, region: str | None, definition: Mapping[str, Any]) -> str:
        """Keep a definition in Glue that is about to be replaced, beside earlier ones. Returns its record's name."""
        numbers = [int(match[1]) for name in self._names("") if (match := _DEFINITION.fullmatch(name))]
        record = f"definition-{max(numbers, default=-1) + 1}.json"
        document = {"catalog": target.catalog, "database": target.schema, "name": target.table, "region": region}
        if not self.keep(record, {**document, "definition": definition}):
            raise TransientError(f"Another cut-over of {target.name} kept its definition at the same moment. Try again")
        return record

    def definitions(self) -> list[KeptDefinition]:
        """Every definition in Glue that a cut-over has kept, the last one last."""
        expected: _Expected = {
            **dict.fromkeys(("database", "name"), _is_text),
            **dict.fromkeys(("catalog", "region"), _is_text_or_none),
            "definition": lambda value: isinstance(value, dict),
        }
        found = {int(match[1]): name for name in self._names("") if (match := _DEFINITION.fullmatch(name))}
        kept = []
        for _, record in sorted(found.items()):
            document = self.read(record)
            if document is not None:
                self._check(record, document, expected)
                kept.append(KeptDefinition(record, **{field: document[field] for field in expected}))
        return kept

    def keep_columns(self, names: Collection[str], version: int) -> None:
        """Keep the columns that Hive had when a sync took some of them over."""
        self.keep(f"columns/{version:020d}.json", {"columns": sorted(names)})

    def columns(self) -> frozenset[str]:
        """Every column that a sync has ever taken over, in lower case: one that is gone was dropped by Delta."""
        return frozenset(
            name for document in self._all("columns", {"columns": _is_texts}) for name in document["columns"]
        )

    def keep_settled(self, keys: Collection[str], version: int) -> None:
        """Keep which files, taken away by Hive after Delta had rewritten them, people have decided about."""
        self.keep(f"settled/{version:020d}.json", {"keys": sorted(keys)})

    def settled(self) -> list[str]:
        return sorted({key for document in self._all("settled", {"keys": _is_texts}) for key in document["keys"]})

    def keep_verified(self, result: VerifyResult) -> None:
        """Keep that a version was compared with the Hive table, and found equal."""
        counts = {name: getattr(result, name) for name in ("file_count", "byte_count", "row_count")}
        document = {"version": result.version, "level": result.level, **counts}
        self.keep(f"verified/{result.version:020d}-{result.level}.json", document)

    def verified(self) -> dict[str, int]:
        """The latest version that was verified, by level. From the names of the records alone."""
        found = filter(None, map(_VERIFIED.fullmatch, self._names("verified")))
        return {match["level"]: int(match["version"]) for match in found}

    def _all(self, folder: str, expected: _Expected) -> list[dict[str, Any]]:
        documents = []
        for name in self._names(folder):
            document = self.read(f"{folder}/{name}")
            if document is not None:
                self._check(f"{folder}/{name}", document, expected)
                documents.append(document)
        return documents

    def _names(self, folder: str) -> list[str]:
        if self.names is not None and folder and f"{folder}/" not in self.names:
            return []
        location = self.folder.child(folder) if folder else self.folder
        return sorted(file.name for file in self.storage.list_files(location) if file.name.endswith(".json"))

    def _check(self, name: str, document: Mapping[str, Any], expected: _Expected) -> None:
        for field, is_right in expected.items():
            if not is_right(document.get(field)):
                raise self.changed(name, f"{field} is {document.get(field)!r}")

    def changed(self, name: str, found: str) -> PermanentError:
        """The error for a record that cannot be what this package has written."""
        return PermanentError(
            f"The record {self.folder.child(name)} is not as this package writes it: {found[:200]}. Somebody has "
            "changed it: restore it from a backup or from an earlier version of the object"
        )

    def keep(self, name: str, document: dict[str, Any]) -> bool:
        """Write a record unless there is one of that name already: then it stays, and this is False."""
        text = json.dumps(document, indent=1, default=str)
        return self.storage.put_if_absent(self.folder.child(name), io.BytesIO(text.encode()))

    def read(self, name: str) -> dict[str, Any] | None:
        """A record; None when there is none of that name."""
        path = self.folder.child(name)
        try:
            with self.storage.open(path) as stored:
                found = json.loads(stored.read())
        except MissingError:
            return None
        except ValueError as error:
            raise PermanentError(f"The record {path} is not JSON: {error}. Restore or remove it") from error
        if not isinstance(found, dict):
            raise PermanentError(f"The record {path} is no JSON object. Restore or remove it")
        return found


_VERIFIED = re.compile(r"(?P<version>\d{20})-(?P<level>\w+)\.json")
_Expected = dict[str, Callable[[Any], bool]]
_DEFINITION = re.compile(r"definition-(\d{1,9})\.json")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_column(value: Any) -> bool:
    return isinstance(value, dict) and _is_text(value.get("Name"))
