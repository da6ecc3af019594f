"""Columns of Arrow tables: what several modules compute with them, for as many rows as a table has files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

#: The driver compares the files of a table as columns up to so many; more are for Spark. Python needs some 1,300 bytes
#: for each of them meanwhile, and clusters give it a few hundred MB beside the driver's JVM.
MOST_FILES = 250_000


def number_groups(columns: Sequence[pa.Array], length: int) -> tuple[pa.Array, list[int]]:
    """Number the groups of rows that are equal in all of some columns. Nulls are equal to each other.

    :param columns: columns of one length, none of them nested.
    :param length: that length.
    :returns: the number of each row's group, from 0 on, and the first row of each group.
    """
    groups = pa.repeat(pa.scalar(0, pa.int64()), length)
    for column in columns:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        both = pc.add(pc.multiply(groups, len(encoded.dictionary)), encoded.indices.cast(pa.int64()))
        groups = pc.dictionary_encode(both).indices.cast(pa.int64())
    rows = pa.table({"group": groups, "row": pa.array(range(length), pa.int64())})
    first = rows.group_by("group").aggregate([("row", "min")]).sort_by("group")
    return groups, first["row_min"].to_pylist()


def map_values(maps: pa.MapArray, name: str) -> pa.Array:
    """The value of one name in each map; null where a map is null or does not have it."""
    if not len(maps):
        return pa.array([], maps.type.item_type)
    return pc.map_lookup(maps, pa.scalar(name, maps.type.key_type), "first")


def map_names(maps: pa.MapArray) -> list[str]:
    """The names that are in any of the maps."""
    if not len(maps):
        return []
    offsets = maps.offsets  # those of a slice begin where it does, and its keys are those of the whole
    begin = offsets[0].as_py()
    names: list[str] = pc.unique(maps.keys.slice(begin, offsets[-1].as_py() - begin)).to_pylist()
    return names


def map_lengths(maps: pa.MapArray) -> pa.Array:
    """The number of names in each map. What it is for one that is null says nothing."""
    offsets = maps.offsets
    return pc.subtract(offsets.slice(1), offsets.slice(0, len(maps)))


def in_one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one chunk.

    :raises pyarrow.ArrowCapacityError: it is too long for one.
    """
    combined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(combined, pa.ChunkedArray):
        raise pa.ArrowCapacityError(f"a column has {combined.num_chunks} chunks, expected one")
    return combined


def equal_or_both_null(one: pa.Array, other: pa.Array) -> pa.Array:
    """Whether two columns are equal in each row, as ``<=>`` of SQL has it."""
    return pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(pc.is_null(one), pc.is_null(other)))
