"""The schema of a table from its catalog and from the schemas of all its files (rules 10 to 12, 29).

The driver makes it (:func:`build_table_schema`) from what executors have collected of the files: :class:`Evidence`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any, NoReturn

from airflow_hive_to_delta.core.errors import SchemaError
from airflow_hive_to_delta.core.readers import Trait, failing, reading
from airflow_hive_to_delta.core.schema.evidence import Evidence
from airflow_hive_to_delta.core.schema.partition_values import is_partition_type
from airflow_hive_to_delta.core.schema.translation import (
    respell,
    spark_type_of,
)
from airflow_hive_to_delta.core.schema.types import (
    CHAR_VARCHAR,
    PARTS,
    PHYSICAL_NAME,
    DeltaType,
    check_names,
    dotted,
    field_of,
    is_primitive,
    nested_of,
    struct_of,
    walk_fields,
    widening_rank,
    wider_type,
)

# Characters that Delta allows in names only with column mapping (rule 11).
_SPECIAL = frozenset(" ,;{}()\n\t=")


@dataclass
class TableSchema:
    """The schema of the Delta table, with the partition columns last, and what its log needs besides."""

    schema: dict[str, Any]
    #: The table features that it needs, sorted.
    features: list[str] = field(default_factory=list)
    #: Table properties that belong to the features.
    configuration: dict[str, str] = field(default_factory=dict)
    #: For the result: columns left out, columns wider than in some files, readers that cannot read the table.
    notes: list[str] = field(default_factory=list)


def build_table_schema(
    evidence: Evidence | None,
    catalog: Mapping[str, Any] | None,
    partition_columns: Mapping[str, str],
    *,
    type_widening: bool = True,
    allow_name_case_conflict: bool = False,
    binary_as_string: bool = False,
    ntz_as_timestamp: bool = False,
) -> TableSchema:
    """The schema of a table that fits the catalog and all files.

    The catalog decides which columns there are, their order and their types. The files decide the spelling of names
    (rule 12).

    :param evidence: the merged evidence of the files. Without files (None) the catalog decides everything.
    :param catalog: the Delta schema of the columns in the catalog. Without it (None) the files decide everything. It
        can have the partition columns too; then their comments are kept.
    :param partition_columns: the Delta type of each partition column, in order. They take precedence over columns of
        the files (rule 23).
    :param type_widening: whether the table gets the feature ``typeWidening`` if files are narrower than it.
    :param allow_name_case_conflict: whether files may spell one column in different ways.
    :param binary_as_string: whether binary columns of files can be strings of the catalog.
    :param ntz_as_timestamp: whether ``timestamp_ntz`` columns of files can be timestamps of the catalog.
    :raises SchemaError: the catalog and the files do not fit together. The message names the column and a file.
    """
    readings = {("binary", "string"): binary_as_string, ("timestamp_ntz", "timestamp"): ntz_as_timestamp}
    resolver = _Resolver(type_widening, allow_name_case_conflict, {pair for pair, yes in readings.items() if yes})
    partition_keys = {name.lower() for name in partition_columns}
    if catalog is not None:
        check_names(catalog)
    wanted = {column["name"].lower(): column for column in catalog["fields"]} if catalog is not None else {}
    columns = resolver.fields(
        (),
        [column for key, column in wanted.items() if key not in partition_keys] if catalog is not None else None,
        {key: seen for key, seen in evidence.fields.items() if key not in partition_keys} if evidence else {},
    )
    for name, delta_type in partition_columns.items():
        if not is_partition_type(delta_type):
            raise SchemaError(
                f"The partition column {dotted([name])} is of the type {delta_type!r}, by which Delta cannot "
                "partition. Give it the primitive type that its values have"
            )
    if not columns:
        raise SchemaError(
            f"The table has no columns beside its partition columns ({', '.join(partition_columns) or 'none'}): "
            "neither a file nor the catalog has one with a type. Declare its columns in the catalog, or pass files "
            "that have some"
        )
    partitions = [
        field_of(name, delta_type, wanted[name.lower()]["metadata"] if name.lower() in wanted else None)
        for name, delta_type in partition_columns.items()
    ]
    table = TableSchema(struct_of([*columns, *partitions]), notes=resolver.notes())
    check_names(table.schema)
    if resolver.widened and type_widening:
        table.features.append("typeWidening")
        table.configuration["delta.enableTypeWidening"] = "true"
    if _contains(table.schema, "timestamp_ntz"):
        table.features.append("timestampNtz")
    _map_columns(table)
    table.features.sort()
    return table


def needs_column_mapping(schema: DeltaType) -> bool:
    """Whether a name in the schema has a character that Delta allows only with column mapping (rule 11)."""
    return any(_SPECIAL.intersection(column["name"]) for _, column in walk_fields(schema))


class _Resolver:
    """Makes the schema of one table, and collects what its notes are made from."""

    def __init__(
        self, type_widening: bool, allow_name_case_conflict: bool, readings: Collection[tuple[str, str]]
    ) -> None:
        self.type_widening = type_widening
        self.allow_name_case_conflict = allow_name_case_conflict
        #: Pairs of a type in files and the type of the catalog that it may be read as.
        self.readings = readings
        self.widened: list[str] = []
        self.only_in_files: list[str] = []
        self.spelt_differently: list[str] = []
        self.read_otherwise: list[str] = []

    def fields(
        self, where: tuple[str, ...], wanted: list[dict[str, Any]] | None, seen: Mapping[str, Evidence]
    ) -> list[dict[str, Any]]:
        """The fields of the struct at ``where``: those of the catalog, or without one (None) those of the files."""
        pairs: list[tuple[dict[str, Any] | None, Evidence | None]]
        if wanted is None:
            pairs = [(None, seen[key]) for key in sorted(seen, key=lambda key: (seen[key].first or ("", 0), key))]
        else:
            pairs = [(column, seen.get(column["name"].lower())) for column in wanted]
            for key in seen.keys() - {column["name"].lower() for column in wanted}:
                spelling, path = min(seen[key].spellings.items(), key=lambda found: found[::-1])
                self.only_in_files.append(f"{dotted((*where, spelling))} ({path})")
        return [self._field(where, column, found) for column, found in pairs]

    def _field(self, where: tuple[str, ...], wanted: dict[str, Any] | None, seen: Evidence | None) -> dict[str, Any]:
        path = (*where, self._spelling(where, wanted, seen))
        changes: list[dict[str, str]] = []
        delta_type = self._type(path, (), wanted["type"] if wanted else None, seen, changes)
        metadata = copy.deepcopy(wanted["metadata"]) if wanted else {}
        if CHAR_VARCHAR in metadata:
            metadata[CHAR_VARCHAR] = respell(metadata[CHAR_VARCHAR], delta_type)
        if changes and self.type_widening:
            metadata["delta.typeChanges"] = changes
        return field_of(path[-1], delta_type, metadata)

    def _spelling(self, where: tuple[str, ...], wanted: dict[str, Any] | None, seen: Evidence | None) -> str:
        """The name of a column as files spell it, or as the catalog does where no file has the column (rule 12)."""
        if not seen:
            assert wanted is not None
            return str(wanted["name"])
        by_path = sorted((path, spelling) for spelling, path in seen.spellings.items())
        (path, spelling), *others = by_path
        if others:
            other_path, other = others[0]
            found = f"{dotted((*where, spelling))} in {path}, {dotted((*where, other))} in {other_path}"
            if not self.allow_name_case_conflict:
                raise SchemaError(
                    f"Files spell one column in different ways: {found}. Readers that match names by case would read "
                    "nulls. Rewrite one of the files, or pass allow_name_case_conflict=True if every reader ignores "
                    "case, as Spark does"
                )
            self.spelt_differently.append(found)
        return spelling

    def _type(
        self,
        path: tuple[str, ...],
        part: tuple[str, ...],
        wanted: DeltaType | None,
        seen: Evidence | None,
        changes: list[dict[str, str]],
    ) -> DeltaType:
        """The type of the column at ``path``.

        :param part: the path from the nearest field to here, through arrays and maps.
        :param changes: the type changes of that field, to which those of this column are added.
        """
        if seen is None:
            assert wanted is not None
            return copy.deepcopy(wanted)
        found = seen.types
        nested = [name for name in sorted(found) if name == "struct" or name in PARTS]
        if not nested and not isinstance(wanted, dict):
            return self._primitive(path, part, wanted, found, changes)
        kind = wanted["type"] if isinstance(wanted, dict) else nested[0]
        if set(found) != {kind} or isinstance(wanted, str):
            self._conflict(path, wanted, found)
        if kind == "struct":
            return struct_of(self.fields(path, wanted["fields"] if isinstance(wanted, dict) else None, seen.fields))
        parts = {
            name: self._type(
                (*path, name),
                (*part, name),
                wanted[key] if isinstance(wanted, dict) else None,
                seen.parts.get(name),
                changes,
            )
            for name, key in PARTS[kind].items()
        }
        return nested_of(kind, parts)

    def _primitive(
        self,
        path: tuple[str, ...],
        part: tuple[str, ...],
        wanted: str | None,
        found: Mapping[str, str],
        changes: list[dict[str, str]],
    ) -> str:
        final = wanted or reduce(
            lambda one, other: wider_type(one, other) or self._conflict(path, None, found), sorted(found)
        )
        if not is_primitive(final):
            raise SchemaError(
                f"The column {dotted(path)} is of the type {final!r} in the file {found.get(final, '')}, which Delta "
                "does not have. Rewrite the column, or declare the table in a catalog without it"
            )
        narrower = []
        for name in found:
            if wanted and (name, final) in self.readings:
                self.read_otherwise.append(f"{dotted(path)} ({spark_type_of(name)} as {spark_type_of(final)})")
            elif wider_type(name, final) != final:
                self._conflict(path, wanted, found)
            elif name != final:
                narrower.append(name)
        if narrower:
            narrower.sort(key=widening_rank)
            files = ", ".join(f"{spark_type_of(name)} in {found[name]}" for name in narrower)
            self.widened.append(f"{dotted(path)} ({spark_type_of(final)}; {files})")
            changes.extend(_type_changes(narrower, final, part))
        return final

    def _conflict(self, path: tuple[str, ...], wanted: DeltaType | None, found: Mapping[str, str]) -> NoReturn:
        """Raise a :class:`SchemaError` that names the catalog and a file, or two files, that do not fit together."""
        by_path = sorted((file, name) for name, file in found.items())
        if wanted is not None:
            kind = wanted if isinstance(wanted, str) else wanted["type"]
            file, name = next((file, name) for file, name in by_path if wider_type(name, kind) != kind)
            sides = f"{spark_type_of(wanted)} in the catalog and {spark_type_of(name)} in the file {file}"
            advice = f"Give the column the type {spark_type_of(name)} in the catalog, or rewrite the file"
            if (name, wanted) == ("binary", "string"):
                advice = "Pass binary_as_string=True if the bytes are text in UTF-8, or give it the type binary"
            if (name, wanted) == ("timestamp_ntz", "timestamp"):
                advice = "Pass ntz_as_timestamp=True if the times are in UTC, or give it the type timestamp_ntz"
        else:
            pairs = [(one, other) for one in by_path for other in by_path if one < other]
            one, other = next((p for p in pairs if wider_type(p[0][1], p[1][1]) is None), pairs[0])
            sides = f"{spark_type_of(one[1])} in the file {one[0]} and {spark_type_of(other[1])} in the file {other[0]}"
            advice = "Rewrite the files of one of the types"
        raise SchemaError(
            f"The column {dotted(path)} is {sides}. Only integers, floats and decimals can differ, where the wider "
            f"type keeps every value of the narrower. {advice}"
        )

    def notes(self) -> list[str]:
        """The notes for the result of the conversion."""
        notes = []
        if self.only_in_files:
            notes.append(
                f"Columns of the files that the catalog does not have were left out: {_some(self.only_in_files)}"
            )
        if self.spelt_differently:
            notes.append(f"Only readers that ignore case see every value of: {_some(self.spelt_differently)}")
        if self.read_otherwise:
            notes.append(f"Columns of the files are read as another type, by option: {_some(self.read_otherwise)}")
        if self.widened:
            trait: Trait = "typeWidening" if self.type_widening else "narrower files"
            notes.append(
                f"Some files are narrower than the table in: {_some(self.widened)}; the feature typeWidening is "
                f"{'on' if self.type_widening else 'off'}: {reading(trait)} read it, {failing(trait)} do not"
            )
        return notes


def _type_changes(narrower: Sequence[str], final: str, part: Sequence[str]) -> Iterator[dict[str, str]]:
    """The ``delta.typeChanges`` of a column: from each type in files to the next wider one, up to the table's."""
    chain = [*narrower, final]
    for index, name in enumerate(narrower):
        to = next(wider for wider in islice(chain, index + 1, None) if wider_type(name, wider) == wider)
        yield {"fromType": name, "toType": to, **({"fieldPath": ".".join(part)} if part else {})}


