"""What this package keeps beside a table's log, in ``_delta_log/_hive_to_delta``, and moves aside with it.

- ``source.json``: the Hive table that was converted, as its catalog described it.
- ``registrations/``: each name that the Delta table was registered under.
- ``definition.json``: the Hive definition in Glue that a cut-over replaced, word for word.
- ``rollback.json``: that a rollback has begun, and where it moves the log; ``rollback-….jsonl``: files that it moves.
- ``columns/``, ``settled/``: columns that syncs have taken over; conflicts that people have decided about.
- ``ledger/``: which files the log has ever held (:mod:`ledger`).

A record is written once and never changed. Readers of Delta pass over the folder, as over any name in the log that they
do not know.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.catalog import Target
from airflow_hive_to_delta.core.delta_log import log_state, records_folder
from airflow_hive_to_delta.core.errors import MissingError, PermanentError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.paths import Location

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.snapshot import Snapshot
    from airflow_hive_to_delta.core.storage import Storage

DEFINITION = "definition.json"


@dataclass(frozen=True)
class Records:
    """The records of the table at ``root``."""

    storage: Storage
    root: Location

    @property
    def folder(self) -> Location:
        return records_folder(self.root)

    def keep_source(self, table: TableInfo) -> None:
        """Keep what the Hive table was. The first to be kept stays."""
        self.keep("source.json", table.without_other_properties().to_dict())

    def source(self) -> TableInfo | None:
        """The Hive table that was converted; None when no record of it was kept."""
        found = self.read("source.json")
        return None if found is None else TableInfo.from_dict(found)

    def is_ours(self, snapshot: Snapshot) -> bool:
        """Whether the log begins with a conversion by this package; Delta may have cleaned up its first entry since."""
        if 0 in snapshot.segment.times:
            return log_state(self.storage, self.root).ours
        return self.source() is not None

    def keep_registration(self, target: Target, region: str | None) -> None:
        """Keep a name, before it is registered: so no crash can leave one that a rollback would not know."""
        document = {**target.__dict__, "region": region}
        name = hashlib.blake2b(json.dumps(document, sort_keys=True).encode(), digest_size=8).hexdigest()
        self.keep(f"registrations/{name}.json", document)

    def registrations(self) -> list[tuple[Target, str | None]]:
        """Every name that the table was registered under, each with the region of its catalog."""
        found = self._all("registrations")
        return [
            (Target(document["catalog"], document["schema"], document["table"], document["kind"]), document["region"])
            for document in found
        ]

    def keep_columns(self, names: Collection[str], version: int) -> None:
        """Keep the columns that Hive had when a sync took some of them over."""
        self.keep(f"columns/{version:020d}.json", {"columns": sorted(names)})

    def columns(self) -> frozenset[str]:
        """Every column that a sync has ever taken over, in lower case: one that is gone was dropped by Delta."""
        return frozenset(name for document in self._all("columns") for name in document["columns"])

    def keep_settled(self, keys: Collection[str], version: int) -> None:
        """Keep which files, taken away by Hive after Delta had rewritten them, people have decided about."""
        self.keep(f"settled/{version:020d}.json", {"keys": sorted(keys)})

    def settled(self) -> list[str]:
        return sorted({key for document in self._all("settled") for key in document["keys"]})

    def _all(self, folder: str) -> list[dict[str, Any]]:
        names = sorted(file.name for file in self.storage.entries(self.folder.child(folder)))
        return [self.read(f"{folder}/{name}") or {} for name in names if name.endswith(".json")]

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
