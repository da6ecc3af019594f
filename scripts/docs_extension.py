"""What the reference pages of docs/ need beside the docstrings, as an extension of Griffe.

- The public names are found in the package itself, though it imports them only when they are used.
- An operator shows the parameters of the classes that it inherits from, too.
- "The other parameters are those of …" shows these, too.
- A dataclass shows its fields as parameters, with the ``#:`` comments before them.
- Roles of Sphinx (``:class:`GlueTarget` ``) become links to the reference.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

import airflow_hive_to_delta

PACKAGE = airflow_hive_to_delta.__name__
_ROLE = re.compile(r":(?:class|func|meth|attr|mod|exc|data):`~?([\w.]+)`")
_RULES = re.compile(r" \(rules? [\d, toand]+\)")
_PARAMETER = re.compile(r"^:param (\w+):", re.MULTILINE)


class PublicReference(griffe.Extension):
    """Completes what Griffe reads from the source, for the reference pages."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called by Griffe when the package is read."""
        if pkg.path != PACKAGE:
            return
        public = {name: pkg[_member(module, name)] for name, module in airflow_hive_to_delta._NAMES.items()}
        for thing in public.values():
            if isinstance(thing, griffe.Class):
                _complete_parameters(thing)
            _add_parameters_of_another(thing, public)
        _replace_roles(pkg, set(public))
        for name, thing in public.items():
            pkg.set_member(name, griffe.Alias(name, target=thing))


def _member(module: str, name: str) -> str:
    return f"{module.removeprefix(PACKAGE + '.')}.{name}"


def _complete_parameters(cls: griffe.Class) -> None:
    """Give a class, as its parameters, all that it takes by itself and by the classes that it inherits from."""
    if cls.docstring:
        cls.docstring.value = _parameters_last(cls.docstring.value)
    if "dataclass" in cls.labels:
        _describe_fields(cls)
        return
    described = set(_PARAMETER.findall(cls.docstring.value)) if cls.docstring else set()
    signature = cls.members.get("__init__")
    for base in _bases(cls):
        inherited = base.members.get("__init__")
        if isinstance(inherited, griffe.Function):
            if not isinstance(signature, griffe.Function):
                signature = griffe.Function("__init__", parameters=griffe.Parameters())
                cls.set_member("__init__", signature)
            _add_parameters(signature, inherited)
        if base.docstring and cls.docstring:
            added = {
                name: text for name, text in _parameter_texts(base.docstring.value).items() if name not in described
            }
            cls.docstring.value += "".join(f"\n{text}" for text in added.values())
            described |= added.keys()


def _add_parameters_of_another(thing: griffe.Object, public: dict[str, griffe.Object]) -> None:
    """Where a docstring says "The other parameters are those of …", describe them as they are described there."""
    if not thing.docstring or not isinstance(thing, (griffe.Class, griffe.Function)):
        return
    other = re.search(r"other parameters are those of :\w+:`(\w+)`", thing.docstring.value, re.IGNORECASE)
    if other and (docstring := public[other[1]].docstring):
        thing.docstring.value = _parameters_last(thing.docstring.value)
        described = _parameter_texts(thing.docstring.value)
        texts = _parameter_texts(docstring.value)
        taken = [name for name in texts if name in thing.parameters and name not in described]
        thing.docstring.value += "".join(f"\n{texts[name]}" for name in taken)


def _bases(cls: griffe.Class) -> list[griffe.Class]:
    """The classes of this package that a class inherits from, the nearest first."""
    return [base for base in cls.mro() if base.path.startswith(PACKAGE)]


def _add_parameters(signature: griffe.Function, inherited: griffe.Function) -> None:
    passed_on = {griffe.ParameterKind.var_positional, griffe.ParameterKind.var_keyword}
    for parameter in inherited.parameters:
        if parameter.name not in signature.parameters and parameter.kind not in passed_on:
            signature.parameters.add(parameter)


def _parameter_texts(docstring: str) -> dict[str, str]:
    """Each ``:param name: …`` of a docstring, whole, by its name."""
    parts = re.split(r"^(?=:\w+)|\n\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return {match[1]: part.strip() for part in parts if (match := _PARAMETER.match(part))}


def _parameters_last(docstring: str) -> str:
    """The docstring with its paragraphs before its parameters: one after them would be taken for the last one's."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(sorted(paragraphs, key=lambda paragraph: paragraph.startswith(":")))


def _describe_fields(cls: griffe.Class) -> None:
    """Turn the fields of a dataclass, with the comments before them, into parameters of its docstring."""
    lines: dict[str, str] = {}  # a field that is declared again has the text of the class that does so
    taken = _parameter_texts(cls.docstring.value) if cls.docstring else {}
    for base in (*reversed(_bases(cls)), cls):
        for name, member in base.members.items():
            if name not in taken and _is_field(member):
                lines[name] = f":param {name}: {_comment_before(member)}"
    if cls.docstring and lines:
        cls.docstring.value += ("\n" if taken else "\n\n") + "\n".join(lines.values())


def _is_field(member: griffe.Object | griffe.Alias) -> bool:
    """Whether a member of a dataclass is a field that its callers can give."""
    if not isinstance(member, griffe.Attribute) or member.name.startswith("_") or "property" in member.labels:
        return False
    if member.annotation is None or "ClassVar" in str(member.annotation):
        return False
    return "init=False" not in str(member.value)


def _comment_before(member: griffe.Attribute) -> str:
    """The text of the ``#:`` comment before an attribute."""
    found: list[str] = []
    source = member.lines_collection[member.filepath]
    for line in reversed(source[: (member.lineno or 1) - 1]):
        if not line.strip().startswith("#:"):
            break
        found.insert(0, line.strip().removeprefix("#:").strip())
    return " ".join(found)


def _replace_roles(thing: griffe.Object, public: set[str]) -> None:
    """Turn roles of Sphinx into links to the reference, in the docstrings of an object and of its members."""

    def link(match: re.Match[str]) -> str:
        name = match[1].rpartition(".")[2]
        return f"[`{name}`][{PACKAGE}.{name}]" if name in public else f"`{match[1]}`"

    if thing.docstring:
        thing.docstring.value = _RULES.sub("", _ROLE.sub(link, thing.docstring.value))
    for member in thing.members.values():
        if not member.is_alias:
            _replace_roles(member, public)
