"""What contenders work on, as it is passed to their processes. Importing this module loads nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: The one partition column of the tables, a string.
PARTITION_COLUMN = "day"
#: The schema that tables are registered in.
SCHEMA = "bench"


@dataclass(frozen=True)
class BenchTable:
    """A table as it is passed to a contender.

    :param folders: the locations that hold its files: the table's own, or those of its partitions.
    :param glue_database: the Glue database that has the table and its partitions; None when they are in the paths.
    """

    name: str
    location: str
    columns: dict[str, str]
    files: int
    rows: int
    partitioned: bool = True
    folders: list[str] = field(default_factory=list)
    glue_database: str | None = None


@dataclass(frozen=True)
class Job:
    """What one run of a contender works on.

    :param keep_log: keep the log of the converted table aside, for contenders that work on converted tables.
    :param new_files_from: a folder whose files are added to the table before a sync.
    :param filters: SQL conditions by their names, for queries.
    """

    tables: list[BenchTable]
    keep_log: bool = False
    new_files_from: str | None = None
    filters: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Job:
        return cls(**{**document, "tables": [BenchTable(**table) for table in document["tables"]]})


@dataclass(frozen=True)
class Settings:
    """What all contenders of a run have in common.

    :param scratch: a folder for warehouses and catalogs.
    :param memory: the memory of the JVM.
    """

    scratch: Path
    memory: str = "2g"
