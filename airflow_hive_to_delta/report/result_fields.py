"""How the result of each action becomes the outcome of a table: the fields that differ, and the notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_hive_to_delta.core.results import (
    ConversionResult,
    CutOverResult,
    RollbackResult,
    SyncResult,
    TablePlan,
    TableResult,
    VacuumResult,
    VerifyResult,
)
from airflow_hive_to_delta.report.formatting import format_count


def outcome_fields(result: TableResult) -> dict[str, Any]:
    """Return the fields of :class:`TableOutcome` that the result has under another name or with another content.

    What an outcome has no field for, such as the differences that a verification found, is in its notes.
    """
    match result:
        case ConversionResult():
            return {
                "table": result.source_table,
                "notes": [*result.notes, *([result.message] if result.message else [])],
                **_verification_fields(result),
            }
        case TablePlan():
            return {
                "table": result.source_table,
                "status": "converted_earlier" if result.status == "converted" else result.status,
                "notes": [*_plan_notes(result), *result.notes],
            }
        case VerifyResult():
            return {
                "table": result.source_table,
                "status": "verified" if result.success else "failed",
                "verified": {result.level: result.version} if result.success and result.version is not None else {},
                "notes": [*describe_mismatches(result.mismatches, result.mismatch_count), *result.notes],
                "error": result.error or (None if result.success else "The Delta table differs from its original"),
            }
        case SyncResult():
            changes = f"{format_count(result.num_added_files, 'file')} added, {result.num_removed_files:,} removed"
            return {
                "table": result.source_table,
                "file_count": result.num_added_files,
                "byte_count": result.added_bytes,
                "notes": [*([changes] if result.status == "synced" else []), *result.notes],
            }
        case VacuumResult():
            return {
                "table": result.table_name,
                "status": "vacuumed" if result.success else "failed",
                "file_count": len(result.orphaned_files),
                "byte_count": result.orphaned_bytes,
                "notes": [*_vacuum_notes(result), *result.notes],
            }
        case RollbackResult():
            return {"table": result.source_table, "notes": [*_rollback_notes(result), *result.notes]}
        case CutOverResult():
            kept = f"The old definition is kept at {result.kept_definition}"
            return {"table": result.source_table, "notes": [*([kept] if result.kept_definition else []), *result.notes]}


def describe_verified(result: VerifyResult) -> str:
    """The note on a table that was found equal to its original."""
    rows = "" if result.row_count is None else f" and {format_count(result.row_count, 'row')}"
    files = format_count(result.file_count, "file")
    return f"Verified by {result.level} at version {result.version}: {files}{rows}"


def describe_mismatches(mismatches: Sequence[Mapping[str, Any]], count: int) -> Iterator[str]:
    """The notes on a table that differs from its original.

    :param count: of all differences, of which some are not among ``mismatches``.
    """
    for mismatch in mismatches:
        partition = f"{mismatch['partition']}: " if mismatch["partition"] else ""
        yield f"{partition}{mismatch['what']}: original {mismatch['original']}, Delta {mismatch['delta']}"
    if (more := count - len(mismatches)) > 0:
        yield format_count(more, "more difference")


def _verification_fields(result: ConversionResult) -> dict[str, Any]:
    """What the verification right after a conversion says of the table: one that differs has failed."""
    found = result.verification
    if found is None:
        return {}
    seconds = round(result.duration_seconds + found.duration_seconds, 3)
    if not found.success:
        fields = outcome_fields(replace(found, error=result.error))
        return {name: fields[name] for name in ("status", "notes", "error")} | {"duration_seconds": seconds}
    notes = [describe_verified(found), *result.notes, *(note for note in found.notes if note not in result.notes)]
    return {"notes": [*notes, *([result.message] if result.message else [])], "duration_seconds": seconds}


def _plan_notes(plan: TablePlan) -> Iterator[str]:
    if plan.partition_count:
        outside = f", {plan.external_partition_count:,} with files outside the table's location"
        yield f"Partitions: {plan.partition_count:,}{outside if plan.external_partition_count else ''}"
    for conflict in plan.schema_conflicts:
        if conflict != plan.error:
            yield f"Schema conflict: {conflict}"
    for reader in plan.unreadable_by:
        yield f"Not readable by {reader}"


def _vacuum_notes(result: VacuumResult) -> Iterator[str]:
    if result.dry_run:
        found = format_count(len(result.orphaned_files), "file")
        yield f"A dry run: {found} of {result.orphaned_bytes:,} bytes would be deleted"
    else:
        verb = "was" if len(result.deleted_files) == 1 else "were"
        yield f"{format_count(len(result.deleted_files), 'file')} of {result.deleted_bytes:,} bytes {verb} deleted"


def _rollback_notes(result: RollbackResult) -> Iterator[str]:
    if result.log_moved_to:
        yield f"The log lies at {result.log_moved_to} now"
    if result.dropped:
        yield f"Dropped from the catalog: {', '.join(result.dropped)}"
    if result.restored:
        yield f"As it was in the catalog again: {', '.join(result.restored)}"
    if result.lost_versions:
        yield f"Versions of other writers that are lost: {', '.join(map(str, result.lost_versions))}"
    if result.files_moved_aside:
        verb = "was" if result.files_moved_aside == 1 else "were"
        yield f"{format_count(result.files_moved_aside, 'file')} that Delta wrote {verb} moved aside"