def _map_columns(table: TableSchema) -> None:
    """Add column mapping by name if a name needs it. The physical names are those in the files (rule 11)."""
    paths = [path for path, column in walk_fields(table.schema) if _SPECIAL.intersection(column["name"])]
    if not paths:
        return
    last = 0
    for last, (_, column) in enumerate(walk_fields(table.schema), start=1):
        column["metadata"]["delta.columnMapping.id"] = last
        column["metadata"][PHYSICAL_NAME] = column["name"]
    table.features.append("columnMapping")
    table.configuration["delta.columnMapping.mode"] = "name"
    table.configuration["delta.columnMapping.maxColumnId"] = str(last)
    table.notes.append(
        f"Names with a space, a tab, a line break or one of ,;{{}}()= need the feature columnMapping, which some "
        f"readers lack ({failing('columnMapping')} among them): {_some(map(dotted, paths))}"
    )


def _contains(delta_type: DeltaType, primitive: str) -> bool:
    if isinstance(delta_type, str):
        return delta_type == primitive
    if delta_type["type"] == "struct":
        return any(_contains(column["type"], primitive) for column in delta_type["fields"])
    return any(_contains(delta_type[key], primitive) for key in PARTS[delta_type["type"]].values())


def _some(found: Iterable[str], most: int = 10) -> str:
    listed = sorted(found)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")
