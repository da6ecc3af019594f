"""The tables that every reader is asked to read, each converted by this package."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from airflow_hive_to_delta import ConversionOptions, convert_table
from tests.support.reader_answers import Kind, Sample

_ARROW = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,10)": pa.decimal128(38, 10),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
#: Types as Hive calls them, of partition columns.
_HIVE = {"integer": "int", "long": "bigint", "byte": "tinyint"}


def arrow_type(kind: Kind) -> pa.DataType:
    if isinstance(kind, str):
        return _ARROW[kind]
    what: str = kind[0]
    parts: Sequence[Any] = kind[1:]
    if what == "array":
        return pa.list_(arrow_type(parts[0]))
    if what == "map":
        return pa.map_(arrow_type(parts[0]), arrow_type(parts[1]))
    return pa.struct([(name, arrow_type(part)) for name, part in parts[0].items()])


@dataclass
class Builder:
    """Writes files to local disk and to S3, and converts them."""

    spark: SparkSession
    s3: Any
    folder: Path
    bucket: str
    other_bucket: str

    def write(self, path: str, kinds: Mapping[str, Kind], rows: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
        schema = pa.schema([(name, arrow_type(kind)) for name, kind in kinds.items()])
        file = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), file)
        data = file.getvalue()
        if path.startswith("s3"):
            bucket, _, key = path.partition("://")[2].partition("/")
            self.s3.put_object(Bucket=bucket, Key=key, Body=data)
        else:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(data)
        return path, len(data)

    def convert(
        self,
        name: str,
        location: str,
        kinds: Mapping[str, Kind],
        files: Mapping[str, Sequence[Mapping[str, Any]]],
        *,
        keys: Sequence[str] = (),
        stored: Mapping[str, Mapping[str, Kind]] | None = None,
        **options: Any,
    ) -> Sample:
        """A table of these files, by path; relative ones lie under the location.

        :param stored: kinds of a file's columns that are not the table's.
        """
        written = []
        for path, rows in files.items():
            columns = {
                column: (stored or {}).get(path, {}).get(column, kind)
                for column, kind in kinds.items()
                if column not in keys
            }
            full = path if "://" in path or path.startswith("/") else f"{location}/{path}"
            written.append(self.write(full, columns, rows))
        convert_table(
            self.spark,
            self.spark.createDataFrame(written, "file_path string, size long"),
            location,
            None,
            None,
            None,
            {key: _HIVE.get(str(kinds[key]), str(kinds[key])) for key in keys},
            options=ConversionOptions(**options),
        )
        few = _FEW_FILTERS if len(files) == len(_SOME_ODD) + 1 and kinds is _ODD_KINDS else ()
        return Sample(name, location, dict(kinds), [dict(row) for rows in files.values() for row in rows], few)

    def local(self, name: str, *arguments: Any, **options: Any) -> Sample:
        """A table in a folder of its own."""
        location = str(self.folder / re.sub("[^a-z_]+", "-", name))
        return self.convert(name, location, *arguments, **options)


def _plain(build: Builder) -> list[Sample]:
    kinds: dict[str, Kind] = {
        "id": "long",
        "tiny": "byte",
        "small": "short",
        "number": "integer",
        "ratio": "float",
        "precise": "double",
        "price": "decimal(10,2)",
        "huge": "decimal(38,10)",
        "yes": "boolean",
        "word": "string",
        "raw": "binary",
        "day": "date",
        "at": "timestamp",
        "list": ("array", "string"),
        "point": ("struct", {"x": "long", "y": "string"}),
        "pairs": ("map", "string", "long"),
    }

    def row(number: int) -> dict[str, Any]:
        return {
            "id": number,
            "tiny": -number,
            "small": number * 100,
            "number": number * 100_000,
            "ratio": number + 0.5,
            "precise": number / 8,
            "price": Decimal(number) + Decimal("0.10"),
            "huge": Decimal(f"{number}234567890123456789012345678.0000000001"),
            "yes": number % 2 == 0,
            "word": f"it's {number} ü",
            "raw": bytes([0, 255, number]),
            "day": date(1969 + number, 2, 28),
            "at": datetime(1969 + number, 12, 31, 23, 59, 59, 999000, UTC),
            "list": ["a", None, f"{number}"],
            "point": {"x": number, "y": None},
            "pairs": [("a", number), ("b", None)],
        }

    nothing = dict.fromkeys(kinds)
    files = {"000000_0": [row(1), row(2)], "part-1.parquet": [row(3), {**nothing, "id": 4}]}
    sample = replace(build.local("plain", kinds, files), unbounded=_without_bounds(kinds))
    without = replace(sample, name="filters on columns without bounds", only_unbounded=True)
    # Each column in few ways: Spark plans every filter.
    few = [condition for condition in sample.filters if condition[1] != "is null" or condition[0] == "word"]
    return [replace(sample, few_filters=few), without]


def _without_bounds(kinds: Mapping[str, Kind]) -> list[str]:
    """Columns of pyarrow's files that get no bounds (rules 32 and 36)."""
    return [name for name, kind in kinds.items() if kind in ("float", "double", "boolean")]


