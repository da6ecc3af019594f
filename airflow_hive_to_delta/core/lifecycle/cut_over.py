"""Cut-over in AWS Glue: the Delta definition replaces the Hive one, under the same name, and the way back.

The Hive definition is kept unchanged beside the log before it is replaced. When a crawler or a person has put
another one where the Delta one was, and a second cut-over replaces that, it is kept beside the first. The
partitions stay in Glue as they are, where no reader of a Delta table looks, so that the way back restores all of the
table.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_hive_to_delta.core.catalogs.discovery import GlueDiscovery, from_glue
from airflow_hive_to_delta.core.catalogs.registration import Target, glue_table_input, is_delta_in_glue
from airflow_hive_to_delta.core.delta.snapshot import Snapshot, snapshot_of
from airflow_hive_to_delta.core.errors import MissingError, PermanentError, TransientError
from airflow_hive_to_delta.core.lifecycle.records import KeptDefinition, Records
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.results import CutOverResult
from airflow_hive_to_delta.core.storage import aws
from airflow_hive_to_delta.core.storage.aws_errors import aws_call
from airflow_hive_to_delta.core.storage.log_storage import storage_for
from airflow_hive_to_delta.core.storage.uri import Location, check_allowed, parse_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cut_over_table(spark: SparkSession, table: TableInfo, *, options: ConversionOptions | None = None) -> CutOverResult:
    """Replace the Hive definition of a converted table in Glue by the Delta one. Safe to call again.

    Description, owner, partition keys, partitions and the table's own parameters stay; what only a reader of Parquet
    understands goes. ``rollback_table`` brings the old definition back.

    :param table: the table as Glue's discovery found it.
    :raises PermanentError: it is no Parquet table in Glue that this package has converted at its own location.
    """
    started = time.monotonic()
    options = options or ConversionOptions()
    if table.source != "glue" or not table.database:
        raise PermanentError(
            f"{table.qualified_name} comes from {'Spark' if table.source == 'spark' else 'no catalog'}, expected a "
            "table of AWS Glue, found by GlueDiscovery. In other catalogs register the Delta table under a new name"
        )
    root = parse_location(table.location, f"The location of {table.qualified_name}")
    check_allowed(root, options.allowed_roots)
    records = Records(storage_for(root, spark, options), root)
    snapshot = snapshot_of(spark, records.storage, root)
    _check_converted_from(records, snapshot, table)
    name = GlueName.of(table, options)
    found = name.definition()
    result = CutOverResult(
        source_table=table.qualified_name,
        location=str(root),
        success=True,
        status="already_cut_over",
        version=snapshot.version,
    )
    if is_delta_in_glue(found, root):
        if kept := _find_last_kept(records).get(name.target):
            result.kept_definition = str(records.folder.child(kept.record))
        else:
            result.notes.append("Somebody else made it a Delta table in Glue: no rollback can bring its old form back")
    else:
        _check_replaceable(found, name, root)
        result.kept_definition = str(records.folder.child(_keep_definition(records, name, found)))
        name.replace(found, _make_delta_definition(name, found, root, snapshot))
        if not is_delta_in_glue(name.definition(), root):
            raise TransientError(f"{table.qualified_name} was replaced in Glue and is not Delta; somebody undid it")
        result.status = "cut_over"
    return replace(result, duration_seconds=round(time.monotonic() - started, 3))


def restore_definitions(records: Records, options: ConversionOptions) -> tuple[list[str], list[str]]:
    """Put the Hive definition that the last cut-over replaced back where the Delta one is. Safe to call again.

    :return: the names that have that definition now, and notes for people.
    """
    restored, notes = [], []
    definitions = records.definitions()
    for target, kept in _find_last_kept(records).items():
        name = GlueName(kept.catalog, kept.database, kept.name, kept.region or options.region)
        done, note = _restore_definition(records, name, kept)
        restored += [str(name)] if done else []
        notes += [note] if note else []
        earlier = [found.record for found in definitions if found.target == target and found != kept]
        if earlier:
            notes.append(
                f"Of {name} cut-overs have kept earlier definitions too, which were not restored: "
                f"{', '.join(earlier)} of the log that was moved aside"
            )
    return restored, notes


def find_cut_over_names(records: Records) -> set[Target]:
    """The names in Glue whose Hive definition a cut-over has kept."""
    return {kept.target for kept in records.definitions()}


class GlueName:
    """One table of Glue, by its name."""

    def __init__(self, catalog: str | None, database: str, name: str, region: str | None) -> None:
        self.catalog, self.database, self.name, self.region = catalog, database, name, region

    @classmethod
    def of(cls, table: TableInfo, options: ConversionOptions) -> GlueName:
        return cls(table.catalog, table.database or "", table.name, table.region or options.region)

    def __str__(self) -> str:
        return ".".join(part for part in (self.catalog, self.database, self.name) if part)

    @property
    def target(self) -> Target:
        return Target(self.catalog, self.database, self.name, "glue")

    @property
    def client(self) -> Any:
        return aws.glue_client(self.region)

    def definition(self) -> dict[str, Any]:
        """Read the definition of the table, as ``get_table`` returns it.

        :raises MissingError: there is no such table.
        """
        with aws_call(f"Reading the table {self} from Glue"):
            answer = self.client.get_table(DatabaseName=self.database, Name=self.name, **self._catalog_id)
        return dict(answer["Table"])

    def settable(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a definition that can be written back."""
        fields = self.client.meta.service_model.shape_for("TableInput").members
        return {field: definition[field] for field in fields if definition.get(field) is not None}

    def replace(self, found: Mapping[str, Any], table_input: Mapping[str, Any]) -> None:
        """Replace the definition that was found, unless somebody has changed it since."""
        now = self.definition()
        changed = _find_differing_fields(self.settable(found), self.settable(now))
        if changed or found.get("VersionId") != now.get("VersionId"):
            raise TransientError(
                f"{self} was changed in Glue while it was to be replaced ({', '.join(changed) or 'a new version'}). "
                "Nothing was replaced; try again"
            )
        # Glue refuses when it is no longer the version that was found.
        version = {"VersionId": found["VersionId"]} if found.get("VersionId") else {}
        with aws_call(f"Replacing the definition of {self} in Glue"):
            self.client.update_table(
                DatabaseName=self.database, TableInput=dict(table_input), **version, **self._catalog_id
            )

    @property
    def _catalog_id(self) -> dict[str, str]:
        return {"CatalogId": self.catalog} if self.catalog else {}


