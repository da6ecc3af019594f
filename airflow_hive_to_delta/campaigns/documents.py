"""What the documents of a campaign have in common: they are checked when they are read, for people may edit them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from airflow_hive_to_delta.campaigns.times import parse_time
from airflow_hive_to_delta.core.models import Document, TableInfo

#: The number of the documents' format.
FORMAT = 1
_TIME = "2026-11-18T04:30:00+00:00"
_NAMES_OF_TYPES = {str: "a text", int: "a whole number", bool: "true or false", list: "a list", dict: "an object"}


class CheckedDocument(Document):
    """Plain data whose fields have the types that their annotations say, whoever has edited it."""

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read a document. What a later version of this package has added to it is passed over.

        :raises ValueError: a field is missing, or is not what it must be.
        """
        known = {}
        kind: Any = cls
        for name, (expected, fits, is_needed) in _fields_of(kind).items():
            if name not in document:
                if is_needed:
                    raise ValueError(f"{name} is missing, expected {expected}")
            elif not fits(document[name]):
                raise ValueError(f"{name} is {document[name]!r:.200}, expected {expected}")
            else:
                known[name] = document[name]
        return cls(**known)


class CampaignDocument(CheckedDocument):
    """A document of a campaign, with the number of its format."""

    #: What errors call it.
    noun: ClassVar[str] = "document of a campaign"

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, **super().to_dict()}


def check_times(**times: str | None) -> None:
    """Refuse what is no time in ISO 8601.

    :raises ValueError: one of them is none.
    """
    for name, time in times.items():
        try:
            if time is not None:
                parse_time(time)
        except ValueError as error:
            raise ValueError(f"{name} is {time!r}, expected a time such as {_TIME}") from error


def check_tables(tables: Sequence[dict[str, Any]]) -> None:
    """Refuse what are no tables as :class:`TableInfo` dicts.

    :raises ValueError: one of them is none.
    """
    for table in tables:
        try:
            found = TableInfo.from_dict(table)
        except (TypeError, ValueError) as error:
            raise ValueError(f"tables has {table!r:.100}, which is no table: {error}") from error
        if not all(isinstance(text, str) and text for text in (found.name, found.location)):
            raise ValueError(f"tables has {table!r:.100}, expected a name and a location in each")


@cache
def _fields_of(kind: type) -> Mapping[str, tuple[str, Callable[[Any], bool], bool]]:
    """What each field of a dataclass has to be, in words and as a check, and whether it has no default."""
    hints = get_type_hints(kind)
    return {
        each.name: (
            _describe(hints[each.name]),
            _check_of(hints[each.name]),
            each.default is MISSING and each.default_factory is MISSING,
        )
        for each in fields(kind)
    }


def _check_of(hint: Any) -> Callable[[Any], bool]:
    """Whether a value that JSON can have is of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda _: True
    if origin in (Union, UnionType):
        checks = [_check_of(each) for each in arguments]
        return lambda value: any(check(value) for check in checks)
    if origin is Literal:
        return lambda value: isinstance(value, str) and value in arguments
    if origin is list:
        of_item = _check_of(arguments[0])
        return lambda value: type(value) is list and all(map(of_item, value))
    if origin is dict:
        of_value = _check_of(arguments[1])
        return lambda value: type(value) is dict and all(map(of_value, value.values()))
    return lambda value: type(value) is hint


def _describe(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(_describe, arguments))
    if origin is Literal:
        return f"one of {', '.join(arguments)}"
    return "nothing" if hint is type(None) else _NAMES_OF_TYPES.get(origin or hint, str(hint))
