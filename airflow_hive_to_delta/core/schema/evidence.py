"""The types and names that files have for the columns of a table, merged in any order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from airflow_hive_to_delta.core.errors import SchemaError
from airflow_hive_to_delta.core.schema.types import (
    PARTS,
    DeltaType,
    dotted,
)


@dataclass
class Evidence:
    """The types and names that files have for one column and for those inside it. The outermost column is the row.

    Each fact is kept with the smallest path of the files that have it. So merging is associative, commutative and
    idempotent, and the size depends on how much files differ, not on how many there are. Of files with equal schemas
    only the one with the smallest path counts.
    """

    #: ``struct``, ``array``, ``map`` or a primitive type, each with a file.
    types: dict[str, str] = field(default_factory=dict)
    #: Spellings of the column's name, each with a file.
    spellings: dict[str, str] = field(default_factory=dict)
    #: The file that decides the position of the column among its siblings, and its position there.
    first: tuple[str, int] | None = None
    #: Fields of a struct, by name in lower case.
    fields: dict[str, Evidence] = field(default_factory=dict)
    #: ``element`` of an array, ``key`` and ``value`` of a map.
    parts: dict[str, Evidence] = field(default_factory=dict)

    @classmethod
    def of_file(cls, file_schema: Mapping[str, Any], path: str) -> Self:
        """The evidence of one file, whose schema may have types that Delta does not have.

        :raises SchemaError: two of its columns differ only by case.
        """
        return cls._of(dict(file_schema), path, ())

    @classmethod
    def _of(cls, file_type: DeltaType, path: str, where: tuple[str, ...]) -> Self:
        if isinstance(file_type, str):
            return cls({file_type: path})
        seen = cls({file_type["type"]: path})
        for index, column in enumerate(file_type.get("fields", ())):
            name, key = column["name"], column["name"].lower()
            if key in seen.fields:
                other = next(iter(seen.fields[key].spellings))
                raise SchemaError(
                    f"The file {path} has the columns {dotted((*where, other))} and {dotted((*where, name))}, which "
                    "Delta takes for one. Rewrite the file with one of them renamed"
                )
            child = cls._of(column["type"], path, (*where, name))
            child.spellings, child.first = {name: path}, (path, index)
            seen.fields[key] = child
        for part, key in PARTS.get(file_type["type"], {}).items():
            seen.parts[part] = cls._of(file_type[key], path, (*where, part))
        return seen

    def merge(self, other: Evidence) -> Evidence:
        """The evidence of both, as a new object. ``Evidence()`` is the neutral element."""
        return Evidence(
            _least(self.types, other.types),
            _least(self.spellings, other.spellings),
            min((first for first in (self.first, other.first) if first), default=None),
            _merged(self.fields, other.fields),
            _merged(self.parts, other.parts),
        )

    def to_json(self) -> str:
        """The evidence as JSON text, for :meth:`from_json`."""
        paths = sorted(set(self._paths()))
        number = {path: index for index, path in enumerate(paths)}
        return json.dumps({"paths": paths, "row": self._numbered(number)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The evidence that :meth:`to_json` made a text of."""
        document = json.loads(text)
        return cls._from_numbered(document["row"], document["paths"])

    def _paths(self) -> Iterator[str]:
        yield from self.types.values()
        yield from self.spellings.values()
        if self.first:
            yield self.first[0]
        for child in (*self.fields.values(), *self.parts.values()):
            yield from child._paths()

    # The paths of a few files recur at every column, so the document has a list of paths and refers to it by number.
    def _numbered(self, number: Mapping[str, int]) -> list[Any]:
        return [
            {name: number[path] for name, path in self.types.items()},
            {name: number[path] for name, path in self.spellings.items()},
            [number[self.first[0]], self.first[1]] if self.first else None,
            {name: child._numbered(number) for name, child in self.fields.items()},
            {name: child._numbered(number) for name, child in self.parts.items()},
        ]

    @classmethod
    def _from_numbered(cls, row: list[Any], paths: Sequence[str]) -> Self:
        types, spellings, first, fields, parts = row
        return cls(
            {name: paths[index] for name, index in types.items()},
            {name: paths[index] for name, index in spellings.items()},
            (paths[first[0]], first[1]) if first else None,
            {name: cls._from_numbered(child, paths) for name, child in fields.items()},
            {name: cls._from_numbered(child, paths) for name, child in parts.items()},
        )


def _least(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    return {**one, **{name: min(path, one.get(name, path)) for name, path in other.items()}}


def _merged(one: Mapping[str, Evidence], other: Mapping[str, Evidence]) -> dict[str, Evidence]:
    return {**one, **{name: one[name].merge(seen) if name in one else seen for name, seen in other.items()}}
