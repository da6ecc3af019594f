"""Partition values: from Hive's folder names and metastore strings to what Delta stores (rules 19 to 24).

Values come from a metastore, from paths or from an inventory, and all of them pass through :func:`normalise`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_hive_to_delta.core.errors import PartitionError

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
# These accept what Spark's casts accept, or less. Python itself accepts more, such as `1_000`, `\u0661` and `\u00a0`.
_BLANKS = "".join(map(chr, range(0x21)))
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"nan|[+-]?inf(inity)?", re.IGNORECASE)
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{1,2}-[0-9]{1,2})(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,9}))?)? ?"
    r"(Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
# Room for every digit that a decimal(38, s) can have; the default context rounds at 28.
_EXACT = Context(prec=80)
_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_TRUE, _FALSE = {"true", "t", "yes", "y", "1"}, {"false", "f", "no", "n", "0"}


def unescape(segment: str) -> str:
    """Undo Hive's escaping of the key or value of a ``key=value`` folder. Each ``%XX`` is a character, not a byte."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), segment)


def partition_folders(path: str) -> list[tuple[str, str]]:
    """Every ``key=value`` folder of a file's path, in order, unescaped once and split at the first ``=`` (rule 24)."""
    folders = []
    for segment in path.split("/")[:-1]:
        key, equals, value = segment.partition("=")
        if equals and key:
            folders.append((unescape(key), unescape(value)))
    return folders


def values_from_path(path: str, relative_path: str, columns: Sequence[str]) -> dict[str, str]:
    """The partition values in a file's path, as they stand there but for Hive's escaping.

    :param path: the whole path, for messages.
    :param relative_path: the part of the path that may hold partition folders.
    :raises PartitionError: the folders are not those of the partition columns. The message is that of
        ``CONVERT TO DELTA``.
    """
    folders = partition_folders(relative_path)
    found = {key.lower(): value for key, value in folders}
    if len(found) != len(folders) or found.keys() != {column.lower() for column in columns}:
        raise PartitionError(
            f"Expecting {len(columns)} partition column(s): [{', '.join(columns)}], but found {len(folders)} partition "
            f"column(s): [{', '.join(key for key, _ in folders)}] from parsing the file name: {path}"
        )
    return {column: found[column.lower()] for column in columns}


def stored_values(
    given: Mapping[str, str | None] | None, relative_path: str, types: Mapping[str, str], zone: str, path: str
) -> dict[str, str | None]:
    """The ``partitionValues`` of one file: from the values that its listing gave, or else from its path.

    :param given: the values as the metastore has them; None: they are in the path.
    :param relative_path: the part of the path that may hold partition folders.
    :param types: Delta type of every partition column, in order.
    :param zone: the time zone of ``timestamp`` values that name none.
    :param path: the whole path, for messages.
    :raises PartitionError: the values are not those of the partition columns, or not of their types.
    """
    if given is None:
        given = values_from_path(path, relative_path, list(types)) if types else {}
    return normalise(given, types, zone, path)


def normalise(
    values: Mapping[str, str | None], types: Mapping[str, str], zone: str, path: str
) -> dict[str, str | None]:
    """Partition values as the metastore or a path has them, in the form in which Delta stores them.

    :param types: Delta type of every partition column, in order.
    :param zone: the time zone of ``timestamp`` values that name none.
    :param path: the file, for messages.
    :raises PartitionError: the values are not those of the partition columns, or not of their types.
    """
    given = {key.lower(): value for key, value in values.items()}
    if given.keys() != {column.lower() for column in types}:
        raise PartitionError(
            f"Expecting {len(types)} partition column(s): [{', '.join(types)}], but found {len(given)} partition "
            f"column(s): [{', '.join(values)}] in the values given for the file: {path}"
        )
    stored = {}
    for column, delta_type in types.items():
        raw = given[column.lower()]
        try:
            stored[column] = None if raw in (None, "", HIVE_NULL) else _serialiser(delta_type, zone)(raw)
        except (ValueError, InvalidOperation, OverflowError):
            raise PartitionError(
                f"The partition value {raw!r} of the column {column} is not of its type {delta_type}, in the file "
                f"{path}. Give the column the type its values have, or mend the partition in the metastore"
            ) from None
    return stored


