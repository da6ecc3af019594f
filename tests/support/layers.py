"""The layers of the package."""

from __future__ import annotations

#: What may import what: a package only those of the layers under its own. Packages of one layer do not know each other.
LAYERS = (
    ("task_groups", "plugins", "cli"),
    ("operators",),
    ("triggers",),
    ("campaigns",),
    ("engines", "report", "links"),
    ("job",),
    ("core/lifecycle",),
    ("core/parquet", "core/listing"),
    ("core/catalogs",),
    ("core/delta", "core/files"),
    ("core/runner", "core/schema", "core/spark", "core/storage"),
    ("core/readers", "core/redaction", "core/progress", "core/arrow_columns"),
    ("core/options", "core/results", "core/extras"),
    ("core/models", "core/errors"),
)