#: Parameters that speak of Parquet, of Hive's statistics or of a crawler; of a Delta table they would be wrong.
_OF_THE_OLD_FORM = re.compile(
    r"spark\.sql\..*|parquet\..*|projection\..*|storage\.location\.template|classification|EXTERNAL|compressionType"
    r"|typeOfData|transient_lastDdlTime|numFiles|numRows|rawDataSize|totalSize|COLUMN_STATS_ACCURATE|numPartitions"
    r"|bucketing_version|averageRecordSize|objectCount|recordCount|sizeKey|partition_filtering\.enabled"
    r"|UPDATED_BY_CRAWLER|CrawlerSchema\w+"
)


def _check_converted_from(records: Records, snapshot: Snapshot, table: TableInfo) -> None:
    source = records.source()
    if not records.is_ours(snapshot):
        raise PermanentError(
            f"The Delta log at {records.root} was not made by a conversion of this package, so what Glue should say "
            f"of {table.qualified_name} is not known. Register that table yourself"
        )
    if source is not None and source.source != "none" and source.qualified_name != table.qualified_name:
        raise PermanentError(
            f"The Delta log at {records.root} was made from {source.qualified_name}, not from {table.qualified_name}, "
            "which lies at the same place. Cut that table over"
        )


def _check_replaceable(found: Mapping[str, Any], name: GlueName, root: Location) -> None:
    described = _describe(found, name)
    if not _is_parquet_at(described, root):
        raise PermanentError(
            f"{name} is {described.format} at {described.location or 'no location'} in Glue, expected the Parquet "
            f"table at {root} that was converted. Nothing was replaced"
        )


