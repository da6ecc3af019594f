"""Arguments that a template may render: checked when a DAG is parsed, read as what they are when a task runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

#: Reads the value of an argument of this name. ``ValueError``: it is not what was expected.
Reader = Callable[[str, Any], Any]


def check(readers: Mapping[str, Reader], given: Mapping[str, Any]) -> None:
    """Refuse, when a DAG is parsed, what cannot be read. Templates and XComs are known only when they run."""
    for name, read in readers.items():
        value = given[name]
        if not hasattr(value, "resolve") and "{{" not in str(value):
            read(name, value)


def flag(name: str, given: Any) -> bool:
    """True or False, as they are or as text."""
    value = {"true": True, "false": False}.get(given.lower()) if isinstance(given, str) else given
    if value is not True and value is not False:
        raise ValueError(f"{name} is {given!r}, expected True or False")
    return bool(value)


def whole_number(name: str, given: Any) -> int:
    """A whole number of at least 0, as it is or as text."""
    value = int(given) if isinstance(given, str) and given.strip().isdecimal() else given
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {given!r}, expected a whole number, at least 0")
    return value


def hours(name: str, given: Any) -> float:
    """A number of at least 0, as it is or as text."""
    try:
        value = float(given) if type(given) in (str, int, float) else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {given!r}, expected a number of hours, at least 0")
    return value


def minutes(name: str, given: Any) -> float:
    """The seconds of a timedelta, or of a number of minutes of at least 0, as it is or as text."""
    if isinstance(given, timedelta):
        seconds = given.total_seconds()
    else:
        try:
            seconds = float(given) * 60 if type(given) in (str, int, float) else -1.0
        except ValueError:
            seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{name} is {given!r}, expected a timedelta, or a number of minutes, at least 0")
    return seconds


def whole_numbers(name: str, given: Any) -> list[int]:
    """Whole numbers, as a list or as the text of one, such as ``[3, 4]``."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        value = None
    if type(value) not in (list, tuple):
        raise ValueError(f"{name} is {given!r}, expected a list of whole numbers")
    return [whole_number(name, number) for number in value]


def names(name: str, given: Any) -> list[str]:
    """Names, as a list or as the text of one, such as ``["sales.orders"]``."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        value = None
    if type(value) not in (list, tuple) or not all(isinstance(each, str) and each for each in value):
        raise ValueError(f"{name} is {given!r}, expected a list of names")
    return list(value)


def one_of(*words: str) -> Reader:
    """One of these words."""

    def read(name: str, given: Any) -> str:
        if given not in words:
            raise ValueError(f"{name} is {given!r}, expected one of {', '.join(words)}")
        return str(given)

    return read


def optional(read: Reader) -> Reader:
    """The same, or None, which a template renders as text."""
    return lambda name, given: None if given in (None, "", "None") else read(name, given)
