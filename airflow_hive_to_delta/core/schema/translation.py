"""Translating types and schemas of Hive, Glue and Spark to those of Delta, and back (rules 26 to 28)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_hive_to_delta.core.errors import SchemaError
from airflow_hive_to_delta.core.schema.types import (
    CHAR_VARCHAR,
    GLUE_TO_DELTA_TYPE_MAP,
    MAX_DEPTH,
    PARTS,
    DeltaType,
    check_names,
    field_of,
    is_primitive,
    nested_of,
    quoted_name,
    struct_of,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LENGTH = re.compile(r"(?:char|varchar)\([0-9]+\)")
_SPARK_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def parse_hive_type(text: str, column: str | None = None) -> DeltaType:
    """The Delta type of a type in the syntax of Hive and Glue.

    :param column: the column that has the type, for messages.
    :raises SchemaError: the type is unknown or malformed (rule 28).
    """
    return _without_lengths(_HiveType(text, column).parse())


def build_delta_schema_from_glue(
    columns: Sequence[Mapping[str, str]], partition_keys: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The Delta schema of a table in Glue. Every column is nullable (rule 27).

    :param columns: the columns in the form of Glue: ``Name``, ``Type`` and optionally ``Comment``.
    :param partition_keys: the Hive type of each partition column. They become the last columns.
    :raises SchemaError: a column has no name, an unknown type, or the name of another.
    """
    fields = []
    for column in columns:
        entry = {key.lower(): value for key, value in column.items()}
        if not entry.get("name") or not entry.get("type"):
            raise SchemaError(f"A column of the catalog is {dict(column)!r}, expected a Name and a Type")
        fields.append(_column(entry["name"], _HiveType(entry["type"], entry["name"]).parse(), entry.get("comment")))
    for name, text in (partition_keys or {}).items():
        fields.append(_column(name, _HiveType(text, name).parse(), None))
    schema = struct_of(fields)
    check_names(schema)
    return schema


def build_delta_schema_from_spark(spark_schema: StructType) -> dict[str, Any]:
    """The Delta schema of a Spark schema. Every field is nullable; comments and declared lengths are kept.

    :raises SchemaError: a column has a type that a converted table cannot have, or the name of another (rules 26, 27).
    """
    return build_delta_schema_from_json(spark_schema.jsonValue())


def build_delta_schema_from_json(spark_schema: Mapping[str, Any]) -> dict[str, Any]:
    """The Delta schema of a Spark schema in its JSON form, as a metastore keeps it.

    It differs from :func:`build_delta_schema_from_spark` in that user-defined types in it are not loaded as classes.

    :raises SchemaError: a column has a type that a converted table cannot have, or the name of another.
    """
    fields = []
    for spark_field in spark_schema["fields"]:
        column = _from_spark_field(spark_field, "")
        field = _column(column["name"], column["type"], column["metadata"].get("comment"))
        if declared := (spark_field.get("metadata") or {}).get(CHAR_VARCHAR):
            field["metadata"][CHAR_VARCHAR] = respell(declared, field["type"])
        fields.append(field)
    schema = struct_of(fields)
    check_names(schema)
    return schema


def hive_type_of(delta_type: DeltaType) -> str:
    """The type in the syntax of Hive, for Glue. Hive has only one ``timestamp``, and no quotes around field names."""
    return _rendered(delta_type, {**_SPARK_NAMES, "timestamp_ntz": "timestamp"}, lambda name: name)


def spark_type_of(delta_type: DeltaType) -> str:
    """The type in the syntax of Spark SQL, with field names in backticks where needed."""
    return _rendered(delta_type, _SPARK_NAMES, quoted_name)


def respell(char_varchar: str, delta_type: DeltaType) -> str:
    """The text of :data:`CHAR_VARCHAR` with the field names of ``delta_type``.

    :raises SchemaError: the text is another type than ``delta_type``.
    """

    def renamed(declared: DeltaType, names: DeltaType) -> DeltaType:
        if isinstance(declared, str) and isinstance(names, str):
            return declared
        if isinstance(declared, dict) and isinstance(names, dict) and declared["type"] == names["type"]:
            if declared["type"] in PARTS:
                keys = PARTS[declared["type"]].items()
                return nested_of(declared["type"], {part: renamed(declared[key], names[key]) for part, key in keys})
            if len(declared["fields"]) == len(names["fields"]):
                pairs = zip(declared["fields"], names["fields"], strict=True)
                return struct_of([field_of(new["name"], renamed(old["type"], new["type"])) for old, new in pairs])
        raise SchemaError(
            f"{CHAR_VARCHAR} says {char_varchar}, which is another type than the column's {spark_type_of(delta_type)}. "
            "Declare the column again"
        )

    return spark_type_of(renamed(_HiveType(char_varchar, None).parse(), delta_type))