_ODD = {
    "word=a b": "a b",
    "word=a%2Fb%3Dc": "a/b=c",
    "word=50%25": "50%",
    "word=2024-01-01 00%3A00": "2024-01-01 00:00",
    "word=01": "01",
    "word=null": "null",
    "word=it%27s ü+": "it's ü+",
    "word=__HIVE_DEFAULT_PARTITION__": None,
}


#: Those of tables that are about something else, and filters that are enough for them.
_SOME_ODD = dict(list(_ODD.items())[:3])
_FEW_FILTERS = (("word", "=", "50%"), ("n", "is null", None), ("id", ">", 1))


def _odd_files(values: Mapping[str, str | None], far: str = "") -> dict[str, list[dict[str, Any]]]:
    """A file for every odd value, every second one under a folder far away, and one more with a null number."""
    files = {
        f"{far if number % 2 else ''}{folder}/n={number}/000000_0": [{"id": number, "word": word, "n": number}]
        for number, (folder, word) in enumerate(values.items(), start=1)
    }
    return {**files, "word=z/n=__HIVE_DEFAULT_PARTITION__/f": [{"id": 100, "word": "z", "n": None}]}


_ODD_KINDS: dict[str, Kind] = {"id": "long", "word": "string", "n": "integer"}


def _partitioned(build: Builder) -> Sample:
    return build.local("partitioned: odd values and nulls", _ODD_KINDS, _odd_files(_ODD), keys=["word", "n"])


def _typed_partitions(build: Builder) -> Sample:
    kinds: dict[str, Kind] = {
        "id": "long",
        "day": "date",
        "at": "timestamp",
        "price": "decimal(10,2)",
        "yes": "boolean",
        "big": "long",
    }
    day, at = date(2024, 2, 29), datetime(2024, 2, 29, 12, 30, 0, 123000, UTC)
    files = {
        "day=2024-02-29/at=2024-02-29 12%3A30%3A00.123/price=1.5/yes=true/big=9007199254740993/f": [
            {"id": 1, "day": day, "at": at, "price": Decimal("1.50"), "yes": True, "big": 9007199254740993}
        ],
        "day=1969-12-31/at=1969-12-31 23%3A59%3A59/price=0.01/yes=false/big=-1/f": [
            {
                "id": 2,
                "day": date(1969, 12, 31),
                "at": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
                "price": Decimal("0.01"),
                "yes": False,
                "big": -1,
            }
        ],
        "/".join(f"{key}=__HIVE_DEFAULT_PARTITION__" for key in list(kinds)[1:]) + "/f": [
            {**dict.fromkeys(kinds), "id": 3}
        ],
    }
    return build.local("partitioned: dates, times, decimals, booleans", kinds, files, keys=list(kinds)[1:])


def _microseconds(build: Builder) -> Sample:
    times = [datetime(2024, 1, 1, 0, 0, 0, 1, UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)]
    files = {f"f{number}": [{"id": number, "at": at}] for number, at in enumerate(times)}
    return build.local("microseconds in timestamps", {"id": "long", "at": "timestamp"}, files)


def _column_mapping(build: Builder) -> Sample:
    kinds: dict[str, Kind] = {
        "id": "long", "two words": "string", "a,b": "long", "in it": ("struct", {"x y": "long"}), "the day": "string",
    }  # fmt: skip
    files = {
        f"the day={day}/f": [
            {"id": number, "two words": f"w{number}", "a,b": number, "in it": {"x y": number}, "the day": day}
        ]
        for number, day in enumerate(["a", "b"])
    }
    return build.local("column mapping", kinds, files, keys=["the day"])


def _timestamp_ntz(build: Builder) -> Sample:
    times = [datetime(2024, 1, 1, 1, 2, 3, 4), datetime(1969, 12, 31, 23, 59, 59, 999_999), None]
    files = {f"f{number}": [{"id": number, "at": at}] for number, at in enumerate(times)}
    return build.local("timestamp_ntz", {"id": "long", "at": "timestamp_ntz"}, files)


