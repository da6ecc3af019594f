"""What became of a table: the results of plans, conversions, verifications, syncs, vacuums, rollbacks and cut-overs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from airflow_hive_to_delta.core.errors import PermanentError, describe_error
from airflow_hive_to_delta.core.models import Document


@dataclass(kw_only=True)
class _Outcome(Document):
    """What every result has, whatever was done."""

    #: Why it failed or was refused, and what to do about it.
    error: str | None = None
    #: Name of the error's class, such as ``StaleFileListError``; None when there was no error.
    error_kind: str | None = None
    #: Whether trying again may help; None when there was no error.
    retryable: bool | None = None
    duration_seconds: float = 0.0


VerifyLevel = Literal["counts", "full"]


def levels_that_prove(level: str) -> tuple[str, ...]:
    """The levels of a verification that prove at least what this one does; none for a level that is unknown."""
    levels = get_args(VerifyLevel)  # each proves what those before it prove
    return levels[levels.index(level) :] if level in levels else ()


Status = Literal["converted", "already_delta", "registered", "refused", "failed"]


@dataclass
class ConversionResult(_Outcome):
    """What became of one table."""

    source_table: str
    #: Fully qualified name it is registered under, empty when it is not registered.
    target_table: str
    #: Whether it is a Delta table now, and equal to its original where that was to be verified.
    success: bool
    #: ``registered``: the log was there already, from an earlier run; only the registration was missing. It stays
    #: ``converted`` when a verification after the conversion fails.
    status: Status
    file_count: int = 0
    byte_count: int = 0
    #: None when no statistics were collected.
    row_count: int | None = None
    location: str = ""
    delta_log_location: str = ""
    version: int | None = None
    #: What the first commit says as ``userMetadata``, where it is a conversion of this table.
    user_metadata: str | None = None
    #: Whether the first commit is a conversion of this table by this package, in whichever run.
    ours: bool = False
    #: Of a Delta table that is not: who made its log, as far as that is known.
    origin: str | None = None
    #: The run that wrote the first commit, where that says so.
    run_id: str | None = None
    #: The latest version that was verified, by level; empty: none was.
    verified: dict[str, int] = field(default_factory=dict)
    #: Reader and writer features beyond the default protocol.
    features: list[str] = field(default_factory=list)
    #: What a reader of this table should know: absolute paths, widened types, columns left out.
    notes: list[str] = field(default_factory=list)
    message: str | None = None
    #: Whether no data file was found: the table is empty, or its location is wrong.
    is_empty: bool = False
    #: What the verification right after the conversion found; None: there was none.
    verification: VerifyResult | None = None

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        found = document.get("verification")
        return super().from_dict({**document, "verification": VerifyResult.from_dict(found) if found else None})

    def __str__(self) -> str:
        target = self.target_table or self.location
        if not self.success:
            status = "converted, but its verification failed" if self.status == "converted" else self.status
            return f"{self.source_table}: {status}: {self.error}"
        # Of a table that was there already nobody counts the bytes.
        size = f", {self.byte_count} bytes" if self.byte_count or self.status == "converted" else ""
        verified = f", verified by {self.verification.level}" if self.verification else ""
        return f"{self.source_table} -> {target}: {self.status}, {self.file_count} files{size}{verified}"


@dataclass
class VacuumResult(_Outcome):
    """What a vacuum of external files found, and what it deleted."""

    table_name: str
    #: Files that Delta removed long ago and that nothing refers to any more, as URIs.
    orphaned_files: list[str] = field(default_factory=list)
    deleted_files: list[str] = field(default_factory=list)
    orphaned_bytes: int = 0
    deleted_bytes: int = 0
    dry_run: bool = True
    #: Why files that Delta removed were kept: too young, live under another spelling, still in the metastore.
    notes: list[str] = field(default_factory=list)
    location: str = ""

    @property
    def success(self) -> bool:
        return self.error is None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.table_name}: failed: {self.error}"
        if self.dry_run:
            return f"{self.table_name}: {len(self.orphaned_files)} files to delete, {self.orphaned_bytes} bytes"
        return f"{self.table_name}: {len(self.deleted_files)} files deleted, {self.deleted_bytes} bytes"


#: ``converted``: by an earlier run of this package. ``failed``: it could not be looked at.
PlanStatus = Literal["convertible", "refused", "already_delta", "converted", "failed"]


@dataclass
class TablePlan(_Outcome):
    """What a conversion of one table would do. Nothing was written to find out."""

    source_table: str
    status: PlanStatus
    location: str = ""
    #: The version of the Delta table that is there already.
    version: int | None = None
    #: Of a table that was converted earlier: the files that it had then.
    file_count: int = 0
    byte_count: int = 0
    #: Partitions that have files; 0 for a table without partition columns.
    partition_count: int = 0
    #: Partitions with files outside the table's location.
    external_partition_count: int = 0
    #: Where the catalog and the files do not fit together; each keeps the table from being converted.
    schema_conflicts: list[str] = field(default_factory=list)
    #: Reader and writer features that the Delta table will need beyond the default protocol.
    features: list[str] = field(default_factory=list)
    #: Readers that will not be able to read the Delta table, each with the reason.
    unreadable_by: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: Whether no data file was found: the table is empty, or its location is wrong.
    is_empty: bool = False

    def __str__(self) -> str:
        if self.error:
            return f"{self.source_table}: {self.status}: {self.error}"
        parts = [f"{self.source_table}: {self.status}"]
        if self.status == "convertible":
            parts += [f"{self.file_count} files", f"{self.byte_count} bytes"]
        else:  # a Delta table, whose bytes nobody counts, and its files only if it was converted here
            parts += [f"version {self.version}", *([f"{self.file_count} files"] if self.file_count else [])]
        if self.partition_count:
            outside = f" ({self.external_partition_count} outside)" if self.external_partition_count else ""
            parts.append(f"{self.partition_count} partitions{outside}")
        if self.features:
            parts.append(f"needs {' and '.join(self.features)}")
        if self.unreadable_by:
            kinds = len(self.unreadable_by)
            parts.append(f"not readable by {kinds} kind{'' if kinds == 1 else 's'} of readers")
        return ", ".join(parts)


@dataclass
class VerifyResult(_Outcome):
    """How a Delta table compares with its original."""

    source_table: str
    location: str
    level: VerifyLevel
    success: bool
    #: The version of the Delta table that was compared.
    version: int | None = None
    file_count: int = 0
    byte_count: int = 0
    row_count: int | None = None
    partition_count: int = 0
    #: What differs, the first of it: each with ``partition``, ``what``, ``original`` and ``delta``.
    mismatches: list[dict[str, Any]] = field(default_factory=list)
    mismatch_count: int = 0
    #: Of one that differs: what was written after the compared version, where that may be all of the difference.
    written_since: str | None = None
    notes: list[str] = field(default_factory=list)
    #: Whether there was nothing to compare: neither side has a file with rows.
    is_empty: bool = False

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.source_table}: failed: {self.error}"
        if self.success and self.is_empty:
            return f"{self.source_table}: nothing to compare at version {self.version}: neither side has a row"
        found = "equal to the original" if self.success else f"{self.mismatch_count} differences from the original"
        rows = "" if self.row_count is None else f", {self.row_count} rows"
        files = f"{self.file_count} files, {self.byte_count} bytes{rows}"
        return f"{self.source_table}: {found} by {self.level} at version {self.version}, {files}"


class VerificationError(PermanentError):
    """A Delta table differs from its original.

    :param result: the result of the verification. It is marked as failed, with this error as its reason.
    """

    def __init__(self, message: str, result: VerifyResult) -> None:
        super().__init__(message)
        result.success = False
        for name, value in describe_error(self).to_fields().items():
            setattr(result, name, value)
        self.result = result


#: ``unchanged``: Hive has nothing new. ``already_synced``: this run, or a later one, was committed before.
SyncStatus = Literal["synced", "unchanged", "already_synced", "failed"]


@dataclass
class SyncResult(_Outcome):
    """What a sync brought from a Hive table into its Delta table."""

    source_table: str
    location: str
    success: bool
    status: SyncStatus
    #: The version that the sync committed, or found when there was nothing to do.
    version: int | None = None
    #: The version of this run in the log's ``txn``.
    run_version: int | None = None
    num_added_files: int = 0
    num_removed_files: int = 0
    added_bytes: int = 0
    removed_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    #: The run that was committed: this one, or the later one for which this one was passed over.
    committed_run_version: int | None = None
    #: Partitions in which Hive may have been writing (``quiet_period``), left for the next sync; and the first of them.
    waiting_partition_count: int = 0
    waiting_partitions: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.success:
            return f"{self.source_table}: {self.status}: {self.error}"
        moved = ""
        if self.status == "synced":
            added = f"{self.num_added_files} files added ({self.added_bytes} bytes)"
            moved = f", {added}, {self.num_removed_files} removed ({self.removed_bytes} bytes)"
        waits = f", {self.waiting_partition_count} partitions wait" if self.waiting_partition_count else ""
        return f"{self.source_table}: {self.status}, version {self.version}{moved}{waits}"


#: ``not_delta``: there was no log to roll back, or an earlier call has done it.
RollbackStatus = Literal["rolled_back", "not_delta", "failed"]


@dataclass
class RollbackResult(_Outcome):
    """What a rollback to the Hive table undid."""

    source_table: str
    location: str
    success: bool
    status: RollbackStatus
    #: Where the log lies now.
    log_moved_to: str = ""
    #: Names that were dropped from catalogs.
    dropped: list[str] = field(default_factory=list)
    #: Names whose old definition is in the catalog again.
    restored: list[str] = field(default_factory=list)
    #: Versions of other writers that are lost with the log, as the caller accepted.
    lost_versions: list[int] = field(default_factory=list)
    #: Files that Delta wrote where Hive would have read them, and where they were moved to.
    files_moved_aside: int = 0
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.success:
            return f"{self.source_table}: {self.status}: {self.error}"
        parts = [f"{self.source_table}: {self.status}"]
        parts += [f"the log is at {self.log_moved_to}"] if self.log_moved_to else []
        parts += [f"dropped {' and '.join(self.dropped)}"] if self.dropped else []
        parts += [f"restored {' and '.join(self.restored)}"] if self.restored else []
        parts += [f"lost the versions {', '.join(map(str, self.lost_versions))}"] if self.lost_versions else []
        return ", ".join(parts)


CutOverStatus = Literal["cut_over", "already_cut_over", "failed"]


@dataclass
class CutOverResult(_Outcome):
    """The replacement of a Hive definition by the Delta one, under the same name."""

    source_table: str
    location: str
    success: bool
    status: CutOverStatus
    #: The version of the Delta table whose columns the catalog has now.
    version: int | None = None
    #: Where the old definition is kept.
    kept_definition: str = ""
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.success:
            return f"{self.source_table}: {self.status}: {self.error}"
        kept = f", the old definition is at {self.kept_definition}" if self.kept_definition else ""
        return f"{self.source_table}: {self.status}, version {self.version}{kept}"


#: What became of a table, by whichever action.
TableResult = ConversionResult | CutOverResult | RollbackResult | SyncResult | TablePlan | VacuumResult | VerifyResult
