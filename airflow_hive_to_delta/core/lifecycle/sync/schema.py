"""The schema of a Delta table after a sync: its own, what Hive has added to it, and what the new files say.

Files name columns as the table does *physically*, which is another name than the table's own once Delta has renamed a
column (column mapping). Statistics and partition values go by physical names, the ``metaData`` by both.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.delta import actions as log_actions
from airflow_hive_to_delta.core.delta.writable import protocol_with
from airflow_hive_to_delta.core.errors import SchemaError
from airflow_hive_to_delta.core.lifecycle.preflight import resolve_schema
from airflow_hive_to_delta.core.schema.evidence import Evidence
from airflow_hive_to_delta.core.schema.merge import TableSchema, needs_column_mapping
from airflow_hive_to_delta.core.schema.translation import spark_type_of
from airflow_hive_to_delta.core.schema.types import (
    PARTS,
    PHYSICAL_NAME,
    DeltaType,
    check_names,
    dotted,
    nested_of,
    struct_of,
    walk_fields,
    wider_type,
)

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.delta.actions import Metadata
    from airflow_hive_to_delta.core.delta.snapshot import Snapshot
    from airflow_hive_to_delta.core.options import ConversionOptions

_ID = "delta.columnMapping.id"
_LAST_ID = "delta.columnMapping.maxColumnId"
_CHANGES = "delta.typeChanges"


@dataclass(frozen=True)
class SyncedSchema:
    """What the entry of a sync says about the schema."""

    #: By physical names: what statistics and partition values go by.
    physical: TableSchema
    configuration: dict[str, str]
    #: The ``metaData`` and ``protocol`` actions that the entry needs; None where the table's own stay.
    metadata: dict[str, Any] | None
    protocol: dict[str, Any] | None
    notes: list[str]

    @property
    def actions(self) -> list[dict[str, Any]]:
        return [action for action in (self.protocol, self.metadata) if action is not None]


def physical_partition_types(metadata: Metadata) -> dict[str, str]:
    """The Delta type of each partition column, by its physical name, in order."""
    fields = {column["name"]: column for column in metadata.schema["fields"]}
    return {_physical_name(fields[name]): str(fields[name]["type"]) for name in metadata.partition_columns}


def resolve_synced_schema(
    snapshot: Snapshot,
    declared: Mapping[str, Any] | None,
    evidence: Evidence | None,
    known: Collection[str],
    options: ConversionOptions,
    *,
    merge: bool,
) -> SyncedSchema:
    """The schema that fits the table, Hive's catalog and the new files, or a :class:`SchemaError`.

    :param declared: the columns of Hive's catalog now; None when no catalog has them: then the files decide.
    :param evidence: what the new files say; None when there are none.
    :param known: names that Hive's table had when it was converted: one that Delta does not have any more was dropped
        there, and stays so.
    :param merge: take over new columns and wider types.
    """
    metadata = snapshot.metadata
    partition_types = physical_partition_types(metadata)
    keys = {name.lower() for name in partition_types}
    current = _physical(metadata.schema["fields"])
    if declared is None and evidence is not None:
        declared = resolve_schema(evidence, None, partition_types, options).schema
    merged = _Merged()
    wanted = merged.fields((), [c for c in current if c["name"].lower() not in keys],
                           [c for c in declared["fields"] if c["name"].lower() not in keys] if declared else [],
                           known)  # fmt: skip
    merged.check(merge)
    table = resolve_schema(evidence, struct_of([_bare(column) for column in wanted]), partition_types, options)
    before = {_lower(path): column for path, column in walk_fields(struct_of(current))}
    physical = struct_of(_in_order(table.schema["fields"], current))
    for path, column in walk_fields(physical):
        if (old := before.get(_lower(path))) is not None:
            _check_spelling(path, old["name"], options)
            column["name"] = old["name"]
    found_changes = _keep_type_changes(physical, before, merged.widened if options.type_widening else [])
    features = {feature for feature in table.features if feature != "columnMapping"}
    features |= {"typeWidening"} if merged.widened and options.type_widening else set()
    schema = TableSchema(physical, sorted(features))
    notes = [*merged.notes, *table.notes]
    if not (merged.added or merged.widened or found_changes):
        return SyncedSchema(schema, metadata.configuration, None, None, notes)
    return _changed(snapshot, schema, before, notes, metadata.partition_columns)


def make_overwritten_schema(snapshot: Snapshot, found: TableSchema, partition_columns: Sequence[str]) -> SyncedSchema:
    """The schema of a conversion, which replaces the table's own. Every file has to be added again for it."""
    fields = copy.deepcopy(found.schema["fields"])
    for _, column in walk_fields(struct_of(fields)):
        for mark in (_ID, PHYSICAL_NAME):
            column["metadata"].pop(mark, None)
    features = [feature for feature in found.features if feature != "columnMapping"]
    return _changed(snapshot, TableSchema(struct_of(fields), features), {}, found.notes, list(partition_columns))