def _widened(name: str, *, feature: bool) -> Callable[[Builder], Sample]:
    def make(build: Builder) -> Sample:
        kinds: dict[str, Kind] = {"id": "long", "number": "long", "ratio": "double", "price": "decimal(38,10)"}
        narrow = {"number": "integer", "ratio": "float", "price": "decimal(10,2)"}
        files = {
            "narrow": [{"id": 1, "number": 1, "ratio": 0.5, "price": Decimal("1.5000000000")}],
            "wide": [{"id": 2, "number": 2**40, "ratio": 0.1, "price": Decimal("2.5000000001")}],
        }
        sample = build.local(name, kinds, files, stored={"narrow": narrow}, type_widening=feature)
        return replace(sample, unbounded=_without_bounds(kinds))

    return make


def _negative_decimals(build: Builder) -> Sample:
    files = {
        f"price={price}/f": [{"id": number, "price": Decimal(price)}] for number, price in enumerate(["-2.25", "0.05"])
    }
    return build.local(
        "partitioned: a negative decimal", {"id": "long", "price": "decimal(10,2)"}, files, keys=["price"]
    )


def _checkpoint(build: Builder) -> Sample:
    """The entries before the checkpoint are gone, as after Delta's clean-up: there is no way but by the checkpoint."""
    name, keys = "checkpoint", ["word", "n"]
    sample = build.local(name, _ODD_KINDS, _odd_files(_SOME_ODD), keys=keys, checkpoint_over_files=1)
    log = Path(sample.location, "_delta_log")
    entry = log / f"{0:020d}.json"
    commit, *_ = entry.read_text().splitlines()
    (log / f"{1:020d}.json").write_text(commit + "\n")
    entry.unlink()
    return sample


def _outside(build: Builder) -> list[Sample]:
    """One table whose files lie partly outside, its log spelt in every way."""
    far = build.folder / "far away"
    written = build.local("outside", _ODD_KINDS, _odd_files(_SOME_ODD, f"{far}/"), keys=["word", "n"])
    samples: list[Sample] = []
    for spelling, prefix in (("file:///", "file://"), ("file:/", "file:"), ("/path", "")):
        root = build.folder / f"outside-{len(samples)}"
        shutil.copytree(written.location, root)
        entry = root / "_delta_log" / f"{0:020d}.json"
        found = entry.read_text()
        assert found.count(f'"{far.as_uri()}/') == 2
        entry.write_text(found.replace(f'"{far.as_uri()}/', f'"{prefix}{far.as_uri().removeprefix("file://")}/'))
        samples.append(replace(written, name=f"outside the root, as {spelling}", location=str(root)))
    return samples


def _plain_on_s3(build: Builder) -> Sample:
    files = {f"f{number}": [{"id": number, "word": f"w{number}"}] for number in (1, 2)}
    return build.convert("on S3: plain", f"s3://{build.bucket}/plain", {"id": "long", "word": "string"}, files)


def _on_s3(build: Builder) -> Sample:
    return build.convert(
        "on S3: odd values", f"s3://{build.bucket}/odd", _ODD_KINDS, _odd_files(_SOME_ODD), keys=["word", "n"]
    )


def _outside_on_s3(name: str, scheme: str, *, same_bucket: bool = False) -> Callable[[Builder], Sample]:
    def make(build: Builder) -> Sample:
        """A table that is opened by ``s3://``, whichever scheme its log has."""
        far = f"{scheme}://{build.bucket if same_bucket else build.other_bucket}/far/"
        root = f"{scheme}://{build.bucket}/{scheme}-{same_bucket}"
        sample = build.convert(name, root, _ODD_KINDS, _odd_files(_SOME_ODD, far), keys=["word", "n"])
        return replace(sample, location=root.replace("s3a:", "s3:"))

    return make


TABLES: list[Callable[[Builder], Sample | list[Sample]]] = [
    _plain,
    _partitioned,
    _typed_partitions,
    _negative_decimals,
    _microseconds,
    _column_mapping,
    _timestamp_ntz,
    _widened("type widening", feature=True),
    _widened("narrower files, without the feature", feature=False),
    _checkpoint,
    _outside,
    _plain_on_s3,
    _on_s3,
    _outside_on_s3("on S3: outside the root, in its bucket", "s3", same_bucket=True),
    _outside_on_s3("on S3: in another bucket, as s3://", "s3"),
    _outside_on_s3("on S3: in another bucket, as s3a://", "s3a"),
]


def build_samples(build: Builder) -> list[Sample]:
    """All tables, converted side by side, in order."""
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda make: make(build), TABLES))
    return [sample for some in made for sample in (some if isinstance(some, list) else [some])]
