"""Tables as they travel between tasks: one as a dict, or a batch of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_hive_to_delta.core.models import TableInfo

#: What Airflow's database holds of a label.
_LONGEST_LABEL = 250

Table = dict[str, Any]
#: One table as discovery gives it, or a batch of them.
TableOrBatch = Table | Sequence[Table]


def as_batch(given: Any, argument: str) -> list[dict[str, Any]]:
    """One dict, or several, as a list. Anything else fails the task, and the error names the argument."""
    batch = [given] if isinstance(given, Mapping) else list(given) if isinstance(given, Sequence) else None
    if not batch or isinstance(given, str) or not all(isinstance(item, Mapping) for item in batch):
        raise AirflowFailException(
            f"{argument} is {given!r:.200}, expected what the task before it returns: one dict, or a batch of them"
        )
    return [dict(item) for item in batch]


def batch_label(given: Any) -> str:
    """The label of a table, or of a batch of them, in Airflow's pages; empty when it is neither."""
    try:
        names = [qualified_name(table) for table in as_batch(given, "table")]
    except (AirflowFailException, ValueError, TypeError):
        return ""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    name = names[0]
    room = _LONGEST_LABEL - len(more)
    return (name if len(name) <= room else f"{name[: room - 1]}…") + more


def qualified_name(table: Mapping[str, Any]) -> str:
    """The name of a table with its catalog and database, as far as it has them."""
    return TableInfo.from_dict(dict(table)).qualified_name


def flatten(given: Any) -> Iterator[dict[str, Any]]:
    """Every dict in a value that may be none, one, or many in lists, as XComs of mapped tasks come."""
    if isinstance(given, dict):
        yield given
    elif given is not None and not isinstance(given, str):
        for item in given:
            yield from flatten(item)