def fits_without_overwrite(snapshot: Snapshot, declared: Mapping[str, Any] | None, keys: Sequence[str]) -> bool:
    """Whether Hive's columns and partition columns can be had by a merge, so that nothing need be overwritten."""
    partition_types = physical_partition_types(snapshot.metadata)
    if [key.lower() for key in keys] != [name.lower() for name in partition_types]:
        return False
    if declared is None:
        return True
    current = _physical(snapshot.metadata.schema["fields"])
    merged = _Merged()
    try:
        merged.fields((), current, list(declared["fields"]), ())
    except SchemaError:
        return False
    return {c["name"].lower() for c in current} <= {c["name"].lower() for c in declared["fields"]}


@dataclass
class _Merged:
    """One merge of Hive's columns into the table's, and what it would change."""

    added: list[str] = field(default_factory=list)
    #: Path in lower case, from and to of each type that became wider.
    widened: list[tuple[tuple[str, ...], str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def fields(
        self,
        where: tuple[str, ...],
        current: Sequence[dict[str, Any]],
        declared: Sequence[Mapping[str, Any]],
        known: Collection[str],
    ) -> list[dict[str, Any]]:
        hives = {column["name"].lower(): column for column in declared}
        merged = []
        for column in current:
            hive = hives.pop(column["name"].lower(), None)
            kind = self._type((*where, column["name"]), column["type"], hive["type"]) if hive else column["type"]
            merged.append({**column, "type": kind})
        dropped = [column["name"] for key, column in hives.items() if key in known]
        if dropped:
            self.notes.append(f"Columns that Delta has dropped were left out: {', '.join(sorted(dropped))}")
        for key, added in hives.items():
            if key not in known:
                self.added.append(f"{dotted((*where, added['name']))} {spark_type_of(added['type'])}")
                merged.append(copy.deepcopy(dict(added)))
        return merged

    def check(self, allowed: bool) -> None:
        changes = [f"has got {column}" for column in self.added]
        changes += [
            f"has made {dotted(path)} {spark_type_of(to)} of {spark_type_of(old)}" for path, old, to in self.widened
        ]
        if changes and not allowed:
            raise SchemaError(
                f"Since the table was converted or synced, Hive {'; '.join(changes)}. Pass merge_schema=True to take "
                "that over into the Delta table"
            )

    def _type(self, path: tuple[str, ...], current: DeltaType, hive: DeltaType) -> DeltaType:
        if isinstance(current, str) and isinstance(hive, str):
            wider = wider_type(current, hive) if current != hive else current
            if wider == current:
                return current
            if wider == hive:
                self.widened.append((_lower(path), current, hive))
                return hive
        elif isinstance(current, dict) and isinstance(hive, dict) and current["type"] == hive["type"]:
            if current["type"] == "struct":
                return struct_of(self.fields(path, current["fields"], hive["fields"], ()))
            parts = {
                name: self._type((*path, name), current[key], hive[key]) for name, key in PARTS[current["type"]].items()
            }
            return nested_of(current["type"], parts)
        raise SchemaError(
            f"The column {dotted(path)} is {spark_type_of(current)} in the Delta table and {spark_type_of(hive)} in "
            "Hive now, and neither holds every value of the other. Pass overwrite_schema=True with "
            "output_mode='complete' to take over Hive's columns for all files, or change the column back in Hive"
        )


def _changed(
    snapshot: Snapshot,
    physical: TableSchema,
    before: Mapping[tuple[str, ...], Mapping[str, Any]],
    notes: Sequence[str],
    partition_columns: list[str],
) -> SyncedSchema:
    """The actions that bring the table from its schema to this one."""
    metadata = snapshot.metadata
    configuration = dict(metadata.configuration)
    if "typeWidening" in physical.features:
        configuration["delta.enableTypeWidening"] = "true"
    # A name that needs column mapping, in a table that has none yet, gives it to every column.
    if needs_column_mapping(physical.schema) or configuration.get("delta.columnMapping.mode", "none") == "name":
        last = int(configuration.get(_LAST_ID, 0))
        for path, column in walk_fields(physical.schema):
            old = before.get(_lower(path), {}).get("metadata", {}).get(_ID)
            last += old is None
            column["metadata"] |= {_ID: last if old is None else old, PHYSICAL_NAME: column["name"]}
        configuration |= {"delta.columnMapping.mode": "name", _LAST_ID: str(last)}
        physical.features.append("columnMapping")
    logical = copy.deepcopy(physical.schema)
    for path, column in walk_fields(logical):
        column["name"] = before.get(_lower(path), {}).get("logical", column["name"])
    # Delta may call a column as Hive calls another one now: by renaming it, or by one that it added itself.
    check_names(logical)
    action = log_actions.changed_metadata_action(metadata, logical, partition_columns, configuration)
    protocol = protocol_with(snapshot.protocol, physical.features)
    return SyncedSchema(physical, configuration, action, protocol, list(notes))


def _physical(fields: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Fields by their physical names at every level, each with its own name as ``logical``."""

    def renamed(delta_type: DeltaType) -> DeltaType:
        if isinstance(delta_type, str):
            return delta_type
        if delta_type["type"] == "struct":
            return struct_of(_physical(delta_type["fields"]))
        return {**delta_type, **{key: renamed(delta_type[key]) for key in PARTS[delta_type["type"]].values()}}

    return [
        {
            **copy.deepcopy(dict(column)),
            "name": _physical_name(column),
            "logical": column["name"],
            "type": renamed(column["type"]),
        }
        for column in fields
    ]


def _physical_name(column: Mapping[str, Any]) -> str:
    return str(column["metadata"].get(PHYSICAL_NAME, column["name"]))


def _bare(column: Mapping[str, Any]) -> dict[str, Any]:
    """A field without what only the log knows of it, at every level: as a catalog has it."""
    bare = copy.deepcopy(dict(column))
    for _, inner in walk_fields(struct_of([bare])):
        inner.pop("logical", None)
        inner["metadata"] = {
            name: value for name, value in inner["metadata"].items() if name not in (_ID, PHYSICAL_NAME, _CHANGES)
        }
    return bare


def _in_order(found: Sequence[dict[str, Any]], current: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The table's columns in its own order, then the new ones."""
    order = {column["name"].lower(): index for index, column in enumerate(current)}
    return sorted(found, key=lambda column: order.get(column["name"].lower(), len(order)))


def _check_spelling(path: tuple[str, ...], name: str, options: ConversionOptions) -> None:
    if path[-1] != name and not options.allow_name_case_conflict:
        raise SchemaError(
            f"New files spell the column {dotted(path)}, and the Delta table has it as {name}. Readers that match "
            "names by case would read nulls. Rewrite the files, or pass allow_name_case_conflict=True if every reader "
            "ignores case, as Spark does"
        )


def _keep_type_changes(
    schema: dict[str, Any],
    before: Mapping[tuple[str, ...], Mapping[str, Any]],
    widened: Sequence[tuple[tuple[str, ...], str, str]],
) -> bool:
    """Give every field the history of its types: the table's own, then what this sync adds. True: it adds something."""
    added = False
    for path, column in walk_fields(schema):
        key = _lower(path)
        old = before.get(key, {}).get("metadata", {}).get(_CHANGES, [])
        new = [_change(to_widen, key) for to_widen in widened if _nearest(to_widen[0], before) == key]
        new += column["metadata"].get(_CHANGES, [])
        changes = [*old, *(change for i, change in enumerate(new) if change not in old and change not in new[:i])]
        added = added or len(changes) > len(old)
        column["metadata"].pop(_CHANGES, None)
        if changes:
            column["metadata"][_CHANGES] = changes
    return added


def _nearest(path: tuple[str, ...], fields: Mapping[tuple[str, ...], Any]) -> tuple[str, ...]:
    """The field that a path ends in, or the nearest one above, where the path goes on into arrays and maps."""
    return next(path[:end] for end in range(len(path), 0, -1) if path[:end] in fields)


def _change(widened: tuple[tuple[str, ...], str, str], field_path: tuple[str, ...]) -> dict[str, str]:
    path, old, new = widened
    inside = ".".join(path[len(field_path) :])
    return {"fromType": old, "toType": new, **({"fieldPath": inside} if inside else {})}


def _lower(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in path)
