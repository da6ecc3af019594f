"""Reports of S3 Inventory: what their manifests say, and their objects, read with pyarrow and without Spark."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_to_delta.core.errors import PermanentError
from airflow_hive_to_delta.core.storage.uri import S3_SCHEMES, parse_location

if TYPE_CHECKING:
    from airflow_hive_to_delta.core.storage.base import Storage

Format = Literal["csv", "parquet", "orc"]
_FORMATS: dict[str, Format] = {"CSV": "csv", "Parquet": "parquet", "ORC": "orc"}
_BLOCK_BYTES = 16 * 1024 * 1024
_BATCH_ROWS = 128 * 1024


@dataclass(frozen=True)
class InventoryManifest:
    """What the ``manifest.json`` of a report says."""

    uri: str
    #: The bucket whose objects the report lists.
    source_bucket: str
    format: Format
    #: The names of the columns of a report in CSV, whose files have no header.
    csv_columns: tuple[str, ...]
    #: The URIs of the report's files, in the scheme of the manifest's.
    files: tuple[str, ...]
    #: When S3 began to scan the bucket, in milliseconds since the epoch; None if the manifest does not say.
    created: int | None


def parse_manifest(uri: str, text: str) -> InventoryManifest:
    """The content of a manifest, checked.

    :raises PermanentError: it is not as S3 Inventory writes it.
    """
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise PermanentError(f"The inventory manifest {uri} is not JSON: {error}") from error
    expected = {"sourceBucket": str, "destinationBucket": str, "fileFormat": str, "fileSchema": str, "files": list}
    found = manifest if isinstance(manifest, dict) else {}
    wrong = [name for name, kind in expected.items() if not isinstance(found.get(name), kind)]
    if wrong:
        raise PermanentError(
            f"The inventory manifest {uri} has no valid {', '.join(wrong)}; pass a manifest.json of S3 Inventory"
        )
    if found["fileFormat"] not in _FORMATS:
        raise PermanentError(
            f"The inventory manifest {uri} has the fileFormat {found['fileFormat']!r}, expected {', '.join(_FORMATS)}"
        )
    # An ARN: arn:aws:s3:::bucket
    destination = f"{parse_location(uri).scheme}://{found['destinationBucket'].rpartition(':')[2]}/"
    return InventoryManifest(
        uri=uri,
        source_bucket=found["sourceBucket"],
        format=_FORMATS[found["fileFormat"]],
        csv_columns=tuple(name.strip() for name in found["fileSchema"].split(",")),
        files=tuple(destination + file["key"] for file in found["files"]),
        created=_created(found),
    )


def check_manifest_uri(uri: str) -> None:
    """Refuse a manifest that is not on S3.

    :raises PermanentError: the message names it.
    """
    if parse_location(uri, "The inventory manifest").scheme not in S3_SCHEMES:
        raise PermanentError(f"The inventory manifest is {uri}, expected an address on S3")


def manifest_uris(given: str | Iterable[str]) -> list[str]:
    """The addresses of manifests, given as one or as several.

    :raises PermanentError: there is none.
    """
    uris = [given] if isinstance(given, str) else list(given)
    if not uris:
        raise PermanentError("manifest_uri is empty, expected the address of a manifest.json of S3 Inventory")
    return uris


def needed_columns(manifest: InventoryManifest, names: Sequence[str]) -> dict[str, str]:
    """The columns of a report by their names without case and underscores: ``islatest``, which is ``IsLatest`` in CSV.

    :raises PermanentError: there is no key, or no size.
    """
    columns = {name.replace("_", "").lower(): name for name in names}
    missing = [field for field in ("Key", "Size") if field.lower() not in columns]
    if missing:
        raise PermanentError(
            f"The inventory report of {manifest.uri} has no {' and no '.join(missing)}, only "
            f"{', '.join(names)}. Add the field Size to the inventory configuration and take its next report"
        )
    return columns


def read_manifest(storage: Storage, uri: str) -> InventoryManifest:
    """Read a manifest with boto3.

    :raises PermanentError: it is missing, or not as S3 Inventory writes it.
    """
    check_manifest_uri(uri)
    with storage.open(parse_location(uri, "The inventory manifest")) as source:
        return parse_manifest(uri, source.read().decode(errors="replace"))


def read_objects(storage: Storage, manifest: InventoryManifest, file: str) -> Iterator[pa.RecordBatch]:
    """The current objects in one file of a report, as batches of ``key``, not decoded, and ``size``.

    Older versions and delete markers are left out. The file is copied to the local disk for the time of reading, and
    held in memory a part at a time. Keys are encoded as in a form where the report is in CSV.

    :raises PermanentError: the file is missing, cannot be read, or lacks a needed field.
    """
    with tempfile.NamedTemporaryFile(prefix="inventory-") as copy:
        with storage.open(parse_location(file)) as source:
            shutil.copyfileobj(source, copy)
        copy.flush()
        try:
            for batch in _READERS[manifest.format](manifest, Path(copy.name), file):
                yield _current(batch)
        except (pa.ArrowException, OSError) as error:
            raise PermanentError(f"{file}, of the inventory report {manifest.uri}, cannot be read: {error}") from error


_FIELDS = ("key", "size", "islatest", "isdeletemarker")


def _read_csv(manifest: InventoryManifest, path: Path, file: str) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv

    columns = needed_columns(manifest, manifest.csv_columns)
    wanted = [columns[name] for name in _FIELDS if name in columns]
    # S3 compresses them always; a person may have unpacked them.
    with pa.input_stream(str(path), compression="gzip" if file.endswith(".gz") else None) as source:
        yield from csv.open_csv(
            source,
            csv.ReadOptions(column_names=manifest.csv_columns, block_size=_BLOCK_BYTES),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(
                column_types=dict.fromkeys(manifest.csv_columns, pa.string()),
                include_columns=wanted,
                strings_can_be_null=False,
            ),
        )


def _read_parquet(manifest: InventoryManifest, path: Path, _file: str) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as source:
        columns = needed_columns(manifest, source.schema_arrow.names)
        wanted = [columns[name] for name in _FIELDS if name in columns]
        yield from source.iter_batches(batch_size=_BATCH_ROWS, columns=wanted)


def _read_orc(manifest: InventoryManifest, path: Path, _file: str) -> Iterator[pa.RecordBatch]:
    from pyarrow import orc

    source = orc.ORCFile(path)
    columns = needed_columns(manifest, source.schema.names)
    wanted = [columns[name] for name in _FIELDS if name in columns]
    for stripe in range(source.nstripes):
        yield source.read_stripe(stripe, columns=wanted)


_READERS = {"csv": _read_csv, "parquet": _read_parquet, "orc": _read_orc}


def _current(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = {name.replace("_", "").lower(): batch.column(name) for name in batch.schema.names}
    size = columns["size"]
    if pa.types.is_string(size.type):
        size = pc.if_else(pc.equal(size, ""), None, size)  # of a delete marker
    objects = pa.record_batch([columns["key"].cast(pa.string()), size.cast(pa.int64())], names=["key", "size"])
    keep = None
    for name, wanted in (("islatest", True), ("isdeletemarker", False)):
        if name in columns:
            is_so = pc.equal(_as_boolean(columns[name]), wanted)
            keep = is_so if keep is None else pc.and_(keep, is_so)
    return objects if keep is None else objects.filter(keep)


def _as_boolean(column: pa.Array) -> pa.Array:
    if pa.types.is_boolean(column.type):
        return column
    return pc.equal(pc.utf8_lower(column), "true")


def _created(manifest: dict[str, Any]) -> int | None:
    found = str(manifest.get("creationTimestamp", "")).strip()
    return int(found) if found.isdecimal() and int(found) > 0 else None
