"""The names in AWS Glue that a Delta table is registered under, kept in step with its schema.

Engines take the columns of a Delta table from its log. What Athena, Lake Formation and people see of it in Glue are the
columns of its definition there, so these follow the log. Catalogs of Spark keep no columns of a Delta table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_hive_to_delta.core.catalogs.registration import glue_table_input, is_delta_in_glue
from airflow_hive_to_delta.core.errors import MissingError
from airflow_hive_to_delta.core.lifecycle.cut_over import GlueName

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.catalogs.registration import Target
    from airflow_hive_to_delta.core.delta.actions import Metadata
    from airflow_hive_to_delta.core.lifecycle.records import Records
    from airflow_hive_to_delta.core.options import ConversionOptions
    from airflow_hive_to_delta.core.storage.uri import Location


def update_registered_columns(
    records: Records, read_metadata: Callable[[], Metadata], options: ConversionOptions
) -> list[str]:
    """Give every name of the table in Glue the columns that its log has. Safe to call again.

    A name that is gone, or that is no longer this Delta table, is left alone.

    :param read_metadata: the latest metadata of the table; asked for only when it has a name in Glue.
    :return: the names that were changed.
    :raises HiveToDeltaError: Glue did not answer, refused, or somebody else changed the definition at the same moment.
    """
    names = [(target, region or options.region) for target, region in records.registrations() if target.kind == "glue"]
    if not names:
        return []
    metadata = read_metadata()
    return [target.name for target, region in names if _update_columns(target, region, records.root, metadata)]


def _update_columns(target: Target, region: str | None, root: Location, metadata: Metadata) -> bool:
    name = GlueName(target.catalog, target.schema, target.table, region)
    try:
        found = name.definition()
    except MissingError:
        return False
    if not is_delta_in_glue(found, root):
        return False
    wanted = glue_table_input(target, root, metadata.schema, metadata.partition_columns, metadata.description)
    columns, keys = wanted["StorageDescriptor"]["Columns"], wanted["PartitionKeys"]
    kept = name.settable(found)
    if (kept["StorageDescriptor"].get("Columns"), kept.get("PartitionKeys", [])) == (columns, keys):
        return False
    storage = {**kept["StorageDescriptor"], "Columns": columns}
    name.replace(found, {**kept, "StorageDescriptor": storage, "PartitionKeys": keys})
    return True
