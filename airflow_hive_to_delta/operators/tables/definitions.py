"""Tables of Glue as they are described there when a task runs, which may be days after they were discovered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.operators.aws.identity import aws_clients


@dataclass
class Definitions:
    """Tables, and why some of them cannot be described."""

    tables: list[TableInfo] = field(default_factory=list)
    errors: dict[str, Exception] = field(default_factory=dict)


def current_definitions(
    tables: Sequence[TableInfo], *, aws_conn_id: str | None, region_name: str | None
) -> Definitions:
    """The tables by their current definitions. What Glue does not know, or somebody has changed by hand, is as it was.

    Tables of Spark's catalogs are described by the job.
    """
    from airflow_hive_to_delta.core.catalogs.definitions import current_definition, is_read_again
    from airflow_hive_to_delta.core.errors import HiveToDeltaError

    found = Definitions()
    if not any(table.source == "glue" and is_read_again(table) for table in tables):
        return Definitions(list(tables))
    with aws_clients(aws_conn_id, region_name):
        for table in tables:
            try:
                found.tables.append(current_definition(table))
            except HiveToDeltaError as error:
                found.errors[table.qualified_name] = error
    return found
