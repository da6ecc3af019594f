"""Settings of Spark: those that Delta Lake needs, and how a properties file of Java has them."""

from __future__ import annotations

from collections.abc import Mapping

#: What a session needs to read and write Delta tables, beside the jars.
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def property_lines(settings: Mapping[str, str]) -> str:
    """The lines of a properties file, each with its line end."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(text: str) -> str:
    """A name or value in the syntax of Java's properties files."""
    return "".join(
        # Java's characters are UTF-16 units.
        c if c.isascii() and (c.isalnum() or c in "._-/,") else "".join(f"\\u{unit:04x}" for unit in _utf16(c))
        for c in text
    )


def _utf16(character: str) -> tuple[int, ...]:
    encoded = character.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(encoded[i : i + 2]) for i in range(0, len(encoded), 2))
