"""Names of the JVM, which PySpark asks for again and again, looked up once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

#: Packages and classes by the view or package of the JVM that they were found in, which are kept as long as it is.
_FOUND = "_found_names"
#: The first part of full names. Other names of a view may be imported later, and be classes then.
_TOP = frozenset({"org", "java", "javax", "scala", "com", "io"})


def look_names_up_once() -> None:
    """Keep what ``spark._jvm.org.apache...`` finds: each part of it asks the JVM, which searches all of its jars for a
    class of that name before it says that it is a package. This took 7 % of the JVM's time."""
    for kind in (JVMView, JavaPackage, JavaClass):
        kind.__getattr__ = _keeping(kind.__getattr__)


def _keeping(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def look_up_once(self: Any, name: str) -> Any:
        if name.startswith("_"):
            return look_up(self, name)
        names = self.__dict__.setdefault(_FOUND, {})
        if name not in names:
            found = look_up(self, name)
            if not (isinstance(found, (JavaClass, JavaMember)) or isinstance(self, JavaPackage) or name in _TOP):
                return found
            names[name] = found
        return names[name]

    return look_up_once
