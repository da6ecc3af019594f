"""Arguments of operators: checked when a DAG is parsed; those that a template renders are read when a task runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_hive_to_delta.core.options import ConversionOptions

Options = ConversionOptions | Mapping[str, Any] | None
#: Takes the name of an argument and its value, and returns the value read. ``ValueError``: it is not what was expected.
Reader = Callable[[str, Any], Any]


def options_dict(options: Options) -> dict[str, Any]:
    """Conversion options as a dict that Airflow can template; wrong ones fail here, when the DAG is parsed."""
    if options is None or isinstance(options, ConversionOptions):
        options = (options or ConversionOptions()).to_dict()
    if not isinstance(options, Mapping):
        raise TypeError(f"options is {options!r}, expected ConversionOptions or a dict of them")
    # A template is checked when it is rendered.
    templates = {name: value for name, value in options.items() if isinstance(value, str) and "{{" in value}
    known = {name: value for name, value in options.items() if name not in templates}
    unknown = templates.keys() - ConversionOptions().to_dict().keys()
    try:
        checked = ConversionOptions.from_dict({**known, **{name: templates[name] for name in unknown}})
        if "partition_timezone" not in templates:
            ZoneInfo(checked.partition_timezone)
    except (ValueError, ZoneInfoNotFoundError) as error:
        raise ValueError(f"options: {error}") from error
    return {**checked.to_dict(), **templates}


def check_count(argument: str, given: Any, *, least: int, optional: bool = False) -> None:
    """Refuse, when a DAG is parsed, what is no whole number of at least ``least``."""
    if given is None and optional:
        return
    if type(given) is not int or given < least:
        raise ValueError(f"{argument} is {given!r}, expected a whole number, at least {least}")


def check_names(argument: str, given: Any, *, empty: bool = False) -> None:
    """Refuse, when a DAG is parsed, what is neither a name nor a list of names. An XCom is known only when it runs."""
    if hasattr(given, "resolve"):
        return
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"{argument} is {given!r}, expected a name or pattern, or a list of them")
    if not names and not empty:
        raise ValueError(f"{argument} is empty, expected a name or pattern, or a list of them")


def check_readable(readers: Mapping[str, Reader], given: Mapping[str, Any]) -> None:
    """Refuse, when a DAG is parsed, what cannot be read. Templates and XComs are known only when they run."""
    for name, read in readers.items():
        value = given[name]
        if not hasattr(value, "resolve") and "{{" not in str(value):
            read(name, value)


def read_flag(name: str, given: Any) -> bool:
    """True or False, as they are or as text."""
    value = {"true": True, "false": False}.get(given.lower()) if isinstance(given, str) else given
    if value is not True and value is not False:
        raise ValueError(f"{name} is {given!r}, expected True or False")
    return bool(value)


def read_whole_number(name: str, given: Any) -> int:
    """A whole number of at least 0, as it is or as text."""
    value = int(given) if isinstance(given, str) and given.strip().isdecimal() else given
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {given!r}, expected a whole number, at least 0")
    return value


def read_hours(name: str, given: Any) -> float:
    """A number of at least 0, as it is or as text."""
    try:
        value = float(given) if type(given) in (str, int, float) else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {given!r}, expected a number of hours, at least 0")
    return value


def read_minutes(name: str, given: Any) -> float:
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


def read_whole_numbers(name: str, given: Any) -> list[int]:
    """Whole numbers, as a list or as the text of one, such as ``[3, 4]``."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        value = None
    if type(value) not in (list, tuple):
        raise ValueError(f"{name} is {given!r}, expected a list of whole numbers")
    return [read_whole_number(name, number) for number in value]


def read_names(name: str, given: Any) -> list[str]:
    """Names, as a list or as the text of one, such as ``["sales.orders"]``."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        value = None
    if type(value) not in (list, tuple) or not all(isinstance(each, str) and each for each in value):
        raise ValueError(f"{name} is {given!r}, expected a list of names")
    return list(value)


def read_one_of(*choices: str) -> Reader:
    """A reader that takes one of these texts."""

    def read(name: str, given: Any) -> str:
        if given not in choices:
            raise ValueError(f"{name} is {given!r}, expected one of {', '.join(choices)}")
        return str(given)

    return read


def read_optional(read: Reader) -> Reader:
    """A reader that takes what another one does, or None, which a template renders as text."""
    return lambda name, given: None if given in (None, "", "None") else read(name, given)