def _column(name: str, declared: DeltaType, comment: str | None) -> dict[str, Any]:
    """A top-level column, with the lengths of ``char`` and ``varchar`` at any level in its metadata (rule 26)."""
    plain = _without_lengths(declared)
    metadata = {"comment": comment} if comment else {}
    if plain != declared:
        metadata[CHAR_VARCHAR] = spark_type_of(declared)
    return field_of(name, plain, metadata)


def _without_lengths(declared: DeltaType) -> DeltaType:
    if isinstance(declared, str):
        return "string" if _LENGTH.fullmatch(declared) else declared
    if declared["type"] == "struct":
        return struct_of([{**field, "type": _without_lengths(field["type"])} for field in declared["fields"]])
    return {**declared, **{key: _without_lengths(declared[key]) for key in PARTS[declared["type"]].values()}}


def _rendered(delta_type: DeltaType, names: Mapping[str, str], name_of: Callable[[str], str]) -> str:
    if isinstance(delta_type, str):
        return names.get(delta_type, delta_type)
    if delta_type["type"] == "struct":
        inside = [f"{name_of(f['name'])}:{_rendered(f['type'], names, name_of)}" for f in delta_type["fields"]]
    else:
        inside = [_rendered(delta_type[key], names, name_of) for key in PARTS[delta_type["type"]].values()]
    return f"{delta_type['type']}<{','.join(inside)}>"


def _from_spark_field(field: Mapping[str, Any], parent: str) -> dict[str, Any]:
    where = f"{parent}{quoted_name(field['name'])}"
    metadata = field.get("metadata") or {}
    if metadata.get("__COLLATIONS"):
        collations = ", ".join(sorted(set(map(str, metadata["__COLLATIONS"].values()))))
        raise SchemaError(
            f"The column {where} has the collation {collations}, which would be lost: few readers of Delta know it. "
            "Declare it as a plain string"
        )
    if (metadata.get("EXISTS_DEFAULT") or "NULL").upper() != "NULL":
        raise SchemaError(
            f"The column {where} reads as {metadata['EXISTS_DEFAULT']} in files that lack it, which Delta would read "
            "as null. Write the value into those files and declare the column without a default"
        )
    comment = {"comment": metadata["comment"]} if metadata.get("comment") else {}
    return field_of(field["name"], _from_spark_type(field["type"], where), comment)


def _from_spark_type(spark_type: Any, where: str) -> DeltaType:
    if is_primitive(spark_type) or (isinstance(spark_type, str) and _LENGTH.fullmatch(spark_type)):
        return str(spark_type)
    kind = spark_type if isinstance(spark_type, str) else spark_type.get("type")
    if kind == "struct" and spark_type["fields"]:
        return struct_of([_from_spark_field(field, f"{where}.") for field in spark_type["fields"]])
    if kind in PARTS:
        parts = {part: _from_spark_type(spark_type[key], f"{where}.{part}") for part, key in PARTS[kind].items()}
        return nested_of(kind, parts)
    raise SchemaError(
        f"The column {where} is of Spark's type {kind}, which a converted Delta table cannot have. Leave the column "
        "out, or rewrite it as another type"
    )


