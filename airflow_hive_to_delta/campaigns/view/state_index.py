"""The index of a campaign: what the documents of its tables say, in one document that one request reads.

The documents stay the truth. The index has the version that each of them had in a listing *before* it was read. Who
lists the documents and finds the same version need not read it; any other version, also that of a document that was
changed while the index was made, is read. So an index may be missing or old.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.campaigns.documents import FORMAT
from airflow_hive_to_delta.campaigns.view.table_rows import StateSummary, summarize_state

if TYPE_CHECKING:
    from airflow_hive_to_delta.campaigns.store import CampaignStore, StatesByTable

INDEX = "index.json"
_FIELDS = [each.name for each in fields(StateSummary)]
_COLUMNS = ["path", "version", *_FIELDS]


@dataclass
class StateIndex:
    """What an index says, by the paths of documents from the folder of the campaign."""

    #: The version of each state that it has, and what is kept of the state.
    states: dict[str, tuple[str, StateSummary]] = field(default_factory=dict)
    #: The version of each decision that it has, and the decision.
    decisions: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)


def write_index(store: CampaignStore, states: StatesByTable) -> None:
    """Write the index of a campaign in the place of the one that is there.

    Decisions that the old one has, of which there may be thousands, are not read again.
    """
    rows = []
    for table, state in states.items():
        path, version = states.documents.get(table, ("", ""))
        summary = summarize_state(vars(state))
        if version and summary is not None:
            rows.append([path, version, *attrgetter(*_FIELDS)(summary)])
    listed = {f"decisions/{file.name}": file.version for file in store.files("decisions")}
    known = parse_index(store.read_bytes(INDEX) or b"").decisions
    decisions = {path: known[path] for path, version in listed.items() if path in known and known[path][0] == version}
    for path, document in store.read_all(path for path, version in listed.items() if path not in decisions and version):
        decisions[path] = (listed[path], document)
    parts = {
        "format": json.dumps(FORMAT),
        "columns": json.dumps(_COLUMNS),
        "states": _lines(rows),
        "decisions": _lines([[path, *decisions[path]] for path in sorted(decisions)]),
    }
    store.write_bytes(INDEX, ("{" + ",\n".join(f'"{name}": {text}' for name, text in parts.items()) + "}\n").encode())


def parse_index(content: bytes) -> StateIndex:
    """Read an index. One of another format, or that is none, has nothing."""
    try:
        document = json.loads(content)
        if document["format"] != FORMAT or document["columns"] != _COLUMNS:
            return StateIndex()
        states = {str(row[0]): (str(row[1]), _summary(row[2:])) for row in document["states"]}
        decisions = {str(path): (str(version), dict(each)) for path, version, each in document["decisions"]}
    except (ValueError, TypeError, KeyError, IndexError):
        return StateIndex()
    return StateIndex(states, decisions)


def _summary(values: list[Any]) -> StateSummary:
    """What is kept of a state.

    :raises ValueError: the row has other columns, or names no table.
    """
    found = StateSummary.of_fields(dict(zip(_FIELDS, values, strict=True)))
    if not found.table:
        raise ValueError("the row names no table")
    return found


def _lines(rows: list[Any]) -> str:
    """A list with a row in each line, as people read it."""
    return "[" + ",\n".join(json.dumps(row) for row in rows) + "]"
