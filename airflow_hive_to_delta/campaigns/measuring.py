"""How large the tables of a draft are, and which of them have partitions that a filter takes.

Without Spark: partitions come from Glue, files from S3 or from S3 Inventory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from airflow_hive_to_delta.campaigns.documents import CampaignDocument
from airflow_hive_to_delta.campaigns.drafts import DraftUnit, MeasuredTables, Measurement, draft_folder
from airflow_hive_to_delta.campaigns.store import CampaignStore
from airflow_hive_to_delta.core.errors import HiveToDeltaError, PermanentError, TransientError
from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.options import ConversionOptions
from airflow_hive_to_delta.core.storage.uri import canonical_uri, parse_location

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.listing.inventory_reports import InventoryManifest
    from airflow_hive_to_delta.core.listing.locations import TableLocation

log = logging.getLogger(__name__)

#: ``statistics``: as the catalog has counted files and bytes. ``list``: the tables that it has not counted are listed
#: on S3. ``inventory``: they are counted in reports of S3 Inventory.
Sizes = Literal["statistics", "list", "inventory"]
#: Takes the values of one partition by column, as the catalog has them, and says whether the partition counts.
PartitionFilter = Callable[[dict[str, str | None]], object]

#: Tables whose measurements are kept together: what a crash loses at most.
_CHUNK = 16
#: Tables that are looked at side by side, and the requests for each.
_TABLES, _REQUESTS = 8, 8
#: Files of inventory reports that are read side by side.
_REPORTS = 4


@dataclass(frozen=True)
class CountedReport(CampaignDocument):
    """The files and bytes of tables in one file of an inventory report."""

    noun: ClassVar[str] = "count of an inventory report"

    file: str
    #: By table: how many files, and how many bytes.
    counts: dict[str, list[int]]

    def __post_init__(self) -> None:
        if wrong := [table for table, each in self.counts.items() if len(each) != 2]:
            raise ValueError(f"counts has {self.counts[wrong[0]]!r} for {wrong[0]}, expected files and bytes")


@dataclass(frozen=True)
class Measuring:
    """How tables are looked at.

    :param options: :class:`ConversionOptions` of the campaign.
    :param region: the region of Glue, where a table does not name one, and where to ask for the regions of buckets.
    :param is_last_try: no other call follows for the same unit. If one does, an error that may pass is raised.
    """

    sizes: Sizes
    partition_filter: PartitionFilter | None = None
    options: ConversionOptions = field(default_factory=ConversionOptions)
    region: str | None = None
    is_last_try: bool = True

    def measure_unit(self, store: CampaignStore, unit: DraftUnit) -> int:
        """Look at the tables of a unit, those that an earlier call has not come to. Returns how many these were.

        What was found is kept in the draft, chunk by chunk. A table of which nothing can be found out is named in the
        log, and stays in the plan: the wave that takes it finds it out again, and says so.

        :raises PermanentError: the filter raises an exception.
        :raises TransientError: a storage or Glue cannot answer now, and this is not the last try.
        """
        folder = f"{draft_folder(unit.run)}/measured"
        done = set(store.names(folder))
        tables = [TableInfo.from_dict(table) for table in unit.tables]
        count = 0
        with ThreadPoolExecutor(_TABLES, "measure") as pool:
            for start in range(0, len(tables), _CHUNK):
                name = f"{unit.unit}.{start // _CHUNK:03d}.json"
                if name not in done:
                    chunk = tables[start : start + _CHUNK]
                    found = list(pool.map(lambda table: self._measure(table, unit), chunk))
                    store.write(f"{folder}/{name}", MeasuredTables([each.to_dict() for each in found]).to_dict())
                    count += len(chunk)
        return count

    def _measure(self, table: TableInfo, unit: DraftUnit) -> Measurement:
        name = table.qualified_name
        measured = Measurement(name)
        try:
            locations = self._locations(table)
        except HiveToDeltaError as error:
            self._accept(error, f"{name}: neither its partitions nor its size are known")
            return measured
        if name in unit.filtered and self.partition_filter is not None:
            measured = self._filter(table, locations, self.partition_filter)
        if name not in unit.counted or measured.is_taken is False:
            return measured
        if self.sizes == "inventory":
            return replace(measured, locations=[canonical_uri(found.location) for found in locations])
        try:
            files, size = self._list(table, locations)
        except HiveToDeltaError as error:
            self._accept(error, f"{name}: its size is not known")
            return measured
        return replace(measured, files=files, bytes=size)

    def _accept(self, error: HiveToDeltaError, what: str) -> None:
        if isinstance(error, TransientError) and not self.is_last_try:
            raise error
        log.warning("%s: %s", what, error)

    def _locations(self, table: TableInfo) -> list[TableLocation]:
        from airflow_hive_to_delta.core.listing.locations import TableLocation, table_locations

        if table.source == "spark":
            # Only a session of Spark knows its partitions; nearly always they lie under the root.
            return [TableLocation(parse_location(table.location), None, f"the table {table.qualified_name}")]
        return table_locations(None, table, self.options, None, self.region, _REQUESTS)

    def _filter(
        self, table: TableInfo, locations: Sequence[TableLocation], partition_filter: PartitionFilter
    ) -> Measurement:
        name = table.qualified_name
        if not table.partition_keys:
            return Measurement(name, partitions=0, is_taken=False)
        values = [found.values for found in locations if found.values is not None]
        if len(values) < len(locations):
            log.warning("%s: it stays in the plan, for its catalog does not list its partitions", name)
            return Measurement(name)
        is_taken = any(_takes(partition_filter, each, name) for each in values)
        return Measurement(name, partitions=len(values), is_taken=is_taken)

    def _list(self, table: TableInfo, locations: Sequence[TableLocation]) -> tuple[int, int]:
        import pyarrow.compute as pc

        from airflow_hive_to_delta.core.listing.s3 import S3Listing

        listing = S3Listing(self.region, None, max_workers=_REQUESTS)
        # A partition that is missing is an error of the conversion, and has no files.
        options = replace(self.options, allow_missing_partitions=True)
        files = size = 0
        for batch in listing.list_locations(table, locations, options):
            files += batch.num_rows
            size += pc.sum(batch["size"]).as_py() or 0
        return files, size


def count_in_inventory(
    store: CampaignStore,
    run: str,
    measurements: Mapping[str, Measurement],
    manifests: str | Sequence[str],
    *,
    region: str | None = None,
) -> dict[str, tuple[int, int]]:
    """The files and bytes of the tables that have locations, by one pass over the reports for all of them.

    The counts of each file of a report are kept in the draft: a later call reads the other files. A table that has no
    file there is left out, for a report may not cover it.

    :raises PermanentError: a manifest or report is not as S3 Inventory writes it, or lacks a needed field.
    """
    from airflow_hive_to_delta.core.listing.inventory_reports import manifest_uris, read_manifest
    from airflow_hive_to_delta.core.listing.inventory_sizes import SizeIndex, count_files
    from airflow_hive_to_delta.core.storage.s3 import S3Storage

    index = SizeIndex()
    for measured in measurements.values():
        if measured.locations:
            index.add(measured.table, map(parse_location, measured.locations))
    if not index.tables:
        return {}
    storage = S3Storage(ConversionOptions(region=region))
    reports = [
        (manifest, file)
        for manifest in [read_manifest(storage, uri) for uri in dict.fromkeys(manifest_uris(manifests))]
        for file in manifest.files
    ]
    folder = f"{draft_folder(run)}/inventory"
    paths = [f"{folder}/{name}" for name in store.names(folder)]
    kept = {counted.file: counted.counts for _, counted in store.read_all_as(CountedReport, paths)}

    def count(numbered: tuple[int, tuple[InventoryManifest, str]]) -> Mapping[str, Sequence[int]]:
        number, (manifest, file) = numbered
        if file in kept:
            return kept[file]
        counts = count_files(storage, manifest, file, index)
        found = CountedReport(file, {table: list(each) for table, each in counts.items()})
        store.write(f"{folder}/{number:05d}.json", found.to_dict())
        log.info("Counted %s, file %d of %d", file, number + 1, len(reports))
        return found.counts

    total: dict[str, tuple[int, int]] = {}
    with ThreadPoolExecutor(_REPORTS, "inventory") as pool:
        for counts in pool.map(count, enumerate(reports)):
            for table, (files, size) in counts.items():
                before = total.get(table, (0, 0))
                total[table] = (before[0] + files, before[1] + size)
    log.info("%d of %d tables have files in the inventory", len(total), len(index.tables))
    return total


def _takes(partition_filter: PartitionFilter, values: Mapping[str, str | None], table: str) -> bool:
    try:
        return bool(partition_filter(dict(values)))
    except Exception as error:
        raise PermanentError(
            f"partition_filter failed for the partition {dict(values)} of {table}: {error!r}. It gets the values of a "
            "partition as texts by column, None for a null; not every table has the same columns"
        ) from error
