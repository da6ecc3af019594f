"""Where the files of a table belong, as columns: found out once for the files of a folder, and not for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_to_delta.core.arrow_columns import in_one_chunk, map_lengths, map_names, map_values, number_groups
from airflow_hive_to_delta.core.parquet.add_actions import FileLocator, FilePlacement
from airflow_hive_to_delta.core.storage.uri import HIDDEN_PREFIXES, HIDDEN_SUFFIXES, canonical_uri, parse_location

#: Names that begin so may be those of deletion vectors, which are no data files.
_VECTOR_PREFIX = "deletion_vector_"


@dataclass(frozen=True)
class LocatedFiles:
    """The data files among those of a listing."""

    #: With the columns ``path``, ``size``, ``modification_time`` and ``key``, the canonical URI.
    files: pa.Table
    #: For each partition column its value for each file, as Delta stores it.
    values: list[pa.Array]


def locate_files(files: pa.Table, locator: FileLocator, partition_columns: Sequence[str]) -> LocatedFiles:
    """The data files among listed files, each with its key and its partition values, as the locator finds them.

    :param files: files in FILES_ARROW_SCHEMA.
    :raises HiveToDeltaError: one of them cannot be part of the table.
    """
    paths, maps = in_one_chunk(files["path"]), in_one_chunk(files["partition_values"])
    folders, names = _split_paths(paths)
    given = map_names(maps)
    is_plain = pc.and_(
        _are_plain(folders, names, in_one_chunk(files["size"])),
        pc.or_(pc.is_null(maps), pc.equal(map_lengths(maps), len(given))),
    )
    others = files.filter(pc.invert(is_plain))
    if others.num_rows:
        plain, maps, folders, names = (rows.filter(is_plain) for rows in (files, maps, folders, names))
    else:  # nothing is copied
        plain = files
    columns = [folders, pc.is_null(maps), *(map_values(maps, name) for name in given)]
    groups, first = number_groups(columns, plain.num_rows)
    placements = [locator.locate(file) for file in _rows(plain.take(pa.array(first, pa.int64())))]
    is_data = pa.array([found is not None for found in placements], pa.bool_()).take(groups)
    keys = pa.array([found and f"{canonical_uri(found.location.parent)}/" for found in placements], pa.string())
    located = plain.select(_KEPT).append_column(_KEY, pc.binary_join_element_wise(keys.take(groups), names, ""))
    for column, name in _columns(partition_columns):
        values = pa.array([_value(found, name) for found in placements], pa.string())
        located = located.append_column(column, values.take(groups))
    if not pc.all(is_data).as_py():
        located = located.filter(is_data)
    if others.num_rows:
        each = pa.Table.from_pylist(_locate_each(others, locator, partition_columns), located.schema)
        located = pa.concat_tables([located, each])
    values_of = [in_one_chunk(located[column]) for column, _ in _columns(partition_columns)]
    return LocatedFiles(located.select([*_KEPT, _KEY]), values_of)


def canonical_uris(paths: pa.Array) -> pa.Array:
    """The canonical URI of each path, parsed once for the paths of a folder.

    :param paths: URIs and absolute local paths of files, none of them hidden.
    """
    folders, names = _split_paths(paths)
    groups, first = number_groups([folders], len(paths))
    keys = [canonical_uri(parse_location(path).parent) for path in paths.take(pa.array(first, pa.int64())).to_pylist()]
    return pc.binary_join_element_wise(pa.array(keys, pa.string()).take(groups), names, "/")


def _split_paths(paths: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The folder of each path, with the slash after it, and the name."""
    return pc.replace_substring_regex(paths, "[^/]*$", ""), pc.replace_substring_regex(paths, "(?s)^.*/", "")


_KEPT = ["path", "size", "modification_time"]
_KEY = "key"


def _columns(partition_columns: Sequence[str]) -> list[tuple[str, str]]:
    """The name in a table of files of each partition column, and its own."""
    return [(f"value_{number}", name) for number, name in enumerate(partition_columns)]


def _are_plain(folders: pa.Array, names: pa.Array, sizes: pa.Array) -> pa.Array:
    """Whether each file belongs where any other file of its folder does, as its name and size are of no consequence."""
    odd = [
        pc.fill_null(pc.less_equal(sizes, 0), True),
        pc.equal(names, ""),
        pc.match_substring(names, "\0"),
        *(pc.starts_with(names, prefix) for prefix in (*HIDDEN_PREFIXES, _VECTOR_PREFIX)),
        *(pc.ends_with(names, suffix) for suffix in HIDDEN_SUFFIXES),
        pc.match_substring_regex(folders, "^[^/]*:/*$"),  # the name is that of a bucket
    ]
    return pc.invert(reduce(pc.or_, odd))


def _locate_each(files: pa.Table, locator: FileLocator, partition_columns: Sequence[str]) -> list[dict[str, Any]]:
    """The data files among these, each located by itself."""
    found = [(file, placement) for file in _rows(files) if (placement := locator.locate(file)) is not None]
    return [
        {**{name: file[name] for name in _KEPT}, _KEY: canonical_uri(placement.location)}
        | {column: _value(placement, name) for column, name in _columns(partition_columns)}
        for file, placement in found
    ]


def _value(placement: FilePlacement | None, name: str) -> str | None:
    return None if placement is None else (placement.partition_values or {}).get(name)


def _rows(files: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = files.to_pylist(maps_as_pydicts="strict")
    return rows
