"""Arguments of operators: checked when a DAG is parsed; those that a template renders are read when a task runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_hive_to_delta.core.options import ConversionOptions, OutputMode, SyncOptions

Options = ConversionOptions | Mapping[str, Any] | None
SyncFlags = SyncOptions | Mapping[str, Any] | None
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


def sync_options_dict(options: SyncFlags) -> dict[str, Any]:
    """Sync options as a dict that Airflow can template; wrong ones fail here, when the DAG is parsed.

    :param options: in a dict the quiet period may be a number of minutes, as it is in what is returned.
    """
    if options is None or isinstance(options, SyncOptions):
        given = options or SyncOptions()
        options = {option.name: getattr(given, option.name) for option in fields(SyncOptions)}
    if not isinstance(options, Mapping):
        raise TypeError(f"sync_options is {options!r}, expected SyncOptions or a dict of them")
    readers = _sync_readers()
    if unknown := options.keys() - readers.keys():
        raise ValueError(f"sync_options has {', '.join(sorted(unknown))}, expected some of {', '.join(readers)}")
    known = {name: value for name, value in options.items() if _is_known(value)}
    if "output_mode" in options and "output_mode" not in known:
        known.pop("overwrite_schema", None)  # which goes with one mode only
    read_sync_options(known)
    period = options.get("quiet_period")
    minutes = period.total_seconds() / 60 if isinstance(period, timedelta) else period
    return {**options, **({"quiet_period": minutes} if "quiet_period" in options else {})}


def read_sync_options(rendered: Mapping[str, Any]) -> SyncOptions:
    """The options of a dict that :func:`sync_options_dict` made, when its templates are rendered.

    :raises ValueError: a template has rendered what cannot be read.
    """
    readers = _sync_readers()
    return SyncOptions.from_dict({name: readers[name](name, value) for name, value in rendered.items()})


def _sync_readers() -> dict[str, Reader]:
    """How each field of :class:`SyncOptions` is read, by its type."""
    by_type = {
        "OutputMode": read_one_of(*get_args(OutputMode)),
        "bool": read_flag,
        "timedelta | None": read_optional(read_minutes),
    }
    return {option.name: by_type[str(option.type)] for option in fields(SyncOptions)}


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
        if _is_known(given[name]):
            read(name, given[name])


def _is_known(value: Any) -> bool:
    """Whether a value is known when a DAG is parsed: it is neither a template nor an XCom."""
    return not hasattr(value, "resolve") and "{{" not in str(value)


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
