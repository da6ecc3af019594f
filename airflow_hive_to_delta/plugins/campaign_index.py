"""What a campaign's documents say, kept in memory: a document is read again only when it has changed."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from airflow_hive_to_delta.campaigns.view.table_rows import StateSummary, TableRow, build_rows, summarize_state
from airflow_hive_to_delta.plugins.documents import CampaignFolder, Document, FileVersion
from airflow_hive_to_delta.plugins.table_query import TableQuery, select_rows

#: Seconds for which what was read is taken for the present. A request after that makes the storage be listed again.
MAX_AGE = 10.0
#: A campaign whose listing takes long is listed less often, so that at most this share of the time is spent on it; but
#: no less often than after so many times the age.
_SHARE_OF_TIME = 0.05
_MOST_AGES = 6
_SUMMARY_AGE = 5.0
#: When more documents than this have changed, what the last wave knew of them is read first, in one document.
_WORTH_AN_INDEX = 40

_loaders = ThreadPoolExecutor(max_workers=4, thread_name_prefix="hive-to-delta-campaign")


class Progress(NamedTuple):
    """How many of the documents that have to be read have been read."""

    read: int
    total: int


@dataclass(frozen=True)
class Snapshot:
    """The tables of a campaign at one time."""

    #: Equal for equal contents, whichever process has read them.
    revision: str
    rows: dict[str, TableRow]
    #: When each table with a state came to it, in seconds since the epoch.
    since: dict[str, float]
    #: The decisions of people about each table, the oldest first.
    decisions: dict[str, list[Document]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "select", lru_cache(maxsize=8)(lambda query: select_rows(self.rows.values(), query)))

    #: The rows that a query asks for; those of the last few queries are kept, so that each page of one costs nothing.
    select: Callable[[TableQuery], list[TableRow]] = field(init=False, repr=False, compare=False)


class CampaignIndex:
    """The documents of one campaign, for the requests of many users at a time.

    :param clock: seconds that only grow.
    """

    def __init__(
        self, folder: CampaignFolder, *, max_age: float = MAX_AGE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.folder = folder
        self._max_age = max_age
        self._clock = clock
        self._lock = threading.Lock()
        self._loading: Future[None] | None = None
        self._snapshot: Snapshot | None = None
        self._stale_at = float("-inf")
        self._summary: tuple[float, Document | None] = (float("-inf"), None)
        self._states: dict[str, tuple[FileVersion, StateSummary | None]] = {}
        self._decisions: dict[str, Document] = {}
        self._plan: tuple[tuple[str, FileVersion] | None, list[Document]] = (None, [])
        self._progress = Progress(0, 0)

    def summary(self) -> Document | None:
        """The summary of the campaign, a few seconds old at most; None when the campaign has none."""
        read_at, summary = self._summary
        if self._clock() - read_at > min(_SUMMARY_AGE, self._max_age):
            summary = self.folder.read("summary.json")
            self._summary = (self._clock(), summary)
        return summary

    def snapshot(self, patience: float) -> tuple[Snapshot | None, Progress | None]:
        """The tables as they are now, or as they were, when reading the changes takes longer than ``patience`` seconds.

        :returns: None in place of the tables while they are read for the first time; and how far reading is while it
            goes on.
        :raises Exception: the storage failed.
        """
        with self._lock:
            if self._loading is not None and self._loading.done():
                self._loading = None  # nobody has waited for its end
            if self._loading is None and self._clock() >= self._stale_at:
                self._loading = _loaders.submit(self._load)
            loading = self._loading
        if loading is None:
            return self._snapshot, None
        wait([loading], patience)
        if not loading.done():
            return self._snapshot, self._progress
        loading.result()
        return self._snapshot, None

    def expire(self) -> None:
        """Have the next request look at the storage, because something was written there."""
        with self._lock:
            self._stale_at = float("-inf")

    def _load(self) -> None:
        started = self._clock()
        self._read_changes()
        pause = min((self._clock() - started) / _SHARE_OF_TIME, _MOST_AGES * self._max_age)
        with self._lock:
            self._stale_at = self._clock() + max(self._max_age, pause)

    def _read_changes(self) -> None:
        self._read_plan()
        decisions = self.folder.list_files("decisions")
        listed = self.folder.list_files("tables")
        if self._snapshot is not None and self._snapshot.revision == self._revision(decisions, listed):
            return
        self._use_index(decisions, listed)
        known = self._decisions
        self._decisions = {path: known[path] for path in decisions if path in known}
        self._decisions |= dict(self.folder.read_files(path for path in decisions if path not in known))
        self._read_states(listed)
        summaries = [summary for _, summary in self._states.values() if summary is not None]
        named = {path.rpartition("/")[2]: self._decisions[path] for path in sorted(self._decisions)}
        by_table: dict[str, list[Document]] = {}
        for decision in named.values():
            by_table.setdefault(str(decision.get("table")), []).append(decision)
        read = {path: version for path, (version, _) in self._states.items()}
        self._snapshot = Snapshot(
            # Of what was read: a document that vanished after the listing is looked for again by the next request.
            self._revision(self._decisions, read),
            build_rows(self._plan[1], summaries, named),
            {summary.table: summary.since for summary in summaries if summary.since is not None},
            by_table,
        )

    def _revision(self, decisions: Iterable[str], states: Mapping[str, FileVersion]) -> str:
        """A text that is equal for equal documents, by the versions that a listing gives."""
        parts = (self._plan[0], sorted(decisions), sorted(states.items()))
        return hashlib.blake2b(repr(parts).encode("utf-8", "backslashreplace"), digest_size=12).hexdigest()

    def _read_plan(self) -> None:
        version = self.folder.plan_version()
        if version != self._plan[0]:
            self._plan = (version, self.folder.read_plan(version[0]) if version else [])

    def _use_index(self, decisions: Mapping[str, FileVersion], states: Mapping[str, FileVersion]) -> None:
        """Take what the index says of documents that are as they were when it was made, if that saves many requests."""
        changed = [
            path for path, version in states.items() if path not in self._states or self._states[path][0] != version
        ]
        new = [path for path in decisions if path not in self._decisions]
        if len(changed) + len(new) <= _WORTH_AN_INDEX:
            return
        index = self.folder.read_index()
        for path in changed:
            if path in index.states and index.states[path][0] == states[path].text:
                self._states[path] = (states[path], index.states[path][1])
        for path in new:
            if path in index.decisions and index.decisions[path][0] == decisions[path].text:
                self._decisions[path] = index.decisions[path][1]

    def _read_states(self, listed: dict[str, FileVersion]) -> None:
        kept = {path: known for path, known in self._states.items() if listed.get(path) == known[0]}
        changed = [path for path in listed if path not in kept]
        self._progress = Progress(0, len(changed))
        for number, (path, document) in enumerate(self.folder.read_files(changed), 1):
            kept[path] = (listed[path], summarize_state(document))
            self._progress = Progress(number, len(changed))
        self._states = kept
