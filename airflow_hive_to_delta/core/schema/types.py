"""Types and schemas of Delta, and their translation from and to those of Hive, Glue and Spark (rules 12, 25 to 29).

A type is a string (``long``, ``decimal(10,2)``) or a dict in Spark's JSON form. A schema is the dict of a struct.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_hive_to_delta.core.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DeltaType = str | dict[str, Any]

#: Delta's name for each of Hive's types without arguments. The others are ``decimal``, ``char``, ``varchar`` and the
#: nested ones.
GLUE_TO_DELTA_TYPE_MAP: dict[str, str] = {
    "boolean": "boolean",
    "tinyint": "byte",
    "byte": "byte",
    "smallint": "short",
    "short": "short",
    "int": "integer",
    "integer": "integer",
    "bigint": "long",
    "long": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "double precision": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp with local time zone": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}

#: The metadata of a field that holds the ``char`` or ``varchar`` that a string was declared as (rule 26).
CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"

#: The types inside an array or a map: their names in Delta's field paths, and their keys in the type's dict.
PARTS: dict[str, dict[str, str]] = {
    "array": {"element": "elementType"},
    "map": {"key": "keyType", "value": "valueType"},
}

#: The most types inside of each other.
MAX_DEPTH = 64
# A type can be widened to each that comes after it without losing a value (rule 29). Decimals are computed.
_FAMILIES = (("byte", "short", "integer", "long"), ("float", "double"))
_PRIMITIVES = frozenset(GLUE_TO_DELTA_TYPE_MAP.values())
_DECIMAL = re.compile(r"decimal\(([0-9]{1,9}),(-?[0-9]{1,9})\)")
_LENGTH = re.compile(r"(?:char|varchar)\([0-9]+\)")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPARK_WORDS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


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
    return _rendered(delta_type, {**_SPARK_WORDS, "timestamp_ntz": "timestamp"}, lambda name: name)


def spark_type_of(delta_type: DeltaType) -> str:
    """The type in the syntax of Spark SQL, with field names in backticks where needed."""
    return _rendered(delta_type, _SPARK_WORDS, _quoted)


def is_primitive(delta_type: object) -> bool:
    """Whether this is one of Delta's primitive types."""
    if not isinstance(delta_type, str):
        return False
    if delta_type in _PRIMITIVES:
        return True
    found = _decimal_digits(delta_type)
    return found is not None and 1 <= found[0] <= 38 and 0 <= found[1] <= found[0]


def wider_type(one: str, other: str) -> str | None:
    """The narrowest type that both can be widened to; None when there is none (rule 29)."""
    if one == other:
        return one
    for family in _FAMILIES:
        if one in family and other in family:
            return max(one, other, key=family.index)
    digits, other_digits = _decimal_digits(one), _decimal_digits(other)
    if not digits or not other_digits:
        return None
    scale = max(digits[1], other_digits[1])
    precision = max(digits[0] - digits[1], other_digits[0] - other_digits[1]) + scale
    return f"decimal({precision},{scale})" if precision <= 38 else None


def widening_rank(name: str) -> tuple[int, int]:
    """A sort key by which a type comes before those that it can be widened to."""
    return _decimal_digits(name) or next((family.index(name), 0) for family in _FAMILIES if name in family)


def struct_of(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """The struct with these fields."""
    return {"type": "struct", "fields": fields}


def field_of(name: str, delta_type: DeltaType, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A nullable field of a struct."""
    return {"name": name, "type": delta_type, "nullable": True, "metadata": dict(metadata or {})}


def nested_of(kind: str, parts: Mapping[str, DeltaType]) -> dict[str, Any]:
    """The array or map (``kind``) of these types, by their names in :data:`PARTS`. Elements and values are nullable."""
    nulls = "containsNull" if kind == "array" else "valueContainsNull"
    return {"type": kind, **{key: parts[part] for part, key in PARTS[kind].items()}, nulls: True}


def walk_fields(delta_type: DeltaType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every field at every level with its path, a parent before its children, in the order of Delta's column ids."""
    if isinstance(delta_type, str):
        return
    for field in delta_type.get("fields", ()):
        inside = (*path, field["name"])
        yield inside, field
        yield from walk_fields(field["type"], inside)
    for part, key in PARTS.get(delta_type["type"], {}).items():
        yield from walk_fields(delta_type[key], (*path, part))


def check_names(schema: Mapping[str, Any]) -> None:
    """Refuse a schema with an empty name, or with names that differ only by case (rule 12).

    :raises SchemaError: the message names the columns.
    """
    seen: dict[tuple[str, ...], str] = {}
    for path, _ in walk_fields(dict(schema)):
        if not path[-1]:
            raise SchemaError(
                f"A column{' inside ' + dotted(path[:-1]) if path[:-1] else ''} has an empty name; name it"
            )
        key = (*path[:-1], path[-1].lower())
        if key in seen:
            raise SchemaError(
                f"The columns {seen[key]} and {dotted(path)} have the same name but for its case, which Delta does not "
                "allow. Rename one of them"
            )
        seen[key] = dotted(path)


def dotted(path: Sequence[str]) -> str:
    """The path of a column, as messages show it: joined by dots, with backticks where needed."""
    return ".".join(map(_quoted, path))


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


def _decimal_digits(delta_type: str) -> tuple[int, int] | None:
    """The precision and the scale of a decimal; None for every other type."""
    found = _DECIMAL.fullmatch(delta_type)
    return (int(found[1]), int(found[2])) if found else None


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


def _rendered(delta_type: DeltaType, words: Mapping[str, str], name_of: Callable[[str], str]) -> str:
    if isinstance(delta_type, str):
        return words.get(delta_type, delta_type)
    if delta_type["type"] == "struct":
        inside = [f"{name_of(f['name'])}:{_rendered(f['type'], words, name_of)}" for f in delta_type["fields"]]
    else:
        inside = [_rendered(delta_type[key], words, name_of) for key in PARTS[delta_type["type"]].values()]
    return f"{delta_type['type']}<{','.join(inside)}>"


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _from_spark_field(field: Mapping[str, Any], parent: str) -> dict[str, Any]:
    where = f"{parent}{_quoted(field['name'])}"
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
