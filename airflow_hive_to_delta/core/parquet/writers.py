"""The statistics of a footer that can be trusted, depending on the program that wrote the file.

A file names its writer in ``created_by``. Statistics that a program is known to write wrongly are not used, because a
wrong bound or null count makes readers skip files with matching rows. Two kinds most programs have written wrongly at
some time, so they are only used from programs that are known to be right: bounds of floats, from which most writers
leave NaN out, though Spark sorts it above every number, and bounds of decimals in byte arrays, which have been compared
as text or as unsigned numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

Version = tuple[int, ...]


class Statistic(Enum):
    """A kind of statistics. A program can write some kinds wrongly and others rightly."""

    #: Bounds of integers, dates and timestamps.
    INTEGER_BOUNDS = auto()
    #: Bounds of decimals stored as INT32 or INT64.
    INTEGER_DECIMAL_BOUNDS = auto()
    #: Bounds of decimals stored as FIXED_LEN_BYTE_ARRAY.
    FIXED_DECIMAL_BOUNDS = auto()
    #: Bounds of decimals stored as BYTE_ARRAY.
    VARIABLE_DECIMAL_BOUNDS = auto()
    FLOAT_BOUNDS = auto()
    STRING_BOUNDS = auto()
    #: Null counts of columns stored as BYTE_ARRAY, and of all others.
    BYTE_ARRAY_NULLS = auto()
    OTHER_NULLS = auto()


_S = Statistic
_BYTE_DECIMALS = frozenset({_S.FIXED_DECIMAL_BOUNDS, _S.VARIABLE_DECIMAL_BOUNDS})
_DECIMALS = _BYTE_DECIMALS | {_S.INTEGER_DECIMAL_BOUNDS}
_NULLS = frozenset({_S.BYTE_ARRAY_NULLS, _S.OTHER_NULLS})
#: Kinds that are only used from programs that are known to write them rightly.
_NEEDS_PROOF = _BYTE_DECIMALS | {_S.FLOAT_BOUNDS}


@dataclass(frozen=True)
class KnownWriter:
    """A program that writes some statistics rightly, or wrongly, in a range of versions."""

    #: The name in ``created_by``, which must be equal: `parquet-mr compatible Photon` is not `parquet-mr`.
    writer: str
    right: bool
    statistics: frozenset[Statistic]
    reference: str
    since: Version = ()
    #: The first version for which it is no longer true; None if it is true for all later ones.
    before: Version | None = None


# fmt: off
KNOWN_WRITERS: tuple[KnownWriter, ...] = (
    # Right where most programs are wrong. Java sorts NaN above all numbers, as Spark does, so that it is in the bounds.
    KnownWriter("parquet-mr", True, frozenset({_S.FLOAT_BOUNDS}), "PARQUET-1246: NaN is kept in the bounds"),
    KnownWriter("parquet-mr", True, _BYTE_DECIMALS, "PARQUET-1322: decimals are compared as numbers", since=(1, 10)),
    KnownWriter("parquet-cpp-arrow", True, _BYTE_DECIMALS, "PARQUET-1655 (apache/arrow#42906)", since=(4,)),
    KnownWriter("parquet-rs", True, frozenset({_S.FIXED_DECIMAL_BOUNDS}),
                "apache/arrow-rs#1532, mended by #1621 in spring 2022", since=(15,)),
    KnownWriter("DuckDB", True, frozenset({_S.FIXED_DECIMAL_BOUNDS}),
                "duckdb/duckdb#23504, #23693: footers are right, only RETURN_STATS was not", since=(1, 5)),
    # Wrong, in all versions or until they were corrected.
    KnownWriter("parquet-mr", False, frozenset({_S.STRING_BOUNDS}),
                "PARQUET-251: bounds of a reused buffer", before=(1, 8)),
    KnownWriter("parquet-mr", False, frozenset({_S.BYTE_ARRAY_NULLS}),
                "StarRocks/starrocks#78329: too few nulls in Hive tables of old writers", before=(1, 10)),
    # Arrow up to 3.0 called itself parquet-cpp.
    KnownWriter("parquet-cpp", False, _BYTE_DECIMALS, "PARQUET-1655: decimals compared as signed bytes"),
    KnownWriter("parquet-cpp", False, frozenset({_S.STRING_BOUNDS, _S.BYTE_ARRAY_NULLS}),
                "apache/arrow#15042 and ARROW-12513 (apache/arrow#10729), as below"),
    KnownWriter("parquet-cpp-arrow", False, frozenset({_S.BYTE_ARRAY_NULLS}),
                "ARROW-12513 (apache/arrow#10729): 0 nulls for dictionaries", before=(6,)),
    KnownWriter("parquet-cpp-arrow", False, frozenset({_S.STRING_BOUNDS, _S.BYTE_ARRAY_NULLS}),
                "apache/arrow#15042: of the first chunk of a dictionary only", before=(11,)),
    KnownWriter("parquet-rs", False, _NULLS, "apache/arrow-rs#306: 0 nulls for columns of nulls only", before=(5,)),
    KnownWriter("parquet-rs", False, frozenset({_S.STRING_BOUNDS}),
                "apache/arrow-rs#641: a maximum below values", before=(6,)),
    KnownWriter("parquet-rs", False, frozenset({_S.VARIABLE_DECIMAL_BOUNDS}),
                "apache/arrow-rs#10860, #11073: lengths differ, or unsigned"),
    # These give no version, or gave none when they were wrong, so that a corrected one cannot be recognised.
    KnownWriter("Polars", False, frozenset(Statistic),
                "pola-rs/polars#29321 (nulls times pages), #29347 (decimals), #7842 (integers), #18867 (categories)"),
    KnownWriter("Arrow2 - Native Rust implementation of Arrow", False, frozenset(Statistic),
                "jorgecarleitao/arrow2#1414 (nulls of dictionaries); it wrote the files of pola-rs/polars#7842"),
    KnownWriter("parquet-go", False, _NULLS, "fraugster/parquet-go#69: null counts are off"),
    KnownWriter("hyparquet", False, _DECIMALS, "hyparam/hyparquet-writer#38: scaled once too often"),
    KnownWriter("github.com/parquet-go/parquet-go", False, _BYTE_DECIMALS, "parquet-go/parquet-go#592: unsigned"),
    KnownWriter("github.com/segmentio/parquet-go", False, _BYTE_DECIMALS, "parquet-go/parquet-go#592: unsigned"),
    KnownWriter("ClickHouse", False, _BYTE_DECIMALS | {_S.FLOAT_BOUNDS}, "ClickHouse/ClickHouse#83754, #53067"),
    KnownWriter("impala", False, frozenset({_S.FLOAT_BOUNDS}), "IMPALA-6527: bounds depend on where NaN comes"),
)
# fmt: on

#: Parts of a version that are compared.
_LONGEST_VERSION = 10
_CREATED_BY = re.compile(r"(?P<writer>.+?) version v?(?P<version>\d+(?:\.\d+)*)(?P<snapshot>-SNAPSHOT)?")


@lru_cache(maxsize=256)
def trusted_statistics(created_by: str) -> frozenset[Statistic]:
    """The kinds of statistics that can be trusted in a file with this ``created_by``, which may be empty."""
    writer, version = _writer(created_by)
    trusted = set(Statistic) - _NEEDS_PROOF
    known = [x for x in KNOWN_WRITERS if x.writer == writer and _applies(x, version)]
    for found in known:
        if found.right:
            trusted |= found.statistics
    for found in known:
        if not found.right:
            trusted -= found.statistics
    return frozenset(trusted)


def _writer(created_by: str) -> tuple[str, Version | None]:
    found = _CREATED_BY.match(created_by)
    if found is None:
        # Some programs write "version" without a number, or only their name.
        return re.split(r" version\b", created_by)[0].strip(), None
    # Polars names the language that it was called from in parentheses.
    writer = found["writer"].partition(" (")[0]
    version = _comparable(tuple(int(part) for part in found["version"].split(".")))
    # A snapshot was made before the release with its number, and may lack the release's corrections.
    return writer, (*version[:-1], -1) if found["snapshot"] else version


def _comparable(version: Version) -> Version:
    """A version with zeros at its end, so that 4 and 4.0.0 are equal."""
    return (*version, *[0] * (_LONGEST_VERSION - len(version)))


def _applies(known: KnownWriter, version: Version | None) -> bool:
    if version is None:
        # An unknown version is not known to be right, and can be any of those that are wrong.
        return not known.right
    return version >= _comparable(known.since) and (known.before is None or version < _comparable(known.before))
