"""Footers with mistakes in them, thousands of them, through the reader.

``python -m tests.support.footer_fuzz SEED MUTANTS`` runs it.

It runs as a process of its own, because what it looks for ends a process. Each mutant is a real footer with a few
changes: fields that are gone or have other values, bounds of another length, bits and bytes that flip, a length that
is wrong. The reader may refuse it by name. What it gives instead must be true:

* rows are those of the row groups;
* bounds hold every value of the column, and null counts are its nulls, unless the mutation changed just these;
* bounds are never turned round;
* the fast way through a column chunk finds what the slow way finds.
"""

from __future__ import annotations

import io
import json
import random
import re
import resource
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.parquet import footer_thrift
from airflow_hive_to_delta.core.parquet.footers import count_rows, leaf_statistics, parse_footer
from tests.support.footer_patches import (
    BINARY,
    CREATED_BY,
    GROUP_ROWS,
    INTEGERS,
    LIST,
    MAX,
    MIN,
    NULL_COUNT,
    ROW_GROUPS,
    STATISTICS,
    STRUCT,
    Fields,
    decode,
    encode,
    footer_of,
    with_footer,
)

NUMBERS = [0, 1, -1, 2, 3, 7, 8, 127, 128, 2**15, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63)]
#: How much more memory a footer of a few thousand bytes may take, in KiB.
MOST_MEMORY = 300_000


def seeds() -> list[bytes]:
    """Small files with every kind of statistics, and one of each kind of schema."""
    flat = pa.table(
        {
            "n": pa.array([-3, 5, None, 7], pa.int64()),
            "i": pa.array([1, None, -1, 0], pa.int32()),
            "b": pa.array([1, None, -1, 0], pa.int8()),
            "s": ["a", None, "zebra", "é"],
            "d": pa.array([Decimal("-1.50"), None, Decimal("2.00"), Decimal("99.99")], pa.decimal128(20, 2)),
            "x": [1.5, None, -2.5, 0.0],
            "t": pa.array([0, None, 10**15, 1], pa.timestamp("us", tz="UTC")),
            "day": pa.array([0, None, 20_000, 1], pa.date32()),
            "u": pa.array([1, 2, 3, 4], pa.uint32()),
            "nulls": pa.array([None] * 4, pa.int64()),
        }
    )
    nested = pa.table(
        {
            "list": [["a"], None, []],
            "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "struct": [{"x": 1, "y": {"z": "s"}}, None, {"x": None, "y": None}],
            "n": [1, 2, 3],
        }
    )
    return [
        _written(flat, "parquet-mr version 1.13.1 (build x)", row_group_size=3),
        _written(flat, "parquet-cpp-arrow version 20.0.0", row_group_size=3, store_decimal_as_integer=True),
        _written(nested, "parquet-mr version 1.13.1 (build x)", row_group_size=2),
        _written(nested, "parquet-cpp version 1.5.1", write_statistics=["n"], use_dictionary=False),
    ]