def _describe(definition: Mapping[str, Any], name: GlueName) -> TableInfo:
    return from_glue(definition, GlueDiscovery(name.database, region=name.region, catalog_id=name.catalog))


def _is_parquet_at(described: TableInfo, root: Location) -> bool:
    at_root = bool(described.location) and parse_location(described.location).canonical == root.canonical
    return described.format == "parquet" and at_root


def _check_kept(records: Records, name: GlueName, kept: KeptDefinition) -> None:
    """Refuse a kept definition that no cut-over of this table can have kept.

    :raises PermanentError: it is none of Glue's, or of another table.
    """
    try:
        described = _describe(kept.definition, name)
        right = described.name == name.name and _is_parquet_at(described, records.root)
    except (LookupError, TypeError, AttributeError, ValueError, PermanentError) as error:
        raise records.changed(kept.record, f"definition is none of Glue's ({error!r})") from error
    if not right:
        found = f"definition is of {described.name}, {described.format} at {described.location or 'no location'}"
        raise records.changed(kept.record, found)


def _find_last_kept(records: Records) -> dict[Target, KeptDefinition]:
    """Find the definition that was kept last, for each name that was cut over."""
    return {kept.target: kept for kept in records.definitions()}


def _keep_definition(records: Records, name: GlueName, found: Mapping[str, Any]) -> str:
    """Keep a definition before it is replaced, unless it is the one that was kept last. Returns its record's name."""
    kept = _find_last_kept(records).get(name.target)
    if kept is not None and not _find_differing_fields(name.settable(kept.definition), name.settable(found)):
        return kept.record
    return records.keep_definition(name.target, name.region, found)


def _restore_definition(records: Records, name: GlueName, kept: KeptDefinition) -> tuple[bool, str | None]:
    """Restore the old definition of a name. Returns whether the name has it now, and a note for people."""
    where = f"Its old definition is kept in {kept.record} of the log that was moved aside"
    old = name.settable(kept.definition)
    try:
        found = name.definition()
    except MissingError:
        return False, f"{name} is gone from Glue and was not made again. {where}"
    if is_delta_in_glue(found, records.root):
        _check_kept(records, name, kept)
        name.replace(found, old)
        found = name.definition()
        if is_delta_in_glue(found, records.root):
            raise TransientError(f"{name} was restored in Glue and is Delta again; somebody undid it. Try again")
    if differing := _find_differing_fields(old, name.settable(found)):
        return False, f"{name} in Glue differs from what a cut-over kept, in {', '.join(differing)}. {where}"
    return True, None


def _make_delta_definition(
    name: GlueName, found: Mapping[str, Any], root: Location, snapshot: Snapshot
) -> dict[str, Any]:
    metadata = snapshot.metadata
    delta = glue_table_input(name.target, root, metadata.schema, metadata.partition_columns, metadata.description)
    own = {key: value for key, value in found.get("Parameters", {}).items() if not _OF_THE_OLD_FORM.fullmatch(key)}
    old = name.settable(found)
    # Glue compares partitions with the keys, which stay as they are; what people wrote of the table stays too.
    kept = {field: value for field, value in old.items() if field in {"Name", "Description", "PartitionKeys"}}
    return {**old, **delta, **kept, "Parameters": {**own, **delta["Parameters"]}}


def _find_differing_fields(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Names of the fields that differ. Times are compared as texts, which a record has them as."""

    def plain(value: Any) -> str:
        return json.dumps(value, sort_keys=True, default=str)

    return sorted(name for name in {*one, *other} if plain(one.get(name)) != plain(other.get(name)))
