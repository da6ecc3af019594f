"""The locations that a table's files are listed in, and which files there belong to it (rules 40 to 43)."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from airflow_hive_to_delta.core.catalogs.nested_tables import check_nested_tables
from airflow_hive_to_delta.core.catalogs.partitions import table_partitions
from airflow_hive_to_delta.core.errors import PartitionError
from airflow_hive_to_delta.core.files import FILES_ARROW_SCHEMA, map_pairs
from airflow_hive_to_delta.core.models import FILES_SCHEMA, TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.schema.arrow import arrow_schema
from airflow_hive_to_delta.core.storage.uri import (
    Location,
    LocationIndex,
    canonical_uri_column,
    check_allowed,
    is_hidden,
    parse_location,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Names that no Hadoop file system can address.
UNREADABLE_NAMES = frozenset({"", ".", ".."})
_ASSIGNED_SCHEMA = f"{FILES_SCHEMA}, location_index int, is_data boolean"
_ASSIGNED_ARROW_SCHEMA = arrow_schema(_ASSIGNED_SCHEMA)


class TableLocation(NamedTuple):
    """A folder whose files belong to a table: the location of one of its partitions, or its root."""

    location: Location
    #: The partition's values as the metastore has them. None: the paths of the files say them.
    values: dict[str, str | None] | None
    #: The partition or the table, as messages name it.
    description: str


def table_locations(
    spark: SparkSession | None,
    table: TableInfo,
    options: ConversionOptions,
    glue_database: str | None,
    region: str | None,
    max_workers: int = 8,
) -> list[TableLocation]:
    """The folders to list for a table: the locations of its partitions where a catalog tracks them, or its root.

    :param spark: needed for tables whose partitions the session's catalog knows.
    :param glue_database: the Glue database that has the table's partitions, where the table does not say so itself.
    :raises PartitionError: two partitions share files.
    :raises UnsupportedTableError: another table of the catalog lies in one of the folders.
    """
    root = parse_location(table.location, f"The location of {table.qualified_name}")
    check_allowed(root, options.allowed_roots)
    partitions = table_partitions(
        spark, table, options, glue_database=glue_database, region=region, max_workers=max_workers
    )
    check_nested_tables(table, None if partitions is None else [p.location for p in partitions], options)
    if partitions is None:
        return [TableLocation(root, None, f"the table {table.qualified_name}")]
    return [
        TableLocation(p.location, p.values, f"the partition {p.name} of {table.qualified_name}") for p in partitions
    ]


def check_missing(table: TableInfo, missing: Sequence[TableLocation], options: ConversionOptions) -> None:
    """Refuse a table that has partitions among the locations without a file, unless the options allow it.

    :raises PartitionError: it names the first few of them.
    """
    partitions = [partition for partition in missing if partition.values is not None]
    if partitions and not options.allow_missing_partitions:
        shown = "; ".join(f"{partition.description} at {partition.location}" for partition in partitions[:5])
        raise PartitionError(
            f"{len(partitions)} partition(s) of {table.qualified_name} have nothing at their location: {shown}. Mend "
            "or drop them in the metastore, or pass ConversionOptions(allow_missing_partitions=True) if they are empty"
        )


def is_data_file(relative_path: str, size: int) -> bool:
    """Whether a file is one of the table's, by its path from the location it was listed in (rules 40 and 41).

    True for a path that no Hadoop file system can address, so that the caller refuses the file instead of ignoring it.
    """
    return size > 0 and not is_hidden("/".join(n for n in relative_path.split("/") if n not in UNREADABLE_NAMES))


def assign_locations(files: DataFrame, locations: Sequence[TableLocation]) -> DataFrame:
    """The files that lie in one of a table's locations, with the values of their partition.

    ``location_index`` is the position of a file's location among ``locations``, and ``is_data`` says whether the file
    is one of the table's data files. A file in several locations gets the innermost of them; those of partitions do not
    overlap (rule 43).

    :param files: a DataFrame in FILES_SCHEMA.
    """
    index = LocationIndex([location.location for location in locations])
    values = [map_pairs(location.values) for location in locations]

    def assign(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows, assigned, is_data = [], [], []
            for row, (path, size) in enumerate(zip(batch["path"].to_pylist(), batch["size"].to_pylist(), strict=True)):
                if (found := index.find(path)) is not None:
                    rows.append(row)
                    assigned.append(found[0])
                    is_data.append(is_data_file(found[1], size))
            taken = batch.take(pa.array(rows, pa.int64()))
            arrays = [
                *(taken[name] for name in ("path", "size", "modification_time")),
                pa.array([values[number] for number in assigned], FILES_ARROW_SCHEMA.field("partition_values").type),
                pa.array(assigned),
                pa.array(is_data),
            ]
            columns = zip(arrays, _ASSIGNED_ARROW_SCHEMA.types, strict=True)
            yield pa.RecordBatch.from_arrays([a.cast(t) for a, t in columns], schema=_ASSIGNED_ARROW_SCHEMA)

    return files.mapInArrow(assign, _ASSIGNED_SCHEMA)


def data_files(assigned: DataFrame) -> DataFrame:
    """The data files, in FILES_SCHEMA, of a DataFrame that :func:`assign_locations` made."""
    return assigned.where("is_data").select(*FILES_ARROW_SCHEMA.names)


def has_common_prefix(locations: Sequence[TableLocation]) -> Column:
    """A filter for a DataFrame in FILES_SCHEMA that keeps every file in one of the locations, and a few others.

    It compares the paths with one prefix for each bucket, so that few files of a large inventory reach
    :func:`assign_locations`, whose Python workers are slower.
    """
    paths: dict[tuple[str, str], list[str]] = {}
    for location in locations:
        paths.setdefault(location.location.store, []).append(location.location.path or "/")
    prefixes = (f"{scheme}://{authority}{os.path.commonpath(found)}" for (scheme, authority), found in paths.items())
    return reduce(lambda a, b: a | b, map(canonical_uri_column("path").startswith, prefixes))