def _written(table: pa.Table, writer: str, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    footer = decode(footer_of(file.getvalue()))
    footer[CREATED_BY] = (BINARY, writer.encode())
    return with_footer(file.getvalue(), encode(footer))


# --- Mutations ------------------------------------------------------------------------------------------------------


def mutated(data: bytes, rng: random.Random) -> bytes:
    return rng.choice([_with_other_fields, _with_other_fields, _with_other_bytes, _with_another_length])(data, rng)


def _with_other_fields(data: bytes, rng: random.Random) -> bytes:
    footer = decode(footer_of(data))
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        structs = list(_structs(footer))
        if rng.random() < 0.5:
            structs = [x for x in structs if MIN in x or MAX in x or NULL_COUNT in x or GROUP_ROWS in x] or structs
        _change_field(rng.choice(structs), rng)
    return with_footer(data, encode(footer))


def _structs(value: Any) -> Iterator[Fields]:
    if isinstance(value, dict):
        yield value
        for _, inner in value.values():
            yield from _structs(inner)
    elif isinstance(value, tuple) and isinstance(value[1], list):
        for inner in value[1]:
            yield from _structs(inner)


def _change_field(fields: Fields, rng: random.Random) -> None:
    if not fields:
        fields[rng.randrange(1, 20)] = (5, rng.choice(NUMBERS))
        return
    number = rng.choice(list(fields))
    kind, value = fields[number]
    match rng.randrange(6):
        case 0:
            del fields[number]
        case 1:
            fields[rng.randrange(1, 20)] = fields.pop(number)
        case 2:
            fields[rng.randrange(1, 20)] = fields[number]
        case 3:
            other = rng.choice(list(fields))
            fields[number], fields[other] = fields[other], fields[number]
        case _ if kind in INTEGERS:
            fields[number] = (kind, rng.choice(NUMBERS))
        case _ if kind == BINARY:
            fields[number] = (
                kind,
                rng.choice([b"", b"\xff", b"abc", value[:-1], value + b"\0", b"x" * 300]),
            )
        case _ if kind == LIST:
            inner, items = value
            chosen = rng.choice([items[:-1], items + items[:1], [], items[::-1], items * 2])
            fields[number] = (kind, (inner, chosen))
        case _:
            fields[number] = (rng.choice([1, 2, STRUCT]), {})


def _with_other_bytes(data: bytes, rng: random.Random) -> bytes:
    footer = bytearray(footer_of(data))
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        at = rng.randrange(len(footer))
        match rng.randrange(5):
            case 0:
                footer[at] ^= 1 << rng.randrange(8)
            case 1:
                footer[at] = rng.choice([0, 0x7F, 0x80, 0xFF, 0xF9, 0xFC, 0x19, 0x1C])
            case 2:
                footer[at : at + 1] = rng.randbytes(rng.randrange(1, 12))
            case 3:
                del footer[at : at + rng.randrange(1, 12)]
                footer = footer or bytearray(b"\0")
            case _:
                footer[at:at] = b"\xff\xff\xff\xff\x0f"
    return with_footer(data, bytes(footer))


def _with_another_length(data: bytes, rng: random.Random) -> bytes:
    footer = footer_of(data)
    length = rng.choice([0, 1, len(footer) - 1, len(footer) + 1, len(data) - 8, len(data), 2**31 - 1, 2**32 - 1])
    cut = with_footer(data, footer[: rng.randrange(len(footer))])
    return rng.choice([cut, data[:-8] + length.to_bytes(4, "little") + b"PAR1"])


# --- What must be true ----------------------------------------------------------------------------------------------


class Seed:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.layout, self.statistics, self.rows = read(data)
        self.footer = decode(footer_of(data))
        self.raw = raw_statistics(self.footer)
        self.writer = self.footer[CREATED_BY]


def read(data: bytes) -> tuple[Any, Any, int]:
    _, layout, footer = parse_footer(data, "f")
    return layout, leaf_statistics(footer, layout), count_rows(footer, "f")


def raw_statistics(footer: Fields) -> list[list[Any]]:
    """Of each leaf what its chunks say: rows, bounds and counts, by the decoder of the tests."""
    groups = footer[ROW_GROUPS][1][1]
    leaves = zip(*[group[1][1][1] for group in groups], strict=True)
    return [
        [
            (group[GROUP_ROWS], [_statistics(chunk).get(x) for x in (MIN, MAX, NULL_COUNT)])
            for group, chunk in zip(groups, leaf, strict=True)
        ]
        for leaf in leaves
    ]


def _statistics(chunk: Fields) -> Fields:
    kind, found = chunk[3][1].get(STATISTICS, (STRUCT, {}))
    return found if kind == STRUCT else {}


def check(seed: Seed, mutant: bytes) -> str:
    try:
        layout, statistics, rows = read(mutant)
    except PermanentError as error:
        assert "f" in str(error).split()  # noqa: PT017
        return "refused"
    footer = decode(footer_of(mutant))
    assert rows == sum(group[GROUP_ROWS][1] for group in footer[ROW_GROUPS][1][1])
    same_file = layout == seed.layout and footer.get(CREATED_BY) == seed.writer
    raw = raw_statistics(footer) if footer[ROW_GROUPS][1][1] else []
    for position, found in enumerate(statistics):
        if found is None:
            continue
        low, high, nulls = found
        if low is not None and high is not None:
            first, last = json.loads(low, parse_float=Decimal), json.loads(high, parse_float=Decimal)
            assert first <= last or (isinstance(first, str) and first.encode() <= last.encode()), (low, high)
        assert nulls is None or 0 <= nulls <= rows
        if same_file and raw and raw[position] == seed.raw[position]:
            expected = seed.statistics[position]
            assert (low, high) in ((None, None), expected[:2]), (position, found, expected)
            assert nulls in (None, expected[2]), (position, found, expected)
    return "read"


def check_both_ways(seed: Seed, mutant: bytes) -> str:
    outcome = check(seed, mutant)
    usual = footer_thrift._USUAL_START
    try:
        fast = _footer_or_error(mutant)
        footer_thrift._USUAL_START = re.compile(rb"(?!)")
        assert _footer_or_error(mutant) == fast
    finally:
        footer_thrift._USUAL_START = usual
    return outcome


def _footer_or_error(data: bytes) -> Any:
    try:
        return parse_footer(data, "f")[2]
    except PermanentError as error:
        return type(error)


def main(seed: int, mutants: int) -> None:
    rng = random.Random(seed)
    corpus = [Seed(data) for data in seeds()]
    outcomes = {"read": 0, "refused": 0}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(mutants):
        chosen = rng.choice(corpus)
        mutant = mutated(chosen.data, rng)
        try:
            outcomes[check_both_ways(chosen, mutant)] += 1
        except BaseException:
            print(f"mutant {number} of seed {seed}: {footer_of(mutant).hex()}", file=sys.stderr)
            raise
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MOST_MEMORY, f"{grown} KiB more memory"
    print(json.dumps({**outcomes, "grown": grown}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
