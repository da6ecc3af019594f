"""Where a table's files lie, and which of the files found there are its own (rules 40 to 43)."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from airflow_hive_to_delta.core.catalogs.nested_tables import check_nested_tables
from airflow_hive_to_delta.core.catalogs.partitions import table_partitions
from airflow_hive_to_delta.core.errors import PartitionError
from airflow_hive_to_delta.core.models import FILES_SCHEMA, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, Location, check_allowed, is_hidden, parse_location

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Names that no Hadoop file system can address.
UNREADABLE_NAMES = frozenset({"", ".", ".."})
#: FILES_SCHEMA, as pyarrow says it.
ARROW_FILES = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("partition_values", pa.map_(pa.string(), pa.string())),
    ]
)


class Place(NamedTuple):
    """A folder to list: a partition's location, or the table's root."""

    location: Location
    #: None: they are in the paths.
    values: dict[str, str | None] | None
    #: For messages: the partition, or the table.
    what: str


def places_of(
    spark: SparkSession | None,
    table: TableInfo,
    options: ConversionOptions,
    glue_database: str | None,
    region: str | None,
    max_workers: int = 8,
) -> list[Place]:
    root = parse_location(table.location, f"The location of {table.qualified_name}")
    check_allowed(root, options.allowed_roots)
    partitions = table_partitions(
        spark, table, options, glue_database=glue_database, region=region, max_workers=max_workers
    )
    check_nested_tables(table, None if partitions is None else [p.location for p in partitions], options)
    if partitions is None:
        return [Place(root, None, f"the table {table.qualified_name}")]
    return [Place(p.location, p.values, f"the partition {p.name} of {table.qualified_name}") for p in partitions]


def check_missing(table: TableInfo, missing: Sequence[Place], options: ConversionOptions) -> None:
    partitions = [place for place in missing if place.values is not None]
    if partitions and not options.allow_missing_partitions:
        shown = "; ".join(f"{place.what} at {place.location}" for place in partitions[:5])
        raise PartitionError(
            f"{len(partitions)} partition(s) of {table.qualified_name} have nothing at their location: {shown}. Mend "
            "or drop them in the metastore, or pass ConversionOptions(allow_missing_partitions=True) if they are empty"
        )


def is_data_file(relative_path: str, size: int) -> bool:
    """Whether a file is one of the table's, by its path from the place it was listed in (rules 40 and 41).

    True for a path that no Hadoop file system can address: it is to be refused, not passed over.
    """
    return size > 0 and not is_hidden("/".join(n for n in relative_path.split("/") if n not in UNREADABLE_NAMES))


def files_batch(files: list[tuple[str, int, int]], values: dict[str, str | None] | None) -> pa.RecordBatch:
    columns: list[Sequence[Any]] = [*zip(*files, strict=True), [map_pairs(values)] * len(files)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW_FILES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_FILES)


def map_pairs(values: dict[str, str | None] | None) -> list[tuple[str, str | None]] | None:
    """A map in the form pyarrow takes it."""
    return None if values is None else list(values.items())


def with_places(files: DataFrame, places: Sequence[Place]) -> DataFrame:
    """Each file with its partition's values, the number of its place, and whether it is data. Other files are left out.

    The innermost place that holds a file is its own; places do not overlap (rule 43).
    """
    numbers = {place.location.place: number for number, place in enumerate(places)}
    values = [map_pairs(place.values) for place in places]

    def place_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept, placed, is_data = [], [], []
            for row, (path, size) in enumerate(zip(batch["path"].to_pylist(), batch["size"].to_pylist(), strict=True)):
                scheme, _, rest = path.partition("://")
                authority, _, name = rest.partition("/")
                store = ("s3" if scheme in S3_SCHEMES else scheme, authority)
                name = f"/{name}"
                cut = len(name)
                while (cut := name.rfind("/", 0, cut)) >= 0:
                    number = numbers.get((*store, name[:cut]))
                    # `hdfs:///x` names no host: it is on the session's own, which Spark fills in.
                    number = numbers.get((store[0], "", name[:cut])) if number is None else number
                    if number is not None:
                        kept.append(row)
                        placed.append(number)
                        is_data.append(is_data_file(name[cut + 1 :], size))
                        break
            taken = batch.take(pa.array(kept, pa.int64()))
            yield pa.RecordBatch.from_arrays(
                [
                    *(taken[field.name].cast(field.type) for field in list(ARROW_FILES)[:3]),
                    pa.array([values[number] for number in placed], ARROW_FILES.field("partition_values").type),
                    pa.array(placed, pa.int32()),
                    pa.array(is_data, pa.bool_()),
                ],
                names=[*ARROW_FILES.names, "place", "is_data"],
            )

    return files.mapInArrow(place_files, f"{FILES_SCHEMA}, place int, is_data boolean")


def data_files(placed: DataFrame) -> DataFrame:
    return placed.where("is_data").select(*ARROW_FILES.names)


def may_be_under(places: Sequence[Place]) -> Column:
    """A cheap first cut of an inventory: one prefix for each bucket, so that few files reach :func:`with_places`."""
    from pyspark.sql import functions as F  # noqa: N812

    paths: dict[tuple[str, str], list[str]] = {}
    for place in places:
        scheme, authority, path = place.location.place
        paths.setdefault((scheme, authority), []).append(path or "/")
    spelt = F.regexp_replace("path", "^s3[an]://", "s3://")
    prefixes = (f"{scheme}://{authority}{os.path.commonpath(found)}" for (scheme, authority), found in paths.items())
    return reduce(lambda a, b: a | b, map(spelt.startswith, prefixes))
