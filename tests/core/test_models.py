"""What travels between the steps is JSON of a known shape (rule 53)."""

from __future__ import annotations

import json

import pytest

from airflow_hive_to_delta import (
    ConversionOptions,
    ConversionResult,
    CutOverResult,
    ParquetFileInfo,
    RollbackResult,
    SyncResult,
    TableInfo,
    TablePlan,
    VacuumResult,
    VerifyResult,
)
from airflow_hive_to_delta.core.results import levels_that_prove

DOCUMENTS = [
    TableInfo(name="t", location="s3://b/t", partition_keys=["p"], partition_types={"p": "int"}, database="d"),
    ParquetFileInfo(path="s3://b/t/p=1/f", size=7, partition_values={"p": None}),
    ConversionOptions(stats="none", properties={"a": "b"}, allowed_roots=["s3://b"]),
    ConversionResult(source_table="d.t", target_table="c.s.t", success=True, status="converted", notes=["n"]),
    VacuumResult(table_name="t", orphaned_files=["s3://b/x"]),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: type(document).__name__)
def test_rule_53_every_document_comes_back_from_json(document):
    assert type(document).from_dict(json.loads(json.dumps(document.to_dict()))) == document


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: type(document).__name__)
def test_rule_53_a_key_that_is_not_known_is_an_error_and_never_silently_nothing(document):
    with pytest.raises(ValueError, match="has no misspelt; it has"):
        type(document).from_dict({**document.to_dict(), "misspelt": 1})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stats": "all"}, "stats is 'all', expected one of footer, scan, none"),
        ({"register_in": "hive"}, "register_in is 'hive', expected one of sql, glue"),
        ({"stats_batch_size": 0}, "stats_batch_size is 0, expected at least 1"),
        ({"footer_threads": -1}, "footer_threads is -1, expected at least 1"),
    ],
)
def test_options_are_checked_when_they_are_made(wrong, message):
    with pytest.raises(ValueError, match=message):
        ConversionOptions(**wrong)


def test_a_table_is_named_with_all_that_is_known_of_it():
    assert TableInfo(name="t", location="").qualified_name == "t"
    assert TableInfo(name="t", location="", catalog="c", database="d").qualified_name == "c.d.t"


def test_rule_45_a_bucketed_table_is_refused_unless_losing_the_buckets_is_fine():
    table = TableInfo(name="t", location="s3://b/t", bucket_columns=["id"])
    assert "allow_bucketed=True" in (table.why_refused(ConversionOptions()) or "")
    assert table.why_refused(ConversionOptions(allow_bucketed=True)) is None


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (
            ConversionResult("d.t", "c.s.t", True, "converted", 3, 70),
            "d.t -> c.s.t: converted, 3 files, 70 bytes",
        ),
        (
            ConversionResult("d.t", "c.s.t", True, "already_delta", 3),
            "d.t -> c.s.t: already_delta, 3 files",
        ),
        (
            TablePlan(
                "d.t", "convertible", file_count=3, byte_count=70, partition_count=2, external_partition_count=1,
                features=["typeWidening", "timestampNtz"], unreadable_by=["delta-rs and DuckDB: absolute paths"],
            ),
            "d.t: convertible, 3 files, 70 bytes, 2 partitions (1 outside), needs typeWidening and timestampNtz, "
            "not readable by 1 kind of readers",
        ),
        (TablePlan("d.t", "already_delta", version=4), "d.t: already_delta, version 4"),
        (TablePlan("d.t", "converted", version=0, file_count=3), "d.t: converted, version 0, 3 files"),
        (TablePlan("d.t", "refused", error="It is text"), "d.t: refused: It is text"),
        (
            VerifyResult("d.t", "s3://b/t", "counts", True, 1, 3, 70, 9),
            "d.t: equal to the original by counts at version 1, 3 files, 70 bytes, 9 rows",
        ),
        (
            VerifyResult("d.t", "s3://b/t", "full", False, 1, 3, 70, mismatch_count=2),
            "d.t: 2 differences from the original by full at version 1, 3 files, 70 bytes",
        ),
        (VerifyResult("d.t", "s3://b/t", "full", False, error="Denied"), "d.t: failed: Denied"),
        (
            SyncResult("d.t", "s3://b/t", True, "synced", 2, 5, 3, 1, 70, 20, notes=["A note"]),
            "d.t: synced, version 2, 3 files added (70 bytes), 1 removed (20 bytes)",
        ),
        (SyncResult("d.t", "s3://b/t", True, "unchanged", 2), "d.t: unchanged, version 2"),
        (SyncResult("d.t", "s3://b/t", False, "failed", error="Denied"), "d.t: failed: Denied"),
        (
            RollbackResult("d.t", "s3://b/t", True, "rolled_back", "s3://b/old", ["s.t"], ["d.t"], [3, 4]),
            "d.t: rolled_back, the log is at s3://b/old, dropped s.t, restored d.t, lost the versions 3, 4",
        ),
        (RollbackResult("d.t", "s3://b/t", True, "not_delta"), "d.t: not_delta"),
        (RollbackResult("d.t", "s3://b/t", False, "failed", error="Denied"), "d.t: failed: Denied"),
        (VacuumResult("d.t", ["s3://b/x"], orphaned_bytes=7), "d.t: 1 files to delete, 7 bytes"),
        (
            VacuumResult("d.t", ["s3://b/x"], ["s3://b/x"], 7, 7, dry_run=False),
            "d.t: 1 files deleted, 7 bytes",
        ),
        (VacuumResult("d.t", error="Denied"), "d.t: failed: Denied"),
        (
            CutOverResult("d.t", "s3://b/t", True, "cut_over", 3, "s3://b/kept.json"),
            "d.t: cut_over, version 3, the old definition is at s3://b/kept.json",
        ),
        (CutOverResult("d.t", "s3://b/t", False, "failed", error="Denied"), "d.t: failed: Denied"),
    ],
)  # fmt: skip
def test_a_result_is_one_line(result, line):
    assert str(result) == line


def test_a_level_of_verification_proves_what_the_weaker_ones_do() -> None:
    assert levels_that_prove("counts") == ("counts", "full")
    assert levels_that_prove("full") == ("full",)
    assert levels_that_prove("none") == ()
