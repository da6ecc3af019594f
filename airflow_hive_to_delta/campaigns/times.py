"""Times as the documents of a campaign have them: ISO 8601 in UTC, with seconds."""

from __future__ import annotations

import datetime as dt


def now() -> dt.datetime:
    """The current time, in UTC and whole seconds."""
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def format_time(time: dt.datetime) -> str:
    """A time as text, such as ``2026-11-18T04:30:00+00:00``."""
    return time.astimezone(dt.UTC).isoformat(timespec="seconds")


def parse_time(text: str) -> dt.datetime:
    """The time of a text that :func:`format_time` has made."""
    return dt.datetime.fromisoformat(text).astimezone(dt.UTC)