def check_zone(zone: str) -> None:
    """Refuse a name that is not one of a time zone."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise PartitionError(f"partition_timezone is {zone!r}, expected a zone such as UTC or Europe/Berlin") from None


def is_partition_type(delta_type: object) -> bool:
    """Whether a column of this type can partition a table, as those of all primitive types can."""
    return isinstance(delta_type, str) and (delta_type in _SERIALISERS or bool(_DECIMAL.fullmatch(delta_type)))


def _serialiser(delta_type: str, zone: str) -> Callable[[str], str]:
    if found := _DECIMAL.fullmatch(delta_type):
        return lambda raw: _decimal(raw, int(found[1]), int(found[2]))
    if delta_type == "timestamp":
        return lambda raw: _timestamp(raw, zone)
    return _SERIALISERS[delta_type]


def _matched(pattern: re.Pattern[str], raw: str) -> re.Match[str]:
    found = pattern.fullmatch(raw.strip(_BLANKS))
    if found is None:
        raise ValueError(raw)
    return found


def _integer(raw: str, delta_type: str) -> str:
    value = int(_matched(_INTEGER, raw)[0])
    if not -(1 << (_INTEGER_BITS[delta_type] - 1)) <= value < 1 << (_INTEGER_BITS[delta_type] - 1):
        raise OverflowError(raw)
    return str(value)


def _boolean(raw: str) -> str:
    text = raw.strip(_BLANKS).lower()
    if text not in _TRUE | _FALSE:
        raise ValueError(raw)
    return "true" if text in _TRUE else "false"


def _decimal(raw: str, precision: int, scale: int) -> str:
    value = Decimal(_matched(_NUMBER, raw)[0])
    if value.adjusted() >= 38:  # a zero too, as in 0E99: Spark reads none
        raise ValueError(raw)
    stored = _EXACT.plus(value.quantize(Decimal(1).scaleb(-scale), context=_EXACT))  # and so -0 is 0
    # A value with more digits than the type keeps is an error: rounded, it would be another value.
    if stored != value or len(stored.as_tuple().digits) > precision:
        raise ValueError(raw)
    return f"{stored:f}"


def _float(raw: str) -> str:
    special = _SPECIAL_FLOAT.fullmatch(raw.strip(_BLANKS))
    value = float((special or _matched(_NUMBER, raw))[0])
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _date(raw: str) -> str:
    return dt.date(*map(int, _matched(_DATE, raw).groups())).isoformat()


def _moment(raw: str) -> tuple[dt.datetime, str | None]:
    day, hour, minute, second, fraction, zone = _matched(_TIMESTAMP, raw).groups()
    year, month, day_of_month = map(int, day.split("-"))
    micros = int((fraction or "").ljust(6, "0")[:6])
    return dt.datetime(year, month, day_of_month, int(hour or 0), int(minute or 0), int(second or 0), micros), zone


def _timestamp(raw: str, zone: str) -> str:
    moment, own_zone = _moment(raw)
    if own_zone is None:
        aware = moment.replace(tzinfo=ZoneInfo(zone))
    elif own_zone in {"Z", "UTC", "GMT"}:
        aware = moment.replace(tzinfo=dt.UTC)
    else:
        hours, minutes = int(own_zone[1:3]), int(own_zone[-2:])
        if minutes > 59 or hours * 60 + minutes > 18 * 60:
            raise ValueError(raw)
        offset = dt.timedelta(hours=hours, minutes=minutes)
        aware = moment.replace(tzinfo=dt.timezone(-offset if own_zone[0] == "-" else offset))
    return f"{aware.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _timestamp_ntz(raw: str) -> str:
    moment, zone = _moment(raw)
    if zone is not None:
        raise ValueError(raw)
    return moment.isoformat(sep=" ", timespec="microseconds")


def _binary(raw: str) -> str:
    # A replacement character stands for bytes that were not UTF-8 and are lost (rule 22).
    if "\N{REPLACEMENT CHARACTER}" in raw:
        raise ValueError(raw)
    return _string(raw)


def _string(raw: str) -> str:
    raw.encode()
    return raw


_SERIALISERS: dict[str, Callable[[str], str]] = {
    "string": _string,
    "binary": _binary,
    "boolean": _boolean,
    "byte": lambda raw: _integer(raw, "byte"),
    "short": lambda raw: _integer(raw, "short"),
    "integer": lambda raw: _integer(raw, "integer"),
    "long": lambda raw: _integer(raw, "long"),
    "float": _float,
    "double": _float,
    "date": _date,
    "timestamp": lambda raw: _timestamp(raw, "UTC"),
    "timestamp_ntz": _timestamp_ntz,
}