class _HiveType:
    """A parser of one type in the syntax of Hive. ``char`` and ``varchar`` keep their lengths."""

    # Longest first and whole words only, because `interval` begins with `int`.
    _WORDS = re.compile(
        rf"(?:{'|'.join(sorted(GLUE_TO_DELTA_TYPE_MAP, key=len, reverse=True))})(?!\w)".replace(" ", r"\s+"),
        re.IGNORECASE | re.ASCII,
    )
    _ARRAY = re.compile(r"array\s*<", re.IGNORECASE)
    _MAP = re.compile(r"map\s*<", re.IGNORECASE)
    _STRUCT = re.compile(r"struct\s*<", re.IGNORECASE)
    _DECIMAL = re.compile(
        r"(?:decimal|dec|numeric)(?!\w)(?:\s*\(\s*([0-9]{1,9})\s*(?:,\s*([0-9]{1,9})\s*)?\))?", re.IGNORECASE
    )
    _TEXT = re.compile(r"(char|varchar)\s*\(\s*([0-9]{1,9})\s*\)", re.IGNORECASE)
    _QUOTED_NAME = re.compile(r"`((?:[^`]|``)+)`\s*:")
    _NAME = re.compile(r"([^`<>,:]+):")
    _COMMENT = re.compile(r"""comment\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""", re.IGNORECASE | re.DOTALL)
    _COMMA = re.compile(",")
    _END = re.compile(">")
    _SPACE = re.compile(r"\s*")
    _TOKEN = re.compile(r"\w+|\S|$")

    def __init__(self, text: str, column: str | None) -> None:
        self.text, self.column, self.at = text, column, 0

    def parse(self) -> DeltaType:
        found = self._type(1)
        if self._next() != "":
            self._fail(f"{self._next()!r} is not expected at position {self.at + 1}")
        return found

    def _type(self, depth: int) -> DeltaType:
        if depth > MAX_DEPTH:
            self._fail(f"it has more than {MAX_DEPTH} types in one another")
        if self._take(self._ARRAY):
            element = self._type(depth + 1)
            self._expect(self._END, "'>'")
            return nested_of("array", {"element": element})
        if self._take(self._MAP):
            key = self._type(depth + 1)
            self._expect(self._COMMA, "','")
            value = self._type(depth + 1)
            self._expect(self._END, "'>'")
            return nested_of("map", {"key": key, "value": value})
        if self._take(self._STRUCT):
            fields = [self._field(depth + 1)]
            while self._take(self._COMMA):
                fields.append(self._field(depth + 1))
            self._expect(self._END, "',' or '>'")
            return struct_of(fields)
        return self._primitive()

    def _field(self, depth: int) -> dict[str, Any]:
        if found := self._take(self._QUOTED_NAME):
            name = found[1].replace("``", "`")
        else:
            name = self._expect(self._NAME, "a field's name and ':'")[1].strip()
        delta_type = self._type(depth)
        found = self._take(self._COMMENT)
        comment = re.sub(r"\\(.)", r"\1", found[1] or found[2] or "", flags=re.DOTALL) if found else ""
        return field_of(name, delta_type, {"comment": comment} if comment else {})

    def _primitive(self) -> str:
        if found := self._take(self._DECIMAL):
            decimal = f"decimal({int(found[1] or 10)},{int(found[2] or 0)})"
            if not is_primitive(decimal):
                self._fail(f"{decimal} is not possible: precision is 1 to 38, and scale is 0 to precision")
            return decimal
        if found := self._take(self._TEXT):
            if int(found[2]) < 1:
                self._fail(f"{found[0]} has no room for a character")
            return f"{found[1].lower()}({int(found[2])})"
        word = self._next().lower()
        if word in {"char", "varchar"}:
            self._fail(f"{word} needs its length in brackets")
        if found := self._take(self._WORDS):
            return GLUE_TO_DELTA_TYPE_MAP[" ".join(found[0].lower().split())]
        if not word:
            return self._fail("it ends too early")
        return self._fail(f"Delta has no type {word!r}" if word.isidentifier() else f"{word!r} is not a type")

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self._skip_space())
        if found:
            self.at = found.end()
        return found

    def _expect(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        found = self._take(pattern)
        if not found:
            self._fail(f"{what} is expected at position {self.at + 1}, found {self._next()!r}")
        return found

    def _next(self) -> str:
        found = self._TOKEN.match(self.text, self._skip_space())
        return found[0] if found else ""

    def _skip_space(self) -> int:
        found = self._SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.at

    def _fail(self, problem: str) -> NoReturn:
        shown = self.text if len(self.text) <= 200 else f"{self.text[:200]}…"
        subject = f"The column {self.column} has the type {shown!r}" if self.column else f"The type is {shown!r}"
        raise SchemaError(
            f"{subject}: {problem}. Correct the type in the catalog, or leave the column out of the table to convert"
        )
